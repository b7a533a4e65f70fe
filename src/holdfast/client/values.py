"""Responses of the server, and options of requests, whose noun has no folder with `records` yet.

The rule: fields have the names of the API; states and kinds are plain texts, since a newer server may have more of them. Times are
datetimes with their time zone.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypedDict


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
class Claim:
    """A claimed domain."""

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
    """The number of domains that a worker holds."""

    worker: str
    claims: int
    expired: int
    earliest_expiry: datetime


@dataclass(frozen=True, slots=True)
class ClaimSummary:
    """Claims by worker, expired claims, and domains that wait."""

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
    """A worker, by name."""

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
    """active, idle, ended or silent; empty: an older server does not report it."""
    current_url: str | None = None
    current_urls: list[str] = field(default_factory=list)
    """Some of the URLs that it fetches at this moment."""
    ended_at: datetime | None = None
    activity: dict[str, Any] | None = None
    """`requests` in flight by job, some of them (`fetching`), and `waits` of domains that it holds."""
    activity_at: datetime | None = None
    """When `activity` was written; seconds in it count from then."""


# Domains, URLs and pages


@dataclass(frozen=True, slots=True)
class Page:
    """The last response for a URL."""

    url: str | None
    domain: str | None
    job: str | None
    crawled_at: datetime
    status: int | None
    outcome: str
    content_type: str | None
    content_length: int
    content_hash: str | None
    title: str | None
    description: str | None
    links_count: int
    images_count: int
    depth: int
    duration_ms: int | None
    archived: bool
    problem: str | None


@dataclass(frozen=True, slots=True)
class Item:
    """An item that a parser found on a page of a crawl."""

    url: str | None
    domain: str | None
    job: str | None
    parser: str
    parser_version: str
    position: int
    """On its page, from 0."""
    fetched_at: datetime
    extracted_at: datetime
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class PageFacts:
    """Everything that a job knows of a URL."""

    url: str
    url_key: str
    domain: str
    job: str
    state: str
    """`waiting`, `done`, `denied` or `failed`."""
    kind: str
    reason: str | None
    priority: int
    depth: int
    hops: int
    attempts: int
    discovered_at: datetime
    next_attempt_at: datetime | None
    parent_url: str | None
    crawled_at: datetime | None
    status: int | None
    outcome: str | None
    problem: str | None
    duration_ms: int | None
    content_type: str | None
    charset: str | None
    content_length: int | None
    content_hash: str | None
    payload_digest: str | None
    title: str | None
    description: str | None
    canonical: str | None
    links_count: int | None
    images_count: int | None
    noindex: bool | None
    nofollow: bool | None
    etag: str | None
    last_modified: str | None
    archive_segment: str | None
    archive_offset: int | None
    archive_length: int | None
    has_text: bool
    next_crawl_at: datetime | None
    error_count: int
    domain_errors: int


@dataclass(frozen=True, slots=True)
class JobFrontier:
    """The URLs of a job."""

    job_id: int
    job: str
    state: str
    domains: int
    discovered: int
    waiting: int
    done: int
    denied: int
    failed: int


@dataclass(frozen=True, slots=True)
class FrontierStats:
    """Statistics of the frontier."""

    discovered: int
    waiting: int
    done: int
    denied: int
    failed: int
    unfolded: int
    in_memory: int
    domains: int
    ready: int
    jobs: list[JobFrontier]
    estimated: bool
    """Whether the counts below are estimated from a sample."""
    by_priority: dict[int, int]
    by_kind: dict[str, int]
    oldest_waiting_at: datetime | None


@dataclass(frozen=True, slots=True)
class FrontierUrl:
    """A URL, as a job knows it."""

    url: str
    domain: str
    job: str
    state: str
    kind: str
    reason: str | None
    priority: int
    depth: int
    hops: int
    attempts: int
    discovered_at: datetime
    not_before: datetime | None


@dataclass(frozen=True, slots=True)
class Sown:
    """The result of adding URLs."""

    seen: int
    urls: int
    """The number of URLs that are new to the job."""
    domains: int
    """The number of domains that are new."""
    bad: int
    bad_urls: list[BadSeed]
    """The first ones."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain as it is listed."""

    id: int
    domain: str
    parent_domain: str
    status: str
    status_reason: str | None
    block_reason: str | None
    is_active: bool
    claimed_by: str | None
    claim_expires_at: datetime | None
    claim_expired: bool
    pages_discovered: int
    pages_crawled: int
    frontier_size: int
    images_found: int
    total_error_count: int
    consecutive_error_count: int
    error_rate: float | None
    priority: int
    seed_rank: int | None
    first_seen_at: datetime
    last_crawled_at: datetime | None
    next_crawl_after: datetime | None
    stays_blocked: bool
    parser_name: str
    crawl_delay_seconds: float
    max_concurrent_requests: int
    maintenance_window: str | None
    proxy_use: str | None
    version: int
    """The version for `configure_domain`."""


