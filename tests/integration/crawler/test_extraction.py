"""Parsers on crawls: every page has its items once, whatever hangs, dies or is killed, and the crawl does not wait."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import factories
from holdfast.control.reparsing import PageReparser, ReparseReport, Selection
from holdfast.crawler.extraction import Extraction, ExtractionCounts, parse_due
from holdfast.domains import queries as domains
from holdfast.items import queries as item_queries
from holdfast.parse.plugin_pool import PluginPool
from holdfast.parse.plugin_registry import discover
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.archived import write_parser
from tests.support.crawls import Crawls, wait_for

PAGES = 16
ITEM = "return [{'url': document.url, 'size': len(document.body)}, {'second': True}]"


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(31, 1, Site(PAGES, 6, 2000))) as served:
        yield served


@pytest.fixture
def folder(crawls: Crawls, tmp_path: Path) -> Path:
    parsers = tmp_path / "parsers"
    crawls.set(parsing={"folder": str(parsers), "timeout": 1.0})
    return parsers


def urls_with_items(crawls: Crawls) -> list[tuple[str, int]]:
    query = """SELECT f.url, count(*) FROM items i JOIN url_frontier f USING (domain_id, job_id, url_key)
               WHERE i.data->>'url' = f.url OR i.data ? 'second' GROUP BY f.url ORDER BY f.url"""
    return crawls.rows(query)


def pages(crawls: Crawls) -> list[tuple[str, int]]:
    query = """SELECT f.url, 2 FROM crawled_pages p JOIN url_frontier f USING (domain_id, job_id, url_key)
               WHERE p.outcome = 'ok' ORDER BY f.url"""
    return crawls.rows(query)


def parse_rest(crawls: Crawls) -> ExtractionCounts:
    archive = factories.archive_reader(crawls.settings, crawls.database)

    async def whole() -> ExtractionCounts:
        return await parse_due(Extraction(crawls.database, archive, crawls.settings.parsing, worker=None))

    return asyncio.run(whole())


def test_a_crawl_with_a_parser_ends_with_the_items_of_all_pages(crawls: Crawls, web: WebProcess, folder: Path) -> None:
    write_parser(folder, "shop", ITEM)
    assert crawls.crawl(web.url(0), delay=0, parser="shop").completed
    assert len(pages(crawls)) == PAGES
    assert urls_with_items(crawls) == pages(crawls)
    assert crawls.value("SELECT count(*) FROM page_parses WHERE due OR error IS NOT NULL OR parser_version <> '1'") == 0
    crawls.verify()
    # Pages that were not modified keep their items.
    before = urls_with_items(crawls)
    assert crawls.crawl(web.url(0), delay=0, parser="shop", again=True).completed
    assert crawls.value("SELECT count(*) > 0 FROM crawl_log WHERE outcome = 'not_modified'")
    assert crawls.value("SELECT count(*) FROM items WHERE data->>'size' = '0'") == 0
    assert urls_with_items(crawls) == before
    crawls.verify()


def test_pages_that_memory_has_no_room_for_are_parsed_from_the_archive(
    crawls: Crawls, web: WebProcess, folder: Path
) -> None:
    write_parser(folder, "shop", ITEM)
    crawls.set(parsing={"buffer": 0})
    assert crawls.crawl(web.url(0), delay=0, parser="shop").completed
    assert urls_with_items(crawls) == pages(crawls)
    crawls.verify()


def test_a_parser_that_hangs_costs_only_its_page(crawls: Crawls, web: WebProcess, folder: Path) -> None:
    crawls.set(parsing={"timeout": 1})
    write_parser(folder, "shop", f"time.sleep(60 * (document.url == {web.url(0)!r}))\n    {ITEM}")
    assert crawls.crawl(web.url(0), delay=0, parser="shop").completed
    hung = [page for page in pages(crawls) if page[0] == web.url(0)]
    assert urls_with_items(crawls) == [page for page in pages(crawls) if page not in hung]
    ((due, attempts, error),) = crawls.rows("SELECT due, attempts, error FROM page_parses WHERE error IS NOT NULL")
    assert (due, attempts) == (False, 2), "it had its attempts, and is not tried forever"
    assert "did not finish within 1 s" in error


def test_a_kill_loses_no_item_and_doubles_none(crawls: Crawls, web: WebProcess, folder: Path) -> None:
    write_parser(folder, "shop", f"time.sleep(0.05)\n    {ITEM}")
    job = crawls.begin(web.url(0), delay=0.05, parser="shop").job
    with crawls.start("worker", "--name", "w1", "--job", job.name) as worker:
        wait_for(lambda: crawls.value("SELECT count(*) FROM items") >= 6, "some items")
        worker.kill()
    assert crawls.value("SELECT count(*) FROM items") < 2 * PAGES
    crawls.verify()
    with crawls.worker(job, "w1") as worker_thread:
        worker_thread.end()
    assert len(pages(crawls)) == PAGES
    assert urls_with_items(crawls) == pages(crawls)
    crawls.verify()


def test_without_a_parser_nothing_is_due_and_a_persons_word_for_a_domain_counts(
    crawls: Crawls, web: WebProcess, folder: Path
) -> None:
    write_parser(folder, "shop", ITEM)
    assert crawls.crawl(web.url(0), delay=0, job="plain").completed
    assert crawls.value("SELECT count(*) FROM page_parses") == 0, "the default parser of a domain is for tasks"
    name = crawls.value("SELECT domain FROM domains")
    domains.edit(crawls.connection, name, {"parser_name": "shop"})
    assert crawls.crawl(web.url(0), delay=0, job="other").completed
    assert urls_with_items(crawls)
    assert item_queries.count_due(crawls.connection) == []
    domains.edit(crawls.connection, name, {"parser_name": None})
    assert crawls.rows("SELECT parser_name, parser_chosen FROM domains") == [("generic", False)]


def test_a_parser_that_is_not_known_here_leaves_its_pages_due(crawls: Crawls, web: WebProcess, folder: Path) -> None:
    folder.mkdir()
    assert crawls.crawl(web.url(0), delay=0, parser="elsewhere").completed
    assert sum(one.pages for one in item_queries.count_due(crawls.connection)) == PAGES
    write_parser(folder, "elsewhere", ITEM)
    done = parse_rest(crawls)
    assert (done.pages, done.items, done.failed) == (PAGES, 2 * PAGES, 0)
    assert urls_with_items(crawls) == pages(crawls)


def test_crawled_pages_are_parsed_again_by_any_parser(crawls: Crawls, web: WebProcess, folder: Path) -> None:
    write_parser(folder, "shop", ITEM)
    assert crawls.crawl(web.url(0), delay=0, job="plain").completed

    def again(**chosen: Any) -> ReparseReport:
        async def whole() -> ReparseReport:
            settings = crawls.settings
            runner = PluginPool(discover(folder), processes=1)
            reparser = PageReparser(
                crawls.database, runner, factories.archive_reader(settings, crawls.database), "ann", settings.parsing
            )
            apply = chosen.pop("apply", False)
            try:
                return await reparser.run(Selection(job="plain", **chosen), ReparseReport(apply, max_examples=3))
            finally:
                await runner.aclose()

        return asyncio.run(whole())

    assert again().parsed == 0, "they are for no parser"
    assert (again(use_parser="shop").first, crawls.value("SELECT count(*) FROM items")) == (PAGES, 0), "only looked at"
    assert again(use_parser="shop", apply=True).first == PAGES
    assert urls_with_items(crawls) == pages(crawls)
    write_parser(folder, "shop", "return {'url': document.url}", version="2")
    better = again(below="2", apply=True)
    assert (better.different, better.same, better.failed, len(better.examples)) == (PAGES, 0, 0, 3)
    assert crawls.value("SELECT count(*) FROM items WHERE parser_version = '2'") == PAGES
    assert crawls.value("SELECT count(*) FROM items") == PAGES
    assert again(below="2").parsed == 0
    write_parser(folder, "shop", "raise ValueError('no')", version="3")
    assert (again(apply=True).failed, crawls.value("SELECT count(*) FROM items")) == (PAGES, PAGES), "the old ones stay"
    crawls.verify()


def test_more_items_than_allowed_are_an_error_of_the_page(crawls: Crawls, web: WebProcess, folder: Path) -> None:
    write_parser(folder, "shop", "return [{'n': n} for n in range(20 * (len(document.url) % 2))]")
    crawls.set(parsing={"items_per_page": 10})
    assert crawls.crawl(web.url(0), delay=0, parser="shop").completed
    errors = crawls.rows("SELECT DISTINCT error FROM page_parses WHERE error IS NOT NULL")
    assert errors == [("The parser 'shop' found 20 items; parsing.items_per_page allows 10.",)]
    assert crawls.value("SELECT count(*) FROM items") == 0
