"""Operating: claims, runs, workers."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import (
    DEFAULT_LIMIT,
    CursorText,
    Limit,
    Page,
    decode_list_cursor,
    keyset_page,
)
from holdfast.api.request_types import Body, Filter, Id, Text, View
from holdfast.control.list_filters import ClaimFilter, RunFilter, WorkerFilter
from holdfast.workers.service import ClaimDesk, check_target

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])


class ClaimView(View):
    """A domain that is held."""

    domain: str
    worker: str
    epoch: int
    claimed_at: datetime | None
    expires_at: datetime
    expired: bool
    status: str
    frontier_size: int


class WorkerClaims(View):
    """A worker and how many domains it holds."""

    worker: str
    claims: int
    expired: int
    earliest_expiry: datetime


class ExpiredClaim(View):
    """A claim whose lease has ended and that no sweep has freed yet."""

    domain: str
    worker: str
    epoch: int
    expires_at: datetime


class ClaimSummary(View):
    """Who holds what, what has expired, what waits."""

    workers: list[WorkerClaims]
    expired: list[ExpiredClaim]
    waiting: dict[str, int]
    """Domains that could be claimed now, by status."""
    cooling: int
    """Domains that are left alone for a while."""


class Release(Body):
    """Which claims are to be freed: those that have expired, unless you say more."""

    force: bool = False
    """Also those that have not; who holds them is fenced off."""
    worker: Annotated[Text, Field(min_length=1, max_length=255)] | None = None
    """Only those of this worker; with `force` only."""
    all_active: bool = False
    """Those of all workers; with `force` only."""


class Released(View):
    """What was freed."""

    claims: int


class RunView(View):
    """A worker process, at work or ended."""

    id: int
    worker: str
    job: str | None
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
    """URLs that it has in memory."""


class Cleanup(Body):
    """Which runs are closed."""

    older_than_minutes: Annotated[int, Field(ge=1, le=525_600)] = 60
    """Not heard of for so long."""


class Closed(View):
    """Runs that were closed."""

    runs: list[int]


class WorkerView(View):
    """A name that a worker bears or bore."""

    name: str
    host: str
    pid: int
    boot_epoch: int
    """Which of its lives this is."""
    started_at: datetime
    heartbeat_at: datetime
    alive: bool
    held: int
    """Domains."""
    expired: int
    runs: int
    pages: int
    errors: int
    bytes: int
    in_window: int
    status: str
    """active, idle (it runs and holds nothing), ended (in order), or silent (it died, or cannot reach the database)."""
    current_url: str | None
    """What it has been fetching for longest."""
    current_urls: list[str]
    """What it fetches at this moment, the oldest request first; a few of them."""
    ended_at: datetime | None
    activity: dict[str, Any] | None
    """What it does at this moment: `requests` in flight by job, some of them (`fetching`), and `waits` of domains that it holds, each with
    its kind, a detail, and the seconds until the next attempt. None: nothing, or it is not alive."""
    activity_at: datetime | None
    """When that was written; seconds in it count from then."""


@router.get("/api/claims", summary="Domains that are held")
def claims(
    services: Services,
    request: Request,
    response: Response,
    worker: Annotated[Filter, Query(description="Only by this worker.")] = None,
    expired: Annotated[bool | None, Query(description="Only those whose lease has ended, or has not.")] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[ClaimView]:
    """By holder."""
    query = ClaimFilter(worker or None, expired)
    found = services.listings.claims(query, after=decode_list_cursor("claims", "worker", cursor), limit=limit)
    return keyset_page(request, response, [ClaimView.of(row) for row in found.rows], found.next)


@router.get("/api/claims/summary", summary="Claims in figures")
def summary(services: Services) -> ClaimSummary:
    """Who holds how many, what has expired, what waits."""
    return ClaimSummary.of(ClaimDesk(services.database).overview())


@router.post("/api/admin/claims/release", summary="Free claims")
def release(services: Services, caller: Caller, given: Release | None = None) -> Released:
    """Expired ones and those of dead workers, or with `force` those of a worker or of all."""
    wanted = given or Release()
    check_target(force=wanted.force, worker=wanted.worker, all_active=wanted.all_active)
    desk = ClaimDesk(services.database)
    if wanted.force:
        return Released(claims=desk.force_release(wanted.worker, actor=caller.name))
    return Released(claims=desk.release_expired(actor=caller.name))


@router.get("/api/runs", summary="Runs", responses=documented(404))
def runs(
    services: Services,
    request: Request,
    response: Response,
    status: Literal["running", "completed", "failed"] | None = None,
    job: Annotated[Filter, Query(description="Only of this job, by name or id.")] = None,
    worker: Filter = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[RunView]:
    """Worker processes, the newest first."""
    query = RunFilter(status, job or None, worker or None)
    found = services.listings.runs(query, after=decode_list_cursor("runs", "newest", cursor), limit=limit)
    return keyset_page(request, response, [RunView.of(row) for row in found.rows], found.next)


@router.get("/api/runs/{id}", summary="A run", responses=documented(404))
def run(id: Id, services: Services) -> RunView:  # noqa: A002 — the name of the parameter
    """By its id."""
    return RunView.of(services.listings.run(id))


@router.post("/api/admin/runs/cleanup", summary="Close runs that are dead")
def cleanup(services: Services, caller: Caller, given: Cleanup | None = None) -> Closed:
    """Those that say they run and were not heard of."""
    wanted = timedelta(minutes=(given or Cleanup()).older_than_minutes)
    return Closed(runs=ClaimDesk(services.database).close_silent_runs(wanted, actor=caller.name))


@router.get("/api/workers", summary="Workers")
def workers(
    services: Services,
    request: Request,
    response: Response,
    alive: Annotated[bool | None, Query(description="Heard of in the last two minutes, or not.")] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[WorkerView]:
    """By name."""
    found = services.listings.workers(
        WorkerFilter(alive), after=decode_list_cursor("workers", "name", cursor), limit=limit
    )
    return keyset_page(request, response, [WorkerView.of(row) for row in found.rows], found.next)
