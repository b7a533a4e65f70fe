"""What servers answer, as values: jobs, pages, domains, figures, and whatever else is not about tasks.

The rule: they are what the API says, by the same names; states and kinds are plain texts, for a newer server may have more of them. Times
are datetimes with their time zone.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Me:
    """Who asks."""

    name: str
    role: str
    via: str
    """`key`, or `no-auth` where everybody may do everything."""
    scopes: list[str] | None = None
    """What the key is for; None: everything that the role may."""


@dataclass(frozen=True, slots=True)
class Stats:
    """How things stand."""

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
    """Something that time brings about."""

    what: str
    at: datetime
    """When it happens the first time."""
    domains: int
    """To which it happens, sooner or later."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What comes next, and what is left over."""

    at: datetime
    due: list[Due]
    stay_blocked: int
    """Domains that only a person can start over."""
    wakes: int
    """News for domains that no sweep has folded yet."""
    database_bytes: int


@dataclass(frozen=True, slots=True)
class Point:
    """What was crawled in a stretch of time."""

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
    """What was crawled, step by step."""

    step: timedelta
    points: list[Point]


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that is or was wrong."""

    id: int
    kind: str
    subject: str
    state: str
    value: float
    since: datetime
    last_seen_at: datetime
    resolved_at: datetime | None
    details: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job, a domain, a task, a worker or an alert."""

    kind: str
    """What it is about; `reset` means that events were forgotten, and everything has to be looked at again."""
    id: str | None
    """Its place in the order of all events."""
    data: dict[str, Any]
    at: datetime | None = None
    job_id: int | None = None
    domain: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job, with what there is to do and what was done."""

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
    """It reached a limit that a person gave, and nothing is fetched until it is crawled anew."""
    state_reason: str | None = field(default=None, kw_only=True)
    """Why it was reopened, or the cause of a failure."""
    secrets: list[str] = field(default_factory=list, kw_only=True)
    """The names of headers that are sent to the origins of its seeds; their values are never shown."""
    version: int = field(default=0, kw_only=True)
    """Rises with every edit of the spec or of the secrets; see `edit_job`."""

    @property
    def is_over(self) -> bool:
        """Nothing comes of it now. A person, its schedule, a cool-down that ends or a due refresh may reopen it."""
        return self.state in {"completed", "cancelled", "failed"} or self.out_of_budget


@dataclass(frozen=True, slots=True)
class EditedJob(Job):
    """A job that was edited."""

    changed: list[str] = field(default_factory=list, kw_only=True)
    """The names of what is different now."""
    note: str = field(default="", kw_only=True)
    """What follows, for people."""


@dataclass(frozen=True, slots=True)
class JobProgress(Job):
    """The figures of a job that is being watched, whenever they change."""

    requests: int = field(default=0, kw_only=True)
    """In flight, of all workers."""
    waits: list[str] = field(default_factory=list, kw_only=True)
    """Why domains of it wait at this moment, and what the job as a whole waits for."""


@dataclass(frozen=True, slots=True)
class BadSeed:
    """A URL that cannot be one, and its place, from 1."""

    line: int
    problem: str


@dataclass(frozen=True, slots=True)
class NewJob(Job):
    """A job that was made, and what became of its seeds."""

    seeds: int
    bad: int
    bad_seeds: list[BadSeed]


News = Event | JobProgress
"""What is heard of a job that is watched."""


@dataclass(frozen=True, slots=True)
class Operation:
    """Long work: where it is, and what came of it."""

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
        """It has ended, well or not."""
        return self.state in {"done", "failed"}


@dataclass(frozen=True, slots=True)
class Claim:
    """A domain that is held."""

    domain: str
    worker: str
    epoch: int
    claimed_at: datetime | None
    expires_at: datetime
    expired: bool
    status: str
    frontier_size: int


@dataclass(frozen=True, slots=True)
class WorkerClaims:
    """A worker and how many domains it holds."""

    worker: str
    claims: int
    expired: int
    earliest_expiry: datetime


@dataclass(frozen=True, slots=True)
class ClaimSummary:
    """Who holds what, what has expired, what waits."""

    workers: list[WorkerClaims]
    expired: list[dict[str, Any]]
    waiting: dict[str, int]
    """Domains that could be claimed now, by status."""
    cooling: int


@dataclass(frozen=True, slots=True)
class Run:
    """A worker process, at work or ended."""

    id: int
    worker: str
    job: str | None
    status: str
    started_at: datetime
    heartbeat_at: datetime
    completed_at: datetime | None
    error_message: str | None
    pages_crawled: int
    errors: int
    bytes: int
    images_found: int
    in_window: int


@dataclass(frozen=True, slots=True)
class Worker:
    """A name that a worker bears or bore."""

    name: str
    host: str
    pid: int
    boot_epoch: int
    started_at: datetime
    heartbeat_at: datetime
    alive: bool
    held: int
    expired: int
    runs: int
    pages: int
    errors: int
    bytes: int
    in_window: int
    status: str = ""
    """active, idle, ended or silent; empty: an older server does not say."""
    current_url: str | None = None
    current_urls: list[str] = field(default_factory=list)
    """What it fetches at this moment; a few of them."""
    ended_at: datetime | None = None
    activity: dict[str, Any] | None = None
    """What it does at this moment: `requests` in flight by job, some of them (`fetching`), and `waits` of domains that it holds."""
    activity_at: datetime | None = None
    """When that was written; seconds in it count from then."""
