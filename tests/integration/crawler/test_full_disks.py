"""Disks that fill up during a crawl, each a small one of its own: the crawl pauses, says so everywhere, and goes on by itself.

Judged by the site's own log, the frontier, and `verify`: nothing is fetched meanwhile, nothing is marked as done that is not stored.
"""

import json
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from holdfast.alerts.records import Kind
from holdfast.alerts.rules import Rules
from holdfast.alerts.sentences import describe
from holdfast.alerts.service import AlertService
from holdfast.db import embedded
from holdfast.db.connection import Database
from holdfast.model.auth import Role
from tests.support import disks
from tests.support.api import serving, settings
from tests.support.crawls import Crawls, Program, wait_for
from tests.support.disks import SmallDisk
from tests.support.invariants import violations
from tests.support.page_reader import PageReader
from tests.support.pages import Pages, html
from tests.support.servers import kill, open_folder

pytestmark = pytest.mark.skipif(disks.missing() is not None, reason=f"{disks.missing()}")

PAGES = 40
BOUND = 8_000_000
DATABASE_BOUND = 48_000_000
"""PostgreSQL makes a new file of its log of 16 MB now and then, and what was fetched is still committed."""
LONGEST_RETURN = 30.0
"""Seconds after which a crawl goes on at the latest when there is room again."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user may pass through."""
    with open_folder() as made:
        yield made


@contextmanager
def site() -> Iterator[Pages]:
    with Pages() as pages:
        pages.answers["/"] = html(*(f"/p{page}" for page in range(PAGES)))
        # Random words: their text takes its room in the database, too, compressed or not.
        pages.answers |= {
            f"/p{page}": html(text=random.Random(page).randbytes(30_000).hex(" ", 4)) for page in range(PAGES)
        }
        yield pages


def asked_while_it_waits(site: Pages) -> int:
    """How many requests come within two seconds."""
    before = len(site.paths())
    time.sleep(2)
    return len(site.paths()) - before


def goes_on(site: Pages, begun: float) -> float:
    """Seconds until the next request."""
    asked = len(site.paths())
    wait_for(lambda: len(site.paths()) > asked, "the next request", LONGEST_RETURN)
    return time.monotonic() - begun


def ends_well(crawls: Crawls, site: Pages, program: Program) -> None:
    ended = program.end()
    assert ended.code == 0, ended.err
    assert sorted(set(site.paths())) == sorted(site.answers)
    assert set(crawls.frontier().values()) == {("done", None)}
    assert crawls.total() == PAGES + 1
    crawls.verify()
    assert crawls.command("verify", "--json") == 0


