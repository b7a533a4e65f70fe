"""A store as after some weeks of use, for pictures and for judging pages: jobs, domains and tasks in every state, versions, a shop.

Rows by the product's own functions where there are any: it takes a second, where crawls by programs take ten.
"""

import hashlib
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psycopg
import zstandard
from psycopg.types.json import Jsonb

from holdfast.accounts.service import AccountService
from holdfast.archive.image_store import FolderImageStore
from holdfast.crawler.document_rows import document_row
from holdfast.db import documents, page_links
from holdfast.db.connection import Database
from holdfast.db.documents import DocumentKey
from holdfast.domains.service import DomainService, parse_assignments
from holdfast.model.activity import Activity, InFlightRequest, VisitWait, WaitKind
from holdfast.model.auth import Role, Scope
from holdfast.model.commit_batch import DiscoveredUrl, PageRow, Resource, SitemapRow, UrlOutcome, VisitPart
from holdfast.model.domain import Status
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.page_links import LinkFacts
from holdfast.model.parse_result import Availability
from holdfast.model.proxy import Protocol, ProxyMode, ProxyServer
from holdfast.model.task import TaskStatus
from holdfast.model.url import url_key
from holdfast.operations import queries as operations
from holdfast.parse.markdown import as_data
from holdfast.parse.text.extract import extract_document
from holdfast.proxies.queries import proxies as proxy_queries
from holdfast.proxies.queries.proxies import SealedProxy
from holdfast.proxies.records import ProxyOptions
from holdfast.search.service import SearchService
from holdfast.settings import Web
from tests.integration.archive.exchanges import exchange, writer
from tests.support.accounts import WEAK
from tests.support.crawled import Crawl
from tests.support.factories import Store
from tests.support.furnished import put_items, put_links
from tests.support.pools import Pools
from tests.support.shop import Shop, product
from tests.support.stored_images import put_images
from tests.support.tasks import Tasks

