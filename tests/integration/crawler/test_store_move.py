"""Crawls while their store moves: they wait, end with a sentence, and end the same in the new store."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import sql

from holdfast.db import embedded, store_move
from holdfast.db.connection import Database
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.spec import Site, Web
from tests.conftest import MakeDatabase
from tests.support.cli import only_ours
from tests.support.crawls import Crawls, wait_for
from tests.support.moving import mover, old_weeks, rows_of, to_database

PAGES = 60
_RESULT = """
SELECT f.url, f.state::text, f.reason, f.depth, p.status, encode(p.content_hash, 'hex')
FROM url_frontier f LEFT JOIN crawled_pages p USING (domain_id, job_id, url_key) ORDER BY f.url
"""


@pytest.fixture
def place(server: embedded.Server, admin: psycopg.Connection) -> Iterator[Database]:
    """An empty database to move to."""
    name = sql.Identifier("test_crawl_moved")
    admin.execute(sql.SQL("CREATE DATABASE {} OWNER holdfast").format(name))
    yield Database(server.url("test_crawl_moved"))
    admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with WebProcess(Web(25, 1, Site(PAGES, 20, 600, latency=0.01))) as served:
        yield served


def test_a_crawl_goes_on_while_a_store_is_copied_ahead_and_ends_the_same(
    crawls: Crawls,
    make_database: MakeDatabase,
    place: Database,
    web: WebProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker is frozen when the store moves, and wakes up on the old one: it writes nothing there, and says where to go."""
    # A third of a lease is what a frozen transaction holds up the move for.
    crawls.set(flush={"pages": 10, "seconds": 0.2}, claims={"lease": 6})
    old_weeks(crawls.connection)
    command = ("crawl", web.url(0), "--workers", "1", "--delay", "0.02")
    with crawls.start(*command) as program:

        def meanwhile(_: float) -> None:
            copied = crawls.total()
            wait_for(lambda: crawls.total() > copied + 5, "pages while the move is under way")
            os.kill(program.pid, signal.SIGSTOP)
            wait_for(lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED)

        result = mover(crawls.database, to_database(place), patience=30.0).run(confirm=meanwhile)
        assert result.ahead_rows == 3000
        before = rows_of(crawls.connection)
        os.kill(program.pid, signal.SIGCONT)
        answer = program.end()
    assert answer.code == 5
    assert "This store was moved to db.example:5432/holdfast" in answer.err
    assert "set HOLDFAST_DATABASE_URL to the address of that database" in answer.err
    assert "Traceback" not in answer.err
    assert rows_of(crawls.connection) == before
    with place.connect() as connection:
        moved = Crawls(place, connection, tmp_path)
        only_ours(monkeypatch, tmp_path, place)
        assert 0 < moved.total() < PAGES
        finished = moved.run(*command)
        assert finished.code == 0, finished.err
        assert moved.total() == PAGES
        connection.execute("DELETE FROM crawl_log WHERE crawled_at < '2021-01-01'")  # which no crawl has made
        moved.verify()
        ended = connection.execute(_RESULT).fetchall()
    with make_database() as other, other.connect() as connection:
        plain = Crawls(other, connection, tmp_path / "plain")
        plain.folder.mkdir()
        assert plain.run(*command).code == 0
        assert connection.execute(_RESULT).fetchall() == ended


def test_workers_wait_during_the_pause_and_go_on_when_it_is_taken_back(crawls: Crawls, web: WebProcess) -> None:
    crawls.set(flush={"pages": 10, "seconds": 0.2})
    with crawls.start("crawl", web.url(0), "--workers", "1", "--delay", "0.02") as program:
        wait_for(lambda: crawls.total() >= 10, "the first pages")
        store_move.begin(crawls.connection, destination="x", advice="y")
        store_move.close(crawls.connection)
        before = rows_of(crawls.connection)
        log = crawls.folder / "data" / "logs" / "crawl.log"
        wait_for(lambda: "is being moved to x since" in log.read_text(), "the worker to say why it waits")
        assert rows_of(crawls.connection) == before
        assert program.lives
        store_move.reopen(crawls.connection)
        answer = program.end()
    assert answer.code == 0, answer.err
    assert crawls.total() == PAGES
    crawls.verify()
