"""The schema's revision: known, compared, changed by one at a time, and the same whichever way it was reached."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdfast.db import crawls, embedded, migrate
from holdfast.db.connection import Database, libpq_environment
from holdfast.errors import SchemaMismatch, StoreError, UsageError
from tests.support.catalogue import catalogue
from tests.support.factories import Store
from tests.support.invariants import assert_invariants


@pytest.fixture
def empty(server: embedded.Server) -> Iterator[Database]:
    """A database without a schema."""
    name = sql.Identifier("test_empty")
    with psycopg.connect(server.admin_url(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} OWNER holdfast").format(name))
        yield Database(server.url("test_empty"))
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def schema_of(server: embedded.Server, database: Database) -> str:
    """The whole schema as pg_dump writes it, but for the key that it makes up each time."""
    dump = subprocess.run(
        [server.bin / "pg_dump", "--schema-only"],
        env={**os.environ, **libpq_environment(database.url)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return re.sub(r"^\\(un)?restrict .*\n", "", dump, flags=re.MULTILINE)


def check(database: Database) -> None:
    with database.session() as connection:
        migrate.check(connection, database.address)


def test_up_down_and_up_again_leaves_the_same_schema(server: embedded.Server, empty: Database) -> None:
    bare = schema_of(server, empty)
    assert migrate.upgrade(empty) == (None, migrate.HEAD)
    first = schema_of(server, empty)
    assert "CREATE TABLE public.domains" in first
    check(empty)
    assert migrate.upgrade(empty) == (migrate.HEAD, migrate.HEAD), "nothing to do"
    assert migrate.downgrade(empty, "base") == (migrate.HEAD, None)
    assert schema_of(server, empty) == bare, "everything that Holdfast made is gone"
    migrate.upgrade(empty)
    assert schema_of(server, empty) == first


def new_steps(*ups: str, down: str = "SELECT 1") -> tuple[migrate.Step, ...]:
    """The steps that there are, and some more."""
    first = int(migrate.HEAD) + 1
    more = (migrate.Step(f"{first + number:04}", partial(str, up), partial(str, down)) for number, up in enumerate(ups))
    return (*migrate.STEPS, *more)


_COLOUR = "ALTER TABLE domains ADD COLUMN colour text NOT NULL DEFAULT 'grey'"
_NO_COLOUR = "ALTER TABLE domains DROP COLUMN colour"


def test_the_baseline_is_the_schema_of_0026(empty: Database) -> None:
    """The file was written from a store that all revisions before had made, one after the other."""
    assert migrate.upgrade(empty, migrate.BASELINE) == (None, "0026")
    with empty.session() as connection:
        assert catalogue(connection) == Path(__file__).with_name("catalogue_0026.txt").read_text("utf-8")
        jobs = connection.execute("SELECT id, name, kind::text, spec, new_crawl FROM crawl_jobs ORDER BY id").fetchall()
        assert jobs == [
            (1, "default", "crawl", {"refresh": True}, True),
            (2, "tasks", "tasks", {"follow": False}, True),
        ]
        duties = connection.execute("SELECT string_agg(name, ' ' ORDER BY name) FROM duties").fetchone()
        assert duties == ("alerts figures gauges priorities proxies trim",)
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (0,)
        weeks = connection.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'crawl_log'::regclass")
        assert weeks.fetchone() == (1 + 5,), "the default one, this week's and the next four"


def test_procrastinate_finds_its_tables_whatever_the_search_path(empty: Database) -> None:
    migrate.upgrade(empty)
    query = "SELECT proconfig FROM pg_proc WHERE pronamespace = 'procrastinate'::regnamespace"
    with empty.session() as connection:
        settings = [row[0] for row in connection.execute(query)]
    assert settings
    assert all(setting == ["search_path=procrastinate"] for setting in settings)


def test_a_store_that_alembic_left_at_0026_is_taken_as_it_is(empty: Database) -> None:
    migrate.upgrade(empty)
    with empty.session() as connection:
        store = Store(connection)
        store.domains(2)
        store.claim_one()
    migrate.downgrade(empty, migrate.BASELINE)
    alembic = """
        DROP TABLE schema_version;
        CREATE TABLE schema_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT schema_version_pkc PRIMARY KEY (version_num));
        INSERT INTO schema_version (version_num) VALUES ('0026');
    """
    with empty.session() as connection:
        connection.execute(alembic)
        before = Store(connection).everything()
    assert migrate.upgrade(empty) == ("0026", migrate.HEAD)
    check(empty)
    with empty.session() as connection:
        assert Store(connection).everything() == before
        assert connection.execute("SELECT version_num FROM schema_version").fetchall() == [(migrate.HEAD,)]


def test_an_older_store_is_refused_with_the_version_to_upgrade_it_with(
    server: embedded.Server, database: Database
) -> None:
    with database.session() as connection:
        connection.execute("UPDATE schema_version SET version_num = '0025'")
    before = schema_of(server, database)
    sentence = (
        f"The database at {database.address} is at revision 0025, older than 0026, the oldest that this Holdfast upgrades from. "
        "Upgrade it first with an earlier Holdfast: `git checkout 108b5aa`, `make setup`, `holdfast db upgrade` "
        "with the same settings. Then come back to this version."
    )
    for attempt in (check, migrate.upgrade, migrate.downgrade, lambda store: migrate.downgrade(store, "base")):
        with pytest.raises(SchemaMismatch) as refusal:
            attempt(database)
        assert (str(refusal.value), refusal.value.exit_code) == (sentence, 3)
    assert schema_of(server, database) == before


def test_an_empty_database_is_refused_with_what_to_do(empty: Database) -> None:
    with pytest.raises(SchemaMismatch) as refusal:
        check(empty)
    assert str(refusal.value) == (
        f"The database at {empty.address} has no Holdfast schema yet; run `holdfast db upgrade`."
    )


def test_a_store_behind_is_refused_with_what_to_do(empty: Database) -> None:
    migrate.upgrade(empty, migrate.BASELINE)
    with pytest.raises(SchemaMismatch) as refusal:
        check(empty)
    assert str(refusal.value) == (
        f"The database at {empty.address} is at revision 0026, this Holdfast needs {migrate.HEAD}; run `holdfast db upgrade`."
    )


def test_one_step_on_and_back(database: Database) -> None:
    steps = new_steps(_COLOUR, down=_NO_COLOUR)
    newest = steps[-1].revision
    assert migrate.upgrade(database, steps=steps) == (migrate.HEAD, newest)
    with pytest.raises(SchemaMismatch, match=f"is at revision {newest}, newer than this Holdfast"):
        check(database)
    assert migrate.downgrade(database, steps=steps) == (newest, migrate.HEAD)
    check(database)


def test_a_claim_and_a_crawl_under_way_live_through_every_step_down_and_up(
    server: embedded.Server, empty: Database
) -> None:
    steps = new_steps(_COLOUR, "UPDATE domains SET colour = 'red'", down="SELECT 1")
    steps = (*steps[:-2], migrate.Step(steps[-2].revision, steps[-2].up, lambda: _NO_COLOUR), steps[-1])
    revisions = [migrate.BASELINE, *(step.revision for step in steps)]
    migrate.upgrade(empty, steps=steps)
    with empty.session() as connection:
        store = Store(connection)
        store.domains(3)
        (held, let_go) = store.claim(count=2)
        crawls.begin(connection, store.job)
        assert store.flush(held, refusal_streak=2, outcomes=2, errors=2)
        store.release(let_go)

    def under_way() -> list[tuple[object, ...]]:
        with empty.session() as connection:
            return connection.execute(
                "SELECT d.id, d.claimed_by, d.claim_epoch, d.claim_expires_at > now(), c.ended_at, l.ended_at"
                " FROM domains d JOIN claim_log l ON (l.domain_id, l.epoch) = (d.id, d.claim_epoch), crawls c"
                " WHERE d.claimed_by IS NOT NULL"
            ).fetchall()

    claim = [(held.domain_id, "w1", held.epoch, True, None, None)]
    schemas = {revisions[-1]: schema_of(server, empty)}
    for newer, revision in pairwise(reversed(revisions)):
        assert migrate.downgrade(empty, "-1", steps=steps) == (newer, revision)
        assert under_way() == claim, revision
        schemas[revision] = schema_of(server, empty)
    for older, revision in pairwise(revisions):
        assert migrate.upgrade(empty, revision, steps=steps) == (older, revision)
        assert under_way() == claim, revision
        assert schema_of(server, empty) == schemas[revision], f"{revision} is not the same again"
    migrate.downgrade(empty, migrate.HEAD, steps=steps)
    check(empty)
    with empty.session() as connection:
        store = Store(connection)
        assert store.flush(held, outcomes=1)
        store.release(held)
        assert_invariants(connection)


def test_jobs_that_had_ended_keep_the_time_of_their_end(database: Database, store: Store) -> None:
    """The step of retention, found by what it adds: the integrator may number it anew."""
    (step,) = [step for step in migrate.STEPS if "retention_state" in step.up() and "CREATE TABLE" in step.up()]
    before = f"{int(step.revision) - 1:04}"
    store.connection.execute(
        "INSERT INTO crawl_jobs (name, state, completed_at) VALUES ('done', 'completed', '2026-01-02 03:04Z'), ('lost', 'cancelled', NULL)"
    )
    ended = {
        name: store.value("SELECT COALESCE(completed_at, updated_at) FROM crawl_jobs WHERE name = %s", name)
        for name in ("done", "lost")
    }
    migrate.downgrade(database, before)
    migrate.upgrade(database)
    found = store.connection.execute("SELECT name, ended_at FROM crawl_jobs").fetchall()
    assert {str(row[0]): row[1] for row in found} == {"default": None, "tasks": None, **ended}
    store.connection.execute("UPDATE crawl_jobs SET state = 'pending', completed_at = NULL WHERE name = 'done'")
    assert store.value("SELECT ended_at IS NULL FROM crawl_jobs WHERE name = 'done'")


def test_a_step_that_fails_leaves_the_schema_after_the_one_before(database: Database) -> None:
    steps = new_steps(_COLOUR, "UPDATE domains SET colour = 'red'; SELECT 1 / 0")
    reached = steps[-2].revision
    with pytest.raises(StoreError, match=f"could not be changed, and is at revision {reached}: division by zero"):
        migrate.upgrade(database, steps=steps)
    with database.session() as connection:
        assert migrate.current(connection) == reached
        connection.execute("SELECT colour FROM domains")
    with pytest.raises(StoreError, match="could not be changed, and is as it was: division by zero"):
        migrate.upgrade(database, steps=steps)


_KILLED = """
import sys
from holdfast import failpoints
from holdfast.db import migrate
from holdfast.db.connection import Database