PATHS: Final = (
    "/login",
    "/overview",
    "/overview?range=24h",
    "/jobs",
    "/jobs?do=pause",
    "/jobs/new",
    "/jobs/{job}",
    "/jobs/{job}/urls",
    "/jobs/{job}/urls?state=failed",
    "/jobs/{job}/retry?state=failed",
    "/jobs/{job}/domains",
    "/jobs/{job}/compare",
    "/jobs/{job}/log",
    "/jobs/{job}/scope",
    "/jobs/{job}/settings",
    "/jobs/{job}/cancel",
    "/jobs/{job}/again",
    "/jobs/{job}/delete",
    "/domains",
    "/domains?status=blocked&action=unblock",
    "/domains/{domain}",
    "/domains/{domain}/history",
    "/domains/{domain}/history?what=tenures",
    "/domains/{domain}/reset",
    "/domains/{domain}/remove",
    "/pages",
    "/pages/page?url={url}",
    "/pages/text?url={url}",
    "/pages/content?url={url}",
    "/documents?q=edition",
    "/pages/links?url={url}",
    "/pages/source?url={url}",
    "/pages/changes?url={url}",
    "/pages/purge?domain={domain}",
    "/tasks",
    "/tasks/new",
    "/tasks/{task}",
    "/tasks/restart-failed",
    "/batches",
    "/batches/{batch}",
    "/items",
    "/items/item?url={url}&job={job}&parser=shop&position=0",
    "/jobs/{job}/links",
    "/pages/incoming?url={url}",
    "/images",
    "/images/{image}",
    "/products",
    "/products/{product}",
    "/workers",
    "/workers/{worker}",
    "/workers/{worker}/release",
    "/workers/runs",
    "/workers/claims",
    "/workers/claims/release?domain={domain}",
    "/proxies",
    "/proxies/new",
    "/proxies/health",
    "/proxies/cost",
    "/proxies/{proxy}",
    "/proxies/{proxy}/delete",
    "/proxies/domains/{domain}",
    "/alerts",
    "/webhooks",
    "/webhooks/{delivery}",
    "/storage",
    "/operations",
    "/operations/{operation}",
    "/users",
    "/users/{user}",
    "/users/{user}/delete",
    "/users/all/keys",
    "/audit",
    "/account",
    "/jobs/no-such-job",
    "/pages/page?url=https://unknown.example/",
    "/no/such/page",
)
"""Every page of the dashboard; those with names in braces need a store with data. A test compares them with the routes."""
MISSING: Final = {"/jobs/no-such-job", "/pages/page?url=https://unknown.example/", "/no/such/page"}
"""Pages that say that there is nothing at their address."""
_ARTICLES: Final = 24
_SHOPS: Final = ("books.example", "garden.example", "lamps.example", "music.example", "outdoor.example", "toys.example")
_FAILED: Final = (
    ("old-catalogue", Outcome.SERVER_ERROR, 503, "server_error: 503 Service Unavailable"),
    ("export", Outcome.TIMEOUT, None, "timeout: no answer within 30 s"),
    ("checkout", Outcome.FORBIDDEN, 403, "forbidden: 403 Forbidden"),
    ("news/2019", Outcome.NOT_FOUND, 404, "not_found: 404 Not Found"),
)
_DENIED: Final = (
    ("https://partner.example/", "out_of_scope: another host"),
    ("account/login", "robots_denied: Disallow: /account (line 4)"),
    ("calendar/2031/01", "trap: calendar without an end"),
)
_SITEMAPS: Final = (
    SitemapRow("urlset", entries=24, bytes=3120),
    SitemapRow(None, problem="not a sitemap: HTML", bytes=812),
)
_ROBOTS: Final = """# Robots of the shop
User-agent: *
Crawl-delay: 1
Disallow: /account
Allow: /account/help

User-agent: other
Disallow: /

Sitemap: https://shop.example/sitemap.xml
"""
_STATS: Final = """
INSERT INTO stats_minute (at, requests, pages, errors, bytes, latency_ms, frontier_size, active_workers, outcomes, statuses, domains,
    latency)
SELECT at, pages + errors, pages, errors, pages * 41000, (pages + errors) * (180 + 60 * wave),
    (30 + 14 * wave)::bigint, 3,
    jsonb_build_object('ok', pages, 'not_found', errors / 2, 'timeout', errors - errors / 2),
    jsonb_build_object('200', pages, '404', errors / 2),
    '{"active": 7, "pending": 6, "exhausted": 3, "blocked": 2, "unreachable": 1}',
    ARRAY[0, 0, 0, pages / 4, pages / 2, pages / 4, errors, errors / 3]
FROM (SELECT at, n, wave, (360 + 190 * wave + n * 37 % 60)::bigint AS pages, (5 + 4 * wave + n * 13 % 7)::bigint AS errors
      FROM (SELECT date_trunc('minute', now()) - n * interval '1 min' AS at, n, sin(n / 55.0) * 0.7 + sin(n / 11.0) * 0.3 AS wave
            FROM generate_series(2, 1500) n) minute) counted  -- the minutes since then are in _LATELY
"""


