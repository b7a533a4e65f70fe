"""Items: due with the page, replaced as a whole, fenced by the answer that was parsed, gone with their page."""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from holdfast.db import domain_removal, items, jobs
from holdfast.db.connection import Database
from holdfast.db.items import FIRST, Due, PageKey, Parsed
from holdfast.items import queries
from holdfast.items.records import ParseCounts
from holdfast.model.commit_batch import PageRow
from holdfast.model.domain import Claim
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import Outcome
from holdfast.model.parse_result import Extracted, ParseDone, Product
from holdfast.model.url import url_key
from holdfast.pages import queries as pages
from tests.support.crawled import HOME, Crawl
from tests.support.factories import Store
from tests.support.invariants import assert_invariants
from tests.support.races import beside, wait_until_blocked


class Site:
    """example.com, held and crawled with a parser on."""

    def __init__(self, database: Database, store: Store) -> None:
        self.store, self.connection = store, store.connection
        self.crawl = Crawl(database, store)
        store.seed(HOME)
        self.claim: Claim = store.claim_one(self.crawl.worker)
        self.number = 0

    def fetch(self, url: str = HOME, outcome: Outcome = Outcome.OK, parser: str | None = "shop") -> ArchiveRef:
        """Commit another answer for a URL."""
        self.number += 1
        again = "UPDATE url_frontier SET state = 'waiting' WHERE url_key = %s AND state <> 'waiting'"
        if self.connection.execute(again, (url_key(url),)).rowcount:
            self.connection.execute("UPDATE job_domains SET waiting = waiting + 1, done = done - 1")
            self.connection.execute("UPDATE domains SET frontier_size = frontier_size + 1")
        ref = ArchiveRef("w1/1.warc.gz", self.number, 9, b"d" * 32)
        page = PageRow(
            304 if outcome is Outcome.NOT_MODIFIED else 200, archive=ref, parsers=(parser,) if parser else ()
        )
        self.crawl.commit(self.claim, [self.crawl.outcome(url, outcome, page=page)])
        return ref

    def due(self, **only: Any) -> list[Due]:
        return items.due(self.connection, "w1", parsers=["shop", "other"], **only)

    def page(self, ref: ArchiveRef, parser: str = "shop") -> Due:
        return Due(PageKey(self.claim.domain_id, self.store.job, url_key(HOME), parser), ref)

    def save(self, *found: dict[str, Any], page: Due, version: str = "1", **how: Any) -> int:
        done = ParseDone(page.key.parser, version, Extracted(items=found))
        return items.save(self.connection, [Parsed(page, HOME, done, found, **how)], attempts=2)

    def fail(self, page: Due, **how: Any) -> int:
        return items.save(self.connection, [Parsed(page, HOME, None, error="it hung", **how)], attempts=2)

    def items(self) -> list[tuple[int, Any]]:
        rows = self.connection.execute("SELECT position, data FROM items ORDER BY parser, position")
        return [(place, data) for place, data in rows]


@pytest.fixture
def site(database: Database, store: Store) -> Site:
    return Site(database, store)


def test_a_page_is_due_for_its_parser_when_it_is_committed(site: Site) -> None:
    ref = site.fetch()
    assert site.due() == [site.page(ref)]
    assert queries.count_due(site.connection, folders=["w1"]) == [("shop", True, 1)]
    assert queries.count_due(site.connection, folders=["w2"]) == [("shop", False, 1)]
    assert items.due(site.connection, "w2", parsers=["shop"]) == [], "it lies on another machine"
    assert items.due(site.connection, "w1", parsers=["other"]) == [], "this parser is not known here"
    assert site.due(after=site.page(ref).key) == [] == site.due(age=60.0)


def test_without_a_parser_or_an_archive_nothing_is_due(site: Site) -> None:
    ref = site.fetch(parser=None)
    site.fetch(outcome=Outcome.NOT_MODIFIED)
    assert site.due() == [site.page(ref)]
    assert queries.count_due(site.connection, folders=["w1"]) == [("shop", True, 1)], (
        "not modified: the answer of before, for a new parser"
    )
    site.crawl.commit(site.claim, [site.crawl.outcome(HOME + "none", Outcome.OK, page=PageRow(200, parsers=("shop",)))])
    assert len(site.due()) == 1


