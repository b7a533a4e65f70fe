"""The gate: requests wait for each other before they hold anything, so that they never wait for each other for good."""

import asyncio
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from holdfast.api import thread_pools as thread_pools
from holdfast.api.thread_pools import ThreadPool, run_without_loop
from holdfast.db.connection import Database
from holdfast.errors import StoreUnavailable
from holdfast.model.auth import Role
from tests.support.api import Api, serving, settings
from tests.support.servers import wait_until


def test_many_requests_at_once_on_few_connections_are_all_answered(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than threads. Those with an Idempotency-Key have a connection from one step to the next.

    One thread answers 70 writes: on a busy machine the last waits longer than a user should, and is refused. Requests that waited for
    each other would keep the client waiting, and its own timeout ends that.
    """
    monkeypatch.setattr(thread_pools, "_QUEUE_TIMEOUT", 120.0)
    with serving(database, settings(tmp_path, connections=4)) as api:
        client = api.client(api.key(Role.ADMIN))

        def ask(number: int) -> int:
            if number % 2:
                return client.get("/api/jobs").status_code
            headers = {"Idempotency-Key": str(uuid.uuid4())}
            return client.post("/api/admin/batches", json={"name": f"batch {number}"}, headers=headers).status_code

        with ThreadPoolExecutor(70) as pool:
            codes = list(pool.map(ask, range(140)))
    assert codes == [201, 200] * 70


def test_who_reads_does_not_stand_behind_those_who_wait_for_a_lock(api: Api, connection: psycopg.Connection) -> None:
    token = api.key(Role.ADMIN)
    client = api.client(token)
    assert client.post("/api/jobs", json={"name": "shop", "urls": ["https://a.example/"]}).status_code == 201
    api.user("ann")
    with ThreadPoolExecutor(20) as pool:
        with connection.transaction():
            connection.execute("SELECT FROM crawl_jobs WHERE name = 'shop' FOR NO KEY UPDATE")
            pauses = [pool.submit(api.client(token).post, "/api/jobs/shop/pause") for _ in range(20)]
            wait_until(lambda: _waiting_for_locks(api) > 0)
            assert client.get("/api/jobs/shop").json()["state"] == "pending"
            assert api.login("ann").get("/api/auth/me").json()["name"] == "ann"  # nor does who logs in
            assert not any(pause.done() for pause in pauses)
        assert {pause.result().status_code for pause in pauses} == {200}
    assert client.get("/api/jobs/shop").json()["state"] == "paused"


def _waiting_for_locks(api: Api) -> int:
    with api.services.unpooled.session() as other:
        row = other.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
    assert row is not None
    return int(row[0])


class _Crowd:
    """Requests at a gate that lets one work at a time; the first one is at work until it is told to end."""

    def __init__(self) -> None:
        self.pool = ThreadPool(1, "test")
        self.order: list[int] = []
        self._begun, self._over = threading.Event(), threading.Event()

    async def first(self) -> asyncio.Task[bool]:
        """It is at work."""

        def run() -> bool:
            self._begun.set()
            return self._over.wait(30)

        task = asyncio.create_task(self.pool.run(run))
        assert await asyncio.to_thread(self._begun.wait, 30)
        return task

    def end_first(self) -> None:
        self._over.set()

    async def come(self, number: int) -> None:
        await self.pool.run(lambda: self.order.append(number))


def test_the_others_wait_in_their_order_and_those_that_are_too_many_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pools, "_MAX_QUEUED", 25)

    async def crowd() -> list[int]:
        all_of_them = _Crowd()
        first = await all_of_them.first()
        waiting = [asyncio.create_task(all_of_them.come(number)) for number in range(25)]
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="Too many requests wait"):
            await all_of_them.come(25)
        assert all_of_them.order == []
        all_of_them.end_first()
        assert await first
        await asyncio.gather(*waiting)
        await all_of_them.come(26)
        return all_of_them.order

    assert asyncio.run(crowd()) == [*range(25), 26]


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pools, "_QUEUE_TIMEOUT", 0.01)

    async def impatient() -> list[int]:
        crowd = _Crowd()
        first = await crowd.first()
        with pytest.raises(StoreUnavailable, match="are in use"):
            await crowd.come(1)
        crowd.end_first()
        assert await first
        await crowd.come(2)
        return crowd.order

    assert asyncio.run(impatient()) == [2]


def test_what_would_wait_in_a_thread_is_a_mistake() -> None:
    async def waits() -> None:
        await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="its thread has no event loop"):
        run_without_loop(waits())


def test_who_watches_needs_no_connection(api: Api) -> None:
    """Whatever a program sends along, and while all connections are in use."""
    with ExitStack() as taken:
        for _ in range(api.services.settings.web.connections):
            taken.enter_context(api.services.database.session())
        answer = api.client("hfk_of_somebody").get("/health")
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
