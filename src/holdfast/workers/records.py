"""Workers, their runs and claims, and the filters of their lists."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from holdfast.errors import UsageError
from holdfast.model.list_filter import ListFilter, split_flag
from holdfast.model.record import record

_RUN_STATUSES: Final = ("running", "completed", "failed")


@record
class ActiveWorker:
    """A worker that is alive, or that still holds domains."""

    name: str
    host: str
    pid: int
    started_at: datetime
    heartbeat_at: datetime
    alive: bool
    """It sent a heartbeat in the last two minutes, and one of its runs has not ended."""
    held: int
    """Domains."""
    pages: int
    """Of its runs that have not ended; likewise `errors`, `bytes` and `in_window`."""
    in_window: int
    """URLs in its memory."""
    status: str
    """active, idle (it runs and holds nothing), ended (in order), or silent (it died, or cannot reach the database)."""
    current_url: str | None
    """The URL that it has been fetching for longest."""
    current_urls: list[str]
    """Some of the URLs that it fetches at this moment, the oldest request first."""
    activity: dict[str, Any] | None
    """What it does at this moment: `requests` in flight by job, some of them (`fetching`), and `waits` of domains that it holds, each with
    its kind, a detail, and the seconds until the next attempt. null: nothing, or it is not alive."""
    activity_at: datetime | None
    """When `activity` was written; seconds in it count from then."""


@record
class Worker(ActiveWorker):
    """A worker, by name: alive, ended or silent."""

    boot_epoch: int
    """The number of its start."""
    expired: int
    """Of the domains that it holds: those whose leases have ended."""
    runs: int
    """Runs that have not ended."""
    errors: int
    bytes: int
    ended_at: datetime | None
    """When it ended in order; null: it runs, or died."""


@record
class Run:
    """A worker process, at work or ended."""

    id: int
    worker: str
    job: str | None
    """null: it serves all jobs."""
    status: Literal["running", "completed", "failed"]
    started_at: datetime
    heartbeat_at: datetime
    completed_at: datetime | None
    error_message: str | None
    pages_crawled: int
    errors: int
    bytes: int
    images_found: int
    in_window: int
    """URLs in its memory, as of its last heartbeat."""


@record
class Claim:
    """A claimed domain."""

    domain: str
    worker: str
    epoch: int
    claimed_at: datetime | None
    expires_at: datetime
    expired: bool
    status: str
    frontier_size: int


@record
class WorkerClaims:
    """The number of domains that a worker holds."""

    worker: str
    claims: int
    expired: int
    earliest_expiry: datetime


@record
class ExpiredClaim:
    """A claim whose lease has ended and that no sweep has released yet."""

    domain: str
    worker: str
    epoch: int
    expires_at: datetime


@record
class ClaimSummary:
    """Claims by worker, expired claims, and domains that wait."""

    workers: list[WorkerClaims]
    expired: list[ExpiredClaim]
    waiting: dict[str, int]
    """Domains that could be claimed now, by status."""
    cooling: int
    """Domains in a cool-down."""


@record
class ReleasedClaims:
    """The number of claims that were released."""

    claims: int


@record
class ClosedRuns:
    """Runs that were marked as failed."""

    runs: list[int]


@dataclass(frozen=True, slots=True)
class WorkerFilter(ListFilter):
    """Which workers to list; None: all."""

    alive: bool | None = None
    name: str | None = None
    """The whole name."""

    def given(self) -> dict[str, object]:
        filters = ListFilter.given(self)
        split_flag(filters, "alive", "alive", "silent")
        return filters


@dataclass(frozen=True, slots=True)
class RunFilter(ListFilter):
    """Which runs to list; None: all."""

    status: str | None = None
    """running, completed or failed."""
    job: str | int | None = None
    """By name or id."""
    worker: str | None = None
    crawl: int | None = None

    def given(self) -> dict[str, object]:
        filters = ListFilter.given(self)
        if self.status is not None and self.status not in _RUN_STATUSES:
            raise UsageError(f"A run is {', '.join(_RUN_STATUSES)}, and nothing else.")
        if self.status == "running":
            filters["running"] = filters.pop("status")
        return filters


@dataclass(frozen=True, slots=True)
class ClaimFilter(ListFilter):
    """Which claims to list; None: all."""

    worker: str | None = None
    expired: bool | None = None

    def given(self) -> dict[str, object]:
        filters = ListFilter.given(self)
        split_flag(filters, "expired", "expired", "lasting")
        return filters