def test_a_parse_replaces_the_items_of_its_page_as_a_whole(site: Site) -> None:
    page = site.page(site.fetch())
    assert site.save({"a": 1}, {"a": 2}, {"a": 3}, page=page) == 1
    assert site.items() == [(0, {"a": 1}), (1, {"a": 2}), (2, {"a": 3})]
    assert site.due() == []
    assert site.save({"a": 9}, page=page) == 0, "a second process had it, too: not due any more"
    assert site.save({"a": 9}, page=page, version="2", again=True) == 1
    assert site.items() == [(0, {"a": 9})]
    assert_invariants(site.connection)


def test_a_page_that_was_crawled_again_keeps_nothing_of_an_older_parse(site: Site) -> None:
    old = site.page(site.fetch())
    new = site.page(site.fetch())
    assert site.save({"price": "old"}, page=old) == 0
    assert site.save({"price": "new"}, page=new) == 1
    assert site.save({"price": "old"}, page=old, again=True) == 0
    assert site.items() == [(0, {"price": "new"})]


def test_not_modified_after_a_parse_is_not_due_again(site: Site) -> None:
    site.save({"a": 1}, page=site.page(site.fetch()))
    site.fetch(outcome=Outcome.NOT_MODIFIED)  # with a record of its own in the archive, which has no body
    assert site.due() == []


def test_a_failed_parse_is_tried_again_so_often_and_leaves_the_older_items(site: Site) -> None:
    site.save({"a": 1}, page=site.page(site.fetch()))
    page = site.page(site.fetch())
    assert site.fail(page) == 1
    assert site.due() == [page], "it has another attempt"
    assert site.fail(page) == 1
    assert site.due() == []
    assert site.items() == [(0, {"a": 1})]
    assert queries.parse_counts(site.connection, site.store.job) == ParseCounts(0, 1, 0, 1, "it hung")
    again = site.page(site.fetch())
    assert site.fail(again, final=True) == 1
    assert site.due() == [], "what no other attempt would change is not tried again"


def test_what_the_database_cannot_hold_costs_only_its_page(site: Site) -> None:
    good = site.page(site.fetch())
    bad = Due(
        PageKey(good.key.domain_id, good.key.job_id, url_key(HOME + "b"), "shop"), ArchiveRef("w1/1", 99, 9, b"d" * 32)
    )
    site.crawl.commit(
        site.claim,
        [site.crawl.outcome(HOME, Outcome.OK, page=PageRow(200))],
        [site.crawl.found(HOME, HOME + "b")],
    )
    page = PageRow(200, archive=bad.ref, parsers=("shop",))
    site.crawl.commit(site.claim, [site.crawl.outcome(HOME + "b", Outcome.OK, page=page)])
    done = ParseDone("shop", "1", Extracted())
    results = [Parsed(good, HOME, done, [{"a": 1}]), Parsed(bad, HOME + "b", done, [{"a": "\0"}])]
    assert items.save(site.connection, results, attempts=2) == 2
    assert site.items() == [(0, {"a": 1})]
    counts = queries.parse_counts(site.connection, site.store.job)
    assert (counts.failed, counts.parsed) == (1, 1)
    assert "cannot hold" in (counts.error or "")


def test_products_of_a_crawl_need_no_task(site: Site) -> None:
    lamp = Product(name="Lamp", price=Decimal(10), currency="EUR", sku="L")
    page = site.page(site.fetch())
    done = ParseDone("shop", "1", Extracted({}, (lamp,)))
    assert items.save(site.connection, [Parsed(page, HOME, done, done.extracted.page_items())], attempts=2) == 1
    assert site.items() == [(0, {"name": "Lamp", "price": "10", "currency": "EUR", "sku": "L"})]
    found = site.connection.execute("SELECT name, price, page_url, last_task_id FROM products").fetchall()
    assert found == [("Lamp", Decimal(10), HOME, None)]
    sofa = Product(name="Sofa", price=Decimal(99), currency="EUR", sku="S")
    better = ParseDone("shop", "2", Extracted({}, (sofa,)))
    items.save(site.connection, [Parsed(page, HOME, better, better.extracted.page_items(), again=True)], attempts=2)
    names = site.connection.execute("SELECT name FROM products").fetchall()
    assert names == [("Sofa",)], "that answer was wrongly said to show a lamp"
    cheaper = ParseDone("shop", "2", Extracted({}, (Product(name="Sofa", price=Decimal(89), currency="EUR", sku="S"),)))
    items.save(site.connection, [Parsed(site.page(site.fetch()), HOME, cheaper)], attempts=2)
    prices = site.connection.execute("SELECT price FROM product_prices ORDER BY fetched_at").fetchall()
    assert prices == [(Decimal(99),), (Decimal(89),)]


