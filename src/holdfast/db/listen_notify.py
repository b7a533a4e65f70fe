"""LISTEN and NOTIFY: a job was created, paused, resumed, cancelled, deleted, edited or asked to retry; a domain or proxy was edited.

The rule: a notification is a hint. A worker that receives it reads the rows; one that misses it reads them a second later anyway.
"""

from typing import Final

import psycopg

_CHANNEL: Final = "holdfast_jobs"
"""Notified by triggers on crawl_jobs, domains and proxies, and by `notify`."""


def listen(connection: psycopg.Connection) -> None:
    """Subscribe this connection to notifications, for `wait`."""
    connection.execute(f"LISTEN {_CHANNEL}")


def notify(connection: psycopg.Connection, job_id: int) -> None:
    """Notify listeners about a job when this transaction commits."""
    connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, str(job_id)))


def wait(connection: psycopg.Connection, seconds: float) -> bool:
    """Wait up to `seconds` for a notification; whether one arrived. Before: `listen` was called, and no transaction is open."""
    return any(True for _ in connection.notifies(timeout=seconds, stop_after=1))
