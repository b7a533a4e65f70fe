"""Ways in which a crawl once stopped getting anywhere, or missed a page: each of them is tried here, on small sites."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.cli import crawl as crawl_command
from holdfast.crawler import supervisor as supervisors
from holdfast.crawler.batch_writer import BatchWriter
from holdfast.crawler.robots_cache import RobotsCache
from holdfast.crawler.supervisor import Supervisor
from holdfast.db import commit
from holdfast.db.connection import Database
from holdfast.errors import StoreUnavailable
from holdfast.model.url import url_key
from tests.support.crawls import Crawls, wait_for
from tests.support.pages import Page, Pages, html

LINKS = [f"/{i}" for i in range(8)]
SMALL = {"/": html(*LINKS), **{link: html() for link in LINKS}}


def few(function: Callable[..., Any], most: int = 1000) -> Callable[..., Any]:
    """The same function, for so many calls: a loop that never waits can only be ended from inside."""
    calls = 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        assert calls <= most, f"{function.__qualname__} is called without end"
        return function(*arguments, **options)

    return counted


def test_a_robots_that_is_to_be_asked_for_much_later_holds_nobody_up(
    crawls: Crawls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pause between two attempts is short, but the server asked for ten minutes: the visit ends with that wait."""
    monkeypatch.setattr("holdfast.crawler.robots_cache.RETRIES", (0.01, 0.01))
    monkeypatch.setattr(RobotsCache, "get", few(RobotsCache.get))
    busy = {"/robots.txt": Page(b"", 503, {"Retry-After": "600"}), "/": html()}
    with Pages(busy) as later, Pages(SMALL) as good:
        ended = crawls.crawl(later.url(), good.url(), delay=0)
        assert [name for _, name in later.asked] == ["localhost/robots.txt"]
        assert sorted(good.paths()) == sorted(SMALL)
        assert (ended.completed, ended.status.delayed, ended.progress.pages) == (False, 1, len(SMALL))
        wait = crawls.value("SELECT max(extract(epoch FROM not_before - clock_timestamp())) FROM job_domains")
        assert 590 < float(wait) <= 600
        assert crawls.command("crawl", later.url(), good.url(), "--delay", "0") == 0
        assert "asked for fewer requests (429, 503 or Retry-After), until 20" in capsys.readouterr().out
        assert len(later.asked) == 1
    crawls.verify()


def test_a_domain_that_is_reset_with_a_full_batch_is_crawled_on(
    crawls: Crawls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch is being committed, the next one is full, and all of it belongs to a visit that loses its domain."""
    full = 3
    added, gate = [], threading.Event()
    add, write = BatchWriter.add, commit.commit

    def counted(*arguments: Any) -> None:
        add(*arguments)
        added.append(arguments)

    def held_up(*arguments: Any, **options: Any) -> commit.CommitResult:
        assert gate.wait(60)
        return write(*arguments, **options)

    monkeypatch.setattr(BatchWriter, "add", counted)
    monkeypatch.setattr(commit, "commit", held_up)
    crawls.set(flush={"pages": full, "seconds": 0.1})
    with Pages(SMALL) as site:
        seeds = [site.url(path) for path in SMALL]
        job = crawls.begin(*seeds, concurrency=1, delay=0).job
        with crawls.worker(job) as worker:
            try:
                wait_for(lambda: len(added) == 2 * full, "two batches")
                assert crawls.command("domain-reset", f"localhost:{site.port}") == 0
            finally:
                gate.set()
            wait_for(lambda: crawls.total() == len(SMALL), "all pages", 20)
            worker.end()
        assert crawls.desk.end(job).completed
        assert len(site.paths()) == 2 * full + len(SMALL)  # what was in the batches is nobody's
    assert set(crawls.frontier().values()) == {("done", None)}
    assert [why for (why,) in crawls.rows("SELECT why FROM claim_log ORDER BY epoch")][-1] == "released"
    crawls.verify()


def test_a_stop_while_the_database_is_away_comes_to_an_end(crawls: Crawls, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim waits for the database, and so do pages that want to be committed; both give up after a drain."""
    gone, tried = threading.Event(), set()
    connect, call_later = Database.connect, asyncio.BaseEventLoop.call_later

    def away(self: Database) -> psycopg.Connection:
        if gone.is_set() and self.application.startswith("holdfast "):
            tried.add(self.application)
            raise StoreUnavailable("The database was stopped by the test.")
        return connect(self)

    def sooner(loop: asyncio.BaseEventLoop, delay: float, *what: Any, **more: Any) -> asyncio.TimerHandle:
        return call_later(loop, delay / 20, *what, **more)

    monkeypatch.setattr(Database, "connect", away)
    monkeypatch.setattr(asyncio.BaseEventLoop, "call_later", sooner)  # the worker's waits are seconds long
    crawls.set(worker={"drain": 0.1})
    with Pages(SMALL) as site:
        job = crawls.begin(site.url(), delay=0.2).job
        with crawls.worker(job) as worker:
            try:
                wait_for(lambda: crawls.total() >= 2, "the first pages")
                gone.set()
                crawls.connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name LIKE 'holdfast _%' AND datname = current_database()"
                )
                wait_for(lambda: tried >= {"holdfast worker", "holdfast batch writer"}, "it to be missed")
                worker.stop()
                wait_for(lambda: not worker.lives, "the worker to end", 20)
            finally:
                gone.clear()  # so that it ends in any case
            worker.end()
    assert 2 <= crawls.total() < len(SMALL)
    assert crawls.held() == 1  # for its next life, or until the lease ends
    crawls.verify()


