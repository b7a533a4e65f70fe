"""The batch that a worker commits in one transaction: one part for each domain that it holds.

The rule: a batch holds differences and rows, ready to be written. Its times are relative ("in 0.7 s"), because the database's clock
decides.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.image import FetchedImage, ImageLink
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.page_links import LinkFacts
from holdfast.model.proxy import ProxyUse


class Resource(StrEnum):
    """What a URL is expected to lead to."""

    PAGE = "page"
    SITEMAP = "sitemap"
    """A sitemap, an index of sitemaps, or a feed."""
    IMAGE = "image"
    CHECK = "check"
    """Anything: it is out of scope, and fetched once for the links to it. Nothing of it is parsed, followed or kept."""


IMAGE_PRIORITY: Final = 0
"""The priority of images in the frontier, below that of all pages: they have a lane of their own, which is read by this number."""
CHECK_PRIORITY: Final = 1
"""The priority of checks: that of the pages that come last."""


class FrontierItem(NamedTuple):
    """A URL as a visit takes it from the frontier."""

    url_key: bytes
    url: str
    depth: int
    attempts: int
    hops: int
    """Redirects in a row that led here."""
    parent_key: bytes | None
    refresh: bool
    etag: str | None
    """The ETag of the stored page, for a refresh."""
    last_modified: str | None
    steps: int = 0
    """Pagination steps in a row that led here."""
    barren: int = 0
    """Pages of that pagination before this one, in a row, that led to no other new URL."""
    resource: Resource = Resource.PAGE
    tasks: tuple[tuple[int, int], ...] = ()
    """The tasks that it is fetched for, if any: their ids and attempts."""


class DiscoveredUrl(NamedTuple):
    """A URL that a page led to. `domain` names a foreign domain; None is the domain of the part that contains it."""

    job_id: int
    url_key: bytes
    url: str
    depth: int
    priority: int
    parent_key: bytes
    hops: int = 0
    state: UrlState = UrlState.WAITING
    """WAITING, or DENIED with the reason."""
    reason: str | None = None
    domain: str | None = None
    parent_domain: str | None = None
    base_url: str | None = None
    steps: int = 0
    """As in `FrontierItem`; likewise `barren`."""
    barren: int = 0
    template: int | None = None
    """The key of the template that the store counts it under if it is new; None: it is not counted."""
    resource: Resource = Resource.PAGE
    listed: bool = False
    """A sitemap lists it."""
    lastmod: datetime | None = None
    """When it was last changed, as its sitemap says."""
    known_only: bool = False
    """It is enqueued only if the job has URLs on its domain already."""


class UrlRef(NamedTuple):
    """A URL and its key."""

    url: str
    url_key: bytes


@dataclass(slots=True)
class PageRow:
    """The columns of `crawled_pages` for one answer."""

    status: int | None
    content_type: str | None = None
    content_length: int = 0
    content_hash: bytes | None = None
    title: str | None = None
    description: str | None = None
    canonical: str | None = None
    charset: str | None = None
    links_count: int = 0
    images_count: int = 0
    noindex: bool = False
    nofollow: bool = False
    etag: str | None = None
    last_modified: str | None = None
    problem: str | None = None
    """Why the page could be read only in part; if it is None and the outcome has a reason, that reason is stored."""
    archive: ArchiveRef | None = None
    text: bytes | None = None
    """The text compressed by zstd; None: not stored."""
    parsers: tuple[str, ...] = ()
    """The parsers that the page is due for."""
    content_language: str | None = None


@dataclass(slots=True)
class SitemapRow:
    """The columns of `sitemaps` for one sitemap that was read."""

    format: str | None
    """None: it is none that can be read."""
    entries: int = 0
    """URLs and sitemaps that it lists."""
    skipped: int = 0
    """Entries that are no URL, or more than a sitemap may have."""
    bytes: int = 0
    """Its size, unpacked."""
    problem: str | None = None
    """Why it was read only in part, or not at all."""


@dataclass(slots=True)
class UrlOutcome:
    """The outcome of one URL: a row of the frontier changes, and if it was requested, the log gets a row."""

    job_id: int
    url_key: bytes
    url: str
    depth: int
    outcome: Outcome
    state: UrlState
    """WAITING means another attempt, `retry_in` seconds from now."""
    reason: str | None = None
    attempts: int = 0
    retry_in: float | None = None
    fetched: bool = True
    """False: decided without a request (robots, a trap …); no log row."""
    status: int | None = None
    duration_ms: int | None = None
    bytes: int | None = None
    images_found: int = 0
    age: float = 0.0
    """Seconds since it ended, at the time of the commit."""
    page: PageRow | None = None
    tasks: tuple[tuple[int, int], ...] = ()
    """The tasks that it was fetched for: their ids and attempts."""
    moved_to: UrlRef | None = None
    """With tasks: the URL that they were redirected to."""
    proxy: ProxyUse | None = None
    """The use of a proxy, if the request went through one."""
    again: bool = False
    """The same visit retries it and does not have to take it from the frontier again."""
    partial: bool = False
    """It is in progress: what was found so far is committed, and another outcome of it follows."""
    sitemap: SitemapRow | None = None
    """Of a sitemap that was read."""
    maybe_image: bool = False
    """Fetched as a link by a job that stores images, and left out by its type: pages may show it."""
    image: FetchedImage | None = None
    """What the URL of an image led to."""
    image_links: tuple[ImageLink, ...] = ()
    """The images of a page, if the job stores them."""
    link_facts: LinkFacts | None = None
    """The links of a page, or that it is none. None: the job does not record links."""


@dataclass(slots=True)
class PolitenessClocks:
    """The politeness state of a domain, as the store keeps it between visits. Seconds count from now."""

    next_request_in: float = 0.0
    """The clock of the delay: seconds until the next request."""
    back_off_in: float = 0.0
    """The clock of the back-off: seconds until the next request."""
    back_off_level: int = 0
    response_ms: float | None = None
    """Moving average of the response time, in milliseconds."""
    best_response_ms: float | None = None
    """The best response time of the server, in milliseconds, by which slowness is measured."""
    circuit_failures: int = 0
    circuit_successes: int = 0
    circuit_open_in: float | None = None
    """None: closed. Otherwise seconds until the open circuit becomes half-open."""
    delay: float | None = None
    """The delay in seconds that `next_request_in` was computed with, so the last request was that long before it. None: unknown."""
    delay_source: str | None = None
    """The origin of the delay (`DelaySource`)."""


@dataclass(slots=True)
class VisitPart:
    """The part of a batch that one visit contributes."""

    domain_id: int
    epoch: int
    outcomes: list[UrlOutcome] = field(default_factory=list)
    found: list[DiscoveredUrl] = field(default_factory=list)
    clocks: PolitenessClocks | None = None
    consecutive_errors: int | None = None
    """Errors of every kind in a row until now; None keeps the stored number."""
    refusal_streak: int | None = None
    """Blocking or unreachable outcomes in a row until now; None keeps the stored number."""
    for_tasks: bool = False
    """It belongs to a visit for tasks."""
    keeps_status: bool = False
    """The domain's status does not change: a visit for tasks, or domain tracking is switched off."""
    other_uses: list[ProxyUse] = field(default_factory=list)
    """Uses of proxies for requests that are not logged: robots.txt."""

    @property
    def jobs(self) -> set[int]:
        """The ids of the jobs that it has rows of."""
        return {outcome.job_id for outcome in self.outcomes} | {url.job_id for url in self.found}

    def without(self, jobs: Collection[int]) -> "VisitPart":
        """The part without the rows of these jobs."""
        return replace(
            self,
            outcomes=[outcome for outcome in self.outcomes if outcome.job_id not in jobs],
            found=[url for url in self.found if url.job_id not in jobs],
        )


@dataclass(slots=True)
class CommitBatch:
    """Everything since the last commit of this worker process."""

    run_id: int
    parts: list[VisitPart] = field(default_factory=list)
    aged_at: float | None = None
    """The time for which the ages in it are right, on the clock of its creator, which also goes to `update_ages`; None: the ages are
    final."""

    def update_ages(self, now: float) -> None:
        """Update the ages. After: the ages in it are those of `now`."""
        if self.aged_at is None:
            return
        seconds, self.aged_at = now - self.aged_at, now
        for part in self.parts:
            for outcome in part.outcomes:
                outcome.age += seconds
                if outcome.proxy is not None:
                    outcome.proxy.age += seconds
            for use in part.other_uses:
                use.age += seconds
