"""Summaries of jobs, shared between requests: each goes over all URLs of its job.

The rule: one is made at a time in a process, however many ask. It serves for `SHARE` times as long as it took to make, and a request
that cannot have it soon is refused, so that readers of other routes keep their places.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from holdfast.control.statistics import SHARE
from holdfast.control.summary import CrawlSummary
from holdfast.errors import TooMany

PATIENCE: Final = 1.0
"""Seconds that a request waits for the summaries of others."""
_RETRY: Final = 5.0
_MOST: Final = 100
"""Summaries that are kept."""


class Summaries:
    """Makes and keeps summaries of jobs."""

    def __init__(
        self,
        make: Callable[[int], CrawlSummary],
        *,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._patience = patience
        self._clock = clock
        self._making = threading.Lock()
        self._kept: dict[int, tuple[float, CrawlSummary]] = {}

    def of(self, job_id: int) -> CrawlSummary:
        """How a job stands, or stood a moment ago; `now` in it says when. TooMany: others are being made."""
        if (found := self._fresh(job_id)) is not None:
            return found
        if not self._making.acquire(timeout=self._patience):
            raise TooMany("Summaries of other jobs are being made; ask again in a few seconds.", retry_after=_RETRY)
        try:
            if (found := self._fresh(job_id)) is not None:  # made while this request waited
                return found
            begun = self._clock()
            made = self._make(job_id)
            ended = self._clock()
            if len(self._kept) >= _MOST:
                self._kept = {key: kept for key, kept in self._kept.items() if kept[0] > ended}
            if len(self._kept) < _MOST:
                self._kept[job_id] = (ended + SHARE * (ended - begun), made)
            return made
        finally:
            self._making.release()

    def _fresh(self, job_id: int) -> CrawlSummary | None:
        until, found = self._kept.get(job_id, (0.0, None))
        return found if found is not None and self._clock() < until else None
