"""Moves that are killed at every point: the old store is whole, the next attempt goes on, the new store is the same."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from holdfast.db import embedded, migrate, store_move
from holdfast.db.connection import Database
from holdfast.errors import SchemaMismatch, StoreMoved
from tests.support.cli import only_ours
from tests.support.factories import Store
from tests.support.furnished import furnish
from tests.support.moving import old_weeks, rows_of

# In the order in which a move reaches them, with how often it has when it dies.
POINTS = {
    "move_prepared": 1,
    "move_copied_ahead": 2,
    "move_closed": 1,
    "move_copied": 30,
    "move_indexed": 1,
    "move_compared": 1,
    "move_marked": 1,
    "move_switched": 1,
}
_ARMED = """
import sys
from holdfast import failpoints
from holdfast.cli.app import run
failpoints.arm(sys.argv[1], int(sys.argv[2]))
sys.exit(run(sys.argv[3:]))
"""


@pytest.fixture
def place(server: embedded.Server, admin: psycopg.Connection) -> Iterator[Database]:
    """An empty database to move to."""
    name = sql.Identifier("test_killed_move")
    admin.execute(sql.SQL("CREATE DATABASE {} OWNER holdfast").format(name))
    yield Database(server.url("test_killed_move"))
    admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def run(folder: Path, place: Database, *more: str, point: str = "move_closed", nth: int = 10**9) -> tuple[int, str]:
    """`holdfast db move`, killed when it reaches the point for the nth time."""
    to = ["--to", "env:NEW_STORE", *more]
    done = subprocess.run(
        [sys.executable, "-c", _ARMED, point, str(nth), "db", "move", *to],
        cwd=folder,
        env={**os.environ, "NEW_STORE": place.url},
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.decode() + done.stderr.decode()


def test_killed_at_every_point_the_old_store_is_whole(
    database: Database, place: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_ours(monkeypatch, tmp_path, database)
    furnish(database)
    with database.session() as old:
        old_weeks(old)
        before = rows_of(old)
        for point, nth in POINTS.items():
            assert run(tmp_path, place, "--yes", point=point, nth=nth)[0] == -signal.SIGKILL, point
            assert rows_of(old) == before, point
            move = store_move.read(old)
            assert move is not None
            if point == "move_marked":  # taken back at the last moment before the new store counts
                assert run(tmp_path, place, "--abandon") == (
                    0,
                    f"The move to {place.address} is given up. This store takes writes again; what was copied there is not used.\n",
                )
                Store(old).seed("after.example/")
                before = rows_of(old)
                assert run(tmp_path, place, "--yes", point=point, nth=nth)[0] == -signal.SIGKILL, "again, anew"
            if point != "move_switched":
                with pytest.raises(SchemaMismatch), place.session() as new:
                    migrate.check(new, place.address)
        with pytest.raises(StoreMoved):
            migrate.check(old, database.address)
    with place.session() as new:
        migrate.check(new, place.address)
        assert rows_of(new) == before
    code, said = run(tmp_path, place, "--yes")
    assert code == 5
    assert (
        "is this store already, in a later generation: set HOLDFAST_DATABASE_URL to the address of that database."
        in said
    )
