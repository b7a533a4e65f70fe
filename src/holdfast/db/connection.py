"""Connections to PostgreSQL, the bundled server or any other; only the URL differs.

The rule: every connection is in autocommit mode and opens its transactions explicitly, so that none stays open by accident.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Protocol, Self

import psycopg
from psycopg import conninfo

from holdfast.errors import StoreDiskFull, StoreError, StoreMoved, StoreUnavailable

Connection = psycopg.Connection
"""The connection type of this package, for callers that pass it on without importing psycopg."""

OLDEST_SERVER: Final = 15
_SERVER_KEEPALIVES: Final = (
    "-c tcp_keepalives_idle=15 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c tcp_user_timeout=30000"
)
"""Makes the server close the session of a client that vanished, with its locks, after 30 s instead of two hours."""
_NO_SPACE: Final = "No space left on device"
_UNREADABLE: Final = "(an address that cannot be read)"
_MOVED: Final = "P0HM1"
"""SQLSTATE of a write to a store that was moved (`db/store_move`)."""
_BEING_MOVED: Final = "57HM1"
"""SQLSTATE of a write to a store that is being moved: it may be tried again, for the move may be taken back."""


class Guard(Protocol):
    """Looks at each new connection before it is used."""

    def check(self, connection: psycopg.Connection) -> None:
        """Raise an error if the connection must not be used."""
        ...


@dataclass(frozen=True, slots=True)
class Database:
    """A database URL with its timeouts. Each session opens a new connection; keep it open where latency matters."""

    url: str
    connect_timeout: float = 5.0
    statement_timeout: float = 60.0
    idle_timeout: float = 10.0
    """Seconds that a transaction may wait for its client: one that is frozen must not keep its locks beyond its lease."""
    application: str = "holdfast"
    guard: Guard | None = None
    """Checks each new connection."""
    setting: str = "HOLDFAST_DATABASE_URL"
    """What the URL was read from, for messages."""

    def __repr__(self) -> str:
        return f"Database({self.address!r})"

    @property
    def address(self) -> str:
        """The address without its password, for messages."""
        return redact(self.url)

    @property
    def options(self) -> str:
        """Server options of every connection: time zone, timeouts, TCP keepalives, and the options of the URL itself."""
        url_options = conninfo.conninfo_to_dict(self.url).get("options") or ""
        limits = {"statement_timeout": self.statement_timeout, "idle_in_transaction_session_timeout": self.idle_timeout}
        set_limits = " ".join(f"-c {name}={int(seconds * 1000)}" for name, seconds in limits.items())
        return f"-c timezone=UTC {set_limits} {_SERVER_KEEPALIVES} {url_options}".rstrip()

    def with_application_name(self, application: str) -> "Database":
        """The same database, seen under another name in pg_stat_activity."""
        return replace(self, application=application)

    def connect_arguments(self) -> dict[str, Any]:
        """Arguments of `psycopg.connect` for every connection, without the URL."""
        return {
            "autocommit": True,
            "connect_timeout": max(1, round(self.connect_timeout)),
            "application_name": self.application,
            "keepalives_idle": 15,  # a server that vanished is noticed in half a minute, not in hours
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
            "options": self.options,
        }

    def connect(self) -> psycopg.Connection:
        """An open connection in autocommit mode, in UTC. Raises StoreUnavailable or StoreError, each with one sentence."""
        if self.address == _UNREADABLE:
            raise StoreError(
                "The address of the database cannot be read (and is not shown: it may hold a password). Write it as "
                "postgresql://user:password@host:port/database, with %25 for a %, %2F for a / and %40 for an @ in the password.",
            )
        try:
            connection = psycopg.connect(self.url, **self.connect_arguments())
        except psycopg.OperationalError as problem:
            if _NO_SPACE in str(problem):
                raise StoreDiskFull(
                    f"The disk of the database at {self.address} is full ({first_line(problem)}). Make room there: nothing is lost, and "
                    "what waits for it goes on by itself."
                ) from problem
            raise StoreUnavailable(
                f"The database at {self.address} does not answer: {first_line(problem)}. "
                f"Check that it runs and that {self.setting} is right.",
            ) from problem
        except psycopg.Error as problem:
            raise StoreError(f"{self.address} is not a usable database address: {first_line(problem)}.") from problem
        if connection.info.server_version < OLDEST_SERVER * 10000:
            major = connection.info.server_version // 10000
            connection.close()
            raise StoreError(f"{self.address} is PostgreSQL {major}; Holdfast needs {OLDEST_SERVER} or newer.")
        if self.guard is not None:
            try:
                self.guard.check(connection)
            except psycopg.OperationalError as problem:
                connection.close()
                raise StoreUnavailable(f"The connection to {self.address} broke: {first_line(problem)}.") from problem
            except BaseException:
                connection.close()
                raise
        return connection

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection]:
        """A connection that is closed at the end. Errors of PostgreSQL are raised as StoreError with their first sentence."""
        with closing(self.connect()) as connection, self.translated_errors(connection):
            yield connection

    @contextmanager
    def translated_errors(self, connection: psycopg.Connection) -> Iterator[None]:
        """Raise errors of PostgreSQL as StoreError with their first sentence."""
        try:
            yield
        except psycopg.Error as problem:
            if connection.broken:
                raise StoreUnavailable(f"The connection to {self.address} broke: {first_line(problem)}.") from problem
            if moved := move_refusal(problem):
                raise moved from problem
            raise StoreError(f"The database at {self.address} refused: {first_line(problem)}.") from problem


class Sessions(Protocol):
    """Gives connections: `Database`, each time a new one, or `KeptConnection`."""

    def session(self) -> AbstractContextManager[psycopg.Connection]:
        """A connection, with errors of PostgreSQL raised as StoreError."""
        ...


class KeptConnection:
    """A connection that is kept between sessions, for one thread that reads every second.

    A new one, which reads the catalogues anew, costs the server about 10 ms. After an error, or if it broke meanwhile, the next session
    opens another one. Nothing is prepared: each statement is planned for the tables as they are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: psycopg.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection]:
        """The connection. Errors are raised as by `Database.session`."""
        if self._connection is not None and not _answers(self._connection):
            self._close()
        if self._connection is None:
            self._connection = self._database.connect()
            self._connection.prepare_threshold = None
        try:
            with self._database.translated_errors(self._connection):
                yield self._connection
        except BaseException:
            self._close()
            raise

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _answers(connection: psycopg.Connection) -> bool:
    try:
        connection.execute("")
    except psycopg.Error:
        return False
    return True


