"""The route of replays."""

from fastapi import APIRouter, Response

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.request_types import Body, Moment, ShortText
from holdfast.api.responses import accepted
from holdfast.operations.handlers import REPLAY
from holdfast.operations.records import Operation
from holdfast.replay.records import ReplayMode
from holdfast.replay.service import ReplayRequest

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])


class ReplayOrder(Body):
    """Which pages are replayed, and how; null: all."""

    mode: ReplayMode
    """`fetch`: they are queued, and fetched again. `parse`: they are due for their parsers again, from the archive. `lost`: those whose
    bytes were lost with a machine are queued."""
    job: ShortText | None = None
    domain: ShortText | None = None
    since: Moment | None = None
    """Fetched then or later."""
    until: Moment | None = None
    """Fetched before then."""
    parser: ShortText | None = None
    """Only pages that this parser has parsed, or should."""
    as_of: Moment | None = None
    """Go on with a replay that was begun then: pages that were fetched or parsed since are left alone. null: it begins now."""
    dry_run: bool = False
    """Only count them."""


@router.post("/api/admin/replay", summary="Replay pages", status_code=202, responses=documented(404))
def replay(body: ReplayOrder, services: Services, caller: Caller, response: Response) -> Operation:
    """Like `holdfast replay`, in the background. The result says how many pages there are, by job, and what was left alone and why. Pages
    that were fetched or parsed since this request are left alone."""
    request = ReplayRequest(body.mode, body.job, body.domain, body.since, body.until, body.parser, body.as_of)
    arguments = services.replays.arguments(request) | {"dry_run": body.dry_run}
    return accepted(response, services.operations.ask(REPLAY, arguments, actor=caller.name))
