"""What the database tells on its own accord: that a job was made, paused, resumed, cancelled or deleted.

The rule: a notice is a doorbell. Whoever hears it looks at the rows; whoever misses it looks a second later anyway.
"""

from typing import Final

import psycopg

_CHANNEL: Final = "holdfast_jobs"
"""Rung by a trigger on crawl_jobs."""


def listen(connection: psycopg.Connection) -> None:
    """From now on `wait` hears on this connection."""
    connection.execute(f"LISTEN {_CHANNEL}")


def wait(connection: psycopg.Connection, seconds: float) -> bool:
    """Whether something was heard within so many seconds. Before: `listen`, and no transaction is open."""
    return any(True for _ in connection.notifies(timeout=seconds, stop_after=1))
