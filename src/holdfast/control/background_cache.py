"""Results that take long, by key, shared between requests: a page shows the last one, and never waits for a new one.

The rule: a process computes one result of a cache at a time. It is valid for `SHARE` times as long as it took to compute, so that the cost
is bounded for any number of readers.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from holdfast.errors import HoldfastError, TooMany

log: Final = logging.getLogger(__name__)

SHARE: Final = 10
"""A result is valid for ten times as long as it took to compute."""
TIMEOUT: Final = 1.0
"""Seconds that a request waits for results of other requests."""
_RETRY_AFTER: Final = 5.0
_MAX_ENTRIES: Final = 100
"""Results that are cached."""

K = TypeVar("K")
V = TypeVar("V")


class BackgroundCache(Generic[K, V]):
    """A cache of results by key. It may be shared by threads."""

    def __init__(
        self,
        make: Callable[[K], V],
        what: str,
        *,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`what`: the results in words, for a request that is refused."""
        self._make = make
        self._what = what
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[K, tuple[float, V]] = {}
        self._running: dict[K, threading.Thread] = {}
        """Threads that compute a result for `latest`, by key."""

    def of(self, key: K) -> V:
        """The result for a key, computed by this call if there is no valid one. Raises TooMany while others are computed."""
        if (found := self._fresh(key)) is not None:
            return found
        if not self._lock.acquire(timeout=self._timeout):
            raise TooMany(f"{self._what} are being computed; ask again in a few seconds.", retry_after=_RETRY_AFTER)
        try:
            if (found := self._fresh(key)) is not None:  # computed while this request waited
                return found
            begun = self._clock()
            made = self._make(key)
            ended = self._clock()
            if len(self._entries) >= _MAX_ENTRIES:
                self._entries = {known: entry for known, entry in self._entries.items() if entry[0] > ended}
            if len(self._entries) < _MAX_ENTRIES:
                self._entries[key] = (ended + SHARE * (ended - begun), made)
            return made
        finally:
            self._lock.release()

    def latest(self, key: K, wait: float = 0.2) -> V | None:
        """The last result for a key, for pages that must not wait; None: the first one is being computed.

        One that is no longer valid is computed again in a thread. A call waits for that for at most `wait` seconds.
        """
        if (found := self._fresh(key)) is None:
            running = self._running.get(key)
            if running is None or not running.is_alive():
                running = self._running[key] = threading.Thread(target=self._renew, args=(key,), daemon=True)
                running.start()
            running.join(wait)
        return found or self._entries.get(key, (0.0, None))[1]

    def _renew(self, key: K) -> None:
        try:
            self.of(key)
        except HoldfastError as problem:
            log.info("no result for %r: %s", key, problem)
        finally:
            self._running.pop(key, None)

    def _fresh(self, key: K) -> V | None:
        expires, found = self._entries.get(key, (0.0, None))
        return found if found is not None and self._clock() < expires else None
