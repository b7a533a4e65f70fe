"""Requests about workers, their claims and their runs."""

import httpx

from holdfast.client.decoding import read
from holdfast.client.job_ref import JobRef, optional_job
from holdfast.client.request_spec import ListSpec, RequestSpec, decode_one, document, format_path
from holdfast.workers.records import Claim, ClaimSummary, ClosedRuns, ReleasedClaims, Run, Worker


def claims(*, worker: str | None = None, expired: bool | None = None) -> ListSpec[Claim]:
    """Claimed domains, by worker."""
    return ListSpec("/api/claims", Claim, {"worker": worker, "expired": expired})


def claim_summary() -> RequestSpec[ClaimSummary]:
    """How many domains each worker holds, expired claims, and domains that wait."""
    return RequestSpec("GET", "/api/claims/summary", decode_one(ClaimSummary))


def release_claims(
    *, force: bool = False, worker: str | None = None, domain: str | None = None, all_active: bool = False
) -> RequestSpec[int]:
    """Release claims that have expired, or with `force` those of a worker, on a domain, or all. Returns how many."""
    body = {"force": force, "worker": worker, "domain": domain, "all_active": all_active}

    def count(response: httpx.Response) -> int:
        return read(ReleasedClaims, document(response)).claims

    return RequestSpec("POST", "/api/admin/claims/release", count, body=body)


def runs(*, status: str | None = None, job: JobRef | None = None, worker: str | None = None) -> ListSpec[Run]:
    """Worker processes, the newest first."""
    return ListSpec("/api/runs", Run, {"status": status, "job": optional_job(job), "worker": worker})


def run(run: int) -> RequestSpec[Run]:
    """One worker process."""
    return RequestSpec("GET", format_path("/api/runs/{}", run), decode_one(Run))


def close_silent_runs(*, older_than_minutes: int = 60) -> RequestSpec[list[int]]:
    """Mark runs as failed that have had no heartbeat for that long. Returns their ids."""
    body = {"older_than_minutes": older_than_minutes}

    def ids(response: httpx.Response) -> list[int]:
        return read(ClosedRuns, document(response)).runs

    return RequestSpec("POST", "/api/admin/runs/cleanup", ids, body=body)


def workers(*, alive: bool | None = None) -> ListSpec[Worker]:
    """Workers, by name."""
    return ListSpec("/api/workers", Worker, {"alive": alive})


def worker(name: str) -> RequestSpec[Worker]:
    """A worker by its name: its state, its activity, and its figures."""
    return RequestSpec("GET", format_path("/api/workers/{}", name), decode_one(Worker))
