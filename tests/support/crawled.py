"""A store in which something was crawled, by the product's own transaction: what reports, exports and checks are tried on."""

import gzip
import hashlib
from dataclasses import dataclass, field
from typing import Final

import zstandard

from holdfast.db.commit import commit
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.model.commit_batch import CommitBatch, DiscoveredUrl, PageRow, UrlOutcome, VisitPart
from holdfast.model.domain import Claim
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.model.seed_lines import make_seed
from holdfast.model.url import url_key
from tests.support.factories import LEASE, Store

HOME: Final = "https://example.com/"
TEXT: Final = "Welcome home.\nSécond line."
NASTY: Final = '=HYPERLINK("x")\x1b[2J, "quoted"'
"""A title that a terminal, a spreadsheet and a CSV reader would each stumble over."""
FETCHED: Final = frozenset(Outcome) - {
    outcome for outcome, treatment in TREATMENT.items() if treatment.state is UrlState.DENIED
}


@dataclass
class Crawl:
    """One worker at work on one job of a test's store."""

    database: Database
    store: Store
    worker: str = "w1"
    crawl_id: int = field(init=False)
    run_id: int = field(init=False)

    def __post_init__(self) -> None:
        one = self.store.value
        self.crawl_id = int(str(one("INSERT INTO crawls (job_id) VALUES (%s) RETURNING id", self.store.job)))
        self.run_id = int(
            str(
                one(
                    "INSERT INTO crawl_runs (worker, job_id, crawl_id) VALUES (%s, %s, %s) RETURNING id",
                    self.worker,
                    self.store.job,
                    self.crawl_id,
                )
            )
        )

    def outcome(self, url: str, outcome: Outcome, **facts: object) -> UrlOutcome:
        """What came of a URL, as the engine would say it."""
        treatment = TREATMENT[outcome]
        page = PageRow(200, content_type="text/html", content_length=3) if treatment.page else None
        reason = None if treatment.page else str(outcome)
        given = {"page": page, "reason": reason, "attempts": 1, "fetched": outcome in FETCHED, "status": 200} | facts
        state = given.pop("state", treatment.state)
        return UrlOutcome(self.store.job, url_key(url), url, 0, outcome, state, **given)  # type: ignore[arg-type]

    def found(
        self, parent: str, url: str, state: UrlState = UrlState.WAITING, reason: str | None = None
    ) -> DiscoveredUrl:
        """A link on the page `parent`; one to another domain that is not denied becomes a URL of that domain."""
        seed = make_seed(url)
        foreign = state is UrlState.WAITING and seed.domain != make_seed(parent).domain
        place = (seed.domain, seed.parent_domain, seed.base_url) if foreign else (None, None, None)
        return DiscoveredUrl(self.store.job, url_key(url), url, 1, 2, url_key(parent), 0, state, reason, *place)

    def commit(self, claim: Claim, outcomes: list[UrlOutcome], found: list[DiscoveredUrl] | None = None) -> None:
        """Write it down for a held domain."""
        part = VisitPart(claim.domain_id, claim.epoch, outcomes, found or [])
        done = commit(
            self.store.connection,
            self.database.connect,
            worker=self.worker,
            batch=CommitBatch(self.run_id, [part]),
            lease=LEASE,
            defaults=NewDomains(),
        )
        assert not done.refused


def crawl_a_little(database: Database, store: Store, archived: ArchiveRef | None = None) -> Crawl:
    """example.com with a page of each kind, released; other.example, known by a link; work that goes on in an hour."""
    crawl = Crawl(database, store)
    store.seed(HOME)
    claim = store.claim_one(crawl.worker)
    home = PageRow(
        200,
        content_type="text/html; charset=utf-8",
        content_length=1234,
        content_hash=bytes(range(32)),
        title=NASTY,
        description="A page",
        charset="utf-8",
        links_count=5,
        archive=archived,
        text=zstandard.compress(TEXT.encode()),
    )
    paths = ["a", "gone", "private/x", "slow"]
    crawl.commit(
        claim,
        [crawl.outcome(HOME, Outcome.OK, page=home, duration_ms=42, bytes=900)],
        [
            *(crawl.found(HOME, HOME + path) for path in paths),
            crawl.found(HOME, "https://other.example/deep"),
            crawl.found(HOME, "https://outside.example/", UrlState.DENIED, "out_of_scope: another host"),
        ],
    )
    crawl.commit(
        claim,
        [
            crawl.outcome(f"{HOME}a", Outcome.OK, page=PageRow(200, title="A")),
            crawl.outcome(f"{HOME}gone", Outcome.NOT_FOUND, status=404, page=PageRow(404)),
            crawl.outcome(
                f"{HOME}private/x", Outcome.ROBOTS_DENIED, reason="robots_denied: Disallow: /private (line 2)"
            ),
            crawl.outcome(
                f"{HOME}slow",
                Outcome.TIMEOUT,
                state=UrlState.WAITING,
                retry_in=3600.0,
                status=None,
                reason="timeout: no answer within 30 s",
            ),
        ],
        [crawl.found(f"{HOME}a", f"{HOME}a/b")],
    )
    crawl.commit(claim, [crawl.outcome(f"{HOME}a/b", Outcome.OK)])
    store.connection.execute(
        """INSERT INTO domain_robots (domain_id, robots_txt_url, robots_txt_content, status, robots_txt_last_fetched, expires_at)
        VALUES (%s, 'https://example.com/robots.txt', E'User-agent: *\nDisallow: /private', 200, now(), now() + interval '1 h')""",
        (claim.domain_id,),
    )
    store.release(claim, crawl.worker)
    return crawl


def warc(body: bytes) -> bytes:
    """A record as the archive writes it."""
    block = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    head = (
        "WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000000>\r\n"
        f"WARC-Target-URI: {HOME}\r\nWARC-Date: 2026-02-05T12:00:00.000000Z\r\n"
        f"WARC-Payload-Digest: sha256:{hashlib.sha256(body).hexdigest()}\r\n"
        f"Content-Type: application/http; msgtype=response\r\nWARC-Block-Digest: sha256:{hashlib.sha256(block).hexdigest()}\r\n"
        f"Content-Length: {len(block)}\r\n\r\n"
    )
    return gzip.compress(head.encode() + block + b"\r\n\r\n")
