"""Routes of the outbox of webhooks: list, show, statistics, retry."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import BIGINT, Filter, Id
from holdfast.webhooks.records import Delivery, DeliveryFilter, DeliveryState, Outbox

router = APIRouter(route_class=AuthorizedRoute, tags=["operating"])


@router.get("/api/webhooks", summary="Messages")
def deliveries(
    services: Services,
    request: Request,
    response: Response,
    state: Annotated[DeliveryState | None, Query(description="A message that is being sent counts as waiting.")] = None,
    task_id: Annotated[int | None, Query(ge=1, le=BIGINT, description="About this task.")] = None,
    url: Annotated[Filter, Query(max_length=2048, description="To this receiver.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Delivery]:
    """Each with its body, and the result of the last attempt."""
    where = DeliveryFilter(state, task_id, url)
    found = services.webhooks.page(
        where, order=order, after=decode_list_cursor("deliveries", order, cursor), limit=limit
    )
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/webhooks/stats", summary="The outbox in numbers")
def stats(services: Services) -> Outbox:
    """How many messages wait, were delivered, and were given up."""
    return services.webhooks.stats()


@router.get("/api/webhooks/{id}", summary="A message", responses=documented(404))
def delivery(id: Id, services: Services) -> Delivery:  # noqa: A002 — the name of the parameter
    """With its body, and the result of the last attempt."""
    return services.webhooks.show(id)


@router.post("/api/admin/webhooks/{id}/retry", summary="Send a message again", responses=documented(404))
def retry(id: Id, services: Services, caller: Caller) -> Delivery:  # noqa: A002 — the name of the parameter
    """In any state; its receiver is switched on. A message that is being sent at this moment is a 409."""
    services.webhooks.retry(id, actor=caller.name)
    return services.webhooks.show(id)
