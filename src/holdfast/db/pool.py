"""Connections for a process that answers many short requests: kept, lent, and bound to one transaction where a request asks for it.

The rule: whoever has a `Database` need not know. A session of a pooled one is a connection that somebody used before, in autocommit
mode and idle; inside `bind` every session of the same request is one connection with one transaction around it, so that what a request
does and the answer that is kept for it commit together.
"""

import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout, TooManyRequests

from holdfast.errors import RolledBack, StoreError, StoreUnavailable
from holdfast.store.connect import Database, first_line

_IN_EACH_OTHERS_WAY: Final = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.InFailedSqlTransaction,
)
_STATEMENTS: Final = 400
"""That a connection keeps prepared: more than the API has, lest it prepares over and over again what it forgets over and over again."""
_AWAY: Final = 0.05
"""Seconds to wait for a connection to a database that is known to be away."""
_bound: ContextVar[psycopg.Connection | None] = ContextVar("bound", default=None)


@dataclass(frozen=True, slots=True)
class PooledDatabase(Database):
    """A database whose sessions come from a pool. Close it at the end."""

    size: int = 10
    patience: float = 5.0
    """Seconds that a session waits for a connection."""
    pool: "_Pool" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pool = _Pool(
            connection_class=psycopg.Connection,
            open=False,
            min_size=min(2, self.size),
            max_size=self.size,
            max_waiting=20 * self.size,
            timeout=self.patience,
            max_idle=300.0,
            reconnect_timeout=2.0,  # then the next request begins anew, instead of waiting for longer and longer pauses
            conninfo=self.url,
            kwargs=self.connect_arguments(),
            name=self.application,
        )
        object.__setattr__(self, "pool", pool)

    @classmethod
    def of(cls, database: Database, *, size: int, statement_timeout: float) -> Self:
        """The same database, pooled. Before: the address has been tried."""
        given = {part.name: getattr(database, part.name) for part in fields(Database)}
        made = cls(**{**given, "statement_timeout": statement_timeout, "application": "holdfast api"}, size=size)
        made.pool.open()
        return made

    def close(self) -> None:
        """Before: nothing. After: no connection of the pool is left; sessions fail."""
        self.pool.close()

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection]:
        """A connection for a while. What PostgreSQL refuses ends as a StoreError with its first sentence."""
        connection = _bound.get()
        if connection is not None:
            with self.explained(connection):
                yield connection
            return
        connection = self._take()
        try:
            with self.explained(connection):
                yield connection
        finally:
            self.pool.putconn(connection)  # one on which a transaction was left open is not lent again

    @contextmanager
    def one_transaction(self) -> Iterator[psycopg.Connection]:
        """Until the end every session of this thread is one connection, and all that is done over it is one transaction.

        RolledBack if the server would not commit it, as it does after a failure that was swallowed inside.
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
    def kept(self) -> Iterator[None]:
        """Until the end every session of this thread is one connection, which is taken once; each statement is a transaction of its own."""
        with self.session() as connection, self.bind(connection):
            yield

    @contextmanager
    def bind(self, connection: psycopg.Connection) -> Iterator[None]:
        """Until the end every session of this thread is this connection."""
        token = _bound.set(connection)
        try:
            yield
        finally:
            _bound.reset(token)

    def _take(self) -> psycopg.Connection:
        """A connection that lives: one that the server closed meanwhile, as at its restart, is not lent."""
        try:
            while True:
                connection = self.pool.getconn(_AWAY if self.pool.is_away else self.patience)
                if not _is_cut(connection):
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
    def explained(self, connection: psycopg.Connection) -> Iterator[None]:
        """What PostgreSQL refuses in here ends as a StoreError with its first sentence."""
        try:
            yield
        except psycopg.Error as problem:
            if connection.broken or isinstance(problem, psycopg.errors.AdminShutdown | psycopg.errors.CrashShutdown):
                raise StoreUnavailable(f"The connection to {self.address} broke: {first_line(problem)}.") from problem
            if isinstance(problem, psycopg.errors.QueryCanceled | psycopg.errors.LockNotAvailable):
                raise StoreUnavailable(
                    f"The database took too long for this request ({first_line(problem)}); ask for less, or try again."
                ) from problem
            if isinstance(problem, _IN_EACH_OTHERS_WAY):
                raise RolledBack("Others changed the same things in the same moment; try again.") from problem
            raise StoreError(f"The database at {self.address} refused: {first_line(problem)}.") from problem


class _Pool(ConnectionPool):
    """Lends the connection that came back last: its server process is still awake, and knows most statements already."""

    def __init__(self, **given: Any) -> None:
        super().__init__(configure=self._made, reconnect_failed=lambda _: self._not_made(), **given)
        self.is_away = False
        """No connection could be made the last time: to wait for one is in vain. Who asks has another attempt made all the same."""

    def _made(self, connection: psycopg.Connection) -> None:
        self.is_away = False
        connection.prepare_threshold = 2
        connection.prepared_max = _STATEMENTS

    def _not_made(self) -> None:
        self.is_away = True

    def _get_ready_connection(self, timeout: float | None) -> psycopg.Connection | None:
        # Its parent leaves those in the queue who wait no more until there is a connection to give; where they fill it, nobody is let in,
        # and nobody has a connection made.
        while self._waiting and self._waiting[0].error is not None:
            self._waiting.popleft()
        if self._pool:
            self._pool.rotate(1)  # its parent takes the first
        return super()._get_ready_connection(timeout)


def _is_cut(connection: psycopg.Connection) -> bool:
    """Whether the server has said goodbye while nobody listened: on an idle connection nothing else arrives."""
    if connection.closed:
        return True
    look = select.poll()
    look.register(connection.fileno(), select.POLLIN)
    return bool(look.poll(0))
