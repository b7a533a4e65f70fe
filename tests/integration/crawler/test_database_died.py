"""The bundled server under long-running commands: started again when it died, left alone when a person stopped it."""

import json
import re
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.db import embedded, migrate
from holdfast.db.connection import Database
from holdfast.testing.simweb import log_checks
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.support.crawls import Crawls, Program, environment, hits, now, wait_for
from tests.support.servers import data_in_memory, kill

PAGES = 80


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(23, 2, Site(PAGES, 20, 600, latency=0.02))) as served:
        yield served


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    """A bundled server of this module's own: it is going to suffer."""
    with data_in_memory() as folder:
        migrate.upgrade(Database(embedded.ensure_running(folder).url()))
        yield folder


@pytest.fixture
def crawls(data: Path, tmp_path: Path) -> Iterator[Crawls]:
    """Crawls on that server, which the commands find by their data folder alone."""
    database = Database(embedded.ensure_running(data).url())
    made = Crawls(database, database.connect(), tmp_path)
    made.set(flush={"pages": 10, "seconds": 0.1}, store={"connect_timeout": 2})
    try:
        yield made
    finally:
        made.connection.close()


def environ(crawls: Crawls) -> dict[str, str]:
    """The settings without the address of a database: the bundled server is used."""
    own = environment(crawls.database, crawls.groups) | {"HOLDFAST_DATA": str(data_of(crawls))}
    del own["HOLDFAST_DATABASE_URL"]
    return own


def data_of(crawls: Crawls) -> Path:
    socket_folder = re.search(r"host=([^&]+)", crawls.database.url)
    assert socket_folder
    return Path(socket_folder[1]).parent


def died(crawls: Crawls) -> None:
    """kill -9 of the postmaster; after: another one answers."""
    data = data_of(crawls)
    crawls.connection.close()
    server = embedded.find(data)
    assert server
    kill(server)
    wait_for(lambda: embedded.find(data), "the server to come back", 40)
    crawls.connection = crawls.database.connect()


def test_a_crawl_goes_on_when_its_server_died_and_waits_when_it_was_stopped(web: WebProcess, crawls: Crawls) -> None:
    since, data = now(), data_of(crawls)
    asked = ("crawl", web.url(0), web.url(1), "--workers", "2", "--delay", "0.04")
    with Program(asked, environ(crawls), crawls.folder) as crawling:
        wait_for(lambda: crawls.total() >= 10, "the first pages")
        died(crawls)
        at = crawls.total()
        wait_for(lambda: crawls.total() > at, "more pages")
        assert at < 2 * PAGES

        crawls.connection.close()
        assert embedded.stop(data)
        time.sleep(3)  # longer than it takes to come back from its death
        assert embedded.find(data) is None, "stopped by a person, and started again"
        assert crawling.lives, crawling.end()
        embedded.ensure_running(data)
        crawls.connection = crawls.database.connect()
        answer = crawling.end()
    assert (answer.code, crawls.total()) == (0, 2 * PAGES), answer
    assert "PostgreSQL had died and runs again" in answer.err
    assert "was stopped by `holdfast db stop`" in answer.err
    assert not log_checks.count_refetches(hits(web, 0, 1, since=since))
    crawls.verify()


def test_serve_is_ready_again_when_its_server_died(crawls: Crawls) -> None:
    arguments = ("serve", "--port", "0", "--workers", "1", "--no-auth")
    with Program(arguments, environ(crawls), crawls.folder) as serving:
        try:
            wait_for(lambda: re.search(r"Serving at (\S+)", serving.said()), "the address")
            found = re.search(r"Serving at (\S+)", serving.said())
            assert found
            wait_for(lambda: ready(found[1]), "the API")
            died(crawls)
            wait_for(lambda: ready(found[1]), "the API to be ready again")
        finally:
            serving.send(signal.SIGINT)
            assert serving.end().code == 130
    assert "PostgreSQL had died and runs again" in serving.said()


def ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health/ready", timeout=5) as answer:  # noqa: S310 — of this test
            return bool(json.load(answer))
    except (urllib.error.URLError, OSError):
        return False
