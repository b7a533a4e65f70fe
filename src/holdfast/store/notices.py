"""Notices of the database: a job was made, paused, resumed, cancelled, deleted or edited, or is asked to try again; a domain or a proxy
was edited.

The rule: a notice is a doorbell. Whoever hears it looks at the rows; whoever misses it looks a second later anyway.
"""

from typing import Final

import psycopg

_CHANNEL: Final = "holdfast_jobs"
"""Notified by triggers on crawl_jobs, domains and proxies, and by `ring`."""


def listen(connection: psycopg.Connection) -> None:
    """From now on `wait` hears on this connection."""
    connection.execute(f"LISTEN {_CHANNEL}")


def ring(connection: psycopg.Connection, job_id: int) -> None:
    """With the commit of this transaction: there is news of a job."""
    connection.execute("SELECT pg_notify(%s, %s)", (_CHANNEL, str(job_id)))


def wait(connection: psycopg.Connection, seconds: float) -> bool:
    """Whether something was heard within so many seconds. Before: `listen`, and no transaction is open."""
    return any(True for _ in connection.notifies(timeout=seconds, stop_after=1))
