"""Products of a server."""

from dataclasses import asdict, dataclass
from datetime import datetime

from holdfast.cli.remote import rows
from holdfast.client import Client
from holdfast.client.call import at
from holdfast.client.reading import read
from holdfast.control.products import Query
from holdfast.store.product_reports import KnownProduct, PriceSeen


@dataclass(frozen=True, slots=True)
class RemoteProducts:
    """As `control/products` has them."""

    client: Client

    def listing(self, query: Query, *, before: int | None, limit: int) -> list[KnownProduct]:
        """Products, those that were met last first."""
        return [
            read(KnownProduct, raw) for raw in rows.part(self.client, "/api/products", asdict(query), before, limit)
        ]

    def show(self, product_id: int) -> KnownProduct:
        """One product."""
        return read(KnownProduct, self.client.request("GET", at("/api/products/{}", product_id)))

    def history(self, product_id: int, *, before: datetime | None, limit: int) -> list[PriceSeen]:
        """What a product cost, the newest first."""
        path = at("/api/products/{}/history", product_id)
        return [read(PriceSeen, raw) for raw in rows.part(self.client, path, {}, before, limit)]
