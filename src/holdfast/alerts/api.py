"""The route of alerts."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from holdfast.alerts.records import Alert
from holdfast.alerts.service import AlertService
from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_id_cursor, id_page

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
