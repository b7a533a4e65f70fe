"""When a visit may ask its server: pace, circuit, lease, room and proxies, and the one place where a request is sent.

The rule: no request starts unless all of them say so at that moment, and every request, also for robots.txt, goes through here.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast.engine.lease import Tenure
from holdfast.engine.routes import Routes
from holdfast.engine.tools import Tools
from holdfast.model.batch import Clocks
from holdfast.model.delay import DelaySource
from holdfast.model.outcome import TREATMENT, Circuit, Outcome
from holdfast.model.page import FetchRequest, FetchResult
from holdfast.model.proxy import ProxyUse
from holdfast.model.wait import Wait, WaitKind
from holdfast.politeness.circuit import STUCK_FOR, CircuitBreaker
from holdfast.politeness.pace import Flight, Pace
from holdfast.politeness.resends import Resends

NEVER: Final = float("inf")
MOST_HELD: Final = 64 * 1024 * 1024
"""Bytes of bodies on their way, beyond which no other request is begun."""
HELD_LOOK: Final = 0.05
LEASE_LOOK: Final = 1.0
"""Seconds between two looks at a lease that is too short for a request."""
_SERVER: Final = frozenset({WaitKind.BACK_OFF, WaitKind.CIRCUIT})


class Withheld(Exception):
    """A request was not sent: when its connection stood, the claim was not certain to outlast it (the process was frozen, say)."""


class Turns:
    """The turns of one visit."""

    def __init__(
        self,
        tools: Tools,
        tenure: Tenure,
        clocks: Clocks,
        *,
        delay: float,
        source: DelaySource = DelaySource.DOMAIN,
        crawl_delay: float | None = None,
        concurrency: int,
        over: Callable[[], bool],
        routes: Routes | None,
        used: Callable[[ProxyUse], None],
    ) -> None:
        """`delay` and its `source`, and `crawl_delay` of robots.txt, as in `Pace`. `routes`: the proxies, if it uses any; `used` hears what
        went through one and is not a page."""
        now = tools.clock.now()
        politeness = tools.settings.politeness
        self._tools = tools
        self._tenure = tenure
        self._concurrency = concurrency
        self._over = over
        self._routes = routes
        self._used = used
        self._longest = tools.settings.fetch.timeout.total_seconds()
        self._patience = tools.settings.crawl.patience.total_seconds()
        self._circuit = CircuitBreaker(politeness, clocks, now)
        self._resends = Resends()
        self._waiter: asyncio.Future[None] | None = None
        self._flying = 0
        self._flights: dict[Flight, tuple[str, float]] = {}
        self._waits_for: tuple[WaitKind, float] | None = None
        """A wait that neither pace nor circuit breaker knows of, and when it is over."""
        self.problem = ""
        """What the last request said that failed or was refused."""
        self.pace = Pace(
            politeness,
            tools.settings.crawl,
            clocks,
            now,
            tools.chance,
            delay=delay,
            source=source,
            crawl_delay=crawl_delay,
        )
        self.far: float | None = None
        """Seconds, where `ask_in_turn` found the next turn too far off to wait for."""
        self.asked = False
        """Something was asked for."""

    async def turn(self, key: bytes) -> float | None:
        """Return when the request for this URL may start; seconds, if that is so far off that somebody else had better use the time.

        Returns as well when the visit is over: the caller looks.
        """
        tools = self._tools
        while not self._over():
            if self._circuit.stuck:
                return STUCK_FOR
            if tools.committer.is_full:
                await tools.committer.room()
                continue
            if not self._outlasts(self._longest):
                await self.wait(LEASE_LOOK, WaitKind.LEASE)  # the heartbeat renews it, or tells that it is lost
                continue
            if tools.client.held_bytes > MOST_HELD:
                await self.wait(HELD_LOOK)
                continue
            now = tools.clock.now()
            wait = max(self.pace.wait(now), self._circuit.wait(now))
            if self._flying >= self._concurrency or wait == NEVER:
                await self.wait(NEVER)
                continue
            if wait <= 0:
                if self._routes is None or self._routes.reserved(key):
                    return None
                wait = await self._routes.reserve(key)  # that may take a while: then all else is looked at again
                if 0 < wait <= self._patience:
                    await self.wait(wait, WaitKind.PROXY)
                    continue
            if wait > self._patience:
                return wait
            if wait > 0:
                await self.wait(wait)
        return None

    async def ask_in_turn(self, request: FetchRequest) -> FetchResult | None:
        """A request that is no page's, in its turn like all others; None: the visit has to end first."""
        key = request.url.encode()
        while True:
            self.far = await self.turn(key)
            if self.far is not None or self._over():
                return None
            try:
                result = await self.ask(request, key)
            except Withheld:
                continue
            if self._routes is not None and (use := self._routes.ended(key, result.outcome, result, page=False)):
                self._used(use)
            # A proxy that is to be waited for is not: whoever wants to know comes again.
            if result.again_in is None or (result.again_in and result.fault is None):
                return result

    async def ask(self, request: FetchRequest, key: bytes, *, last: bool = False) -> FetchResult:
        """Send a request now, and let the clocks know; of a failure that may be a proxy's, or only that of a connection that was kept
        too long, they hear nothing.

        Before: `turn` has just said so. `last`: the URL has no attempt left after this one. Raises Withheld, with nothing sent, if the
        claim is not certain to outlast the request when that is about to go out; the caller waits for another turn.
        """
        clock = self._tools.clock
        self.asked = True
        self._flying += 1
        flight, generation = self.pace.started(), self._circuit.started()
        self._flights[flight] = (request.url, clock.now())

        def sent() -> None:
            request.sent = True
            self.pace.sent(flight, clock.now())
            self.changed()

        def answered() -> None:
            self.pace.answered(flight, clock.now())
            self.changed()

        request.on_sent, request.on_answered = sent, answered
        # Never longer than `turn` has seen the claim to last: a lease may be shorter than a timeout of the request's own.
        request.timeout = min(self._longest, self._longest if request.timeout is None else request.timeout)
        request.may_send = lambda: self._outlasts(self._longest)
        request.route = None if self._routes is None else self._routes.begin(key)
        request.fresh = self._resends.needs_fresh_connection(key, request.url)
        outcome, latency, retry_after = None, None, None  # cancelled, or made again: it says nothing about the server
        try:
            result = await self._tools.client.fetch(request)
            if result.withheld:
                if self._routes is not None:
                    self._routes.ended(key, result.outcome, result)
                raise Withheld
            if self._resends.ended(key, request.url, resend=result.resend):
                result.outcome, result.again_in = Outcome.CONNECTION_BROKEN, 0.0
            elif self._routes is not None:
                self._routes.judge(key, result, last=last)
            if result.again_in is None:
                outcome, latency, retry_after = result.outcome, result.duration, result.retry_after
                if TREATMENT[outcome].back_off or TREATMENT[outcome].circuit is Circuit.FAILURE:
                    self.problem = result.detail or str(outcome)
        finally:
            self._flying -= 1
            del self._flights[flight]
            now = clock.now()
            self.pace.ended(flight, now, latency, outcome, retry_after)
            verdict = TREATMENT[outcome].circuit if outcome is not None else Circuit.NOTHING
            self._circuit.record(generation, verdict, now)
            self.changed()
        return result

    def _outlasts(self, seconds: float) -> bool:
        """Whether the claim is certain to outlast a request of that length."""
        return self._tools.leases.left(self._tenure) > seconds

    @property
    def stuck(self) -> bool:
        """The circuit opened three times without a success: the visit has to end."""
        return self._circuit.stuck

    def clocks(self) -> Clocks:
        """The politeness at this moment, for the store."""
        now = self._tools.clock.now()
        clocks = self.pace.clocks(now)
        self._circuit.write(clocks, now)
        return clocks

    def in_flight(self) -> list[tuple[str, float]]:
        """Requests that were started and have not ended: URL, and when it was started. For any thread."""
        return list(self._flights.values())

    def overdue(self, now: float) -> float:
        """Seconds for which a request could have started and has not, by what the server and its proxies allow."""
        if self._flying or self._waits_for is not None or self._circuit.wait(now) > 0:
            return 0.0
        return self.pace.overdue(now)

    def wait_reason(self) -> Wait | None:
        """Why no request may start at this moment, with the seconds left; None: one may, or nothing is known. For any thread."""
        now = self._tools.clock.now()
        circuit = self._circuit.wait(now)
        found = [self.pace.reason(now), Wait(WaitKind.CIRCUIT, circuit) if circuit > 0 else None]
        # URLs that wait for another attempt, or a proxy: said where the server itself is not the reason.
        if (waits_for := self._waits_for) is not None and not any(w is not None and w.kind in _SERVER for w in found):
            return Wait(waits_for[0], max(0.0, waits_for[1] - now))
        return max((wait for wait in found if wait is not None), key=lambda wait: wait.seconds, default=None)

    def changed(self) -> None:
        """Whoever waits looks again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float, kind: WaitKind | None = None) -> None:
        """Until something changes, or that long. Before: nobody else of the visit waits; a visit looks for one turn at a time.

        `kind`: what it waits for, where neither pace nor circuit breaker knows.
        """
        # By hand, where an event and asyncio.wait_for would make a task of their own for each page.
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = None if seconds == NEVER else loop.call_later(seconds, self.changed)
        if kind is not None:
            self._waits_for = (kind, self._tools.clock.now() + seconds)
        try:
            await self._waiter
        finally:
            self._waiter = self._waits_for = None
            if timer is not None:
                timer.cancel()