_LATELY: Final = """
INSERT INTO stats_fresh (at, kind, label, n, bytes, ms, status, bucket)
SELECT date_bin('10 seconds', clock_timestamp(), 'epoch') - piece * interval '10 s', 'fetch', 'ok', 68 + piece, 2800000, 12000, 200, 5
FROM generate_series(0, 8) piece
"""
_TOTALS: Final = """
INSERT INTO stats_total (name, label, value) VALUES ('outcome', 'ok', 1482310), ('outcome', 'timeout', 9120), ('bytes', '', 60774710000)
ON CONFLICT (name, label) DO UPDATE SET value = stats_total.value + excluded.value
"""
_ALERTS: Final = """
INSERT INTO alerts (kind, subject, value, details, since, resolved_at) VALUES
    ('error_rate', '', 0.31, '{"errors": 412, "requests": 1329, "minutes": 5, "causes": [{"cause": "timeout", "requests": 260}]}',
     now() - interval '12 min', NULL),
    ('worker_silent', 'w3', 540, '{"host": "crawler-2", "domains": 2}', now() - interval '9 min', NULL),
    ('backlog', '', 0.08, '{"from": 9000, "to": 12600, "minutes": 5}', now() - interval '2 days', now() - interval '47 h')
"""
_DELIVERIES: Final = """
INSERT INTO webhook_deliveries (job_id, alert_id, task_id, task_version, event, url, body, attempts, last_status, last_error,
    created_at, last_attempt_at, next_attempt_at, delivered_at, gave_up_at)
VALUES
    (1, NULL, NULL, NULL, 'job.completed', 'https://hooks.example/jobs', '{"name": "news", "state": "completed"}', 1, 204, NULL,
     now() - interval '2 h', now() - interval '2 h', NULL, now() - interval '2 h', NULL),
    (NULL, 1, NULL, NULL, 'alert.firing', 'https://hooks.example/alerts', '{"kind": "error_rate"}', 3, 500, 'The receiver answered 500.',
     now() - interval '12 min', now() - interval '1 min', now() + interval '4 min', NULL, NULL),
    (NULL, NULL, 7, 99, 'task.failed', 'https://old.example/hook', '{"task": 7}', 9, 410, 'The receiver answered 410 Gone.',
     now() - interval '1 day', now() - interval '20 h', NULL, NULL, now() - interval '20 h')
"""


# What servers answer, and what programs of operators say.
_HOSTILE: Final = """
UPDATE webhook_deliveries SET last_error = text, url = address, body = to_jsonb(text) FROM told WHERE last_error IS NOT NULL;
UPDATE crawl_runs SET error_message = text FROM told;
UPDATE domains SET block_reason = text FROM told WHERE block_reason IS NOT NULL;
UPDATE alerts SET details = details || jsonb_build_object('host', text), subject = left(text, 200) FROM told WHERE kind = 'worker_silent';
UPDATE crawled_pages SET etag = left(text, 200), last_modified = left(text, 200), problem = text, canonical = address FROM told;
UPDATE crawl_tasks SET error_message = text FROM told WHERE error_message IS NOT NULL;
UPDATE audit_log SET actor = left(text, 60) FROM told WHERE action = 'edit'
"""


@dataclass(frozen=True)
class JobStore(Store):
    """A test's database, as one job sees it."""

    job_id: int

    @property
    def job(self) -> int:
        return self.job_id


@dataclass
class Furnishing:
    """A store that is being furnished; `text` is added to all that sites and operators may write."""

    database: Database
    connection: psycopg.Connection
    archive: Path
    text: str = ""

    @property
    def store(self) -> Store:
        return Store(self.connection)

    def job(self, name: str, state: str = "pending", **columns: object) -> JobStore:
        """A job in this state."""
        job_id = self.store.new_job(name)
        spec = {"scope": "domain", "exclude": ["/print/", "[?&]sort="], "max_depth": 8, "refresh": True}
        named = {"spec": Jsonb(spec), **columns}
        changes = ", ".join(f"{column} = %({column})s" for column in named)
        self.connection.execute(f"UPDATE crawl_jobs SET {changes} WHERE id = %(id)s", {**named, "id": job_id})
        if state != "pending":
            self.connection.execute("UPDATE crawl_jobs SET state = 'processing' WHERE id = %s", (job_id,))
        if state not in {"pending", "processing"}:
            self.connection.execute("UPDATE crawl_jobs SET state = %s::job_state WHERE id = %s", (state, job_id))
        return JobStore(self.connection, job_id)

    def name(self, beginning: str, length: int) -> str:
        """A name as an operator writes it: of some length, without control characters."""
        return _printable(beginning + self.text)[:length]

    def url(self, beginning: str) -> str:
        """A URL as a store could have it at worst: with what no URL should contain."""
        return _printable(beginning + self.text).encode("ascii", "ignore").decode()[:1500]

    def page(self, title: str, body: str, links: Sequence[str] = ()) -> tuple[PageRow, bytes]:
        """A page as the store has it, and its bytes."""
        title += self.text
        anchors = "".join(f'<li><a href="{link}">{link}</a></li>' for link in links)
        paragraphs = "".join(f"<p>{line}</p>\n" for line in body.splitlines())
        head = f"<!doctype html>\n<html><head><title>{title}</title></head>\n"
        source = f"{head}<body><h1>{title}</h1>\n{paragraphs}<ul>{anchors}</ul></body></html>\n"
        visible = f"{title}\n{body}{self.text}"
        row = PageRow(
            200,
            content_type="text/html; charset=utf-8",
            content_length=len(source.encode()),
            content_hash=hashlib.sha256(visible.encode()).digest(),
            title=_printable(title),
            description=f"{title[:60]} in the shop of examples",
            charset="utf-8",
            links_count=len(links),
            text=zstandard.compress(visible.encode()),
        )
        return row, source.encode()

    def kept(self, url: str, row: PageRow, body: bytes) -> PageRow:
        """The page with its answer in the archive."""
        row.archive = self._keep(url, body)
        return row

    def _keep(self, url: str, body: bytes) -> ArchiveRef:
        segments = writer(self.archive, "w1")
        server = self.name("shop", 3000)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nServer: {server}\r\n\r\n"
        (ref,) = segments.append([exchange(url, body, response_head=head.encode())])
        segments.close()
        return ref


