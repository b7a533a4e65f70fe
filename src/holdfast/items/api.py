"""Route of items: list."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import INTEGER, Filter
from holdfast.items.records import Item, ItemFilter

router = APIRouter(route_class=AuthorizedRoute, tags=["items"])

_ORDER: Literal["key"] = "key"


@router.get("/api/items", summary="Items", responses=documented(404))
def items(
    services: Services,
    request: Request,
    response: Response,
    url: Annotated[Filter, Query(description="Only of this page.", examples=["https://shop.example/p/1"])] = None,
    domain: Annotated[Filter, Query(description="Only of this domain.")] = None,
    job: Annotated[Filter, Query(description="Only of this job, by name or id.")] = None,
    parser: Annotated[Filter, Query(description="Only what this parser found.")] = None,
    position: Annotated[
        int | None, Query(ge=0, le=INTEGER, description="Only items at this place of their page, from 0.")
    ] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Item]:
    """By domain and page; items of a page are in the order in which the parser found them."""
    where = ItemFilter(url, domain, job, parser, position)
    found = services.items.page(where, order=_ORDER, after=decode_list_cursor("items", _ORDER, cursor), limit=limit)
    return keyset_page(request, response, found.rows, found.next)
