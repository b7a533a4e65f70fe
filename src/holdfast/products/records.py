"""Products, their prices over time, and the filter of their list."""

from datetime import datetime
from decimal import Decimal
from typing import Final

from holdfast.errors import UsageError
from holdfast.model.parse_result import CURRENCIES, Availability, Rating
from holdfast.model.record import record

AVAILABLE: Final = (
    Availability.IN_STOCK,
    Availability.LIMITED,
    Availability.ONLINE_ONLY,
    Availability.IN_STORE_ONLY,
    Availability.MADE_TO_ORDER,
)
"""The availabilities that the filter `available` means."""
_MAX_SEARCH: Final = 500
"""Characters of a search."""


@record
class Product:
    """A product on a page, as the page was last fetched. What the page does not state is null."""

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
    rating: Rating | None
    url: str | None
    """Its own address, if it has one."""
    page_url: str
    """The page that shows it."""
    first_seen_at: datetime
    last_seen_at: datetime
    last_task_id: int | None


@record
class Price:
    """A price, and the first and last fetch that showed it. The price between two of these rows is unknown."""

    since: datetime
    until: datetime
    price: Decimal | None
    currency: str | None
    availability: Availability | None
    task_id: int | None
    last_task_id: int | None


@record
class ProductFilter:
    """Which products to list; None: all."""

    search: str | None = None
    """Words of name, brand, number or GTIN: all of them; "in this order"; one or another; -not this."""
    brand: str | None = None
    """The whole brand, in any case."""
    min_price: Decimal | None = None
    max_price: Decimal | None = None
    currency: str | None = None
    """ISO 4217, in any case."""
    domain: str | None = None
    available: bool | None = None
    """False: those that are not available, and those whose availability is unknown."""

    def check(self) -> None:
        """Raise UsageError if a value is invalid. Needs no database."""
        for text in (self.search, self.brand):
            if text is not None and ("\0" in text or not 0 < len(text.strip()) <= len(text) <= _MAX_SEARCH):
                raise UsageError(f"A search is a text of 1 to {_MAX_SEARCH} characters.")
        for price in (self.min_price, self.max_price):
            if price is not None and not (price.is_finite() and price >= 0):
                raise UsageError("A price is a number that is not negative.")
        if self.min_price is not None and self.max_price is not None and self.min_price > self.max_price:
            raise UsageError(f"No price is from {self.min_price} to {self.max_price}.")
        if self.currency is not None and self.currency.upper() not in CURRENCIES:
            raise UsageError(f"{self.currency!r} is no currency; one is written as ISO 4217 does: EUR, USD.")
        if self.domain is not None:
            from holdfast.model.domain_name import canonical_domain  # it needs ada-url, which the client does without

            canonical_domain(self.domain)
