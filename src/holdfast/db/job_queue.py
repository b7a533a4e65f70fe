"""Deferring of jobs into Procrastinate's queues, inside the caller's transaction.

The rule: a deferred job is a hint. The work itself is in our tables; a lost job is deferred again by the next tick, and a duplicate
finds nothing to do. (The columns are those of the Procrastinate version that `migrate` installs.)
"""

from collections.abc import Sequence
from typing import Final

import psycopg

PARSE: Final = "parse"
NOTIFY: Final = "notify"
HIGH_PRIORITY: Final = 10
"""Priority of jobs that must not wait behind thousands of others."""

_RING: Final = """
INSERT INTO procrastinate.procrastinate_jobs (queue_name, task_name, queueing_lock, args)
SELECT %(queue)s::text, %(queue)s::text, %(queue)s::text || ' ' || id, jsonb_build_object('task_id', id)
FROM unnest(%(ids)s::bigint[]) AS t(id)
ON CONFLICT DO NOTHING
"""
_RING_ONCE: Final = """
INSERT INTO procrastinate.procrastinate_jobs (queue_name, task_name, queueing_lock, priority, args)
VALUES (%(queue)s::text, %(queue)s::text, %(queue)s::text, %(first)s, '{}') ON CONFLICT DO NOTHING
"""


def defer_parse(connection: psycopg.Connection, task_ids: Sequence[int]) -> None:
    """Defer the parsing of these tasks, unless it is queued already. A transaction may be open; the job appears with its commit."""
    if task_ids:
        connection.execute(_RING, {"queue": PARSE, "ids": list(task_ids)})


def defer_notify(connection: psycopg.Connection) -> None:
    """Defer the sending of webhook deliveries, unless it is queued already."""
    connection.execute(_RING_ONCE, {"queue": NOTIFY, "first": HIGH_PRIORITY})
