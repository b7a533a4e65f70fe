"""Calls of the store from the event loop: a thread with a connection of its own, that waits while the database is away.

The rule: a call returns its answer or goes on asking; only what the store refuses on purpose comes back as an exception. So every
function that is called here must bear being called again after a connection broke in the middle of it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Concatenate, Final, ParamSpec, TypeVar

from holdfast.errors import RolledBack, StoreUnavailable
from holdfast.store.connect import Connection, Database, is_gone

log: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0
"""Seconds between two attempts to reach the database: it is to be noticed soon that it is back."""

P = ParamSpec("P")
T = TypeVar("T")


class Away(Exception):
    """The desk was closed while the database was away; the call had no answer."""


class Desk:
    """One thread, one connection. Calls are answered in the order in which they were made."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"desk-{name}")
        self._connection: Connection | None = None
        self._closing = threading.Event()
        self.away = False
        """The database did not answer when last asked."""
        self.broke = 0
        """How often the connection broke; who was in the middle of something may want to look again."""

    async def call(
        self, function: Callable[Concatenate[Connection, P], T], /, *arguments: P.args, **options: P.kwargs
    ) -> T:
        """The function's answer, given a connection. While the database is away it waits."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: self.run(function, *arguments, **options))

    def run(self, function: Callable[Concatenate[Connection, P], T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """The same from the desk's own thread (or from one that is the only user of this desk)."""
        pause = FIRST_PAUSE
        while not self._closing.is_set():
            try:
                answer = function(self.connection(), *arguments, **options)
            except Exception as problem:
                if not (isinstance(problem, StoreUnavailable | RolledBack) or is_gone(problem, self._connection)):
                    raise
                self._lose(problem)
                self._closing.wait(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                if self.away:
                    self.away = False
                    log.warning("%s: the database is back", self._name)
                return answer
        raise Away(f"The database is away, and {self._name} was told to stop waiting.")

    def connection(self) -> Connection:
        """The desk's connection, opened anew if it broke."""
        if self._connection is None or self._connection.closed or self._connection.broken:
            self._connection = self._database.named(f"holdfast {self._name}").connect()
        return self._connection

    def _lose(self, problem: Exception) -> None:
        if not self.away:
            log.warning("%s: the database is away: %s", self._name, str(problem).strip().split("\n")[0])
        self.away = True
        self.broke += 1
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
            self._connection = None

    def is_closing(self) -> bool:
        """Whether waiting for the database is over."""
        return self._closing.is_set()

    def give_up(self) -> None:
        """Calls that wait for the database end with Away."""
        self._closing.set()

    def close(self) -> None:
        """After: no call is under way, the connection is closed."""
        self._closing.set()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
