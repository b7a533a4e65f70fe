"""Which rows of a list somebody wants to see: a value for each list, with the filters that it has.

The rule: a filter that is None is not there. What cannot be meant is refused here, before the store is asked.
"""

from dataclasses import dataclass
from datetime import datetime

from holdfast.errors import UsageError
from holdfast.model.list_filter import ListFilter


@dataclass(frozen=True, slots=True)
class AuditFilter(ListFilter):
    """Which deeds."""

    actor: str | None = None
    kind: str | None = None
    object_id: str | None = None
    """Means something with its kind only."""
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def given(self) -> dict[str, object]:
        if self.object_id is not None and self.kind is None:
            raise UsageError("An id means something with its kind only: name the kind, too.")
        return ListFilter.given(self)
