"""Counters of a worker process that cannot be computed from the rows of the database.

The rule: each counter is written by one thread, so no lock is needed. The heartbeat saves them as totals; a worker that is killed loses
what it counted since its last heartbeat.
"""

from holdfast.model.histograms import COMMIT_MS, RunCounts, bucket_index


class RunCounters:
    """The counters of one run."""

    def __init__(self) -> None:
        self.lease_renewals = 0
        """Written by the heartbeat."""
        self.fenced_writes = 0
        """Written on the event loop, like the next one."""
        self.robots_denied = 0
        self._commits = 0
        self._commit_seconds = 0.0
        self._latency = [0] * (len(COMMIT_MS) + 1)

    def record_commit(self, seconds: float) -> None:
        """Count a commit with its duration in seconds. Called by the batch writer's thread."""
        self._commits += 1
        self._commit_seconds += seconds
        self._latency[bucket_index(COMMIT_MS, seconds * 1000)] += 1

    def counts(self) -> RunCounts:
        """Return the totals so far."""
        return RunCounts(
            self.lease_renewals,
            self.fenced_writes,
            self.robots_denied,
            self._commits,
            round(self._commit_seconds * 1000),
            tuple(self._latency),
        )
