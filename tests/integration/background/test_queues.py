"""The queues of the background process: the real Procrastinate app on a real store, with handlers that only record their calls."""

import asyncio

from holdfast.background.queues import QueueHandlers, make_app
from holdfast.db import job_queue
from holdfast.db.connection import Database
from tests.support.factories import Store


def rung(database: Database) -> list[str]:
    """Take all bells that ring, one at a time, as a background would; in which order they came."""
    heard: list[str] = []

    async def note(what: str) -> None:
        heard.append(what)

    async def main() -> None:
        deeds = QueueHandlers(lambda: note("tick"), lambda task_id: note(f"parse {task_id}"), lambda: note("notify"))
        app = make_app(database, deeds)
        app.periodic_registry.periodic_tasks.clear()  # a tick by the clock may come at any place
        async with app.open_async():
            await app.configure_task("tick").defer_async(timestamp=0)
            await app.run_worker_async(concurrency=1, wait=False, install_signal_handlers=False, delete_jobs="always")

    asyncio.run(main())
    return heard


def test_the_tick_and_the_webhooks_do_not_wait_behind_pages_to_be_parsed(store: Store, database: Database) -> None:
    """All of them rang later."""
    pages = [5, 3, 4, *range(10, 30)]
    job_queue.defer_parse(store.connection, pages)
    job_queue.defer_notify(store.connection)
    assert rung(database) == ["notify", "tick", *(f"parse {page}" for page in pages)]


def test_a_bell_that_rings_already_rings_once(store: Store, database: Database) -> None:
    for _ in range(2):
        job_queue.defer_parse(store.connection, [7, 7])
        job_queue.defer_notify(store.connection)
    assert rung(database) == ["notify", "tick", "parse 7"]
    job_queue.defer_parse(store.connection, [7])
    assert rung(database) == ["tick", "parse 7"]