failpoints.arm("in_migration")
first = migrate.Step(sys.argv[2], lambda: sys.argv[3], lambda: "")
migrate.upgrade(Database(sys.argv[1]), steps=(*migrate.STEPS, first))
"""


@pytest.mark.parametrize("start", [None, migrate.HEAD])
def test_an_upgrade_killed_in_the_middle_leaves_the_schema_as_it_was(
    server: embedded.Server, empty: Database, start: str | None
) -> None:
    if start is not None:
        migrate.upgrade(empty)
    before = schema_of(server, empty)
    next_revision = new_steps("")[-1].revision
    victim = subprocess.run([sys.executable, "-c", _KILLED, empty.url, next_revision, _COLOUR], check=False)
    assert victim.returncode == -signal.SIGKILL
    assert migrate.upgrade(empty, start or migrate.BASELINE)[0] == start
    migrate.downgrade(empty, start or "base")
    assert schema_of(server, empty) == before


def test_the_steps_are_numbered_on_from_the_baseline_each_with_its_way_back(tmp_path: Path) -> None:
    assert [step.revision for step in migrate.STEPS] == [f"{27 + number:04}" for number in range(len(migrate.STEPS))]
    assert {None, "0026"} | {step.revision for step in migrate.STEPS} == migrate.OLDER | {migrate.HEAD}
    (tmp_path / "0027_colour.up.sql").write_text(_COLOUR)
    with pytest.raises(ValueError, match=r"expected 0027_name\.up\.sql with a \.down\.sql beside it"):
        migrate.read_steps(tmp_path)
    (tmp_path / "0027_colour.down.sql").write_text(_NO_COLOUR)
    (step,) = migrate.read_steps(tmp_path)
    assert (step.revision, step.up(), step.down()) == ("0027", _COLOUR, _NO_COLOUR)
    (tmp_path / "0029_gap.up.sql").write_text("")
    (tmp_path / "0029_gap.down.sql").write_text("")
    with pytest.raises(ValueError, match="expected 0028_name"):
        migrate.read_steps(tmp_path)


def test_a_newer_schema_is_refused_and_never_changed(server: embedded.Server, database: Database) -> None:
    with database.session() as connection:
        connection.execute("UPDATE schema_version SET version_num = '9999'")
    before = schema_of(server, database)
    with pytest.raises(SchemaMismatch, match="is at revision 9999, newer than this Holdfast"):
        check(database)
    for change in (migrate.upgrade, migrate.downgrade):
        with pytest.raises(SchemaMismatch, match="does not know revision 9999"):
            change(database)
    assert schema_of(server, database) == before


def test_where_the_schema_cannot_go_is_a_usage_error(database: Database, empty: Database) -> None:
    oldest = "0026 is the oldest revision of this Holdfast. To remove the schema with all data: `holdfast db downgrade base`."
    steps = new_steps(_COLOUR, down=_NO_COLOUR)
    newest = steps[-1].revision
    refused: list[tuple[Database, Sequence[migrate.Step], bool, str, str]] = [
        (database, migrate.STEPS, True, "9815", f"there is no revision 9815; the newest is {migrate.HEAD}."),
        (database, migrate.STEPS, False, "--nope", f"there is no revision --nope; the newest is {migrate.HEAD}."),
        (database, migrate.STEPS, False, "0025", oldest),
        (database, migrate.STEPS, True, "0001", oldest),
        (database, migrate.STEPS, False, f"-{len(migrate.STEPS) + 1}", oldest),
        (empty, migrate.STEPS, False, "-1", oldest),
        (empty, migrate.STEPS, False, "0026", "0026 is after no schema; see `holdfast db upgrade`."),
        (database, steps, False, newest, f"{newest} is after {migrate.HEAD}; see `holdfast db upgrade`."),
    ]
    for store, known, up, revision, why in refused:
        with pytest.raises(UsageError) as refusal:
            (migrate.upgrade if up else migrate.downgrade)(store, revision, steps=known)
        assert str(refusal.value) == f"The schema cannot go there: {why}"
    check(database)
    migrate.upgrade(database, steps=steps)
    with pytest.raises(UsageError, match=f"{migrate.HEAD} is before {newest}; see `holdfast db downgrade`"):
        migrate.upgrade(database, migrate.HEAD, steps=steps)


def test_a_migration_that_fails_leaves_the_schema_as_it_was(server: embedded.Server, empty: Database) -> None:
    with empty.session() as connection:
        connection.execute("CREATE TABLE provenance (mine text)")  # the name of one of the last tables
    before = schema_of(server, empty)
    with pytest.raises(StoreError, match=r"could not be changed, and is as it was: .*provenance"):
        migrate.upgrade(empty)
    assert schema_of(server, empty) == before


def test_of_two_upgrades_at_once_the_second_waits_and_finds_nothing_to_do(empty: Database) -> None:
    start = threading.Barrier(2)
    results: list[object] = []

    def upgrade() -> None:
        start.wait()
        try:
            results.append(migrate.upgrade(empty))
        except BaseException as problem:  # noqa: BLE001 — handed to the test
            results.append(problem)

    threads = [threading.Thread(target=upgrade) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results, key=str) == [(migrate.HEAD, migrate.HEAD), (None, migrate.HEAD)]
    with empty.session() as connection:
        assert connection.execute("SELECT count(*) FROM crawl_jobs").fetchone() == (2,)  # the standing ones
