"""Routes of retention and its archives: what is kept, what was archived; and those that start a run or a restore."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_id_cursor, id_page
from holdfast.api.request_types import BIGINT, Body, Id, ShortText
from holdfast.api.responses import accepted
from holdfast.model.duration import MAX_DURATION
from holdfast.operations.handlers import CHECK_ARCHIVE, RESTORE, RETENTION
from holdfast.operations.records import Operation
from holdfast.retention.records import ArchiveDetails, ArchiveEntry, ArchiveState, RetentionStatus
from holdfast.retention.restore import KEEP, check_schema

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])


class Run(Body):
    """How to run retention."""

    dry_run: bool = False
    """Only count what would be archived and deleted."""


class Restore(Body):
    """Which archives are restored: these, or all of a kind and a job; and where."""

    ids: Annotated[list[Annotated[int, Field(ge=1, le=BIGINT)]], Field(max_length=1000)] = Field(default_factory=list)
    kind: ShortText | None = None
    """All archives of this kind: `pages`, `log`, `segment` and so on."""
    job: ShortText | None = None
    """All archives with rows of this job."""
    schema_: Annotated[ShortText | None, Field(alias="schema", examples=["analysis"])] = None
    """Restore into tables of this schema, for analysis; the store stays as it is. null: into their tables."""
    keep: Annotated[timedelta, Field(ge=timedelta(0), le=MAX_DURATION, examples=["P90D"])] = KEEP
    """For how long retention leaves alone what is restored."""


@router.get("/api/retention", summary="What is kept how long")
def retention(services: Services) -> RetentionStatus:
    """The periods of the settings, the last run on each machine, and what is archived."""
    return services.retention.status()


@router.post("/api/admin/retention", summary="Archive and delete what is old", status_code=202)
def run(services: Services, caller: Caller, response: Response, given: Run | None = None) -> Operation:
    """Like `holdfast retention run`, in the background. The result has what each step did."""
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


@router.post("/api/admin/archives/{id}/check", summary="Check an archive", status_code=202, responses=documented(404))
def check(id: Id, services: Services, caller: Caller, response: Response) -> Operation:  # noqa: A002 — as above
    """Like `holdfast archive show --check`, in the background: its files are read and compared with their hashes. The result has their
    number."""
    services.archives.show(id)
    return accepted(response, services.operations.ask(CHECK_ARCHIVE, {"archive": id}, actor=caller.name))


@router.post(
    "/api/admin/archives/{id}/restore", summary="Restore an archive", status_code=202, responses=documented(404)
)
def restore(id: Id, services: Services, caller: Caller, response: Response) -> Operation:  # noqa: A002 — as above
    """Like `holdfast archive restore`, in the background: its rows go back into their tables."""
    return _restore(Restore(ids=[id]), services, caller, response)


@router.post("/api/admin/archives/restore", summary="Restore archives", status_code=202, responses=documented(404))
def restore_all(body: Restore, services: Services, caller: Caller, response: Response) -> Operation:
    """Like `holdfast archive restore`, in the background: rows go back into their tables, or into a schema for analysis. The result has
    how many rows of each archive were written; a second run after a kill lists those that it still restored."""
    return _restore(body, services, caller, response)


def _restore(body: Restore, services: Services, caller: Caller, response: Response) -> Operation:
    check_schema(body.schema_)
    services.archives.select(
        ids=body.ids, kind=body.kind, job=body.job
    )  # refuse what is not there before the operation starts
    arguments: dict[str, Any] = {
        "ids": body.ids,
        "kind": body.kind,
        "job": body.job,
        "schema": body.schema_,
        "keep": body.keep.total_seconds(),
    }
    return accepted(response, services.operations.ask(RESTORE, arguments, actor=caller.name))
