"""Bells as Procrastinate itself takes them from its queues: the real app on a real store, with deeds that only note what rang."""

import asyncio

from holdfast.background.app import Deeds, make
from holdfast.store import bells
from holdfast.store.connect import Database
from tests.support.factories import Store


def rung(database: Database) -> list[str]:
    """Take all bells that ring, one at a time, as a background would; in which order they came."""
    heard: list[str] = []

    async def note(what: str) -> None:
        heard.append(what)

    async def main() -> None:
        deeds = Deeds(lambda: note("tick"), lambda task_id: note(f"parse {task_id}"), lambda: note("notify"))
        app = make(database, deeds)
        app.periodic_registry.periodic_tasks.clear()  # a tick by the clock may come at any place
        async with app.open_async():
            await app.configure_task("tick").defer_async(timestamp=0)
            await app.run_worker_async(concurrency=1, wait=False, install_signal_handlers=False, delete_jobs="always")

    asyncio.run(main())
    return heard


def test_the_tick_and_the_webhooks_do_not_wait_behind_pages_to_be_parsed(store: Store, database: Database) -> None:
    """All of them rang later."""
    pages = [5, 3, 4, *range(10, 30)]
    bells.ring_to_parse(store.connection, pages)
    bells.ring_to_notify(store.connection)
    assert rung(database) == ["notify", "tick", *(f"parse {page}" for page in pages)]


def test_a_bell_that_rings_already_rings_once(store: Store, database: Database) -> None:
    for _ in range(2):
        bells.ring_to_parse(store.connection, [7, 7])
        bells.ring_to_notify(store.connection)
    assert rung(database) == ["notify", "tick", "parse 7"]
    bells.ring_to_parse(store.connection, [7])
    assert rung(database) == ["tick", "parse 7"]
