"""Live events: one reader of the event log for all listeners of a process, and figures that are looked up once for all of them.

The rule: a listener costs memory and a socket, no query. The log has everything in an order that does not change, so that a listener who
was away goes on behind the last event that he has seen; only who was away for longer than the ring reaches back is served from the log.
"""

import asyncio
import logging
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from holdfast.errors import HoldfastError, TooMany
from holdfast.store import events
from holdfast.store.connect import Database
from holdfast.store.events import Cursor, Event, Kind

log: Final = logging.getLogger(__name__)

PAUSE: Final = 0.25
"""Seconds between two looks at the log."""
TICK: Final = 1.0
"""Seconds between two looks at figures."""
_RING: Final = 10_000
"""Events that are kept in memory, at least."""
_CHUNK: Final = 1_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events somebody wants; None: all."""

    kinds: frozenset[Kind] | None = None
    job_id: int | None = None
    domain_id: int | None = None

    def means(self, event: Event) -> bool:
        """Whether this one is wanted."""
        return (
            (self.kinds is None or event.kind in self.kinds)
            and (self.job_id is None or event.job_id == self.job_id)
            and (self.domain_id is None or event.domain_id == self.domain_id)
        )


class Hub:
    """The live side of one process. For one event loop."""

    def __init__(self, database: Database, most: int, most_of_one: int) -> None:
        self._database = database
        self._most = most
        self._most_of_one = most_of_one
        self._taken: Counter[int | None] = Counter()
        """Places, by user."""
        self._taking = threading.Lock()
        self._ring: list[Event] = []
        self._ring_from = Cursor()
        """What lies behind this place is in the ring, up to `_read_to`."""
        self._read_to: Cursor | None = None
        self._listeners = 0
        self._news = _Bell()
        self._wanted = asyncio.Event()
        self._closing = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Between the beginning and the end of this, listeners are served."""
        reader = asyncio.create_task(self._read())
        try:
            yield
        finally:
            self.close()
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader

    def close(self) -> None:
        """All listeners are sent home."""
        self._closing.set()
        self._news.ring()

    @property
    def closing(self) -> bool:
        """Whether listeners are being sent home."""
        return self._closing.is_set()

    def take_place(self, user_id: int | None) -> None:
        """A place for a listener, until `give_place_back`, from any thread. TooMany when all are taken, or all that one user may have.

        None: nobody has to say who he is; then all places are for whoever comes.
        """
        with self._taking:
            if self._taken.total() >= self._most:
                raise TooMany(
                    f"{self._most} listeners are connected, and that is the most; try again later.", retry_after=10
                )
            if user_id is not None and self._taken[user_id] >= self._most_of_one:
                raise TooMany(
                    f"You have {self._most_of_one} listeners connected, and that is the most for one user; close one of them first.",
                    retry_after=10,
                )
            self._taken[user_id] += 1

    def give_place_back(self, user_id: int | None) -> None:
        """Somebody else may have it. Before: `take_place`."""
        with self._taking:
            self._taken[user_id] -= 1
            if not self._taken[user_id]:
                del self._taken[user_id]

    @contextmanager
    def seat(self) -> Iterator[None]:
        """Somebody listens; while anybody does, the log is read. Before: `take_place`."""
        self._listeners += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._wanted.clear()

    async def listen(self, wanted: Wanted, after: Cursor) -> AsyncIterator[list[Event]]:
        """Events behind `after` as they come; an empty list when there was nothing for a moment.

        Ends when the process does. Before: the caller has a seat.
        """
        position = after
        while not self.closing:
            heard = self._news.next()
            found, position = await self._behind(position, wanted)
            yield found
            if not found and not self.closing:
                await _rings(heard, TICK)

    async def _behind(self, position: Cursor, wanted: Wanted) -> tuple[list[Event], Cursor]:
        """What is known behind a position, and how far that reaches."""
        ring = self._ring
        if self._read_to is None or position >= self._read_to:
            return [], position
        if position < self._ring_from:
            return await run_in_threadpool(self._from_log, position, wanted, self._read_to)
        if not ring:
            return [], position
        first = bisect_right(ring, position, key=_cursor)
        return [event for event in ring[first:] if wanted.means(event)], ring[-1].cursor

    def _head(self) -> Cursor:
        with self._database.session() as connection:
            return events.head(connection)

    def _from_log(self, position: Cursor, wanted: Wanted, known: Cursor) -> tuple[list[Event], Cursor]:
        """For one who was away for long. Everything up to `known` has been decided, so that the log has it."""
        with self._database.session() as connection:
            found = events.read(
                connection,
                position,
                limit=_CHUNK,
                kinds=wanted.kinds,
                job_id=wanted.job_id,
                domain_id=wanted.domain_id,
            )
        if len(found) == _CHUNK:
            return found, found[-1].cursor
        return found, max(known, found[-1].cursor) if found else known

    async def _read(self) -> None:
        """Read the log for everybody, as long as anybody listens."""
        while True:
            if not self._wanted.is_set():
                await self._wanted.wait()
                self._read_to = None  # what happened while nobody listened is in the log for who asks for it
                self._ring.clear()
            try:
                await self._look()
            except HoldfastError as problem:
                log.warning("live events wait for the database: %s", problem)
                await asyncio.sleep(1.0)
            except Exception:
                log.exception("live events: a fault of ours")
                await asyncio.sleep(1.0)
            await asyncio.sleep(PAUSE)

    async def _look(self) -> None:
        if self._read_to is None:
            self._read_to = self._ring_from = await run_in_threadpool(self._head)
        found = await run_in_threadpool(self._next, self._read_to)
        if found:
            self._ring.extend(found)
            if len(self._ring) > 2 * _RING:
                self._ring_from = self._ring[-_RING - 1].cursor
                del self._ring[:-_RING]
            self._read_to = found[-1].cursor
            self._news.ring()

    def _next(self, position: Cursor) -> list[Event]:
        with self._database.session() as connection:
            return events.read(connection, position, limit=_CHUNK)


