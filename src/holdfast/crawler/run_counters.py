"""What a worker process counts by itself, because no row of the store tells it.

The rule: each figure has one thread that writes it, so no lock is needed. The heartbeat writes them down as totals; a worker that is killed
loses what it counted since its last sign of life.
"""

from holdfast.model.figures import COMMIT_MS, RunCounts, bucket


class Tally:
    """The counts of one run."""

    def __init__(self) -> None:
        self.lease_renewals = 0
        """Written by the heartbeat."""
        self.fenced_writes = 0
        """Written on the event loop, like the next one."""
        self.robots_denied = 0
        self._commits = 0
        self._commit_seconds = 0.0
        self._latency = [0] * (len(COMMIT_MS) + 1)

    def committed(self, seconds: float) -> None:
        """One more commit took so long. Called by the committer's thread."""
        self._commits += 1
        self._commit_seconds += seconds
        self._latency[bucket(COMMIT_MS, seconds * 1000)] += 1

    def counts(self) -> RunCounts:
        """How far it is."""
        return RunCounts(
            self.lease_renewals,
            self.fenced_writes,
            self.robots_denied,
            self._commits,
            round(self._commit_seconds * 1000),
            tuple(self._latency),
        )
