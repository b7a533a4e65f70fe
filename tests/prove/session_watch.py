"""What the sessions of a database wait for: the longest transaction of retention, and the longest wait of anyone else for a lock."""

import threading
from types import TracebackType
from typing import Final, Self

import psycopg

from holdfast.db.connection import Database

_PAUSE: Final = 0.05
# Who has the lock of runs is retention, or a restore.
_LOOK: Final = """
WITH ours AS MATERIALIZED (
    SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((classid::bigint << 32) | objid::bigint) = hashtextextended('holdfast retention', 0)
)
SELECT (SELECT max(extract(epoch FROM clock_timestamp() - a.xact_start))::float FROM pg_stat_activity a JOIN ours USING (pid)),
       w.seconds, w.query, w.behind
FROM (SELECT 1) one LEFT JOIN LATERAL (
    SELECT extract(epoch FROM clock_timestamp() - l.waitstart)::float AS seconds, left(a.query, 120) AS query,
           (SELECT string_agg(left(b.query, 120), ' | ') FROM pg_stat_activity b WHERE b.pid = ANY(pg_blocking_pids(l.pid))) AS behind
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE NOT l.granted AND l.waitstart IS NOT NULL AND l.pid NOT IN (SELECT pid FROM ours)
    AND (EXISTS (SELECT FROM ours WHERE ours.pid = ANY(pg_blocking_pids(l.pid))))
    ORDER BY l.waitstart LIMIT 1) w ON true
"""


class SessionWatch:
    """Looks at the sessions twenty times a second, as a context manager."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._what = ""
        self.transaction = 0.0
        """Seconds of the longest transaction of retention or of a restore."""
        self.wait = 0.0
        """Seconds of the longest wait of another session for a lock of theirs."""
        self.waited = ""
        """Who waited so long, for whom."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def note(self, what: str) -> None:
        """Say what runs at present, for `waited`."""
        self._what = what

    def _watch(self) -> None:
        with self._database.connect() as connection:
            while not self._over.wait(_PAUSE):
                self._look(connection)

    def _look(self, connection: psycopg.Connection) -> None:
        row = connection.execute(_LOOK).fetchone()
        assert row is not None
        transaction, wait, query, behind = row
        self.transaction = max(self.transaction, transaction or 0.0)
        if wait is not None and wait > self.wait:
            self.wait, self.waited = wait, f"{self._what}: {query!r} behind {behind!r}"
