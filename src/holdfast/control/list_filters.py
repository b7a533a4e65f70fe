"""Which rows of a list somebody wants to see: a value for each list, with the filters that it has.

The rule: a filter that is None is not there. What cannot be meant is refused here, before the store is asked.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.errors import UsageError
from holdfast.model.domain import Status
from holdfast.model.job import JobState
from holdfast.model.list_filter import ListFilter, split_flag
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.task import TaskStatus

_HASH: Final = re.compile(r"(?:[0-9a-fA-F]{2}){1,64}")
_KINDS: Final = ("discovery", "refresh")
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
class PageFilter(ListFilter):
    """Which pages."""

    domain: str | None = None
    job: str | int | None = None
    """By name or id; likewise below."""
    status: int | None = None
    """Of the answer: 200, 404."""
    status_class: int | None = None
    """4 means 400 to 499."""
    outcome: Outcome | None = None
    content_type: str | None = None
    """What it begins with."""
    content_hash: str | None = None
    """In hexadecimal digits: pages with the same text."""
    since: datetime | None = None
    until: datetime | None = None
    """Before then."""

    def given(self) -> dict[str, object]:
        given = ListFilter.given(self)
        if self.status is not None and not 100 <= self.status <= 999:
            raise UsageError("A status is a number of three digits.")
        if self.status_class is not None and not 1 <= self.status_class <= 9:
            raise UsageError("A class of statuses is a number from 1 to 9; 4 means 400 to 499.")
        if self.content_hash is not None:
            if not _HASH.fullmatch(self.content_hash):
                raise UsageError("A hash is written in hexadecimal digits.")
            given["content_hash"] = bytes.fromhex(self.content_hash)
        return given


@dataclass(frozen=True, slots=True)
class ItemFilter(ListFilter):
    """Which items."""

    url: str | None = None
    """Of this page."""
    domain: str | None = None
    job: str | int | None = None
    parser: str | None = None


@dataclass(frozen=True, slots=True)
class UrlFilter(ListFilter):
    """Which URLs of the frontier."""

    domain: str | None = None
    job: str | int | None = None
    state: UrlState | None = None
    kind: str | None = None
    """discovery, or refresh."""
    priority: int | None = None
    """Higher comes first: 1 to 3 of links, 3 to 12 of tasks."""
    due: bool | None = None
    """Of those that wait: could be asked for now, or not before a time."""

    def given(self) -> dict[str, object]:
        given = ListFilter.given(self)
        if self.kind is not None and self.kind not in _KINDS:
            raise UsageError(f"A URL is there for {' or '.join(_KINDS)}.")
        if self.priority is not None and not 1 <= self.priority <= 12:
            raise UsageError("The priority of a URL is a number from 1 to 12.")
        split_flag(given, "due", "due", "delayed")
        if self.state in (UrlState.WAITING, UrlState.FAILED):
            given[str(given.pop("state"))] = True
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
