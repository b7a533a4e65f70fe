"""Histograms of durations, and the counters that a run keeps itself.

The rule: bounds never change without a revision of the schema: the store's `fetch_bucket` has those of a fetch, and rows have counts by
them. A value that is equal to a bound belongs to the bucket below it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

FETCH_MS: Final = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000)
"""Upper bounds of the buckets of a fetch, in milliseconds; the last bucket, after them, is unbounded."""
COMMIT_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)
"""Upper bounds of the buckets of a commit, in milliseconds."""


def bucket_index(bounds: Sequence[int], ms: float) -> int:
    """The index of the bucket that *ms* belongs to."""
    return bisect_left(bounds, ms)


def quantile(bounds: Sequence[int], counts: Sequence[int], share: float) -> float | None:
    """The quantile *share* (0 to 1) in milliseconds, estimated from buckets; None: there is no value.

    Values are assumed to be spread evenly within a bucket; for the last one only its lower bound is known.
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
    """Counters that only the run itself can keep. They are totals, so that reporting them twice does no harm."""

    lease_renewals: int = 0
    """Leases that its heartbeat renewed, not counting those renewed by a commit."""
    fenced_writes: int = 0
    """Writes for a domain that the store refused, because another worker held it by then."""
    robots_denied: int = 0
    """URLs that robots.txt denied."""
    commits: int = 0
    commit_ms: int = 0
    """Milliseconds of all commits together."""
    commit_latency: tuple[int, ...] = ()
    """Number of commits by bucket of `COMMIT_MS`."""
