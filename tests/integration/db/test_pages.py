"""Pages one by one, and forgotten: their URLs stay done, and no check holds it against the store."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.db import audit, sweeper
from holdfast.db.connection import Database
from holdfast.domains import queries as domains
from holdfast.errors import NotFound, UsageError
from holdfast.model.commit_batch import PageRow
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import Outcome
from holdfast.pages import queries as pages
from holdfast.pages.records import PageFilter
from holdfast.pages.service import PageService
from tests.support.batches import Worker, outcome
from tests.support.crawled import HOME, NASTY, Crawl, crawl_a_little
from tests.support.factories import Store
from tests.support.invariants import assert_invariants, violations

WHO = "ann"
ARCHIVED = ArchiveRef("w1-1.warc.gz", 10, 200, b"d" * 32)
KEPT = "I3 every page in the log is kept, unless its job was deleted, its domain removed, or the page purged"


@pytest.fixture
def crawl(database: Database, store: Store) -> Crawl:
    return crawl_a_little(database, store, ARCHIVED)


@pytest.fixture
def desk(database: Database) -> PageService:
    return PageService(database)


def kept(store: Store) -> list[str]:
    found = store.connection.execute(
        "SELECT f.url FROM crawled_pages JOIN url_frontier f USING (domain_id, job_id, url_key) ORDER BY f.url"
    )
    return [row[0] for row in found]


# One by one -----------------------------------------------------------------------------------------------------------


def test_all_that_is_known_of_a_page(crawl: Crawl, desk: PageService) -> None:
    (facts,) = desk.facts(HOME)
    known: dict[str, Any] = {
        "url": HOME,
        "domain": "example.com",
        "job": "default",
        "state": "done",
        "status": 200,
        "outcome": "ok",
        "content_type": "text/html; charset=utf-8",
        "charset": "utf-8",
        "content_length": 1234,
        "content_hash": bytes(range(32)).hex(),
        "title": NASTY,
        "description": "A page",
        "links_count": 5,
        "duration_ms": 42,
        "archive_segment": "w1-1.warc.gz",
        "archive_offset": 10,
        "archive_length": 200,
        "has_text": True,
        "parent_url": None,
    }
    assert {name: getattr(facts, name) for name in known} == known
    assert (facts.problem, facts.error_count) == (None, 0)
    assert facts.crawled_at is not None
    assert crawl.store.row("example.com")["pages_crawled"] == 3


def test_a_url_that_was_never_answered_has_facts_too(crawl: Crawl, desk: PageService) -> None:
    (slow,) = desk.facts(f"{HOME}slow", "default")
    assert (slow.state, slow.attempts, slow.crawled_at, slow.outcome) == ("waiting", 1, None, None)
    assert slow.reason == "timeout: no answer within 30 s"
    assert (slow.error_count, slow.problem) == (1, None), "it is tried once more"
    assert slow.parent_url == HOME
    assert slow.next_attempt_at is not None
    news = crawl.store.new_job("news")
    crawl.store.seed(HOME, job=news)
    sweeper.sweep(crawl.store.connection, run_silence=timedelta(minutes=30))
    assert [facts.job for facts in desk.facts(HOME)] == ["default", "news"], "the newest answer first"
    assert [facts.job for facts in desk.facts(HOME, news)] == ["news"]


def test_an_error_has_a_text_wherever_it_is_read(database: Database, store: Store, desk: PageService) -> None:
    worker = Worker(database, store)
    store.seed(*(f"{HOME}{name}" for name in ("gone", "broken", "dead", "good")))
    claim = store.claim_one()
    rows = [
        outcome(
            f"{HOME}gone", store.job, Outcome.NOT_FOUND, status=404, page=PageRow(404), reason="not_found: HTTP 404"
        ),
        outcome(
            f"{HOME}broken",
            store.job,
            Outcome.SERVER_ERROR,
            status=500,
            page=PageRow(500),
            reason="server_error: HTTP 500",
        ),
        outcome(
            f"{HOME}dead", store.job, Outcome.TIMEOUT, status=None, reason="timeout: no answer within 30 s", attempts=3
        ),
        outcome(f"{HOME}good", store.job, page=PageRow(200, problem="the parser was stopped")),
    ]
    worker.commit(worker.part(claim, rows))
    told = {name: desk.facts(f"{HOME}{name}")[0] for name in ("gone", "broken", "dead", "good")}
    assert {name: (one.problem, one.error_count > 0) for name, one in told.items()} == {
        "gone": ("not_found: HTTP 404", False),
        "broken": ("server_error: HTTP 500", True),
        "dead": ("timeout: no answer within 30 s", True),
        "good": ("the parser was stopped", False),
    }
    stored = store.connection.execute("SELECT status, problem FROM crawled_pages WHERE problem IS NOT NULL")
    assert dict(stored.fetchall()) == {
        200: "the parser was stopped",
        404: "not_found: HTTP 404",
        500: "server_error: HTTP 500",
    }


def test_what_nobody_has_met_is_not_found(crawl: Crawl, desk: PageService) -> None:
    with pytest.raises(NotFound, match="is not in the frontier"):
        desk.facts(f"{HOME}nothing")
    with pytest.raises(NotFound, match="no domain"):
        desk.facts("https://nobody.example/")
    with pytest.raises(NotFound, match="no job called"):
        desk.facts(HOME, "nothing")
    assert crawl.run_id


# Forgotten ------------------------------------------------------------------------------------------------------------


def test_pages_are_forgotten_and_their_urls_stay_done(crawl: Crawl, desk: PageService) -> None:
    store = crawl.store
    frontier = store.everything()["url_frontier"]
    counters = [store.row("example.com")[name] for name in ("pages_crawled", "pages_discovered", "frontier_size")]
    assert len(kept(store)) == 4
    told: list[int] = []
    purge = desk.purge(actor=WHO, watch=told.append)
    assert (purge.forgotten, told) == (4, [4])
    assert kept(store) == []
    assert store.value("SELECT count(*) FROM page_texts") == 0
    assert store.everything()["url_frontier"] == frontier
    assert [
        store.row("example.com")[name] for name in ("pages_crawled", "pages_discovered", "frontier_size")
    ] == counters
    assert_invariants(store.connection)
    (entry,) = audit.listing(store.connection, kind="pages")
    assert (entry.action, entry.actor, entry.details["job"]) == ("purge", WHO, None)


def test_a_page_that_is_missing_without_an_order_is_still_a_fault(crawl: Crawl, desk: PageService) -> None:
    """The check has not become one that nothing can fail."""
    store = crawl.store
    desk.purge(actor=WHO, job="default", before=datetime.now(UTC) - timedelta(days=1))
    desk.purge(actor=WHO, domain="other.example")
    assert len(kept(store)) == 4
    store.connection.execute("DELETE FROM page_texts")
    store.connection.execute("DELETE FROM crawled_pages WHERE title = 'A'")
    assert set(violations(store.connection)) == {KEPT}


def test_only_what_is_meant_is_forgotten(crawl: Crawl, desk: PageService) -> None:
    store = crawl.store
    news = store.new_job("news")
    assert desk.purge(actor=WHO, job=news).forgotten == 0
    assert desk.purge(actor=WHO, domain="other.example").forgotten == 0
    middle = store.value("SELECT max(crawled_at) FROM crawled_pages")
    assert isinstance(middle, datetime)
    assert desk.purge(actor=WHO, domain=HOME, job="default", before=middle).forgotten == 3
    assert kept(store) == [f"{HOME}a/b"]
    assert_invariants(store.connection)


def test_chunk_by_chunk_every_moment_is_right(crawl: Crawl, desk: PageService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "CHUNK", 1)
    steps: list[int] = []

    def watch(gone: int) -> None:
        steps.append(gone)
        assert_invariants(crawl.store.connection)

    assert desk.purge(actor=WHO, watch=watch).forgotten == 4
    assert steps == [1, 2, 3, 4, 4]


def test_an_order_that_covers_others_takes_their_place(crawl: Crawl, desk: PageService) -> None:
    store = crawl.store
    count = "SELECT count(*) FROM page_purges"
    desk.purge(actor=WHO, domain="example.com", before=datetime(2020, 1, 1, tzinfo=UTC))
    desk.purge(actor=WHO, job="default", domain="example.com")
    assert store.value(count) == 2, "the second says less of jobs, and more of time"
    desk.purge(actor=WHO, domain="example.com")
    assert store.value(count) == 1
    desk.purge(actor=WHO, domain="other.example")
    assert store.value(count) == 2
    desk.purge(actor=WHO)
    assert store.value(count) == 1
    assert_invariants(store.connection)


def test_what_a_worker_is_about_to_fetch_once_more_stays(crawl: Crawl, desk: PageService) -> None:
    """Its answer may be "not modified", which says nothing without what was there."""
    store = crawl.store
    domains.reset(store.connection, "example.com", why="test")
    sweeper.sweep(store.connection, run_silence=timedelta(minutes=30))
    claims = {claim.domain: claim for claim in store.claim(crawl.worker, 2)}
    assert desk.purge(actor=WHO).forgotten == 0
    crawl.commit(claims["example.com"], [crawl.outcome(HOME, Outcome.NOT_MODIFIED, page=None)])
    (facts,) = desk.facts(HOME)
    assert (facts.outcome, facts.title) == ("not_modified", NASTY)
    assert desk.purge(actor=WHO).forgotten == 1, "that one does not wait any more"
    store.release(claims["example.com"], crawl.worker)
    assert desk.purge(actor=WHO).forgotten == 3, "nobody holds it: the others are fetched in full"
    assert_invariants(store.connection)


def test_what_is_fetched_afterwards_is_kept(crawl: Crawl, desk: PageService) -> None:
    store = crawl.store
    desk.purge(actor=WHO)
    domains.reset(store.connection, "example.com", why="test")
    sweeper.sweep(store.connection, run_silence=timedelta(minutes=30))
    for claim in store.claim(crawl.worker, 2):
        if claim.domain == "example.com":
            crawl.commit(claim, [crawl.outcome(HOME, Outcome.OK)])
        store.release(claim, crawl.worker)
    assert kept(store) == [HOME]
    assert_invariants(store.connection)


def test_an_order_is_said_so_that_it_means_the_same_later(crawl: Crawl, desk: PageService) -> None:
    with pytest.raises(UsageError, match=r"`\?confirm=all` forgets all pages"):
        desk.check_purge()
    with pytest.raises(UsageError, match="with its time zone"):
        desk.check_purge(before=datetime(2026, 2, 5))  # noqa: DTZ001 — that is the point
    with pytest.raises(NotFound):
        desk.check_purge(domain="nobody.example")
    said = desk.check_purge("default", "https://example.com/x")
    assert (said["job"], said["domain"]) == (crawl.store.job, "example.com")
    before = datetime.fromisoformat(said["before"])
    assert before <= datetime.now(UTC) + timedelta(minutes=1)
    later = desk.check_purge(before=datetime(2999, 1, 1, tzinfo=UTC))
    assert datetime.fromisoformat(later["before"]) < datetime(2999, 1, 1, tzinfo=UTC), "not beyond now"


# In lists -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (PageFilter(), {"", "a", "a/b", "gone"}),
        (PageFilter(domain="example.com", job="default"), {"", "a", "a/b", "gone"}),
        (PageFilter(domain="other.example"), set()),
        (PageFilter(status=404), {"gone"}),
        (PageFilter(status_class=2), {"", "a", "a/b"}),
        (PageFilter(outcome=Outcome.OK, content_type="text/html; "), {""}),
        (PageFilter(content_hash=bytes(range(32)).hex()), {""}),
        (PageFilter(since=datetime(2999, 1, 1, tzinfo=UTC)), set()),
        (PageFilter(until=datetime(2999, 1, 1, tzinfo=UTC)), {"", "a", "a/b", "gone"}),
    ],
)
def test_lists_show_what_was_asked_for(crawl: Crawl, query: PageFilter, expected: set[str]) -> None:
    desk = PageService(crawl.database)
    for order in ("newest", "oldest", "key"):
        found = desk.page(query, order=order)
        assert {row.url for row in found.rows} == {HOME + path for path in expected}
        assert found.next is None
    times = [row.crawled_at for row in desk.page(query).rows]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    "query",
    [
        PageFilter(status=42),
        PageFilter(status_class=0),
        PageFilter(content_hash="xyz"),
        PageFilter(content_type=""),
        PageFilter(content_type="a\0b"),
        PageFilter(job=0),
        PageFilter(since=datetime(2026, 2, 5)),  # noqa: DTZ001 — that is the point
    ],
)
def test_filters_that_cannot_be_meant_are_refused(query: PageFilter) -> None:
    with pytest.raises(UsageError):
        query.given()
