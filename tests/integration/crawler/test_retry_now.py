"""A failure never outlives a person's word: what failed is tried again at once when a person asks, and only then."""

import socket
from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast import factories
from holdfast.crawler import robots_cache
from holdfast.db import crawls as store_crawls
from holdfast.domains.service import DomainService
from holdfast.jobs.crawls import CrawlRequest
from holdfast.jobs.service import JobService
from tests.support.crawls import Crawls, wait_for
from tests.support.pages import Page, Pages, html

SITE = {"/": html("/a", "/b"), "/a": html(), "/b": html()}
HERE = "127.0.0.1"


@pytest.fixture
def port() -> int:
    """A port where nothing listens yet."""
    with socket.socket() as found:
        found.bind((HERE, 0))
        return int(found.getsockname()[1])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A robots.txt that cannot be had is asked for once more, at once."""
    monkeypatch.setattr(robots_cache, "RETRIES", (0.01,))


def crawl_in_vain(crawls: Crawls, port: int) -> str:
    """A crawl of a server that is down; its URL."""
    url = f"http://{HERE}:{port}/"
    ended = crawls.crawl(url, job="first")
    assert (ended.progress.pages, ended.completed) == (0, False)
    assert crawls.value("SELECT count(*) FROM domain_robots WHERE NOT reachable AND expires_at > now() + '50 min'") == 1
    return url


def crawl_again(crawls: Crawls, url: str) -> int:
    return crawls.crawl(url, job="first").progress.pages


def crawl_anew(crawls: Crawls, url: str) -> int:
    return crawls.crawl(url, job="first", again=True).progress.pages


def new_job(crawls: Crawls, url: str) -> int:
    return crawls.crawl(url, job="second").progress.pages


def made_job(crawls: Crawls, url: str) -> int:
    """As the API makes one; a worker serves it."""
    made = JobService(crawls.database, "ann").create(crawls.desk, CrawlRequest((url,), None, "second"), lambda _: None)
    with crawls.worker(crawls.desk.job(made.job.name)) as worker:
        worker.end()
    return int(crawls.value("SELECT pages FROM job_domains WHERE job_id = %s", made.job.id))


def reset(crawls: Crawls, url: str) -> int:
    DomainService(crawls.database).reset(url, "it is up again", actor="ann")
    return crawls.crawl(url, job="first").progress.pages


@pytest.mark.parametrize("word", [crawl_again, crawl_anew, new_job, made_job, reset], ids=lambda word: word.__name__)
def test_a_server_that_is_up_again_is_asked_at_once_when_a_person_says_so(
    crawls: Crawls, port: int, word: Callable[[Crawls, str], int]
) -> None:
    url = crawl_in_vain(crawls, port)
    with Pages(SITE, port=port):
        assert word(crawls, url) == 3
    crawls.verify()


def test_a_schedule_is_no_person(crawls: Crawls, port: int) -> None:
    crawl_in_vain(crawls, port)
    store_crawls.restart(crawls.connection, crawls.desk.job("first").id)
    assert crawls.value("SELECT count(*) FROM domain_robots WHERE NOT reachable AND expires_at > now() + '50 min'") == 1


def test_an_unreachable_domain_is_tried_again_and_a_blocked_one_is_not(crawls: Crawls, port: int) -> None:
    crawls.set(domains={"max_errors": 2}, politeness={"retries": 0})
    url = f"http://{HERE}:{port}/"
    crawls.crawl(url)
    assert crawls.domain(f"{HERE}:{port}")["status"] == "unreachable"
    many = [f"/{number}" for number in range(20)]
    with Pages({"/": html(*many), **dict.fromkeys(many, html())}, port=port) as pages:
        assert crawls.crawl(url).progress.pages == 21
        pages.answers = dict.fromkeys(many, Page(b"no", 403))
        crawls.crawl(url, again=True)
        assert crawls.domain(f"{HERE}:{port}")["status"] == "blocked"
        asked = len(pages.asked)
        crawls.crawl(url)
        assert len(pages.asked) == asked
    crawls.verify()


def test_a_url_that_failed_by_the_network_is_tried_again_and_pages_are_not(crawls: Crawls) -> None:
    crawls.set(politeness={"retries": 0}, fetch={"timeout": 1, "connect_timeout": 1})
    with Pages({**SITE, "/b": Page(delay=1.5)}) as pages:
        url = pages.url(host=HERE)
        assert crawls.crawl(url).progress.pages == 2
        assert crawls.value("SELECT split_part(reason, ':', 1) FROM url_frontier WHERE state = 'failed'") == "timeout"
        pages.answers["/b"] = html()
        pages.asked.clear()
        assert crawls.crawl(url).progress.pages == 1
        assert pages.paths(HERE) == ["/b"]
    crawls.verify()


@pytest.mark.parametrize("option", ["allow_private", "no_robots"])
def test_an_option_that_removes_the_reason_tries_those_urls_again(crawls: Crawls, option: str) -> None:
    with Pages({**SITE, "/robots.txt": Page(b"User-agent: *\nDisallow: /")}) as pages:
        url = pages.url(host=HERE)
        if option == "allow_private":
            pages.answers.pop("/robots.txt")
            crawls.set(fetch={"allow_private": False})
        assert crawls.crawl(url).progress.pages == 0
        removed = {"allow_private": True} if option == "allow_private" else {"robots": False}
        assert crawls.crawl(url, **removed).progress.pages == 3
    crawls.verify()


def test_what_the_server_asked_for_holds_and_is_named(crawls: Crawls, capfd: pytest.CaptureFixture[str]) -> None:
    with Pages({**SITE, "/robots.txt": Page(b"later", 503, {"Retry-After": "900"})}) as pages:
        url = pages.url(host=HERE)
        crawls.crawl(url, job="first")
        pages.answers.pop("/robots.txt")
        pages.asked.clear()
        (held,) = crawls.begin(url, job="first").held_back
        assert held.domain == f"{HERE}:{pages.port}"
        assert timedelta(minutes=14) < held.until - crawls.desk.now() < timedelta(minutes=16)
        crawls.command("crawl", url, "--job", "first", "--workers", "1")
        assert pages.asked == []
    assert f"{held.domain} asked for a pause until" in capfd.readouterr().err
    crawls.verify()


def test_a_domain_is_tried_at_most_every_five_seconds(crawls: Crawls, port: int) -> None:
    url = crawl_in_vain(crawls, port)
    waits = "SELECT COALESCE(extract(epoch FROM not_before - clock_timestamp()), 0) FROM job_domains"
    found = []
    for _ in range(4):
        crawls.begin(url, job="first")
        found.append(float(crawls.value(waits)))
        crawls.connection.execute("UPDATE domain_robots SET expires_at = now() + '1 h'")  # in vain, as before
    assert found[0] == 0
    assert all(0 < wait <= 5 for wait in found[1:])
    retried = crawls.value("SELECT max(retried_at) FROM domains")
    assert float(crawls.value("SELECT extract(epoch FROM %s::timestamptz - clock_timestamp())", retried)) <= 5


def test_a_worker_that_holds_the_domain_hears_of_it(crawls: Crawls) -> None:
    """Its visit has a URL that waits for a robots.txt, and many pages to ask for; it lets go of the domain before these are done."""
    name = factories.worker_name(1)
    slow = {f"/{number}": html() for number in range(60)}
    with Pages({"/": html(*slow), "/late": html(), **slow}) as pages:
        begun = crawls.begin(pages.url(host=HERE), job="first", delay=0.2)
        with crawls.worker(begun.job, name):
            wait_for(lambda: crawls.total() >= 3, "the first pages")
            (domain,) = crawls.rows("SELECT id, claim_epoch FROM domains")
            crawls.connection.execute(
                "UPDATE url_frontier SET reason = 'robots_unavailable: asked again later', not_before = now() + '1 h' "
                "WHERE url LIKE '%/59' AND state = 'waiting'"
            )
            crawls.connection.execute(
                "INSERT INTO domain_robots (domain_id, robots_txt_url, reachable, problem, expires_at) "
                "VALUES (%s, 'https://elsewhere/robots.txt', false, 'connection_failed', now() + '1 h')",
                (domain[0],),
            )
            crawls.begin(job="first")
            wait_for(lambda: crawls.value("SELECT claim_epoch FROM domains") > domain[1], "it to let go")
            assert crawls.value("SELECT count(*) FROM url_frontier WHERE not_before > now()") == 0
            assert crawls.total() < 60
    crawls.verify()
