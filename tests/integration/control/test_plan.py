"""The plan of a crawl: by limits, earlier crawls, delays and the measured speed, with its assumptions; nothing is written for it."""

import gzip
from typing import Any

import pytest

from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.errors import BadUrl, NotFound, Refused, UsageError
from holdfast.jobs.crawls import CrawlRequest, CrawlService
from holdfast.jobs.planner import LISTED
from holdfast.jobs.records import CrawlPlan, PagesFrom
from holdfast.jobs.seed_import import SeedImporter
from holdfast.jobs.service import JobService
from holdfast.model.url import DEFAULT_RULES
from tests.support.crawled import crawl_a_little
from tests.support.factories import Store


@pytest.fixture
def crawl_service(database: Database) -> CrawlService:
    return CrawlService(database, SeedImporter(database, DEFAULT_RULES, NewDomains()))


def plan(
    service: CrawlService,
    *urls: str,
    file: str | None = None,
    job: str | None = None,
    again: bool = False,
    **options: Any,
) -> CrawlPlan:
    return JobService(service.database, "ann").plan(service, CrawlRequest(urls, file, job, options, again))


def everything(store: Store) -> list[tuple[Any, ...]]:
    """How many rows were ever written to each table."""
    store.connection.execute("SELECT pg_stat_force_next_flush()")
    return store.connection.execute(
        "SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables WHERE schemaname = 'public' ORDER BY 1"
    ).fetchall()


def test_a_new_domain_with_a_limit_takes_its_limit_times_the_delay(crawl_service: CrawlService, store: Store) -> None:
    before = everything(store)
    found = plan(
        crawl_service, "https://a.example/", "https://a.example/x", "b.example", max_pages_per_domain=100, delay=2.0
    )
    assert (found.existing, found.seeds, found.bad, found.domains, found.pages) == (False, 3, 0, 2, 200)
    assert (found.seconds, found.slowest_domain, found.pages_per_second, found.complete) == (
        200.0,
        "a.example",
        None,
        True,
    )
    first, second = found.listed
    assert (first.domain, first.seeds, first.pages, first.pages_from) == ("a.example", 2, 100, PagesFrom.LIMIT)
    assert (second.delay_seconds, second.delay_source, second.seconds_per_page, second.seconds) == (
        2.0,
        "job",
        2.0,
        200.0,
    )
    assert "2 domains reach a limit of 100 pages (`--max-pages-per-domain`)." in found.assumptions
    assert "2 domains: a delay of 2.0 s between requests (`--delay`)." in found.assumptions
    assert any(sentence.startswith("No page was fetched here within 7 days") for sentence in found.assumptions)
    assert everything(store) == before


def test_what_is_not_known_is_said(crawl_service: CrawlService) -> None:
    found = plan(crawl_service, "a.example", "b.example", scope="domain")
    assert (found.pages, found.unknown_domains, found.seconds, found.complete) == (0, 2, None, False)
    assert [one.pages_from for one in found.listed] == [PagesFrom.UNKNOWN] * 2
    assert any("2 domains without a known number of pages" in sentence for sentence in found.assumptions)
    assert any("`--scope domain`" in sentence for sentence in found.assumptions)
    limited = plan(crawl_service, "a.example", "b.example", max_pages=50)
    assert (limited.pages, limited.unknown_domains, limited.complete) == (50, 0, True)


def test_without_links_only_the_seeds_are_pages(crawl_service: CrawlService) -> None:
    for options in ({"max_depth": 0}, {"follow": False}):
        found = plan(crawl_service, "https://a.example/1", "https://a.example/2", delay=1.0, **options)
        assert (found.pages, found.seconds, found.listed[0].pages_from) == (2, 2.0, PagesFrom.SEEDS)


