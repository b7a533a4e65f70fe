"""Routes of workers, runs and claims."""

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
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
from holdfast.api.request_types import Body, Filter, Id, ShortText, Text
from holdfast.workers.records import (
    Claim,
    ClaimFilter,
    ClaimSummary,
    ClosedRuns,
    ReleasedClaims,
    Run,
    RunFilter,
    Worker,
    WorkerFilter,
)
from holdfast.workers.service import check_target

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])


class Release(Body):
    """Which claims to release: by default those that have expired."""

    force: bool = False
    """Also those that have not; their workers are fenced off."""
    worker: Annotated[Text, Field(min_length=1, max_length=255)] | None = None
    """Only those of this worker; with `force` only."""
    domain: Annotated[Text, Field(min_length=1, max_length=255)] | None = None
    """Only the one on this domain; with `force` only."""
    all_active: bool = False
    """Those of all workers; with `force` only."""


class Cleanup(Body):
    """Which runs to close."""

    older_than_minutes: Annotated[int, Field(ge=1, le=525_600)] = 60
    """Those without a heartbeat for that long."""


@router.get("/api/claims", summary="Claims")
def claims(
    services: Services,
    request: Request,
    response: Response,
    worker: Annotated[Filter, Query(description="Only by this worker.")] = None,
    expired: Annotated[bool | None, Query(description="Only those whose lease has ended, or has not.")] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Claim]:
    """By worker."""
    after = decode_list_cursor("claims", "worker", cursor)
    found = services.workers.claims(ClaimFilter(worker or None, expired), after=after, limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/claims/summary", summary="Claims in figures")
def summary(services: Services) -> ClaimSummary:
    """The claims of each worker, expired claims, domains that wait."""
    return services.workers.summary()


@router.post("/api/admin/claims/release", summary="Release claims", responses=documented(404))
def release(services: Services, caller: Caller, body: Release | None = None) -> ReleasedClaims:
    """Expired ones and those of dead workers, or with `force` those of a worker, on a domain, or all."""
    options = body or Release()
    check_target(force=options.force, worker=options.worker, all_active=options.all_active, domain=options.domain)
    released = services.workers.release(
        force=options.force, worker=options.worker, domain=options.domain, actor=caller.name
    )
    return ReleasedClaims(released)


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
) -> Page[Run]:
    """Worker processes, the newest first."""
    where = RunFilter(status, job or None, worker or None)
    found = services.workers.runs(where, after=decode_list_cursor("runs", "newest", cursor), limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/runs/{id}", summary="A run", responses=documented(404))
def run(id: Id, services: Services) -> Run:  # noqa: A002 — the name of the parameter
    """By its id."""
    return services.workers.run(id)


@router.post("/api/admin/runs/cleanup", summary="Close silent runs")
def cleanup(services: Services, caller: Caller, body: Cleanup | None = None) -> ClosedRuns:
    """Those in state running without a heartbeat for a while."""
    older_than = timedelta(minutes=(body or Cleanup()).older_than_minutes)
    return ClosedRuns(services.workers.close_silent_runs(older_than, actor=caller.name))


@router.get("/api/workers", summary="Workers")
def workers(
    services: Services,
    request: Request,
    response: Response,
    alive: Annotated[
        bool | None, Query(description="Only those with a heartbeat in the last two minutes, or without one.")
    ] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Worker]:
    """By name."""
    after = decode_list_cursor("workers", "name", cursor)
    found = services.workers.page(WorkerFilter(alive), after=after, limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/workers/{name}", summary="A worker", responses=documented(404))
def worker(name: Annotated[ShortText, Path(description="The name of the worker.")], services: Services) -> Worker:
    """By its name: its state, its activity, and its figures."""
    return services.workers.show(name)
