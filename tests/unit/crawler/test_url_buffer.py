"""The URL buffer: a URL in memory is not read again, prefetching avoids waits, and nothing that a read finds is lost."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.crawler.url_buffer import UrlBuffer
from holdfast.crawler.worker_context import WorkerContext
from holdfast.db import frontier
from holdfast.db.frontier import FrontierBatch
from holdfast.model.commit_batch import FrontierItem
from holdfast.settings import Settings, Worker

PATIENCE = 10.0
SIZE = 8


def page(number: int) -> FrontierItem:
    return FrontierItem(number.to_bytes(16, "big"), f"https://a.example/{number}", 0, 0, 0, None, False, None, None)


class Frontier:
    """Stands for the database thread and the frontier: pages wait until they are finished, and a look takes until a test lets it go on."""

    def __init__(self, pages: int = 0) -> None:
        self.waiting = [page(number) for number in range(pages)]
        self.next_in: float | None = None
        self.looks: list[set[bytes]] = []
        """What each look was not to take."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.problem: Exception | None = None

    async def call(self, function: object, *, count: int, exclude: list[bytes]) -> FrontierBatch:
        assert function is frontier.take
        self.looks.append(set(exclude))
        found = [item for item in self.waiting if item.url_key not in exclude][:count]  # as of now
        await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        return FrontierBatch(found, None if len(found) >= count else self.next_in)

    def buffer(self, size: int = SIZE) -> UrlBuffer:
        context = SimpleNamespace(db=self, settings=Settings(worker=Worker(window=size)))
        return UrlBuffer(cast("WorkerContext", context), frontier.take)

    def finish(self, buffer: UrlBuffer, *items: FrontierItem) -> None:
        """Their outcomes are committed."""
        self.waiting = [item for item in self.waiting if item not in items]
        buffer.remove_committed([item.url_key for item in items])


async def following(buffer: UrlBuffer) -> FrontierItem | None:
    """The next URL, as a visit asks for it; None: there is none for now."""
    while True:
        buffer.prefetch()
        if (item := buffer.pop()) is not None:
            return item
        if not await buffer.wait_for_prefetch():
            return None


async def take(buffer: UrlBuffer, count: int) -> list[FrontierItem]:
    items = [await following(buffer) for _ in range(count)]
    assert None not in items
    return cast("list[FrontierItem]", items)


async def calm() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(play(), PATIENCE))


def test_every_page_comes_once_and_in_its_order() -> None:
    async def play() -> None:
        frontier = Frontier(3 * SIZE + 1)
        buffer = frontier.buffer()
        assert await take(buffer, 3 * SIZE + 1) == frontier.waiting
        assert buffer.count == 3 * SIZE + 1
        assert await following(buffer) is None
        assert frontier.looks[-1] == {item.url_key for item in frontier.waiting[: 3 * SIZE]}

    run(play)


