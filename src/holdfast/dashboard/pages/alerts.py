"""Alerts in words: those that fire now, and past ones; acknowledge."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import Request, Response

from holdfast.alerts.records import Alert
from holdfast.alerts.sentences import AlertText, describe
from holdfast.alerts.service import AlertService
from holdfast.api.app_services import AppServices, Services
from holdfast.api.forms import Form, read_form
from holdfast.api.pagination import decode_id_cursor
from holdfast.dashboard.lists import ROWS, id_page, list_at
from holdfast.dashboard.live import Parameters, live_view
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.db.keyset_pagination import Page
from holdfast.errors import UsageError

router = page_router()

_FIRING: Final = 250
"""Alerts that may fire at the same time: 50 of each kind."""


def read_alerts(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return the alerts that fire now and the list of resolved ones, the newest first."""
    service = AlertService(services.database)

    def read(form: Form) -> Page[Alert]:
        before = decode_id_cursor(form.text("cursor"))
        return id_page(service.list(active=False, before=before, limit=ROWS))

    shown = list_at("/alerts", parameters, read)
    return {
        "firing": _in_words(service.list(active=True, limit=_FIRING)),
        "shown": shown,
        "past": _in_words(shown.rows),
    }


VIEW: Final = live_view(
    "alerts", read_alerts, {"alerts-firing": "alerts/_firing.html", "alerts-past": "alerts/_past.html"}
)


@router.get("/alerts")
def alerts(context: Context, services: Services) -> Response:
    """The alerts that fire, and the list of resolved ones."""
    parameters = context.request.query_params
    values = read_alerts(services, parameters)
    return context.page("alerts/list.html", **values, notice=values["shown"].notice, live=VIEW.address(parameters))


@router.post("/alerts/acknowledge")
def acknowledge(context: Context, request: Request, services: Services) -> Response:
    """Say that an operator knows of an alert. It fires until its cause is gone."""
    alert_id = read_form(request).integer("id", "Alert")
    if alert_id is None:
        raise UsageError("Choose an alert.")
    found = AlertService(services.database).acknowledge(alert_id, actor=context.caller.name)
    by = found.acknowledged_by
    return context.redirect("/alerts", f"Alert {alert_id} is acknowledged by {by}; it fires until its cause is gone.")


def _in_words(found: Sequence[Alert]) -> list[tuple[Alert, AlertText]]:
    return [(alert, describe(alert)) for alert in found]
