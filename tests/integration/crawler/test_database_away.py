"""The database goes away during a crawl: fetching pauses, nothing is lost, and it goes on by itself when it is back (W14)."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from holdfast.simweb import judge
from holdfast.simweb.plan import Site, Web
from holdfast.simweb.process import WebProcess
from holdfast.store import embedded, migrate
from holdfast.store.connect import Database
from tests.support.cli import only_ours
from tests.support.crawls import Crawls, hits, now, wait_for
from tests.support.servers import data_in_memory

FLUSH = 10
IN_FLIGHT = 5
BACK_WITHIN = 10.0
"""Seconds from when the database is back until pages are committed again."""


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(19, 2, Site(150, 20, 600, latency=0.01))) as served:
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
            os.kill(process.pid, signal.SIGCONT)

    return thaw


@pytest.mark.parametrize("how", ["frozen", "stopped"])
def test_the_crawl_waits_and_goes_on(
    web: WebProcess,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    figure: Callable[[str], None],
    how: str,
) -> None:
    site = ("frozen", "stopped").index(how)
    host, since = web.address.host(site), now()
    server = start(data)
    with crawls_on(server, tmp_path, monkeypatch) as crawls:
        asked = ("crawl", web.url(site), "--workers", "1", "--delay", "0.01")
        with crawls.start(*asked) as program:
            wait_for(lambda: crawls.total() >= 30, "the first pages")
            if how == "frozen":
                bring_back = frozen(server)
            else:
                crawls.connection.close()
                embedded.stop(data)
                bring_back = lambda: _restart(data, crawls)  # noqa: E731
            silent_from = _when_silent(web, host)
            before = psutil.Process(program.pid).memory_info().rss
            time.sleep(1.0)  # however long it lasts
            assert program.lives
            grown = psutil.Process(program.pid).memory_info().rss - before
            assert grown < 30 << 20
            assert web.stats()["requests"][host] == silent_from  # nothing was asked for meanwhile
            bring_back()
            began = time.monotonic()
            at = crawls.total()
            # Two batches, one being committed and one that fills, are all that it fetched without the database.
            assert silent_from - 1 - at <= 2 * FLUSH + IN_FLIGHT
            wait_for(lambda: crawls.total() > at, "more pages", BACK_WITHIN)
            figure(f"database {how}: pages again {time.monotonic() - began:.1f} s after it was back")
            assert program.end().code == 0
        assert crawls.total() == 150
        assert not judge.refetched(hits(web, site, since=since))
        assert crawls.value("SELECT count(*) FROM crawl_runs WHERE status = 'completed'") == 1
        crawls.verify()


def _when_silent(web: WebProcess, host: str) -> int:
    """How many requests there were when they stopped coming."""
    count = -1
    deadline = time.monotonic() + 30
    while count != (count := web.stats()["requests"][host]):
        assert time.monotonic() < deadline, "it is asked on and on"
        time.sleep(0.5)
    return count


def _restart(data: Path, crawls: Crawls) -> None:
    server = start(data)
    assert server.url() == crawls.database.url
    crawls.connection = crawls.database.connect()
