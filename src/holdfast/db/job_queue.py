"""Doorbells: jobs in Procrastinate's queues that say that there is something to do, rung in our own transactions.

The rule: a bell is no promise. What is to be done stands in our tables; a bell that is lost is rung again by the next tick, and one that
rings twice finds nothing to do. (The columns are those of the version that revision 0008 was made for.)
"""

from collections.abc import Sequence
from typing import Final

import psycopg

PARSE: Final = "parse"
NOTIFY: Final = "notify"
FIRST: Final = 10
"""The priority of bells that must not wait behind thousands of others."""

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


def ring_to_parse(connection: psycopg.Connection, task_ids: Sequence[int]) -> None:
    """These tasks wait to be parsed. A transaction may be open; the bell rings with its commit, unless it rings already."""
    if task_ids:
        connection.execute(_RING, {"queue": PARSE, "ids": list(task_ids)})


def ring_to_notify(connection: psycopg.Connection) -> None:
    """Somebody waits to be told something."""
    connection.execute(_RING_ONCE, {"queue": NOTIFY, "first": FIRST})
