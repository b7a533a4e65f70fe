"""A store with something of everything, so that every route of the API has something to say."""

import json
from typing import Any

import zstandard

from holdfast.db import items, page_links
from holdfast.db.connection import Connection, Database
from holdfast.db.items import Due, PageKey, Parsed
from holdfast.domains.service import DomainService, parse_assignments
from holdfast.model.commit_batch import UrlOutcome, VisitPart
from holdfast.model.domain import Status
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.page_links import LinkFacts, LinkKind, PageLinks, RecordedLink
from holdfast.model.parse_result import Extracted, ParseDone
from holdfast.model.url import url_key
from holdfast.operations import queries as operations
from tests.support.crawled import HOME, crawl_a_little
from tests.support.factories import Store
from tests.support.pools import Pools
from tests.support.shop import Shop, product


def put_items(connection: Connection, url: str, *found: dict[str, Any], parser: str = "shop") -> None:
    """Items of a page that was crawled, as if a parser had found them."""
    due = """
        INSERT INTO page_parses (domain_id, job_id, url_key, parser, fetched_at, archive_segment, archive_offset, archive_length,
                                 payload_digest)
        SELECT domain_id, job_id, url_key, %s, crawled_at, 'w1/1.warc.gz', 1, 1, ''::bytea FROM crawled_pages WHERE url_key = %s
        RETURNING domain_id, job_id
    """
    for domain_id, job_id in connection.execute(due, (parser, url_key(url))).fetchall():
        page = Due(PageKey(domain_id, job_id, url_key(url), parser), ArchiveRef("w1/1.warc.gz", 1, 1, b""))
        done = ParseDone(parser, "1", Extracted(items=found))
        assert items.save(connection, [Parsed(page, url, done, found)], attempts=1) == 1


def put_links(connection: Connection, url: str, *targets: str, text: str = "", invalid: str = "") -> None:
    """Links of a page that was crawled, as if its job had recorded them. `text`: added to their texts; `invalid`: a link that is no URL."""
    links = tuple(RecordedLink(target, f"to {target}{text}", text, LinkKind.A) for target in targets)
    if invalid:
        links += (RecordedLink(invalid, f"invalid{text}", "", LinkKind.A, valid=False),)
    packed = zstandard.ZstdCompressor().compress(json.dumps(links).encode())
    of_page = "SELECT domain_id, job_id FROM crawled_pages WHERE url_key = %s"
    for domain_id, job_id in connection.execute(of_page, (url_key(url),)).fetchall():
        row = UrlOutcome(job_id, url_key(url), url, 0, Outcome.OK, UrlState.DONE)
        row.link_facts = LinkFacts(PageLinks(links), packed=packed)
        page_links.record(connection, [VisitPart(domain_id, 1, [row])])


def furnish(database: Database) -> None:
    """Pages, URLs in every state, jobs, runs, tasks, products, proxies, webhooks, alerts, operations."""
    with database.session() as connection:
        store = Store(connection)
        crawl_a_little(database, store)
        put_links(connection, HOME, HOME, "https://example.com/a")
        put_items(connection, HOME, {"name": "Lamp", "tags": ["a", "b"]}, {"name": "=Sofa"})
        store.new_job("shop")
        store.seed("a.example/", "blocked.example/")
        store.become("blocked.example", Status.BLOCKED)
        shop = Shop(connection)
        for number, price in enumerate(("10", "12", "11")):
            shop.see(number, product(price=price))
        shop.tasks.failed("a.example/failed")
        shop.tasks.one("a.example/later", webhook_url="https://hooks.example/told")
        pools = Pools(store)
        ids = pools.add(3, provider="acme", country_code="DE")
        pools.assign("example.com", *ids)
        pools.fails(ids[1], 6)
        connection.execute("INSERT INTO crawl_batches (name, created_by) VALUES ('spring', 'test')")
        connection.execute("INSERT INTO workers (name, host, pid) VALUES ('w1', 'host', 1)")
        asked = operations.ask(connection, "verify", {"archive": True}, actor="test")
        taken = operations.take(connection)
        assert taken is not None
        assert taken.id == asked.id
        operations.end(connection, taken, result={"ok": True}, problem=None)
    DomainService(database).configure(
        "example.com", parse_assignments(["window=22:00-06:00", "frequency=1d"]), actor="test"
    )
