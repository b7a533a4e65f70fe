"""The route that rebuilds counters."""

from fastapi import APIRouter, Response

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.request_types import Body, ShortText
from holdfast.api.responses import accepted
from holdfast.operations.handlers import REBUILD_COUNTERS
from holdfast.operations.records import Operation

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])


class RebuildOrder(Body):
    """Whose counters are rebuilt."""

    domain: ShortText | None = None
    """Only of this domain; null: of all domains and runs."""
    dry_run: bool = False
    """Only say what differs."""


@router.post("/api/admin/rebuild/counters", summary="Rebuild counters", status_code=202)
def counters(services: Services, caller: Caller, response: Response, body: RebuildOrder | None = None) -> Operation:
    """Like `holdfast rebuild counters`, in the background: counters of domains, jobs and runs from the log and the frontier. The result
    names those that differed, and the domains that were left alone because a worker holds them."""
    order = body or RebuildOrder()
    arguments = {"domain": order.domain, "dry_run": order.dry_run}
    return accepted(response, services.operations.ask(REBUILD_COUNTERS, arguments, actor=caller.name))
