"""Routes of retention and its archives: what is kept, what was archived; and those that start a run or a restore."""

from fastapi import APIRouter, Request, Response

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_id_cursor, id_page
from holdfast.api.request_types import Body, Id
from holdfast.api.responses import accepted
from holdfast.operations.handlers import RESTORE, RETENTION
from holdfast.operations.records import Operation
from holdfast.retention.records import ArchiveDetails, ArchiveEntry, ArchiveState, RetentionStatus

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])


class Run(Body):
    """How to run retention."""

    dry_run: bool = False
    """Only count what would be archived and deleted."""


@router.get("/api/retention", summary="What is kept how long")
def retention(services: Services) -> RetentionStatus:
    """The periods of the settings, the last run on each machine, and what is archived."""
    return services.retention.status()


@router.post("/api/admin/retention", summary="Archive and delete what is old", status_code=202)
def run(services: Services, caller: Caller, response: Response, given: Run | None = None) -> Operation:
    """Like `holdfast retention run`, in the background. The result has the rows of each step."""
    arguments = {"dry_run": (given or Run()).dry_run}
    return accepted(response, services.operations.ask(RETENTION, arguments, actor=caller.name))


@router.get("/api/archives", summary="Archives")
def archives(
    services: Services,
    request: Request,
    response: Response,
    kind: str | None = None,
    job: str | None = None,
    state: ArchiveState | None = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[ArchiveEntry]:
    """What retention has moved out of the store, the newest first."""
    found = services.archives.listing(kind=kind, job=job, state=state, before=decode_id_cursor(cursor), limit=limit)
    return id_page(request, response, found, limit)


@router.get("/api/archives/{id}", summary="An archive", responses=documented(404))
def archive(id: Id, services: Services) -> ArchiveDetails:  # noqa: A002 — the name of the parameter
    """Its files, with their counts and hashes."""
    return services.archives.show(id)


@router.post(
    "/api/admin/archives/{id}/restore", summary="Restore an archive", status_code=202, responses=documented(404)
)
def restore(id: Id, services: Services, caller: Caller, response: Response) -> Operation:  # noqa: A002 — as above
    """Like `holdfast archive restore`, in the background: its rows go back into their tables."""
    services.archives.show(id)
    return accepted(response, services.operations.ask(RESTORE, {"archive": id}, actor=caller.name))
