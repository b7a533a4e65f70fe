"""What `backup` and `restore` answer to the usual mistakes: the cause, the number, the option; and the lines of a drill."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.backups import drill, queries
from holdfast.backups.records import Drill
from holdfast.backups.repository import LATEST, Follow, Log, Repository, StoredBackup
from holdfast.backups.restore import END, Restorer
from holdfast.errors import Refused
from tests.support.backups import Bundled, bundled
from tests.support.servers import data_in_memory

HUGE = 10**14


@pytest.fixture(scope="module")
def made() -> Iterator[Bundled]:
    with data_in_memory() as data:
        yield bundled(data)


@pytest.fixture
def fresh(made: Bundled) -> Bundled:
    """The same store, without backups and secrets."""
    shutil.rmtree(made.repository.folder, ignore_errors=True)
    with made.connection() as connection:
        connection.execute("DELETE FROM backups")
        connection.execute("DELETE FROM job_secrets")
    return made


def test_before_the_first_backup(fresh: Bundled) -> None:
    for command in (("backup", "verify"), ("backup", "drill"), ("restore", "latest", "--into", "x")):
        answer = fresh.run(*command)
        assert (answer.code, answer.out) == (4, "")
        expected = (
            f"There is no complete backup in {fresh.repository.folder} (backup.folder); `holdfast backup` makes one."
        )
        assert answer.err.strip() == f"Error: {expected}"
    listed = fresh.run("backup", "list")
    assert listed.err.splitlines()[-1] == "No daily backup is made (backup.daily)."
    assert Path(json.loads(fresh.run("backup", "list", "--json").out)["folder"]).is_absolute()


def test_a_second_that_cannot_be_restored_is_refused_with_those_that_can(fresh: Bundled) -> None:
    first, second = (fresh.service.make(actor="test", incremental=number > 0) for number in range(2))
    assert first.ended_at is not None
    assert second.ended_at is not None
    ends = [f"{one.ended_at:%Y-%m-%d %H:%M:%S} UTC" for one in (first, second) if one.ended_at]
    for to in (END, first.ended_at - timedelta(hours=1), first.ended_at + timedelta(microseconds=1)):
        with pytest.raises(Refused) as refused:
            fresh.restorer.plan(LATEST, to)
        sentence = str(refused.value)
        assert f"{second.name} holds {ends[1]}, and no log of the time after it was kept (backup.daily, or" in sentence
        assert (f"{first.name} holds {ends[0]}." in sentence) == (to not in (END, first.ended_at - timedelta(hours=1)))
        assert sentence.startswith("No second after a backup can be" if to == END else f"{to:%Y-%m-%d %H:%M:%S} UTC")
    unknown = fresh.run("restore", "2026", "--into", "x")
    assert (unknown.code, "`holdfast backup list` names all" in unknown.err) == (4, True)
    listed = fresh.run("backup", "list")
    assert ends[0].removesuffix(" UTC") in listed.out, "to the second: that is what --to takes"
    said = " ".join(listed.err.split())
    assert "The store can be restored as it was when one of these backups was made (HOLDS)" in said
    assert "every second after them can" in said


def test_a_disk_without_room_is_no_place_for_a_restore(fresh: Bundled) -> None:
    """A restore must not take the last byte from the store in use, whose crawls pause at disk.min_free."""
    name = fresh.service.make(actor="test").name
    variables = {"HOLDFAST_DISK_MIN_FREE": str(HUGE), "HOLDFAST_DISK_WARN_FREE": str(2 * HUGE)}
    commands = {("backup", "verify"): "--scratch", ("restore", name, "--into", str(fresh.data / "new")): "--into"}
    for command, option in commands.items():
        answer = fresh.run(*command, **variables)
        assert answer.code == 5, answer
        assert "must stay free (disk.min_free)" in answer.err
        assert f"({option})" in answer.err
    drilled = fresh.run("backup", "drill", **variables)
    assert drilled.code == 1
    assert "must stay free (disk.min_free)" in drilled.out
    assert not list(fresh.data.glob("postgres.scratch*"))
    assert not (fresh.data / "new").exists()


def test_a_scratch_server_does_not_say_how_to_stop_the_one_in_use(fresh: Bundled) -> None:
    fresh.service.make(actor="test")
    verified = fresh.run("backup", "verify")
    assert verified.code == 0, verified.err
    assert "db stop" not in verified.err


def test_every_line_of_a_drill_is_told_and_one_that_was_not_checked_has_failed(fresh: Bundled) -> None:
    with fresh.store() as store:
        store.seed("drilled.example")
        job = store.connection.execute("SELECT min(id) FROM crawl_jobs").fetchone()
        assert job is not None
        store.connection.execute(
            "INSERT INTO job_secrets (job_id, kind, names, origins, sealed) VALUES (%s, 'cookies', '{a}', '{b}', 'x')",
            job,
        )
    fresh.service.make(actor="test")
    no_key = run_drill(fresh)
    failed = [one for one in no_key.checks if not one.ok]
    assert [one.name for one in failed] == [drill.KEYS]
    assert failed[0].result.startswith("1 secret is stored, and there is no key to open them with: put secret.key back")
    name = fresh.repository.find(LATEST).name
    (fresh.repository.folder / name / "database" / "PG_VERSION").unlink()
    broken = run_drill(fresh)
    results = {one.name: one for one in broken.checks}
    assert len(results) == len(broken.checks) == len(no_key.checks) == 11, "each line once"
    lines = [one.name for one in broken.checks if not one.ok]
    assert lines == ["The files of the backup are whole", *drill.OF_THE_STORE]
    assert results[drill.DASHBOARD].result == "Not checked, since a line before it failed."
    assert not broken.ok


def run_drill(made: Bundled) -> Drill:
    return made.service.drill(made.restorer, made.restorer.plan(LATEST), made.data, lambda _: None)


def test_a_backup_that_does_not_exist_is_not_asked_about(fresh: Bundled) -> None:
    name = fresh.service.make(actor="test").name
    unknown = fresh.run("backup", "delete", "NOPE")
    assert (unknown.code, "There is no complete backup 'NOPE'" in unknown.err) == (4, True), unknown
    asked = fresh.run("backup", "delete", name)
    assert (asked.code, "There is no terminal to ask on" in asked.err) == (5, True), asked


def test_an_incremental_dump_is_invalid_usage(fresh: Bundled) -> None:
    answer = fresh.run("backup", "--incremental", "--dump")
    assert (answer.code, "A dump is always whole; leave --incremental out." in answer.err) == (2, True), answer
    assert fresh.service.report().backups == [], "nothing has failed"


def test_a_backup_says_its_size_and_folder(fresh: Bundled) -> None:
    made = fresh.run("backup")
    name = fresh.repository.find(LATEST).name
    place = fresh.repository.folder / name
    assert made.out.startswith(f"Backup {name} is complete: ")
    assert made.out.rstrip().endswith(f"MB in {place}.")


def test_a_backup_that_is_gone_from_the_disk_can_be_forgotten(fresh: Bundled) -> None:
    """Else `gc` would keep for ever what it names, as after a change of backup.folder."""
    with fresh.connection() as connection:
        number, started = queries.begin(connection, kind="full", place="/gone/20260101T000000Z-full", parent=None)
        queries.complete(connection, number, ended=started, size=1)
    kept = fresh.service.make(actor="test").name
    answer = fresh.run("backup", "delete", "20260101T000000Z-full", "--yes", "--json")
    assert answer.json == {"deleted": ["20260101T000000Z-full"]}
    assert [one.name for one in fresh.service.report().backups] == [kept]
    elsewhere = fresh.repository.folder.with_name("elsewhere")
    fresh.groups["backup"] = {"folder": elsewhere}
    other = fresh.service.make(actor="test")
    del fresh.groups["backup"]
    assert (fresh.run("backup", "delete", other.name, "--yes").code, elsewhere.exists()) == (4, True)
    assert fresh.run("backup", "delete", other.place, "--yes").code == 0, "by its path, as restore takes it"
    assert not Path(other.place).exists()
    shutil.rmtree(fresh.repository.folder)
    away = fresh.run("backup", "delete", kept, "--yes")
    assert (away.code, "mount its disk" in away.err) == (3, True), away
    assert Repository(fresh.repository.folder).backups() == []
    assert [one.state for one in fresh.service.report().backups] == ["complete"]


def test_a_time_of_another_zone_is_understood() -> None:
    from holdfast.backups.restore import parse_second

    assert (
        parse_second("2026-11-17 14:00")
        == parse_second("2026-11-17T15:00+01:00")
        == datetime(2026, 11, 17, 14, tzinfo=UTC)
    )


def test_a_second_before_the_store_was_restored_can_still_be_restored(tmp_path: Path) -> None:
    """A store that was restored to the wrong second begins a new log, and a new backup; the old log has the right one."""
    repository, day = Repository(tmp_path / "backups"), datetime(2026, 11, 17, tzinfo=UTC)
    histories = {"old": (day, day + timedelta(hours=5)), "new": (day + timedelta(hours=6), day + timedelta(hours=8))}
    for system, (begun, until) in histories.items():
        name = f"{begun:%Y%m%dT%H%M%SZ}-full"
        backup = StoredBackup(
            *(name, "full", "store", 1, system, 1, None, begun, begun, 2**24, 1, "1", {}, {}, False, "copied", False)
        )
        repository.complete(repository.begin(name), backup, [])
        log = Log(system, "store", 1, system, 1, 2**24, 2**24)
        repository.save_log(log)
        repository.save_follow(log, Follow(until, 2**25))
    restorer = Restorer(repository, 3, lambda _: None)
    hours = {hour: restorer.plan(LATEST, day + timedelta(hours=hour)).backup.system for hour in (1, 4, 7)}
    assert hours == {1: "old", 4: "old", 7: "new"}
    assert restorer.plan(LATEST, END).backup.system == "new"
    for name, hour in ((LATEST, 5.5), (LATEST, 9), (LATEST, -1), ("20261117T060000Z-full", 4)):
        with pytest.raises(Refused):
            restorer.plan(name, day + timedelta(hours=hour))
