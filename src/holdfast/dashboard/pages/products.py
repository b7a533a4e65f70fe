"""Products: their list, and one product with its price over time."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation

from fastapi import Response

from holdfast.api.app_services import Services
from holdfast.api.forms import Form
from holdfast.api.pagination import decode_list_cursor
from holdfast.api.request_types import Id
from holdfast.dashboard.lists import ROWS, read_list
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.db.keyset_pagination import MAX_PAGE, Page
from holdfast.errors import UsageError
from holdfast.products.records import Price, Product, ProductFilter

router = page_router()


@router.get("/products")
def products(context: Context, services: Services) -> Response:
    """The list, the newest product first, with a search by words."""

    def read(form: Form) -> Page[Product]:
        available = form.text("available")
        where = ProductFilter(
            search=form.text("search"),
            brand=form.text("brand"),
            min_price=_price(form, "min_price", "Price from"),
            max_price=_price(form, "max_price", "Price to"),
            currency=form.text("currency"),
            domain=form.text("domain"),
            available=None if available is None else available == "yes",
        )
        after = decode_list_cursor("products", "newest", form.text("cursor"))
        return services.products.page(where, after=after, limit=ROWS)

    shown = read_list(context, read)
    return context.page("products/list.html", notice=shown.notice, shown=shown)


@router.get("/products/{id}")
def product(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """One product, with a chart and a table of its prices."""
    found = services.products.show(id)
    prices = services.products.history(id, limit=MAX_PAGE)
    times, series = price_series(prices)
    return context.page(
        "products/product.html",
        product=found,
        prices=prices,
        changes=_changes(prices),
        is_cut=len(prices) == MAX_PAGE,
        times=times,
        series=series,
    )


def price_series(prices: Sequence[Price]) -> tuple[list[datetime], dict[str, list[float | None]]]:
    """Return the times of a chart and a series for each currency, from prices with the newest first. A price is drawn from the first to
    the last fetch that showed it; a time without one is a gap."""
    points: list[tuple[datetime, str | None, float | None]] = []
    for price in reversed(prices):
        amount = None if price.price is None else float(price.price)
        points += [(at, price.currency, amount) for at in dict.fromkeys((price.since, price.until))]
    currencies = list(dict.fromkeys(currency for _, currency, amount in points if amount is not None))
    series = {
        currency or "Price": [amount if known == currency else None for _, known, amount in points]
        for currency in currencies
    }
    return [at for at, _, _ in points], series


def _changes(prices: Sequence[Price]) -> list[Decimal | None]:
    """Return by how much each price differs from the one before it, the newest first; None: that is unknown, or in another currency."""
    return [
        newer.price - older.price
        if newer.price is not None
        and older is not None
        and older.price is not None
        and newer.currency == older.currency
        else None
        for newer, older in zip(prices, [*prices[1:], None], strict=True)
    ]


def _price(form: Form, name: str, label: str) -> Decimal | None:
    value = form.text(name)
    try:
        return None if value is None else Decimal(value.replace(",", "."))
    except InvalidOperation:
        raise UsageError(f"“{label}” must be a number, such as 9.99.") from None
