"""What a worker commits in one transaction: a part for each domain that it holds.

The rule: a batch holds differences and rows, ready to be written. What it says about times is relative ("in 0.7 s"), because the
database's clock decides.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.page import ArchiveRef
from holdfast.model.proxy import ProxyUse


class Waiting(NamedTuple):
    """A URL as a visit takes it from the frontier."""

    url_key: bytes
    url: str
    depth: int
    attempts: int
    hops: int
    """Redirects that led here, one after the other."""
    parent_key: bytes | None
    refresh: bool
    etag: str | None
    """Of the page as it is known, for a refresh."""
    last_modified: str | None
    steps: int = 0
    """Of a pagination, one after the other, that led here."""
    barren: int = 0
    """Pages of that pagination before this one, in a row, that led to no other new URL."""
    tasks: tuple[tuple[int, int], ...] = ()
    """Whom it is fetched for, if for tasks: their ids and attempts."""


class FoundUrl(NamedTuple):
    """A URL that a page led to. `domain` names a foreign one; None is the domain of the part that it stands in."""

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
    """As in `Waiting`; likewise `barren`."""
    barren: int = 0
    template: int | None = None
    """Under which the store counts it if it is new; None: it does not."""


class Place(NamedTuple):
    """A URL and its key."""

    url: str
    url_key: bytes


@dataclass(slots=True)
class PageRow:
    """What `crawled_pages` keeps of an answer."""

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
    """Why less than all of it could be read; where it is None and the outcome has a reason, that is kept."""
    archive: ArchiveRef | None = None
    text: bytes | None = None
    """Compressed by zstd; None: not kept."""
    parser: str | None = None
    """Which parser the page is due for; None: for none."""


@dataclass(slots=True)
class UrlOutcome:
    """What came of one URL: a row of the frontier changes, and if it was asked for, the log gets a row."""

    job_id: int
    url_key: bytes
    url: str
    depth: int
    outcome: Outcome
    state: UrlState
    """WAITING means: another attempt, `retry_in` seconds from now."""
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
    """Seconds since it ended, when the batch is committed."""
    page: PageRow | None = None
    tasks: tuple[tuple[int, int], ...] = ()
    """Tasks that it was fetched for: their ids and attempts."""
    moved_to: Place | None = None
    """With tasks: where they were led to."""
    proxy: ProxyUse | None = None
    """What it went through."""
    again: bool = False
    """It is being tried again by the same visit, which needs not take it anew."""


@dataclass(slots=True)
class Clocks:
    """A domain's politeness, as the store keeps it between visits. Seconds are from now."""

    next_request_in: float = 0.0
    """The delay's clock: no request before."""
    back_off_in: float = 0.0
    """The back-off's clock: no request before either."""
    back_off_level: int = 0
    response_ms: float | None = None
    """Moving average of the time to answer."""
    best_response_ms: float | None = None
    """How fast the server has been; what "slower" is measured by."""
    circuit_failures: int = 0
    circuit_successes: int = 0
    circuit_open_in: float | None = None
    """None: closed. Otherwise open until then, and half-open after."""
    delay: float | None = None
    """The delay that `next_request_in` was computed with: the last request was so long before that. None: unknown."""
    delay_source: str | None = None
    """What it came from (`model/delay`)."""


@dataclass(slots=True)
class VisitPart:
    """What one visit adds to a batch."""

    domain_id: int
    epoch: int
    outcomes: list[UrlOutcome] = field(default_factory=list)
    found: list[FoundUrl] = field(default_factory=list)
    clocks: Clocks | None = None
    consecutive_errors: int | None = None
    """Errors of every kind in a row, up to now; None leaves the stored number."""
    refusal_streak: int | None = None
    """Blocking or unreachable outcomes in a row, up to now; None leaves the stored number."""
    for_tasks: bool = False
    """Of a visit for tasks."""
    keeps_status: bool = False
    """The domain's status stays as it is: a visit for tasks, or domain tracking is switched off."""
    other_uses: list[ProxyUse] = field(default_factory=list)
    """Of proxies, for what is not logged: robots.txt."""

    @property
    def jobs(self) -> set[int]:
        """Whose it is."""
        return {outcome.job_id for outcome in self.outcomes} | {url.job_id for url in self.found}

    def without(self, jobs: Collection[int]) -> "VisitPart":
        """The rest of it, if what belongs to these is left out."""
        return replace(
            self,
            outcomes=[outcome for outcome in self.outcomes if outcome.job_id not in jobs],
            found=[url for url in self.found if url.job_id not in jobs],
        )


@dataclass(slots=True)
class Batch:
    """Everything since the last commit of this worker process."""

    run_id: int
    parts: list[VisitPart] = field(default_factory=list)
    aged_at: float | None = None
    """When the ages in it were taken, by a clock that only its maker and `grow_older` know; None: they are as they shall be."""

    def grow_older(self, now: float) -> None:
        """After: the ages in it are those of this moment."""
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
