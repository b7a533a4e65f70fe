"""Backups of a bundled server: made, damaged, pruned, restored elsewhere, in place, and to a second. One server serves all tests."""

import hashlib
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.archive.image_store import FolderImageStore
from holdfast.backups import follower, queries
from holdfast.backups.repository import LATEST, FileCopier, Repository, append
from holdfast.backups.restore import END
from holdfast.backups.service import last_time_of
from holdfast.db import embedded, generation
from holdfast.errors import NotFound, Refused, StoreError
from tests.support.backups import Bundled, bundled, mtime
from tests.support.crawls import wait_for
from tests.support.servers import data_in_memory


@pytest.fixture(scope="module")
def made() -> Iterator[Bundled]:
    with data_in_memory() as data:
        yield bundled(data, backup={"keep": 50})


@pytest.fixture
def fresh(made: Bundled) -> Bundled:
    """The same store, without backups and logs."""
    for one in reversed(made.repository.backups()):
        made.service.delete(one.name, actor="test", dependents=True)
    with made.connection(admin=True) as connection:
        queries.drop_slot(connection)
    return made


def _names(made: Bundled) -> list[str]:
    return [one.name for one in made.repository.backups()]


def _restored(made: Bundled, name: str, to: datetime | None = None) -> Bundled:
    """Restore beside the store, into a folder that is gone with it."""
    data = made.data.parent / f"restored-{time.monotonic_ns()}"
    plan = made.restorer.plan(name, to)
    made.restorer.restore(plan, data, actor="test")
    return Bundled(data, made.groups)


def test_full_and_incremental_backups_hold_their_second(fresh: Bundled) -> None:
    with fresh.store() as store:
        store.domains(3)
        held = store.claim("old", count=1)
    full = fresh.service.make(actor="test")
    with fresh.store() as store:
        store.seed("later.example")
    small = fresh.service.make(incremental=True, actor="test")
    assert (full.kind, small.kind, small.parent, full.state) == ("full", "incremental", full.name, "complete")
    assert (small.bytes or 0) < (full.bytes or 0)
    with pytest.raises(Refused, match="cannot be restored without"):
        fresh.service.delete(full.name, actor="test")
    before, after = _restored(fresh, full.name), _restored(fresh, LATEST)
    try:
        assert before.value("SELECT count(*) FROM domains WHERE domain = 'later.example'") == 0
        assert after.value("SELECT count(*) FROM domains WHERE domain = 'later.example'") == 1
        for one in (before, after):
            listed = [(b.name, b.state, b.parent) for b in one.service.report().backups]
            assert listed == [(small.name, "complete", full.name), (full.name, "complete", None)]
            assert one.violations() == {}
            assert one.value("SELECT generation FROM store_identity") > 1
            assert one.value("SELECT count(*) FROM domains WHERE claimed_by IS NOT NULL") == 0
            assert one.value("SELECT min(claim_epoch) FROM domains") >= generation.EPOCH_STEP * 1000
            assert not one.data.joinpath("postgres.restore").exists()
        assert fresh.value("SELECT claimed_by FROM domains WHERE id = %s", held[0].domain_id) == "old"
    finally:
        for one in (before, after):
            embedded.stop(one.data)


def test_an_incremental_backup_counts_no_row_twice(fresh: Bundled) -> None:
    """WAL does not name the pages of visibility maps whose bits it clears, so PostgreSQL leaves these pages out of incremental backups, and
    a scan of an index alone would count rows that are dead."""
    count = "SELECT count(*) FROM (SELECT n FROM mapped WHERE n > 0 ORDER BY n) f"
    with fresh.connection() as connection:
        connection.execute("CREATE TABLE mapped (n integer PRIMARY KEY, said text) WITH (autovacuum_enabled = off)")
        connection.execute("INSERT INTO mapped SELECT n, repeat('x', 100) FROM generate_series(1, 5000) n")
        connection.execute("VACUUM (FREEZE) mapped")
    fresh.service.make(actor="test")
    with fresh.connection() as connection:
        connection.execute("DELETE FROM mapped WHERE n % 2 = 0")
    made = fresh.service.make(incremental=True, actor="test")
    copy = _restored(fresh, made.name)
    try:
        with copy.connection() as connection:
            connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
            plan = str(connection.execute(f"EXPLAIN {count}".encode()).fetchall())
            assert "Index Only Scan" in plan
            assert connection.execute(count.encode()).fetchone() == (2500,)
    finally:
        embedded.stop(copy.data)
        with fresh.connection() as connection:
            connection.execute("DROP TABLE mapped")


