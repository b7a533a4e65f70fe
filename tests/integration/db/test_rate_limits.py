"""Sliding windows in the database: exact, for any number of processes."""

import threading
import time
from datetime import timedelta

import psycopg
import pytest

from holdfast.db import rate_limits
from holdfast.db.connection import Database

MINUTE = timedelta(minutes=1)


def _age(connection: psycopg.Connection, key: str, seconds: float) -> None:
    """Let time pass for a key."""
    connection.execute("UPDATE rate_hits SET at = at - %s WHERE key = %s", (timedelta(seconds=seconds), key))
    connection.execute("UPDATE rate_keys SET last_at = last_at - %s WHERE key = %s", (timedelta(seconds=seconds), key))


def test_exactly_as_many_as_are_allowed(connection: psycopg.Connection) -> None:
    allowed = [rate_limits.hit(connection, "a", limit=5, window=MINUTE).allowed for _ in range(8)]
    assert allowed == [True] * 5 + [False] * 3
    assert rate_limits.hit(connection, "b", limit=5, window=MINUTE).used == 1


def test_the_window_slides(connection: psycopg.Connection) -> None:
    for _ in range(3):
        assert rate_limits.hit(connection, "a", limit=5, window=MINUTE).allowed
    _age(connection, "a", 40)
    for _ in range(2):
        assert rate_limits.hit(connection, "a", limit=5, window=MINUTE).allowed
    assert not rate_limits.hit(connection, "a", limit=5, window=MINUTE).allowed
    _age(connection, "a", 21)  # the first three are 61 s old, the others 21
    after = [rate_limits.hit(connection, "a", limit=5, window=MINUTE) for _ in range(4)]
    assert [rate.allowed for rate in after] == [True, True, True, False]
    assert after[-1].used == 5
    _age(connection, "a", 61)
    assert rate_limits.hit(connection, "a", limit=5, window=MINUTE, amount=0).used == 0


@pytest.mark.parametrize("most", [1, 2, 7])
def test_the_ring_agrees_with_a_list_of_all_hits(connection: psycopg.Connection, most: int) -> None:
    """A model: every hit that was allowed is remembered by its age."""
    ages: list[float] = []
    for step in range(60):
        passed = (step * 37) % 29
        _age(connection, "m", passed)
        ages = [age + passed for age in ages if age + passed < 60]
        rate = rate_limits.hit(connection, "m", limit=most, window=MINUTE)
        assert rate.allowed == (len(ages) < most), (step, ages)
        if rate.allowed:
            ages.append(0.0)
        assert rate.used == len(ages)


def test_looking_counts_nothing_and_says_when_the_first_hit_was(connection: psycopg.Connection) -> None:
    assert rate_limits.hit(connection, "a", limit=2, window=MINUTE, amount=0) == rate_limits.RateUsage(True, 0, None)
    before = time.time()
    rate_limits.hit(connection, "a", limit=2, window=MINUTE)
    rate = rate_limits.hit(connection, "a", limit=2, window=MINUTE, amount=0)
    assert rate.used == 1
    assert rate.oldest is not None
    assert abs(rate.oldest.timestamp() - before) < 30


def test_many_at_once_count_as_one(database: Database) -> None:
    allowed: list[bool] = []

    def ask() -> None:
        with database.session() as connection:
            allowed.extend(rate_limits.hit(connection, "crowd", limit=50, window=MINUTE).allowed for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(allowed), sum(allowed)) == (160, 50)


def test_what_nobody_uses_is_forgotten(connection: psycopg.Connection) -> None:
    for key in ("old", "new"):
        rate_limits.hit(connection, key, limit=2, window=MINUTE)
    _age(connection, "old", 90_000)
    assert rate_limits.delete_unused(connection) == 1
    assert connection.execute("SELECT key FROM rate_keys UNION SELECT key FROM rate_hits").fetchall() == [("new",)]
