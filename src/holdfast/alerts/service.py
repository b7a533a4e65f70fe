"""The list of alerts. What raises and resolves them is in `alerts/rules`."""

from dataclasses import dataclass

from holdfast.alerts import queries
from holdfast.alerts.records import Alert
from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import check_page_size


@dataclass(frozen=True, slots=True)
class AlertService:
    """The alerts of one database."""

    database: Database

    def list(self, *, active: bool | None = None, before: int | None = None, limit: int = 100) -> list[Alert]:
        """Return alerts, the newest first: firing ones, resolved ones, or all; `before` is the last id of the page before."""
        check_page_size(limit)
        with self.database.session() as connection:
            return queries.list_alerts(connection, active=active, before=before, limit=limit)
