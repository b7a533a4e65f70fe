"""A pool whose database goes away and comes back."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, unquote

import psycopg
import pytest

from holdfast.db.connection import Database
from holdfast.db.pool import PooledDatabase
from holdfast.errors import StoreUnavailable

SIZE = 1
QUEUE = 20 * SIZE
"""How many may wait for a connection."""


class Road:
    """A socket that leads to the database, until it is taken away."""

    def __init__(self, database: Database, folder: Path) -> None:
        parts = psycopg.conninfo.conninfo_to_dict(database.url)
        name = f".s.PGSQL.{parts['port']}"
        self._target, self._socket = Path(unquote(str(parts["host"]))) / name, folder / name
        self.url = f"postgresql://{parts['user']}@/{parts['dbname']}?host={quote(str(folder))}&port={parts['port']}"
        self.open()

    def open(self) -> None:
        self._socket.symlink_to(self._target)

    def close(self, connection: psycopg.Connection) -> None:
        self._socket.unlink()
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast api'"
        )


@pytest.fixture
def road(database: Database, tmp_path: Path) -> Road:
    return Road(database, tmp_path)


@pytest.fixture
def pooled(database: Database, road: Road) -> Iterator[PooledDatabase]:
    made = PooledDatabase.from_database(replace(database, url=road.url), size=SIZE, statement_timeout=2)
    object.__setattr__(made, "timeout", 2.5)  # longer than it tries to connect
    yield made
    made.close()


def _asks(pooled: PooledDatabase) -> bool:
    try:
        with pooled.session() as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except StoreUnavailable:
        return False


def _is_away(pooled: PooledDatabase) -> bool:
    return pooled.pool.is_unavailable


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_who_waited_in_vain_keeps_nobody_from_it_and_once_it_is_known_to_be_away_nobody_waits(
    pooled: PooledDatabase, road: Road, connection: psycopg.Connection
) -> None:
    assert _asks(pooled)
    assert not _is_away(pooled)
    road.close(connection)
    threads = [threading.Thread(target=_asks, args=(pooled,)) for _ in range(QUEUE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _until(lambda: not _asks(pooled) and _is_away(pooled))
    began = time.monotonic()
    assert not any(_asks(pooled) for _ in range(QUEUE))
    assert time.monotonic() - began < pooled.timeout * QUEUE / 2  # each would have waited for so long
    road.open()
    _until(lambda: _asks(pooled))
    assert not _is_away(pooled)
