"""What servers answer about domains, their URLs and their pages, as values.

The rule: as in `values`: the API's own names, plain texts for states, datetimes for times.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict

from holdfast.client.values import BadSeed


@dataclass(frozen=True, slots=True)
class Page:
    """What was answered for a URL, the last time that it was asked for."""

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
    """What a parser found on a page of a crawl."""

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
    """The frontier in figures."""

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
    """Whether the figures below are of a sample."""
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
    """What became of URLs that were added."""

    seen: int
    urls: int
    """That are new to the job."""
    domains: int
    """That are new."""
    bad: int
    bad_urls: list[BadSeed]
    """The first ones."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain at a glance."""

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
    """What a change may be tied to."""


@dataclass(frozen=True, slots=True)
class DomainFacts:
    """Everything about a domain."""

    domain: str
    version: int
    status: str
    facts: dict[str, Any]
    """By the names of the store's columns, as JSON has them."""
    work: list[dict[str, Any]]
    transitions: list[dict[str, Any]]
    tenures: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class DomainReset:
    """What starting a domain over did."""

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
    """Somebody's time as the holder of a domain."""

    epoch: int
    worker: str
    claimed_at: datetime
    ended_at: datetime | None
    why: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a URL or a domain is where it is."""

    kind: str
    """`url` or `domain`."""
    subject: str
    told: dict[str, Any]


class JobSpec(TypedDict, total=False):
    """How a job is to be crawled. What is left out is as the server's settings, or the domain, say."""

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
    """How a job is to be crawled from now on. What is left out stays as it is; None lifts a limit, or means: as for a job that says
    nothing of it."""

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
    """What is sent with requests to the origins of a job's seeds. What is left out stays as it is; empty or None removes it."""

    headers: list[str] | None
    """`Name: value`."""
    cookies: list[str] | None
    """`name=value`."""
    basic_auth: str | None
    """`user:password`."""


class DomainChanges(TypedDict, total=False):
    """How a domain is crawled, by the names under which it is read. What is left out stays as it is; None means: as the server's
    settings say. The last eight are short forms of others."""

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