def test_damage_is_found_before_anything_is_restored(fresh: Bundled) -> None:
    name = fresh.service.make(actor="test").name
    plan = fresh.restorer.plan(name)
    assert fresh.restorer.problems(plan) == []
    victim = next((fresh.repository.folder / name / "database" / "base").glob("*/1259"))
    data = bytearray(victim.read_bytes())
    data[100] ^= 1
    victim.write_bytes(bytes(data))
    (found,) = fresh.restorer.problems(plan)
    assert "1259 is not what was written" in found
    target = fresh.data.parent / "never"
    with pytest.raises(StoreError, match="damaged, and nothing was restored"):
        fresh.restorer.restore(plan, target, actor="test")
    assert not target.exists()


def test_any_second_is_restored(fresh: Bundled) -> None:
    """The follower keeps the log; each of three seconds has what was committed by then."""
    moments: list[datetime] = []
    with queries.lock(queries.admin_database(fresh.server), follower=True) as connection:
        following = follower.Follower(fresh.service, fresh.server, connection)
        needed = [following.needs_backup]
        fresh.service.make(actor="test")
        needed.append(following.needs_backup)
        assert needed == [True, False]
        for number in range(3):
            with fresh.store() as store:
                store.seed(f"second{number}.example")
            time.sleep(0.05)
            moments.append(fresh.value("SELECT clock_timestamp()"))
            time.sleep(0.05)
        reached = following.tick()
        while reached is None or reached.until <= moments[-1]:
            reached = following.tick()
    for number, at in enumerate(moments):
        copy = _restored(fresh, LATEST, at)
        try:
            found = [f"second{n}.example" for n in range(3)][: number + 1]
            with copy.connection() as connection:
                names = connection.execute(
                    "SELECT domain FROM domains WHERE domain LIKE 'second%' ORDER BY 1"
                ).fetchall()
            assert [name for (name,) in names] == found
            assert copy.violations() == {}
        finally:
            embedded.stop(copy.data)
    with pytest.raises(Refused, match="the log has the seconds from"):
        fresh.restorer.plan(LATEST, moments[-1] + timedelta(days=1))
    with pytest.raises(Refused, match="cannot be restored"):
        fresh.restorer.plan(LATEST, moments[0] - timedelta(days=1))
    assert fresh.restorer.plan(LATEST, END).until == reached.until


def test_images_are_copied_before_the_log_that_names_them(fresh: Bundled) -> None:
    """An image whose row is committed late, under an id that is less than that of another one, is found all the same."""
    source = FolderImageStore(fresh.data / "images")
    row = "INSERT INTO images (sha256, size, format, media_type, file, frames, animated) VALUES (%s, 5, 'png', 'image/png', %s, 1, false)"
    keys = {}
    for body in (b"first", b"later"):
        digest = hashlib.sha256(body).digest()
        keys[body] = (digest, source.put(digest, "png", body))
    with queries.lock(queries.admin_database(fresh.server), follower=True) as connection:
        following = follower.Follower(fresh.service, fresh.server, connection)
        with fresh.connection() as slow:
            with slow.transaction():
                slow.execute(row, keys[b"first"])
                with fresh.connection() as quick:
                    quick.execute(row, keys[b"later"])
                following.tick()
                copied = [fresh.repository.has_copy(f"images/{keys[body][1]}") for body in keys]
                assert copied == [False, True]
            following.tick()
        assert fresh.repository.has_copy(f"images/{keys[b'first'][1]}")
        assert fresh.repository.image_store().get(keys[b"first"][1]) == b"first"
    with fresh.connection() as connection:
        connection.execute("DELETE FROM images")