def redact(url: str) -> str:
    """The URL or key=value string without secrets."""
    try:
        parts = conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        return _UNREADABLE
    where = parts.get("host") or "the default host"
    port = f":{parts['port']}" if parts.get("port") else ""
    shown = f"{where}{port}/{parts.get('dbname') or parts.get('user') or ''}"
    # An @ or / in a password that is not percent-encoded makes libpq take a part of it for the host or the database.
    return _UNREADABLE if "@" in shown else shown


def move_refusal(problem: BaseException, *, for_good: bool = False) -> StoreMoved | None:
    """The error for users, if `problem` is the refusal of a store that was moved or, unless `for_good`, is being moved."""
    if isinstance(problem, psycopg.Error) and problem.sqlstate in ({_MOVED} if for_good else {_MOVED, _BEING_MOVED}):
        return StoreMoved(problem.diag.message_primary or str(problem))
    return None


def is_transient(problem: BaseException, connection: psycopg.Connection | None) -> bool:
    """Whether a retry may succeed: the server is unavailable or stopping, its disk is full, or there was a conflict."""
    if isinstance(problem, psycopg.OperationalError):
        return True
    return isinstance(problem, psycopg.Error) and (connection is None or connection.closed or connection.broken)


def first_line(problem: BaseException) -> str:
    """The first line of an error message of PostgreSQL or libpq."""
    text = str(problem).strip() or type(problem).__name__
    return text.splitlines()[0].rstrip(". ")


def libpq_environment(url: str) -> dict[str, str]:
    """The URL as libpq's environment variables, for programs that are started on this database."""
    names = {"dbname": "PGDATABASE", "passfile": "PGPASSFILE"}
    parts = conninfo.conninfo_to_dict(url)
    known = (
        "host",
        "hostaddr",
        "port",
        "user",
        "password",
        "dbname",
        "passfile",
        "sslmode",
        "sslrootcert",
        "sslcert",
        "sslkey",
        "options",
    )
    return {names.get(key, f"PG{key.upper()}"): str(parts[key]) for key in known if parts.get(key) is not None}
