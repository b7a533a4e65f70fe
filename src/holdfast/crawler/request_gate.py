"""The request gate of a visit: decides when a request may start, and is the only place where one is sent.

The rule: no request starts unless request rate, circuit breaker, lease, batch and proxies allow it at that moment, and every request,
also for robots.txt, goes through here.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast.crawler.leases import Tenure
from holdfast.crawler.proxy_router import ProxyRouter
from holdfast.crawler.worker_context import WorkerContext
from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import TREATMENT, Circuit, Outcome
from holdfast.model.proxy import ProxyUse
from holdfast.model.wait import DelaySource, Wait, WaitKind
from holdfast.politeness.broken_connections import BrokenConnections
from holdfast.politeness.circuit_breaker import STUCK_SECONDS, CircuitBreaker
from holdfast.politeness.request_rate import RequestRate, RequestTiming

NEVER: Final = float("inf")
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
"""Bytes of bodies in flight, beyond which no other request starts."""
BODY_BYTES_POLL: Final = 0.05
LEASE_POLL: Final = 1.0
"""Seconds between two checks of a lease that is too short for a request."""
_SERVER_WAITS: Final = frozenset({WaitKind.BACK_OFF, WaitKind.CIRCUIT})


class RequestWithheld(Exception):
    """A request was not sent: once connected, the claim was not certain to outlast it (for example after the process was frozen)."""


class RequestGate:
    """The request gate of one visit."""

    def __init__(
        self,
        context: WorkerContext,
        tenure: Tenure,
        clocks: PolitenessClocks,
        *,
        delay: float,
        source: DelaySource = DelaySource.DOMAIN,
        crawl_delay: float | None = None,
        concurrency: int,
        is_over: Callable[[], bool],
        proxy_router: ProxyRouter | None,
        on_proxy_use: Callable[[ProxyUse], None],
    ) -> None:
        """`delay` (seconds), its `source` and the `crawl_delay` of robots.txt are as in `RequestRate`. `is_over`: whether the visit is to
        start no more requests. `on_proxy_use` is called for a request through a proxy that is not for a page."""
        now = context.clock.now()
        politeness = context.settings.politeness
        self._context = context
        self._tenure = tenure
        self._concurrency = concurrency
        self._is_over = is_over
        self._proxy_router = proxy_router
        self._on_proxy_use = on_proxy_use
        self._timeout = context.settings.fetch.timeout.total_seconds()
        self._patience = context.settings.crawl.patience.total_seconds()
        self._circuit = CircuitBreaker(politeness, clocks, now)
        self._broken_connections = BrokenConnections()
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
        self.next_turn_in: float | None = None
        """Seconds until the next turn, if `send_in_turn` did not wait for it because it is too far away."""
        self.has_sent = False
        """Whether a request was sent."""

    async def wait_for_turn(self, key: bytes) -> float | None:
        """Wait until the request for this URL may start. Returns None then, or at once the seconds, if they exceed the visit's patience.

        Returns None as well when the visit is over: the caller checks.
        """
        context = self._context
        while not self._is_over():
            if self._circuit.stuck:
                return STUCK_SECONDS
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
                if self._proxy_router is None or self._proxy_router.is_reserved(key):
                    return None
                wait = await self._proxy_router.reserve(key)  # that may take a while: then check everything again
                if 0 < wait <= self._patience:
                    await self.wait(wait, WaitKind.PROXY)
                    continue
            if wait > self._patience:
                return wait
            if wait > 0:
                await self.wait(wait)
        return None

    async def send_in_turn(self, request: FetchRequest) -> FetchResult | None:
        """Send a request that is not for a page, in its turn like all others; None: the visit ends before."""
        key = request.url.encode()
        while True:
            self.next_turn_in = await self.wait_for_turn(key)
            if self.next_turn_in is not None or self._is_over():
                return None
            try:
                result = await self.send(request, key)
            except RequestWithheld:
                continue
            if self._proxy_router is not None and (
                use := self._proxy_router.finish(key, result.outcome, result, page=False)
            ):
                self._on_proxy_use(use)
            # No wait for a resting proxy: the caller retries later.
            if result.again_in is None or (result.again_in and result.fault is None):
                return result

    async def send(self, request: FetchRequest, key: bytes, *, last_attempt: bool = False) -> FetchResult:
        """Send a request now, and record its result in request rate and circuit breaker, unless the failure may be a proxy's, or that
        of a kept-alive connection which the server closed.

        Before: `wait_for_turn` has just returned None. `last_attempt`: the URL has no attempt left after this one. Raises RequestWithheld,
        with nothing sent, if the claim is not certain to outlast the request when it is about to be sent; the caller waits again.
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
        # At most the duration that `wait_for_turn` compared with the lease: a request's own timeout may be longer.
        request.timeout = min(self._timeout, self._timeout if request.timeout is None else request.timeout)
        request.may_send = lambda: self._lease_outlasts(self._timeout)
        request.route = None if self._proxy_router is None else self._proxy_router.start(key)
        request.fresh = self._broken_connections.needs_fresh_connection(key, request.url)
        outcome, latency, retry_after = None, None, None  # cancelled or retried: it says nothing about the server
        try:
            result = await self._context.client.fetch(request)
            if result.withheld:
                if self._proxy_router is not None:
                    self._proxy_router.finish(key, result.outcome, result)
                raise RequestWithheld
            if self._broken_connections.record(key, request.url, resend=result.resend):
                result.outcome, result.again_in = Outcome.CONNECTION_BROKEN, 0.0
            elif self._proxy_router is not None:
                self._proxy_router.decide_retry(key, result, last_attempt=last_attempt)
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
