"""The gate: requests wait for each other before they hold anything, so that they never wait for each other for good."""

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model.account import Role
from holdfast.store.connect import Database
from holdfast.web import guard
from holdfast.web.guard import Gate
from tests.support.api import Api, serving, settings


def test_many_requests_at_once_on_few_connections_are_all_answered(database: Database, tmp_path: Path) -> None:
    """More of them than threads. Those with an Idempotency-Key have a connection from one step to the next."""
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


async def _wait(gate: Gate, order: list[int], number: int) -> None:
    async with gate:
        order.append(number)


def test_the_others_wait_in_their_order_and_those_that_are_too_many_do_not() -> None:
    async def crowd() -> list[int]:
        gate, order = Gate(2), list[int]()  # one connection is left for others, so that one may work
        async with gate:
            waiting = [asyncio.create_task(_wait(gate, order, number)) for number in range(40)]
            await asyncio.sleep(0)
            with pytest.raises(StoreUnavailable, match="Too many requests wait"):
                await _wait(gate, order, 40)
            assert order == []
        await asyncio.gather(*waiting)
        await _wait(gate, order, 41)
        return order

    assert asyncio.run(crowd()) == [*range(40), 41]


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_PATIENCE", 0.01)

    async def impatient() -> list[int]:
        gate, order = Gate(2), list[int]()
        async with gate:
            with pytest.raises(StoreUnavailable, match="are in use"):
                await _wait(gate, order, 1)
        await _wait(gate, order, 2)
        return order

    assert asyncio.run(impatient()) == [2]


def test_who_watches_needs_no_connection(api: Api) -> None:
    """Whatever a program sends along, and while all connections are in use."""
    works = [api.office.database.begin() for _ in range(api.office.settings.web.connections)]
    try:
        answer = api.client("hfk_of_somebody").get("/health")
    finally:
        for work in works:
            work.rollback()
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")
