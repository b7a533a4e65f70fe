"""The request gate of a visit: how many of its URLs are crawled at once, when a request may start, and the only place where one is sent.

The rule: no request starts unless request rate, circuit breaker, lease, batch and fetcher allow it at that moment, and every request,
also for robots.txt, goes through here: `turn`, then `fetch`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from holdfast.crawler.leases import Tenure
from holdfast.crawler.worker_context import WorkerContext
from holdfast.model.activity import DelaySource, Wait, WaitKind
from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import TREATMENT, Circuit, Outcome
from holdfast.model.visit_report import VisitEnd
from holdfast.politeness.circuit_breaker import STUCK_SECONDS, CircuitBreaker
from holdfast.politeness.error_streak import VisitAnswers
from holdfast.politeness.request_rate import RequestRate, RequestTiming

log: Final = logging.getLogger(__name__)

NEVER: Final = float("inf")
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Bytes of bodies in flight, beyond which no other request starts."""
BODY_BYTES_POLL: Final = 0.05
LEASE_POLL: Final = 1.0
"""Seconds between two checks of a lease that is too short for a request."""
MAX_EXTRA_SLOTS: Final = 8
"""Maximum number of extra slots, which replace slots that wait for something else than the server."""
_SERVER_WAITS: Final = frozenset({WaitKind.BACK_OFF, WaitKind.CIRCUIT})


class RequestWithheld(Exception):
    """A request was not sent: once connected, the claim was not certain to outlast it (for example after the process was frozen)."""


class VisitOver(Exception):
    """No request may start any more in this visit. `wait`: seconds until the domain should be visited again; None: not known."""

    def __init__(self, wait: float | None = None) -> None:
        super().__init__(wait)
        self.wait = wait


class Fetcher(Protocol):
    """Sends the requests of one visit, directly or through proxies. A request is identified by its key."""

    def is_ready(self, key: bytes, /) -> bool:
        """Whether the request may be sent now."""
        ...

    async def prepare(self, key: bytes, /) -> float:
        """Prepare the request. Returns 0: `is_ready`; otherwise the seconds until the next attempt."""
        ...

    async def fetch(self, request: FetchRequest, /) -> FetchResult:
        """Send the request. Before: `is_ready`. After: if it is repeated, and its failure is not the site's, `again_in` is set."""
        ...

    def settle(self, request: FetchRequest, result: FetchResult, outcome: Outcome, /) -> None:
        """Settle what the answer means, by its outcome as known after parsing. After: `again_in` and `proxy` of the result are final."""
        ...

    def close(self) -> None:
        """Drop what is prepared."""
        ...


class RequestSlots:
    """The concurrent slots of one visit.

    The rule: a slot is a task that crawls one URL after the other, and holds the lock from the choice of a URL until its turn. So there is
    one choice at a time, requests start in the order of the choices, and no more are in flight than there are slots. A task per slot, and
    not per URL: creating, waking and ending tasks was a tenth of the cost of a page.
    """

    def __init__(self, limit: int, on_done: Callable[[], None]) -> None:
        """`on_done` is called when a URL that had its turn is done."""
        self._limit = limit
        self._on_done = on_done
        self._crawl_next: Callable[[], Awaitable[VisitEnd | None]]
        self._choice_lock = asyncio.Lock()
        self._chooser: asyncio.Task[None] | None = None
        """The slot that holds the lock."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Future[VisitEnd | None]
        self.in_flight = 0
        """URLs that had their turn and are not done."""

    async def run(self, crawl_next: Callable[[], Awaitable[VisitEnd | None]]) -> VisitEnd | None:
        """Crawl URLs until the end, and return it; None: all slots were cancelled. URLs may still be in flight: `drain`.

        `crawl_next` chooses a URL, calls `start_request` at its turn, and crawls it; it returns the end of the visit, if that has come.
        """
        self._crawl_next = crawl_next
        self._ending = asyncio.get_running_loop().create_future()
        self._start_slot()
        return await self._ending

    def start_request(self) -> None:
        """Let another slot choose the next URL: the calling one has its turn, and sends at once. Raises VisitOver if the end has come."""
        if self._ending.done():
            raise VisitOver
        self.in_flight += 1
        self._chooser = None
        self._choice_lock.release()
        if self.in_flight == len(self._tasks) < self._limit:
            self._start_slot()  # its first choice is after our request has started

    def open_extra_slot(self) -> None:
        """Start an extra slot while the calling one waits for something that is not the server."""
        if len(self._tasks) < self._limit + MAX_EXTRA_SLOTS:
            self._start_slot()

    def cancel(self) -> None:
        """Cancel everything in flight, now."""
        for task in self._tasks:
            task.cancel()

    async def drain(self, seconds: float) -> None:
        """Wait until nothing is in flight. After: so it is; what took longer than `seconds` was cancelled."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in list(self._tasks):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    def _start_slot(self) -> None:
        task = asyncio.create_task(self._run())
        self._tasks.add(task)
        task.add_done_callback(self._slot_ended)

    async def _run(self) -> None:
        slot = asyncio.current_task()
        while not self._ending.done():
            await self._choice_lock.acquire()
            self._chooser = slot
            try:
                while self._chooser is slot and not self._ending.done():
                    if (ending := await self._crawl_next()) is not None and not self._ending.done():
                        self._ending.set_result(ending)
            except Exception as problem:
                if self._chooser is not slot:
                    raise
                if not self._ending.done():  # before the lock is released: no slot may choose after it
                    self._ending.set_exception(problem)
            finally:
                if self._chooser is slot:
                    self._chooser = None
                    self._choice_lock.release()
                else:
                    self.in_flight -= 1
                    self._on_done()
            if len(self._tasks) > self._limit and slot is not None:
                self._tasks.discard(slot)  # at once, since other slots that end in this moment check the number, too
                return

    def _slot_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        problem = None if task.cancelled() else task.exception()
        if self._ending.done():
            if problem is not None:
                log.error("a request slot ended with an internal error", exc_info=problem)
        elif problem is not None:
            self._ending.set_exception(problem)
        elif not self._tasks:
            self._ending.set_result(None)


