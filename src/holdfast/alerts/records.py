"""Alerts."""

from datetime import datetime
from typing import Any

from holdfast.model.record import record


@record
class Alert:
    """A problem that exists now (firing), or existed (resolved)."""

    id: int
    kind: str
    subject: str
    """A worker or a domain; empty: the whole store."""
    state: str
    """`firing` or `resolved`."""
    value: float
    since: datetime
    last_seen_at: datetime
    resolved_at: datetime | None
    details: dict[str, Any]
