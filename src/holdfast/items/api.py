"""Items: what parsers found on the pages of crawls."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import Filter, View
from holdfast.control.list_filters import ItemFilter

router = APIRouter(route_class=AuthorizedRoute, tags=["items"])

_ORDER: Literal["key"] = "key"


class ItemView(View):
    """What a parser found on a page of a crawl."""

    url: str | None
    domain: str | None
    job: str | None
    parser: str
    parser_version: str
    position: int
    """On its page, from 0."""
    fetched_at: datetime
    """When the page was fetched."""
    extracted_at: datetime
    data: dict[str, Any]
    """The item."""


@router.get("/api/items", summary="Items", responses=documented(404))
def items(
    services: Services,
    request: Request,
    response: Response,
    url: Annotated[Filter, Query(description="Only of this page.", examples=["https://shop.example/p/1"])] = None,
    domain: Annotated[Filter, Query(description="Only of this domain.")] = None,
    job: Annotated[Filter, Query(description="Only of this job, by name or id.")] = None,
    parser: Annotated[Filter, Query(description="Only what this parser found.")] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[ItemView]:
    """Domain by domain and page by page; those of a page in the order in which its parser gave them."""
    query = ItemFilter(url, domain, job, parser)
    found = services.listings.items(query, order=_ORDER, after=decode_list_cursor("items", _ORDER, cursor), limit=limit)
    return keyset_page(request, response, [ItemView.of(row) for row in found.rows], found.next)
