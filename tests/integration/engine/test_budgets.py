"""Limits of a crawl hold however many workers there are and whichever of them die; domains share them fairly (D8)."""

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from holdfast.simweb.plan import Site, Web
from holdfast.simweb.process import WebProcess
from tests.support.crawls import Crawls, hits, now, pages, wait_for

SITES = 6


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(5, SITES, Site(60, 10, 600, latency=0.005))) as served:
        yield served


def by_domain(crawls: Crawls) -> list[int]:
    return [count for (count,) in crawls.rows("SELECT pages_crawled FROM domains ORDER BY id")]


def test_a_limit_holds_with_workers_that_are_killed(crawls: Crawls, web: WebProcess) -> None:
    """One of two is killed, then all of them with their supervisor; the same command goes on with the same limit."""
    since = now()
    asked = ("crawl", *web.urls[:4], "--workers", "2", "--max-pages", "160", "--delay", "0.15", "--json")
    with crawls.start(*asked) as program:
        wait_for(lambda: crawls.total() >= 10, "the first pages")
        workers = psutil.Process(program.pid).children()
        assert len(workers) == 2
        workers[0].kill()
        wait_for(lambda: crawls.value("SELECT count(*) FROM crawl_runs") == 3, "another worker")
        children = psutil.Process(program.pid).children()
        program.kill()
        for child in children:
            child.kill()
        psutil.wait_procs(children)
    assert crawls.total() < 160
    ended = crawls.crawl(*web.urls[:4], workers=2, max_pages=160, delay=0.02)
    assert (ended.progress.pages, crawls.total()) == (160, 160)
    crawls.verify()
    # What was fetched beyond that was in flight, or not committed, when a worker was killed.
    assert 160 <= len(pages(hits(web, since=since))) <= 160 + 3 * (100 + 2 * 5)
    assert max(by_domain(crawls)) <= 2 * min(by_domain(crawls))


def test_several_workers_do_not_multiply_a_limit(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    ended = crawls.crawl(*web.urls, max_pages=100, workers=3)
    assert (ended.progress.pages, crawls.total()) == (100, 100)
    assert len(pages(hits(web, since=since))) == 100
    crawls.verify()


@pytest.mark.parametrize("slots", [200, 2])
def test_equal_domains_get_equal_shares(crawls: Crawls, web: WebProcess, slots: int) -> None:
    """Also where fewer of them fit into the worker than there are."""
    crawls.set(worker={"domains": slots})
    assert crawls.crawl(*web.urls, max_pages=75).progress.pages == 75
    shares = by_domain(crawls)
    assert sum(shares) == 75
    assert max(shares) <= 2 * min(shares)
    crawls.verify()


def test_a_limit_is_used_up_when_some_domains_are_small(crawls: Crawls, web: WebProcess) -> None:
    """What small ones leave goes to the others."""
    crawls.set(worker={"domains": 2})
    assert crawls.crawl(web.url(0), max_pages=60).completed
    ended = crawls.crawl(*web.urls[:3], job="three", max_pages=150)
    assert ended.progress.pages == 150
    crawls.verify()


def test_pages_of_each_domain(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    ended = crawls.crawl(*web.urls[:3], max_pages_per_domain=7, workers=2)
    assert (ended.completed, ended.standing.spent) == (False, 3)
    assert by_domain(crawls) == [7, 7, 7]
    assert len(pages(hits(web, since=since))) == 21
    # The next crawl has a new budget, and goes on where this one was.
    assert crawls.crawl(*web.urls[:3], max_pages_per_domain=7).progress.pages == 21
    assert len({hit.url for hit in pages(hits(web, since=since))}) == 42
    crawls.verify()


def test_the_domains_own_limit_counts_where_the_job_has_none(crawls: Crawls, web: WebProcess) -> None:
    crawls.set(domains={"max_pages_per_run": 9})
    crawls.crawl(web.url(0))
    assert by_domain(crawls) == [9]
    crawls.verify()


def test_depth(crawls: Crawls, web: WebProcess) -> None:
    assert crawls.crawl(web.url(1), max_depth=1).completed
    depths = {depth for (depth,) in crawls.rows("SELECT depth FROM crawled_pages")}
    assert depths == {0, 1}
    reasons = {reason for state, reason in crawls.frontier().values() if state == "denied"}
    assert reasons == {"too_deep: depth 2 is more than 1"}
    assert crawls.value("SELECT crawl_depth_reached FROM domains") == 1
    crawls.verify()


def test_a_stopped_crawl_keeps_what_it_used(crawls: Crawls, web: WebProcess) -> None:
    job = crawls.begin(*web.urls[:2], max_pages=50, delay=0.05).job
    with crawls.worker(job):
        wait_for(lambda: crawls.total() >= 10, "the first pages")
    crawls.desk.stop(job)
    used = crawls.total()
    assert 10 <= used < 50
    ended = crawls.crawl(*web.urls[:2], max_pages=50, delay=0.0)
    assert (ended.progress.pages, crawls.total()) == (50, 50)
    crawls.verify()


def test_a_worker_that_is_stopped_by_sigterm_gives_its_budget_back(crawls: Crawls, web: WebProcess) -> None:
    with crawls.start("crawl", *web.urls[:2], "--workers", "1", "--max-pages", "80", "--delay", "0.05") as program:
        wait_for(lambda: crawls.total() >= 5, "the first pages")
        os.kill(program.pid, signal.SIGTERM)
        assert program.end().code == 130
    used, granted = crawls.rows("SELECT sum(budget_used), sum(granted) FROM job_domains")[0]
    assert used == granted == crawls.total()
    assert crawls.value("SELECT pages_granted FROM crawls") == used
    crawls.verify()
