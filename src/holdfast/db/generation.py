"""Generations of a store: a restore or a move begins a new one, and what belongs to the one before ends or is made anew.

The rule: no two generations of a store have the same number, also if one backup is restored twice: it is the time at which it begins.
Every epoch begins at `EPOCH_STEP` times that number, so no epoch that any copy of the store has ever given is given again, and a worker of
the old generation that comes back fails every fence. It also fails `Guard` at each new connection, and its heartbeat is not
acknowledged, so that it ends with a reason instead of losing its domains one by one.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple

import psycopg

from holdfast.db import audit, budget, claimable
from holdfast.db.connection import Guard
from holdfast.errors import StoreRestored

EPOCH_STEP: Final = 1_000_000
"""More claims of a domain than there can be in a second."""
_SINCE: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The beginning of the numbers of generations, in seconds; the first generation of a store has the number 1."""
_ATTEMPTS: Final = 3
ENDED: Final = "The store was restored from a backup or moved while this run was under way."

_CURRENT: Final = "SELECT id::text, generation FROM store_identity"
_NEXT: Final = """
UPDATE store_identity SET generation = GREATEST(generation + 1, extract(epoch FROM clock_timestamp() - %(since)s)::integer)
RETURNING generation
"""
# The claims of the rows are ended below, by the log: its open tenures are those of held domains, whatever their columns say.
_HELD: Final = "SELECT id FROM domains WHERE claimed_by IS NOT NULL ORDER BY id"
_END_TENURES: Final = """
UPDATE claim_log SET ended_at = GREATEST(clock_timestamp(), claimed_at), why = 'forced' WHERE ended_at IS NULL
"""
_RAISE_EPOCHS: Final = """
UPDATE domains SET claim_epoch = GREATEST(claim_epoch + 1, %(step)s * %(number)s::bigint), claimed_by = NULL, claim_expires_at = NULL
"""
_END_RUNS: Final = """
UPDATE crawl_runs SET status = 'failed', completed_at = clock_timestamp(), in_window = 0, error_message = %(message)s
WHERE status = 'running'
"""
_END_WORKERS: Final = """
UPDATE workers SET ended_at = clock_timestamp(), activity = NULL, activity_at = NULL WHERE ended_at IS NULL
"""


class Generation(NamedTuple):
    """Which store this is, and since which restore."""

    store: str
    number: int


def current(connection: psycopg.Connection) -> Generation:
    """The store's id and its present generation."""
    row = connection.execute(_CURRENT).fetchone()
    assert row is not None  # noqa: S101 — the table has one row, always
    return Generation(*row)


def begin(connection: psycopg.Connection, *, why: str, actor: str) -> int:
    """Begin a new generation; returns its number. `why` and `actor` are for the audit log.

    Before: no worker holds a domain by right: the store was just restored or copied, and no other process uses it; no transaction is open.
    After: all claims are free and their work is ready, every epoch is greater than any that another copy of this store has given, no run
    and no worker is under way, and workers, caches and indexes of the generation before find out that theirs is over. All of it in one
    transaction, which rewrites every row of `domains`. A statement of an old worker that was under way may cost it a deadlock: it is
    tried again.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(psycopg.errors.DeadlockDetected):
            return _begin(connection, why, actor)
    return _begin(connection, why, actor)


def _begin(connection: psycopg.Connection, why: str, actor: str) -> int:
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("LOCK TABLE domains IN SHARE ROW EXCLUSIVE MODE")
        row = connection.execute(_NEXT, {"since": _SINCE}).fetchone()
        number = int(row[0]) if row else 0
        held = [domain_id for (domain_id,) in connection.execute(_HELD)]
        connection.execute(_END_TENURES)
        connection.execute(_RAISE_EPOCHS, {"step": EPOCH_STEP, "number": number})
        budget.return_unused(connection, held)
        claimable.rescore(connection, held)
        claimable.update_ready(connection, held)
        connection.execute(_END_RUNS, {"message": ENDED})
        connection.execute(_END_WORKERS)
        details = {"why": why, "generation": number, "claims": len(held)}
        audit.write(connection, actor=actor, action="begin", kind="generation", object_id=number, details=details)
    return number


class GenerationGuard(Guard):
    """Refuses connections to another generation than that of the first connection. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: Generation | None = None

    def check(self, connection: psycopg.Connection) -> None:
        """Raise StoreRestored if the store is of another generation than at the first call."""
        found = current(connection)
        with self._lock:
            known = self._known = self._known or found
        if found.store != known.store:
            raise StoreRestored("The database holds another store than before. Nothing more was written; start again.")
        if found.number != known.number:
            raise StoreRestored(
                f"The store was restored from a backup or moved (generation {known.number}, now {found.number}): what was crawled "
                "before and not committed is void, and nothing more was written. Start again."
            )

    @property
    def number(self) -> int | None:
        """The generation of the first connection; None: there was none."""
        return self._known.number if self._known else None


class GenerationWatch(Guard):
    """Notes at each new connection whether the store is of another generation, for a process that goes on with it. Thread-safe.

    A restored store is another server or database, so no connection outlives the change, and the first new one tells.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called in the thread that connects, before the connection is used."""
        self._on_change = on_change
        self._lock = threading.Lock()
        self._known: Generation | None = None

    def check(self, connection: psycopg.Connection) -> None:
        """Call `on_change` if the generation differs from that of the last connection."""
        try:
            found = current(connection)
        except psycopg.Error:
            if connection.broken:
                raise
            return  # a database without the schema: its user reports that
        with self._lock:
            before, self._known = self._known, found
        if before not in (None, found):
            self._on_change()
