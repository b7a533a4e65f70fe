"""Politeness, judged by the sites' own logs: pace, robots.txt, Retry-After, circuit; also when the worker changes."""

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from holdfast import factories
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Robots, Site, SpecialUrl, Web
from tests.support.crawls import Crawls, hits, now, pages, wait_for
from tests.support.pages import Page, Pages, html

PLAIN, TAKEN, RESTARTED, BUSY, SHY, LIMITED = range(6)


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    plan = Site(8, 5, 600)
    special = {
        BUSY: Site(30, 10, 600, latency=0.1),
        SHY: Site(
            5, 4, 600, robots=Robots.DENY, crawl_delay=0.3, odd={SpecialUrl.PRIVATE: 0.5, SpecialUrl.HIDDEN: 0.5}
        ),
        LIMITED: Site(7, 6, 600, rate_limit=3, rate_window=1.0),
    }
    with WebProcess(Web(3, 6, plan, special)) as served:
        yield served


def test_the_delay_is_kept_from_robots_on(crawls: Crawls, web: WebProcess) -> None:
    assert crawls.crawl(web.url(PLAIN), delay=0.1).completed
    seen = hits(web, PLAIN)
    assert len(seen) == 9
    assert log_checks.too_close(seen, 0.1) == []
    assert log_checks.robots_first(seen)
    crawls.verify()


@pytest.mark.parametrize("by", ["the same worker", "another worker"])
def test_the_delay_is_kept_when_a_worker_is_killed(crawls: Crawls, web: WebProcess, by: str) -> None:
    """The last request of the killed one is in no store; who comes after it waits a full delay all the same."""
    site, delay = (RESTARTED if by == "the same worker" else TAKEN), 0.5
    host = web.address.host(site)
    with crawls.start("crawl", web.url(site), "--workers", "1", "--delay", str(delay)) as program:
        wait_for(lambda: web.stats()["requests"].get(host, 0) >= 3, "two pages")
        program.kill()
    before = len(hits(web, site))
    assert crawls.held() == 1
    job = crawls.begin(web.url(site), delay=delay).job
    if by == "another worker":
        crawls.connection.execute("UPDATE domains SET claim_expires_at = clock_timestamp()")
    with crawls.worker(job, factories.worker_name(1) if by == "the same worker" else "somebody else"):
        wait_for(lambda: web.stats()["requests"].get(host, 0) >= before + 2, "more pages")
    seen = hits(web, site)
    assert log_checks.too_close(seen, delay) == []
    ends = {why for (why,) in crawls.rows("SELECT why FROM claim_log ORDER BY epoch")}
    assert ends == {"reclaimed" if by == "the same worker" else "expired", "released"}
    crawls.verify()


def test_no_more_at_once_than_allowed(crawls: Crawls, web: WebProcess) -> None:
    assert crawls.crawl(web.url(BUSY), concurrency=3).completed
    assert log_checks.max_concurrent(hits(web, BUSY)) == 3
    assert not log_checks.missing_pages(web.expected(BUSY), hits(web, BUSY))


def test_robots_and_crawl_delay_are_obeyed(crawls: Crawls, web: WebProcess) -> None:
    assert crawls.crawl(web.url(SHY)).completed
    seen = hits(web, SHY)
    expected = web.expected(SHY)
    assert log_checks.too_close(seen, 0.3) == []
    assert log_checks.robots_first(seen)
    assert log_checks.forbidden_requests(expected, seen) == []
    assert log_checks.missing_pages(expected, seen) == []
    denied = {page.url for page in expected if "/private/" in page.url}
    assert denied
    for url in denied:
        state, reason = crawls.frontier(url)[url]
        assert state == "denied"
        assert (reason or "").startswith("robots_denied: ")
    crawls.verify()


def test_retry_after_is_waited_for(crawls: Crawls, web: WebProcess) -> None:
    assert crawls.crawl(web.url(LIMITED), concurrency=1).completed
    seen = hits(web, LIMITED)
    assert {hit.status for hit in seen} == {200, 429}
    assert log_checks.before_retry_after(seen) == []
    assert log_checks.missing_pages(web.expected(LIMITED), seen) == []
    crawls.verify()


def test_a_circuit_opens_and_stays_open_over_a_restart(crawls: Crawls) -> None:
    crawls.set(politeness={"circuit_open": 1, "retries": 0}, domains={"max_errors": 100})
    broken = [f"/broken/{i}" for i in range(12)]
    answers = {"/": html(*broken), **{path: Page(b"no", 500) for path in broken}}
    with Pages(answers) as site:
        job = crawls.begin(site.url(), concurrency=1, delay=0.02).job
        with crawls.worker(job):
            wait_for(lambda: len(site.paths()) >= 6, "five failures")
            wait_for(lambda: crawls.value("SELECT circuit_open_until IS NOT NULL FROM domains"), "the flush")
        opened = site.asked[-1][0]
        assert len(site.paths()) == 6  # the page, and five that failed
        with crawls.worker(job):
            wait_for(lambda: len(site.paths()) >= 8, "two probes")
        probes = [at for at, _ in site.asked if at > opened]
    assert probes[0] - opened >= 1
    assert probes[1] - probes[0] >= 1  # one at a time, and it failed
    crawls.verify()


def test_a_server_that_gets_slower_is_asked_less_often(crawls: Crawls) -> None:
    quick, slow = [f"/quick/{i}" for i in range(6)], [f"/slow/{i}" for i in range(12)]
    answers = {
        "/": html(*quick),
        **{path: html("/second") for path in quick},
        "/second": html(*slow),
        **{path: Page(b"<p>slow</p>", headers={"Content-Type": "text/html"}, delay=0.4) for path in slow},
    }
    with Pages(answers) as site:
        assert crawls.crawl(site.url(), delay=0.05, concurrency=20).completed
        at = [at for at, path in site.asked if "/slow/" in path]
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert sum(gaps[-3:]) / 3 > 0.15
    crawls.verify()


def test_a_robots_that_cannot_be_had_closes_the_site_for_now(crawls: Crawls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.crawler.robots_cache.RETRIES", (0.01, 0.01))
    with Pages({"/robots.txt": Page(b"", 500), "/": html()}) as site:
        ended = crawls.crawl(site.url())
        assert site.paths() == []
        assert (ended.completed, ended.status.delayed) == (False, 1)
        wait = float(crawls.value("SELECT extract(epoch FROM not_before - clock_timestamp()) FROM job_domains"))
        assert 3500 < wait <= 3600
        # It is back: the same crawl goes on when it is time.
        site.answers["/robots.txt"] = Page(b"User-agent: *\nDisallow:\n", headers={"Content-Type": "text/plain"})
        crawls.connection.execute("UPDATE url_frontier SET not_before = NULL")
        crawls.connection.execute("UPDATE job_domains SET not_before = clock_timestamp()")
        crawls.connection.execute("UPDATE domain_robots SET expires_at = clock_timestamp()")
        assert crawls.crawl(site.url()).completed
        assert site.paths() == ["/"]
    crawls.verify()


def test_hosts_are_asked_side_by_side(crawls: Crawls, web: WebProcess) -> None:
    """A delay belongs to a domain: a second one does not wait for the first."""
    since, began = now(), time.monotonic()
    assert crawls.crawl(web.url(PLAIN), web.url(TAKEN), web.url(RESTARTED), delay=0.2).completed
    took = time.monotonic() - began
    seen = pages(hits(web, PLAIN, TAKEN, RESTARTED, since=since))
    assert len(seen) == 24
    assert took < 24 * 0.2
