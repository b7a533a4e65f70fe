"""Request slots: one choice at a time, requests in the order of the choices, no more in flight than allowed, and exactly one end."""

import asyncio
import random
from contextlib import suppress

import pytest

from holdfast.crawler.request_gate import MAX_EXTRA_SLOTS, RequestSlots
from holdfast.model.commit_batch import FrontierItem
from holdfast.model.visit_report import VisitEnd
from tests.support.road import END, PATIENCE, SOON, Road, calm, crawl_next, page, run


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("most", [1, 2, 7])
def test_one_choice_at_a_time_and_requests_in_the_order_of_the_choices(most: int, seed: int) -> None:
    rng = random.Random(seed)

    async def play() -> None:
        async def pause() -> None:
            for _ in range(rng.randrange(6)):
                await asyncio.sleep(0)

        road = Road(most, pages=200)
        road.pause = pause
        assert await road.run() is END
        await road.slots.drain(PATIENCE)
        assert road.begun == list(range(200))
        assert sorted(road.ended) == road.begun
        assert road.most_choosing == 1
        assert road.most_flying <= most
        assert road.slots.in_flight == 0

    run(play)


def test_as_many_as_allowed_are_under_way_and_no_more() -> None:
    async def play() -> None:
        road = Road(3)
        over = asyncio.create_task(road.run())
        await calm()
        assert road.under_way == [0, 1, 2]
        assert road.slots.in_flight == 3
        road.let_end(1)
        await calm()
        assert road.under_way == [0, 2, 3]
        road.left = 0
        road.let_end(0, 2, 3)
        assert await over is END
        assert road.heard == [2, 2, 1, 0]  # told after it has fallen
        await road.slots.drain(PATIENCE)

    run(play)


def test_who_waits_until_nothing_flies_is_woken_by_the_last_that_lands() -> None:
    """As a visit does: it looks whether something flies, and then waits to be told."""

    async def play() -> None:
        told = asyncio.Event()
        left = [page(0), page(1)]
        gates = [asyncio.Event(), asyncio.Event()]

        async def choose() -> FrontierItem | VisitEnd:
            if left:
                return left.pop(0)
            while slots.in_flight:
                told.clear()
                await told.wait()
            return END

        async def walk(item: FrontierItem) -> None:
            await gates[item.depth].wait()

        slots = RequestSlots(3, told.set)
        over = asyncio.create_task(slots.run(crawl_next(slots, choose, walk)))
        for gate in gates:
            await calm()
            assert not over.done()
            gate.set()
        assert await over is END
        await slots.drain(PATIENCE)

    run(play)


def test_one_that_steps_aside_makes_room_for_another_and_the_surplus_ends() -> None:
    async def play() -> None:
        road = Road(2)
        over = asyncio.create_task(road.run())
        await calm()
        assert road.under_way == [0, 1]
        road.slots.open_extra_slot()
        await calm()
        assert road.under_way == [0, 1, 2]
        road.let_end(0)  # the one that had opened an extra slot is back and ends
        await calm()
        assert road.under_way == [1, 2]
        road.let_end(1)
        await calm()
        assert road.under_way == [2, 3]
        road.left = 0
        road.let_end(2, 3)
        assert await over is END
        await road.slots.drain(PATIENCE)

    run(play)


def test_no_more_than_so_many_step_aside() -> None:
    async def play() -> None:
        road = Road(2)
        over = asyncio.create_task(road.run())
        for _ in range(MAX_EXTRA_SLOTS + 5):
            await calm()
            road.slots.open_extra_slot()
        await calm()
        assert len(road.under_way) == road.slots.in_flight == 2 + MAX_EXTRA_SLOTS
        for number in list(road.under_way):
            road.let_end(number)
            await calm()
        assert len(road.under_way) == 2
        road.left = 0
        road.let_end(*road.under_way)
        assert await over is END
        await road.slots.drain(PATIENCE)

    run(play)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_surplus_that_ends_in_one_moment_does_not_end_the_visit(most: int) -> None:
    """Each sees that there are too many; if all of them went, nobody would be left, which looks like a lost claim."""

    async def play() -> None:
        road = Road(most)
        over = asyncio.create_task(road.run())
        await calm()
        road.slots.open_extra_slot()
        await calm()
        assert len(road.under_way) == most + 1
        road.let_end(*road.under_way)
        await calm()
        assert not over.done()
        assert len(road.under_way) == most
        road.left = 0
        road.let_end(*road.under_way)
        assert await over is END
        await road.slots.drain(PATIENCE)

    run(play)


