"""How often somebody asked lately, counted exactly: every request of the window has its time, in a ring of as many slots as are allowed.

The rule: the database's clock and the row lock of a key decide, so that any number of API processes count as one.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import psycopg

FORGOTTEN: Final = timedelta(days=1)
"""A key that nobody has used for so long is forgotten; no window is longer."""
_CHUNK: Final = 1_000

KEY: Final = "format('holdfast/%%s/%%s/%%s/%%s/second', {tier}, {name}, {most}, {seconds})"
"""What somebody is counted under, in SQL. A limit that is changed begins anew: its ring has another size."""
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
class Rate:
    """What became of a hit, and how full the window is."""

    allowed: bool
    used: int
    oldest: datetime | None
    """When the first hit that still counts was; None: none does."""


def key(tier: str, name: str, most: int, seconds: int) -> str:
    """The same, here."""
    return f"holdfast/{tier}/{name}/{most}/{seconds}/second"


def hit(connection: psycopg.Connection, key: str, *, most: int, span: timedelta, amount: int = 1) -> Rate:
    """Count a hit if there is room for it; with an amount of 0 only look. Before: no transaction is open, as it would hold the key."""
    row = connection.execute(_HIT, {"key": key, "most": most, "span": span, "amount": amount}).fetchone()
    assert row is not None  # noqa: S101 — a function answers with a row
    return Rate(*row)


def tidy(connection: psycopg.Connection) -> int:
    """Forget keys that nobody has used for a day, a chunk of them; how many."""
    return connection.execute(_TIDY, {"forgotten": FORGOTTEN, "chunk": _CHUNK}).rowcount
