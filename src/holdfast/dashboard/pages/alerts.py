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
from holdfast.dashboard.lists import ROWS, id_page, read_list
from holdfast.dashboard.live import Parameters, live_view
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.db.keyset_pagination import Page
from holdfast.errors import UsageError

router = page_router()

_FIRING: Final = 250
"""Alerts that may fire at the same time: 50 of each kind."""


def read_firing(services: AppServices, _parameters: Parameters) -> Mapping[str, Any]:
    """Return the alerts that fire now, the newest first."""
    return {"firing": _in_words(AlertService(services.database).list(active=True, limit=_FIRING))}


VIEW: Final = live_view("alerts", read_firing, {"alerts-firing": "alerts/_firing.html"})


@router.get("/alerts")
def alerts(context: Context, services: Services) -> Response:
    """The alerts that fire, and the list of resolved ones."""

    def read(form: Form) -> Page[Alert]:
        before = decode_id_cursor(form.text("cursor"))
        return id_page(AlertService(services.database).list(active=False, before=before, limit=ROWS))

    shown = read_list(context, read)
    return context.page(
        "alerts/list.html",
        notice=shown.notice,
        shown=shown,
        past=_in_words(shown.rows),
        live=VIEW.address({}),
        **read_firing(services, {}),
    )


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
