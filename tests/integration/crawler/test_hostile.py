"""Sites that mean harm, and names that lead nowhere, beside good ones: the good ones are crawled to their end."""

from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Robots, Site, SpecialUrl, Trap, Wall, Web
from tests.support.crawls import Crawls, figures, hits
from tests.support.names import serving
from tests.support.nameserver import SILENT, Answer
from tests.support.pages import Pages, html

GOOD = 4
TYPED = {
    SpecialUrl.DRIP: {"too_slow", "timeout"},
    SpecialUrl.ENDLESS: {"too_large", "timeout"},
    SpecialUrl.HUGE: {"too_large"},
    SpecialUrl.BOMB: {"too_large"},
    SpecialUrl.HEADERS: {"bad_response"},
    SpecialUrl.DEEP: {"ok"},
    SpecialUrl.WIDE: {"ok"},
    SpecialUrl.NUL: {"ok"},
    SpecialUrl.GARBAGE: {"bad_response"},
    SpecialUrl.RESET: {"connection_broken", "connection_failed", "bad_response"},
    SpecialUrl.CUT: {"bad_response"},
    SpecialUrl.HANG: {"timeout", "too_slow"},
}
"""What a hostile URL may be called in the end."""
STATUS = {
    Wall.UNAUTHORIZED: "blocked",
    Wall.FORBIDDEN: "blocked",
    Wall.RATE_LIMITED: "blocked",
    Wall.UNAVAILABLE: "blocked",
    Wall.LOGIN: "blocked",
}
_NASTY = [
    *(Site(1, 1, 500, odd={kind: 1.0}) for kind in TYPED),
    *(Site(1, 1, 500, traps=(trap,)) for trap in Trap),
    *(Site(1, 1, 500, wall=wall) for wall in STATUS),
    Site(1, 1, 500, robots=Robots.DENY_ALL),
]


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    special = {GOOD + n: site for n, site in enumerate(_NASTY)}
    good = Site(30, 10, 3000, latency=0.005, external=0.05)
    with WebProcess(Web(11, GOOD + len(special), good, special)) as served:
        yield served


def test_good_sites_finish_beside_hostile_ones(crawls: Crawls, web: WebProcess) -> None:
    crawls.set(
        fetch={"timeout": 2, "min_rate": 1000, "min_rate_time": 1, "max_bytes": 2_000_000},
        politeness={"retries": 1, "max_back_off": 1},
        crawl={"template_cap": 40},
    )
    most = 0
    with crawls.start("crawl", *web.urls, "--workers", "1", "--delay", "0", "--json") as program:
        process = psutil.Process(program.pid)
        while program.lives:
            try:
                most = max(most, process.memory_info().rss)
                psutil.wait_procs([process], timeout=0.05)
            except psutil.NoSuchProcess:
                break
        answer = program.end()
    assert answer.code == 0, answer
    assert "Traceback" not in answer.err
    assert most < 300 << 20
    seen = hits(web)
    for site in range(GOOD):
        assert log_checks.missing_pages(web.expected(site), seen) == []
        assert crawls.domain(web.address.host(site))["status"] == "exhausted"
    assert figures(answer)["pages"] >= 30 * GOOD
    for n, (kind, names) in enumerate(TYPED.items()):
        came = crawls.outcomes(f"{web.address.origin(GOOD + n)}/{kind}/%")
        assert len(came) == 1, kind
        for outcomes in came.values():
            assert set(outcomes) <= names, (kind, outcomes)
    walls = GOOD + len(TYPED) + len(Trap)
    for n, status in enumerate(STATUS.values()):
        assert crawls.domain(web.address.host(walls + n))["status"] == status
    assert crawls.domain(web.address.host(walls + len(STATUS)))["status"] == "blocked"
    assert crawls.value("SELECT count(*) FROM crawl_runs WHERE status <> 'completed'") == 0
    crawls.verify()