def test_where_more_is_known_to_wait_it_looks_before_the_last_is_gone() -> None:
    async def play() -> None:
        frontier = Frontier(2 * SIZE)
        buffer = frontier.buffer()
        await take(buffer, SIZE - SIZE // 4)
        assert len(frontier.looks) == 1
        frontier.gate.clear()
        await take(buffer, SIZE // 4)  # nobody waits, though a look is under way
        await calm()
        assert len(frontier.looks) == 2
        assert frontier.looks[1] == {item.url_key for item in frontier.waiting[:SIZE]}
        buffer.prefetch()
        buffer.prefetch()
        await calm()
        assert len(frontier.looks) == 2  # one at a time
        frontier.gate.set()
        assert await take(buffer, SIZE) == frontier.waiting[SIZE:]

    run(play)


def test_where_no_more_is_known_to_wait_it_looks_only_when_nothing_is_left() -> None:
    async def play() -> None:
        frontier = Frontier(SIZE - 1)
        buffer = frontier.buffer()
        first, *rest = await take(buffer, SIZE - 2)
        for item in (first, *rest):
            frontier.finish(buffer, item)  # every commit may bring more
            buffer.prefetch()
            await calm()
        assert len(frontier.looks) == 1
        await take(buffer, 1)
        assert await following(buffer) is None
        assert len(frontier.looks) == 2

    run(play)


def test_without_a_commit_it_does_not_look_again() -> None:
    async def play() -> None:
        frontier = Frontier(1)
        frontier.next_in = 5.0
        buffer = frontier.buffer()
        await take(buffer, 1)
        for _ in range(5):
            assert await following(buffer) is None
        assert (len(frontier.looks), buffer.next_in) == (1, 5.0)
        frontier.waiting.append(page(1))
        buffer.mark_stale()  # what was to wait is due
        assert await following(buffer) == page(1)

    run(play)


def test_what_is_not_committed_yet_is_not_taken_again_and_what_is_may_be() -> None:
    async def play() -> None:
        frontier = Frontier(2)
        buffer = frontier.buffer()
        first, second = await take(buffer, 2)
        buffer.mark_stale()
        assert await following(buffer) is None
        buffer.remove_committed([first.url_key])  # it is to be tried again: it waits in the store as before
        assert buffer.count == 1
        assert await following(buffer) == first
        frontier.finish(buffer, first, second)
        assert buffer.count == 0
        assert await following(buffer) is None

    run(play)


def test_what_is_put_back_comes_next() -> None:
    async def play() -> None:
        buffer = Frontier(3).buffer()
        first, second = await take(buffer, 2)
        buffer.put_back(second)
        assert (buffer.count, await following(buffer), await following(buffer)) == (3, second, page(2))
        assert first == page(0)

    run(play)


def test_a_commit_during_a_look_is_not_overlooked() -> None:
    async def play() -> None:
        frontier = Frontier(1)
        buffer = frontier.buffer()
        (first,) = await take(buffer, 1)
        buffer.mark_stale()
        frontier.gate.clear()
        asked = asyncio.create_task(following(buffer))
        await calm()
        frontier.waiting.append(page(1))  # after the look at the table
        frontier.finish(buffer, first)
        frontier.gate.set()
        assert await asked == page(1)
        assert frontier.looks == [set(), {first.url_key}, set()]

    run(play)


def test_what_was_committed_during_a_look_does_not_come_back_by_it() -> None:
    async def play() -> None:
        frontier = Frontier(2)
        buffer = frontier.buffer()
        first, _second = await take(buffer, 2)
        buffer.mark_stale()
        frontier.gate.clear()
        buffer.prefetch()
        await calm()
        frontier.finish(buffer, first)
        frontier.gate.set()
        assert await following(buffer) is None

    run(play)


def test_who_is_cancelled_while_it_waits_does_not_lose_the_look() -> None:
    async def play() -> None:
        frontier = Frontier(2)
        buffer = frontier.buffer()
        frontier.gate.clear()
        asked = asyncio.create_task(following(buffer))
        await calm()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert asked.cancelled()
        frontier.gate.set()
        assert await take(buffer, 2) == [page(0), page(1)]
        assert len(frontier.looks) == 1

    run(play)


@pytest.mark.parametrize("someone_waits", [True, False])
def test_what_goes_wrong_in_a_look_comes_out(someone_waits: bool) -> None:
    async def play() -> None:
        frontier = Frontier(2 * SIZE)
        buffer = frontier.buffer()
        await take(buffer, SIZE - SIZE // 4)
        frontier.problem = LookupError("the store")
        for _ in range(SIZE // 4):
            buffer.prefetch()
            assert buffer.pop() is not None
        if not someone_waits:
            await calm()
        with pytest.raises(LookupError, match="the store"):
            await following(buffer)
        frontier.problem = None
        buffer.mark_stale()
        assert await following(buffer) == page(SIZE)

    run(play)


def test_an_error_comes_out_although_there_is_more_to_do_and_its_waiter_was_cancelled() -> None:
    async def play() -> None:
        frontier = Frontier(2)
        buffer = frontier.buffer()
        frontier.gate.clear()
        frontier.problem = LookupError("the store")
        asked = asyncio.create_task(following(buffer))
        await calm()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        frontier.gate.set()
        await calm()
        buffer.put_back(page(9))
        with pytest.raises(LookupError, match="the store"):
            await following(buffer)

    run(play)


def test_after_closing_a_look_takes_nothing() -> None:
    async def play() -> None:
        frontier = Frontier(2)
        buffer = frontier.buffer()
        buffer.close()
        frontier.gate.clear()
        buffer.prefetch()
        await calm()
        buffer.close()
        frontier.gate.set()
        await calm()
        assert (buffer.count, buffer.pop()) == (0, None)

    run(play)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_window_of_a_few(size: int) -> None:
    async def play() -> None:
        frontier = Frontier(7)
        buffer = frontier.buffer(size)
        for number in range(7):
            item = await following(buffer)
            assert item == page(number)
            frontier.finish(buffer, item)
        assert await following(buffer) is None
        assert buffer.count == 0

    run(play)
