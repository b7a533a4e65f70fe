"""Messages of webhooks, the outbox in numbers, and the filter of the list."""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from holdfast.model.record import record


class DeliveryState(StrEnum):
    """The state of a message as a filter; a message that is being sent counts as waiting."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


@record
class Delivery:
    """A message to a receiver, and the result of its last attempt."""

    id: int
    task_id: int | None
    """null: the message is about an alert or a job."""
    alert_id: int | None
    job_id: int | None
    event: str
    """In one word, such as task.completed."""
    state: str
    """`waiting`, `sending`, `delivered` or `given_up`."""
    url: str
    """Its receiver."""
    attempts: int
    created_at: datetime
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    gave_up_at: datetime | None
    last_status: int | None
    last_error: str | None
    message_id: UUID
    """The same in every attempt."""
    body: dict[str, Any]
    """What the message states about the task, the alert or the job."""


@record
class Outbox:
    """The outbox in numbers."""

    waiting: int
    delivered: int
    given_up: int
    oldest_waiting: datetime | None
    endpoints_off: int
    """Receivers that asked for no more messages."""


@record
class DeliveryFilter:
    """Which messages to list; None: all."""

    state: DeliveryState | None = None
    task: int | None = None
    url: str | None = None
