"""`holdfast crawl` while others have a hand in its job: a sweep completes it; a person pauses, resumes, cancels or deletes it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import psutil
import psycopg
import pytest

from holdfast.db import crawls as store_crawls
from holdfast.db import job_ends, sweeper
from holdfast.jobs.crawls import CrawlRequest
from holdfast.jobs.service import JobService
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.cli import Answer
from tests.support.crawls import Crawls, Program, wait_for

PAGES = 12
SLOWLY = ("--delay", "0.2")
"""Seconds are left to do something about a crawl that has got its first page."""
CRAWL = ("crawl", "--job", "news", "--workers", "1", "--json")
PAUSED = "Job news is paused: `holdfast jobs resume news` resumes it, Ctrl-C leaves it paused.\n"


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(23, 1, Site(PAGES, 4, 500))) as served:
        yield served


@pytest.fixture
def desk(crawls: Crawls) -> JobService:
    """A person at another terminal."""
    return JobService(crawls.database, "somebody else")


@pytest.fixture
def patient_connection(crawls: Crawls) -> Iterator[psycopg.Connection]:
    """One whose transaction may wait for as long as a program takes to start."""
    with replace(crawls.database, idle_timeout=0).connect() as connection:
        yield connection


def state(crawls: Crawls) -> str:
    return str(crawls.value("SELECT state::text FROM crawl_jobs WHERE name = 'news'"))


def ended_runs(crawls: Crawls) -> int:
    return int(crawls.value("SELECT count(*) FROM crawl_runs WHERE status <> 'running'"))


def said(crawls: Crawls) -> str:
    """What programs have told the person so far."""
    return "".join(file.read_text() for file in crawls.folder.glob("err-*"))


def wait_until_it_waits(crawls: Crawls, program: Program) -> None:
    """Return when it has said that its job is paused; fail if it ends instead."""
    wait_for(lambda: PAUSED in said(crawls) or not program.lives, "it to say that it waits")
    assert PAUSED in said(crawls)


def has_ended(program: Program) -> Answer:
    """How it ended; fails if it does not."""
    wait_for(lambda: not program.lives, "the crawl to end")
    return program.end()


def assert_complete(crawls: Crawls, answer: Answer) -> None:
    assert answer.code == 0, answer
    assert (answer.json["completed"], answer.json["done"]) == (True, PAGES)
    assert crawls.value("SELECT count(*) FROM crawled_pages") == PAGES
    assert state(crawls) == "completed"
    crawls.verify()


def start_with_a_worker_apart(crawls: Crawls, *arguments: str) -> Program:
    """A crawl that has its worker in a process of its own, as one with several has; without claims a single one is enough for that."""
    return crawls.start(*CRAWL, *arguments, ENABLE_CLAIM_PROTOCOL="false")


@contextmanager
def between_two_looks(program: Program) -> Iterator[None]:
    """From when its worker is started the crawl itself stands still, and looks again only after what is done here."""
    process = psutil.Process(program.pid)
    wait_for(process.children, "its worker to be started")
    program.send(signal.SIGSTOP)
    wait_for(lambda: process.status() == psutil.STATUS_STOPPED, "it to stand still")
    yield
    program.send(signal.SIGCONT)


# A sweep --------------------------------------------------------------------------------------------------------------


def test_a_crawl_ends_when_a_sweep_has_completed_its_job(crawls: Crawls, web: WebProcess) -> None:
    """Once its worker has gone nobody serves the job, and the sweep of any other may find it done. That is no pause."""
    with start_with_a_worker_apart(crawls, web.url(), "--delay", "0") as program:
        with between_two_looks(program):
            wait_for(lambda: ended_runs(crawls) == 1, "its worker to end")
            sweeper.sweep(crawls.connection, run_silence=timedelta(hours=1))
            assert state(crawls) == "completed"
        answer = has_ended(program)
    assert_complete(crawls, answer)
    assert "paused" not in answer.err


def test_a_worker_of_one_job_completes_it(crawls: Crawls, web: WebProcess) -> None:
    """No other worker may run, whose sweep would find the job done."""
    crawls.begin(web.url(), job="news", delay=0.0)
    assert (crawls.command("worker", "--job", "news"), state(crawls)) == (0, "completed")
    crawls.verify()


def test_a_crawl_that_finds_nothing_to_do_ends_when_a_sweep_has_completed_its_job(
    crawls: Crawls, web: WebProcess, patient_connection: psycopg.Connection
) -> None:
    """It has begun a crawl, which nobody serves yet: the sweep of another may be quicker than its first look."""
    crawls.crawl(web.url(), job="news", delay=0)
    with crawls.start(*CRAWL) as program:
        with patient_connection.transaction():
            patient_connection.execute("LOCK TABLE proxies")  # looked at between the beginning and what there is to do
            looks = "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'proxies'::regclass AND NOT granted)"
            wait_for(lambda: crawls.value(looks), "its look at the proxies")
            assert state(crawls) == "processing"
            assert job_ends.finish_idle(patient_connection) == 1
        answer = has_ended(program)
    assert_complete(crawls, answer)
    assert "paused" not in answer.err


def test_a_crawl_that_a_sweep_finished_as_soon_as_it_was_begun_ends_as_well(
    crawls: Crawls, web: WebProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawls.crawl(web.url(), job="news", delay=0)
    begin = store_crawls.begin

    def finished_at_once(connection: psycopg.Connection, job_id: int) -> tuple[int, bool]:
        begun = begin(connection, job_id)
        assert job_ends.finish_idle(crawls.connection) == 1
        return begun

    monkeypatch.setattr(store_crawls, "begin", finished_at_once)
    assert crawls.command(*CRAWL) == 0
    assert state(crawls) == "completed"


# A person -------------------------------------------------------------------------------------------------------------


def test_a_pause_that_ends_before_the_crawl_looks_costs_no_page(
    crawls: Crawls, web: WebProcess, desk: JobService
) -> None:
    """Its worker left because of the pause. That the job can be worked on by now does not mean that it was finished."""
    with start_with_a_worker_apart(crawls, web.url(), *SLOWLY) as program:
        with between_two_looks(program):
            wait_for(crawls.total, "the first page")
            desk.pause("news")
            wait_for(lambda: ended_runs(crawls) == 1, "its worker to let go")
            assert crawls.total() < PAGES
            crawls.desk.prepare(CrawlRequest(job="news", options={"delay": 0}))  # the rest need not be slow
            desk.resume("news")
        answer = has_ended(program)
    assert_complete(crawls, answer)
    assert crawls.value("SELECT count(*) FROM crawls") == 1  # it went on with the same one, and its budget


@pytest.fixture
def waiting(crawls: Crawls, web: WebProcess, desk: JobService) -> Iterator[Program]:
    """A crawl whose job was paused before it began, and that has said so."""
    crawls.desk.prepare(CrawlRequest((web.url(),), job="news", options={"delay": 0, "allow_private": True}))
    desk.pause("news")
    with crawls.start(*CRAWL) as program:
        wait_until_it_waits(crawls, program)
        yield program


def test_a_crawl_that_finds_its_job_paused_goes_on_when_it_is_resumed(
    crawls: Crawls, waiting: Program, desk: JobService
) -> None:
    assert waiting.lives
    assert state(crawls) == "paused"
    assert crawls.value("SELECT count(*) FROM crawls") == 0  # nothing is begun behind the person's back
    desk.resume("news")
    assert_complete(crawls, has_ended(waiting))


def test_a_crawl_that_waits_for_its_paused_job_ends_when_it_is_cancelled(
    crawls: Crawls, waiting: Program, desk: JobService
) -> None:
    desk.cancel("news")
    answer = has_ended(waiting)
    assert (answer.code, answer.out) == (5, "")
    assert answer.err.startswith(f"{PAUSED}Error: Job ")
    assert answer.err.endswith(" is cancelled; --again starts it again.\n")
    assert (state(crawls), crawls.total()) == ("cancelled", 0)


def test_a_crawl_that_waits_for_its_paused_job_ends_when_it_is_deleted(waiting: Program, desk: JobService) -> None:
    desk.delete("news")
    answer = has_ended(waiting)
    assert (answer.code, answer.out) == (4, "")
    assert answer.err.startswith(f"{PAUSED}Error: There is no job ")


def test_a_crawl_that_is_paused_under_way_ends_when_its_job_is_cancelled(
    crawls: Crawls, web: WebProcess, desk: JobService
) -> None:
    with crawls.start(*CRAWL, web.url(), *SLOWLY) as program:
        wait_for(crawls.total, "the first page")
        desk.pause("news")
        wait_until_it_waits(crawls, program)
        desk.cancel("news")
        answer = has_ended(program)
    assert (answer.code, answer.out) == (5, "")
    assert answer.err.endswith(
        f"{PAUSED}Error: Job news was cancelled. Its pages are in the store; --again starts it again.\n"
    )
    assert 0 < crawls.total() < PAGES
    crawls.verify()


def test_a_crawl_that_a_full_disk_refuses_leaves_no_job_behind(crawls: Crawls) -> None:
    crawls.set(disk={"min_free": 10**15, "warn_free": 10**15})
    ended = crawls.run("crawl", "https://a.example/", "--job", "late")
    assert (ended.code, ended.err.count("\n")) == (5, 1)
    assert ended.err.startswith("Error: Nothing is fetched: the disk of ")
    assert crawls.connection.execute("SELECT count(*) FROM crawl_jobs WHERE name = 'late'").fetchone() == (0,)
