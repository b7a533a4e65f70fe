"""A test bed for request slots: pages that are walked until a test lets them end, and choices that it may hold up."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from holdfast.crawler.request_gate import RequestSlots, VisitOver
from holdfast.model.commit_batch import FrontierItem
from holdfast.model.visit_report import VisitEnd

PATIENCE = 10.0
SOON = 0.01
END = VisitEnd(1, 1, detail="nothing is left")


class Road:
    """Pages 0, 1, 2 … that are walked until a test lets them end; a test may shut the choice, too."""

    def __init__(self, most: int, pages: int = 1000) -> None:
        self.slots = RequestSlots(most, self.landed)
        self.left = pages
        self.chosen: list[int] = []
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.cancelled: list[int] = []
        self.choosing = 0
        self.most_choosing = 0
        self.most_flying = 0
        self.heard: list[int] = []
        """How many were flying whenever one had landed."""
        self.may_choose = asyncio.Event()
        self.may_choose.set()
        self.fault_of_choice: Exception | None = None
        self.gates: dict[int, asyncio.Future[None]] = {}
        self.pause: Callable[[], Awaitable[None]] | None = None
        """What a choice and a walk wait for instead of a test."""

    async def run(self) -> VisitEnd | None:
        return await self.slots.run(crawl_next(self.slots, self.choose, self.walk))

    async def choose(self) -> FrontierItem | VisitEnd:
        self.choosing += 1
        self.most_choosing = max(self.most_choosing, self.choosing)
        try:
            await self.may_choose.wait()
            if self.pause is not None:
                await self.pause()
            if self.fault_of_choice is not None:
                raise self.fault_of_choice
            if not self.left:
                return END
            self.left -= 1
            self.chosen.append(len(self.chosen))
            return page(self.chosen[-1])
        finally:
            self.choosing -= 1

    async def walk(self, item: FrontierItem) -> None:
        number = item.depth
        self.begun.append(number)
        self.most_flying = max(self.most_flying, self.slots.in_flight)
        try:
            if self.pause is not None:
                await self.pause()
            else:
                self.gates[number] = asyncio.get_running_loop().create_future()
                await self.gates[number]
            self.ended.append(number)
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise

    def landed(self) -> None:
        self.heard.append(self.slots.in_flight)

    def let_end(self, *numbers: int) -> None:
        """These walks end, all in the same moment."""
        for number in numbers:
            self.gates[number].set_result(None)

    @property
    def under_way(self) -> list[int]:
        return [number for number in self.begun if number not in self.ended and number not in self.cancelled]


def crawl_next(
    slots: RequestSlots,
    choose: Callable[[], Awaitable[FrontierItem | VisitEnd]],
    walk: Callable[[FrontierItem], Awaitable[None]],
) -> Callable[[], Awaitable[VisitEnd | None]]:
    """As a visit does: choose, take the turn, walk."""

    async def one() -> VisitEnd | None:
        chosen = await choose()
        if isinstance(chosen, VisitEnd):
            return chosen
        try:
            slots.start_request()
        except VisitOver:
            return END
        await walk(chosen)
        return None

    return one


def page(number: int) -> FrontierItem:
    return FrontierItem(
        number.to_bytes(16, "big"), f"https://a.example/{number}", number, 0, 0, None, False, None, None
    )


async def calm() -> None:
    """Until everything that could go on has gone on."""
    for _ in range(100):
        await asyncio.sleep(0)


def run(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def watched() -> None:
        await asyncio.wait_for(play(), PATIENCE)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "a slot was left behind"

    asyncio.run(watched())