def furnish(database: Database, connection: psycopg.Connection, archive: Path, text: str = "") -> dict[str, str]:
    """Fill a store; returns what the names in `PATHS` stand for. `text` is added to titles and to names that operators write."""
    made = Furnishing(database, connection, archive, text)
    names = {"job": "shop", "domain": "shop.example", "url": "https://shop.example/article/0", "worker": "w1"}
    connection.execute(
        "INSERT INTO workers (name, host, pid, heartbeat_at) VALUES ('w1', 'crawler-1', 4242, now() + interval '10 min'),"
        " ('w2', 'crawler-1', 4243, now() + interval '10 min'), ('w3', %s, 977, now() - interval '9 min')",
        (made.name("crawler-2", 200),),
    )
    _crawl_shop(made)
    # The files are beside the archive, as by default.
    image, *_ = put_images(
        connection, FolderImageStore(archive.parent / "images"), page=names["url"], alt=made.name("A lamp", 200)
    )
    names["image"] = str(image)
    connection.execute(
        "UPDATE domains SET images_found = images_stored + 2, crawl_depth_reached = 1 WHERE domain = 'shop.example'"
    )
    names["odd"] = made.url("https://shop.example/odd")
    _record_links(made)
    _other_domains(made)
    _tasks_and_products(made, names)
    _proxies(made, names)
    _operators(made, names)
    for figures in (_STATS, _LATELY, _TOTALS):
        connection.execute(figures)
    connection.execute("ANALYZE")
    return names


def _record_links(made: Furnishing) -> None:
    """What the shop's job records of links, one of them broken."""
    connection, home = made.connection, "https://shop.example/"
    (job,) = connection.execute(
        """UPDATE crawl_jobs SET spec = spec || '{"links": true, "markdown": true}' WHERE name = 'shop' RETURNING id"""
    ).fetchone() or (0,)
    for number in range(6):
        url = f"{home}article/{number}"
        targets = (home, f"{home}article/0", f"{home}article/{number + 1}", f"{home}news/2019")
        text = made.name("", 200)
        put_links(connection, url, *targets, text=text, invalid="javascript:alert(6)" + text if text else "")
    broken = [
        UrlOutcome(job, url_key(home + path), home + path, 0, outcome, UrlState.FAILED, reason=reason, status=status)
        for path, outcome, status, reason in _FAILED
    ]
    for outcome in broken:
        outcome.link_facts = LinkFacts(None)
    (domain,) = connection.execute("SELECT id FROM domains WHERE domain = 'shop.example'").fetchone() or (0,)
    page_links.record(connection, [VisitPart(domain, 1, broken)])


