"""Locks of periodic work: any process may do it, one at a time, when it is due.

The rule: the process that does the work holds its row of `duties` until its transaction ends. So one process at a time does it, a
killed one frees it, and work that was rolled back is due as before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import psycopg

from holdfast.db.connection import first_line, move_refusal
from holdfast.errors import StoreError

STATS: Final = "figures"
"""Fresh statistics are aggregated."""
CURRENT_COUNTS: Final = "gauges"
"""Current counts are stored, at the end of each minute."""
ALERTS: Final = "alerts"
PROXIES: Final = "proxies"
"""Alerts about proxies, which are slower to find."""
TRIM: Final = "trim"
"""Old rows are deleted."""

PRIORITIES: Final = "priorities"
"""Scores of domains are recomputed."""

_TAKE: Final = """
SELECT 1 FROM duties
WHERE name = %(name)s AND done_at < COALESCE(clock_timestamp() - %(every)s::interval, date_bin('1 minute', clock_timestamp(), 'epoch'))
FOR NO KEY UPDATE SKIP LOCKED
"""
_DONE: Final = "UPDATE duties SET done_at = clock_timestamp() WHERE name = %(name)s"
_MARK: Final = "UPDATE duties SET mark = %(mark)s WHERE name = %(name)s"
_MARKED: Final = "SELECT mark FROM duties WHERE name = %(name)s"


@dataclass(slots=True)
class PeriodicLock:
    """Whether this process has to do the work now."""

    due: bool
    unfinished: bool = False
    """Set by the caller if work is left: it stays due."""


@contextmanager
def acquire(connection: psycopg.Connection, name: str, *, every: timedelta | None) -> Iterator[PeriodicLock]:
    """Open a transaction for periodic work, with `due` if it is due and not locked; `every` None: once in each minute of the clock.

    Before: the caller has no open transaction. After: the work is marked as done; or it is unchanged, and StoreError says why. A statement
    timeout raises StoreError too, not StoreUnavailable: a retry that waits for the database would never end.
    """
    try:
        with connection.transaction():
            lock = PeriodicLock(try_lock(connection, name, every=every))
            yield lock
            if lock.due and not lock.unfinished:
                mark_done(connection, name)
    except psycopg.Error as problem:
        if connection.broken or connection.closed:
            raise
        if moved := move_refusal(problem, for_good=True):
            raise moved from problem
        raise StoreError(f"Periodic work {name!r} failed: {first_line(problem)}.") from problem


def try_lock(connection: psycopg.Connection, name: str, *, every: timedelta | None) -> bool:
    """Lock the work if it is due; whether this process has to do it. Before: a transaction is open, which holds the lock to its end."""
    return connection.execute(_TAKE, {"name": name, "every": every}).fetchone() is not None


def mark_done(connection: psycopg.Connection, name: str) -> None:
    """Mark the work as done when the transaction commits. Before: `try_lock` returned True."""
    connection.execute(_DONE, {"name": name})


def save_position(connection: psycopg.Connection, name: str, text: str) -> None:
    """Save the position where the work continues. Before: `try_lock` returned True."""
    connection.execute(_MARK, {"name": name, "mark": text})


def load_position(connection: psycopg.Connection, name: str) -> str | None:
    """The position that was saved last."""
    row = connection.execute(_MARKED, {"name": name}).fetchone()
    return row[0] if row else None
