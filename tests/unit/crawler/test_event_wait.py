"""Waiting: it ends by the event, by time, and by being cancelled, also in the moment of the event."""

import asyncio
import time
from collections.abc import Callable

import pytest

from holdfast.telemetry.clock import wait_for_event


def test_it_ends_by_the_event_or_by_time() -> None:
    async def play() -> None:
        event = asyncio.Event()
        began = time.monotonic()
        await wait_for_event(event, 0.01)
        asyncio.get_running_loop().call_soon(event.set)
        await wait_for_event(event, 60)
        assert time.monotonic() - began < 30

    asyncio.run(play())


@pytest.mark.parametrize("first", ["event", "cancel"])
def test_it_is_cancelled_also_in_the_moment_of_the_event(first: str) -> None:
    """What `asyncio.wait_for` of Python 3.11 gets wrong: a worker whose job was deleted in that moment never ended."""

    async def for_ever(event: asyncio.Event) -> None:
        while True:
            await wait_for_event(event, 60)
            event.clear()

    async def play() -> None:
        event = asyncio.Event()
        task = asyncio.create_task(for_ever(event))
        await asyncio.sleep(0)
        deeds: list[Callable[[], object]] = [event.set, task.cancel]
        for deed in deeds if first == "event" else deeds[::-1]:
            deed()
        done, _ = await asyncio.wait({task}, timeout=5)
        assert done == {task}
        assert task.cancelled()

    asyncio.run(play())
