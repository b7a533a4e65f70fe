"""The window: what is in memory is not taken again, nobody waits where it can be helped, and nothing that a look finds is lost."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.engine.tools import Tools
from holdfast.engine.window import Window
from holdfast.model.batch import Waiting
from holdfast.settings import Settings, Worker
from holdfast.store import frontier
from holdfast.store.frontier import Taken

PATIENCE = 10.0
SIZE = 8


def page(number: int) -> Waiting:
    return Waiting(number.to_bytes(16, "big"), f"https://a.example/{number}", 0, 0, 0, None, False, None, None)


class Frontier:
    """Stands for a desk and the store behind it: pages wait until they are finished, and a look takes until a test lets it go on."""

    def __init__(self, pages: int = 0) -> None:
        self.waiting = [page(number) for number in range(pages)]
        self.next_in: float | None = None
        self.looks: list[set[bytes]] = []
        """What each look was not to take."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.problem: Exception | None = None

    async def call(self, function: object, *, count: int, besides: list[bytes]) -> Taken:
        assert function is frontier.take
        self.looks.append(set(besides))
        found = [item for item in self.waiting if item.url_key not in besides][:count]  # as of now
        await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        return Taken(found, None if len(found) >= count else self.next_in)

    def window(self, size: int = SIZE) -> Window:
        tools = SimpleNamespace(desk=self, settings=Settings(worker=Worker(window=size)))
        return Window(cast("Tools", tools), frontier.take)

    def finish(self, window: Window, *items: Waiting) -> None:
        """Their outcomes are committed."""
        self.waiting = [item for item in self.waiting if item not in items]
        window.settled([item.url_key for item in items])


async def following(window: Window) -> Waiting | None:
    """The next URL, as a visit asks for it; None: there is none for now."""
    while True:
        window.look_ahead()
        if (item := window.pop()) is not None:
            return item
        if not await window.looked():
            return None


async def take(window: Window, count: int) -> list[Waiting]:
    items = [await following(window) for _ in range(count)]
    assert None not in items
    return cast("list[Waiting]", items)


async def calm() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(play(), PATIENCE))


def test_every_page_comes_once_and_in_its_order() -> None:
    async def play() -> None:
        frontier = Frontier(3 * SIZE + 1)
        window = frontier.window()
        assert await take(window, 3 * SIZE + 1) == frontier.waiting
        assert window.held == 3 * SIZE + 1
        assert await following(window) is None
        assert frontier.looks[-1] == {item.url_key for item in frontier.waiting[: 3 * SIZE]}

    run(play)


