"""Domains: as they are listed, with all their columns, their history, their maintenance windows, and the filters of their lists."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypedDict

from holdfast.model.domain import Status
from holdfast.model.list_filter import ListFilter, split_flag
from holdfast.model.record import durations_in_seconds, record
from holdfast.sitemaps.records import LastmodTrust, ReadSitemap


@record
class Domain:
    """A domain in a list."""

    id: int
    domain: str
    parent_domain: str
    status: Status
    status_reason: str | None
    block_reason_code: str | None
    block_reason: str | None
    is_active: bool
    claimed_by: str | None
    """The worker that holds it."""
    claim_expires_at: datetime | None
    claim_expired: bool
    pages_discovered: int
    pages_crawled: int
    pages_done: int
    """Of `pages_known`: of the job that knows most URLs there, so never more than that."""
    pages_known: int
    frontier_size: int
    """URLs that wait."""
    images_found: int
    images_stored: int
    image_yield_rate: float | None
    total_error_count: int
    consecutive_error_count: int
    error_rate: float | None
    priority: int
    """The score of this moment."""
    seed_rank: int | None
    first_seen_at: datetime
    last_crawled_at: datetime | None
    """When its last batch was written."""
    last_visit_ended_at: datetime | None
    next_crawl_after: datetime | None
    """The end of its cool-down."""
    stays_blocked: bool
    """Its cool-down has no end: only an operator can reset it."""
    base_url: str
    parser_name: str
    crawl_delay_seconds: float
    max_concurrent_requests: int
    maintenance_window: str | None
    proxy_use: str | None
    version: int


@record
class DomainColumns(Domain):
    """A domain with every column of its row."""

    claim_epoch: int
    crawl_depth_reached: int
    frontier_updated_at: datetime | None
    updated_at: datetime
    priority_score: int
    """The score without the time since the last crawl."""
    priority_computed_at: datetime | None
    retry_count: int
    """How often it was blocked or unreachable in a row."""
    last_crawl_run_id: int | None
    first_blocked_at: datetime | None
    source: str | None
    max_pages_per_run: int | None
    max_pages_is_limit: bool
    """False: `max_pages_per_run` is only the size of a share."""
    default_crawl_frequency: timedelta
    user_agent: str | None
    frontier_checkpoint_id: str | None
    avg_images_per_page: float | None
    next_request_at: datetime | None
    back_off_until: datetime | None
    back_off_level: int
    response_ms: float | None
    best_response_ms: float | None
    circuit_failures: int
    circuit_successes: int
    circuit_open_until: datetime | None
    proxy_direct: bool | None
    proxy_resolves: bool | None
    proxy_country: str | None
    proxy_sticky: timedelta | None
    removed_at: datetime | None
    strip_params: list[str] | None
    retried_at: datetime | None
    parser_chosen: bool
    """It also parses the pages of crawls, not only those of tasks."""
    refusal_streak: int
    settings_version: int
    pace_delay_seconds: float | None
    pace_delay_source: str | None


@durations_in_seconds
@record
class DomainDetails(DomainColumns):
    """A domain with every column, and what follows from them."""

    secrets: list[str]
    """The names of headers that are sent with requests to it; their values are never shown."""
    delay_in_force_seconds: float
    delay_source: str
    """What that delay comes from: `robots`, `job`, `learnt`, `domain` or `default`."""


@record
class DomainWork:
    """The work of one job on a domain."""

    job: str
    job_state: str
    refresh: bool
    """Whether the job fetches pages again when they are due."""
    state: str
    ready: bool
    not_before: datetime | None
    discovered: int
    waiting: int
    done: int
    denied: int
    failed: int


@record
class StatusChange:
    """A change of a domain's status."""

    at: datetime
    from_status: str
    to_status: str
    reason: str
    worker: str | None


@record
class Transition(StatusChange):
    """A change of a domain's status, with the version and the claim epoch of the domain."""

    version: int
    epoch: int


@record
class Tenure:
    """A worker's time as the holder of a domain."""

    epoch: int
    worker: str
    claimed_at: datetime
    ended_at: datetime | None
    why: str | None
    """How it ended."""