def test_the_log_is_given_up_at_its_limit(fresh: Bundled) -> None:
    """What is not copied may not fill the disk: the server deletes it, the follower says so, and the next one begins another log."""
    with queries.lock(queries.admin_database(fresh.server), follower=True) as connection:
        first = follower.Follower(fresh.service, fresh.server, connection).log
        connection.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '16MB'")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("CREATE TABLE heap AS SELECT repeat('x', 1000) FROM generate_series(1, 70000)")
        connection.execute("DROP TABLE heap")
        deadline = time.monotonic() + 30
        while (slot := queries.slot(connection)) is not None and not slot.lost:
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
            assert time.monotonic() < deadline
    with queries.lock(queries.admin_database(fresh.server), follower=True) as connection:
        second = follower.Follower(fresh.service, fresh.server, connection)
        assert second.log.name != first.name
        assert second.needs_backup
    assert "before it was copied" in str({one.name: one.given_up for one in fresh.repository.logs()}[first.name])
    with fresh.connection() as connection:
        found = queries.following(connection)
        assert found is not None
        assert "backup.wal_limit" in str(found.given_up)


def test_a_restore_in_place_keeps_what_was_there_and_refuses_while_it_is_used(fresh: Bundled) -> None:
    other = _restored(fresh, fresh.service.make(actor="test").name)
    path = str(fresh.repository.folder / _names(fresh)[-1])
    try:
        with other.connection():
            refused = other.run("restore", path, "--yes")
            assert "is in use by other programs: 1 connection is open (without a name). Stop" in refused.refused(5)
        with other.store() as store:
            store.seed("lost.example")
        asked = other.run("restore", path)
        assert "There is no terminal to ask on" in asked.refused(5)
        assert other.run("restore", path, "--dry-run").out.startswith("Would restore")
        done = other.run("restore", path, "--yes", "--json")
        assert done.code == 0, done.err
        told = json.loads(done.out)
        assert other.value("SELECT count(*) FROM domains WHERE domain = 'lost.example'") == 0
        assert Path(told["aside"]).is_dir()
        assert told["checks"] > 30
        assert other.violations() == {}
        assert [one["state"] for one in json.loads(other.run("backup", "list", "--json").out)["backups"]] == [
            "complete"
        ]
    finally:
        embedded.stop(other.data)


def test_old_backups_go_and_what_they_alone_named(fresh: Bundled) -> None:
    """Of four, the newest two are kept, with the full one that they need; a segment that no kept one names goes with the first."""
    old = fresh.data / "archive" / "w" / "gone.warc.gz"
    old.parent.mkdir(parents=True, exist_ok=True)
    old.write_bytes(b"of the first backup only")
    first = fresh.service.make(actor="test").name
    old.unlink()
    copy = fresh.repository.folder / "archive" / "w" / "gone.warc.gz"
    assert copy.read_bytes() == b"of the first backup only"
    mtime(copy, time.time() - 3600)
    fresh.groups["backup"]["keep"] = 2
    try:
        names = [fresh.service.make(incremental=bool(n), actor="test").name for n in range(3)]
    finally:
        fresh.groups["backup"]["keep"] = 50
    assert _names(fresh) == names
    assert not copy.exists()
    assert fresh.value("SELECT state FROM backups WHERE place LIKE %s", f"%{first}") == "deleted"


def test_gc_deletes_no_image_that_a_kept_backup_names(fresh: Bundled) -> None:
    store = FolderImageStore(fresh.data / "images")
    key = store.put(bytes(32), "png", b"no row has it")
    path = fresh.data / "images" / key
    mtime(path, time.time() - 7 * 86400)
    fresh.service.make(actor="test")
    kept = fresh.run("gc", "--json")
    assert json.loads(kept.out)["for_backups"] == 1
    assert path.exists()
    fresh.service.delete(LATEST, actor="test")
    assert json.loads(fresh.run("gc", "--json").out)["files"] == 1
    assert not path.exists()


