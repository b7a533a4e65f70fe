"""Jobs, how they stand, and the filter of their list."""

from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, TypedDict

from holdfast.errors import UsageError
from holdfast.model.domain import Status
from holdfast.model.job import JobAction, JobState
from holdfast.model.list_filter import ListFilter
from holdfast.model.record import record
from holdfast.sitemaps.records import ReadSitemap


@record
class Job:
    """A job, with what there is to do and what was done."""

    id: int
    name: str
    kind: str
    """`crawl`, or `tasks` for the standing job of all tasks."""
    state: JobState
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None
    state_reason: str | None
    """Why it was reopened, or the cause of a failure."""
    schedule: str | None
    next_run_at: datetime | None
    spec: dict[str, Any]
    version: int
    """Rises with every edit of the spec or of the secrets; the `ETag` of the job."""
    rules_version: int
    """Rises with every edit of its rules: scope, include, exclude and max_depth. 0: they are as it was created."""
    crawl: str | None
    """The crawl that is open: `running` or `stopped`."""
    crawl_started_at: datetime | None
    max_pages: int | None
    """Of that crawl."""
    pages: int
    errors: int
    bytes: int
    domains: int
    ready: int
    """Domains that could be worked on now."""
    spent: int
    """Domains that reached a limit, or used their share and wait for the next round."""
    done: int
    """Domains with nothing left to do."""
    discovered: int
    """URLs; likewise the four below."""
    waiting: int
    urls_done: int
    denied: int
    failed: int
    depth: int
    """The deepest that was fetched."""
    out_of_budget: bool
    """A limit that was set for it is reached: nothing is fetched until it is crawled again, by its schedule or `holdfast crawl`."""
    secrets: list[str]
    """The names of headers that are sent to the origins of its seeds; their values are never shown."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended for now. An operator, its schedule, the end of a cool-down or a due refresh may reopen it."""
        return self.state in (JobState.COMPLETED, JobState.CANCELLED, JobState.FAILED) or self.out_of_budget


@record
class EditedJob(Job):
    """A job that was edited."""

    changed: list[str]
    """The names of the options that are different now."""
    note: str
    """The consequences: whether running visits, or a job that stopped at a limit, go on by it."""


@record
class RulesVersion:
    """One version of the rules of a job."""

    version: int
    rules: dict[str, Any]
    """`scope`, `include`, `exclude` and `max_depth`."""
    at: datetime
    actor: str | None
    """The user who edited it; null: of version 0, as the job was created."""
    restores: int | None
    """Not null: an undo made this version, and it has the rules of that one."""


@record
class ScopePreview:
    """What an edit of a job's rules would do to its URLs."""

    removes: int
    """URLs that wait and would be denied."""
    returns: int
    """URLs that the rules left out and that would wait."""
    exact: bool
    """False: estimated from a part of the URLs, because there are too many to read."""
    removed_urls: list[str]
    """Some of them."""
    returned_urls: list[str]
    """Some of them."""


@record
class JobProgress(Job):
    """A job that is being watched."""

    requests: int
    """In flight, of all workers."""
    waits: list[str]
    """Why domains of it wait at this moment, and what the job as a whole waits for; at most a few."""


@record
class JobPace:
    """How fast a job is crawled at this moment, and when it would be done at that rate."""

    pages_per_second: float
    urls_per_second: float
    """URLs that got an outcome, of any kind: pages, redirects, errors."""
    seconds: float
    """The span that both are measured over: the last minute, or the time since the crawl began."""
    urls_left: int
    """URLs that wait, or as many as the page limit of the crawl lets it fetch."""
    seconds_left: float | None
    """null: nothing is left, or it is not known."""
    basis: str
    """What the estimate is based on, or why there is none, as sentences."""


@record
class JobDomain:
    """A domain of a job, with the work of the job on it."""

    domain: str
    status: Status
    """Of the domain."""
    status_reason: str | None
    claimed_by: str | None
    """The worker that holds the domain, for this job or another one."""
    state: str
    """Of the work: `open`, `parked` (the job was paused), `spent` (a limit was reached, or its share of this round) or `done`."""
    ready: bool
    """A worker could take it now."""
    not_before: datetime | None
    limit_reached: str | None
    """The limit that was reached: `max_pages_per_domain`, `rounds` or `domain_budget`."""
    discovered: int
    """URLs; likewise the four below."""
    waiting: int
    done: int
    denied: int
    failed: int
    pages: int
    errors: int
    bytes: int
    depth: int
    """The deepest that was fetched."""


DOMAIN_STATES: Final = ("open", "parked", "spent", "done")
"""The states of a job's work on a domain, in the order in which domains are listed."""


@record
class JobsChanged:
    """The jobs that an action on all jobs of a filter changed, or would change."""

    action: JobAction
    jobs: int
    names: list[str]
    """The first ones."""
    more: bool
    """More jobs match than one call changes; the same call again changes the next ones."""


@record
class BadLine:
    """An invalid line of a list, such as a URL that cannot be a seed."""

    line: int
    """Its position, from 1."""
    problem: str