def _printable(text: str) -> str:
    """A text without the control characters that the store or the parser takes out."""
    return text.replace("\x07", "").replace("\x1b", "")


def address(path: str, names: Mapping[str, str]) -> str:
    """A path of `PATHS` with its names filled in."""
    return path.format(**{name: quote(value, safe="") for name, value in names.items()})


def _crawl_shop(made: Furnishing) -> None:
    """A job with two crawls of a shop, the second under way: articles of two editions, failed and denied URLs, some that wait."""
    connection, home = made.connection, "https://shop.example/"
    shop = made.job("shop", "processing")
    shop.seed(home)
    crawl = Crawl(made.database, shop)
    claim = shop.claim_one("w1")
    articles = [f"{home}article/{number}" for number in range(_ARTICLES)]
    row, body = made.page("The shop of examples", "Welcome.\nOpen every day.", articles)
    failed = [home + path for path, *_ in _FAILED]
    odd = [made.url(home + path) for path in ("odd", "odd/failed", "odd/denied")] if made.text else []
    denied = [
        crawl.found(
            home,
            url if "//" in url else home + url,
            UrlState.DENIED,
            made.name(reason, 300),
        )
        for url, reason in (*_DENIED, *((url, "excluded: odd") for url in odd[2:]))
    ]
    listed = [crawl.found(home, url)._replace(listed=True) for url in articles]
    found = [crawl.found(home, url) for url in (*failed, *odd[:2])]
    maps = [(row, _sitemap(crawl, made, home, row)) for row in _SITEMAPS]
    crawl.commit(
        claim,
        [crawl.outcome(home, Outcome.OK, page=made.kept(home, row, body), duration_ms=42)],
        [*listed, *found, *denied, *(one for _, (one, _) in maps)],
    )
    crawl.commit(
        claim,
        _edition(made, crawl, articles, "spring")
        + _failures(crawl, home)
        + [read for _, (_, read) in maps]
        + _odd(made, crawl, odd),
    )
    connection.execute(
        "UPDATE crawled_pages SET crawled_at = crawled_at - interval '3 days', duration_ms = 40 + (random() * 400)::int"
    )
    connection.execute(
        "UPDATE crawls SET state = 'finished', started_at = now() - interval '3 days 2 h', ended_at = now() - interval '3 days'"
        " WHERE job_id = %s",
        (shop.job,),
    )
    connection.execute("UPDATE crawl_jobs SET created_at = now() - interval '4 days' WHERE id = %s", (shop.job,))
    connection.execute(
        "UPDATE crawl_runs SET status = 'completed', started_at = now() - interval '3 days 2 h', completed_at = now() - interval '3 days',"
        " pages_crawled = 26, bytes = 812345 WHERE id = %s",
        (crawl.run_id,),
    )
    again = connection.execute(
        "UPDATE url_frontier SET state = 'waiting' WHERE job_id = %s AND state = 'done' AND url LIKE '%%/article/%%'",
        (shop.job,),
    ).rowcount
    connection.execute(
        "UPDATE job_domains SET waiting = waiting + %s, done = done - %s WHERE job_id = %s", (again, again, shop.job)
    )
    connection.execute("UPDATE domains SET frontier_size = frontier_size + %s WHERE id = %s", (again, claim.domain_id))
    second = Crawl(made.database, shop)
    fresh = [f"{home}article/new-{number}" for number in range(3)]
    second.commit(claim, _edition(made, second, articles[:16], "summer"), [second.found(home, url) for url in fresh])
    second.commit(claim, _edition(made, second, fresh[:2], "summer"))
    connection.execute(
        "INSERT INTO domain_robots (domain_id, robots_txt_url, robots_txt_content, status, robots_txt_last_fetched, expires_at)"
        " VALUES (%s, 'https://shop.example/robots.txt', %s, 200, now(), now() + interval '1 h')",
        (claim.domain_id, _ROBOTS + _printable(made.text[:2000])),
    )
    activity = Activity(
        {shop.job: 3},
        tuple(InFlightRequest(url, shop.job, 0.3) for url in articles[16:19]),
        2,
        (
            VisitWait("docs.example", shop.job, WaitKind.DELAY, 4.0),
            VisitWait("garden.example", shop.job, WaitKind.RETRY, 40.0, "503"),
        ),
    )
    connection.execute(
        "UPDATE workers SET activity = %s, activity_at = now() WHERE name = 'w1'", (Jsonb(activity.to_json()),)
    )
    connection.execute(
        "UPDATE domains SET response_ms = 182, best_response_ms = 96, settings_version = settings_version WHERE id = %s",
        (claim.domain_id,),
    )
    put_items(
        connection,
        articles[0],
        {"name": f"Lamp{made.text[:200]}", "price": 49.9, "tags": ["light", "steel"]},
        {"name": "Chair"},
    )
    put_items(
        connection,
        articles[1],
        *({"title": f"Review {number}", "stars": number, "by": "Ann"} for number in range(1, 6)),
    )
    _store_documents(made, claim.domain_id, shop.job, articles[:5])


