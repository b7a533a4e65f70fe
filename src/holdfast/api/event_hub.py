"""Live events: one reader of the event log for all listeners of a process, and snapshots that are polled once for all
of them.

The rule: a listener costs memory and a socket, no query. The order of the log does not change, so that a listener
that reconnects continues after the last event that it received. Recent events come from a ring buffer in memory; only
a listener that was disconnected for longer than the ring reaches back is served from the log.
"""

import asyncio
import logging
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from holdfast.db import events
from holdfast.db.connection import Database
from holdfast.db.events import Cursor, Event, Kind
from holdfast.errors import HoldfastError, TooMany

log: Final = logging.getLogger(__name__)

LOG_POLL_INTERVAL: Final = 0.25
"""Seconds between two reads of the event log."""
SNAPSHOT_INTERVAL: Final = 1.0
"""Seconds between two polls of snapshots."""
_RING_SIZE: Final = 10_000
"""Minimum number of events that stay in memory."""
_READ_LIMIT: Final = 1_000


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The events that a listener receives; None: all."""

    kinds: frozenset[Kind] | None = None
    job_id: int | None = None
    domain_id: int | None = None

    def matches(self, event: Event) -> bool:
        """Whether the event passes the filter."""
        return (
            (self.kinds is None or event.kind in self.kinds)
            and (self.job_id is None or event.job_id == self.job_id)
            and (self.domain_id is None or event.domain_id == self.domain_id)
        )


class EventHub:
    """The listeners and the event ring of one process. For one event loop."""

    def __init__(self, database: Database, max_slots: int, max_slots_per_user: int) -> None:
        self._database = database
        self._max_slots = max_slots
        self._max_slots_per_user = max_slots_per_user
        self._slots_by_user: Counter[int | None] = Counter()
        """Reserved slots, by user."""
        self._slots_lock = threading.Lock()
        self._ring: list[Event] = []
        self._ring_from = Cursor()
        """The ring has all events after this cursor, up to `_read_to`."""
        self._read_to: Cursor | None = None
        self._listeners = 0
        self._new_events = _Notifier()
        self._has_listeners = asyncio.Event()
        self._store = 0
        """The number of stores that were read: events and cursors of one mean nothing in the next."""
        self._closing = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the reader of the event log; listeners are served inside this context."""
        reader = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self.close()
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader

    def close(self) -> None:
        """Close all subscriptions."""
        self._closing.set()
        self._new_events.notify()

    def restart(self) -> None:
        """End all streams and forget what was read: the store was restored. Clients connect again, and look at everything anew. From any
        thread."""
        self._store += 1

    @property
    def closing(self) -> bool:
        """Whether all subscriptions are being closed."""
        return self._closing.is_set()

    def reserve_slot(self, user_id: int | None) -> None:
        """Reserve a slot for a listener, until `release_slot`, from any thread. Raises TooMany when all slots are
        taken, or all that one user may have.

        None as user: the server runs without authentication, and one caller may have all slots.
        """
        with self._slots_lock:
            if self._slots_by_user.total() >= self._max_slots:
                raise TooMany(
                    f"{self._max_slots} listeners are connected, which is the limit (web.listeners); try again later.",
                    retry_after=10,
                )
            if user_id is not None and self._slots_by_user[user_id] >= self._max_slots_per_user:
                raise TooMany(
                    f"You have {self._max_slots_per_user} listeners connected, which is the limit for one user "
                    "(web.user_listeners); close one of them first.",
                    retry_after=10,
                )
            self._slots_by_user[user_id] += 1

    def release_slot(self, user_id: int | None) -> None:
        """Release a slot. Before: `reserve_slot`."""
        with self._slots_lock:
            self._slots_by_user[user_id] -= 1
            if not self._slots_by_user[user_id]:
                del self._slots_by_user[user_id]

    @contextmanager
    def subscribed(self) -> Iterator[None]:
        """Subscribe a listener; the log is read while there is at least one. Before: `reserve_slot`."""
        self._listeners += 1
        self._has_listeners.set()
        try:
            yield
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._has_listeners.clear()

    async def stream(self, event_filter: EventFilter, after: Cursor) -> AsyncIterator[list[Event]]:
        """Events after a cursor as they happen; an empty list when there was none for a moment.

        Ends when the process stops, or the store is another one. Before: the caller is inside `subscribed`.
        """
        position, store = after, self._store
        while not self.closing:
            notified = self._new_events.next_event()
            found, position = await self._events_after(position, event_filter)
            if store != self._store:
                return
            yield found
            if not found and not self.closing:
                await _wait_for(notified, SNAPSHOT_INTERVAL)

    async def _events_after(self, position: Cursor, event_filter: EventFilter) -> tuple[list[Event], Cursor]:
        """The events after a position that have been read so far, and the position that they reach to."""
        ring = self._ring
        if self._read_to is None or position >= self._read_to:
            return [], position
        if position < self._ring_from:
            return await run_in_threadpool(self._read_log, position, event_filter, self._read_to)
        if not ring:
            return [], position
        first = bisect_right(ring, position, key=_cursor)
        return [event for event in ring[first:] if event_filter.matches(event)], ring[-1].cursor

    def _head(self) -> Cursor:
        with self._database.session() as connection:
            return events.latest_cursor(connection)

    def _read_log(self, position: Cursor, event_filter: EventFilter, read_to: Cursor) -> tuple[list[Event], Cursor]:
        """Read the log for a listener that was disconnected for long. All transactions up to `read_to` have ended, so
        that the log is complete up to there."""
        with self._database.session() as connection:
            found = events.read(
                connection,
                position,
                limit=_READ_LIMIT,
                kinds=event_filter.kinds,
                job_id=event_filter.job_id,
                domain_id=event_filter.domain_id,
            )
        if len(found) == _READ_LIMIT:
            return found, found[-1].cursor
        return found, max(read_to, found[-1].cursor) if found else read_to

    async def _run(self) -> None:
        """Read the log for all listeners, while there is at least one."""
        store = self._store
        while True:
            if store != self._store:
                store, self._read_to = self._store, None
                self._ring.clear()
            if not self._has_listeners.is_set():
                await self._has_listeners.wait()
                self._read_to = None  # events without a listener are in the log, for a listener that resumes from there
                self._ring.clear()
            try:
                await self._poll()
            except HoldfastError as problem:
                log.warning("live events wait for the database: %s", problem)
                await asyncio.sleep(1.0)
            except Exception:
                log.exception("live events: unexpected error")
                await asyncio.sleep(1.0)
            await asyncio.sleep(LOG_POLL_INTERVAL)

    async def _poll(self) -> None:
        if self._read_to is None:
            self._read_to = self._ring_from = await run_in_threadpool(self._head)
        found = await run_in_threadpool(self._next, self._read_to)
        if found:
            self._ring.extend(found)
            if len(self._ring) > 2 * _RING_SIZE:
                self._ring_from = self._ring[-_RING_SIZE - 1].cursor
                del self._ring[:-_RING_SIZE]
            self._read_to = found[-1].cursor
            self._new_events.notify()

    def _next(self, position: Cursor) -> list[Event]:
        with self._database.session() as connection:
            return events.read(connection, position, limit=_READ_LIMIT)


