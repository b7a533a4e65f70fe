"""The database goes away during a crawl: fetching pauses, nothing is lost, and it goes on by itself when it is back (W14)."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from holdfast.db import embedded, migrate
from holdfast.db.connection import Database
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.cli import only_ours
from tests.support.crawls import Crawls, hits, now, wait_for
from tests.support.servers import data_in_memory

PAGES = 120
FLUSH = 10
IN_FLIGHT = 5
BACK_WITHIN = 10.0
"""Seconds from when the database is back until pages are committed again."""


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(19, 1, Site(PAGES, 20, 600, latency=0.01))) as served:
        yield served


@pytest.fixture
def data() -> Iterator[Path]:
    """A server of the test's own: it is going to suffer."""
    with data_in_memory() as folder:
        yield folder


def start(data: Path) -> embedded.Server:
    return embedded.ensure_running(data, extra_settings={"fsync": "off", "full_page_writes": "off"})


@contextmanager
def crawls_on(server: embedded.Server, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crawls]:
    database = Database(server.url())
    migrate.upgrade(database)
    only_ours(monkeypatch, folder, database)
    connection = database.connect()
    crawls = Crawls(database, connection, folder)
    crawls.set(flush={"pages": FLUSH, "seconds": 0.1}, store={"connect_timeout": 2})
    try:
        yield crawls
    finally:
        crawls.connection.close()


def frozen(server: embedded.Server) -> Callable[[], None]:
    """SIGSTOP of all of it; what thaws it."""
    postmaster = psutil.Process(server.pid)
    everybody = [postmaster, *postmaster.children(recursive=True)]
    for process in everybody:
        os.kill(process.pid, signal.SIGSTOP)

    def thaw() -> None:
        for process in everybody:
            with suppress(ProcessLookupError):  # it was ending when it was frozen
                os.kill(process.pid, signal.SIGCONT)

    return thaw


def stopped(data: Path, crawls: Crawls) -> Callable[[], None]:
    """`holdfast db stop`; what starts it again."""
    crawls.connection.close()
    embedded.stop(data)

    def restart() -> None:
        assert start(data).url() == crawls.database.url
        crawls.connection = crawls.database.connect()

    return restart


def test_the_crawl_waits_and_goes_on(
    web: WebProcess, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figure: Callable[[str], None]
) -> None:
    """One crawl meets both: a server that does not answer, then one that is not there."""
    host, since = web.address.host(0), now()
    server = start(data)
    with crawls_on(server, tmp_path, monkeypatch) as crawls:
        asked = ("crawl", web.url(0), "--workers", "1", "--delay", "0.02")
        with crawls.start(*asked) as program:
            for how, first in (("frozen", 20), ("stopped", 60)):
                wait_for(lambda first=first: crawls.total() >= first, "the first pages")  # type: ignore[misc]
                bring_back = frozen(server) if how == "frozen" else stopped(data, crawls)
                silent_from = _when_silent(web, host)
                before = psutil.Process(program.pid).memory_info().rss
                time.sleep(0.7)  # however long it lasts
                assert program.lives
                grown = psutil.Process(program.pid).memory_info().rss - before
                assert grown < 30 << 20
                assert web.stats()["requests"][host] == silent_from  # nothing was asked for meanwhile
                bring_back()
                began = time.monotonic()
                at = crawls.total()
                assert at < PAGES
                # Two batches, one being committed and one that fills, are all that it fetched without the database.
                assert silent_from - 1 - at <= 2 * FLUSH + IN_FLIGHT
                wait_for(lambda at=at: crawls.total() > at, "more pages", BACK_WITHIN)  # type: ignore[misc]
                figure(f"database {how}: pages again {time.monotonic() - began:.1f} s after it was back")
            assert program.end().code == 0
        assert crawls.total() == PAGES
        assert not log_checks.count_refetches(hits(web, since=since))
        assert crawls.value("SELECT count(*) FROM crawl_runs WHERE status = 'completed'") == 1
        crawls.verify()


def _when_silent(web: WebProcess, host: str) -> int:
    """How many requests there were when they stopped coming."""
    count = -1
    deadline = time.monotonic() + 30
    while count != (count := web.stats()["requests"][host]):
        assert time.monotonic() < deadline, "it is asked on and on"
        time.sleep(0.3)
    return count
