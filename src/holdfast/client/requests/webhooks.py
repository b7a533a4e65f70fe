"""Requests about the outbox of webhooks."""

from holdfast.client.request_spec import ListSpec, RequestSpec, decode_one, format_path
from holdfast.webhooks.records import Delivery, Outbox


def deliveries(
    *, state: str | None = None, task_id: int | None = None, url: str | None = None, order: str = "newest"
) -> ListSpec[Delivery]:
    """Messages of webhooks: `waiting`, `delivered` or `given_up`. The order is `newest` or `oldest`."""
    return ListSpec("/api/webhooks", Delivery, {"state": state, "task_id": task_id, "url": url, "order": order})


def delivery(delivery: int) -> RequestSpec[Delivery]:
    """One message, with the result of its last attempt."""
    return RequestSpec("GET", format_path("/api/webhooks/{}", delivery), decode_one(Delivery))


def outbox() -> RequestSpec[Outbox]:
    """The outbox of webhooks in numbers."""
    return RequestSpec("GET", "/api/webhooks/stats", decode_one(Outbox))


def retry_delivery(delivery: int) -> RequestSpec[Delivery]:
    """Send a message again."""
    return RequestSpec("POST", format_path("/api/admin/webhooks/{}/retry", delivery), decode_one(Delivery))
