"""Entries of the audit log, and the filter of their list."""

from datetime import datetime
from typing import Any

from holdfast.errors import UsageError
from holdfast.model.list_filter import ListFilter
from holdfast.model.record import record


@record
class Entry:
    """An entry of the audit log: one change."""

    id: int
    at: datetime
    actor: str
    action: str
    object_kind: str
    object_id: str
    details: dict[str, Any]


@record
class AuditFilter(ListFilter):
    """Which entries to list; None: all."""

    actor: str | None = None
    kind: str | None = None
    object_id: str | None = None
    """Only together with `kind`."""
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def given(self) -> dict[str, object]:
        if self.object_id is not None and self.kind is None:
            raise UsageError("An id means something with its kind only: name the kind, too.")
        return ListFilter.given(self)
