"""What is done now and then by whoever ticks first: who may do it, and when it was done last.

The rule: whoever does a duty holds its row for as long as his transaction is open. So one at a time does it, a killed one lets go of it,
and what was rolled back is due as before.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import psycopg

from holdfast.errors import StoreError
from holdfast.store.connect import first_line

FIGURES: Final = "figures"
"""What is fresh is added up."""
GAUGES: Final = "gauges"
"""How things stand is written down, at the end of each minute."""
ALERTS: Final = "alerts"
PROXIES: Final = "proxies"
"""Alerts about proxies, which are slower to find."""
TRIM: Final = "trim"
"""What is old is deleted."""

PRIORITIES: Final = "priorities"
"""Scores of domains are computed anew."""

_TAKE: Final = """
SELECT 1 FROM duties
WHERE name = %(name)s AND done_at < COALESCE(clock_timestamp() - %(every)s::interval, date_bin('1 minute', clock_timestamp(), 'epoch'))
FOR NO KEY UPDATE SKIP LOCKED
"""
_DONE: Final = "UPDATE duties SET done_at = clock_timestamp() WHERE name = %(name)s"
_MARK: Final = "UPDATE duties SET mark = %(mark)s WHERE name = %(name)s"
_MARKED: Final = "SELECT mark FROM duties WHERE name = %(name)s"


@dataclass(slots=True)
class Turn:
    """Whether a duty is ours to do now."""

    due: bool
    unfinished: bool = False
    """There is more of it to do: it stays due."""


@contextmanager
def turn(connection: psycopg.Connection, name: str, *, every: timedelta | None) -> Iterator[Turn]:
    """A transaction in which a duty is done, if it is due and nobody is at it; `every` None: once in each minute of the clock.

    Before: no transaction of the caller's is open. After: it is done; or it is as it was, and StoreError says why. A statement that takes
    too long is such a reason, and not taken for a database that is away: who waits for that would wait for ever.
    """
    try:
        with connection.transaction():
            ours = Turn(take(connection, name, every=every))
            yield ours
            if ours.due and not ours.unfinished:
                done(connection, name)
    except psycopg.Error as problem:
        if connection.broken or connection.closed:
            raise
        raise StoreError(f"What is done now and then ({name}) failed: {first_line(problem)}.") from problem


def take(connection: psycopg.Connection, name: str, *, every: timedelta | None) -> bool:
    """Whether it is due, and ours to do. Before: a transaction is open. After: nobody else does it until that one has ended."""
    return connection.execute(_TAKE, {"name": name, "every": every}).fetchone() is not None


def done(connection: psycopg.Connection, name: str) -> None:
    """It is done, once the transaction commits. Before: it was taken."""
    connection.execute(_DONE, {"name": name})


def mark(connection: psycopg.Connection, name: str, text: str) -> None:
    """Note how far it is. Before: it was taken."""
    connection.execute(_MARK, {"name": name, "mark": text})


def marked(connection: psycopg.Connection, name: str) -> str | None:
    """What was noted last."""
    row = connection.execute(_MARKED, {"name": name}).fetchone()
    return row[0] if row else None