def _store_documents(made: Furnishing, domain_id: int, job_id: int, urls: Sequence[str]) -> None:
    """The main content of these pages, and the search index; one of them is not in it yet."""
    for number, url in enumerate(urls):
        # As text, so that it is in the Markdown and in the snippets of a search.
        note = f"{html.escape(made.text[:2000])} It costs {12 + number} EUR, and we deliver the summer edition of it within three days."
        _, body = made.page(f"Article {number}", f"{note}\nAsk us for a sample.", ["/article/9"])
        row = document_row(as_data(extract_document(body, url)))
        assert row is not None
        if number == len(urls) - 1:
            SearchService(made.database, made.archive.parent).update()
        documents.put(made.connection, DocumentKey(domain_id, job_id, url_key(url)), row, datetime.now(UTC))


def _edition(made: Furnishing, crawl: Crawl, urls: Sequence[str], edition: str) -> list[UrlOutcome]:
    """These pages, fetched in an edition; only the first ones are in the archive, as that takes long."""
    outcomes = []
    hostile = (made.url("javascript:alert(7)"), made.url("data:text/html,")) if made.text else ()
    for number, url in enumerate(urls):
        price = 10 + number if edition == "spring" else 12 + number
        body = f"The {edition} edition.\nIt costs {price} EUR.\nWe deliver within three days.\nAsk us for a sample."
        row, answer = made.page(
            f"Article {number}", body, [f"/article/{number + 1}", "https://partner.example/", *hostile]
        )
        page = made.kept(url, row, answer) if number < 2 else row
        outcomes.append(crawl.outcome(url, Outcome.OK, page=page, duration_ms=60 + 7 * number, bytes=len(answer)))
    return outcomes


def _sitemap(crawl: Crawl, made: Furnishing, home: str, read: SitemapRow) -> tuple[DiscoveredUrl, UrlOutcome]:
    """A sitemap as it was found, and what was read from it."""
    url = made.url(f"{home}sitemap-{read.format or 'old'}.xml")
    problem = read.problem and made.name(read.problem, 500)
    row = SitemapRow(read.format, read.entries, read.skipped, read.bytes, problem)
    outcome = crawl.outcome(url, Outcome.OK, page=None, reason=None, sitemap=row, duration_ms=80, bytes=read.bytes)
    return crawl.found(home, url)._replace(resource=Resource.SITEMAP), outcome


def _odd(made: Furnishing, crawl: Crawl, urls: Sequence[str]) -> list[UrlOutcome]:
    """Of URLs that no crawl would store: one that was fetched, and one that failed."""
    if not urls:
        return []
    row, _ = made.page("Odd", "Odd")
    failed = made.name("server_error: 500 ", 900)
    return [
        crawl.outcome(urls[0], Outcome.OK, page=row),
        crawl.outcome(urls[1], Outcome.SERVER_ERROR, status=500, reason=failed, state=UrlState.FAILED, attempts=4),
    ]


