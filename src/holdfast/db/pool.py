"""Connection pool for a process that answers many short requests; a request may bind its sessions to one transaction.

The rule: a pooled database has the interface of `Database`. Its session is a reused connection, in autocommit mode and idle; inside
`bind` every session of the same request is one connection with one transaction around it, so that the work of a request and its stored
response (idempotency key) commit together.
"""

import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout, TooManyRequests

from holdfast.db.connection import Database, Guard, first_line, move_refusal
from holdfast.errors import RolledBack, StoreError, StoreUnavailable

_CONFLICTS: Final = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.InFailedSqlTransaction,
)
_PREPARED_STATEMENTS: Final = 400
"""Prepared statements per connection: more than the API uses, so that none is evicted and prepared again."""
_UNAVAILABLE_TIMEOUT: Final = 0.05
"""Seconds to wait for a connection while the database is known to be unavailable."""
_bound: ContextVar[psycopg.Connection | None] = ContextVar("bound", default=None)


@dataclass(frozen=True, slots=True)
class PooledDatabase(Database):
    """A database whose sessions come from a pool. Close it at the end."""

    size: int = 10
    timeout: float = 5.0
    """Seconds that a session waits for a connection."""
    pool: "_Pool" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pool = _Pool(
            connection_class=psycopg.Connection,
            open=False,
            min_size=min(2, self.size),
            max_size=self.size,
            max_waiting=20 * self.size,
            timeout=self.timeout,
            max_idle=300.0,
            reconnect_timeout=2.0,  # then the next request begins anew, instead of waiting for longer and longer pauses
            conninfo=self.url,
            kwargs=self.connect_arguments(),
            name=self.application,
            guard=self.guard,
        )
        object.__setattr__(self, "pool", pool)

    @classmethod
    def from_database(cls, database: Database, *, size: int, statement_timeout: float) -> Self:
        """A pool for the same database, opened. Before: a connection to it has succeeded."""
        given = {part.name: getattr(database, part.name) for part in fields(Database)}
        made = cls(**{**given, "statement_timeout": statement_timeout, "application": "holdfast api"}, size=size)
        made.pool.open()
        return made

    def close(self) -> None:
        """Before: nothing. After: no connection of the pool is left; sessions fail."""
        self.pool.close()

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection]:
        """Borrow a connection. Errors of PostgreSQL are raised as StoreError with their first sentence."""
        connection = _bound.get()
        if connection is not None:
            with self.translate_errors(connection):
                yield connection
            return
        connection = self._checkout()
        try:
            with self.translate_errors(connection):
                yield connection
        finally:
            self.pool.putconn(connection)  # the pool discards one with an open transaction

    @contextmanager
    def one_transaction(self) -> Iterator[psycopg.Connection]:
        """Bind all sessions of this thread to one connection and one transaction until the end of the block.

        Raises RolledBack if the server did not commit, as after an error that was swallowed inside.
        """
        with self.session() as connection:
            connection.execute("BEGIN")
            try:
                with self.bind(connection):
                    yield connection
            except BaseException:
                with suppress(psycopg.Error):
                    connection.execute("ROLLBACK")
                raise
            if connection.execute("COMMIT").statusmessage != "COMMIT":
                raise RolledBack("A part of this failed, so nothing of it was done; try again.")

    @contextmanager
    def one_connection(self) -> Iterator[None]:
        """Bind all sessions of this thread to one connection until the end of the block; each statement is its own transaction."""
        with self.session() as connection, self.bind(connection):
            yield

    @contextmanager
    def bind(self, connection: psycopg.Connection) -> Iterator[None]:
        """Bind all sessions of this thread to `connection` until the end of the block."""
        token = _bound.set(connection)
        try:
            yield
        finally:
            _bound.reset(token)

    def _checkout(self) -> psycopg.Connection:
        """An open connection: one that the server closed meanwhile, as at its restart, is replaced."""
        try:
            while True:
                connection = self.pool.getconn(_UNAVAILABLE_TIMEOUT if self.pool.is_unavailable else self.timeout)
                if not _closed_by_server(connection):
                    return connection
                connection.close()
                self.pool.putconn(connection)  # which makes another one
        except PoolTimeout as problem:
            raise StoreUnavailable(
                f"The database at {self.address} does not answer, or all {self.size} connections to it are in use; try again."
            ) from problem
        except TooManyRequests as problem:
            raise StoreUnavailable(
                f"Too many requests wait for the database at {self.address}; try again."
            ) from problem

    @contextmanager
    def translate_errors(self, connection: psycopg.Connection) -> Iterator[None]:
        """Raise errors of PostgreSQL inside the block as StoreError, StoreUnavailable or RolledBack."""
        try:
            yield
        except psycopg.Error as problem:
            if connection.broken or isinstance(problem, psycopg.errors.AdminShutdown | psycopg.errors.CrashShutdown):
                raise StoreUnavailable(f"The connection to {self.address} broke: {first_line(problem)}.") from problem
            if isinstance(problem, psycopg.errors.QueryCanceled | psycopg.errors.LockNotAvailable):
                raise StoreUnavailable(
                    f"The database took too long for this request ({first_line(problem)}); ask for less, or try again."
                ) from problem
            if isinstance(problem, _CONFLICTS):
                raise RolledBack("Others changed the same things in the same moment; try again.") from problem
            if moved := move_refusal(problem):
                raise moved from problem
            raise StoreError(f"The database at {self.address} refused: {first_line(problem)}.") from problem


class _Pool(ConnectionPool):
    """A LIFO pool: the connection returned last has a warm server process with most statements prepared."""

    def __init__(self, *, guard: Guard | None, **given: Any) -> None:
        self._guard = guard
        super().__init__(configure=self._on_connected, reconnect_failed=lambda _: self._on_connect_failed(), **given)
        self.is_unavailable = False
        """The last connection attempt failed, so waiting is pointless. A request still triggers another attempt."""

    def _on_connected(self, connection: psycopg.Connection) -> None:
        self.is_unavailable = False
        connection.prepare_threshold = 2
        connection.prepared_max = _PREPARED_STATEMENTS
        if self._guard is not None:
            self._guard.check(connection)

    def _on_connect_failed(self) -> None:
        self.is_unavailable = True

    def _get_ready_connection(self, timeout: float | None) -> psycopg.Connection | None:
        # The base class keeps timed-out waiters in the queue until a connection is available; where they fill it, no request is admitted,
        # and none triggers a new connection.
        while self._waiting and self._waiting[0].error is not None:
            self._waiting.popleft()
        if self._pool:
            self._pool.rotate(1)  # its parent takes the first
        return super()._get_ready_connection(timeout)


def _closed_by_server(connection: psycopg.Connection) -> bool:
    """Whether the server has closed an idle connection: nothing else arrives on one."""
    if connection.closed:
        return True
    look = select.poll()
    look.register(connection.fileno(), select.POLLIN)
    return bool(look.poll(0))