def test_where_more_is_known_to_wait_it_looks_before_the_last_is_gone() -> None:
    async def play() -> None:
        frontier = Frontier(2 * SIZE)
        window = frontier.window()
        await take(window, SIZE - SIZE // 4)
        assert len(frontier.looks) == 1
        frontier.gate.clear()
        await take(window, SIZE // 4)  # nobody waits, though a look is under way
        await calm()
        assert len(frontier.looks) == 2
        assert frontier.looks[1] == {item.url_key for item in frontier.waiting[:SIZE]}
        window.look_ahead()
        window.look_ahead()
        await calm()
        assert len(frontier.looks) == 2  # one at a time
        frontier.gate.set()
        assert await take(window, SIZE) == frontier.waiting[SIZE:]

    run(play)


def test_where_no_more_is_known_to_wait_it_looks_only_when_nothing_is_left() -> None:
    async def play() -> None:
        frontier = Frontier(SIZE - 1)
        window = frontier.window()
        first, *rest = await take(window, SIZE - 2)
        for item in (first, *rest):
            frontier.finish(window, item)  # every commit may bring more
            window.look_ahead()
            await calm()
        assert len(frontier.looks) == 1
        await take(window, 1)
        assert await following(window) is None
        assert len(frontier.looks) == 2

    run(play)


def test_without_a_commit_it_does_not_look_again() -> None:
    async def play() -> None:
        frontier = Frontier(1)
        frontier.next_in = 5.0
        window = frontier.window()
        await take(window, 1)
        for _ in range(5):
            assert await following(window) is None
        assert (len(frontier.looks), window.next_in) == (1, 5.0)
        frontier.waiting.append(page(1))
        window.look_again()  # what was to wait is due
        assert await following(window) == page(1)

    run(play)


def test_what_is_not_committed_yet_is_not_taken_again_and_what_is_may_be() -> None:
    async def play() -> None:
        frontier = Frontier(2)
        window = frontier.window()
        first, second = await take(window, 2)
        window.look_again()
        assert await following(window) is None
        window.settled([first.url_key])  # it is to be tried again: it waits in the store as before
        assert window.held == 1
        assert await following(window) == first
        frontier.finish(window, first, second)
        assert window.held == 0
        assert await following(window) is None

    run(play)


def test_what_is_put_back_comes_next() -> None:
    async def play() -> None:
        window = Frontier(3).window()
        first, second = await take(window, 2)
        window.put_back(second)
        assert (window.held, await following(window), await following(window)) == (3, second, page(2))
        assert first == page(0)

    run(play)


def test_a_commit_during_a_look_is_not_overlooked() -> None:
    async def play() -> None:
        frontier = Frontier(1)
        window = frontier.window()
        (first,) = await take(window, 1)
        window.look_again()
        frontier.gate.clear()
        asked = asyncio.create_task(following(window))
        await calm()
        frontier.waiting.append(page(1))  # after the look at the table
        frontier.finish(window, first)
        frontier.gate.set()
        assert await asked == page(1)
        assert frontier.looks == [set(), {first.url_key}, set()]

    run(play)


def test_what_was_committed_during_a_look_does_not_come_back_by_it() -> None:
    async def play() -> None:
        frontier = Frontier(2)
        window = frontier.window()
        first, _second = await take(window, 2)
        window.look_again()
        frontier.gate.clear()
        window.look_ahead()
        await calm()
        frontier.finish(window, first)
        frontier.gate.set()
        assert await following(window) is None

    run(play)


def test_who_is_cancelled_while_it_waits_does_not_lose_the_look() -> None:
    async def play() -> None:
        frontier = Frontier(2)
        window = frontier.window()
        frontier.gate.clear()
        asked = asyncio.create_task(following(window))
        await calm()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert asked.cancelled()
        frontier.gate.set()
        assert await take(window, 2) == [page(0), page(1)]
        assert len(frontier.looks) == 1

    run(play)


@pytest.mark.parametrize("someone_waits", [True, False])
def test_what_goes_wrong_in_a_look_comes_out(someone_waits: bool) -> None:
    async def play() -> None:
        frontier = Frontier(2 * SIZE)
        window = frontier.window()
        await take(window, SIZE - SIZE // 4)
        frontier.problem = LookupError("the store")
        for _ in range(SIZE // 4):
            window.look_ahead()
            assert window.pop() is not None
        if not someone_waits:
            await calm()
        with pytest.raises(LookupError, match="the store"):
            await following(window)
        frontier.problem = None
        window.look_again()
        assert await following(window) == page(SIZE)

    run(play)


def test_an_error_comes_out_although_there_is_more_to_do_and_its_waiter_was_cancelled() -> None:
    async def play() -> None:
        frontier = Frontier(2)
        window = frontier.window()
        frontier.gate.clear()
        frontier.problem = LookupError("the store")
        asked = asyncio.create_task(following(window))
        await calm()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        frontier.gate.set()
        await calm()
        window.put_back(page(9))
        with pytest.raises(LookupError, match="the store"):
            await following(window)

    run(play)


def test_after_closing_a_look_takes_nothing() -> None:
    async def play() -> None:
        frontier = Frontier(2)
        window = frontier.window()
        window.close()
        frontier.gate.clear()
        window.look_ahead()
        await calm()
        window.close()
        frontier.gate.set()
        await calm()
        assert (window.held, window.pop()) == (0, None)

    run(play)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_window_of_a_few(size: int) -> None:
    async def play() -> None:
        frontier = Frontier(7)
        window = frontier.window(size)
        for number in range(7):
            item = await following(window)
            assert item == page(number)
            frontier.finish(window, item)
        assert await following(window) is None
        assert window.held == 0

    run(play)
