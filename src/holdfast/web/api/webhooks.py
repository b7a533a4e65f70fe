"""The outbox of webhooks: messages about the ends of tasks and about alerts, and what became of each."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from holdfast.control.queries import DeliveryQuery
from holdfast.store.webhooks import State
from holdfast.web.guard import GuardedRoute
from holdfast.web.office import TheOffice, Who
from holdfast.web.paging import USUAL, CursorText, Limit, Page, behind, keyed
from holdfast.web.problems import documented
from holdfast.web.shapes import BIGINT, Filter, Id, View

router = APIRouter(route_class=GuardedRoute, tags=["operating"])


class DeliveryView(View):
    """A message."""

    id: int
    task_id: int | None
    """null: it is about an alert or a job."""
    alert_id: int | None
    job_id: int | None
    event: str
    """In one word, such as task.completed."""
    state: str
    """`waiting`, `sending`, `delivered` or `given_up`."""
    url: str
    """Its receiver."""
    attempts: int
    created_at: datetime
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    gave_up_at: datetime | None
    last_status: int | None
    last_error: str | None
    message_id: UUID
    """The same in every attempt."""
    body: dict[str, Any]
    """What it says of the task, the alert or the job."""


class OutboxView(View):
    """The outbox in numbers."""

    waiting: int
    delivered: int
    given_up: int
    oldest_waiting: datetime | None
    endpoints_off: int
    """Receivers that have said that they want no more."""


@router.get("/api/webhooks", summary="Messages")
def deliveries(
    office: TheOffice,
    request: Request,
    response: Response,
    state: Annotated[State | None, Query(description="One that is being sent waits, too.")] = None,
    task_id: Annotated[int | None, Query(ge=1, le=BIGINT, description="About this task.")] = None,
    url: Annotated[Filter, Query(max_length=2048, description="To this receiver.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = USUAL,
) -> Page[DeliveryView]:
    """Each with its body, and what came of the last attempt."""
    query = DeliveryQuery(state, task_id, url)
    found = office.browser.deliveries(query, order=order, after=behind("deliveries", order, cursor), limit=limit)
    return keyed(request, response, [DeliveryView.of(delivery) for delivery in found.rows], found.next)


@router.get("/api/webhooks/stats", summary="The outbox in numbers")
def stats(office: TheOffice) -> OutboxView:
    """How many messages wait, were delivered, and were given up."""
    return OutboxView.of(office.webhooks.stats())


@router.get("/api/webhooks/{id}", summary="A message", responses=documented(404))
def delivery(id: Id, office: TheOffice) -> DeliveryView:  # noqa: A002 — the name of the parameter
    """With its body, and what came of the last attempt."""
    return DeliveryView.of(office.webhooks.show(id))


@router.post("/api/admin/webhooks/{id}/retry", summary="Send a message again", responses=documented(404))
def retry(id: Id, office: TheOffice, who: Who) -> DeliveryView:  # noqa: A002 — the name of the parameter
    """Whatever became of it; its receiver is switched on. One that is being sent at this moment is a 409."""
    office.webhooks.retry(id, actor=who.name)
    return DeliveryView.of(office.webhooks.show(id))
