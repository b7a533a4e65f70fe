"""What a worker counts by itself."""

from holdfast.crawler.leases import RunCounters
from holdfast.model.histograms import COMMIT_MS, RunCounts


def test_nothing_is_counted_at_the_beginning() -> None:
    assert RunCounters().counts() == RunCounts(commit_latency=(0,) * (len(COMMIT_MS) + 1))


def test_commits_are_counted_by_how_long_they_took() -> None:
    counters = RunCounters()
    for seconds in (0.0004, 0.001, 0.0011, 0.02, 11.0):
        counters.record_commit(seconds)
    counters.lease_renewals += 3
    counters.fenced_writes += 1
    counters.robots_denied += 2
    counts = counters.counts()
    assert (counts.lease_renewals, counts.fenced_writes, counts.robots_denied, counts.commits) == (3, 1, 2, 5)
    assert counts.commit_ms == round(1000 * (0.0004 + 0.001 + 0.0011 + 0.02 + 11.0))
    latency = dict(zip([*COMMIT_MS, None], counts.commit_latency, strict=True))
    assert {bound: count for bound, count in latency.items() if count} == {1: 2, 2: 1, 25: 1, None: 1}


def test_what_was_said_does_not_change_afterwards() -> None:
    counters = RunCounters()
    before = counters.counts()
    counters.record_commit(0.5)
    assert before.commits == 0
    assert sum(before.commit_latency) == 0