@record
class CreatedJob:
    """A job that was created, with counts of its seeds."""

    job: Job
    seeds: int
    bad: int
    bad_seeds: list[BadLine]
    """The first ones."""


@record
class NewJob(Job):
    """A job that was created, with counts of its seeds, as the client returns it."""

    seeds: int
    bad: int
    bad_seeds: list[BadLine]


@record
class StateChange:
    """The state of a job before and after an action."""

    job_id: int
    name: str
    before: JobState
    after: JobState


class PageChange(StrEnum):
    """What became of a page in a crawl, compared with the crawl before."""

    NEW = "new"
    """It was no page before: never fetched, or not found."""
    CHANGED = "changed"
    """Its content differs."""
    GONE = "gone"
    """It was a page, and is not found (404, 410)."""
    FAILED = "failed"
    """It was a page, and answers with an error."""
    UNCHANGED = "unchanged"


@record
class Comparison:
    """A job's last crawl compared with the one before: pages by kind of change. A page that redirects now, or whose server did not
    answer, keeps its last answer and is in no count."""

    job: str
    crawl: int
    """The id of the last crawl; it may still be running."""
    started_at: datetime
    ended_at: datetime | None
    previous_started_at: datetime | None
    """When the crawl before began; null: there is none, and every page is new."""
    new: int
    changed: int
    gone: int
    failed: int
    unchanged: int
    at_least: list[PageChange]
    """The kinds of which there may be more, as more pages were fetched than were counted."""


@record
class ComparedPage:
    """A page of one kind in the comparison of two crawls."""

    url: str | None
    domain: str | None
    change: PageChange
    title: str | None
    title_before: str | None
    status: int | None
    """Of the last answer."""
    status_before: int | None
    at: datetime
    """When the crawl fetched it."""
    version: int | None
    """The number of the version before; null: there is none."""


@record
class JobFilter(ListFilter):
    """Which jobs to list; None: all."""

    state: JobState | None = None
    name: str | None = None
    """What the name begins with."""
    scheduled: bool | None = None
    """Only those with a schedule."""

    def given(self) -> dict[str, object]:
        given = ListFilter.given(self)
        if "name" in given:
            given["prefix"] = given.pop("name")
        if not given.get("scheduled", True):
            raise UsageError("There is no list of jobs that do not recur; leave `scheduled` out for all.")
        return given


class Ending(StrEnum):
    """Why a crawl ended, or where a job stands."""

    COMPLETE = "complete"
    """Nothing waits."""
    LIMIT = "limit"
    """A limit that the operator set is reached."""
    WAITS = "waits"
    """All that is left waits for a time or for an operator."""
    UNFINISHED = "unfinished"
    """URLs wait that a worker can take."""
    INTERRUPTED = "interrupted"
    NO_PAGE = "no_page"
    """The job has no page at all, from this crawl or one before."""


@record
class TypeCount:
    """URLs that were not crawled because of their content type."""

    media_type: str
    count: int
    """URLs."""
    change: str | None
    """The option that changes it; null: none does."""


@record
class NotCrawled:
    """URLs that were not crawled for one reason."""

    reason: str
    label: str
    count: int
    """URLs."""
    change: str | None
    """The option or setting that changes it."""
    example: str
    """One of them."""
    detail: str | None
    """What is known of that one."""
    types: list[TypeCount] = field(default_factory=list)
    """Of those of a type that is not read: the most frequent types."""


@record
class Waiting:
    """Domains that wait for the same condition."""

    kind: str
    what: str
    until: datetime | None
    change: str | None
    domains: int
    urls: int
    """URLs that wait on them."""


@record
class UrlSources:
    """Where the URLs of a job that reads sitemaps came from."""

    seeds: int
    listed: int
    """Listed by a sitemap or a feed."""
    linked: int
    """All others: links of pages, and targets of redirects."""
    sitemaps: int
    """Sitemaps and feeds that were read, indexes among them."""
    problems: int
    """Of those: could be read only in part, or not at all."""
    problem_url: str | None
    """One of these."""
    problem: str | None
    """What is wrong with it."""
    read: list[ReadSitemap] = field(default_factory=list)
    """The first 20 of these sitemaps: those with a problem, then the newest."""


@record
class CrawlSummary:
    """How a crawl ended, or how a job stands."""

    now: datetime
    job: str
    ending: Ending
    """`complete`, `limit`, `waits`, `unfinished` or `no_page`."""
    pages: int
    """Of this crawl, or of all if the summary is of a job."""
    pages_in_all: int
    """Of every crawl of the job."""
    waiting: int
    """URLs."""
    redirects: int
    not_crawled: list[NotCrawled]
    """The most frequent reason first."""
    waits: list[Waiting]
    limit: str | None
    """The limit that keeps URLs waiting, with its number and option."""
    cause: str | None
    """Why there is no page at all, as a sentence without its end."""
    next_step: str
    sources: UrlSources | None = None
    """Null: no sitemap was read."""
    images: int | None = None
    """Different images that are stored. Null: the job stores none."""

    @property
    def exit_code(self) -> int:
        """1 if the job has no page at all, from this crawl or one before."""
        return 1 if self.ending is Ending.NO_PAGE else 0