Lookup = Callable[[Collection[Any]], Mapping[Any, Any]]
"""Runs in a thread: the values for these keys; a key that is left out no longer exists."""


class Missing(Enum):
    """Stands for a value that has not been polled yet."""

    NOT_POLLED = "not polled"


class SnapshotPoller:
    """Snapshots of what listeners watch, polled at an interval (a second by default) for all of them together.

    The rule: a listener gets no value that was read before it subscribed, so that it sees its own changes. Polls take at most one part in
    `share` of the time.
    """

    def __init__(
        self,
        lookup: Lookup,
        interval: float = SNAPSHOT_INTERVAL,
        *,
        share: int = 2,
        turns: asyncio.Semaphore | None = None,
    ) -> None:
        """`turns`: limits how many pollers that have it poll at the same moment."""
        self._lookup = lookup
        self._interval = interval
        self._share = share
        self._turns = turns or asyncio.Semaphore()
        self._subscribers: Counter[Hashable] = Counter()
        self._values: Mapping[Any, Any] = {}
        self._last_started = self._last_finished = 0
        """Polls are numbered: the last one that started, and the one that `_values` is of."""
        self._polled_at = 0.0
        self._polled = _Notifier()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def subscribe(self, key: Hashable) -> Iterator["Subscription"]:
        """Subscribe to the value of a key; it is polled inside this context."""
        self._subscribers[key] += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield Subscription(self, key, self._last_started)
        finally:
            self._subscribers[key] -= 1
            if not self._subscribers[key]:
                del self._subscribers[key]

    def value(self, key: Hashable, subscribed_at: int) -> Any:
        """The value that a poll after that number has read; None: it no longer exists."""
        return self._values.get(key) if self._last_finished > subscribed_at else Missing.NOT_POLLED

    def latest(self, key: Hashable, *, max_age: float) -> Any:
        """The value of the last poll, if that ended within `max_age` seconds; None: there is none."""
        return self._values.get(key) if time.monotonic() - self._polled_at <= max_age else None

    @property
    def is_watched(self) -> bool:
        """Whether there is a subscriber."""
        return bool(self._subscribers)

    async def wait_for_next(self) -> None:
        """Wait for the next poll, for three intervals at most."""
        await _wait_for(self._polled.next_event(), 3 * self._interval)

    async def _run(self) -> None:
        while self._subscribers:
            async with self._turns:
                started = time.monotonic()
                await self._poll()
                took = time.monotonic() - started
            await asyncio.sleep(max(self._interval - took, (self._share - 1) * took))

    async def _poll(self) -> None:
        self._last_started += 1
        number = self._last_started
        try:
            self._values = await run_in_threadpool(self._lookup, tuple(self._subscribers))
            self._last_finished, self._polled_at = number, time.monotonic()
            self._polled.notify()
        except HoldfastError as problem:
            log.warning("live snapshots wait for the database: %s", problem)
        except Exception:
            log.exception("live snapshots: unexpected error")  # the subscribers stay subscribed


@dataclass(frozen=True, slots=True)
class Subscription:
    """One listener's subscription to the value of one key."""

    poller: SnapshotPoller
    key: Hashable
    subscribed_at: int
    """The number of the last poll that had started before the subscription."""

    def value(self) -> Any:
        """The current value; None: it no longer exists."""
        return self.poller.value(self.key, self.subscribed_at)

    async def wait_for_first(self) -> None:
        """Wait until there is a value, for a limited time: events continue while snapshots cannot be read."""
        for _ in range(2):  # the next poll may have started before the subscription
            if self.value() is Missing.NOT_POLLED:
                await self.poller.wait_for_next()


def _cursor(event: Event) -> Cursor:
    return event.cursor


class _Notifier:
    """Wakes all waiters at its next notification."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def next_event(self) -> asyncio.Event:
        return self._event

    def notify(self) -> None:
        self._event.set()
        self._event = asyncio.Event()


async def _wait_for(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
