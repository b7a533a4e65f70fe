"""A cache of job summaries, shared between requests: each summary reads all URLs of its job.

The rule: a process computes one summary at a time. It is valid for `SHARE` times as long as it took to compute, and a
request that cannot have it soon is refused, so that threads are left for other routes.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from holdfast.errors import TooMany
from holdfast.jobs.summary import CrawlSummary
from holdfast.stats.service import SHARE

TIMEOUT: Final = 1.0
"""Seconds that a request waits for summaries of other requests."""
_RETRY_AFTER: Final = 5.0
_MAX_ENTRIES: Final = 100
"""Summaries that are cached."""


class SummaryCache:
    """Computes and caches summaries of jobs."""

    def __init__(
        self,
        make: Callable[[int], CrawlSummary],
        *,
        timeout: float = TIMEOUT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[int, tuple[float, CrawlSummary]] = {}

    def of(self, job_id: int) -> CrawlSummary:
        """The summary of a job, at most a moment old; its `now` says when it was computed. Raises TooMany while
        others are computed."""
        if (found := self._fresh(job_id)) is not None:
            return found
        if not self._lock.acquire(timeout=self._timeout):
            raise TooMany(
                "Summaries of other jobs are being computed; ask again in a few seconds.", retry_after=_RETRY_AFTER
            )
        try:
            if (found := self._fresh(job_id)) is not None:  # computed while this request waited
                return found
            begun = self._clock()
            made = self._make(job_id)
            ended = self._clock()
            if len(self._entries) >= _MAX_ENTRIES:
                self._entries = {key: entry for key, entry in self._entries.items() if entry[0] > ended}
            if len(self._entries) < _MAX_ENTRIES:
                self._entries[job_id] = (ended + SHARE * (ended - begun), made)
            return made
        finally:
            self._lock.release()

    def _fresh(self, job_id: int) -> CrawlSummary | None:
        expires, found = self._entries.get(job_id, (0.0, None))
        return found if found is not None and self._clock() < expires else None
