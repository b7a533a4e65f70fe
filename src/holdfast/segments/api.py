"""Routes of the archive's files and of the machines that have them; and the one that declares a machine lost."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, keyset_page
from holdfast.api.request_types import Body, Filter
from holdfast.api.responses import accepted
from holdfast.errors import UsageError
from holdfast.model.cursor import INVALID_CURSOR, decode_cursor
from holdfast.model.segment import SegmentState
from holdfast.operations.handlers import LOSE_MACHINE
from holdfast.operations.records import Operation
from holdfast.segments.records import ArchiveMachine, Segment

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])

Machine = Annotated[str, Path(max_length=255, description="Its name, or its id.", examples=["crawler-3"])]


class Loss(Body):
    """How to declare a machine lost."""

    dry_run: bool = False
    """Only count what would be lost."""


@router.get("/api/archive/machines", summary="Machines whose archives go to an object store")
def machines(services: Services) -> list[ArchiveMachine]:
    """How many files of the archive each machine has written, and uploaded; what only it has, and why it cannot upload at present. Empty
    where no object store is set."""
    return services.segments.machines()


@router.get("/api/archive/segments", summary="Files of the archive")
def segments(
    services: Services,
    request: Request,
    response: Response,
    state: SegmentState | None = None,
    machine: Filter = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Segment]:
    """The machine, size, state, times and SHA-256 of each, by name. Empty where no object store is set."""
    (after,) = decode_cursor(cursor, str) or ("",)
    if not isinstance(after, str):
        raise UsageError(INVALID_CURSOR)
    found = services.segments.list(state=state, machine=machine, after=after, limit=limit)
    return keyset_page(request, response, found, (found[-1].segment,) if len(found) == limit else None)


@router.post(
    "/api/admin/archive/machines/{machine}/lost",
    summary="Declare a machine lost",
    status_code=202,
    responses=documented(404),
)
def lose(
    machine: Machine, services: Services, caller: Caller, response: Response, given: Loss | None = None
) -> Operation:
    """Like `holdfast segments lost`, in the background: what the machine had not uploaded is lost. The result names those files, with the
    number of pages in them. Refused (409) while a worker lives that writes one of them."""
    dry_run = (given or Loss()).dry_run
    found = services.segments.check_lost(machine, dry_run=dry_run)
    arguments = {"machine": str(found.id), "name": found.name, "dry_run": dry_run}
    return accepted(response, services.operations.ask(LOSE_MACHINE, arguments, actor=caller.name))