def _failures(crawl: Crawl, home: str) -> list[UrlOutcome]:
    return [
        crawl.outcome(home + path, outcome, status=status, reason=reason, state=UrlState.FAILED, attempts=4)
        for path, outcome, status, reason in _FAILED
    ]


def _other_domains(made: Furnishing) -> None:
    """Jobs in all other states, on domains in all five."""
    connection = made.connection
    market = made.job("market-prices", "processing", schedule="0 3 * * * Europe/Berlin")
    market.seed(*(f"https://{name}/" for name in _SHOPS), rank=120)
    crawl = Crawl(made.database, market, "w2")
    for name in _SHOPS[:3]:
        (claim,) = market.claim("w2", 1)
        home = str(market.value("SELECT base_url FROM domains WHERE id = %s", claim.domain_id)) + "/"
        home = home.replace("//", "/").replace(":/", "://", 1)
        found = [crawl.found(home, f"{home}p/{number}") for number in range(5)]
        row, _ = made.page(f"Prices of {name}", "Prices")
        crawl.commit(claim, [crawl.outcome(home, Outcome.OK, page=row)], found)
        if name == _SHOPS[0]:
            market.release(claim, "w2")
    _finished_job(made)
    docs = made.job("docs", "paused")
    docs.seed("https://docs.example/", "https://handbook.example/")
    made.job("archive-2025", "cancelled")
    if made.text:
        made.job(made.name("", 80), "cancelled")
    made.job("forum", "failed")
    made.job("weekly-report", schedule="7d", next_run_at=datetime.now(UTC) + timedelta(days=3, hours=5)).seed(
        "https://report.example/"
    )
    default = made.store
    default.seed("blocked.example", "limits.example", "gone.example")
    for name, status in (
        ("blocked.example", Status.BLOCKED),
        ("limits.example", Status.BLOCKED),
        ("gone.example", Status.UNREACHABLE),
    ):
        default.become(name, status)
    connection.execute(
        "UPDATE domains SET block_reason_code = 'forbidden', block_reason = '403 Forbidden', retry_count = 2,"
        " next_crawl_after = now() + interval '1 day' WHERE domain = 'blocked.example'"
    )
    connection.execute(
        "UPDATE domains SET block_reason_code = 'dns_failure', block_reason = 'the name does not exist' WHERE domain = 'gone.example'"
    )
    DomainService(made.database).configure(
        "shop.example", parse_assignments(["window=22:00-06:00 Europe/Berlin", "frequency=1d"]), actor="admin"
    )
    DomainService(made.database).configure("handbook.example", {"is_active": False}, actor="admin")


def _finished_job(made: Furnishing) -> None:
    news = made.job("news", "processing")
    news.seed("https://news.example/")
    crawl = Crawl(made.database, news, "w2")
    (claim,) = news.claim("w2", 1)
    row, _ = made.page("News of the day", "News")
    crawl.commit(claim, [crawl.outcome("https://news.example/", Outcome.OK, page=row)])
    news.release(claim, "w2")
    made.connection.execute("UPDATE crawls SET state = 'finished', ended_at = now() WHERE id = %s", (crawl.crawl_id,))
    made.connection.execute(
        "UPDATE crawl_jobs SET state = 'completed', completed_at = now() WHERE id = %s", (news.job,)
    )


