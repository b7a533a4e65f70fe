"""Status changes of domains, all by the database function `transition_domain_status` (000 §7.2).

The rule: it is a statement of its own, never part of one that updates the same row, and the caller holds the lock of the domain rows. The
trigger on `domains` enforces the matrix and keeps the history, also for SQL by hand.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Final

import psycopg

from holdfast.db import array_params
from holdfast.model.domain import Event, Status

RESTING: Final = frozenset({Status.EXHAUSTED, Status.BLOCKED, Status.UNREACHABLE})
"""Statuses with a cool-down: until `next_crawl_after` the domain is not crawled."""

# MATERIALIZED: the rows are chosen before any of them is changed.
_CHANGE: Final = """
WITH due AS MATERIALIZED (
    SELECT id, status, default_crawl_frequency FROM domains
    WHERE id = ANY(%(ids)s::bigint[]) AND status = ANY(%(only_from)s::domain_status[]) AND status <> %(to)s::domain_status ORDER BY id
)
SELECT id FROM due WHERE transition_domain_status(
    id, status, %(to)s::domain_status, %(worker)s, NULL, %(reason)s,
    CASE WHEN %(forever)s THEN 'infinity' WHEN %(rests)s THEN clock_timestamp() + COALESCE(%(rest)s, default_crawl_frequency) END,
    %(code)s, %(detail)s)
"""


def change(
    connection: psycopg.Connection,
    domain_ids: Sequence[int],
    to: Status,
    *,
    only_from: Collection[Status],
    reason: str,
    worker: str | None = None,
    code: Event | None = None,
    detail: str | None = None,
    cooldown: timedelta | None = None,
    forever: bool = False,
) -> set[int]:
    """Change the status of those of these domains that are in one of `only_from`; returns the ids that changed.

    `worker`: only if it holds them. `code`, `detail`: why a domain is blocked or unreachable. `rest`: how long one is left alone that
    comes to rest, by default its crawl frequency; `forever`: until an operator resets it. Before: the rows are locked by this transaction.
    A change that the matrix does not allow raises.
    """
    if not domain_ids:
        return set()
    parameters = {
        "ids": array_params.numbers(domain_ids),
        "only_from": sorted(only_from),
        "to": to,
        "worker": worker,
        "reason": reason,
        "code": code,
        "detail": detail,
        "rests": to in RESTING,
        "rest": cooldown,
        "forever": forever,
    }
    return {row[0] for row in connection.execute(_CHANGE, parameters)}