def test_dead_names_do_not_hold_good_ones_up(crawls: Crawls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.crawler.robots_cache.RETRIES", (0.1, 0.1))
    good = [f"good{i}.example" for i in range(4)]
    unknown = [f"unknown{i}.example" for i in range(10)]
    silent = [f"silent{i}.example" for i in range(10)]
    records = {**{name: Answer(("127.0.0.1",)) for name in good}, **dict.fromkeys(silent, SILENT)}
    links = [f"/{i}" for i in range(8)]
    with Pages({"/": html(*links), **{link: html() for link in links}}) as site, serving(records) as names:
        crawls.set(fetch={"dns_servers": [names.address], "dns_timeout": 0.5, "dns_ttl_negative": 1})
        ended = crawls.crawl(*(site.url("/", name) for name in [*unknown, *silent, *good]), delay=0)
        for name in good:
            assert sorted(site.paths(name)) == sorted(["/", *links])
        assert len(site.asked) == 4 * 10
    assert ended.progress.pages == 4 * 9
    status = {
        name.partition(":")[0]: status for name, status in crawls.rows("SELECT domain, status::text FROM domains")
    }
    assert {status[name] for name in good} == {"exhausted"}
    # A name that is not there is given up; one that nobody answers for is asked for again, ten times in all.
    assert {status[name] for name in unknown} == {"unreachable"}
    assert {status[name] for name in silent} == {"pending"}
    assert ended.status.delayed >= 10
    # Failures of robots.txt count in the streak, and not among the errors of pages.
    streaks = (
        "SELECT DISTINCT refusal_streak, consecutive_error_count, total_error_count FROM domains WHERE domain LIKE %s"
    )
    assert crawls.rows(streaks, "silent%") == [(3, 0, 0)]
    crawls.verify()


def test_a_host_that_never_answers_becomes_unreachable(crawls: Crawls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Robots.txt is asked for hour after hour; ten failures in a row are enough."""
    monkeypatch.setattr("holdfast.crawler.robots_cache.RETRIES", (0.01, 0.01))
    crawls.set(domains={"max_errors": 5}, politeness={"circuit_failures": 100})
    with Pages() as nobody:
        url = nobody.url()
    assert crawls.crawl(url).status.delayed == 1
    assert crawls.value("SELECT status::text FROM domains") == "pending"
    crawls.connection.execute("UPDATE url_frontier SET not_before = NULL")
    crawls.connection.execute("UPDATE job_domains SET not_before = clock_timestamp()")
    crawls.connection.execute("UPDATE domain_robots SET expires_at = clock_timestamp()")
    crawls.crawl(url)
    status, code, left = crawls.rows(
        "SELECT status::text, block_reason_code, next_crawl_after - clock_timestamp() > interval '6 days' FROM domains"
    )[0]
    assert (status, code, left) == ("unreachable", "connection_failed", True)
    crawls.verify()


def test_a_page_that_the_database_refuses_costs_that_page(crawls: Crawls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever slips through: here a title with a NUL, put in behind the parser's back."""
    from holdfast.parse.page_parser import PageParser

    parse = PageParser.parse

    async def poison(self: PageParser, body: bytes, **more: Any) -> object:
        parsed = await parse(self, body, **more)
        if b"poison" in body:
            parsed.title = "a\0b"
        return parsed

    monkeypatch.setattr(PageParser, "parse", poison)
    links = [f"/{i}" for i in range(20)]
    answers = {"/": html(*links), **{link: html("/after") for link in links}, "/7": html("/lost", text="poison")}
    answers["/after"] = html()
    with Pages(answers) as site:
        assert crawls.crawl(site.url(), delay=0).completed
        assert sorted(site.paths()) == sorted(["/", "/after", *links])
    states = {url.rpartition("/")[2]: state for url, state in crawls.frontier().items()}
    state, reason = states.pop("7")
    assert state == "failed"
    assert (reason or "").startswith("cannot be stored: ")
    assert {state for state, _ in states.values()} == {"done"}
    assert crawls.total() == 21
    crawls.verify()
