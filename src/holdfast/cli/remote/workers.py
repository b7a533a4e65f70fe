"""Claims and runs of a server."""

from dataclasses import dataclass
from datetime import timedelta

from holdfast.client import Client
from holdfast.workers.records import ClaimSummary, Run, WorkerClaims
from holdfast.workers.service import choose_releasable


@dataclass(frozen=True, slots=True)
class RemoteWorkers:
    """The methods of `workers/service`, over HTTP. The actor is the user of the API key, not `actor`."""

    client: Client

    def summary(self) -> ClaimSummary:
        """Claims by worker, expired claims, and the number of domains that wait."""
        return self.client.claim_summary()

    def releasable(self, *, force: bool, worker: str | None) -> list[WorkerClaims]:
        """The claims that a release would free, by worker. Those of a dead worker count when they expire: only the server knows that it
        is dead."""
        found = [row for row in self.client.claim_summary().workers if worker in (None, row.worker)]
        return choose_releasable(found, force=force, worker=worker)

    def release(self, *, force: bool, worker: str | None, actor: str) -> int:  # noqa: ARG002 — see above
        """Release claims; returns how many."""
        return self.client.release_claims(force=force, worker=worker, all_active=force and worker is None)

    def silent_runs(self, older_than: timedelta) -> list[Run]:
        """Runs in state running without a heartbeat for `older_than`."""
        limit = self.client.stats().at - older_than
        return sorted(
            (run for run in self.client.runs(status="running") if run.heartbeat_at < limit), key=lambda run: run.id
        )

    def close_silent_runs(self, older_than: timedelta, *, actor: str) -> list[int]:  # noqa: ARG002
        """Mark silent runs as failed; returns their ids."""
        return self.client.close_silent_runs(older_than_minutes=older_than // timedelta(minutes=1))
