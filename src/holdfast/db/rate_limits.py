"""Exact sliding-window rate limits: a ring buffer with a slot for each allowed request stores the times of the window's requests.

The rule: the database's clock and the row lock of a key decide, so that any number of API processes count as one.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import psycopg

UNUSED_AFTER: Final = timedelta(days=1)
"""A key without a request for this long is deleted; no window is longer."""
_CHUNK: Final = 1_000

KEY: Final = "format('holdfast/%%s/%%s/%%s/%%s/second', {tier}, {name}, {most}, {seconds})"
"""The key of a client's counter, in SQL. A changed limit starts a new counter: its ring has another size."""
_HIT: Final = "SELECT allowed, used, oldest FROM rate_hit(%(key)s, %(most)s, %(span)s, %(amount)s)"
_TIDY: Final = """
WITH old AS MATERIALIZED (
    SELECT key FROM rate_keys WHERE last_at < clock_timestamp() - %(forgotten)s ORDER BY key LIMIT %(chunk)s FOR UPDATE SKIP LOCKED
), hits AS (
    DELETE FROM rate_hits h USING old WHERE h.key = old.key
)
DELETE FROM rate_keys k USING old WHERE k.key = old.key
"""


@dataclass(frozen=True, slots=True)
class RateUsage:
    """Result of a hit, and the use of the window."""

    allowed: bool
    used: int
    oldest: datetime | None
    """Time of the oldest hit in the window; None: there is none."""


def key(tier: str, name: str, limit: int, seconds: int) -> str:
    """The key of a client's counter, as `KEY` computes it in SQL."""
    return f"holdfast/{tier}/{name}/{limit}/{seconds}/second"


def hit(connection: psycopg.Connection, key: str, *, limit: int, window: timedelta, amount: int = 1) -> RateUsage:
    """Count a hit if the limit allows it; an amount of 0 only reads. Before: no transaction is open, which would keep the key locked."""
    row = connection.execute(_HIT, {"key": key, "most": limit, "span": window, "amount": amount}).fetchone()
    assert row is not None  # noqa: S101 — a function answers with a row
    return RateUsage(*row)


def delete_unused(connection: psycopg.Connection) -> int:
    """Delete a chunk of keys that were unused for a day; returns how many."""
    return connection.execute(_TIDY, {"forgotten": UNUSED_AFTER, "chunk": _CHUNK}).rowcount
