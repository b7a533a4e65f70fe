"""Requests about products and their prices."""

from decimal import Decimal

from holdfast.client.request_spec import ListSpec, RequestSpec, decode_one, format_path
from holdfast.products.records import Price, Product


def products(
    *,
    search: str | None = None,
    brand: str | None = None,
    min_price: Decimal | None = None,
    max_price: Decimal | None = None,
    currency: str | None = None,
    domain: str | None = None,
    available: bool | None = None,
    order: str = "newest",
) -> ListSpec[Product]:
    """Products that were found on pages. The order is `newest` or `oldest`, by when each was first seen."""
    price = {"min_price": min_price, "max_price": max_price, "currency": currency}
    filters = {"search": search, "brand": brand, **price, "domain": domain, "available": available}
    return ListSpec("/api/products", Product, {**filters, "order": order})


def product(product: int) -> RequestSpec[Product]:
    """A product, as it was seen last."""
    return RequestSpec("GET", format_path("/api/products/{}", product), decode_one(Product))


def prices(product: int) -> ListSpec[Price]:
    """The prices of a product over time, the newest first."""
    return ListSpec(format_path("/api/products/{}/history", product), Price, {})
