"""The request gate: a visit waits until something changes or for a time, with nothing left behind."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.crawler.leases import Leases
from holdfast.crawler.request_gate import NEVER, RequestGate, RequestWithheld
from holdfast.crawler.worker_context import WorkerContext
from holdfast.fetch.http_client import HttpClient
from holdfast.fetch.site_fetcher import SiteFetcher
from holdfast.model.activity import WaitKind
from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import Circuit, Outcome
from holdfast.politeness.error_streak import ErrorStreak, VisitAnswers
from holdfast.settings import Settings
from holdfast.telemetry.clock import SystemClock

PATIENCE = 10.0


def gate() -> RequestGate:
    context, client = SimpleNamespace(clock=SystemClock(), settings=Settings(), rng=Random(1)), None
    return RequestGate(
        cast("WorkerContext", context),
        (1, 1),
        PolitenessClocks(),
        SiteFetcher(cast("HttpClient", client)),
        VisitAnswers(ErrorStreak(10)),
        delay=0,
        concurrency=1,
    )


@asynccontextmanager
async def waiting(visit: RequestGate, seconds: float) -> AsyncIterator[asyncio.Task[None]]:
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
        visit = gate()
        visit.notify()  # nobody waits: nobody is to hear of it
        async with waiting(visit, seconds) as task:
            visit.notify()
            visit.notify()
            await task
        assert task.done()

    run(play)


def test_a_change_before_does_not_cut_the_next_wait_short() -> None:
    async def play() -> None:
        visit = gate()
        async with waiting(visit, NEVER):
            visit.notify()
        async with waiting(visit, NEVER) as task:
            for _ in range(10):
                await asyncio.sleep(0)
            assert not task.done()
            visit.notify()

    run(play)


def test_time_wakes() -> None:
    async def play() -> None:
        visit = gate()
        for seconds in (0.001, 0, 0.001):
            await visit.wait(seconds)  # it comes back, though nothing has changed
            assert visit._waiter is None

    run(play)


def test_the_time_of_one_wait_does_not_end_another() -> None:
    async def play() -> None:
        visit = gate()
        async with waiting(visit, 0.005):
            visit.notify()
        async with waiting(visit, NEVER) as task:
            await asyncio.sleep(0.02)
            assert not task.done()
            visit.notify()

    run(play)


def test_who_is_cancelled_leaves_nothing_behind() -> None:
    async def play() -> None:
        visit = gate()
        async with waiting(visit, 0.005) as task:
            task.cancel()
        assert task.cancelled()
        visit.notify()
        async with waiting(visit, NEVER) as task:
            visit.notify()
            task.cancel()  # woken and cancelled in the same moment
        assert task.cancelled()
        async with waiting(visit, NEVER):
            visit.notify()

    run(play)


def test_the_reason_of_a_wait_is_that_of_the_pace_or_of_the_circuit_breaker() -> None:
    visit = gate()
    assert visit.wait_reason() is None
    now = visit._context.clock.now()
    visit.rate.discovered(10_000, 1_000_000, now)
    wait = visit.wait_reason()
    assert wait is not None
    assert wait.kind is WaitKind.FLOOD_GUARD
    assert 0 < wait.seconds <= 90, "10 000 new URLs, 1 000 of them at once, the rest at 100 a second"
    for _ in range(visit._context.settings.politeness.circuit_failures):
        visit._circuit.record(visit._circuit.started(), Circuit.FAILURE, now + 300)
    wait = visit.wait_reason()
    assert wait is not None
    assert wait.kind is WaitKind.CIRCUIT


# The claim must outlast a request, also when that is about to go out ---------------------------------------------------


class Frozen(SystemClock):
    """A clock that can be moved on, as a freeze does."""

    def __init__(self) -> None:
        self.frozen_for = 0.0

    def now(self) -> float:
        return super().now() + self.frozen_for


class Asked:
    """A client whose connection stands after a freeze of so many seconds, each time a shorter one."""

    def __init__(self, clock: Frozen, *freezes: float) -> None:
        self._clock = clock
        self._freezes = list(freezes)
        self.buffered_bytes = 0
        self.sent = 0

    async def fetch(self, request: FetchRequest) -> FetchResult:
        self._clock.frozen_for += self._freezes.pop(0)
        assert request.may_send is not None
        if not request.may_send():
            return FetchResult(request.url, Outcome.CONNECTION_FAILED, withheld=True)
        self.sent += 1
        return FetchResult(request.url, Outcome.OK, status=200)


def asking(*freezes: float) -> tuple[RequestGate, Asked, Leases, Frozen]:
    clock = Frozen()
    leases = Leases(clock, timedelta(minutes=30))
    leases.add([(1, 1)], clock.now())
    client = Asked(clock, *freezes)
    batch_writer = SimpleNamespace(is_full=False)
    context = SimpleNamespace(
        clock=clock, settings=Settings(), rng=Random(1), leases=leases, client=client, batch_writer=batch_writer
    )
    made = RequestGate(
        cast("WorkerContext", context),
        (1, 1),
        PolitenessClocks(),
        SiteFetcher(cast("HttpClient", client)),
        VisitAnswers(ErrorStreak(10)),
        delay=0,
        concurrency=1,
    )
    return made, client, leases, clock


@pytest.mark.parametrize(("frozen_for", "sent"), [(69.0, 1), (71.0, 0), (3600.0, 0)])
def test_a_freeze_between_turn_and_sending_withholds_the_request(frozen_for: float, sent: int) -> None:
    """By the heartbeat: 100 s of silence less the longest request (30 s), whatever the lease says."""

    async def play() -> None:
        visit, client, _, _ = asking(frozen_for)
        await visit.turn(b"k")
        if sent:
            assert (await visit.fetch(FetchRequest("http://a.example/", "x", key=b"k"))).outcome is Outcome.OK
        else:
            with pytest.raises(RequestWithheld):
                await visit.fetch(FetchRequest("http://a.example/", "x", key=b"k"))
        assert client.sent == sent
        assert visit.in_flight() == []

    run(play)


def test_a_robots_txt_that_was_withheld_is_asked_for_when_the_store_has_heard_of_us(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.crawler.request_gate.LEASE_POLL", 0.01)

    async def play() -> None:
        visit, client, leases, clock = asking(200.0, 0.0)
        request = FetchRequest("http://a.example/robots.txt", "x", timeout=99.0)
        asked = asyncio.create_task(visit.fetch_in_turn(request))
        await asyncio.sleep(0.1)
        assert (asked.done(), client.sent) == (False, 0), "it waits, and its request with it"
        leases.acknowledge(clock.now())
        result = await asked
        assert (client.sent, result.status) == (1, 200)
        assert request.timeout == Settings().fetch.timeout.total_seconds(), "no longer than the claim is known to last"

    run(play)


def test_a_visit_is_overdue_only_where_nothing_but_the_worker_keeps_it_from_asking() -> None:
    async def play() -> None:
        visit, _, _, clock = asking()
        clock.frozen_for += 7.0
        assert visit.overdue(clock.now()) >= 7.0
        waiting_for = asyncio.create_task(visit.wait(60.0, WaitKind.PROXY))
        await asyncio.sleep(0)
        assert visit.overdue(clock.now()) == 0.0
        visit.notify()
        await waiting_for
        assert visit.overdue(clock.now()) >= 7.0

    run(play)