def shown(crawls: Crawls, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What the commands, the API and the dashboard say at this moment."""
    capsys.readouterr()
    said = {}
    for command in ("status", "status --json"):
        assert crawls.command(*command.split()) == 0
        said[command] = capsys.readouterr().out
    (name,) = crawls.rows("SELECT name FROM crawl_jobs WHERE id > 2")[0]
    made = settings(crawls.folder / "data").model_copy(update={"disk": crawls.settings.disk})
    with serving(crawls.database, made) as api:
        said["/api/stats"] = api.reader.get("/api/stats").text
        said["/health"] = api.anybody.get("/health").text
        ready = api.anybody.get("/health/ready")
        assert ready.status_code == 200
        said["/health/ready"] = ready.text
        page = PageReader.of(api, Role.USER)
        said |= {path: page.text(path) for path in ("/overview", f"/jobs/{name}")}
    return said


def states(crawls: Crawls) -> list[tuple[str, str | None]]:
    return sorted(crawls.frontier().values(), key=str)


@pytest.mark.parametrize("place", ["archive", "logs"])
def test_a_disk_with_too_little_room_pauses_the_crawl(
    crawls: Crawls, place: str, capsys: pytest.CaptureFixture[str], figure: Callable[[str], None]
) -> None:
    crawls.set(disk={"min_free": BOUND, "warn_free": 0}, flush={"pages": 4})
    (crawls.folder / "data").mkdir(mode=0o700)
    with (
        disks.small_disk(crawls.folder / "data" / place, 32) as disk,
        site() as pages,
        crawls.start("crawl", pages.url(), "--delay", "0.1", "--workers", "1") as program,
    ):
        wait_for(lambda: crawls.total() > 4, "pages")
        disk.fill(leave=BOUND // 2)
        wait_for(lambda: "waits: fetching is paused since" in program.said(), "the words of the crawl itself")
        crawls.verify()
        before = states(crawls)
        assert asked_while_it_waits(pages) == 0
        assert states(crawls) == before
        said = shown(crawls, capsys)
        words = f"the disk of the {place}"
        for where in ("status", "status --json", "/api/stats", "/overview", f"/jobs/{job_name(crawls)}"):
            assert "etching is paused since 20" in said[where], where
            assert words in " ".join(said[where].split()), where
            assert "less than 8.0 MB (disk.min_free)" in " ".join(said[where].split()), where
        assert json.loads(said["/health"])["status"] == "degraded"
        parts = {part["name"]: part for part in json.loads(said["/health/ready"])["parts"]}
        assert (parts["disk"]["works"], parts["crawl"]["works"], parts["database"]["works"]) == (False, False, True)
        assert words in parts["disk"]["cause"]
        assert str(crawls.folder) not in said["/health/ready"], "it is public"
        fires_until_it_is_over(crawls, place, disk)
        disk.fill(leave=BOUND // 2)
        wait_for(lambda: paused(crawls), "another pause")
        begun = time.monotonic()
        disk.make_room()
        seconds = goes_on(pages, begun)
        figure(f"{place}, bound of 8 MB: goes on {seconds:.1f} s after there is room")
        assert seconds < LONGEST_RETURN
        ends_well(crawls, pages, program)


def test_a_paused_crawl_can_be_stopped(crawls: Crawls) -> None:
    """Its visits wait for room; told to stop, they end at once, and the same command continues."""
    crawls.set(disk={"min_free": BOUND, "warn_free": 0}, flush={"pages": 4})
    (crawls.folder / "data").mkdir(mode=0o700)
    with disks.small_disk(crawls.folder / "data" / "archive", 32) as disk, site() as pages:
        arguments = ["crawl", pages.url(), "--delay", "0.1", "--workers", "1"]
        with crawls.start(*arguments) as program:
            wait_for(lambda: crawls.total() > 4, "pages")
            disk.fill(leave=BOUND // 2)
            wait_for(lambda: paused(crawls), "the pause")
            begun = time.monotonic()
            program.send(signal.SIGINT)
            assert program.end().code == 130
            assert time.monotonic() - begun < LONGEST_RETURN
        assert crawls.held() == 0
        disk.make_room()
        with crawls.start(*arguments) as program:
            ends_well(crawls, pages, program)


def job_name(crawls: Crawls) -> str:
    return str(crawls.value("SELECT name FROM crawl_jobs WHERE id > 2"))


def paused(crawls: Crawls) -> bool:
    return bool(crawls.value("SELECT bool_or(activity::text LIKE '%%fetching is paused%%') FROM workers"))


def fires_until_it_is_over(crawls: Crawls, folder: str, disk: SmallDisk) -> None:
    """The alert is raised once, held for half a minute after there is room, and then resolved; each is told."""
    rules = Rules(webhook_url="https://alerts.example/in")

    def look() -> tuple[int, int]:
        crawls.connection.execute("UPDATE duties SET done_at = '-infinity'")
        changed = rules.look(crawls.connection)
        return len(changed.raised), len(changed.resolved)

    assert look() == (1, 0)
    (alert,) = AlertService(crawls.database).list(active=True)
    assert (alert.kind, alert.value < BOUND) == (Kind.DISK_FULL, True)
    assert alert.subject.endswith(f"({folder})")
    assert "fetching is paused since" in describe(alert).cause
    assert look() == (0, 0)
    disk.make_room()
    wait_for(lambda: not paused(crawls), "room")
    assert look() == (0, 0), "it may come back"
    crawls.connection.execute("UPDATE alerts SET last_seen_at = now() - interval '31 seconds'")
    assert look() == (0, 1)
    events = [event for (event,) in crawls.rows("SELECT event FROM webhook_deliveries ORDER BY id")]
    assert events == ["alert.firing", "alert.resolved"]


def test_an_archive_that_takes_no_byte_pauses_the_crawl(
    crawls: Crawls, capsys: pytest.CaptureFixture[str], figure: Callable[[str], None]
) -> None:
    crawls.set(disk={"min_free": 0, "warn_free": 0}, flush={"pages": 4})
    (crawls.folder / "data").mkdir(mode=0o700)
    with (
        disks.small_disk(crawls.folder / "data" / "archive", 4) as disk,
        site() as pages,
        crawls.start("crawl", pages.url(), "--delay", "0.1", "--workers", "1") as program,
    ):
        wait_for(lambda: crawls.total() > 4, "pages")
        disk.fill()
        wait_for(lambda: "waits: the archive cannot be written since" in program.said(), "its words")
        wait_for(lambda: asked_while_it_waits(pages) == 0, "full batches")
        crawls.verify()
        done, stored = crawls.total(), crawls.value("SELECT count(*) FROM crawled_pages")
        assert (crawls.value("SELECT count(*) FROM url_frontier WHERE state = 'done'"), stored) == (done, done)
        said = shown(crawls, capsys)
        for place in ("status", "/api/stats", "/overview", f"/jobs/{job_name(crawls)}"):
            assert "rchive cannot be written since 20" in said[place], place
        assert "the archive cannot be written" in said["/health/ready"]
        begun = time.monotonic()
        disk.make_room()
        seconds = goes_on(pages, begun)
        figure(f"archive without a byte: goes on {seconds:.1f} s after there is room")
        assert seconds < LONGEST_RETURN
        ends_well(crawls, pages, program)


@pytest.mark.parametrize("workers", [1, 2])
def test_logs_that_take_no_byte_stop_nothing(crawls: Crawls, workers: int) -> None:
    """Where the bound is switched off; with two workers each of them writes its standard error to a file of that disk."""
    crawls.set(disk={"min_free": 0, "warn_free": 0}, flush={"pages": 4})
    (crawls.folder / "data").mkdir(mode=0o700)
    with disks.small_disk(crawls.folder / "data" / "logs", 1) as disk, site() as pages:
        disk.fill()
        for _ in range(2):
            arguments = ["crawl", pages.url(), "--delay", "0", "--scope", "any", "--workers", str(workers), "--again"]
            with crawls.start(*arguments) as program:
                ended = program.end()
            assert (ended.code, "Traceback" in ended.err) == (0, False), ended.err
        assert disk.free_bytes == 0
    assert crawls.total() == 2 * (PAGES + 1)
    crawls.verify()


def test_nothing_is_fetched_where_there_is_no_room_at_the_start(crawls: Crawls) -> None:
    (crawls.folder / "data").mkdir(mode=0o700)
    with disks.small_disk(crawls.folder / "data" / "archive", 4), site() as pages:
        ended = crawls.run("crawl", pages.url())
        assert ended.code == 5
        assert "Error: Nothing is fetched: the disk of the archive (" in ended.err
        assert "has 4.2 MB free of 4.2 MB, less than 500.0 MB (disk.min_free). Make room, or set" in ended.err
        with crawls.start("worker") as program:  # a service waits
            wait_for(lambda: paused(crawls), "a worker that says so")
            assert program.lives
        assert pages.paths() == []


@pytest.mark.parametrize(("bound", "dies"), [(DATABASE_BOUND, False), (0, False), (0, True)])
def test_a_database_without_room(
    folder: Path, tmp_path: Path, bound: int, dies: bool, figure: Callable[[str], None]
) -> None:
    """The bundled server on a small disk: with a bound, with the very last byte taken, and if it dies of that."""
    data = folder / "disk" / "data"
    with disks.small_disk(folder / "disk", 300) as disk, site() as pages:
        database = Database(embedded.ensure_running(data).url())
        try:
            with database.connect() as connection:
                crawls = Crawls(database, connection, folder / "disk")
                crawls.set(disk={"min_free": bound, "warn_free": 0}, flush={"pages": 4})
                seconds = ends_after_a_full_disk(crawls, disk, pages, bound, tmp_path, dies=dies)
                figure(
                    f"database, bound of {bound} bytes{', died' if dies else ''}: goes on {seconds:.1f} s after there is room"
                )
        finally:
            disk.make_room()
            embedded.stop(data)


def dies_and_stays_down(data: Path, disk: SmallDisk, crawl: Program) -> bool:
    """Kill the server if it runs; whether it cannot be started again. Its end may free some bytes, with which it starts once more."""
    disk.fill()
    if server := embedded.find(data):
        kill(server)
    return "cannot be started again" in crawl.said()


def ends_after_a_full_disk(
    crawls: Crawls, disk: SmallDisk, pages: Pages, bound: int, tmp_path: Path, *, dies: bool
) -> float:
    """Fill the disk during a crawl, look, make room, and wait for its end; returns the seconds until it went on."""
    environ = crawls.environ()
    del environ["HOLDFAST_DATABASE_URL"]
    arguments = ["--data", str(crawls.folder / "data")]

    def program(*more: str) -> Program:
        return Program([*arguments, *more], environ, tmp_path)

    with program("crawl", pages.url(), "--delay", "0.1", "--workers", "1", "--no-archive", "--text") as crawl:
        wait_for(lambda: len(pages.paths()) > 8, "pages")
        disk.fill(leave=max(0, bound - 4_000_000))
        if dies:
            wait_for(lambda: dies_and_stays_down(crawls.folder / "data", disk, crawl), "an attempt to start it")
        wait_for(lambda: asked_while_it_waits(pages) == 0, "a crawl that waits")
        with program("status") as asked:
            status = asked.end()
        said = status.out + status.err
        if bound:
            assert "the disk of the database, archive" in said or "the disk of the database and archive" in said
            wait_for(lambda: "waits: fetching is paused since" in crawl.said(), "the words of the crawl itself")
        else:
            assert "is full" in said or "the database cannot be written since 20" in said, said + crawl.said()
            # Its connections may be open still where those of `status` are refused.
            causes = ("is full", "the database cannot be written since 20")
            wait_for(lambda: any(cause in crawl.said() for cause in causes), "the words of the crawl itself")
        assert crawl.lives
        begun = time.monotonic()
        disk.make_room()
        seconds = goes_on(pages, begun)
        assert seconds < LONGEST_RETURN
        ended = crawl.end()
    assert ended.code == 0, ended.err
    assert sorted(set(pages.paths())) == sorted(pages.answers)
    server = embedded.ensure_running(crawls.folder / "data")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        assert violations(connection) == {}
        found = connection.execute("SELECT state::text, count(*) FROM url_frontier GROUP BY state").fetchall()
    assert found == [("done", PAGES + 1)]
    return seconds
