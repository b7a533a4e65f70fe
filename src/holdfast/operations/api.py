"""Routes of operations: list, show; and the route that starts a verification."""

from fastapi import APIRouter, Request, Response

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_id_cursor, id_page
from holdfast.api.request_types import Body, Id
from holdfast.api.responses import accepted
from holdfast.operations.handlers import VERIFY
from holdfast.operations.records import Operation, OperationState

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])


class Verify(Body):
    """What to verify."""

    archive: bool = True
    """Also read every page in the archive of the machine that runs it."""


@router.post("/api/admin/verify", summary="Verify the store", status_code=202)
def verify(services: Services, caller: Caller, response: Response, given: Verify | None = None) -> Operation:
    """Like `holdfast verify`, in the background. The result has all checks with their faults."""
    options = given or Verify()
    return accepted(response, services.operations.ask(VERIFY, {"archive": options.archive}, actor=caller.name))


@router.get("/api/operations", summary="Operations")
def operations(
    services: Services,
    request: Request,
    response: Response,
    state: OperationState | None = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Operation]:
    """Long work in the background, the newest first; those that have ended are kept for a week."""
    found = services.operations.listing(state=state, before=decode_id_cursor(cursor), limit=limit)
    return id_page(request, response, found, limit)


@router.get("/api/operations/{id}", summary="An operation", responses=documented(404))
def operation(id: Id, services: Services) -> Operation:  # noqa: A002 — the name of the parameter
    """Its state, progress and result."""
    return services.operations.show(id)
