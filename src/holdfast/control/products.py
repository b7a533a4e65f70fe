"""Products, as the command line, the API and the dashboard look for them.

The rule: what cannot be meant is refused before the store is asked.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

from holdfast.errors import UsageError
from holdfast.model.host import canonical_domain
from holdfast.model.parsed import CURRENCIES
from holdfast.store import domains, product_reports
from holdfast.store.connect import Database
from holdfast.store.product_reports import KnownProduct, PriceSeen, ProductFilter

PAGE: Final = 500
"""The most that a list gives at once."""
_MAX_SEARCH: Final = 500
_LAST_ID: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Query:
    """Which products somebody looks for; None: all."""

    search: str | None = None
    brand: str | None = None
    min_price: Decimal | None = None
    max_price: Decimal | None = None
    currency: str | None = None
    """ISO 4217, in capitals or not."""
    domain: str | None = None
    available: bool | None = None

    def check(self) -> None:
        """Raise UsageError for what cannot be meant. Needs no database."""
        for text in (self.search, self.brand):
            if text is not None and ("\0" in text or not 0 < len(text.strip()) <= len(text) <= _MAX_SEARCH):
                raise UsageError(f"What is looked for is a text of 1 to {_MAX_SEARCH} characters.")
        for price in (self.min_price, self.max_price):
            if price is not None and not (price.is_finite() and price >= 0):
                raise UsageError("A price is a number that is not negative.")
        if self.min_price is not None and self.max_price is not None and self.min_price > self.max_price:
            raise UsageError(f"No price is from {self.min_price} to {self.max_price}.")
        if self.currency is not None and self.currency.upper() not in CURRENCIES:
            raise UsageError(f"{self.currency!r} is no currency; one is written as ISO 4217 does: EUR, USD.")
        if self.domain is not None:
            canonical_domain(self.domain)


@dataclass(frozen=True, slots=True)
class ProductDesk:
    """The products of one store."""

    database: Database
    registrable: bool = False

    def listing(self, query: Query, *, before: int | None = None, limit: int = 100) -> list[KnownProduct]:
        """Products, those that were met last first; `before` is the id of the last one seen."""
        query.check()
        _check_page(limit)
        if before is not None:
            _check_id(before)
        with self.database.session() as connection:
            domain_id = None
            if query.domain is not None:
                name = canonical_domain(query.domain, registrable=self.registrable)
                domain_id = domains.get(connection, name)["id"]
            chosen = ProductFilter(
                search=query.search,
                brand=query.brand,
                min_price=query.min_price,
                max_price=query.max_price,
                currency=None if query.currency is None else query.currency.upper(),
                domain_id=domain_id,
                available=query.available,
            )
            return product_reports.listing(connection, chosen, before=before, limit=limit)

    def show(self, product_id: int) -> KnownProduct:
        """One product."""
        _check_id(product_id)
        with self.database.session() as connection:
            return product_reports.get(connection, product_id)

    def history(self, product_id: int, *, before: datetime | None = None, limit: int = 100) -> list[PriceSeen]:
        """What a product cost, the newest first; `before` is the `since` of the last one seen."""
        _check_id(product_id)
        _check_page(limit)
        if before is not None and before.tzinfo is None:
            raise UsageError("A time is written with its time zone.")
        with self.database.session() as connection:
            return product_reports.history(connection, product_id, before=before, limit=limit)


def _check_page(limit: int) -> None:
    if not 1 <= limit <= PAGE:
        raise UsageError(f"A list gives 1 to {PAGE} at once, not {limit}.")


def _check_id(number: int) -> None:
    if not 0 < number <= _LAST_ID:
        raise UsageError(f"{number} is not the id of a product.")
