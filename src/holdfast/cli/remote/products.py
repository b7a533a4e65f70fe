"""Products of a server."""

from dataclasses import asdict, dataclass
from datetime import datetime

from holdfast.cli.remote import rows
from holdfast.client import Client
from holdfast.client.decoding import read
from holdfast.client.request_spec import format_path
from holdfast.db.keyset_pagination import Key, Page
from holdfast.products.records import Price, Product, ProductFilter


@dataclass(frozen=True, slots=True)
class RemoteProducts:
    """As `products/service` has them."""

    client: Client

    def page(self, where: ProductFilter, *, after: Key | None, limit: int) -> Page[Product]:
        """Products, those that were first seen last first."""
        before = None if after is None else after[0]
        found = rows.part(self.client, "/api/products", asdict(where), before, limit)
        return Page([read(Product, raw) for raw in found], None)

    def show(self, product_id: int) -> Product:
        """One product."""
        return read(Product, self.client.request("GET", format_path("/api/products/{}", product_id)))

    def history(self, product_id: int, *, before: datetime | None, limit: int) -> list[Price]:
        """What a product cost, the newest first."""
        path = format_path("/api/products/{}/history", product_id)
        return [read(Price, raw) for raw in rows.part(self.client, path, {}, before, limit)]
