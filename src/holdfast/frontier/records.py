"""URLs of the frontier, its statistics, what was added or set free, and the filter of the list."""

from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from holdfast.errors import UsageError
from holdfast.model.list_filter import ListFilter, split_flag
from holdfast.model.record import record

if TYPE_CHECKING:
    from holdfast.model.outcome import UrlState  # it needs ada-url, which the client does without

_KINDS: Final = ("discovery", "refresh")
RESOURCES: Final = ("page", "sitemap", "image", "check")


@record
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
    resource: str = "page"
    """What it is expected to lead to: `page`, or `sitemap` (a sitemap, an index of sitemaps, or a feed)."""
    listed: bool = False
    """A sitemap or a feed lists it."""
    lastmod: datetime | None = None
    """When it was last changed, as its sitemap says."""


@record
class ExportedUrl:
    """A row of `export urls`: the fields are the columns of the file, in their order."""

    url: str
    domain: str | None
    job: str | None
    state: str
    reason: str | None
    kind: str
    depth: int
    priority: int
    attempts: int
    hops: int
    discovered_at: datetime
    not_before: datetime | None
    url_key: str
    parent_key: str | None
    resource: str = "page"
    listed: bool = False
    lastmod: datetime | None = None


@record
class JobFrontier:
    """The URLs of a job."""

    job_id: int
    job: str
    state: str
    """Of the job."""
    domains: int
    discovered: int
    waiting: int
    done: int
    denied: int
    failed: int


@record
class FrontierStats:
    """Statistics of the frontier."""

    discovered: int
    waiting: int
    done: int
    denied: int
    failed: int
    unfolded: int
    """URLs from links on other domains that are not counted among the others yet."""
    in_memory: int
    """Waiting URLs that workers have in their buffers, by their last heartbeat."""
    domains: int
    """Domains with waiting URLs; one counts for each job that has some on it."""
    ready: int
    """Of these, domains that could be claimed now."""
    jobs: list[JobFrontier]
    """Those with the most waiting URLs."""
    estimated: bool
    """Whether the counts below are estimated from a sample."""
    by_priority: dict[int, int] = field(default_factory=dict)
    """Waiting URLs by priority."""
    by_kind: dict[str, int] = field(default_factory=dict)
    """Waiting URLs by kind."""
    oldest_waiting_at: datetime | None = None
    """When the URL was discovered that has waited longest; an estimate is never too early."""


@record
class RejectedUrl:
    """An invalid URL, and its position."""

    line: int
    """Its place, from 1."""
    problem: str


@record
class AddedUrls:
    """The result of adding URLs."""

    seen: int
    urls: int
    """URLs that are new to the job."""
    domains: int
    """Domains that are new."""
    bad: int
    bad_urls: list[RejectedUrl]
    """The first ones."""


@record
class Recovered:
    """The result of a sweep."""

    claims: int
    """Claims that were released, because their leases had ended or their workers were dead."""
    domains: int
    """Domains whose new URLs were counted."""
    cooled: int
    """Domains whose cool-down had ended."""
    delayed: int
    """Domains whose delay had ended."""
    runs: int
    """Runs that were given up, because their heartbeats had stopped."""
    jobs: int
    """Changes of jobs, such as to complete one."""
    faults: list[str]
    """Errors."""


@record
class NotRetried:
    """URLs that were asked for, and are not retried for one reason."""

    reason: str
    """Its code."""
    urls: int
    example: str
    """One of them."""
    why: str
    """What to do instead: the end of a sentence."""


@record
class Retried:
    """URLs of a job that are retried, or would be."""

    job_id: int
    job: str
    dry_run: bool
    """They are only counted."""
    urls: int
    """Up to 100 000, or an estimate."""
    more: bool
    """There are more than `urls`."""
    domains: int
    """Of these URLs; 0 if they are estimated."""
    by_reason: dict[str, int] = field(default_factory=dict)
    """These URLs by the code of their reason, the most frequent first."""
    left_out: list[NotRetried] = field(default_factory=list)
    """URLs that were named and are not retried."""
    reopened: bool = False
    """The job had ended, and workers go on with it."""
    finished: bool = True
    """False: there are too many for one transaction, so they follow in chunks after the answer."""
    notes: list[str] = field(default_factory=list)
    """What keeps them waiting, each as a sentence with the command that changes it."""
    estimated: bool = False
    """The numbers are estimated from a sample, because counting would have taken too long: only pages of the dashboard ask for that."""


@record
class UrlFilter(ListFilter):
    """Which URLs of the frontier to list; None: all."""

    domain: str | None = None
    job: str | int | None = None
    """By name or id."""
    state: "UrlState | None" = None
    kind: str | None = None
    """discovery, or refresh."""
    priority: int | None = None
    """Higher comes first: 1 to 3 of links, 3 to 12 of tasks."""
    due: bool | None = None
    """Of waiting URLs: those that could be fetched now, or those that have to wait for a time."""
    reason: str | None = None
    """Of URLs that do not wait: the code of the reason, as in the summary of a job (`not_crawled`)."""
    resource: str | None = None
    """page, sitemap, image, or check."""

    def given(self) -> dict[str, object]:
        """Return the filters that are present, by the names of the query. Raises UsageError."""
        filters = ListFilter.given(self)
        if self.kind is not None and self.kind not in _KINDS:
            raise UsageError(f"A URL is there for {' or '.join(_KINDS)}.")
        if self.priority is not None and not 1 <= self.priority <= 12:
            raise UsageError("The priority of a URL is a number from 1 to 12.")
        if self.resource is not None and self.resource not in RESOURCES:
            raise UsageError(f"There is no resource {self.resource!r}; there are {', '.join(RESOURCES)}.")
        if self.resource is not None:
            filters[f"{filters.pop('resource')}s"] = True
        split_flag(filters, "due", "due", "delayed")
        if self.state in ("waiting", "failed"):
            filters[str(filters.pop("state"))] = True
        return filters
