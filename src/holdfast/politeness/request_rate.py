"""When the next request to a domain may start.

The rule: delay and back-off are two clocks, and both must have run out. The delay counts from when the server has the request, as the
server judges it; that is known when its answer begins, and supposed where the answer is long in coming. While a request that started
has not been sent, no other starts. A burst of refusals among requests that were under way together is one incident,
and one incident is one step of back-off, whatever Retry-After says; a longer Retry-After makes that step longer.

The flood guard is a third clock: above the high-water mark of waiting URLs, requests start only as fast as new URLs are allowed to come.
"""

import math
import random
from datetime import timedelta
from typing import Final

from holdfast.model.batch import Clocks
from holdfast.model.delay import DelaySource
from holdfast.model.outcome import TREATMENT, Circuit, Outcome
from holdfast.model.wait import Wait, WaitKind
from holdfast.politeness.retry import asked_for
from holdfast.settings import Crawl, Politeness

ON_THE_WAY: Final = 0.5
"""Seconds, and never more than the delay: after so long a request without an answer counts as received. A slow server is asked that
much less often, and no request waits for the answer to another."""

SHORTEST_BACK_OFF: Final = 1.0
BACK_OFF_JITTER: Final = 0.25
CALM: Final = 5
"""Successes in a row that take one step of back-off back."""

WEIGHT: Final = 0.2
"""Of the newest answer in the moving average."""
WARM: Final = 8
"""Answers before an average counts as the server's best: a first quick 404 does not."""
SLOWER: Final = 2.0
SLOWER_BY: Final = 0.2
"""A server is slow when its average is so many times its best, and at least so many seconds longer."""

BURST: Final = 1000
"""New URLs that pages of a domain may add at once, above the high-water mark."""
LONGEST_FLOOD_WAIT: Final = 10.0
"""Seconds that the flood guard asks for at a time. A longer wait is asked for again, so that it ends no visit."""


class Flight:
    """A request from its start to its end."""

    __slots__ = ("incident", "sent")

    def __init__(self, incident: int) -> None:
        """It starts now; `incident` is the number of incidents so far."""
        self.incident = incident
        self.sent = False


