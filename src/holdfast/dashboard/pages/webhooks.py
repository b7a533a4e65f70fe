"""Webhooks: messages by state and receiver, one message with its body, send again."""

import json
from collections.abc import Mapping
from typing import Any, Final

from fastapi import Request, Response

from holdfast.api.app_services import AppServices, Services
from holdfast.api.forms import Form, read_form
from holdfast.api.pagination import decode_list_cursor
from holdfast.api.request_types import Id
from holdfast.dashboard.lists import ROWS, list_at
from holdfast.dashboard.live import Parameters, live_view
from holdfast.dashboard.rendering import Context, query
from holdfast.dashboard.route import page_router
from holdfast.dashboard.text import plural
from holdfast.db.keyset_pagination import Page
from holdfast.model.json_values import json_default
from holdfast.webhooks.records import Delivery, DeliveryFilter, DeliveryState

router = page_router()


def read_outbox(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return the outbox in numbers, and its messages."""

    def read(form: Form) -> Page[Delivery]:
        order = form.text("order") or "newest"
        where = DeliveryFilter(
            form.choice("state", "State", DeliveryState), form.integer("task", "Task"), form.text("url")
        )
        after = decode_list_cursor("deliveries", order, form.text("cursor"))
        return services.webhooks.page(where, order=order, after=after, limit=ROWS)

    return {"outbox": services.outbox_counts.get(), "shown": list_at("/webhooks", parameters, read)}


VIEW: Final = live_view(
    "webhooks", read_outbox, {"outbox": "webhooks/_outbox.html", "webhooks-list": "webhooks/_list.html"}
)


@router.get("/webhooks")
def deliveries(context: Context, services: Services) -> Response:
    """The outbox in numbers, and its messages."""
    parameters = context.request.query_params
    values = read_outbox(services, parameters)
    shown = values["shown"]
    return context.page(
        "webhooks/list.html",
        **values,
        notice=shown.notice,
        states=list(DeliveryState),
        live=VIEW.address(parameters) if shown.moves else "",
    )


@router.get("/webhooks/{id}")
def delivery(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """One message with its body, and the result of its last attempt."""
    found = services.webhooks.show(id)
    body = json.dumps(found.body, indent=2, ensure_ascii=False, default=json_default)
    return context.page("webhooks/delivery.html", delivery=found, body=body)


@router.post("/webhooks/{id}/retry")
def retry(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Send a message again."""
    due = services.webhooks.retry(id, actor=context.caller.name)
    said = "is due now: it is sent again" if due else "was due already"
    return context.redirect(f"/webhooks/{id}", f"Message {id} {said}.")


@router.post("/webhooks/retry")
def retry_all(context: Context, request: Request, services: Services) -> Response:
    """Send again all messages that were given up for one receiver."""
    url = read_form(request).required("url", "Receiver")
    count = services.webhooks.retry_all(url, actor=context.caller.name)
    return context.redirect(
        query("/webhooks", url=url), f"{plural(count, 'message')} to {url} {'is' if count == 1 else 'are'} sent again."
    )
