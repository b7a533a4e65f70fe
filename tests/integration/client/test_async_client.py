"""`holdfast.AsyncClient`: the same methods, awaited."""

import asyncio
import inspect
from collections.abc import Coroutine, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import holdfast
from holdfast import AsyncClient, Client, Unreachable
from holdfast.client.sse import Event
from holdfast.db.connection import Database
from holdfast.jobs.records import JobProgress
from tests.support.api import Api
from tests.support.crawled import HOME, crawl_a_little
from tests.support.factories import Store
from tests.support.relay import Relay


@pytest.fixture
def relay(api: Api) -> Iterator[Relay]:
    with Relay(api.url) as made:
        yield made


def test_both_clients_have_the_same_methods() -> None:
    def parameters(client: Client | AsyncClient) -> dict[str, list[str]]:
        found = {name: getattr(client, name) for name in dir(client) if not name.startswith("_")}
        assert all(method.__doc__ for method in found.values())
        return {
            name: [str(one) for one in inspect.signature(method).parameters.values()] for name, method in found.items()
        }

    async def later() -> dict[str, list[str]]:
        async with AsyncClient(key="") as client:
            waiting = client.me()
            assert inspect.iscoroutine(waiting)
            waiting.close()
            return parameters(client)

    with Client(key="") as client:
        assert parameters(client) == asyncio.run(later())
        assert len(parameters(client)) > 60
        assert parameters(client)["job"] == ["job: str | int | holdfast.jobs.records.Job"]


def test_a_job_from_its_beginning_to_its_end(api: Api, key: str) -> None:
    async def work() -> list[str]:
        async with AsyncClient(api.url, key=key) as client:
            assert (await client.me()).role == "admin"
            job = await client.create_job("shop", ["https://a.example/", "https://b.example/"])
            assert (await client.pause(job)).state == "paused"
            assert (await client.resume(job)).state == "pending"
            states: list[str] = []
            async with aclosing(client.watch(job)) as heard:
                async for news in heard:
                    if isinstance(news, JobProgress):
                        deeds = {"pending": client.pause, "paused": client.cancel}
                        if news.state in deeds and news.state not in states:
                            await deeds[news.state](job)
                        states.append(news.state)
            assert [domain.domain async for domain in client.domains()] == ["a.example", "b.example"]
            await client.delete_job(job)
            with pytest.raises(holdfast.NotFound):
                await client.job(job)
            return states

    assert list(dict.fromkeys(asyncio.run(work()))) == ["pending", "paused", "cancelled"]


def test_what_was_crawled(api: Api, key: str, database: Database, store: Store, tmp_path: Path) -> None:
    crawl_a_little(database, store)
    file = tmp_path / "pages.parquet"

    async def work() -> None:
        async with AsyncClient(api.url, key=key) as client:
            assert HOME in {page.url async for page in client.pages(domain="example.com")}
            assert await client.export("pages", file) == file.stat().st_size
            pieces = [piece async for piece in client.exported("log", "csv")]
            assert b"".join(pieces).startswith(b"url,domain,job,crawled_at")
            figures = await asyncio.gather(*(client.stats() for _ in range(5)))
            assert len({one.domains["pending"] for one in figures}) == 1

    asyncio.run(work())
    assert parquet.read_table(file).num_rows == 4


def test_long_work_is_waited_for_without_stopping_others(api: Api, key: str) -> None:
    async def work() -> str:
        async with AsyncClient(api.url, key=key) as client:
            asked = await client.verify(archive=False)
            waiting = asyncio.create_task(client.wait(asked))
            assert (await client.operation(asked)).state == "waiting"
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(holdfast.HoldfastError) as caught:
                await client.wait(asked, patience=0)
            return str(caught.value)

    assert "is still waiting" in asyncio.run(work())


def test_a_bad_line(relay: Relay, key: str, database: Database, store: Store, tmp_path: Path) -> None:
    """Answers that are lost are asked for again, exports that break off begin anew, streams go on behind the last event."""
    crawl_a_little(database, store)

    async def work() -> list[str]:
        async with AsyncClient(relay.url, key=key) as client:
            await client.stats()
            relay.lose_answers = 1
            job = await client.create_job("shop", ["https://a.example/"])
            assert store.value("SELECT count(*) FROM audit_log WHERE object_kind = 'job' AND action = 'create'") == 1
            relay.cut_answers = 1
            await client.export("pages", tmp_path / "pages.parquet")
            relay.cut_answers = 100
            with pytest.raises(Unreachable):
                await client.export("pages", tmp_path / "other.parquet")
            relay.cut_answers = 0
            heard = []
            async for news in client.watch(job):
                if isinstance(news, Event):
                    heard.append(str(news.data["to"]))
                    relay.cut()
                    if len(heard) < 3:
                        await (client.resume(job) if heard[-1] == "paused" else client.pause(job))
                    elif len(heard) == 3:
                        await client.cancel(job)
                elif not heard:
                    await client.pause(job)
            return heard

    heard = asyncio.run(work())
    assert heard[:3] == ["paused", "pending", "paused"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["pages.parquet"]


def test_errors_are_the_same(api: Api) -> None:
    async def refused(deed: Coroutine[Any, Any, object]) -> type[Exception]:
        with pytest.raises(holdfast.HoldfastError) as caught:
            await deed
        return type(caught.value)

    async def work() -> list[type[Exception]]:
        async with (
            AsyncClient(api.url, key="hfk_wrong") as client,
            AsyncClient("http://127.0.0.1:1", key="", retries=0) as other,
        ):
            return [await refused(client.me()), await refused(other.stats())]

    assert asyncio.run(work()) == [holdfast.Unauthenticated, Unreachable]
