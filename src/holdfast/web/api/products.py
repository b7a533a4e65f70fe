"""Products that were found on pages, and what they cost over time."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from holdfast.control.products import Query as Wanted
from holdfast.errors import UsageError
from holdfast.model.parsed import MAX_DECIMALS, MAX_PRICE, Availability
from holdfast.web.guard import GuardedRoute
from holdfast.web.office import TheOffice
from holdfast.web.paging import USUAL, CursorText, Limit, Page, behind, keyed, unpack
from holdfast.web.problems import documented
from holdfast.web.shapes import Filter, Id, View

router = APIRouter(route_class=GuardedRoute, tags=["products"])

Price = Annotated[Decimal | None, Query(ge=0, le=MAX_PRICE, decimal_places=MAX_DECIMALS, examples=["9.99"])]


class RatingView(View):
    """What customers think of a product."""

    value: Decimal
    best: Decimal
    count: int | None
    """Of customers."""


class ProductView(View):
    """A product on a page. What the page did not say is null; what it said is the page's word, and nobody's promise."""

    id: int
    domain: str
    name: str
    brand: str | None
    sku: str | None
    gtin: str | None
    price: Decimal | None
    currency: str | None
    """ISO 4217."""
    availability: Availability | None
    images: list[str]
    rating: RatingView | None
    url: str | None
    """Its own address, if it has one."""
    page_url: str
    """Of the page that shows it."""
    first_seen_at: datetime
    last_seen_at: datetime
    last_task_id: int | None


class PriceView(View):
    """A price, and the first and last fetch that showed it. What was so between two of these nobody knows."""

    since: datetime
    until: datetime
    price: Decimal | None
    currency: str | None
    availability: Availability | None
    task_id: int | None
    last_task_id: int | None


@router.get("/api/products", summary="Products", responses=documented(404))
def products(
    office: TheOffice,
    request: Request,
    response: Response,
    search: Annotated[
        Filter,
        Query(
            description='Words of name, brand, number or GTIN: all of them; "in this order"; one or another; -not this.'
        ),
    ] = None,
    brand: Annotated[Filter, Query(description="All of it, in capitals or not.")] = None,
    min_price: Price = None,
    max_price: Price = None,
    currency: Annotated[Filter, Query(description="ISO 4217.", examples=["EUR"])] = None,
    domain: Filter = None,
    available: Annotated[bool | None, Query(description="Whether it can be had now, as far as is known.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = USUAL,
) -> Page[ProductView]:
    """By when they were met for the first time. A domain that is not known is a 404."""
    wanted = Wanted(
        search=search,
        brand=brand,
        min_price=min_price,
        max_price=max_price,
        currency=currency,
        domain=domain,
        available=available,
    )
    found = office.browser.products(wanted, order=order, after=behind("products", order, cursor), limit=limit)
    return keyed(request, response, [ProductView.of(product) for product in found.rows], found.next)


@router.get("/api/products/{id}", summary="A product", responses=documented(404))
def product(id: Id, office: TheOffice) -> ProductView:  # noqa: A002 — the name of the parameter
    """As it was seen last."""
    return ProductView.of(office.products.show(id))


@router.get("/api/products/{id}/history", summary="What a product cost", responses=documented(404))
def history(
    id: Id,  # noqa: A002 — the name of the parameter
    office: TheOffice,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = USUAL,
) -> Page[PriceView]:
    """The newest first."""
    found = office.products.history(id, before=_moment(cursor), limit=limit)
    key = (found[-1].since,) if len(found) == limit else None
    return keyed(request, response, [PriceView.of(seen) for seen in found], key)


def _moment(cursor: str | None) -> datetime | None:
    key = unpack(cursor, datetime)
    if key is None:
        return None
    if not isinstance(key[0], datetime) or not 2 <= key[0].year <= 9998:
        raise UsageError("This is no cursor of this list; take the `next` of a page of it, or leave it out to begin.")
    return key[0].astimezone(UTC)
