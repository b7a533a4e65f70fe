"""Responses of the server, and options of requests, whose noun has no folder with `records` yet.

The rule: fields have the names of the API; states and kinds are plain texts, since a newer server may have more of them. Times are
datetimes with their time zone.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Me:
    """The authenticated caller."""

    name: str
    role: str
    via: str
    """`key`, or `no-auth` on a server without authentication."""
    scopes: list[str] | None = None
    """What the key is for; None: everything that the role may."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of the whole crawl."""

    at: datetime
    pages_total: int
    requests_total: int
    errors_total: int
    bytes_total: int
    robots_denials_total: int
    pages_per_second: float
    """Of the last minute, like the three below."""
    requests_per_second: float
    errors_per_second: float
    bytes_per_second: float
    success_rate: float | None
    frontier_size: int
    domains: dict[str, int]
    """By status."""
    jobs: dict[str, int]
    tasks: dict[str, int]
    workers_active: int
    workers_silent: int
    runs: int
    claims: int
    claims_expired: int
    alerts: int


@dataclass(frozen=True, slots=True)
class Due:
    """A future event that time alone brings about."""

    what: str
    at: datetime
    """When it happens the first time."""
    domains: int
    """The number of domains that it happens to."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """When domains are crawled again, and what waits for an operator or a sweep."""

    at: datetime
    due: list[Due]
    stay_blocked: int
    """Domains that only an operator can reset."""
    wakes: int
    """Updates of domains that no sweep has applied yet."""
    database_bytes: int


@dataclass(frozen=True, slots=True)
class Point:
    """What was crawled in one step of a time series."""

    at: datetime
    seconds: float
    pages: int
    requests: int
    errors: int
    bytes: int
    robots_denied: int
    pages_per_second: float
    success_rate: float | None
    frontier_size: int | None
    active_workers: int | None
    statuses: dict[str, int]


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """A time series of what was crawled."""

    step: timedelta
    points: list[Point]


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job, a domain, a task, a worker or an alert."""

    kind: str
    """The kind; `reset` means that events were deleted, and everything has to be read again."""
    id: str | None
    """Its cursor in the order of all events."""
    data: dict[str, Any]
    at: datetime | None = None
    job_id: int | None = None
    domain: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: long work in the background, with its progress and result."""

    id: int
    kind: str
    state: str
    asked_by: str
    asked_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    problem: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with success or failure."""
        return self.state in {"done", "failed"}
