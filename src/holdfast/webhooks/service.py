"""The outbox of webhooks: list, show, retry. Sending is in `webhooks/sender`."""

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import Key, Page, check_page_size
from holdfast.webhooks import queries
from holdfast.webhooks.records import Delivery, DeliveryFilter, Outbox


@dataclass(frozen=True, slots=True)
class WebhookService:
    """The outbox of one database."""

    database: Database

    def page(
        self, where: DeliveryFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[Delivery]:
        """Return one page of messages; `after` is the `next` of the page before."""
        check_page_size(limit)
        with self.database.session() as connection:
            return queries.page(connection, where or DeliveryFilter(), order=order, after=after, limit=limit)

    def show(self, delivery_id: int) -> Delivery:
        """Return one message. Raises NotFound."""
        with self.database.session() as connection:
            return queries.get(connection, delivery_id)

    def stats(self) -> Outbox:
        """Return the outbox in numbers."""
        with self.database.session() as connection:
            return queries.stats(connection)

    def retry(self, delivery_id: int, *, actor: str) -> bool:
        """Send a message again; False if it is due already."""
        with self.database.session() as connection:
            return queries.retry(connection, delivery_id, actor=actor)

    def retry_all(self, url: str, *, actor: str, progress: Callable[[int], None] = lambda _: None) -> int:
        """Send again all messages that were given up for one receiver; returns their number."""
        with self.database.session() as connection:
            return queries.retry_all(connection, url, actor=actor, progress=progress)
