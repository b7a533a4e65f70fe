"""How claims spread over workers: shares of what is ready, and who is idle."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from holdfast.crawler.claim_plan import CLAIM_PAUSE, ClaimShare
from holdfast.crawler.db_thread import DbThread
from holdfast.db import claims, runs, workers
from holdfast.db.connection import Database
from tests.support.factories import LEASE, Store


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


@contextmanager
def sharing(database: Database, siblings: int = 1) -> Iterator[tuple[ClaimShare, Clock]]:
    db, clock = DbThread(database, "test"), Clock()
    try:
        yield ClaimShare(db, clock, siblings), clock
    finally:
        db.close()


def serve(connection: psycopg.Connection, *names: str, job: int | None = None) -> None:
    """Workers by these names, heard of now, that serve all jobs or one."""
    for name in names:
        connection.execute("INSERT INTO workers (name, host, pid) VALUES (%s, 'here', 1)", (name,))
        runs.begin(connection, worker=name, job_id=job)


def claim_in_turn(
    store: Store, database: Database, names: list[str], batch: int = 10, siblings: int = 1
) -> dict[str, int]:
    """What each worker holds after all have claimed, tick by tick, until nothing is left."""
    held = dict.fromkeys(names, 0)
    with sharing(database, siblings) as (one, clock):
        while True:
            got = 0
            for name in names:
                count = asyncio.run(one.claim_limit(store.job, batch))
                taken = claims.claim(store.connection, worker=name, job_id=store.job, count=count, lease=LEASE)
                held[name] += len(taken)
                got += len(taken)
            clock.time += 0.5
            if not got:
                return held


def test_eight_domains_and_four_workers_each_works(store: Store, database: Database) -> None:
    store.domains(8)
    names = ["a", "b", "c", "d"]
    serve(store.connection, *names)
    held = claim_in_turn(store, database, names)
    assert sum(held.values()) == 8
    assert min(held.values()) >= 1, held
    assert max(held.values()) <= 3, held


def test_siblings_that_are_not_heard_of_yet_have_a_share(store: Store, database: Database) -> None:
    """Four that start together: the first must not take all before the others are there."""
    store.domains(8)
    serve(store.connection, "a")
    with sharing(database, siblings=4) as (one, _):
        assert asyncio.run(one.claim_limit(store.job, 10)) == 2
    assert claim_in_turn(store, database, ["a"], siblings=4) == {"a": 8}, "those that never come leave nothing idle"


def test_a_worker_that_is_alone_takes_whole_batches(store: Store, database: Database) -> None:
    store.domains(25)
    serve(store.connection, "a")
    with sharing(database) as (one, _):
        assert asyncio.run(one.claim_limit(store.job, 10)) == 10


def test_only_workers_that_live_and_serve_the_job_have_a_share(store: Store) -> None:
    other = store.new_job("other")
    serve(store.connection, "all", "ended", "dead", "done")
    serve(store.connection, "elsewhere", job=other)
    serve(store.connection, "mine", job=store.job)
    workers.deregister(store.connection, "ended")
    store.connection.execute("UPDATE workers SET heartbeat_at = now() - interval '125 s' WHERE name = 'dead'")
    store.connection.execute("UPDATE crawl_runs SET status = 'completed', completed_at = now() WHERE worker = 'done'")
    assert workers.count_serving(store.connection, store.job) == 2
    assert workers.count_serving(store.connection, other) == 2


def test_plenty_is_counted_once_a_second_and_not_at_each_claim(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    real = claims.count_ready

    def ready(connection: psycopg.Connection, *, job_id: int, limit: int) -> int:
        counted.append(limit)
        return real(connection, job_id=job_id, limit=limit)

    monkeypatch.setattr(claims, "count_ready", ready)
    store.domains(30)
    serve(store.connection, "a", "b")
    with sharing(database) as (one, clock):
        assert [asyncio.run(one.claim_limit(store.job, 10)) for _ in range(3)] == [10, 10, 10]
        assert counted == [20], "up to a bound: what all workers can claim at once"
        clock.time += 1.0
        asyncio.run(one.claim_limit(store.job, 10))
        assert counted == [20, 20]


def test_what_is_overdue_is_given_back_to_an_idle_worker_and_left_to_it(store: Store, database: Database) -> None:
    store.domains(4)
    serve(store.connection, "busy")
    store.claim("busy", 4)
    visits = [
        SimpleNamespace(job=SimpleNamespace(id=store.job), overdue=lambda _, s=s: s) for s in (0.0, 7.0, 4.9, 6.0, 9.0)
    ]
    with sharing(database) as (one, clock):
        given: list[Any] = asyncio.run(one.visits_to_give_back(cast("Any", visits), "busy"))
        assert given == [], "all others are at work, or there are none"
        serve(store.connection, "idle")
        given = asyncio.run(one.visits_to_give_back(cast("Any", visits), "busy"))
        assert given == [visits[4], visits[1]], "few, those that wait longest"
        assert asyncio.run(one.claim_limit(store.job, 10)) == 0, "it is the idle worker's turn"
        clock.time += CLAIM_PAUSE
        assert asyncio.run(one.claim_limit(store.job, 10)) == 1
