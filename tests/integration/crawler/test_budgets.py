"""Limits of a crawl hold however many workers there are and whichever of them die; domains share them fairly (D8)."""

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from holdfast.model.job import Limit
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Robots, Site, Web
from tests.support.crawls import Crawls, hits, now, pages, wait_for

SITES = 6
PAGES = 40


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(5, SITES, Site(PAGES, 10, 600, latency=0.005))) as served:
        yield served


def by_domain(crawls: Crawls) -> list[int]:
    return [count for (count,) in crawls.rows("SELECT pages_crawled FROM domains ORDER BY id")]


def test_a_limit_holds_with_workers_that_are_killed(crawls: Crawls, web: WebProcess) -> None:
    """One of two is killed, then all of them with their supervisor; the same command goes on with the same limit."""
    since, most = now(), 100
    asked = ("crawl", *web.urls[:4], "--workers", "2", "--max-pages", str(most), "--delay", "0.15", "--json")
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
    assert crawls.total() < most
    ended = crawls.crawl(*web.urls[:4], workers=2, max_pages=most, delay=0.01)
    assert (ended.progress.pages, crawls.total()) == (most, most)
    crawls.verify()
    # What was fetched beyond that was in flight, or not committed, when a worker was killed.
    assert most <= len(pages(hits(web, since=since))) <= most + 3 * (100 + 2 * 5)
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
    assert crawls.crawl(web.url(0), max_pages=PAGES).completed
    ended = crawls.crawl(*web.urls[:3], job="three", max_pages=100)
    assert ended.progress.pages == 100
    crawls.verify()


def test_pages_of_each_domain(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    ended = crawls.crawl(*web.urls[:3], max_pages_per_domain=7, workers=2)
    assert (ended.completed, ended.status.spent) == (False, 3)
    assert by_domain(crawls) == [7, 7, 7]
    assert len(pages(hits(web, since=since))) == 21
    # The next crawl has a new budget, and goes on where this one was.
    assert crawls.crawl(*web.urls[:3], max_pages_per_domain=7).progress.pages == 21
    assert len({hit.url for hit in pages(hits(web, since=since))}) == 42
    crawls.verify()


@pytest.mark.parametrize("slots", [200, 1])
def test_a_share_is_no_limit_the_whole_of_each_site_is_crawled(crawls: Crawls, web: WebProcess, slots: int) -> None:
    """By one command, in rounds; also where only one domain fits into the worker at a time."""
    crawls.set(domains={"max_pages_per_run": 15}, worker={"domains": slots})
    ended = crawls.crawl(*web.urls[:2])
    assert (ended.completed, ended.status.spent, by_domain(crawls)) == (True, 0, [PAGES, PAGES])
    assert crawls.value("SELECT count(*) FROM crawls") == 1
    assert crawls.value("SELECT round FROM crawls") > (1 if slots == 1 else 0)
    crawls.verify()


def test_a_budget_that_a_person_gave_to_a_domain_is_a_limit(crawls: Crawls, web: WebProcess) -> None:
    crawls.set(domains={"max_pages_per_run": 4})
    crawls.command("seeds", "add", web.url(0))
    assert crawls.command("domain-set", web.address.host(0), "budget=9") == 0
    ended = crawls.crawl(web.url(0), job="limited")
    assert by_domain(crawls) == [9]
    (reached,) = ended.status.limits
    assert (reached.limit, reached.value, reached.domains, reached.waiting > 0) == (Limit.DOMAIN_BUDGET, 9, 1, True)
    assert crawls.command("domain-set", web.address.host(0), "budget=") == 0
    assert crawls.crawl(job="limited").completed
    assert by_domain(crawls) == [PAGES]
    crawls.verify()


def test_a_standing_worker_crawls_rounds_to_the_end_without_waiting_for_sweeps(crawls: Crawls, web: WebProcess) -> None:
    """The next sweep comes in an hour: a round that waited for it would be the last one."""
    crawls.set(domains={"max_pages_per_run": 8}, worker={"domains": 1}, claims={"sweep_interval": 3600})
    assert crawls.command("jobs", "create", "site", *web.urls[:2], "--allow-private", "--delay", "0") == 0
    with crawls.worker(None):
        wait_for(lambda: crawls.total() == 2 * PAGES, "all pages")
    assert crawls.value("SELECT round FROM crawls") > 3
    crawls.verify()


def test_a_slow_and_a_blocked_domain_do_not_hold_up_a_fast_one(crawls: Crawls) -> None:
    """They are in one job, and the fast one needs five shares."""
    fast = Site(60, 10, 300)
    slow = Site(4, 4, 300, robots=Robots.ALLOW, crawl_delay=1.2)
    closed = Site(5, 4, 300, robots=Robots.DENY_ALL)
    with WebProcess(Web(7, 3, fast, {1: slow, 2: closed})) as served:
        crawls.set(domains={"max_pages_per_run": 12})
        crawls.crawl(*served.urls, delay=0, concurrency=8)
        assert crawls.pages_of(served.address.host(0)) == 60
        assert crawls.pages_of(served.address.host(1)) == 4
        assert crawls.domain(served.address.host(2))["status"] == "blocked"
        by_site = [[hit.at for hit in pages(hits(served, site))] for site in (0, 1)]
    assert sum(at > max(by_site[0]) for at in by_site[1]) >= 1, "the slow one was not done when the fast one was"
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
    with crawls.start("crawl", *web.urls[:2], "--workers", "1", "--max-pages", "60", "--delay", "0.05") as program:
        wait_for(lambda: crawls.total() >= 5, "the first pages")
        os.kill(program.pid, signal.SIGTERM)
        assert program.end().code == 130
    used, granted = crawls.rows("SELECT sum(budget_used), sum(granted) FROM job_domains")[0]
    assert used == granted == crawls.total()
    assert crawls.value("SELECT pages_granted FROM crawls") == used
    crawls.verify()
