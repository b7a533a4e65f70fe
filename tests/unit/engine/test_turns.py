"""How a visit waits for its turn: until something changes or so long, with nothing left behind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.engine.tools import Tools
from holdfast.engine.turns import NEVER, Turns
from holdfast.model.batch import Clocks
from holdfast.model.outcome import Circuit
from holdfast.model.wait import WaitKind
from holdfast.settings import Settings
from holdfast.telemetry.clock import SystemClock

PATIENCE = 10.0


def turns() -> Turns:
    tools = SimpleNamespace(clock=SystemClock(), settings=Settings(), chance=Random(1))
    return Turns(
        cast("Tools", tools),
        (1, 1),
        Clocks(),
        delay=0,
        concurrency=1,
        over=lambda: False,
        routes=None,
        used=print,
    )


@asynccontextmanager
async def waiting(visit: Turns, seconds: float) -> AsyncIterator[asyncio.Task[None]]:
    """Somebody who waits; at the end it does so no longer."""
    task = asyncio.create_task(visit.wait(seconds))
    await asyncio.sleep(0)
    assert not task.done()
    yield task
    await asyncio.gather(task, return_exceptions=True)
    assert visit._waiter is None


def run(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(play(), PATIENCE))


@pytest.mark.parametrize("seconds", [NEVER, 3600.0])
def test_a_change_wakes_and_more_of_them_do_not_hurt(seconds: float) -> None:
    async def play() -> None:
        visit = turns()
        visit.changed()  # nobody waits: nobody is to hear of it
        async with waiting(visit, seconds) as task:
            visit.changed()
            visit.changed()
            await task
        assert task.done()

    run(play)


def test_a_change_before_does_not_cut_the_next_wait_short() -> None:
    async def play() -> None:
        visit = turns()
        async with waiting(visit, NEVER):
            visit.changed()
        async with waiting(visit, NEVER) as task:
            for _ in range(10):
                await asyncio.sleep(0)
            assert not task.done()
            visit.changed()

    run(play)


def test_time_wakes() -> None:
    async def play() -> None:
        visit = turns()
        for seconds in (0.001, 0, 0.001):
            await visit.wait(seconds)  # it comes back, though nothing has changed
            assert visit._waiter is None

    run(play)


def test_the_time_of_one_wait_does_not_end_another() -> None:
    async def play() -> None:
        visit = turns()
        async with waiting(visit, 0.005):
            visit.changed()
        async with waiting(visit, NEVER) as task:
            await asyncio.sleep(0.02)
            assert not task.done()
            visit.changed()

    run(play)


def test_who_is_cancelled_leaves_nothing_behind() -> None:
    async def play() -> None:
        visit = turns()
        async with waiting(visit, 0.005) as task:
            task.cancel()
        assert task.cancelled()
        visit.changed()
        async with waiting(visit, NEVER) as task:
            visit.changed()
            task.cancel()  # woken and cancelled in the same moment
        assert task.cancelled()
        async with waiting(visit, NEVER):
            visit.changed()

    run(play)


def test_the_reason_of_a_wait_is_that_of_the_pace_or_of_the_circuit_breaker() -> None:
    visit = turns()
    assert visit.wait_reason() is None
    now = visit._tools.clock.now()
    visit.pace.discovered(10_000, 1_000_000, now)
    wait = visit.wait_reason()
    assert wait is not None
    assert wait.kind is WaitKind.FLOOD_GUARD
    assert 0 < wait.seconds <= 90, "10 000 new URLs, 1 000 of them at once, the rest at 100 a second"
    for _ in range(visit._tools.settings.politeness.circuit_failures):
        visit._circuit.record(visit._circuit.started(), Circuit.FAILURE, now + 300)
    wait = visit.wait_reason()
    assert wait is not None
    assert wait.kind is WaitKind.CIRCUIT