def test_an_ending_stops_all_lanes_and_landing_waits_for_those_under_way() -> None:
    async def play() -> None:
        road = Road(3, pages=2)
        assert await road.run() is END  # found while two are under way
        landing = asyncio.create_task(road.slots.drain(PATIENCE))
        await calm()
        assert road.under_way == [0, 1]
        road.left = 5  # nobody looks any more
        road.let_end(0)
        await calm()
        assert not landing.done()
        road.let_end(1)
        await landing
        assert (road.begun, road.ended, road.cancelled) == ([0, 1], [0, 1], [])
        assert road.slots.in_flight == 0

    run(play)


@pytest.mark.parametrize("seconds", [0, SOON])
def test_landing_gives_up_what_takes_too_long(seconds: float) -> None:
    async def play() -> None:
        road = Road(3, pages=2)
        await road.run()
        await road.slots.drain(seconds)
        assert sorted(road.cancelled) == [0, 1]
        assert road.heard == [1, 0]

    run(play)


def test_landing_before_anything_flew() -> None:
    async def play() -> None:
        road = Road(3)
        await road.slots.drain(PATIENCE)
        assert road.slots.in_flight == 0
        assert road.heard == []

    run(play)


def test_a_fault_in_a_choice_comes_out_of_the_run() -> None:
    async def play() -> None:
        road = Road(3)
        over = asyncio.create_task(road.run())
        await calm()
        road.fault_of_choice = LookupError("the store")
        road.let_end(0)
        with pytest.raises(LookupError, match="the store"):
            await over
        assert road.under_way == [1, 2]
        road.let_end(1, 2)
        await road.slots.drain(PATIENCE)
        assert road.begun == [0, 1, 2]

    run(play)


@pytest.mark.parametrize("after", [page(9), END])
def test_after_a_fault_in_a_choice_nobody_chooses_again(after: FrontierItem | VisitEnd) -> None:
    """The lock goes to the next slot before the visit hears of the error; neither a request nor an ending may come of that."""

    async def play() -> None:
        left: list[FrontierItem | VisitEnd] = [page(0), page(1)]
        begun: list[int] = []
        gate = asyncio.Event()

        async def choose() -> FrontierItem | VisitEnd:
            if left:
                return left.pop(0)
            left.extend([after, END])
            await asyncio.sleep(0)  # the other slot gets the lock
            raise LookupError("the store")

        async def walk(item: FrontierItem) -> None:
            begun.append(item.depth)
            await gate.wait()

        slots = RequestSlots(2, lambda: None)
        over = asyncio.create_task(slots.run(crawl_next(slots, choose, walk)))
        await calm()
        gate.set()
        with pytest.raises(LookupError):
            await over
        await slots.drain(PATIENCE)
        assert begun == [0, 1]

    run(play)


def test_a_fault_in_a_walk_comes_out_and_the_others_stop() -> None:
    async def play() -> None:
        road = Road(3)
        over = asyncio.create_task(road.run())
        await calm()
        road.gates[1].set_exception(LookupError("a fault of ours"))
        with pytest.raises(LookupError, match="a fault of ours"):
            await over
        road.let_end(0, 2)
        await road.slots.drain(PATIENCE)
        assert road.begun == [0, 1, 2]
        assert road.slots.in_flight == 0

    run(play)


@pytest.mark.parametrize("cause", ["an error in another slot", "nobody waits for the end any more"])
def test_a_choice_that_was_under_way_when_all_ended_begins_nothing(cause: str) -> None:
    async def play() -> None:
        road = Road(2)
        over = asyncio.create_task(road.run())
        await calm()
        road.may_choose.clear()
        road.let_end(0)
        await calm()
        assert road.choosing == 1
        if cause == "an error in another slot":
            road.gates[1].set_exception(LookupError())
        else:
            over.cancel()
            road.let_end(1)
        with suppress(LookupError, asyncio.CancelledError):
            await over
        road.may_choose.set()
        await road.slots.drain(SOON)
        assert road.begun == [0, 1]
        assert road.slots.in_flight == 0

    run(play)


def test_when_all_are_cancelled_there_is_no_ending() -> None:
    async def play() -> None:
        road = Road(3)
        over = asyncio.create_task(road.run())
        await calm()
        road.may_choose.clear()
        road.let_end(0, 1)
        await calm()  # one crawls, one chooses, one waits for the lock
        road.slots.cancel()
        assert await over is None
        assert (road.cancelled, road.choosing, road.slots.in_flight) == ([2], 0, 0)
        await road.slots.drain(PATIENCE)

    run(play)


def test_a_lane_that_was_only_just_opened_is_cancelled_with_the_others() -> None:
    async def play() -> None:
        road = Road(3)
        over = asyncio.create_task(road.run())
        await asyncio.sleep(0)
        road.slots.cancel()
        assert await over is None
        assert road.begun == []

    run(play)