def _purge(site: Site) -> None:
    pages.purge(site.connection, pages.order_purge(site.connection, job_id=None, domain_id=None, before=None))


def _remove(site: Site) -> None:
    removed = domain_removal.remove(site.connection, "example.com")
    while domain_removal.delete_chunk(site.connection, removed.id):
        pass


def _delete_job(site: Site) -> None:
    while jobs.forget(site.connection, site.store.job):
        pass


@pytest.mark.parametrize("way", [_purge, _remove, _delete_job])
def test_items_are_deleted_with_their_pages(site: Site, way: Callable[[Site], None]) -> None:
    site.save({"a": 1}, page=site.page(site.fetch()))
    site.store.release(site.claim, site.crawl.worker)
    way(site)
    assert site.items() == []
    assert site.connection.execute("SELECT count(*) FROM page_parses").fetchone() == (0,)
    late = site.page(ArchiveRef("w1/1.warc.gz", 1, 9, b"d" * 32))
    assert site.save({"a": 1}, page=late, again=True) == 0, "a parser that comes late writes nothing"


def test_lists_go_by_domain_url_and_job(site: Site) -> None:
    site.save({"a": 1}, {"a": 2}, page=site.page(site.fetch()))
    domain = site.claim.domain_id
    first = queries.ITEMS.page(site.connection, {"domain": domain, "url_key": url_key(HOME)}, order="key", limit=1)
    assert [(row.url, row.data, row.parser, row.parser_version) for row in first.rows] == [
        (HOME, {"a": 1}, "shop", "1")
    ]
    rest = queries.ITEMS.page(site.connection, {"job": site.store.job}, order="key", after=first.next, limit=5)
    assert [row.data for row in rest.rows] == [{"a": 2}]
    assert rest.next is None
    everything = queries.chunks(site.connection, job_id=None, domain_id=domain, parser="shop", size=1)
    assert [len(chunk) for chunk in everything] == [1, 1]


def test_pages_that_a_job_crawled_before_it_had_a_parser_can_be_made_due(site: Site) -> None:
    ref = site.fetch(parser=None)
    assert queries.make_job_due(site.connection, site.store.job, "shop") == 1
    assert site.due() == [site.page(ref)]
    site.save({"a": 1}, page=site.page(ref))
    assert queries.make_job_due(site.connection, site.store.job, "shop") == 0
    assert site.due() == []


@pytest.mark.parametrize("how", ["job", "pages"])
def test_who_makes_old_pages_due_does_not_take_back_an_answer_that_comes_meanwhile(
    site: Site, database: Database, how: str
) -> None:
    site.fetch(parser=None)
    new = ArchiveRef("w1/1.warc.gz", 99, 9, b"d" * 32)
    key = site.page(new).key
    with beside(database) as (other, thread):
        with site.connection.transaction():  # as a commit does
            site.connection.execute("UPDATE crawled_pages SET crawled_at = clock_timestamp(), archive_offset = 99")
            site.connection.execute(
                """INSERT INTO page_parses (domain_id, job_id, url_key, parser, fetched_at, archive_segment, archive_offset,
                                            archive_length, payload_digest)
                   SELECT domain_id, job_id, url_key, 'shop', crawled_at, archive_segment, archive_offset, archive_length,
                          payload_digest FROM crawled_pages"""
            )
            make: Callable[[], object] = partial(queries.make_known, other.connection, [key])
            if how == "job":
                make = partial(queries.make_job_due, other.connection, key.job_id, "shop")
            making = thread.submit(make)
            assert wait_until_blocked(site.connection, other.connection, making)
        making.result(timeout=20)
    assert site.due() == [site.page(new)], "not the older answer, which the other one still saw"


def test_pages_that_were_never_parsed_can_be(site: Site) -> None:
    ref = site.fetch(parser=None)
    (page,) = queries.archived(site.connection, limit=9)
    assert (page.ref, page.url, page.parses, page.domain_parser) == (ref, HOME, {}, None)
    queries.make_known(site.connection, [site.page(ref, "other").key])
    assert site.due() == [], "known is not due"
    assert site.save({"a": 1}, page=site.page(ref, "other"), again=True) == 1
    assert queries.archived(site.connection, limit=9)[0].parses == {"other": "1"}
    assert queries.archived(site.connection, limit=9, after=FIRST[:3], job_id=999) == []
