"""What a test needs to force two connections into a race: a thread beside it, and to know when that one has come to wait."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg

from holdfast.db.connection import Database
from tests.support.factories import Store


@contextmanager
def beside(database: Database) -> Iterator[tuple[Store, ThreadPoolExecutor]]:
    """Another connection, and a thread to use it in."""
    with database.connect() as connection, ThreadPoolExecutor(1) as thread:
        yield Store(connection), thread


def wait_until_blocked(watch: psycopg.Connection, blocked: psycopg.Connection, future: Future[Any]) -> bool:
    """Whether the other connection came to wait for a lock before it was done."""
    deadline = time.monotonic() + 20
    query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
    while time.monotonic() < deadline and not future.done():
        row = watch.execute(query, (blocked.info.backend_pid,)).fetchone()
        if row and row[0]:
            return True
        time.sleep(0.005)
    return False
