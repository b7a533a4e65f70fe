"""Calls of the store wait while the database is away, and only then."""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from holdfast.engine import desk as desks
from holdfast.engine.desk import Away, Desk
from holdfast.errors import ClaimLost, RolledBack, StoreError, StoreUnavailable


@dataclass
class FakeConnection:
    """As much of a connection as a desk looks at."""

    closed: bool = False
    broken: bool = False

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeDatabase:
    """Is away for so many attempts to connect."""

    away: int = 0
    made: list[FakeConnection] = field(default_factory=list)

    def named(self, _application: str) -> "FakeDatabase":
        return self

    def connect(self) -> Any:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("Nothing answers.")
        self.made.append(FakeConnection())
        return self.made[-1]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desks, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(desks, "LONGEST_PAUSE", 0.002)


def make(away: int = 0) -> tuple[Desk, FakeDatabase]:
    database = FakeDatabase(away)
    return Desk(database, "test"), database  # type: ignore[arg-type]


def test_it_asks_until_the_database_is_back() -> None:
    desk, database = make(away=5)
    assert desk.run(lambda _connection, number: number + 1, 41) == 42
    assert (database.away, desk.away, desk.broke) == (0, False, 5)
    desk.close()
    assert database.made[0].closed


def test_one_connection_serves_all_calls() -> None:
    desk, database = make()
    for _ in range(3):
        desk.run(lambda _connection: None)
    assert len(database.made) == 1
    database.made[0].broken = True
    desk.run(lambda _connection: None)
    assert len(database.made) == 2
    desk.close()


@pytest.mark.parametrize("problem", [RolledBack("again"), StoreUnavailable("gone"), psycopg.errors.AdminShutdown()])
def test_what_may_succeed_later_is_tried_again(problem: Exception) -> None:
    desk, _ = make()
    problems = [problem, problem]

    def work(_connection: object) -> str:
        if problems:
            raise problems.pop()
        return "done"

    assert desk.run(work) == "done"
    assert desk.broke == 2
    desk.close()


def test_an_error_on_a_connection_that_broke_is_tried_again() -> None:
    desk, database = make()

    def work(connection: Any) -> str:
        if len(database.made) == 1:
            connection.broken = True
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        return "done"

    assert desk.run(work) == "done"
    desk.close()


@pytest.mark.parametrize("problem", [ClaimLost("not yours"), StoreError("refused"), psycopg.errors.CheckViolation()])
def test_what_the_store_refuses_on_purpose_comes_back(problem: Exception) -> None:
    desk, _ = make()

    def work(_connection: object) -> None:
        raise problem

    with pytest.raises(type(problem)):
        desk.run(work)
    assert desk.broke == 0
    desk.close()


def test_whoever_waits_is_freed_by_giving_up() -> None:
    desk, _ = make(away=1_000_000)

    async def ask() -> None:
        call = asyncio.create_task(desk.call(lambda _connection: None))
        await asyncio.sleep(0.01)
        desk.give_up()
        with pytest.raises(Away):
            await asyncio.wait_for(call, 10)

    asyncio.run(ask())
    assert desk.away
    desk.close()


def test_calls_are_answered_one_at_a_time_in_their_order() -> None:
    desk, _ = make()
    inside = threading.Lock()
    order: list[int] = []

    def work(_connection: object, number: int) -> int:
        assert inside.acquire(blocking=False), "two calls at once on one connection"
        order.append(number)
        inside.release()
        return number

    async def ask() -> list[int]:
        return await asyncio.gather(*(desk.call(work, number) for number in range(50)))

    assert asyncio.run(ask()) == list(range(50))
    assert order == list(range(50))
    desk.close()
