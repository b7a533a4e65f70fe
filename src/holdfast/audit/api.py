"""The route of the audit log."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import Filter, Since, Until
from holdfast.audit.records import AuditFilter, Entry
from holdfast.audit.service import AuditService

router = APIRouter(route_class=AuthorizedRoute, tags=["accounts"])


@router.get("/api/admin/audit", summary="Audit log")
def audit(
    services: Services,
    request: Request,
    response: Response,
    actor: Filter = None,
    kind: Filter = None,
    object_id: Annotated[Filter, Query(description="With `kind` only.")] = None,
    action: Filter = None,
    since: Since = None,
    until: Until = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Entry]:
    """Who changed what, the newest first."""
    where = AuditFilter(actor, kind, object_id, action, since, until)
    after = decode_list_cursor("audit", "newest", cursor)
    found = AuditService(services.database).page(where, after=after, limit=limit)
    return keyset_page(request, response, found.rows, found.next)
