"""Which rows of a list somebody wants to see: a value for each list, with the filters that it has.

The rule: a filter that is None is not there. What cannot be meant is refused here, before the store is asked.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.errors import UsageError
from holdfast.model.domain import Status
from holdfast.model.job import JobState
from holdfast.model.list_filter import ListFilter, split_flag
from holdfast.model.task import TaskStatus

_RUNS: Final = ("running", "completed", "failed")


@dataclass(frozen=True, slots=True)
class DomainFilter(ListFilter):
    """Which domains."""

    status: Status | None = None
    active: bool | None = None
    claimed: bool | None = None
    worker: str | None = None
    """Held by this one."""
    name: str | None = None
    """What the name begins with."""
    parent: str | None = None
    """Sub-domains of this registrable domain; it is not among them itself."""

    def given(self) -> dict[str, object]:
        given = ListFilter.given(self)
        split_flag(given, "active", "active", "inactive")
        split_flag(given, "claimed", "held", "free")
        if "name" in given:
            given["prefix"] = str(given.pop("name")).lower()
        if "parent" in given:
            given |= {"parent": str(given["parent"]).lower(), "sub": True}
        return given


@dataclass(frozen=True, slots=True)
class JobFilter(ListFilter):
    """Which jobs."""

    state: JobState | None = None
    name: str | None = None
    """What the name begins with."""
    scheduled: bool | None = None
    """Only those that recur."""

    def given(self) -> dict[str, object]:
        given = ListFilter.given(self)
        if "name" in given:
            given["prefix"] = given.pop("name")
        if not given.get("scheduled", True):
            raise UsageError("There is no list of jobs that do not recur; leave `scheduled` out for all.")
        return given


@dataclass(frozen=True, slots=True)
class RunFilter(ListFilter):
    """Which runs."""

    status: str | None = None
    """running, completed or failed."""
    job: str | int | None = None
    worker: str | None = None
    crawl: int | None = None

    def given(self) -> dict[str, object]:
        given = ListFilter.given(self)
        if self.status is not None and self.status not in _RUNS:
            raise UsageError(f"A run is {', '.join(_RUNS)}, and nothing else.")
        if self.status == "running":
            given["running"] = given.pop("status")
        return given


@dataclass(frozen=True, slots=True)
class WorkerFilter(ListFilter):
    """Which workers."""

    alive: bool | None = None

    def given(self) -> dict[str, object]:
        given = ListFilter.given(self)
        split_flag(given, "alive", "alive", "silent")
        return given


@dataclass(frozen=True, slots=True)
class ClaimFilter(ListFilter):
    """Which claims."""

    worker: str | None = None
    expired: bool | None = None

    def given(self) -> dict[str, object]:
        given = ListFilter.given(self)
        split_flag(given, "expired", "expired", "lasting")
        return given


@dataclass(frozen=True, slots=True)
class TaskFilter(ListFilter):
    """Which tasks."""

    status: TaskStatus | None = None
    domain: str | None = None
    batch: str | None = None
    """By name."""
    parent: int | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class NameFilter(ListFilter):
    """Which batches, or domains with maintenance windows."""

    name: str | None = None
    """What the name begins with."""

    def given(self) -> dict[str, object]:
        given = ListFilter.given(self)
        return {"prefix": given["name"]} if given else {}


@dataclass(frozen=True, slots=True)
class ProxyFilter(ListFilter):
    """Which proxies."""

    active: bool | None = None
    provider: str | None = None
    country: str | None = None

    def given(self) -> dict[str, object]:
        given = ListFilter.given(self)
        split_flag(given, "active", "active", "inactive")
        return given


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
