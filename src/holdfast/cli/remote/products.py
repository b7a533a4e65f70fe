"""Products of a server."""

from dataclasses import asdict, dataclass
from datetime import datetime

from holdfast.cli.remote import page_after
from holdfast.client import Client, endpoints
from holdfast.db.keyset_pagination import Key, Page
from holdfast.products.records import Price, Product, ProductFilter


@dataclass(frozen=True, slots=True)
class RemoteProducts:
    """The products of a server, like `ProductService`."""

    client: Client

    def page(self, where: ProductFilter, *, after: Key | None, limit: int) -> Page[Product]:
        """Return one page, those that were first seen last first."""
        return page_after(self.client, endpoints.products(**asdict(where)), after, limit)

    def show(self, product_id: int) -> Product:
        """Return one product."""
        return self.client.product(product_id)

    def history(self, product_id: int, *, before: datetime | None, limit: int) -> list[Price]:
        """Return prices, the newest first."""
        after = None if before is None else (before,)
        return page_after(self.client, endpoints.prices(product_id), after, limit).rows
