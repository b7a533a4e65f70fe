"""Kept answers: done once, however often it is asked; and the pool that lends the connections."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import psycopg
import pytest

from holdfast.db import idempotency_keys
from holdfast.db.connection import Database
from holdfast.db.pool import PooledDatabase
from holdfast.errors import Refused, RolledBack, StoreError, StoreUnavailable, UsageError

DAY = timedelta(days=1)
GIVEN = {"owner": "7", "key": "k", "fingerprint": b"f"}


@pytest.fixture
def pooled(database: Database) -> Iterator[PooledDatabase]:
    made = PooledDatabase.from_database(database, size=3, statement_timeout=2)
    yield made
    made.close()


def _reserve(
    connection: psycopg.Connection, patience: float = 0.2, **more: bytes
) -> idempotency_keys.StoredResponse | None:
    return idempotency_keys.reserve(
        connection,
        owner="7",
        key="k",
        fingerprint=more.get("fingerprint", b"f"),
        ttl=DAY,
        timeout=timedelta(seconds=patience),
    )


def test_what_commits_is_kept_and_what_is_rolled_back_is_not(
    pooled: PooledDatabase, connection: psycopg.Connection
) -> None:
    with suppress(UsageError), pooled.one_transaction() as work:
        assert _reserve(work) is None
        raise UsageError("It cannot be meant.")
    with pooled.one_transaction() as work:
        assert _reserve(work) is None
        idempotency_keys.save_response(work, owner="7", key="k", status=201, headers={"location": "/x"}, body=b"{}")
    assert _reserve(connection) == idempotency_keys.StoredResponse(b"f", 201, {"location": "/x"}, b"{}")


def test_who_repeats_it_meanwhile_waits_for_the_end(pooled: PooledDatabase, database: Database) -> None:
    found: list[idempotency_keys.StoredResponse | None] = []

    def repeat() -> None:
        with database.session() as connection, connection.transaction():
            found.append(_reserve(connection, patience=30))

    thread = threading.Thread(target=repeat)
    with pooled.one_transaction() as work:
        assert _reserve(work) is None
        with database.session() as connection, connection.transaction(), pytest.raises(Refused, match="under way"):
            _reserve(connection)
        thread.start()
        idempotency_keys.save_response(work, owner="7", key="k", status=200, headers={}, body=b"done")
    thread.join()
    assert found[0] is not None
    assert found[0].body == b"done"


def test_an_answer_whose_time_is_over_is_none(connection: psycopg.Connection) -> None:
    assert _reserve(connection) is None
    idempotency_keys.save_response(connection, owner="7", key="k", status=200, headers={}, body=b"")
    connection.execute("UPDATE kept_answers SET expires_at = clock_timestamp()")
    assert _reserve(connection, fingerprint=b"other") is None
    connection.execute("UPDATE kept_answers SET expires_at = clock_timestamp()")
    assert idempotency_keys.delete_expired(connection) == 1


def test_all_sessions_meanwhile_are_one_transaction(pooled: PooledDatabase, connection: psycopg.Connection) -> None:
    with pooled.one_transaction():
        for name in ("a", "b"):
            with pooled.session() as inner, inner.transaction():
                _write(inner, name)
        with pytest.raises(StoreError), pooled.session() as inner, inner.transaction():
            inner.execute("SELECT 1 / 0")
        assert connection.execute("SELECT count(*) FROM audit_log").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM audit_log").fetchone() == (2,)


def test_a_failure_that_was_swallowed_is_told(pooled: PooledDatabase, connection: psycopg.Connection) -> None:
    def half() -> None:
        with pooled.one_transaction() as work:
            _write(work, "w")
            with suppress(StoreError), pooled.session() as inner:
                inner.execute("SELECT 1 / 0")

    with pytest.raises(RolledBack, match="nothing of it was done"):
        half()
    assert connection.execute("SELECT count(*) FROM audit_log").fetchone() == (0,)
    for _ in range(4):  # and the pool has not lost a place by it
        with pooled.session() as one:
            assert one.execute("SELECT 1").fetchone() == (1,)


def _write(connection: psycopg.Connection, name: str) -> None:
    connection.execute(
        "INSERT INTO audit_log (actor, action, object_kind, object_id) VALUES ('x', 'y', 'z', %s)", (name,)
    )


def test_connections_that_the_server_cut_are_not_lent(pooled: PooledDatabase, connection: psycopg.Connection) -> None:
    with pooled.session() as one, pooled.session() as other:
        pids = [one.info.backend_pid, other.info.backend_pid]
    for pid in pids:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
    for _ in range(5):
        with pooled.session() as one:
            assert one.execute("SELECT 1").fetchone() == (1,)
            assert one.info.backend_pid not in pids


def test_what_takes_too_long_is_ended(pooled: PooledDatabase) -> None:
    with pytest.raises(StoreUnavailable, match="took too long"), pooled.session() as connection:
        connection.execute("SELECT pg_sleep(10)")


def test_a_pool_that_is_used_up_says_so(database: Database) -> None:
    small = PooledDatabase.from_database(database, size=2, statement_timeout=2)
    object.__setattr__(small, "timeout", 0.1)
    with small.session(), small.session(), pytest.raises(StoreUnavailable, match="all 2 connections"), small.session():
        pass
    small.close()


def test_the_connection_that_came_back_last_is_lent_first(pooled: PooledDatabase) -> None:
    """Its server process is awake, and knows the statements."""
    with pooled.session() as first, pooled.session() as second:
        pids = [first.info.backend_pid, second.info.backend_pid]
    for _ in range(5):
        with pooled.session() as again:
            assert again.info.backend_pid == pids[0], "the outer one came back last"


def test_what_is_kept_is_one_connection_and_no_transaction(pooled: PooledDatabase) -> None:
    with pooled.one_connection():
        with pooled.session() as first:
            first.execute("CREATE TABLE seen_at_once ()")
        with pooled.session() as second:
            assert second is first
    with pooled.session() as other:
        other.execute("DROP TABLE seen_at_once")
