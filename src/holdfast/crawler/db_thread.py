"""Database calls from the event loop: a thread with its own connection that retries while the database is unavailable.

The rule: a call returns its result or is retried; only errors that the db layer raises on purpose come back as exceptions. So every
function that is called here must be safe to call again after its connection broke halfway.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Concatenate, Final, ParamSpec, TypeVar

from holdfast.db.connection import Connection, Database, first_line, is_transient, move_refusal
from holdfast.errors import RolledBack, StoreUnavailable

log: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.1
MAX_PAUSE: Final = 2.0
"""Seconds between two attempts to reach the database: short, so that its return is noticed soon."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which calls to the database failed."""

    since: datetime
    why: str
    """The message of the first failure, without its end."""
    ended: datetime | None = None

    @property
    def seconds(self) -> float:
        """How long it lasted, or has lasted so far."""
        return ((self.ended or datetime.now(UTC)) - self.since).total_seconds()


class StoppedWaiting(Exception):
    """The worker was stopped while it waited for the database or for the archive; the call has no result."""


class DbThread:
    """One thread with one connection. Calls run in the order in which they were made."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"db-{name}")
        self._connection: Connection | None = None
        self._closing = threading.Event()
        self.outage: Outage | None = None
        """The present outage."""
        self.last_outage: Outage | None = None
        """The outage that ended last."""
        self.disconnects = 0
        """How often the connection broke; a caller compares it to find out whether a call was repeated."""

    async def call(
        self, function: Callable[Concatenate[Connection, P], T], /, *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Run the function with a connection on the thread and return its result; retry while the database is unavailable."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: self.run(function, *arguments, **options))

    def run(self, function: Callable[Concatenate[Connection, P], T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """Like `call`, on the current thread. Before: it is this object's own thread, or its only user."""
        pause = FIRST_PAUSE
        while not self._closing.is_set():
            try:
                answer = function(self.connection(), *arguments, **options)
            except Exception as problem:
                if moved := move_refusal(problem, for_good=True):
                    raise moved from problem
                if not (isinstance(problem, StoreUnavailable | RolledBack) or is_transient(problem, self._connection)):
                    raise
                self._disconnect(problem)
                self._closing.wait(pause)
                pause = min(pause * 2, MAX_PAUSE)
            else:
                if self.outage is not None:
                    self.last_outage, self.outage = replace(self.outage, ended=datetime.now(UTC)), None
                    log.warning("%s: the database is back", self._name)
                return answer
        raise StoppedWaiting(f"The database is unavailable, and {self._name} was stopped.")

    @property
    def unavailable(self) -> bool:
        """Whether the last attempt to reach the database failed."""
        return self.outage is not None

    def connection(self) -> Connection:
        """Return the connection, opened again if it broke."""
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = self._database.with_application_name(f"holdfast {self._name}").connect()
        return self._connection

    def _disconnect(self, problem: Exception) -> None:
        if self.outage is None:
            self.outage = Outage(datetime.now(UTC), first_line(problem))
            log.warning("%s: the database is unavailable: %s", self._name, self.outage.why)
        self.disconnects += 1
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None

    def is_closing(self) -> bool:
        """Whether `give_up` or `close` was called."""
        return self._closing.is_set()

    def give_up(self) -> None:
        """End the calls that wait for the database with StoppedWaiting."""
        self._closing.set()

    def close(self) -> None:
        """Stop the thread. After: no call runs, the connection is closed."""
        self._closing.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