Look = Callable[[Collection[int]], Mapping[int, Any]]
"""Runs in a thread: for these keys, what is to be shown of them; one that is left out is gone."""


class Unknown(Enum):
    """Nobody has looked yet."""

    YET = "yet"


class Figures:
    """Figures of things that listeners watch, looked up once a second for all of them together.

    The rule: nobody is shown what was looked up before he came: what he has done himself must be in it.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._watched: Counter[int] = Counter()
        self._seen: Mapping[int, Any] = {}
        self._begun = self._ended = 0
        """Looks are numbered: the last one that began, and the one that `_seen` is of."""
        self._fresh = _Bell()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watching(self, key: int) -> Iterator["Watch"]:
        """Until the end of this it is looked up."""
        self._watched[key] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep_looking())
        try:
            yield Watch(self, key, self._begun)
        finally:
            self._watched[key] -= 1
            if not self._watched[key]:
                del self._watched[key]

    def of(self, key: int, since: int) -> Any:
        """What a look behind that number has shown; None: it is gone."""
        return self._seen.get(key) if self._ended > since else Unknown.YET

    async def next(self) -> None:
        """Wait for the next look, but not for long."""
        await _rings(self._fresh.next(), 3 * TICK)

    async def _keep_looking(self) -> None:
        while self._watched:
            self._begun += 1
            number = self._begun
            try:
                self._seen = await run_in_threadpool(self._look, tuple(self._watched))
                self._ended = number
                self._fresh.ring()
            except HoldfastError as problem:
                log.warning("live figures wait for the database: %s", problem)
            except Exception:
                log.exception("live figures: a fault of ours")  # those who watch go on to watch
            await asyncio.sleep(TICK)


@dataclass(frozen=True, slots=True)
class Watch:
    """One thing that one listener watches."""

    figures: Figures
    key: int
    since: int
    """The look that began last before he came."""

    def now(self) -> Any:
        """What is to be shown; None: it is gone."""
        return self.figures.of(self.key, self.since)

    async def first(self) -> None:
        """Wait until there is something to be shown; not for ever, since events go on while figures cannot be had."""
        for _ in range(2):  # the next look may have begun before he came
            if self.now() is Unknown.YET:
                await self.figures.next()


def _cursor(event: Event) -> Cursor:
    return event.cursor


class _Bell:
    """Wakes all who wait for its next ring."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def next(self) -> asyncio.Event:
        return self._event

    def ring(self) -> None:
        self._event.set()
        self._event = asyncio.Event()


async def _rings(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
