"""SQL of products: their list, one product, and the history of a price. What a parser finds is written by `db/products`."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

import psycopg

from holdfast.db.keyset_pagination import Equals, Key, Listing, Order, Page, SortColumn, only_id
from holdfast.db.rows import by_name
from holdfast.errors import NotFound
from holdfast.model.parse_result import Availability, Rating
from holdfast.products.records import AVAILABLE, Price, Product, ProductFilter

_READ: Final = """
SELECT p.id, d.domain, p.name, p.brand, p.sku, p.gtin, p.price, p.currency, p.availability::text, p.images,
       p.rating_value, p.rating_best, p.rating_count, p.url, p.page_url, p.first_seen_at, p.last_seen_at, p.last_task_id
FROM products p JOIN domains d ON d.id = p.domain_id
"""
_HISTORY: Final = """
SELECT fetched_at AS since, seen_until AS until, price, currency, availability::text, task_id, last_task_id
FROM product_prices WHERE product_id = %(id)s AND fetched_at < %(before)s::timestamptz ORDER BY fetched_at DESC LIMIT %(limit)s
"""
_LEADING: Final = (("domain",), ("brand",), ())

PRODUCTS: Final = Listing(
    "products",
    "t.id",
    only_id,
    {
        "search": "t.words @@ websearch_to_tsquery('simple', %(search)s)",
        "brand": Equals("lower(t.brand)", "lower(%(brand)s::text)"),
        "min_price": "t.price >= %(min_price)s",
        "max_price": "t.price <= %(max_price)s",
        "currency": "t.currency = %(currency)s",
        "domain": Equals("t.domain_id", "%(domain)s::bigint"),
        "available": "t.availability = ANY(%(available)s::product_availability[])",
        "not_available": "(t.availability = ANY(%(not_available)s::product_availability[])) IS NOT TRUE",
    },
    {
        "newest": Order((SortColumn("t.id", int, descending=True),), _LEADING),
        "oldest": Order((SortColumn("t.id", int),), _LEADING),
    },
    selective=frozenset({"search", "brand", "domain", "min_price", "max_price"}),
)
"""The list of products, ordered by when each was first seen."""


def page(
    connection: psycopg.Connection,
    where: ProductFilter,
    *,
    domain_id: int | None = None,
    order: str = "newest",
    after: Key | None = None,
    limit: int = 100,
) -> Page[Product]:
    """One page of products; `domain_id` is that of `where.domain`."""
    values: dict[str, object] = {
        "search": where.search,
        "brand": where.brand,
        "min_price": where.min_price,
        "max_price": where.max_price,
        "currency": None if where.currency is None else where.currency.upper(),
        "domain": domain_id,
    }
    if where.available is not None:
        values["available" if where.available else "not_available"] = list(map(str, AVAILABLE))
    given = {name: value for name, value in values.items() if value is not None}
    return PRODUCTS.records(connection, _by_ids, given, order=order, after=after, limit=limit)


def get(connection: psycopg.Connection, product_id: int) -> Product:
    """Return one product. Raises NotFound."""
    with connection.cursor(row_factory=_as_product) as cursor:
        found = cursor.execute(f"{_READ} WHERE p.id = %s", (product_id,)).fetchone()
    if found is None:
        raise NotFound(f"There is no product {product_id}.")
    return found


def history(
    connection: psycopg.Connection, product_id: int, *, before: datetime | None = None, limit: int = 100
) -> list[Price]:
    """Return the prices of a product that began before `before`, the newest first. Raises NotFound."""
    get(connection, product_id)
    values = {"id": product_id, "before": before or "infinity", "limit": limit}
    with connection.cursor(row_factory=_as_price) as cursor:
        return cursor.execute(_HISTORY, values).fetchall()


def _by_ids(connection: psycopg.Connection, ids: Sequence[int]) -> dict[int, Product]:
    with connection.cursor(row_factory=_as_product) as cursor:
        return {product.id: product for product in cursor.execute(f"{_READ} WHERE p.id = ANY(%s)", (list(ids),))}


def _availability(availability: str | None) -> Availability | None:
    return None if availability is None else Availability(availability)


def _rating(rating_value: Decimal | None, rating_best: Decimal, rating_count: int | None) -> Rating | None:
    return None if rating_value is None else Rating(rating_value, rating_best, rating_count)


_as_product: Final = by_name(Product, availability=_availability, rating=_rating)
_as_price: Final = by_name(Price, availability=_availability)
