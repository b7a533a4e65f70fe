"""The route that rebuilds counters."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.request_types import Body, ShortText
from holdfast.api.responses import accepted
from holdfast.operations.handlers import REBUILD_COUNTERS
from holdfast.operations.records import Operation

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])

_MAX_WAIT = timedelta(hours=1)


class RebuildOrder(Body):
    """Whose counters are rebuilt."""

    domain: ShortText | None = None
    """Only of this domain; null: of all domains and runs."""
    wait: Annotated[timedelta, Field(ge=timedelta(0), le=_MAX_WAIT, examples=["PT1M"])] = timedelta(0)
    """How long to wait for domains that workers hold; at most an hour, since other operations wait meanwhile."""
    dry_run: bool = False
    """Only say what differs."""


@router.post("/api/admin/rebuild/counters", summary="Rebuild counters", status_code=202, responses=documented(404))
def counters(services: Services, caller: Caller, response: Response, body: RebuildOrder | None = None) -> Operation:
    """Like `holdfast rebuild counters`, in the background: counters of domains, jobs and runs from the log and the frontier. The result
    names those that differed, and the domains that were left alone because a worker holds them."""
    order = body or RebuildOrder()
    services.counters.domain_id(order.domain)  # refuse one that is not known before the operation starts
    arguments = {"domain": order.domain, "wait": order.wait.total_seconds(), "dry_run": order.dry_run}
    return accepted(response, services.operations.ask(REBUILD_COUNTERS, arguments, actor=caller.name))
