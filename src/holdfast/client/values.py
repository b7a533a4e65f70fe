"""Responses of the server, and options of requests, whose noun has no folder with `records` yet.

The rule: fields have the names of the API; states and kinds are plain texts, since a newer server may have more of them. Times are
datetimes with their time zone.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypedDict


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
class Job:
    """A job, with counts of what is waiting and done."""

    id: int
    name: str
    state: str
    created_at: datetime
    completed_at: datetime | None
    schedule: str | None
    next_run_at: datetime | None
    spec: dict[str, Any]
    crawl: str | None
    """The crawl that is open: `running` or `stopped`."""
    crawl_started_at: datetime | None
    pages: int
    errors: int
    bytes: int
    domains: int
    ready: int
    discovered: int
    waiting: int
    urls_done: int
    denied: int
    failed: int
    depth: int
    spent: int = field(default=0, kw_only=True)
    """Domains that reached a limit, or used their share and wait for the next round."""
    done: int = field(default=0, kw_only=True)
    """Domains with nothing left to do."""
    out_of_budget: bool = field(default=False, kw_only=True)
    """It reached a limit that was set for it, and nothing is fetched until it is crawled again."""
    state_reason: str | None = field(default=None, kw_only=True)
    """Why it was reopened, or the cause of a failure."""
    secrets: list[str] = field(default_factory=list, kw_only=True)
    """The names of headers that are sent to the origins of its seeds; their values are never shown."""
    version: int = field(default=0, kw_only=True)
    """Rises with every edit of the spec or of the secrets; see `edit_job`."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended for now. An operator, its schedule, the end of a cool-down or a due refresh may reopen
        it."""
        return self.state in {"completed", "cancelled", "failed"} or self.out_of_budget


@dataclass(frozen=True, slots=True)
class EditedJob(Job):
    """A job that was edited."""

    changed: list[str] = field(default_factory=list, kw_only=True)
    """The names of the changed options."""
    note: str = field(default="", kw_only=True)
    """The consequences of the change, as text."""


@dataclass(frozen=True, slots=True)
class JobProgress(Job):
    """The progress of a job that is watched."""

    requests: int = field(default=0, kw_only=True)
    """In flight, of all workers."""
    waits: list[str] = field(default_factory=list, kw_only=True)
    """Why domains of it wait at this moment, and what the job as a whole waits for."""


@dataclass(frozen=True, slots=True)
class BadSeed:
    """An invalid seed, and its position, from 1."""

    line: int
    problem: str


@dataclass(frozen=True, slots=True)
class NewJob(Job):
    """A job that was created, with counts of its seeds."""

    seeds: int
    bad: int
    bad_seeds: list[BadSeed]


JobUpdate = Event | JobProgress
"""What `watch` yields."""


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


# Domains, URLs and pages


@dataclass(frozen=True, slots=True)
class JobSpec(TypedDict, total=False):
    """How a job is crawled. An option that is left out has the default of the server's settings, or of the domain."""

    scope: str
    max_pages: int | None
    max_pages_per_domain: int | None
    rounds: int | None
    max_depth: int | None
    delay: float | None
    concurrency: int | None
    include: list[str]
    exclude: list[str]
    strip_params: list[str]
    robots: bool
    archive: bool
    text: bool
    allow_private: bool
    follow: bool
    user_agent: str | None
    parser: str | None
    refresh: bool


class JobChanges(TypedDict, total=False):
    """Changes of how a job is crawled. An option that is left out stays as it is; None removes a limit, or resets an
    option to its default."""

    max_pages: int | None
    max_pages_per_domain: int | None
    rounds: int | None
    max_depth: int | None
    delay: float | None
    concurrency: int | None
    user_agent: str | None
    parser: str | None
    refresh: bool | None
    robots: bool | None
    allow_private: bool | None
    archive: bool | None
    text: bool | None


class Secrets(TypedDict, total=False):
    """Credentials that are sent with requests to the origins of a job's seeds. A field that is left out stays as it
    is; empty or None removes it."""

    headers: list[str] | None
    """`Name: value`."""
    cookies: list[str] | None
    """`name=value`."""
    basic_auth: str | None
    """`user:password`."""
