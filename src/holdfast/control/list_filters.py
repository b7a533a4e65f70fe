"""Which rows of a list somebody wants to see: a value for each list, with the filters that it has.

The rule: a filter that is None is not there. What cannot be meant is refused here, before the store is asked.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.errors import UsageError
from holdfast.model.job import JobState
from holdfast.model.list_filter import ListFilter, split_flag
from holdfast.model.outcome import Outcome, UrlState

_HASH: Final = re.compile(r"(?:[0-9a-fA-F]{2}){1,64}")
_KINDS: Final = ("discovery", "refresh")


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
