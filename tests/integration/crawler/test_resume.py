"""Stop and go on (000 §8): the four-domain story, and every row of the table of reruns."""

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import Refused
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Wall, Web
from tests.support.crawls import Crawls, hits, now, pages, wait_for

SMALL, WALLED, BIG, LATER, OTHER = range(5)  # domains that are sown together are met in the order of their names


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    plan = Site(12, 6, 800)
    special = {BIG: Site(60, 10, 800, latency=0.01), WALLED: Site(5, 4, 800, wall=Wall.FORBIDDEN)}
    with WebProcess(Web(7, 5, plan, special)) as served:
        yield served


@pytest.fixture
def names(web: WebProcess) -> list[str]:
    return [web.address.host(site) for site in range(web.web.sites)]


def test_the_story_of_four_domains(crawls: Crawls, web: WebProcess, names: list[str]) -> None:
    """One is interrupted in the middle, one is finished, one refuses, one never began; the same command does the rest."""
    since = now()
    crawls.set(worker={"domains": 1})  # one after the other
    asked = ("crawl", *(web.url(site) for site in (SMALL, WALLED, BIG, LATER)), "--workers", "1", "--delay", "0.03")
    with crawls.start(*asked) as program:
        wait_for(lambda: crawls.pages_of(names[BIG]) >= 15, "the first pages")
        program.send(signal.SIGINT)
        assert program.end().code == 130

    first = hits(web, since=since)
    big = crawls.domain(names[BIG])
    assert (big["status"], big["claimed_by"]) == ("active", None)
    assert 15 <= big["pages_crawled"] < 60
    assert big["frontier_size"] > 0
    small = crawls.domain(names[SMALL])
    assert (small["status"], small["pages_crawled"]) == ("exhausted", 12)
    walled = crawls.domain(names[WALLED])
    assert (walled["status"], walled["block_reason_code"], walled["pages_crawled"]) == ("blocked", "forbidden", 0)
    left_alone = datetime.fromisoformat(walled["next_crawl_after"]) - datetime.now(UTC)
    assert timedelta(days=13, hours=23) < left_alone < timedelta(days=15, hours=12)  # with jitter
    assert crawls.domain(names[LATER])["status"] == "pending"
    assert not hits(web, LATER, since=since)
    crawls.verify()

    assert crawls.command(*asked) == 0
    both = hits(web, since=since)
    again = both[len(first) :]
    assert not log_checks.count_refetches(both)
    assert {hit.host for hit in pages(again)} == {names[BIG], names[LATER]}
    assert not {hit.url for hit in pages(again)} & {hit.url for hit in pages(first)}
    assert not log_checks.missing_pages(web.expected(BIG) + web.expected(LATER), both)
    assert [crawls.domain(names[site])["status"] for site in (BIG, SMALL, WALLED, LATER)] == [
        "exhausted",
        "exhausted",
        "blocked",
        "exhausted",
    ]
    crawls.verify()


def test_the_same_seeds_with_the_same_limit_and_with_a_higher_one(
    crawls: Crawls, web: WebProcess, names: list[str]
) -> None:
    since = now()
    asked = (web.url(BIG), web.url(SMALL))
    assert crawls.crawl(*asked, max_pages=24).progress.pages == 24
    assert crawls.domain(names[SMALL])["status"] == "exhausted"  # its share was enough for all of it
    assert crawls.domain(names[BIG])["status"] == "active"
    first = crawls.total()

    same = crawls.crawl(*asked, max_pages=24)
    assert (same.completed, same.progress.pages, crawls.total()) == (False, 24, first + 24)

    higher = crawls.crawl(*asked, max_pages=500)
    assert (higher.completed, crawls.total()) == (True, 72)
    assert crawls.domain(names[BIG])["status"] == "exhausted"
    assert not log_checks.count_refetches(hits(web, since=since))
    crawls.verify()

    nothing = crawls.crawl(*asked)
    assert (nothing.completed, nothing.progress.pages) == (True, 0)


def test_new_seeds_of_a_named_job(crawls: Crawls, web: WebProcess, names: list[str]) -> None:
    since = now()
    crawls.crawl(web.url(SMALL), job="news")
    before = hits(web, since=since)
    more = crawls.crawl(web.url(OTHER), job="news")
    assert (more.completed, more.progress.pages) == (True, 12)
    after = hits(web, since=since)[len(before) :]
    assert {hit.host for hit in after} == {names[OTHER]}
    assert crawls.domain(names[SMALL])["status"] == "exhausted"
    crawls.verify()


@pytest.mark.parametrize("by", ["command", "sql"])
def test_an_exhausted_domain_is_crawled_again_by_command(
    crawls: Crawls, web: WebProcess, names: list[str], by: str
) -> None:
    since = now()
    crawls.crawl(web.url(SMALL), web.url(OTHER))
    if by == "command":
        assert crawls.command("domain-reset", names[SMALL]) == 0
    else:
        crawls.connection.execute("UPDATE domains SET status = 'pending' WHERE domain = %s", (names[SMALL],))
    assert crawls.domain(names[SMALL])["status"] == "pending"
    before = hits(web, since=since)
    again = crawls.crawl(web.url(SMALL), web.url(OTHER))
    assert (again.completed, again.progress.pages) == (True, 12)
    after = pages(hits(web, since=since)[len(before) :])
    assert {hit.host for hit in after} == {names[SMALL]}
    assert {hit.url for hit in after} == {page.url for page in web.expected(SMALL)}
    assert {hit.status for hit in after} <= {200, 304}
    assert crawls.domain(names[SMALL])["status"] == "exhausted"
    crawls.verify()


def test_again_starts_a_finished_job_anew(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    crawls.crawl(web.url(SMALL))
    again = crawls.crawl(web.url(SMALL), again=True)
    assert (again.completed, again.progress.pages, crawls.total()) == (True, 12, 24)
    assert set(log_checks.count_requests(hits(web, since=since)).values()) == {2}
    crawls.verify()


def test_a_job_that_is_paused_is_let_go_and_goes_on_when_it_may(crawls: Crawls, web: WebProcess) -> None:
    """Pausing is a state in the store; going on is what it is after a crash, too."""
    since = now()
    job = crawls.begin(web.url(BIG), delay=0.05).job
    with crawls.worker(job) as worker:
        wait_for(lambda: crawls.total() >= 5, "the first pages")
        crawls.connection.execute("UPDATE crawl_jobs SET state = 'paused' WHERE id = %s", (job.id,))
        worker.end()  # by itself
    assert crawls.held() == 0
    assert crawls.total() == len(pages(hits(web, since=since))) < 60
    with pytest.raises(Refused, match="paused"):
        crawls.begin(web.url(BIG))
    crawls.verify()
    crawls.connection.execute("UPDATE crawl_jobs SET state = 'pending' WHERE id = %s", (job.id,))
    assert crawls.crawl(web.url(BIG), delay=0).completed
    assert not log_checks.count_refetches(hits(web, since=since))
    crawls.verify()
