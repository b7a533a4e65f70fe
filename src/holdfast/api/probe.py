"""A cached health probe of a service that may not answer, for callers that need an answer at once.

The rule: however many callers there are, one probe runs at a time, and one starts per second; no caller waits for
longer than `TIMEOUT`, and the event loop is never blocked. A probe that takes longer continues alone, and until it
ends callers get the default.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

TIMEOUT: Final = 0.5
"""Seconds that a caller waits."""
CACHE_SECONDS: Final = 1.0

T = TypeVar("T")


class CachedProbe(Generic[T]):
    """The result of the last probe. Before: it is used in one event loop."""

    def __init__(self, probe: Callable[[], T], default: T) -> None:
        self._probe = probe
        self._default = default
        self._value: T = default
        self._expires = 0.0
        self._started = 0.0
        self._running: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """The result of the last second, or of a new probe; the default if there is none in time."""
        if self._running is None and time.monotonic() >= self._expires:
            self._started = time.monotonic()
            self._running = asyncio.create_task(asyncio.to_thread(self._probe))
            self._running.add_done_callback(self._finished)
        if (running := self._running) is not None:
            left = self._started + TIMEOUT - time.monotonic()
            if left > 0:
                await asyncio.wait({running}, timeout=left)
            if not running.done():
                return self._default
        return self._value

    def _finished(self, running: asyncio.Task[T]) -> None:
        self._running = None
        self._expires = time.monotonic() + CACHE_SECONDS
        self._value = self._default if running.cancelled() or running.exception() else running.result()
