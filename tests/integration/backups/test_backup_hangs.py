"""A folder of backups that does not answer, as on a network folder whose server is gone: calls on it neither fail nor return.

A named pipe in the place of a file does that: to open it for writing blocks until it is read.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.alerts.queries import list_alerts
from holdfast.alerts.rules import Rules
from holdfast.backups import follower, queries, stall_watch
from holdfast.backups.records import Backup, Following
from holdfast.backups.repository import LATEST, Repository
from holdfast.backups.stall_watch import CopyCheck, StallWatch
from holdfast.control import health
from holdfast.errors import HoldfastError, StoreError
from tests.support.backups import Bundled, bundled
from tests.support.crawls import wait_for
from tests.support.servers import data_in_memory

WAL_LIMIT = 64_000_000


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bundled]:
    with data_in_memory() as data:
        yield bundled(data, backup={"folder": tmp_path / "backups", "wal_limit": WAL_LIMIT})


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_watch, "STALLED_AFTER", 1.0)
    monkeypatch.setattr(stall_watch, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(stall_watch, "REPORT_SECONDS", 0.3)


@contextmanager
def hanging(file: Path) -> Iterator[None]:
    """Whatever opens the file to write waits."""
    held = file.with_name(f"{file.name}.held")
    if file.exists():
        file.rename(held)
    os.mkfifo(file)
    reader = -1
    try:
        yield
        reader = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    finally:
        held.replace(file) if held.exists() else file.unlink()
        if reader >= 0:
            time.sleep(0.2)  # who waits has opened it, and finds out that it is no file
            os.close(reader)


@contextmanager
def following(made: Bundled) -> Iterator[None]:
    """Follow as the background does, in a thread."""
    stop = threading.Event()

    def follow() -> None:
        while not stop.is_set():
            with suppress(HoldfastError, OSError):
                follower.follow(made.service, stop.is_set, stop.wait)
            stop.wait(0.2)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
    assert not thread.is_alive()


def state(made: Bundled) -> Following:
    found = made.service.report().following
    assert found is not None
    return found


def newest_file(made: Bundled) -> Path:
    log = made.repository.logs()[-1]
    return made.repository.wal(log, log.start)[-1]


def commit(made: Bundled, name: str) -> object:
    with made.store() as store:
        store.seed(f"{name}.example")
    return made.value("SELECT clock_timestamp()")


def reaches(made: Bundled, at: object) -> bool:
    found = made.repository.follow(made.repository.logs()[-1])
    return found is not None and found.until > at  # type: ignore[operator]


def firing(made: Bundled) -> list[str]:
    with made.connection() as connection:
        connection.execute("UPDATE duties SET done_at = '-infinity'")
        Rules().look(connection)
        return [one.subject for one in list_alerts(connection, active=True) if one.kind == "backup_failed"]


def part_of_backups(made: Bundled) -> tuple[bool, str | None]:
    (part,) = [one for one in health.look(made.database) if one.name == "backups"]
    return part.works, part.cause


@pytest.mark.usefixtures("_impatient")
def test_a_log_that_hangs_is_told_alerts_and_goes_on(made: Bundled) -> None:
    made.service.make(actor="test")
    with following(made):
        before = commit(made, "before")
        wait_for(lambda: reaches(made, before), "the log to go")
        with hanging(newest_file(made)):
            during = commit(made, "during")
            wait_for(lambda: made.service.report().following and state(made).problem, "the words")
            problem = str(state(made).problem)
            assert "has not answered for" in problem
            assert "(backup.folder)" in problem
            assert "at most 64.0 MB (backup.wal_limit)" in problem
            assert part_of_backups(made)[0] is False
            status = made.run("status")
            assert (status.code, "has not answered for" in " ".join(status.out.split())) == (0, True)
            assert firing(made) == [], "for less than a minute"
            with made.connection() as connection:
                connection.execute("UPDATE backup_following SET problem_since = problem_since - interval '61 seconds'")
            assert firing(made) == ["log"]
        wait_for(lambda: reaches(made, during), "the log to go on")
        wait_for(lambda: state(made).problem is None, "the end of the words")
        assert part_of_backups(made) == (True, None)
    plan = made.restorer.plan(LATEST, during)  # type: ignore[arg-type]
    with made.restorer.scratch(plan, made.data) as (_, recovered), recovered.database.session() as connection:
        row = connection.execute("SELECT count(*) FROM domains WHERE domain = 'during.example'").fetchone()
    assert row == (1,)


@pytest.mark.usefixtures("_impatient")
def test_a_log_that_hangs_for_long_is_given_up_at_its_limit(made: Bundled) -> None:
    made.service.make(actor="test")
    with following(made):
        before = commit(made, "before")
        wait_for(lambda: reaches(made, before), "the log to go")
        with made.connection() as connection:  # recorded each half a minute
            queries.record_following(connection, since=before, until=before)  # type: ignore[arg-type]
        with hanging(newest_file(made)):
            with made.connection(admin=True) as connection:
                for _ in range(10):
                    connection.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 16000000))")
            wait_for(lambda: state(made).given_up, "the end of the log")
            assert f"Seconds up to {before:%Y-%m-%d %H:%M:%S} UTC" in str(state(made).given_up)
            with made.connection(admin=True) as connection:
                slot = queries.slot(connection)
            assert slot is None or slot.lost, "the server need not keep it"
        wait_for(lambda: len(made.repository.logs()) == 2, "another log")


@pytest.mark.usefixtures("_impatient")
def test_a_backup_that_hangs_is_told_and_fails_when_the_folder_answers(made: Bundled) -> None:
    segment = made.data / "archive" / "w" / "holdfast-1.warc.gz"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"bytes")
    copy = made.repository.folder / "archive" / "w" / segment.name
    copy.parent.mkdir(parents=True)
    problems: list[BaseException] = []

    def make() -> None:
        try:
            made.service.make(actor="test")
        except HoldfastError as problem:
            problems.append(problem)

    thread = threading.Thread(target=make, daemon=True)
    with hanging(copy):
        thread.start()
        wait_for(lambda: [one for one in made.service.report().backups if one.error], "the words")
        assert newest(made).state == "running"
        assert "has not answered for" in str(newest(made).error)
        assert firing(made) == ["backup"]
        assert part_of_backups(made) == (False, "The last backup failed, or makes no progress.")
        assert "has not answered for" in made.run("backup", "list").out
    thread.join(20)
    assert [type(one).__name__ for one in problems] == ["BackupsUnavailable"]
    assert newest(made).state == "failed"
    assert made.repository.backups() == []
    assert made.service.make(actor="test").error is None
    assert part_of_backups(made) == (True, None)


@pytest.mark.usefixtures("_impatient")
def test_a_backup_that_hangs_before_it_begins_is_told(made: Bundled, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(Repository, "discard_unfinished", lambda _self: answer.wait(60))
    monkeypatch.setattr("holdfast.backups.service.PROGRAM_STALLED_AFTER", 1.0)
    thread = threading.Thread(target=made.service.make, kwargs={"actor": "test"}, daemon=True)
    thread.start()
    wait_for(lambda: made.service.report().backups, "the words")
    assert (newest(made).state, "has not answered" in str(newest(made).error)) == ("failed", True)
    assert firing(made) == ["backup"]
    answer.set()
    thread.join(60)
    assert newest(made).state == "complete"
    assert part_of_backups(made) == (True, None)


def newest(made: Bundled) -> Backup:
    return made.service.report().backups[0]


def test_a_background_ends_while_its_folder_of_backups_hangs(made: Bundled, figure: Callable[[str], None]) -> None:
    made.groups["backup"]["daily"] = True
    with made.start("background") as program:
        wait_for(made.repository.backups, "the first backup")
        at = commit(made, "before")
        wait_for(lambda: reaches(made, at), "the log to go")
        with hanging(newest_file(made)):
            commit(made, "during")
            time.sleep(3)  # it waits there now
            assert made.run("status").code == 0
            begun = time.monotonic()
            program.send(signal.SIGTERM)
            ended = program.end()
            figure(f"a background whose folder of backups hangs ends {time.monotonic() - begun:.1f} s after SIGTERM")
            assert time.monotonic() - begun < 20
            assert ended.code == 130, ended.err
    assert made.service.make(actor="test").state == "complete", "it holds no lock any more"


def test_a_stall_is_reported_while_it_lasts_and_taken_back() -> None:
    told: list[str] = []
    fails = [StoreError("The database is away."), None]

    def begin(seconds: float) -> None:
        told.append("stalled" if seconds >= 0.2 else "too early")

    def end() -> None:
        if problem := fails.pop(0):
            raise problem
        told.append("answers")

    with StallWatch(begin, end, after=0.2, look_seconds=0.02) as watch:
        time.sleep(0.5)
        assert told == [], "it is not in use"
        watch.touch()
        wait_for(lambda: told == ["stalled"], "the report")
        watch.rest()
        wait_for(lambda: told == ["stalled", "answers"], "the end, at the second attempt")
        for _ in range(20):
            watch.touch()
            time.sleep(0.02)
        watch.touch(60)
        time.sleep(0.5)
    assert told == ["stalled", "answers"]


def test_a_look_for_copies_ends_where_the_folder_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`gc` looks for the copies of files that nothing names; without an answer they are kept."""
    (tmp_path / "there").touch()
    has_copy = CopyCheck(tmp_path, seconds=0.2)
    assert (has_copy("there"), has_copy("missing")) == (True, False)
    looks: list[Path] = []
    answers = threading.Event()

    def hang(path: Path) -> bool:
        looks.append(path)
        return answers.wait(30)

    monkeypatch.setattr(Path, "is_file", hang)
    begun = time.monotonic()
    assert [has_copy(str(number)) for number in range(1000)] == [False] * 1000
    assert time.monotonic() - begun < 5
    answers.set()
    assert looks == [tmp_path / "0"], "it is asked once"