class RequestGate:
    """The request gate of one visit."""

    def __init__(
        self,
        context: WorkerContext,
        tenure: Tenure,
        clocks: PolitenessClocks,
        fetcher: Fetcher,
        answers: VisitAnswers,
        *,
        delay: float,
        source: DelaySource = DelaySource.DOMAIN,
        crawl_delay: float | None = None,
        concurrency: int,
    ) -> None:
        """`delay` (seconds), its `source` and the `crawl_delay` of robots.txt are as in `RequestRate`. `answers` may end the visit."""
        now = context.clock.now()
        politeness = context.settings.politeness
        self._context = context
        self._tenure = tenure
        self._fetcher = fetcher
        self._answers = answers
        self._concurrency = concurrency
        self._timeout = context.settings.fetch.timeout.total_seconds()
        self._patience = context.settings.crawl.patience.total_seconds()
        self._circuit = CircuitBreaker(politeness, clocks, now)
        self._closed = False
        self._waiter: asyncio.Future[None] | None = None
        self._in_flight = 0
        self._flights: dict[RequestTiming, tuple[str, float]] = {}
        self._other_wait: tuple[WaitKind, float] | None = None
        """A wait for something else than request rate and circuit breaker, with the time of its end."""
        self.last_problem = ""
        """Detail of the last request that failed or was refused."""
        self.rate = RequestRate(
            politeness,
            context.settings.crawl,
            clocks,
            now,
            context.rng,
            delay=delay,
            source=source,
            crawl_delay=crawl_delay,
        )
        self.has_sent = False
        """Whether a request was sent."""

    def close(self) -> None:
        """Let no more requests start; those in flight go on."""
        self._closed = True
        self.notify()

    @property
    def is_over(self) -> bool:
        """Whether no more requests may start: it is closed, or the answers end the visit."""
        return self._closed or self._answers.event is not None

    async def turn(self, key: bytes) -> None:
        """Wait until the request for this URL may start. Raises VisitOver if no more may, or none within the visit's patience."""
        context = self._context
        while not self.is_over:
            if self._circuit.stuck:
                raise VisitOver(STUCK_SECONDS)
            if context.batch_writer.is_full:
                await context.batch_writer.wait_for_room()
                continue
            if not self._lease_outlasts(self._timeout):
                await self.wait(LEASE_POLL, WaitKind.LEASE)  # the heartbeat renews it, or finds it lost
                continue
            if context.client.buffered_bytes > MAX_BODY_BYTES:
                await self.wait(BODY_BYTES_POLL)
                continue
            now = context.clock.now()
            wait = max(self.rate.wait(now), self._circuit.wait(now))
            if self._in_flight >= self._concurrency or wait == NEVER:
                await self.wait(NEVER)
                continue
            if wait <= 0:
                if self._fetcher.is_ready(key):
                    return
                wait = await self._fetcher.prepare(key)  # that may take a while: then check everything again
                if 0 < wait <= self._patience:
                    await self.wait(wait, WaitKind.PROXY)
                    continue
            if wait > self._patience:
                raise VisitOver(wait)
            if wait > 0:
                await self.wait(wait)
        raise VisitOver

    async def fetch(self, request: FetchRequest) -> FetchResult:
        """Send a request now, and record its result in request rate and circuit breaker, unless it is repeated, because the failure may be
        a proxy's, or that of a kept-alive connection which the server closed.

        Before: `turn` has just returned. Raises RequestWithheld, with nothing sent, if the claim is not certain to outlast the request when
        it is about to be sent; the caller waits for another turn.
        """
        clock = self._context.clock
        self.has_sent = True
        self._in_flight += 1
        flight, generation = self.rate.started(), self._circuit.started()
        self._flights[flight] = (request.url, clock.now())

        def sent() -> None:
            request.sent = True
            self.rate.sent(flight, clock.now())
            self.notify()

        def answered() -> None:
            self.rate.answered(flight, clock.now())
            self.notify()

        request.on_sent, request.on_answered = sent, answered
        # At most the duration that `turn` compared with the lease: a request's own timeout may be longer.
        request.timeout = min(self._timeout, self._timeout if request.timeout is None else request.timeout)
        request.may_send = lambda: self._lease_outlasts(self._timeout)
        outcome, latency, retry_after = None, None, None  # cancelled or repeated: it says nothing about the server
        try:
            result = await self._fetcher.fetch(request)
            if result.withheld:
                raise RequestWithheld
            if result.again_in is None:
                outcome, latency, retry_after = result.outcome, result.duration, result.retry_after
                if TREATMENT[outcome].back_off or TREATMENT[outcome].circuit is Circuit.FAILURE:
                    self.last_problem = result.detail or str(outcome)
        finally:
            self._in_flight -= 1
            del self._flights[flight]
            now = clock.now()
            self.rate.ended(flight, now, latency, outcome, retry_after)
            verdict = TREATMENT[outcome].circuit if outcome is not None else Circuit.NOTHING
            self._circuit.record(generation, verdict, now)
            self.notify()
        return result

    async def fetch_in_turn(self, request: FetchRequest) -> FetchResult:
        """Fetch what is not a page, such as a robots.txt, as often as it is repeated. Raises VisitOver as `turn` does."""
        while True:
            await self.turn(request.key)
            try:
                result = await self.fetch(request)
            except RequestWithheld:
                continue
            self._fetcher.settle(request, result, result.outcome)
            # No wait for a resting proxy: the caller retries later.
            if result.again_in is None or (result.again_in and result.fault is None):
                return result

    def _lease_outlasts(self, seconds: float) -> bool:
        """Whether the claim is certain to outlast a request of that duration."""
        return self._context.leases.seconds_left(self._tenure) > seconds

    @property
    def stuck(self) -> bool:
        """Whether the circuit breaker opened three times without a success: the visit must end."""
        return self._circuit.stuck

    def clocks(self) -> PolitenessClocks:
        """Return request rate and circuit breaker at this moment, for the database."""
        now = self._context.clock.now()
        clocks = self.rate.clocks(now)
        self._circuit.write(clocks, now)
        return clocks

    def in_flight(self) -> list[tuple[str, float]]:
        """Return the requests in flight: URL and start time. Thread-safe."""
        return list(self._flights.values())

    def overdue(self, now: float) -> float:
        """Return for how many seconds a request could have started and has not, by what server and proxies allow."""
        if self._in_flight or self._other_wait is not None or self._circuit.wait(now) > 0:
            return 0.0
        return self.rate.overdue(now)

    def wait_reason(self) -> Wait | None:
        """Return why no request may start at this moment, with the seconds left; None: one may, or the reason is unknown. Thread-safe."""
        now = self._context.clock.now()
        circuit = self._circuit.wait(now)
        found = [self.rate.reason(now), Wait(WaitKind.CIRCUIT, circuit) if circuit > 0 else None]
        # A wait for a retry or a proxy is reported only where the server itself is not the reason.
        if (other_wait := self._other_wait) is not None and not any(
            w is not None and w.kind in _SERVER_WAITS for w in found
        ):
            return Wait(other_wait[0], max(0.0, other_wait[1] - now))
        return max((wait for wait in found if wait is not None), key=lambda wait: wait.seconds, default=None)

    def notify(self) -> None:
        """Wake the waiting coroutine of the visit, which checks everything again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float, kind: WaitKind | None = None) -> None:
        """Wait until `notify` is called, or for `seconds`. Before: no other coroutine of the visit waits; it looks for one turn at a time.

        `kind`: what it waits for, if neither for request rate nor circuit breaker.
        """
        # A bare future: an event with asyncio.wait_for would create a task for each page.
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if seconds == NEVER else loop.call_later(seconds, self.notify)
        if kind is not None:
            self._other_wait = (kind, self._context.clock.now() + seconds)
        try:
            await self._waiter
        finally:
            self._waiter = self._other_wait = None
            if timer is not None:
                timer.cancel()
