"""Crawls through proxies, judged by the logs of the proxies and of the sites: who is chosen, who is blamed, what is never done."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.crawler import proxy_registry
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.proxy_process import ProxyProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawls import Crawls, figures, hits, pages, wait_for
from tests.support.farm import Farm, running
from tests.support.pages import Page, Pages, html

SMALL, LARGE, SLOW = range(3)
COUNT = 3
WORKERS = 4


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    special = {LARGE: Site(240, 20, 300), SLOW: Site(60, 20, 300, latency=0.02)}
    with WebProcess(Web(11, 3, Site(24, 8, 300), special)) as served:
        yield served


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ProxyProcess]]:
    with running(tmp_path_factory.mktemp("proxies"), COUNT, user="crawler", password="open sesame") as started:
        yield started


@pytest.fixture
def farm(crawls: Crawls, processes: list[ProxyProcess], monkeypatch: pytest.MonkeyPatch) -> Farm:
    monkeypatch.setattr(proxy_registry, "REFRESH_SECONDS", 0.2)
    crawls.set(proxies={"rest": 0.3, "max_rest": 1, "refused_rest": 0.5, "max_refused_rest": 2})
    return Farm(crawls, processes)


def begin(crawls: Crawls, web: WebProcess, site: int) -> str:
    """The domain of a site is known, and nothing was asked for."""
    crawls.begin(web.url(site))
    return web.address.host(site)


def everything_is_there(crawls: Crawls, web: WebProcess, site: int, since: float = 0.0) -> None:
    assert not log_checks.missing_pages(web.expected(site), hits(web, site, since=since))
    assert {state for state, _ in crawls.frontier().values()} <= {"done", "denied"}
    crawls.verify()


def test_requests_go_round_among_the_proxies_and_none_goes_past_them(
    crawls: Crawls, web: WebProcess, farm: Farm
) -> None:
    domain = begin(crawls, web, LARGE)
    farm.register().assign(domain)
    before = len(hits(web, LARGE))
    assert crawls.crawl(web.url(LARGE), concurrency=5).completed
    counts = farm.counts()
    asked = hits(web, LARGE)[before:]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == len(pages(asked)) >= 240
    assert sum(len(farm.asked(place)) for place in range(COUNT)) == len(asked), "robots.txt too"
    assert {hit["user"] for place in range(COUNT) for hit in farm.asked(place)} == {"crawler"}
    figures = farm.figures()
    assert [one["requests"] for one in figures] == counts
    assert [one["success_count"] for one in figures] == counts
    assert sum(one["other_requests"] for one in figures) == 1
    assert all(one["avg_response_time_ms"] > 0 for one in figures)
    assert [row[0] for row in crawls.rows("SELECT proxy_id FROM crawl_log GROUP BY 1 ORDER BY 1")] == farm.ids
    everything_is_there(crawls, web, LARGE)


def test_the_order_goes_on_where_it_was_when_the_next_visit_begins(crawls: Crawls, web: WebProcess, farm: Farm) -> None:
    domain = begin(crawls, web, SMALL)
    farm.register().assign(domain)
    for _ in range(3):
        crawls.connection.execute("UPDATE url_frontier SET not_before = NULL")
        crawls.crawl(web.url(SMALL), max_pages=7, again=False)
        counts = farm.counts()
        assert max(counts) - min(counts) <= 1, counts
    crawls.verify()


def test_priority_comes_first_and_country_decides_who_may(crawls: Crawls, web: WebProcess, farm: Farm) -> None:
    domain = begin(crawls, web, SMALL)
    farm.register(countries=["DE", "US", "DE"]).assign(domain)
    farm.assign(domain, priority=1, only=[1, 2])
    crawls.connection.execute("UPDATE domains SET proxy_country = 'DE'")
    assert crawls.crawl(web.url(SMALL)).completed
    assert [count > 0 for count in farm.counts()] == [False, False, True], "the other German one has to wait"


def test_a_session_sticks_to_one_proxy_as_long_as_that_works(crawls: Crawls, web: WebProcess, farm: Farm) -> None:
    domain = begin(crawls, web, SLOW)
    farm.register().assign(domain)
    crawls.connection.execute("UPDATE domains SET proxy_sticky = '1 hour'")
    job = crawls.begin(web.url(SLOW)).job
    with crawls.worker(job) as worker:
        wait_for(lambda: sum(farm.counts()) > 20, "the session to be under way")
        (used,) = [place for place, count in enumerate(farm.counts()) if count]
        farm.processes[used].behave("refuse")
        worker.end()
    farm.processes[used].behave("work")
    others = sorted(count for place, count in enumerate(farm.counts()) if place != used)
    assert others[0] == 0
    assert others[1] > 20, "another session, with another proxy"
    everything_is_there(crawls, web, SLOW)


@pytest.mark.parametrize("how", ["refuse", "drop", "hang", "garbage", "407", "502", "kill", "freeze"])
def test_no_url_fails_by_the_fault_of_a_proxy(
    crawls: Crawls, web: WebProcess, farm: Farm, how: str, figure: Callable[[str], None]
) -> None:
    """Two of three fail in the middle of a crawl; the third one does it all."""
    crawls.set(fetch={"timeout": 0.6, "connect_timeout": 0.5})
    domain = begin(crawls, web, SLOW)
    farm.register().assign(domain)
    job = crawls.begin(web.url(SLOW), concurrency=4).job
    with crawls.worker(job) as worker:
        wait_for(lambda: sum(farm.counts()) > 15, "the crawl to be under way")
        for process in farm.processes[:2]:
            farm.harm(process, how)
        worker.end()
    farm.heal()
    assert crawls.desk.end(job).completed
    outcomes = crawls.outcomes()
    failed = sum(outcome.startswith("proxy_") for some in outcomes.values() for outcome in some)
    assert failed > 0, "it was really tried"
    assert {some[-1] for some in outcomes.values()} == {"ok"}
    assert [row[1] >= 5 for row in farm.health()] == [True, True, False]
    assert crawls.domain(domain)["total_error_count"] == 0, "the domain is not to blame"
    assert crawls.value("SELECT max(attempts) FROM url_frontier") == 1
    assert [one["total_failures"] for one in farm.figures()] == [0, 0, 0]
    said = [(one["requests"], one["success_count"], one["proxy_failures"]) for one in farm.figures()]
    figure(
        f"two of three proxies {how}: (requests, successes, failures) {said}, in a row {[row[1] for row in farm.health()]}"
    )
    everything_is_there(crawls, web, SLOW)


def test_a_slow_proxy_is_slow_and_nothing_else(crawls: Crawls, web: WebProcess, farm: Farm) -> None:
    domain = begin(crawls, web, SMALL)
    farm.register().assign(domain)
    farm.processes[1].behave("slow", seconds=0.2)
    assert crawls.crawl(web.url(SMALL), concurrency=3).completed
    took = [one["avg_response_time_ms"] for one in farm.figures()]
    assert took[1] > 200 > max(took[0], took[2])
    assert max(farm.counts()) - min(farm.counts()) <= 1, "it has its turns all the same"
    assert farm.health() == [(True, 0, None)] * 3
    assert set(crawls.outcomes().popitem()[1]) == {"ok"}
    everything_is_there(crawls, web, SMALL)


def test_a_proxy_that_was_disabled_comes_back_by_itself(crawls: Crawls, web: WebProcess, farm: Farm) -> None:
    crawls.set(fetch={"timeout": 1.0, "connect_timeout": 0.5}, proxies={"rest": 0.1, "max_rest": 0.1})
    domain = begin(crawls, web, LARGE)
    farm.register().assign(domain)
    farm.processes[0].behave("refuse")
    job = crawls.begin(web.url(LARGE), delay=0.02, concurrency=1).job
    with crawls.worker(job) as worker:
        wait_for(lambda: farm.health()[0] == (False, 10, "health") or farm.health()[0][1] > 10, "ten failures")
        farm.processes[0].behave("work")
        wait_for(lambda: farm.health()[0] == (True, 0, None), "its recovery")
        worker.stop()
    assert farm.counts()[0] > 0
    crawls.verify()


def test_one_incident_is_one_step(crawls: Crawls, web: WebProcess, farm: Farm) -> None:
    """Many requests are under way when a proxy dies: it rests for the shortest time all the same."""
    domain = begin(crawls, web, SLOW)
    crawls.set(proxies={"rest": 60, "max_rest": 3600})
    farm.register().assign(domain)
    job = crawls.begin(web.url(SLOW), concurrency=30).job
    with crawls.worker(job) as worker:
        wait_for(lambda: sum(farm.counts()) > 15, "the crawl to be under way")
        farm.processes[0].behave("refuse")
        worker.end()
    farm.processes[0].behave("work")
    assert farm.health() == [(True, 5, None), (True, 0, None), (True, 0, None)]
    assert crawls.value(
        "SELECT next_try_at <= clock_timestamp() + interval '60 s' FROM proxies WHERE failure_count > 0"
    )
    everything_is_there(crawls, web, SLOW)


def test_a_site_that_refuses_a_proxy_is_asked_through_another(crawls: Crawls, web: WebProcess, farm: Farm) -> None:
    crawls.set(proxies={"refused_rest": 60, "max_refused_rest": 3600})
    domain = begin(crawls, web, SMALL)
    farm.register().assign(domain)
    farm.processes[0].behave("status", status=403)  # as the site would answer it
    assert crawls.crawl(web.url(SMALL), concurrency=1).completed
    farm.processes[0].behave("work")
    refused, *others = farm.figures()
    assert (refused["total_failures"], refused["failure_count"], refused["is_active"]) == (5, 5, False)
    assert refused["disabled_by"] == "health"
    assert refused["last_error"]
    assert all(one["is_active"] and one["total_failures"] == 0 for one in others)
    assert farm.health() == [(True, 0, None)] * 3, "the proxy itself is well"
    found = crawls.domain(domain)
    assert (found["consecutive_error_count"], found["status"]) == (0, "exhausted")
    everything_is_there(crawls, web, SMALL)


def test_a_site_that_refuses_all_of_them_fails_its_urls_within_their_attempts(crawls: Crawls, farm: Farm) -> None:
    captcha = html(text="Are you human?", head='<script src="/cdn-cgi/challenge-platform/x.js"></script>')
    answers = {"/": html("/a", "/b", "/walled"), "/a": html(), "/b": html(), "/walled": captcha}
    with Pages(answers) as site:
        crawls.begin(site.url())
        farm.register().assign(f"localhost:{site.port}")
        assert crawls.crawl(site.url()).completed
        assert site.paths().count("/walled") == COUNT, "once through each; a fourth attempt would tell nothing new"
    walled = site.url("/walled")
    assert crawls.outcomes(walled) == {walled: ["captcha"] * COUNT}
    assert crawls.frontier(walled)[walled][0] == "failed"
    assert [one["total_failures"] for one in farm.figures()] == farm.counts("/walled") == [1] * COUNT
    crawls.verify()


def test_an_error_of_the_site_is_nobody_s_fault(crawls: Crawls, farm: Farm) -> None:
    """Through a proxy that only passes bytes on there is no doubt; through one that answers itself another one is asked."""
    with Pages({"/": html("/broken", "/gone"), "/broken": Page(b"oops", 500)}) as site:
        crawls.set(politeness={"retries": 0})
        crawls.begin(site.url())
        farm.register().assign(f"localhost:{site.port}")
        assert crawls.crawl(site.url()).completed
        assert site.paths().count("/broken") == 3
    broken = site.url("/broken")
    assert crawls.outcomes(broken) == {broken: ["proxy_unclear", "proxy_unclear", "server_error"]}
    assert farm.health() == [(True, 0, None)] * 3
    assert [one["failure_count"] for one in farm.figures()] == [0, 0, 0]
    crawls.verify()


def test_a_domain_without_a_proxy_is_not_asked_and_says_why(
    crawls: Crawls, web: WebProcess, farm: Farm, capsys: pytest.CaptureFixture[str]
) -> None:
    domain = begin(crawls, web, SMALL)
    crawls.connection.execute("UPDATE domains SET proxy_use = 'pool'")
    farm.register()
    before = len(hits(web, SMALL))
    assert not crawls.crawl(web.url(SMALL)).completed
    assert len(hits(web, SMALL)) == before
    assert farm.counts() == [0, 0, 0], "proxies that are another's are not for it"
    assert crawls.command("explain", domain) == 0
    assert "proxies assign" in capsys.readouterr().out
    farm.assign(domain)
    assert crawls.crawl(web.url(SMALL)).completed, "at once"
    everything_is_there(crawls, web, SMALL)


def test_a_pool_that_is_used_up_waits_and_says_until_when(
    crawls: Crawls, web: WebProcess, farm: Farm, capsys: pytest.CaptureFixture[str]
) -> None:
    domain = begin(crawls, web, SMALL)
    farm.register(limit=4).assign(domain)
    before = len(hits(web, SMALL))
    assert not crawls.crawl(web.url(SMALL)).completed
    through = [len(farm.asked(place)) for place in range(COUNT)]
    assert through == [4, 4, 4]
    assert len(hits(web, SMALL)) - before == 12, "and nothing went past them"
    capsys.readouterr()
    assert crawls.command("explain", domain) == 0
    assert "used up" in capsys.readouterr().out
    crawls.verify()


def test_a_dead_pool_is_waited_for_unless_the_domain_may_go_without(
    crawls: Crawls, web: WebProcess, farm: Farm
) -> None:
    crawls.set(proxies={"rest": 60, "max_rest": 600})
    domain = begin(crawls, web, SMALL)
    farm.register().assign(domain)
    for process in farm.processes:
        process.behave("refuse")
    before = len(hits(web, SMALL))
    assert not crawls.crawl(web.url(SMALL)).completed
    assert len(hits(web, SMALL)) == before
    assert [row[1] for row in farm.health()] == [5, 5, 5]
    crawls.connection.execute("UPDATE domains SET proxy_direct = true")
    crawls.connection.execute("UPDATE job_domains SET not_before = NULL, ready = true")
    assert crawls.crawl(web.url(SMALL)).completed
    everything_is_there(crawls, web, SMALL)


def test_any_proxy_serves_a_domain_that_may_use_all_of_them(crawls: Crawls, web: WebProcess, farm: Farm) -> None:
    crawls.set(proxies={"use": "any"})
    domain = begin(crawls, web, SMALL)
    farm.register().assign(domain, only=[1])
    crawls.connection.execute("UPDATE domains SET proxy_use = NULL")
    assert crawls.crawl(web.url(SMALL)).completed
    counts = farm.counts()
    assert (counts[0], counts[2]) == (0, 0), "its own one comes first"
    farm.processes[1].behave("refuse")
    assert crawls.crawl(web.url(SMALL), again=True).completed
    farm.processes[1].behave("work")
    assert all(farm.counts())
    assert [one["assigned"] for one in farm.figures()] == [False, True, False]
    everything_is_there(crawls, web, SMALL)


def test_four_workers_never_exceed_a_limit_that_they_share(crawls: Crawls, farm: Farm, tmp_path: Path) -> None:
    """Judged by the proxies' own logs, in every stretch of time that the limit is for."""
    period, limit = 1.5, 8
    crawls.set(proxies={"period": period}, fetch={"timeout": 0.5, "connect_timeout": 0.3}, crawl={"patience": 10})
    hosts = [f"d{number}.localhost" for number in range(WORKERS)]
    answers = {"/": html(*(f"/p{number}" for number in range(10)))} | {f"/p{number}": html() for number in range(10)}
    with Pages(answers) as site:
        urls = [site.url("/", host) for host in hosts]
        crawls.begin(*urls)
        farm.register(limit=limit)
        for host in hosts:
            farm.assign(f"{host}:{site.port}")
        answer = crawls.run(
            "crawl", *urls, "--workers", str(WORKERS), "--json", HOLDFAST_WORKER_DOMAINS="1", HOLDFAST_CLAIMS_BATCH="1"
        )
        assert figures(answer)["completed"], answer
        asked = len(site.asked)
    assert sum(len(farm.asked(place)) for place in range(COUNT)) == asked >= WORKERS * 12
    for place in range(COUNT):
        times = [hit["at"] for hit in farm.asked(place)]
        assert len(times) > limit, "the limit was reached, and time went on"
        assert max(sum(at <= other < at + period for other in times) for at in times) <= limit
    # One that began late may have found all domains taken.
    assert crawls.value("SELECT count(DISTINCT worker) FROM crawl_runs WHERE pages_crawled > 0") > 2
    crawls.verify()