class Pace:
    """The pace of one domain in one visit. Times are seconds on the caller's clock."""

    __slots__ = (
        "_answered",
        "_average",
        "_back_off_until",
        "_base",
        "_best",
        "_calm",
        "_chance",
        "_crawl_delay",
        "_credit",
        "_credit_at",
        "_flood_mark",
        "_incident",
        "_latest",
        "_level",
        "_not_before",
        "_per_second",
        "_samples",
        "_sent",
        "_settings",
        "_source",
        "_unsent",
    )

    def __init__(
        self,
        settings: Politeness,
        crawl: Crawl,
        clocks: Clocks,
        now: float,
        chance: random.Random,
        *,
        delay: float,
        source: DelaySource = DelaySource.DOMAIN,
        crawl_delay: float | None = None,
    ) -> None:
        """Take up what the store knows. `delay` is the job's or the domain's (`source`), `crawl_delay` that of robots.txt."""
        self._settings = settings
        self._chance = chance
        self._base = delay
        self._crawl_delay = crawl_delay or 0.0
        self._source = source
        self._not_before = now + clocks.next_request_in
        self._sent = self._answered = -math.inf
        if (
            clocks.delay is not None
        ):  # the last request is known: the delay of today counts from it, not that of the visit before
            self._sent = self._answered = self._not_before - clocks.delay
            self._not_before = -math.inf
        self._latest: Flight | None = None
        self._unsent: Flight | None = None
        self._back_off_until = now + clocks.back_off_in
        self._level = clocks.back_off_level
        self._incident = 0
        self._calm = 0
        self._average = None if clocks.response_ms is None else clocks.response_ms / 1000
        self._best = None if clocks.best_response_ms is None else clocks.best_response_ms / 1000
        self._samples = 0 if clocks.response_ms is None else WARM
        self._per_second = crawl.discovered_per_second
        self._flood_mark = crawl.flood_mark
        self._credit = float(BURST)
        self._credit_at = now

    @property
    def delay(self) -> float:
        """Seconds between two requests, as things are: the larger of the two delays, and more while the server is slow."""
        return max(self._base, self._crawl_delay) + self._slowdown()

    @property
    def source(self) -> DelaySource:
        """What the delay comes from."""
        if self._slowdown() > 0:
            return DelaySource.LEARNT
        return DelaySource.ROBOTS if self._crawl_delay > self._base else self._source

    @property
    def back_off_level(self) -> int:
        """Steps of back-off that are in force."""
        return self._level

    def set_crawl_delay(self, crawl_delay: float | None) -> None:
        """A robots.txt has come. After: its delay holds, also after the request that fetched it."""
        self._crawl_delay = crawl_delay or 0.0

    def set_delay(self, delay: float) -> None:
        """A person changed the domain's or the job's delay. After: it counts from the last request, also for the next visit."""
        self._base = delay

    def unclean(self, now: float) -> None:
        """The visit before ended without a release, so its last request may be unrecorded. After: one full delay passes first."""
        self._received(now)

    def wait(self, now: float) -> float:
        """Seconds until a request may start: 0 is now, infinity is not before the one that has started is sent or ended."""
        if self._unsent is not None:
            return math.inf
        return max(self._due() - now, self._back_off_until - now, self._flood(now), 0.0)

    def overdue(self, now: float) -> float:
        """Seconds for which a request could have started; 0: none may start, or one that has started is not sent yet."""
        if self._unsent is not None or self._debt(now) > 0:
            return 0.0
        return max(0.0, now - max(self._due(), self._back_off_until))

    def reason(self, now: float) -> Wait | None:
        """The wait that ends last; None: a request may start, or one that has started is not sent yet."""
        if self._unsent is not None:
            return None
        waits = (
            Wait(WaitKind.DELAY, self._due() - now),
            Wait(WaitKind.BACK_OFF, self._back_off_until - now),
            Wait(WaitKind.FLOOD_GUARD, self._debt(now)),
        )
        longest = max(waits, key=lambda wait: wait.seconds)
        return longest if longest.seconds > 0 else None

    def started(self) -> Flight:
        """A request starts. Before: `wait` is 0. After: none other may until this one is sent or ended."""
        self._unsent = Flight(self._incident)
        return self._unsent

    def sent(self, flight: Flight, now: float) -> None:
        """The request goes out. After: the delay counts from when it is there."""
        flight.sent = True
        self._went_out(flight)
        self._latest = flight
        self._sent, self._answered = now, math.inf

    def answered(self, flight: Flight, now: float) -> None:
        """Its answer begins, so the server has it. After: the delay counts from now at the latest."""
        if self._latest is flight:
            self._latest = None
            self._answered = now

    def ended(
        self,
        flight: Flight,
        now: float,
        latency: float | None,
        outcome: Outcome | None,
        retry_after: timedelta | None = None,
    ) -> None:
        """The request has ended, `latency` seconds after its start. After: clocks and averages are where that leads.

        None as outcome: we gave it up ourselves, which says nothing about the server.
        """
        if not flight.sent:
            self._went_out(flight)
            self._received(now)
        elif latency is not None:
            self._measure(latency)
        if outcome is None:
            return
        self.answered(flight, now)
        treatment = TREATMENT[outcome]
        if treatment.back_off:
            self._refused(flight, now, asked_for(retry_after))
        elif treatment.circuit is Circuit.SUCCESS and flight.incident == self._incident and self._level:
            self._calm += 1
            if self._calm >= CALM:
                self._calm = 0
                self._level -= 1

    def discovered(self, count: int, pressure: int, now: float) -> None:
        """Pages of the domain added `count` URLs to the frontier, of any domain.

        `pressure`: URLs that wait because of it. Up to the high-water mark nothing follows. After: above it, the next request starts
        when the new URLs are worth their time; none is lost.
        """
        if not self._per_second or pressure <= self._flood_mark:
            self._credit, self._credit_at = float(BURST), now
            return
        self._credit = min(self._credit + (now - self._credit_at) * self._per_second, BURST) - count
        self._credit_at = now

    def clocks(self, now: float) -> Clocks:
        """For the store; the circuit writes its part itself. A request that was started counts as sent this moment."""
        due = self._due() if self._unsent is None else max(self._due(), now + self.delay)
        return Clocks(
            next_request_in=max(due - now, 0.0),
            back_off_in=max(self._back_off_until - now, 0.0),
            back_off_level=self._level,
            response_ms=None if self._average is None else self._average * 1000,
            best_response_ms=None if self._best is None else self._best * 1000,
            delay=self.delay,
            delay_source=self.source,
        )

    def _debt(self, now: float) -> float:
        """Seconds until the URLs that were added are worth their time."""
        if self._credit >= 0 or not self._per_second:
            return 0.0
        return max(0.0, -self._credit / self._per_second - (now - self._credit_at))

    def _flood(self, now: float) -> float:
        return min(self._debt(now), LONGEST_FLOOD_WAIT) if self._credit < 0 else 0.0

    def _due(self) -> float:
        # Not kept, but worked out anew: the delay may have become longer since, by the robots.txt that this was the request for.
        delay = self.delay
        received = min(self._answered, self._sent + min(delay, ON_THE_WAY))
        return max(self._not_before, received + delay)

    def _received(self, now: float) -> None:
        """The server may have got something until now, and nothing after it."""
        self._latest = None
        self._sent = self._answered = now

    def _went_out(self, flight: Flight) -> None:
        if self._unsent is flight:
            self._unsent = None

    def _refused(self, flight: Flight, now: float, asked: float) -> None:
        step = 0.0
        if flight.incident == self._incident:  # it started after the last incident: a new one
            self._incident += 1
            self._level += 1
            first = max(self.delay, SHORTEST_BACK_OFF)
            longest = self._settings.max_back_off.total_seconds()
            step = min(first * 2 ** min(self._level - 1, 40), longest) * (1 + self._chance.uniform(0, BACK_OFF_JITTER))
        self._calm = 0
        self._back_off_until = max(self._back_off_until, now + max(step, asked))

    def _measure(self, latency: float) -> None:
        before = latency if self._average is None else self._average
        self._average = before + WEIGHT * (latency - before)
        self._samples += 1
        if self._samples >= WARM:
            self._best = self._average if self._best is None else min(self._best, self._average)

    def _slowdown(self) -> float:
        if self._average is None or self._best is None:
            return 0.0
        slower = self._average - self._best
        if slower <= SLOWER_BY or self._average <= SLOWER * self._best:
            return 0.0
        return min(slower, self._settings.max_crawl_delay.total_seconds())