def test_an_origin_that_is_dead_does_not_close_the_other_one_of_its_domain(
    crawls: Crawls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.crawler.robots_cache.RETRIES", (0.01, 0.01))
    with Pages(SMALL) as site:
        https = (f"https://localhost:{site.port}/{n}" for n in count())  # nobody speaks TLS there
        dead = next(url for url in https if url_key(url) < url_key(site.url()))  # it comes first
        ended = crawls.crawl(dead, site.url(), delay=0)
        assert sorted(site.paths()) == sorted(SMALL)
    assert crawls.value("SELECT count(*) FROM domains") == 1
    assert (ended.completed, ended.progress.pages, ended.status.delayed) == (False, len(SMALL), 1)
    assert crawls.frontier("https:%") == {dead: ("waiting", "robots_unavailable: asked again later")}
    crawls.verify()


def test_a_page_that_was_too_deep_is_fetched_when_a_shorter_way_is_found(crawls: Crawls) -> None:
    """The page with the shorter way fails until the longer way has led there."""
    crawls.set(politeness={"retries": 50, "retry_delay": 0.1, "circuit_failures": 100})
    answers = {
        "/": html("/near", "/far"),
        "/near": Page(b"", 500),
        "/far": html("/farther"),
        "/farther": html("/deep"),
        "/deep": html("/deeper"),
    }
    with Pages(answers) as site:
        job = crawls.begin(site.url(), max_depth=2, delay=0).job
        with crawls.worker(job) as worker:
            deep, deeper = site.url("/deep"), site.url("/deeper")
            wait_for(lambda: crawls.frontier(deep).get(deep, ("", None))[0] == "denied", "the longer way")
            site.answers["/near"] = html("/deep")
            worker.end()
        assert crawls.desk.end(job).completed
        assert [path for path in site.paths() if path != "/near"] == ["/", "/far", "/farther", "/deep"]
    assert crawls.frontier(deep) == {deep: ("done", None)}
    assert crawls.value("SELECT depth FROM url_frontier WHERE url = %s", deep) == 2
    assert crawls.frontier(deeper)[deeper][0] == "denied"
    assert crawls.rows("SELECT waiting, denied FROM job_domains") == [(0, 1)]
    crawls.verify()


def test_a_worker_that_cannot_reach_the_database_is_started_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisors, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(supervisors, "MAX_PAUSE", 0.01)
    supervisor = Supervisor(lambda _: ["sh", "-c", "exit 3"], 1, tmp_path)
    supervisor.start()
    wait_for(lambda: not supervisor.tick() or supervisor.restarts >= 3 * supervisors.MAX_FAULTS)
    assert supervisor.refusal is None
    assert not supervisor.done
    supervisor.kill()


def test_a_worker_that_is_refused_does_not_make_a_finished_crawl_a_failure(
    crawls: Crawls, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []

    class OneIsRefused(Supervisor):
        def __init__(self, command: Callable[[int], Sequence[str]], count: int, folder: Path, **more: Any) -> None:
            super().__init__(
                lambda number: command(1) if number == 1 else ["sh", "-c", "exit 5"], count, folder, **more
            )
            made.append(self)

    monkeypatch.setattr(crawl_command, "Supervisor", OneIsRefused)
    monkeypatch.setattr("holdfast.telemetry.log.set_up", lambda *_: None)
    with Pages(SMALL) as site:
        code = crawls.command("crawl", site.url(), "--delay", "0", "--workers", "2", "--allow-private")
        assert sorted(site.paths()) == sorted(SMALL)
    assert code == 0, capsys.readouterr()
    assert "is complete" in capsys.readouterr().out
    (supervisor,) = made
    assert (supervisor.done, supervisor.refusal, supervisor.restarts) == (True, 5, 0)
    crawls.verify()
