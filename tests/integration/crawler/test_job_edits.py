"""Edits of a job that is under way or stopped at a limit: visits go by them, and what was fetched counts."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from holdfast.jobs import edits as job_edits
from holdfast.jobs.crawls import CrawlRequest
from holdfast.jobs.records import EditedJob
from holdfast.jobs.service import JobService
from holdfast.model.job import Job
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawls import Crawls, hits, now, pages, wait_for

PAGES = 30


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(31, 2, Site(PAGES, 6, 500))) as served:
        yield served


def edit(crawls: Crawls, job: Job, *words: str) -> EditedJob:
    changes = job_edits.parse(words)
    edited = JobService(crawls.database, "ann").edit(job.id, changes)
    job_edits.follow_up(crawls.desk, job.id, tuple(changes))
    return edited


def stopped(crawls: Crawls, pages: int) -> None:
    wait_for(
        lambda: crawls.rows("SELECT state::text FROM crawls") == [("finished",)],
        f"the crawl to stop after {pages} pages",
    )
    assert crawls.total() == pages


@pytest.mark.parametrize(
    ("limit", "first", "then"), [("max_pages", 10, 25), ("max_pages_per_domain", 5, 12), ("rounds", 1, 2)]
)
def test_a_raised_limit_goes_on_under_the_same_crawl_and_a_lifted_one_ends_the_job(
    crawls: Crawls, web: WebProcess, limit: str, first: int, then: int
) -> None:
    """By a worker that runs; nobody gives the crawl a new budget."""
    crawls.set(domains={"max_pages_per_run": 6})
    since = now()
    counts = {"max_pages": (10, 25), "max_pages_per_domain": (10, 24), "rounds": (12, 24)}[limit]
    job = crawls.desk.begin(CrawlRequest((web.url(0), web.url(1)), None, "news", {limit: first})).job
    with crawls.worker(None):
        stopped(crawls, counts[0])
        edited = edit(crawls, job, f"{limit}={then}")
        assert edited.changed == [limit]
        assert "same crawl" in edited.note
        wait_for(lambda: crawls.total() == counts[1], "the pages of the new limit")
        stopped(crawls, counts[1])
        edit(crawls, job, f"{limit}=")
        wait_for(lambda: crawls.value("SELECT state::text FROM crawl_jobs WHERE id = %s", job.id) == "completed")
    assert crawls.total() == 2 * PAGES == len(pages(hits(web, since=since)))
    assert crawls.value("SELECT count(*) FROM crawls") == 1
    crawls.verify()


def test_a_greater_depth_reopens_a_completed_job_with_the_reason(crawls: Crawls, web: WebProcess) -> None:
    job = crawls.begin(web.url(0), job="news", max_depth=1).job
    states = "SELECT state::text, state_reason FROM crawl_jobs WHERE id = %s"
    with crawls.worker(None):
        wait_for(lambda: crawls.rows(states, job.id) == [("completed", None)])
        before = crawls.total()
        assert before < PAGES
        edit(crawls, job, "max_pages=1000")
        assert crawls.rows(states, job.id) == [("completed", None)], "nothing was left out for that"
        edit(crawls, job, "max_depth=20")
        wait_for(lambda: crawls.total() == PAGES, "the deeper pages")
        wait_for(lambda: crawls.rows(states, job.id) == [("completed", None)])
    told = crawls.value("SELECT data ->> 'reason' FROM events WHERE kind = 'job' AND data ->> 'what' = 'reopened'")
    assert told == "it was edited: max_depth"
    crawls.verify()


def test_a_job_that_had_ended_goes_on_by_a_worker_when_an_edit_retries_urls(crawls: Crawls, web: WebProcess) -> None:
    crawls.set(fetch={"allow_private": False})
    crawls.crawl(web.url(0), job="news")
    assert crawls.rows("SELECT state::text FROM crawl_jobs WHERE name = 'news'") == [("failed",)]
    with crawls.worker(None):
        edit(crawls, crawls.desk.job("news"), "allow_private=yes")
        wait_for(lambda: crawls.total() > 0, "a page")


def test_a_first_limit_counts_what_a_batch_that_is_being_committed_has_used(crawls: Crawls, web: WebProcess) -> None:
    job = crawls.begin(web.url(0), job="news", delay=2).job
    with crawls.worker(job), ThreadPoolExecutor(1) as pool:
        wait_for(lambda: crawls.total() >= 1, "the first page")
        with crawls.connection.transaction():  # as a batch does it
            crawls.connection.execute("SELECT id FROM domains FOR NO KEY UPDATE")
            crawls.connection.execute("UPDATE job_domains SET granted = granted + 5, budget_used = budget_used + 5")
            edited = pool.submit(edit, crawls, job, "max_pages=1000", "delay=60")
            with suppress(TimeoutError):
                edited.result(timeout=0.3)
        edited.result(timeout=20)
        assert crawls.value("SELECT pages_granted - (SELECT sum(granted) FROM job_domains) FROM crawls") == 0


def test_pace_parser_and_a_lower_limit_reach_a_visit_under_way(crawls: Crawls, web: WebProcess) -> None:
    job = crawls.begin(web.url(0), job="news", delay=1).job
    with crawls.worker(job) as worker:
        wait_for(lambda: crawls.total() >= 1, "the first page")
        assert "within two seconds" in edit(crawls, job, "delay=0.05", "parser=product").note
        wait_for(lambda: crawls.value("SELECT count(*) FROM page_parses") >= 3, "pages that are parsed", 20)
        edit(crawls, job, "delay=0.1", "max_pages=12")
        worker.end()
    assert crawls.total() <= 12 + 5 < PAGES
    crawls.verify()