@dataclass(frozen=True, slots=True)
class DomainFacts:
    """Everything about a domain."""

    domain: str
    version: int
    status: str
    facts: dict[str, Any]
    """By the names of the database's columns, as JSON."""
    work: list[dict[str, Any]]
    transitions: list[dict[str, Any]]
    tenures: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class DomainReset:
    """The result of a reset."""

    domain: str
    was: str
    was_held_by: str | None
    waiting: int


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of a domain's status."""

    version: int
    at: datetime
    from_status: str
    to_status: str
    reason: str
    worker: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Tenure:
    """A worker's time as the holder of a domain."""

    epoch: int
    worker: str
    claimed_at: datetime
    ended_at: datetime | None
    why: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of the state of a URL or a domain."""

    kind: str
    """`url` or `domain`."""
    subject: str
    told: dict[str, Any]


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


class DomainChanges(TypedDict, total=False):
    """Changes of how a domain is crawled, by the names under which they are read. A field that is left out stays as
    it is; None resets it to the server's settings. The last eight are short forms of others."""

    crawl_delay_seconds: float | None
    max_concurrent_requests: int | None
    parser_name: str | None
    user_agent: str | None
    is_active: bool | None
    max_pages_per_run: int | None
    default_crawl_frequency: timedelta | None
    maintenance_window: str | None
    base_url: str
    strip_params: list[str] | None
    proxy_use: str | None
    proxy_direct: bool | None
    proxy_resolves: bool | None
    proxy_country: str | None
    proxy_sticky: timedelta | None
    headers: list[str] | None
    """`Name: value`; sent to the domain itself, over https. Values are sealed and never shown; likewise the next two."""
    cookies: list[str] | None
    basic_auth: str | None
    plain_http: bool
    """Send `headers`, `cookies` and `basic_auth` over http, too."""
    delay: float | None
    concurrency: int | None
    parser: str | None
    active: bool | None
    budget: int | None
    frequency: timedelta | None
    window: str | None
    proxy: str | None


# Tasks and batches


@dataclass(frozen=True, slots=True)
class Archived:
    """The location of a page in the archive."""

    segment: str
    offset: int
    length: int
    payload_digest: str


@dataclass(frozen=True, slots=True)
class Task:
    """One crawl of one URL: it is fetched in one phase and parsed in another."""

    id: int
    url: str
    domain: str
    domain_id: int
    status: str
    status_reason: str
    priority: int
    scheduled_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    retry_count: int
    max_retries: int
    error_message: str | None
    crawl_frequency: timedelta
    next_crawl_at: datetime | None
    recrawl_count: int
    is_recurring: bool
    http_status_code: int | None
    response_time_ms: int | None
    proxy_id: int | None
    archive: Archived | None
    created_at: datetime
    updated_at: datetime
    created_by: str
    parent_task_id: int | None
    previous_task_id: int | None
    batch_id: int | None
    webhook_url: str | None
    waits_for: str | None
    parser_name: str | None
    parsed_by: str | None
    parser_version: str | None
    parse_after: datetime | None
    attempt: int
    version: int


@dataclass(frozen=True, slots=True)
class AskedTask(Task):
    """A task that was requested."""

    created: bool
    """False: its URL already had a task that has not ended; it is this one, unchanged."""


@dataclass(frozen=True, slots=True)
class Next:
    """The next step of a task, and its time if it is known."""

    what: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Wait:
    """A condition that a task waits for, its end, and what an operator can change."""

    what: str
    until: datetime | None
    change: str | None


@dataclass(frozen=True, slots=True)
class TaskStory(Task):
    """A task, the reason of its state, and its next step."""

    batch: str | None
    moved_to: str | None
    next: Next
    waits: list[Wait]


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """One change of a task's status."""

    version: int
    at: datetime
    from_status: str
    to_status: str
    why: str
    attempt: int
    claim_epoch: int | None


@dataclass(frozen=True, slots=True)
class TaskCrawl:
    """One crawl of a URL, and all changes of its status."""

    task: Task
    events: list[TaskEvent]


@dataclass(frozen=True, slots=True)
class TaskCount:
    """The number of tasks in a status, and statistics of the last day."""

    status: str
    tasks: int
    lately: int
    mean_seconds: float | None


@dataclass(frozen=True, slots=True)
class BadTask:
    """An invalid URL, and its position, from 1."""

    place: int
    problem: str


@dataclass(frozen=True, slots=True)
class Bulk:
    """The result of creating many tasks."""

    seen: int
    created: int
    known: int
    bad: int
    bad_urls: list[BadTask]
    """The first ones."""


@dataclass(frozen=True, slots=True)
class RestartedTask:
    """One of many tasks that were restarted."""

    id: int
    url: str


@dataclass(frozen=True, slots=True)
class RestartedTasks:
    """The result of restarting tasks: how many, and the first ones."""

    restarted: int
    tasks: list[RestartedTask]


@dataclass(frozen=True, slots=True)
class Batch:
    """Tasks that belong together."""

    id: int
    name: str
    created_at: datetime
    created_by: str
    tasks: dict[str, int]
    """By status; statuses without tasks are left out."""
    counted_all: bool = True
    """False: the batch has more tasks than a list counts."""


class TaskOptions(TypedDict, total=False):
    """Options of tasks; one that is left out has its default."""

    priority: int
    scheduled_at: datetime | None
    crawl_frequency: timedelta | None
    is_recurring: bool
    max_retries: int
    parent_task_id: int | None
    batch: str | None
    webhook_url: str | None
    parser_name: str | None