class PagesFrom(StrEnum):
    """Where the number of pages of a domain in a plan comes from."""

    LAST_CRAWL = "last_crawl"
    """URLs that a crawl of the domain knows."""
    WAITING = "waiting"
    """URLs of the job that wait."""
    SEEDS = "seeds"
    """Links are not followed."""
    LIMIT = "limit"
    """A limit that is smaller, or the only number that is known."""
    UNKNOWN = "unknown"


@record
class DomainPlan:
    """A domain in the plan of a crawl."""

    domain: str
    seeds: int
    pages: int | None
    """None: unknown."""
    pages_from: PagesFrom
    limit: int | None
    """The smallest limit of pages that applies to it."""
    delay_seconds: float
    delay_source: str
    """What the delay comes from: `robots`, `job`, `learnt`, `domain` or `default`."""
    concurrency: int
    seconds_per_page: float
    """The longer of the delay and the response time divided by the concurrency."""
    seconds: float | None
    stopped: bool
    """It is blocked, unreachable or switched off."""


@record
class CrawlPlan:
    """The plan of a crawl: pages, time, and what they assume. Nothing was written or fetched for it."""

    job: str | None
    existing: bool
    """The job exists; its own options count."""
    seeds: int
    bad: int
    bad_seeds: list[BadLine]
    """The first ones."""
    domains: int
    pages: int
    """Of all domains whose pages are known or limited."""
    unknown_domains: int
    """Domains that are not in `pages` and `seconds`."""
    complete: bool
    """No domain is unknown, or a limit over all domains ends the crawl."""
    seconds: float | None
    """The longer of the slowest domain and all pages at the measured speed; None: nothing is known."""
    slowest_domain: str | None
    slowest_seconds: float | None
    pages_per_second: float | None
    """The best minute of the last 7 days; None: nothing was fetched."""
    listed: list[DomainPlan]
    """The first 100 domains."""
    assumptions: list[str]
    """Each a sentence with its number and the option that changes it."""
    problem: str | None = None
    """Why the rest of the seed file could not be read."""


@record
class DepthCount:
    """URLs of a job at one depth, by state."""

    depth: int
    """Links from a seed."""
    waiting: int
    done: int
    pages: int
    """Of `done`: those that are pages, not redirects, missing or of another type."""
    denied: int
    failed: int


@record
class JobDepths:
    """URLs of a job by depth and state."""

    job_id: int
    job: str
    estimated: bool
    """`depths` are estimated from a sample; the totals are exact."""
    waiting: int
    done: int
    denied: int
    failed: int
    depths: list[DepthCount]
    """By depth; depths without URLs are left out."""


class JobEventKind(StrEnum):
    """What an entry of a job's log is about."""

    STATE = "state"
    """The job began, ended, was paused, resumed, cancelled or reopened."""
    EDIT = "edit"
    """Options, schedule or secrets."""
    URLS = "urls"
    """URLs were added, cleared or retried."""
    CRAWL = "crawl"
    WORKER = "worker"


@record
class JobEvent:
    """An entry of a job's log: what happened to it."""

    at: datetime
    kind: JobEventKind
    text: str
    """In words, without an end."""
    actor: str | None
    """The user or program that did it; None: it came about by itself."""
    details: dict[str, Any]


class JobOptions(TypedDict, total=False):
    """The options of a new job, as the client takes them. One that is left out has the default of the server, or of the domain."""

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
    sitemaps: str | None
    images: bool
    markdown: bool
    links: bool
    check_external: bool
    types: list[str]


class JobChanges(TypedDict, total=False):
    """Changes of the options of a job, as the client takes them. One that is left out stays as it is; None removes a limit, or resets an
    option to its default."""

    scope: str | None
    include: list[str] | None
    exclude: list[str] | None
    max_pages: int | None
    max_pages_per_domain: int | None
    rounds: int | None
    max_depth: int | None
    delay: float | None
    concurrency: int | None
    user_agent: str | None
    parser: str | None
    refresh: bool | None
    sitemaps: str | None
    images: bool | None
    markdown: bool | None
    links: bool | None
    check_external: bool | None
    types: list[str] | None
    robots: bool | None
    allow_private: bool | None
    archive: bool | None
    text: bool | None


class ScopeChanges(TypedDict, total=False):
    """Changes of the rules of a job, as the client takes them for a preview. One that is left out stays as it is; None: the default."""

    scope: str | None
    include: list[str] | None
    exclude: list[str] | None
    max_depth: int | None


class Secrets(TypedDict, total=False):
    """Headers, cookies and credentials for the origins of a job's seeds, as the client takes them. A field that is left out stays as it is;
    empty or None removes it."""

    headers: list[str] | None
    """`Name: value`."""
    cookies: list[str] | None
    """`name=value`."""
    basic_auth: str | None
    """`user:password`."""
