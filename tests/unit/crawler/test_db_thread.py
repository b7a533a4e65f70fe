"""Database calls are retried while the database is unavailable, and only then."""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from holdfast.crawler import db_thread as db_thread_module
from holdfast.crawler.db_thread import DbThread, StoppedWaiting
from holdfast.errors import ClaimLost, RolledBack, StoreError, StoreUnavailable


@dataclass
class FakeConnection:
    """As much of a connection as a database thread reads."""

    closed: bool = False
    broken: bool = False

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeDatabase:
    """Is away for so many attempts to connect."""

    away: int = 0
    made: list[FakeConnection] = field(default_factory=list)

    def with_application_name(self, _application: str) -> "FakeDatabase":
        return self

    def connect(self) -> Any:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("Nothing answers.")
        self.made.append(FakeConnection())
        return self.made[-1]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db_thread_module, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(db_thread_module, "MAX_PAUSE", 0.002)


def make(away: int = 0) -> tuple[DbThread, FakeDatabase]:
    database = FakeDatabase(away)
    return DbThread(database, "test"), database  # type: ignore[arg-type]


def test_it_asks_until_the_database_is_back() -> None:
    db, database = make(away=5)
    assert db.run(lambda _connection, number: number + 1, 41) == 42
    assert (database.away, db.unavailable, db.disconnects) == (0, False, 5)
    db.close()
    assert database.made[0].closed


def test_one_connection_serves_all_calls() -> None:
    db, database = make()
    for _ in range(3):
        db.run(lambda _connection: None)
    assert len(database.made) == 1
    database.made[0].broken = True
    db.run(lambda _connection: None)
    assert len(database.made) == 2
    db.close()


@pytest.mark.parametrize("problem", [RolledBack("again"), StoreUnavailable("gone"), psycopg.errors.AdminShutdown()])
def test_what_may_succeed_later_is_tried_again(problem: Exception) -> None:
    db, _ = make()
    problems = [problem, problem]

    def work(_connection: object) -> str:
        if problems:
            raise problems.pop()
        return "done"

    assert db.run(work) == "done"
    assert db.disconnects == 2
    db.close()


def test_an_error_on_a_connection_that_broke_is_tried_again() -> None:
    db, database = make()

    def work(connection: Any) -> str:
        if len(database.made) == 1:
            connection.broken = True
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return "done"

    assert db.run(work) == "done"
    db.close()


@pytest.mark.parametrize("problem", [ClaimLost("not yours"), StoreError("refused"), psycopg.errors.CheckViolation()])
def test_what_the_store_refuses_on_purpose_comes_back(problem: Exception) -> None:
    db, _ = make()

    def work(_connection: object) -> None:
        raise problem

    with pytest.raises(type(problem)):
        db.run(work)
    assert db.disconnects == 0
    db.close()


def test_whoever_waits_is_freed_by_giving_up() -> None:
    db, _ = make(away=1_000_000)

    async def ask() -> None:
        call = asyncio.create_task(db.call(lambda _connection: None))
        await asyncio.sleep(0.01)
        db.give_up()
        with pytest.raises(StoppedWaiting):
            await asyncio.wait_for(call, 10)

    asyncio.run(ask())
    assert db.unavailable
    db.close()


def test_calls_are_answered_one_at_a_time_in_their_order() -> None:
    db, _ = make()
    inside = threading.Lock()
    order: list[int] = []

    def work(_connection: object, number: int) -> int:
        assert inside.acquire(blocking=False), "two calls at once on one connection"
        order.append(number)
        inside.release()
        return number

    async def ask() -> list[int]:
        return await asyncio.gather(*(db.call(work, number) for number in range(50)))

    assert asyncio.run(ask()) == list(range(50))
    assert order == list(range(50))
    db.close()
