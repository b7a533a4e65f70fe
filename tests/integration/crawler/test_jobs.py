"""Jobs paused, resumed, cancelled and deleted under running workers; two jobs on one domain."""

import itertools
import json
import time
from collections.abc import Iterator

import psutil
import pytest

from holdfast.errors import Refused
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawls import Crawls, hits, now, pages, wait_for

PAGES = 24
FEW = 14
"""Pages of the site that two jobs crawl at once."""


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    shared = {3: Site(FEW, 8, 700, latency=0.01)}
    with WebProcess(Web(17, 4, Site(PAGES, 8, 700, latency=0.01), shared)) as served:
        yield served


def job_id(crawls: Crawls, name: str) -> int:
    return int(crawls.value("SELECT id FROM crawl_jobs WHERE name = %s", name))


def end_state(crawls: Crawls, job: str) -> list[tuple[object, ...]]:
    return crawls.rows(
        "SELECT f.url, f.state::text, p.content_hash FROM url_frontier f LEFT JOIN crawled_pages p USING (domain_id, job_id, url_key) "
        "WHERE f.job_id = %s ORDER BY f.url",
        job_id(crawls, job),
    )


def test_a_crawl_that_is_paused_waits_and_goes_on_and_ends_as_if_it_had_not(crawls: Crawls, web: WebProcess) -> None:
    since, urls = now(), web.urls[:2]
    asked = ("crawl", *urls, "--job", "news", "--workers", "2", "--delay", "0.15", "--json")
    with crawls.start(*asked) as program:
        wait_for(lambda: crawls.total() >= 5, "the first pages")
        assert crawls.command("jobs", "pause", "news") == 0
        wait_for(lambda: crawls.held() == 0, "its workers to let go")
        quiet = now()
        wait_for(lambda: not psutil.Process(program.pid).children(), "its workers to end")
        assert not hits(web, since=quiet)
        assert program.lives
        assert crawls.total() < 2 * PAGES
        crawls.verify()
        assert crawls.command("jobs", "resume", "news") == 0
        answer = program.end()
    assert answer.code == 0, answer
    assert "Job news is paused: `holdfast jobs resume news` resumes it" in answer.err
    assert (answer.json["completed"], answer.json["done"]) == (True, 2 * PAGES)
    assert crawls.value("SELECT count(*) FROM crawls") == 1  # one crawl, with one budget
    seen = hits(web, since=since)
    assert not log_checks.missing_pages([page for site in range(2) for page in web.expected(site)], seen)
    crawls.verify()
    crawls.crawl(*urls, job="never paused")
    assert end_state(crawls, "news") == end_state(crawls, "never paused")


def stands_still(crawls: Crawls) -> bool:
    """Whether no page was committed for as long as several commits take."""
    before = crawls.total()
    time.sleep(0.4)
    return crawls.total() == before


def test_a_page_that_does_not_come_does_not_hold_a_pause_up(crawls: Crawls, web: WebProcess) -> None:
    """The request is given up; its URL waits as before, and the log shows what was sent."""
    crawls.set(fetch={"timeout": 90, "connect_timeout": 2}, claims={"lease": 900})
    begun = now()
    job = crawls.begin(web.url(0), job="slow", delay=0).job
    with crawls.worker(job) as worker:
        wait_for(lambda: crawls.total() >= 3, "the first pages")
        web.pause(3600)  # longer than anybody here waits
        try:
            wait_for(lambda: stands_still(crawls), "requests that get no answer")
            crawls.connection.execute("UPDATE crawl_jobs SET state = 'paused' WHERE id = %s", (job.id,))
            worker.end()
        finally:
            web.pause(0)
    quiet, done = now(), crawls.total()
    assert crawls.held() == 0
    assert not hits(web, since=quiet)
    assert crawls.total() == done < PAGES
    assert crawls.value("SELECT max(attempts) FROM url_frontier WHERE state = 'waiting'") == 0
    assert int(str(crawls.value("SELECT count(*) FROM crawl_log WHERE outcome = 'given_up'"))) > 0
    assert crawls.value("SELECT count(*) FROM crawl_log") == len(pages(hits(web, since=begun))), (
        "every request is in the log"
    )
    assert crawls.value("SELECT sum(total_error_count) FROM domains") == 0
    crawls.verify()


def test_all_are_killed_while_it_is_paused(crawls: Crawls, web: WebProcess) -> None:
    """The crawl and its one worker, in one process."""
    urls = web.urls[:2]
    with crawls.start("crawl", *urls, "--job", "news", "--workers", "1", "--delay", "0.1") as program:
        wait_for(lambda: crawls.total() >= 5, "the first pages")
        crawls.command("jobs", "pause", "news")
        assert program.lives
        program.kill()
    assert crawls.total() < 2 * PAGES
    with pytest.raises(Refused, match="paused"):
        crawls.begin(*urls, job="news")
    crawls.command("jobs", "resume", "news")
    assert crawls.crawl(*urls, job="news", delay=0).completed
    assert crawls.total() == 2 * PAGES
    crawls.verify()


