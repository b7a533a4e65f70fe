"""Batches as a worker would make them: outcomes and found URLs in a line each, committed by the product's own function."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.db import commit, frontier, runs
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.model.commit_batch import CommitBatch, DiscoveredUrl, PageRow, PolitenessClocks, UrlOutcome, VisitPart
from holdfast.model.domain import Claim
from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.model.url import url_key
from tests.support.factories import LEASE, Store


def outcome(
    url: str,
    job_id: int,
    kind: Outcome = Outcome.OK,
    *,
    state: UrlState | None = None,
    page: PageRow | None = None,
    fetched: bool = True,
    **facts: Any,
) -> UrlOutcome:
    """What came of a URL; a page has a row of its own."""
    treatment = TREATMENT[kind]
    if page is None and treatment.page:
        page = PageRow(200, title=url, content_hash=url_key(url))
    row = UrlOutcome(
        job_id, url_key(url), url, 0, kind, state or treatment.state, str(kind), fetched=fetched, page=page
    )
    for name, value in {"attempts": 1, "status": 200, "duration_ms": 5, "bytes": 1000, **facts}.items():
        setattr(row, name, value)
    return row


def found(url: str, job_id: int, *, domain: str | None = None, depth: int = 1, **facts: Any) -> DiscoveredUrl:
    """A URL that a page led to; with `domain` on a foreign one."""
    row = DiscoveredUrl(job_id, url_key(url), url, depth, 3, b"p" * 16)._replace(**facts)
    return row._replace(domain=domain, parent_domain=domain, base_url=f"https://{domain}") if domain else row


def links(domain: str, count: int, job_id: int, *, start: int = 0, foreign: bool = False) -> list[DiscoveredUrl]:
    """So many pages of a domain."""
    return [
        found(f"https://{domain}/{i}", job_id, domain=domain if foreign else None) for i in range(start, start + count)
    ]


@dataclass
class Worker:
    """A worker that commits: one connection, one run."""

    database: Database
    store: Store
    name: str = "w1"
    run_id: int = 0
    defaults: NewDomains = field(default_factory=NewDomains)

    def __post_init__(self) -> None:
        self.run_id = self.run_id or runs.begin(self.store.connection, worker=self.name)

    def commit(self, *parts: VisitPart, aged_at: float | None = None) -> commit.CommitResult:
        return commit.commit(
            self.store.connection,
            self.database.connect,
            worker=self.name,
            batch=CommitBatch(self.run_id, list(parts), aged_at),
            lease=LEASE,
            defaults=self.defaults,
        )

    def part(
        self,
        claim: Claim,
        outcomes: Iterable[UrlOutcome] = (),
        urls: Iterable[DiscoveredUrl] = (),
        clocks: PolitenessClocks | None = None,
        streak: int | None = None,
    ) -> VisitPart:
        return VisitPart(claim.domain_id, claim.epoch, list(outcomes), list(urls), clocks, refusal_streak=streak)

    def waiting(self, claim: Claim, count: int = 1000, job: int | None = None) -> Sequence[str]:
        taken = frontier.take(
            self.store.connection, domain_id=claim.domain_id, job_id=job or self.store.job, count=count, exclude=[]
        )
        return [waiting.url for waiting in taken.urls]

    def crawl(self, claim: Claim, count: int = 1000, job: int | None = None) -> int:
        """Fetch up to `count` URLs that wait, and commit; how many."""
        job = job or self.store.job
        urls = self.waiting(claim, count, job)
        self.commit(self.part(claim, [outcome(url, job) for url in urls]))
        return len(urls)