def test_a_domain_that_was_crawled_has_its_pages_and_its_learnt_rate(
    crawl_service: CrawlService, database: Database, store: Store
) -> None:
    crawl_a_little(database, store)
    (known,) = store.connection.execute(
        "SELECT waiting + done FROM job_domains jd JOIN domains d ON d.id = domain_id WHERE domain = 'example.com'"
    ).fetchone() or (0,)
    store.connection.execute(
        "UPDATE domains SET pace_delay_seconds = 7, pace_delay_source = 'learnt', response_ms = 900 WHERE domain = 'example.com'"
    )
    (one,) = plan(crawl_service, "example.com").listed
    assert (one.pages, one.pages_from) == (known, PagesFrom.LAST_CRAWL)
    assert (one.delay_seconds, one.delay_source, one.seconds) == (7.0, "learnt", known * 7.0)
    (limited,) = plan(crawl_service, "example.com", max_pages_per_domain=2).listed
    assert (limited.pages, limited.pages_from, limited.limit) == (2, PagesFrom.LIMIT, 2)
    store.connection.execute("UPDATE domains SET pace_delay_source = 'robots' WHERE domain = 'example.com'")
    assert plan(crawl_service, "example.com", robots=False).listed[0].delay_source == "default"
    # Without a delay the responses decide, as many at a time as the concurrency allows.
    store.connection.execute("UPDATE domains SET pace_delay_seconds = 0 WHERE domain = 'example.com'")
    assert plan(crawl_service, "example.com", delay=0.0, concurrency=3).listed[0].seconds_per_page == 0.3


def test_all_pages_take_at_least_as_long_as_the_measured_speed_allows(
    crawl_service: CrawlService, store: Store
) -> None:
    store.connection.execute(
        "INSERT INTO stats_minute (at, pages) VALUES (now() - interval '1 h', 600), (now() - interval '9 d', 60000)"
    )
    found = plan(crawl_service, *(f"d{n}.example" for n in range(100)), max_pages_per_domain=100, delay=1.0)
    assert (found.pages, found.pages_per_second, found.slowest_seconds, found.seconds) == (10_000, 10.0, 100.0, 1_000.0)
    assert any("10.0 pages/s, the best minute of 7 days" in sentence for sentence in found.assumptions)


def test_an_existing_job_is_planned_by_what_waits_or_by_all_that_it_knows(
    crawl_service: CrawlService, database: Database, store: Store
) -> None:
    crawl_a_little(database, store)
    before = everything(store)
    rows = store.connection.execute("SELECT sum(waiting), sum(waiting + done), count(*) FROM job_domains").fetchone()
    assert rows is not None
    left, whole = plan(crawl_service, job="default"), plan(crawl_service, job="default", again=True)
    assert (left.existing, left.pages, whole.pages, left.domains) == (True, *map(int, rows))
    assert any("`--again` plans all known URLs" in sentence for sentence in left.assumptions)
    assert everything(store) == before
    with pytest.raises(NotFound, match="no job called 'nothing'"):
        plan(crawl_service, job="nothing")
    with pytest.raises(Refused, match="the one of all tasks"):
        plan(crawl_service, job="tasks")


def test_bad_seeds_have_their_lines_and_only_the_first_domains_are_listed(
    crawl_service: CrawlService, tmp_path: Any
) -> None:
    lines = [f"d{number}.example" for number in range(LISTED + 20)]
    lines[4] = "not a domain"
    (tmp_path / "seeds.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    found = plan(crawl_service, "nonsense://x", "a.example", file=str(tmp_path / "seeds.gz"), max_pages_per_domain=10)
    assert [(bad.line, bool(bad.problem)) for bad in found.bad_seeds] == [(0, True), (5, True)]
    assert (found.seeds, found.bad, found.domains, len(found.listed), found.pages) == (
        LISTED + 20,
        2,
        LISTED + 20,
        LISTED,
        10 * (LISTED + 20),
    )
    (tmp_path / "cut.gz").write_bytes(gzip.compress("\n".join(lines).encode())[:-20])
    assert "damaged or incomplete" in str(plan(crawl_service, file=str(tmp_path / "cut.gz")).problem)
    assert [bad.line for bad in plan(crawl_service, "a.example", "nonsense://x").bad_seeds] == [2]


def test_what_cannot_be_planned_is_refused(crawl_service: CrawlService, store: Store) -> None:
    with pytest.raises(BadUrl):
        plan(crawl_service, "nonsense://x")
    with pytest.raises(UsageError, match="Name what to plan"):
        plan(crawl_service)
    with pytest.raises(UsageError):
        plan(crawl_service, "a.example", include=("(",))
    with pytest.raises(Refused, match="There is a job called 'default' already"):
        plan(crawl_service, "a.example", job="default")


def test_a_domain_that_is_blocked_is_named(crawl_service: CrawlService, store: Store) -> None:
    store.seed("a.example")
    store.connection.execute("UPDATE domains SET is_active = false WHERE domain = 'a.example'")
    found = plan(crawl_service, "a.example", max_pages=5)
    assert found.listed[0].stopped
    assert any(sentence.startswith("1 domain blocked, unreachable or switched off") for sentence in found.assumptions)
