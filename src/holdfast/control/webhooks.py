"""The outbox of webhooks, as people look at it and set it right. Sending is in `control/sending`, which needs the web."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.errors import UsageError
from holdfast.store import webhooks
from holdfast.store.connect import Database
from holdfast.store.webhooks import Delivery, State, Stats

PAGE: Final = 500
"""The most that a list gives at once."""


@dataclass(frozen=True, slots=True)
class WebhookDesk:
    """The outbox of one store, as the command line, the API and the dashboard handle it."""

    database: Database

    def listing(
        self, *, state: State | None = None, task_id: int | None = None, before: int | None = None, limit: int = 100
    ) -> list[Delivery]:
        """Messages, the newest first; `before` is the id of the last one seen."""
        if not 1 <= limit <= PAGE:
            raise UsageError(f"A list gives 1 to {PAGE} at once, not {limit}.")
        with self.database.session() as connection:
            return webhooks.listing(connection, state=state, task_id=task_id, before=before, limit=limit)

    def show(self, delivery_id: int) -> Delivery:
        """One message."""
        with self.database.session() as connection:
            return webhooks.get(connection, delivery_id)

    def stats(self) -> Stats:
        """The outbox in numbers."""
        with self.database.session() as connection:
            return webhooks.stats(connection)

    def retry(self, delivery_id: int, *, actor: str) -> bool:
        """Have a message sent again; False if it is due already."""
        with self.database.session() as connection:
            return webhooks.retry(connection, delivery_id, actor=actor)

    def retry_all(self, url: str, *, actor: str, progress: Callable[[int], None] = lambda _: None) -> int:
        """Have everything sent again that was given up for one receiver; how many."""
        with self.database.session() as connection:
            return webhooks.retry_all(connection, url, actor=actor, progress=progress)
