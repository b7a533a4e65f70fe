"""`holdfast db move`: what it asks, says and refuses; to a server, to the bundled one, and to another data folder."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdfast.control import health
from holdfast.db import embedded, store_move
from holdfast.db.connection import Database
from tests.support.cli import Cli
from tests.support.factories import Store
from tests.support.moving import rows_of
from tests.support.servers import data_in_memory

CANARY = "canary-77ab"


@pytest.fixture
def place(server: embedded.Server, admin: psycopg.Connection) -> Iterator[Database]:
    """An empty database to move to, with a password in its address."""
    name = sql.Identifier("test_move_command")
    admin.execute(sql.SQL("CREATE DATABASE {} OWNER holdfast").format(name))
    yield Database(server.url("test_move_command").replace("holdfast@", f"holdfast:{CANARY}@"))
    admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def test_a_move_is_planned_asked_for_and_done(
    cli: Cli, database: Database, store: Store, place: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.seed("a.example/", "b.example/")
    monkeypatch.setenv("NEW_STORE", place.url)
    to = ("--to", "env:NEW_STORE")
    assert cli("db", "move").refused(2).startswith("Say where to: --to postgresql://")
    for bad in (
        "nowhere",
        f"mysql://me:{CANARY}@db.example/x",
        f"postgresql:/me:{CANARY}@db.example/x",
        f"host=db.example password={CANARY}",
    ):
        sentence = cli("db", "move", "--to", bad).refused(2)
        assert sentence.startswith("What --to says is neither a URL")
        assert CANARY not in sentence
    wrong = cli("db", "move", "--to", f"postgresql://me:{CANARY}@127.0.0.1:1/x").refused(3)
    assert wrong.endswith("Check that it runs and that --to is right.")
    assert CANARY not in wrong
    assert cli("db", "move", "--abandon").refused(5) == "This store does not move, so there is nothing to take back."
    plan = cli("db", "move", *to, "--dry-run")
    assert plan.code == 0, plan
    assert "Pause       about" in plan.out
    assert "Nothing was changed." in plan.out
    planned = cli("db", "move", *to, "--dry-run", "--json").json
    assert (planned["state"], planned["replaces"], planned["files"]) == ("new", False, 0)
    assert planned["pause_seconds"] > 0
    asked = cli("db", "move", *to)
    assert asked.code == 5
    assert "Now the crawl has to pause for about" in asked.err
    assert "The store was not moved; what was copied is kept for the next attempt. There is no terminal" in asked.err
    assert cli("seeds", "add", "c.example").code == 0
    assert "copying; the same command goes on" in cli("db", "move", *to, "--dry-run").out
    before = rows_of(store.connection)
    moved = cli("db", "move", *to, stdin="y\n")
    assert moved.code == 0, moved
    assert f"Moved to {place.address}: " in moved.out
    assert "rows, counted and hashed in both." in moved.out
    assert "The pause lasted " in moved.out
    assert "set HOLDFAST_DATABASE_URL to the address of that database, and start the workers again." in moved.out
    assert CANARY not in str(
        (plan, asked, moved, store.connection.execute("SELECT m::text FROM store_move m").fetchall())
    )
    for command in (("status",), ("seeds", "add", "d.example"), ("db", "downgrade", "-1", "--yes")):
        sentence = cli(*command).refused(5)
        assert sentence.startswith(f"This store was moved to {place.address} at 20"), command
        assert sentence.endswith("takes no more writes: set HOLDFAST_DATABASE_URL to the address of that database.")
    (_, schema) = health.look(database)
    assert (schema.works, schema.cause) == (False, "The store was moved to another database.")
    assert "and is in use there" in cli("db", "move", *to, "--abandon").refused(5)
    assert "say `--abandon --to` with its address" in cli("db", "move", "--abandon").refused(5)
    assert "is this store already" in cli("db", "move", *to, "--yes").refused(5)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", place.url)
    assert cli("seeds", "add", "d.example").code == 0
    assert rows_of(store.connection) == before


def test_a_move_that_was_killed_is_taken_back(cli: Cli, store: Store, place: Database) -> None:
    store.seed("a.example/")
    store_move.begin(store.connection, destination="db.example:5432/x", advice="y")
    store_move.close(store.connection)
    sentence = cli("seeds", "add", "b.example").refused(5)
    assert sentence.startswith("This store is being moved to db.example:5432/x since 20")
    assert "or take it back with `holdfast db move --abandon`." in sentence
    assert cli("status").code == 0, "it can be read"
    assert "This store is closed for a move to db.example:5432/x" in cli("db", "move", "--to", place.url).refused(5)
    answer = cli("db", "move", "--abandon", "--json")
    assert answer.json == {"abandoned": "db.example:5432/x"}
    assert cli("seeds", "add", "b.example").code == 0
    left = "SELECT count(*) FROM pg_trigger WHERE tgname = 'holdfast_moved'"
    assert store.connection.execute(left).fetchone() == (0,)


def test_to_the_bundled_server_and_to_another_folder_with_its_files(
    cli: Cli, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.seed("a.example/", "b.example/")
    before = rows_of(store.connection)
    with data_in_memory() as data, data_in_memory() as other:
        monkeypatch.setenv("HOLDFAST_DATA", str(data))
        moved = cli("db", "move", "--to", "embedded", "--yes", "--json")
        assert moved.code == 0, moved
        assert moved.json["advice"] == "unset HOLDFAST_DATABASE_URL"
        assert moved.json["files"] == 0
        assert "unset HOLDFAST_DATABASE_URL" in cli("seeds", "add", "c.example").refused(5)
        monkeypatch.delenv("HOLDFAST_DATABASE_URL")
        assert "already" in cli("db", "move", "--to", "embedded", "--yes").refused(5)
        assert cli("seeds", "add", "c.example").code == 0
        files = {
            "archive/w1/1.warc.gz": b"one",
            "archive/w1/2.warc.gz": b"two",
            "archive/w1/2.warc.gz.open": b"3",
            "secret.key": b"k",
        }
        for name, content in {**files, "logs/crawl.log": b"-", "search/x": b"-", "backups/x/backup.json": b"-"}.items():
            (data / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            (data / name).write_bytes(content)
        moved = cli("db", "move", "--to", str(other), stdin="y\n")
        assert moved.code == 0, moved
        assert "4 files" in moved.out
        assert f"say --data {other}, or set HOLDFAST_DATA to it" in moved.out
        for name, content in files.items():
            assert (other / name).read_bytes() == content
            assert stat.S_IMODE((other / name).stat().st_mode) == 0o600
        assert not (other / "logs").exists()
        assert not (other / "search").exists()
        assert not (other / "backups").exists(), "they are of the old server"
        assert f"Backups of the old store stay in {data / 'backups'}" in " ".join(moved.out.split())
        assert f"say --data {other}" in cli("seeds", "add", "e.example").refused(5)
        monkeypatch.setenv("HOLDFAST_DATA", str(other))
        assert cli("seeds", "add", "e.example").code == 0
        with Database(cli("db", "url").out.strip()).session() as connection:
            names = connection.execute("SELECT array_agg(domain ORDER BY domain) FROM domains").fetchone()
            assert names == (["a.example", "b.example", "c.example", "e.example"],)
    assert os.environ["HOLDFAST_DATA"] == str(Path(other))
    assert rows_of(store.connection) == before


def test_a_dry_run_leaves_nothing_behind(cli: Cli, store: Store, tmp_path: Path) -> None:
    store.seed("a.example/")
    with data_in_memory() as other:
        for folder in (other, tmp_path / "new"):
            planned = cli("db", "move", "--to", str(folder), "--dry-run")
            assert planned.code == 0, planned
            assert "Nothing was changed." in planned.out
            assert not folder.exists()
        embedded.ensure_running(other)
        assert cli("db", "move", "--to", str(other), "--dry-run").code == 0
        assert embedded.state(other) is embedded.State.RUNS, "others may use it"
        embedded.stop(other)
        planned = cli("db", "move", "--to", str(other), "--dry-run", "--json")
        assert (planned.json["state"], planned.json["replaces"]) == ("new", False)
        assert embedded.state(other) is embedded.State.STOPPED