@record
class DomainFacts:
    """Everything about a domain."""

    domain: str
    version: int
    status: Status
    facts: DomainDetails
    """Every column, by its name."""
    work: list[DomainWork]
    """By job."""
    transitions: list[StatusChange]
    """The last changes of its status."""
    tenures: list[Tenure]
    """The last workers that held it."""
    sitemaps: list[ReadSitemap] = field(default_factory=list)
    """The first 20 of the sitemaps that were read from it: those with a problem, then the newest."""
    lastmod: LastmodTrust | None = None
    """Whether the dates in its sitemaps can be trusted; null: no page with one was fetched twice."""


@record
class DomainReset:
    """The result of a reset or of unblocking."""

    domain: str
    was: Status
    was_held_by: str | None
    """The worker that held it; its later writes are refused."""
    waiting: int
    """URLs that wait to be crawled."""


class DomainAction(StrEnum):
    """What is done to all domains that a filter matches."""

    RESET = "reset"
    UNBLOCK = "unblock"
    """Only blocked and unreachable ones."""
    SWITCH_OFF = "switch-off"
    SWITCH_ON = "switch-on"


@record
class MatchingDomains:
    """How many domains an action on a filter changes."""

    action: DomainAction
    domains: int
    held: int
    """Of these, domains that a worker holds."""
    exact: bool
    """False: there are more, which were not counted."""


@record
class RemovalPreview:
    """What the removal of a domain deletes."""

    domain: str
    urls: int
    """URLs of all jobs."""
    pages: int
    """Pages of all jobs, at most; the archive keeps their responses."""
    jobs: int
    """Jobs that have work there."""
    problem: str | None
    """Why it cannot be removed now."""


@record
class StoredRobots:
    """The robots.txt of an origin, as it was fetched last."""

    url: str
    origin: str
    status: int | None
    """The HTTP status; null: no response."""
    content: str | None
    """null: there is none, which allows everything; or it could never be fetched."""
    reachable: bool
    """False: the last attempt to fetch it failed, and the content, if any, is older."""
    problem: str | None
    fetched_at: datetime | None
    fresh_until: datetime | None
    fresh: bool
    """Whether it need not be fetched again yet."""


@record
class RobotsFile(StoredRobots):
    """The robots.txt of an origin, as it was fetched last, and what counts for us in it."""

    agent: str = ""
    """The name by which we look for our group in it: the product token of our user agent."""
    group: str | None = None
    """The group that counts for us, in lower case: ours, or `*`; null: there is none, so everything is allowed."""
    applied_lines: list[int] = field(default_factory=list)
    """The numbers of the lines of that group, from 1."""
    crawl_delay_seconds: float | None = None
    """The delay that it asks us for, before `politeness.max_crawl_delay` limits it."""
    sitemaps: list[str] = field(default_factory=list)
    """The sitemaps that it names, as written."""


@record
class MaintenanceWindow:
    """The times at which a domain is not crawled."""

    domain: str
    window: str
    """As it was written."""
    is_open: bool
    """It may be crawled now."""
    opens_at: datetime | None
    """When it may be crawled again; null: it may be now."""
    closes_at: datetime | None
    """When it may not be crawled next."""
    is_active: bool
    version: int


@dataclass(frozen=True, slots=True)
class DomainFilter(ListFilter):
    """Which domains to list; None: all."""

    status: Status | None = None
    active: bool | None = None
    claimed: bool | None = None
    worker: str | None = None
    """Only those that this worker holds."""
    name: str | None = None
    """The beginning of the name."""
    parent: str | None = None
    """Only sub-domains of this registrable domain, without the domain itself."""

    def given(self) -> dict[str, object]:
        filters = ListFilter.given(self)
        split_flag(filters, "active", "active", "inactive")
        split_flag(filters, "claimed", "held", "free")
        if "name" in filters:
            filters["prefix"] = str(filters.pop("name")).lower()
        if "parent" in filters:
            filters |= {"parent": str(filters["parent"]).lower(), "sub": True}
        return filters


@dataclass(frozen=True, slots=True)
class WindowFilter(ListFilter):
    """Which domains with maintenance windows to list; None: all."""

    name: str | None = None
    """The beginning of the name."""

    def given(self) -> dict[str, object]:
        filters = ListFilter.given(self)
        return {"prefix": str(filters["name"]).lower()} if filters else {}


class DomainSettings(TypedDict, total=False):
    """The columns of a domain's configuration."""

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


class DomainChanges(DomainSettings, total=False):
    """Changes of how a domain is crawled, by the names under which they are read. A field that is left out stays as
    it is; None resets it to the server's settings. The last eight are short forms of others."""

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
