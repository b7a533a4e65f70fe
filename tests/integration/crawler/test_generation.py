"""A worker of an old generation that comes back: a real process, frozen while the store is restored. It writes nothing and says why."""

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from holdfast.db import generation
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawls import Crawls, Program, wait_for

PAGES = 60
WRITTEN = (
    "SELECT (SELECT count(*) FROM crawl_log), (SELECT sum(pages_crawled) FROM domains), (SELECT count(*) FROM url_frontier),"
    "(SELECT count(*) FROM claim_log), (SELECT array_agg(status::text) FROM crawl_runs), (SELECT max(token::text) FROM commit_markers)"
)


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(23, 1, Site(PAGES, 20, 600, latency=0.01))) as served:
        yield served


def _frozen(crawls: Crawls, web: WebProcess, program: Program) -> None:
    """Freeze the worker while results wait to be committed."""
    wait_for(lambda: crawls.total() >= 10, "the first pages")
    asked = web.stats()["requests"][web.address.host(0)]
    wait_for(lambda: web.stats()["requests"][web.address.host(0)] > asked + 3, "more requests")
    os.kill(program.pid, signal.SIGSTOP)
    wait_for(lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED)


@pytest.mark.parametrize("sessions", ["cut", "alive"])
def test_a_frozen_worker_writes_nothing_after_a_restore(crawls: Crawls, web: WebProcess, sessions: str) -> None:
    """`cut`: as a restored server does; `alive`: the store was replaced under a server that stayed."""
    crawls.set(flush={"pages": 10, "seconds": 0.2})
    with crawls.start("crawl", web.url(0), "--workers", "1", "--delay", "0.03") as program:
        _frozen(crawls, web, program)
        if sessions == "cut":
            crawls.value(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        generation.begin(crawls.connection, why="restore", actor="test")
        before = crawls.rows(WRITTEN)
        os.kill(program.pid, signal.SIGCONT)
        answer = program.end()
    assert answer.code == 5
    assert "generation 1, now " in answer.err
    after = crawls.rows(WRITTEN)
    if sessions == "alive":  # the marker of a commit that was refused
        before, after = [row[:-1] for row in before], [row[:-1] for row in after]
    assert after == before
    assert crawls.total() < PAGES
    crawls.verify()
    finished = crawls.run("crawl", web.url(0), "--workers", "1", "--delay", "0.01")  # it goes on in the new generation
    assert finished.code == 0, finished.err
    assert crawls.total() == PAGES
    crawls.verify()