def test_a_dump_is_restored_and_a_drill_tells_all_lines(fresh: Bundled) -> None:
    with fresh.store() as store:
        store.seed("dumped.example")
    made = fresh.service.make(dump=True, actor="test")
    assert made.kind == "dump"
    verified = fresh.run("backup", "verify", made.name, "--json")
    assert verified.code == 0, verified.err
    assert json.loads(verified.out)["checks"] > 30
    with pytest.raises(Refused, match="holds one second only"):
        fresh.restorer.plan(made.name, END)
    fresh.service.make(actor="test")
    drill = fresh.run("backup", "drill", "--json")
    told = json.loads(drill.out)
    assert (drill.code, [one["name"] for one in told["checks"] if not one["ok"]]) == (0, [])
    assert len(told["checks"]) >= 11
    assert json.loads(Path(told["report"]).read_text())["ok"]
    assert not list(fresh.data.glob("postgres.scratch*"))
    verified_at = {one.name: one.verified_at for one in fresh.service.report().backups if one.state == "complete"}
    assert all(verified_at.values())
    (fresh.repository.folder / made.name / "database.dump").write_bytes(b"damaged")
    bad = fresh.run("backup", "verify", made.name)
    assert bad.code == 1
    assert "is not what was written" in bad.out


def test_one_backup_at_a_time_and_a_killed_one_leaves_nothing(fresh: Bundled) -> None:
    with queries.lock(fresh.database), pytest.raises(Refused, match="Another process makes or deletes a backup"):
        fresh.service.make(actor="test")
    with fresh.start("backup") as program:
        wait_for(lambda: list(fresh.repository.folder.glob("*.new")), "the copy to begin")
        program.kill()
    assert fresh.value("SELECT count(*) FROM backups WHERE state = 'running'") == 1
    time.sleep(0.5)  # pg_basebackup finds out
    name = fresh.service.make(actor="test").name
    assert _names(fresh) == [name]
    assert not list(fresh.repository.folder.glob("*.new"))
    assert fresh.value("SELECT error FROM backups WHERE state = 'failed' ORDER BY id DESC LIMIT 1").startswith(
        "It was killed"
    )


def test_a_backup_that_cannot_be_written_says_why(fresh: Bundled) -> None:
    with pytest.raises(Refused, match="There is no full backup yet"):
        fresh.service.make(incremental=True, actor="test")
    with pytest.raises(NotFound, match="`holdfast backup` makes one"):
        fresh.restorer.plan(LATEST)


def test_the_daily_backup_is_due_once_a_day(fresh: Bundled) -> None:
    now = datetime(2026, 11, 17, 2, 30, tzinfo=UTC)
    assert last_time_of("03:00", now) == datetime(2026, 11, 16, 3, tzinfo=UTC)
    assert last_time_of("02:30", now) == now
    with fresh.connection() as connection:
        connection.execute("DELETE FROM backups")
    assert fresh.service.is_due()
    fresh.service.make_daily()
    assert not fresh.service.is_due()
    assert fresh.service.is_due(wanted=True)
    with fresh.connection() as connection:
        connection.execute("UPDATE backups SET started_at = started_at - interval '1 day'")
    assert fresh.service.is_due()
    assert fresh.service.make_daily().kind == "incremental"
    with fresh.connection() as connection:
        connection.execute("UPDATE backups SET started_at = started_at - interval '2 days'")
        connection.execute("INSERT INTO backups (kind, place, generation, state) VALUES ('full', '/x', 1, 'failed')")
    assert not fresh.service.is_due()  # it failed a moment ago


def test_bytes_of_open_segments_are_copied_as_far_as_they_are_synced(tmp_path: Path) -> None:
    archive, repository = tmp_path / "archive", Repository(tmp_path / "backups")
    segment = archive / "w" / "holdfast-1.warc.gz"
    segment.parent.mkdir(parents=True)
    mark = segment.with_name(segment.name + ".open")
    copier, copy = FileCopier(archive, repository), repository.folder / "archive" / "w" / segment.name
    segment.write_bytes(b"synced, not synced")
    mark.write_bytes(b"%020d\n" % 6)
    copier.copy()
    assert copy.read_bytes() == b"synced"
    segment.write_bytes(b"synced; and more")
    mark.write_bytes(b"%020d\n" % 16)
    copier.copy()
    assert copy.read_bytes() == b"synced; and more"
    segment.write_bytes(b"synced; and more at last")
    mark.unlink()
    copier.copy()
    assert copy.read_bytes() == b"synced; and more at last"
    assert FileCopier(archive, repository).bytes == 0
    assert append(segment, copy, 6, 8) == 2