def _tasks_and_products(made: Furnishing, names: dict[str, str]) -> None:
    """A product whose price went up and down, tasks in all states, a batch."""
    connection = made.connection
    shop = Shop(connection)
    label = made.name("Lamp", 200)
    for number, price in enumerate(("10", "12", "11.5", "9.9", "9.9", "14", "13")):
        shop.see(4 * number, product(label, price, availability=Availability.IN_STOCK))
    names["product"] = str(connection.execute("SELECT id FROM products").fetchone()[0])  # type: ignore[index]
    shop.see(1, product("Chair", "89", sku="CH-1"), product("Table", None, sku="T-1"), url="https://shop.example/q")
    tasks = Tasks(connection)
    names["batch"] = made.name("spring", 80)
    connection.execute("INSERT INTO crawl_batches (name, created_by) VALUES (%s, 'admin')", (names["batch"],))
    batch = int(str(tasks.value("SELECT id FROM crawl_batches")))
    for status in TaskStatus:
        task_id = tasks.one(f"shop.example/watch/{status}", batch_id=batch, webhook_url="https://hooks.example/told")
        tasks.bring(task_id, status)
    failed = tasks.failed("shop.example/watch/failed-again", batch_id=batch)
    names["task"] = str(failed)


def _proxies(made: Furnishing, names: dict[str, str]) -> None:
    """Proxies of two providers, some of them failing, and the pool of a domain."""
    pools = Pools(made.store)
    ids = pools.add(
        4,
        provider=made.name("acme", 100),
        country_code="DE",
        city="Berlin",
        monthly_cost=Decimal(12),
        max_requests_per_hour=900,
    )
    other = SealedProxy(
        ProxyServer(Protocol.SOCKS5, "exit.example", 1080), None, ProxyOptions(provider="northwind", country_code="SE")
    )
    sweden = proxy_queries.add(made.connection, other, actor="admin")
    assert sweden is not None
    pools.assign("shop.example", *ids[:3], sweden, default=ProxyMode.POOL)
    for number, proxy_id in enumerate(ids[:3], start=1):
        pools.used(
            "shop.example", proxy_id, requests=140 * number, success_count=120 * number, proxy_failures=3 * number
        )
    made.connection.execute("UPDATE domains SET proxy_use = 'pool' WHERE domain = 'shop.example'")
    pools.fails(ids[1], 6)
    pools.fails(ids[2], 12)
    names["proxy"] = str(ids[1])


def _operators(made: Furnishing, names: dict[str, str]) -> None:
    """Alerts, webhooks, operations, users with keys."""
    connection = made.connection
    connection.execute(_ALERTS)
    connection.execute(_DELIVERIES)
    if made.text:
        told = "CREATE TEMPORARY TABLE told AS SELECT %s::text AS text, %s::text AS address"
        connection.execute(told, (made.name("", 900), made.url("https://hooks.example/")))
        for statement in _HOSTILE.split(";"):
            connection.execute(statement.encode())
    names["delivery"] = str(made.store.value("SELECT id FROM webhook_deliveries WHERE event = 'alert.firing'"))
    checks = [{"check": "every claim has a holder", "faults": 0, "seconds": 0.12, "rows": [], "skipped": 0}]
    checks.append(
        {
            "check": "counters are what rows say",
            "faults": 2,
            "seconds": 1.4,
            "rows": [{"domain": "shop.example", "off": 3}],
            "skipped": 0,
        }
    )
    for kind, arguments, result, problem in (
        ("verify", {"archive": True}, {"ok": False, "archive": True, "checks": checks, "names": {}}, None),
        (
            "purge-pages",
            {"domain": "old.example"},
            None,
            made.name("The archive of the server's machine cannot be read.", 900),
        ),
    ):
        operations.ask(connection, kind, arguments, actor="admin")
        taken = operations.take(connection)
        assert taken is not None
        operations.end(connection, taken, result=result, problem=problem)
        names.setdefault("operation", str(taken.id))
    operations.ask(connection, "recalculate-priorities", {}, actor="admin")
    accounts = AccountService(made.database, Web(), WEAK)
    ann, _ = accounts.add("ann", Role.USER, "correct horse battery", actor="admin")
    accounts.add("bob", Role.ADMIN, "correct horse battery", actor="admin")
    accounts.create_key(
        ann.id,
        "nightly export",
        [Scope.READ],
        timedelta(days=90),
        actor="admin",
    )
    accounts.disable("bob", actor="admin")
    names["user"] = "ann"