def test_a_standing_worker_lets_go_of_one_job_takes_up_another_and_comes_back(crawls: Crawls, web: WebProcess) -> None:
    crawls.set(domains={"crawl_delay": 0.02})
    for number, name in enumerate(("one", "two")):
        assert crawls.command("jobs", "create", name, web.url(number), "--allow-private") == 0
    crawls.command("jobs", "pause", "two")
    with crawls.worker(None):
        wait_for(lambda: crawls.total() >= 5, "pages of the first")
        crawls.command("jobs", "pause", "one")
        wait_for(lambda: crawls.held() == 0, "it to let go")
        before = crawls.total()
        assert not crawls.pages_of(web.address.host(1))
        crawls.command("jobs", "resume", "two")
        wait_for(lambda: crawls.pages_of(web.address.host(1)) == PAGES, "the other one")
        assert crawls.total() == before + PAGES
        crawls.command("jobs", "resume", "one")
        wait_for(lambda: crawls.total() == 2 * PAGES, "the rest")
        ended = "SELECT count(*) FROM crawl_jobs WHERE name IN ('one', 'two') AND state = 'completed'"
        wait_for(lambda: crawls.value(ended) == 2, "both to be completed, by proof")
    crawls.verify()


def test_a_cancelled_job_ends_its_crawl_and_starts_anew_if_asked(
    crawls: Crawls, web: WebProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = ("crawl", web.url(0), "--job", "news", "--workers", "1", "--delay", "0.15")
    with crawls.start(*asked) as program:
        wait_for(lambda: crawls.total() >= 3, "the first pages")
        crawls.command("jobs", "cancel", "news")
        answer = program.end()
    assert (answer.code, answer.err.splitlines()[-1]) == (
        5,
        "Error: Job news was cancelled. Its pages are in the store; --again starts it again.",
    )
    assert crawls.command(*asked) == 5
    assert "is cancelled; --again starts it again" in capfd.readouterr().err
    assert crawls.command("crawl", "--job", "news", "--workers", "1", "--delay", "0", "--again", "--json") == 0
    again = json.loads(capfd.readouterr().out)
    assert (again["completed"], again["done"]) == (True, PAGES)
    crawls.verify()


def test_a_job_is_deleted_under_its_workers(crawls: Crawls, web: WebProcess) -> None:
    """Batches that were under way write nothing for it that would stay."""
    crawls.crawl(web.url(0), job="kept")
    job = crawls.begin(*web.urls[:3], job="gone", delay=0.01).job
    with crawls.worker(job) as worker, crawls.worker(job, "w2") as other:
        wait_for(lambda: crawls.total() >= PAGES + 10, "its first pages")
        assert crawls.command("jobs", "delete", "gone", "--yes") == 0
        worker.end()
        other.end()
    assert crawls.held() == 0
    for table in ("url_frontier", "crawled_pages", "page_versions", "job_domains", "domain_wakes"):
        assert crawls.value(f"SELECT count(*) FROM {table} WHERE job_id = %s", job.id) == 0, table
    assert len(end_state(crawls, "kept")) == PAGES
    assert crawls.value("SELECT count(*) FROM crawl_log WHERE job_id = %s", job.id) >= 10  # the log stays
    crawls.verify()


def test_two_jobs_on_one_domain_take_turns_from_the_start(crawls: Crawls, web: WebProcess) -> None:
    """Each has a worker of its own. The small one comes when the large one is under way, and does not wait for its end."""
    crawls.set(crawl={"slice": 1, "patience": 2})
    large = crawls.begin(web.url(1), job="large", delay=0.15).job
    with crawls.worker(large, "large") as first:
        wait_for(lambda: crawls.total() >= 2, "the first pages of the large one")
        small = crawls.begin(web.url(1), job="small", delay=0.15, max_pages=10).job
        with crawls.worker(small, "small") as second:
            second.end()
        assert crawls.value("SELECT count(*) FROM crawled_pages WHERE job_id = %s", small.id) == 10
        assert crawls.value("SELECT count(*) FROM crawled_pages WHERE job_id = %s", large.id) < PAGES
        first.end()
    assert crawls.desk.end(large).completed, "it gave way, and did not end"
    turns = [worker for (worker,) in crawls.rows("SELECT worker FROM claim_log ORDER BY epoch")]
    both = turns[turns.index("small") - 1 : len(turns) - turns[::-1].index("small") + 1]
    assert len(both) > 4
    assert [pair for pair in itertools.pairwise(both) if pair[0] == pair[1]] == [], turns
    crawls.verify()


def test_two_jobs_on_one_domain_have_their_own_pages_and_one_politeness(crawls: Crawls, web: WebProcess) -> None:
    since = now()
    delay = 0.15  # a request that is on its way for longer than that counts as received (politeness/request_rate)
    crawls.set(domains={"crawl_delay": delay}, crawl={"slice": 1, "patience": 3})
    for name in ("one", "two"):
        assert crawls.command("jobs", "create", name, web.url(3), "--allow-private") == 0
    done = "SELECT count(*) FROM crawled_pages WHERE job_id = %s"
    with crawls.worker(None), crawls.worker(None, "w2"):
        for name in ("one", "two"):
            wait_for(lambda name=name: crawls.value(done, job_id(crawls, name)) == FEW, name)  # type: ignore[misc]
    assert end_state(crawls, "one") == end_state(crawls, "two")
    seen = pages(hits(web, 3, since=since))
    assert len(seen) == crawls.total() == 2 * FEW
    served = [job for (job,) in crawls.rows("SELECT job_id FROM crawl_log ORDER BY crawled_at")]
    assert sum(before != after for before, after in itertools.pairwise(served)) >= 2, "they took turns"
    assert log_checks.too_close(seen, delay) == []
    crawls.verify()
