"""Products: list, show, price history."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.db import domains
from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import Key, Page, check_page_size
from holdfast.errors import UsageError
from holdfast.model.domain_name import canonical_domain
from holdfast.products import queries
from holdfast.products.records import Price, Product, ProductFilter

_LAST_ID: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ProductService:
    """The products of one database."""

    database: Database
    registrable: bool = False

    def page(
        self,
        where: ProductFilter | None = None,
        *,
        order: str = "newest",
        after: Key | None = None,
        limit: int = 100,
    ) -> Page[Product]:
        """Return one page, by when products were first seen; `after` is the `next` of the page before. Raises UsageError, NotFound."""
        where = where or ProductFilter()
        where.check()
        check_page_size(limit)
        with self.database.session() as connection:
            domain_id = None
            if where.domain is not None:
                name = canonical_domain(where.domain, registrable=self.registrable)
                domain_id = domains.id_of(connection, name)
            return queries.page(connection, where, domain_id=domain_id, order=order, after=after, limit=limit)

    def show(self, product_id: int) -> Product:
        """Return one product. Raises NotFound."""
        _check_id(product_id)
        with self.database.session() as connection:
            return queries.get(connection, product_id)

    def history(self, product_id: int, *, before: datetime | None = None, limit: int = 100) -> list[Price]:
        """Return prices, the newest first; `before` is the `since` of the last one seen. Raises NotFound."""
        _check_id(product_id)
        check_page_size(limit)
        if before is not None and before.tzinfo is None:
            raise UsageError("A time is written with its time zone.")
        with self.database.session() as connection:
            return queries.history(connection, product_id, before=before, limit=limit)


def _check_id(number: int) -> None:
    if not 0 < number <= _LAST_ID:
        raise UsageError(f"{number} is not the id of a product.")
