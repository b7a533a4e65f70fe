"""Alerts: list, acknowledge. What raises and resolves them is in `alerts/rules`, and `alerts/sentences` says them in words."""

from dataclasses import dataclass

from holdfast.alerts import queries
from holdfast.alerts.records import Alert
from holdfast.db import audit
from holdfast.db.connection import Database
from holdfast.db.keyset_pagination import check_page_size
from holdfast.errors import Refused


@dataclass(frozen=True, slots=True)
class AlertService:
    """The alerts of one database."""

    database: Database

    def list(self, *, active: bool | None = None, before: int | None = None, limit: int = 100) -> list[Alert]:
        """Return alerts, the newest first: firing ones, resolved ones, or all; `before` is the last id of the page before."""
        check_page_size(limit)
        with self.database.session() as connection:
            return queries.list_alerts(connection, active=active, before=before, limit=limit)

    def acknowledge(self, alert_id: int, *, actor: str) -> Alert:
        """Acknowledge an alert that fires, and return it: an operator knows of it. Raises NotFound, Refused if it is resolved.

        Before: nothing. After: it is acknowledged, by the first caller, and still fires until its cause is gone; a row in the audit log
        says so. If the problem comes back, that is a new alert.
        """
        with self.database.session() as connection, connection.transaction():
            done = queries.acknowledge(connection, alert_id, actor=actor)
            found = queries.get(connection, alert_id)
            if done:
                details = {"kind": found.kind, "subject": found.subject}
                audit.write(
                    connection, actor=actor, action="acknowledge", kind="alert", object_id=alert_id, details=details
                )
            elif found.acknowledged_at is None:
                raise Refused(f"Alert {alert_id} is resolved; only an alert that fires is acknowledged.")
            return found
