"""Figures that are counted while crawling: how long things took, in buckets, and what only a run itself knows.

The rule: bounds never change without a revision of the schema: the store's `fetch_bucket` has those of a fetch, and rows have counts by
them. A value that is equal to a bound lies below it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FETCH_MS: Final = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000)
"""Upper bounds of the buckets of a fetch, in milliseconds; behind the last one is one without a bound."""
COMMIT_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)
"""The same of a commit."""


def bucket(bounds: Sequence[int], ms: float) -> int:
    """The number of the bucket that *ms* belongs to."""
    return bisect_left(bounds, ms)


def quantile(bounds: Sequence[int], counts: Sequence[int], share: float) -> float | None:
    """Milliseconds that *share* (0 to 1) of the values were not longer than, as well as buckets tell; None: there is no value.

    Within a bucket values are taken to be spread evenly; of the last one only its lower bound is known.
    """
    total = sum(counts)
    if not total:
        return None
    wanted, below = share * total, 0
    for number, count in enumerate(counts[: len(bounds)]):
        if count and below + count >= wanted:
            lower = bounds[number - 1] if number else 0
            return lower + (bounds[number] - lower) * max(0.0, wanted - below) / count
        below += count
    return float(bounds[-1])


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What a run has done so far that nobody else counts. Totals, so that saying them twice does no harm."""

    lease_renewals: int = 0
    """Leases that its heartbeat renewed; those that a commit renews by the way do not count."""
    fenced_writes: int = 0
    """Times that the store refused what it wanted to write for a domain: that was somebody else's by then."""
    robots_denied: int = 0
    """URLs that robots.txt denied."""
    commits: int = 0
    commit_ms: int = 0
    """What all commits took together."""
    commit_latency: tuple[int, ...] = ()
    """How many of them took how long, by `COMMIT_MS`."""
