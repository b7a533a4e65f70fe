"""Products as people look for them, and the history of their prices.

The rule: a list goes on behind the last id that was seen, so that a page of a million products costs what the first one did.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import psycopg
from psycopg.rows import RowMaker, class_row

from holdfast.errors import NotFound
from holdfast.model.parsed import Availability, Rating

AVAILABLE: Final = (
    Availability.IN_STOCK,
    Availability.LIMITED,
    Availability.ONLINE_ONLY,
    Availability.IN_STORE_ONLY,
    Availability.MADE_TO_ORDER,
)
"""What somebody who wants to have it now takes for "available"."""

_NEWEST: Final = 2**63 - 1
_READ: Final = """
SELECT p.id, d.domain, p.name, p.brand, p.sku, p.gtin, p.price, p.currency, p.availability::text, p.images,
       p.rating_value, p.rating_best, p.rating_count, p.url, p.page_url, p.first_seen_at, p.last_seen_at, p.last_task_id
FROM products p JOIN domains d ON d.id = p.domain_id
"""
_FILTERS: Final = {
    "search": " AND p.words @@ websearch_to_tsquery('simple', %(search)s)",
    "brand": " AND lower(p.brand) = lower(%(brand)s)",
    "min_price": " AND p.price >= %(min_price)s",
    "max_price": " AND p.price <= %(max_price)s",
    "currency": " AND p.currency = %(currency)s",
    "domain_id": " AND p.domain_id = %(domain_id)s",
    "available": " AND (COALESCE(p.availability = ANY(%(had)s::product_availability[]), false)) = %(available)s",
}
_HISTORY: Final = """
SELECT fetched_at AS since, seen_until AS until, price, currency, availability::text, task_id, last_task_id
FROM product_prices WHERE product_id = %(id)s AND fetched_at < %(before)s::timestamptz ORDER BY fetched_at DESC LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class ProductFilter:
    """Which products are meant; None: all."""

    search: str | None = None
    """Words of name, brand, number or GTIN: all of them, "in this order", or one, -not another."""
    brand: str | None = None
    """All of it, in capitals or not."""
    min_price: Decimal | None = None
    max_price: Decimal | None = None
    currency: str | None = None
    domain_id: int | None = None
    available: bool | None = None
    """False: those that cannot be had now, and those of which nobody knows."""


@dataclass(frozen=True, slots=True)
class KnownProduct:
    """A product on a page. What the page did not say is None."""

    id: int
    domain: str
    name: str
    brand: str | None
    sku: str | None
    gtin: str | None
    price: Decimal | None
    currency: str | None
    availability: Availability | None
    images: list[str]
    rating: Rating | None
    url: str | None
    """Its own address, if it has one."""
    page_url: str
    """Of the page that shows it."""
    first_seen_at: datetime
    last_seen_at: datetime
    last_task_id: int | None


@dataclass(frozen=True, slots=True)
class PriceSeen:
    """A price, and the first and last fetch that showed it. What was so between two of these nobody knows."""

    since: datetime
    until: datetime
    price: Decimal | None
    currency: str | None
    availability: Availability | None
    task_id: int | None
    last_task_id: int | None


def listing(
    connection: psycopg.Connection, chosen: ProductFilter, *, before: int | None = None, limit: int = 100
) -> list[KnownProduct]:
    """Products, those that were met last first; `before` is the id of the last one seen."""
    given = {name: getattr(chosen, name) for name in _FILTERS if getattr(chosen, name) is not None}
    where = "".join(_FILTERS[name] for name in given)
    keys = {**given, "before": _NEWEST if before is None else before, "limit": limit, "had": list(map(str, AVAILABLE))}
    with connection.cursor(row_factory=_as_product) as cursor:
        # Never prepared: how rare a word or a brand is decides which index is good for it.
        query = f"{_READ} WHERE p.id < %(before)s{where} ORDER BY p.id DESC LIMIT %(limit)s"
        return cursor.execute(query, keys, prepare=False).fetchall()


def get(connection: psycopg.Connection, product_id: int) -> KnownProduct:
    """A product; NotFound if there is none with this id."""
    with connection.cursor(row_factory=_as_product) as cursor:
        found = cursor.execute(f"{_READ} WHERE p.id = %s", (product_id,)).fetchone()
    if found is None:
        raise NotFound(f"There is no product {product_id}.")
    return found


def of_ids(connection: psycopg.Connection, ids: Sequence[int]) -> dict[int, KnownProduct]:
    """The products with these ids that there are."""
    with connection.cursor(row_factory=_as_product) as cursor:
        return {product.id: product for product in cursor.execute(f"{_READ} WHERE p.id = ANY(%s)", (list(ids),))}


def history(
    connection: psycopg.Connection, product_id: int, *, before: datetime | None = None, limit: int = 100
) -> list[PriceSeen]:
    """What a product cost, the newest first; `before` is the `since` of the last one seen. NotFound if there is no such product."""
    get(connection, product_id)
    keys = {"id": product_id, "before": before or "infinity", "limit": limit}
    with connection.cursor(row_factory=class_row(PriceSeen)) as cursor:
        return cursor.execute(_HISTORY, keys).fetchall()


def _as_product(_: psycopg.Cursor[Any]) -> RowMaker[KnownProduct]:
    def make(row: Sequence[Any]) -> KnownProduct:
        values = list(row)
        values[10:13] = [None if row[10] is None else Rating(*row[10:13])]
        values[8] = None if row[8] is None else Availability(row[8])
        return KnownProduct(*values)

    return make
