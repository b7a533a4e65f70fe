"""Routes of products: list, show, price history."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import Filter, Id
from holdfast.errors import UsageError
from holdfast.model.cursor import decode_cursor
from holdfast.model.parse_result import MAX_DECIMALS, MAX_PRICE
from holdfast.products.records import Price, Product, ProductFilter

router = APIRouter(route_class=AuthorizedRoute, tags=["products"])

PriceLimit = Annotated[Decimal | None, Query(ge=0, le=MAX_PRICE, decimal_places=MAX_DECIMALS, examples=["9.99"])]


@router.get("/api/products", summary="Products", responses=documented(404))
def products(
    services: Services,
    request: Request,
    response: Response,
    search: Annotated[
        Filter,
        Query(
            description='Words of name, brand, number or GTIN: all of them; "in this order"; one or another; -not this.'
        ),
    ] = None,
    brand: Annotated[Filter, Query(description="All of it, in capitals or not.")] = None,
    min_price: PriceLimit = None,
    max_price: PriceLimit = None,
    currency: Annotated[Filter, Query(description="ISO 4217.", examples=["EUR"])] = None,
    domain: Filter = None,
    available: Annotated[bool | None, Query(description="Whether it can be had now, as far as is known.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Product]:
    """By when they were met for the first time. A domain that is not known is a 404."""
    where = ProductFilter(
        search=search,
        brand=brand,
        min_price=min_price,
        max_price=max_price,
        currency=currency,
        domain=domain,
        available=available,
    )
    found = services.products.page(where, order=order, after=decode_list_cursor("products", order, cursor), limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/products/{id}", summary="A product", responses=documented(404))
def product(id: Id, services: Services) -> Product:  # noqa: A002 — the name of the parameter
    """As it was seen last."""
    return services.products.show(id)


@router.get("/api/products/{id}/history", summary="What a product cost", responses=documented(404))
def history(
    id: Id,  # noqa: A002 — the name of the parameter
    services: Services,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Price]:
    """The newest first."""
    found = services.products.history(id, before=_moment(cursor), limit=limit)
    key = (found[-1].since,) if len(found) == limit else None
    return keyset_page(request, response, found, key)


def _moment(cursor: str | None) -> datetime | None:
    key = decode_cursor(cursor, datetime)
    if key is None:
        return None
    if not isinstance(key[0], datetime) or not 2 <= key[0].year <= 9998:
        raise UsageError("This is no cursor of this list; take the `next` of a page of it, or leave it out to begin.")
    return key[0].astimezone(UTC)
