"""Routes of alerts: list, acknowledge."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from holdfast.alerts.records import Alert
from holdfast.alerts.service import AlertService
from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_id_cursor, id_page
from holdfast.api.request_types import Id

router = APIRouter(route_class=AuthorizedRoute, tags=["figures"])


@router.get("/api/alerts", summary="What is or was wrong")
def alerts(
    services: Services,
    request: Request,
    response: Response,
    active: Annotated[bool | None, Query(description="Only those that fire now, or that do not.")] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Alert]:
    """The newest first."""
    found = AlertService(services.database).list(active=active, before=decode_id_cursor(cursor), limit=limit)
    return id_page(request, response, found, limit)


@router.post("/api/admin/alerts/{id}/acknowledge", summary="Acknowledge an alert", responses=documented(404))
def acknowledge(id: Id, services: Services, caller: Caller) -> Alert:  # noqa: A002 — the name of the parameter
    """It still fires until its cause is gone. If it was acknowledged before, it is unchanged; one that is resolved is a 409."""
    return AlertService(services.database).acknowledge(id, actor=caller.name)
