"""Results that take long, by key, shared between requests: a page shows the last one, and never waits for a new one.

The rule: a process computes one result of a cache at a time. It is valid for `SHARE` times as long as it took to compute, so that the cost
is bounded for any number of readers; a page that asks again and again lets it be valid for longer.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class _Entry(Generic[V]):
    """A result."""

    begun: float
    ended: float
    value: V

    @property
    def expires(self) -> float:
        return self.ended + SHARE * (self.ended - self.begun)


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
        self._entries: dict[K, _Entry[V]] = {}
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
            return self._make_entry(key)
        finally:
            self._lock.release()

    def renewed(self, key: K) -> V:
        """A new result for a key, computed by this call at once: for results that take no long time for this key."""
        return self._make_entry(key)

    def latest(self, key: K, wait: float = 0.2, *, fresh_for: float = 0.0) -> V | None:
        """The last result for a key, for pages that must not wait; None: the first one is being computed.

        One that is no longer valid, and whose computation began more than `fresh_for` seconds ago, is computed again in a thread. A call
        waits for that for at most `wait` seconds.
        """
        if (found := self._fresh(key, fresh_for)) is not None:
            return found
        running = self._running.get(key)
        if running is None or not running.is_alive():
            running = self._running[key] = threading.Thread(target=self._renew, args=(key,), daemon=True)
            running.start()
        running.join(wait)
        entry = self._entries.get(key)
        return entry.value if entry is not None else None

    def _renew(self, key: K) -> None:
        try:
            self.of(key)
        except HoldfastError as problem:
            log.info("no result for %r: %s", key, problem)
        finally:
            self._running.pop(key, None)

    def _make_entry(self, key: K) -> V:
        begun = self._clock()
        value = self._make(key)
        entry = _Entry(begun, self._clock(), value)
        if len(self._entries) >= _MAX_ENTRIES:
            self._entries = {known: one for known, one in list(self._entries.items()) if one.expires > entry.ended}
        if len(self._entries) < _MAX_ENTRIES:
            self._entries[key] = entry
        return entry.value

    def _fresh(self, key: K, fresh_for: float = 0.0) -> V | None:
        entry = self._entries.get(key)
        if entry is None or self._clock() >= max(entry.expires, entry.begun + fresh_for):
            return None
        return entry.value
