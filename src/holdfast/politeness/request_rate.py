"""The request rate of a domain: when the next request may start.

The rule: delay and back-off are two clocks, and both must have run out. The delay counts from when the server has received the request;
that is known when its answer begins, and assumed after `ASSUMED_TRANSIT` seconds. While a request that started has not been sent, no other
starts. A burst of refusals among requests that were in flight together is one incident, and one incident is one step of back-off, whatever
Retry-After says; a longer Retry-After makes that step longer.

The flood guard is a third clock: above the high-water mark of waiting URLs, requests start only as fast as `crawl.discovered_per_second`
allows.
"""

import math
import random
from datetime import timedelta
from typing import Final

from holdfast.model.activity import DelaySource, Wait, WaitKind
from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.outcome import TREATMENT, Circuit, Outcome
from holdfast.politeness.retry import retry_after_seconds
from holdfast.settings import Crawl, Politeness

ASSUMED_TRANSIT: Final = 0.5
"""Seconds, capped at the delay, after which a request without an answer counts as received. Slow servers get requests that much less often,
and no request waits for the answer to another."""

MIN_BACK_OFF: Final = 1.0
BACK_OFF_JITTER: Final = 0.25
SUCCESSES_PER_STEP: Final = 5
"""Successes in a row that undo one step of back-off."""

AVERAGE_WEIGHT: Final = 0.2
"""Weight of the newest answer in the moving average."""
WARM_UP_ANSWERS: Final = 8
"""Answers before the average counts as the server's best: a first quick 404 does not."""
SLOW_FACTOR: Final = 2.0
SLOW_MARGIN: Final = 0.2
"""A server is slow when its average is `SLOW_FACTOR` times its best, and at least this many seconds longer."""

URL_BURST: Final = 1000
"""New URLs that pages of a domain may add at once, above the high-water mark."""
MAX_FLOOD_WAIT: Final = 10.0
"""Maximum wait in seconds that the flood guard returns at a time. A longer wait is repeated, so that it ends no visit."""


class RequestTiming:
    """The timing of one request."""

    __slots__ = ("incident", "sent")

    def __init__(self, incident: int) -> None:
        """`incident`: the number of incidents when it starts."""
        self.incident = incident
        self.sent = False


class RequestRate:
    """The request rate of one domain in one visit. Times are seconds on the caller's clock."""

    __slots__ = (
        "_answered",
        "_average",
        "_back_off_until",
        "_base",
        "_best",
        "_crawl_delay",
        "_credit",
        "_credit_at",
        "_flood_mark",
        "_incident",
        "_latest",
        "_level",
        "_not_before",
        "_per_second",
        "_rng",
        "_samples",
        "_sent",
        "_settings",
        "_source",
        "_successes",
        "_unsent",
    )

    def __init__(
        self,
        settings: Politeness,
        crawl: Crawl,
        clocks: PolitenessClocks,
        now: float,
        rng: random.Random,
        *,
        delay: float,
        source: DelaySource = DelaySource.DOMAIN,
        crawl_delay: float | None = None,
    ) -> None:
        """Start from the stored state. `delay` is the job's or the domain's (`source`), `crawl_delay` that of robots.txt; both in
        seconds."""
        self._settings = settings
        self._rng = rng
        self._base = delay
        self._crawl_delay = crawl_delay or 0.0
        self._source = source
        self._not_before = now + clocks.next_request_in
        self._sent = self._answered = -math.inf
        if (
            clocks.delay is not None
        ):  # the last request is known: the current delay counts from it, not the previous visit's
            self._sent = self._answered = self._not_before - clocks.delay
            self._not_before = -math.inf
        self._latest: RequestTiming | None = None
        self._unsent: RequestTiming | None = None
        self._back_off_until = now + clocks.back_off_in
        self._level = clocks.back_off_level
        self._incident = 0
        self._successes = 0
        self._average = None if clocks.response_ms is None else clocks.response_ms / 1000
        self._best = None if clocks.best_response_ms is None else clocks.best_response_ms / 1000
        self._samples = 0 if clocks.response_ms is None else WARM_UP_ANSWERS
        self._per_second = crawl.discovered_per_second
        self._flood_mark = crawl.flood_mark
        self._credit = float(URL_BURST)
        self._credit_at = now

    @property
    def delay(self) -> float:
        """Seconds between two requests now: the larger of the two delays, and more while the server is slow."""
        return max(self._base, self._crawl_delay) + self._slowdown()

    @property
    def source(self) -> DelaySource:
        """The origin of the delay."""
        if self._slowdown() > 0:
            return DelaySource.LEARNT
        return DelaySource.ROBOTS if self._crawl_delay > self._base else self._source

    @property
    def back_off_level(self) -> int:
        """Steps of back-off in force."""
        return self._level

    def set_crawl_delay(self, crawl_delay: float | None) -> None:
        """Apply the crawl delay of a new robots.txt. After: it holds, also after the request that fetched it."""
        self._crawl_delay = crawl_delay or 0.0

    def set_delay(self, delay: float) -> None:
        """Apply a delay that an operator changed on the domain or the job. After: it counts from the last request, also for the next
        visit."""
        self._base = delay

    def assume_unrecorded_request(self, now: float) -> None:
        """Assume a request just now: the previous visit ended without a release. After: one full delay passes first."""
        self._assume_received(now)

    def wait(self, now: float) -> float:
        """Seconds until a request may start: 0 means now, infinity means not before the started one is sent or ended."""
        if self._unsent is not None:
            return math.inf
        return max(self._due() - now, self._back_off_until - now, self._flood_wait(now), 0.0)

    def overdue(self, now: float) -> float:
        """Seconds for which a request could have started; 0: none may start, or one that has started is not sent yet."""
        if self._unsent is not None or self._flood_debt(now) > 0:
            return 0.0
        return max(0.0, now - max(self._due(), self._back_off_until))

    def reason(self, now: float) -> Wait | None:
        """The wait that ends last; None: a request may start, or one that has started is not sent yet."""
        if self._unsent is not None:
            return None
        waits = (
            Wait(WaitKind.DELAY, self._due() - now),
            Wait(WaitKind.BACK_OFF, self._back_off_until - now),
            Wait(WaitKind.FLOOD_GUARD, self._flood_debt(now)),
        )
        longest = max(waits, key=lambda wait: wait.seconds)
        return longest if longest.seconds > 0 else None

    def started(self) -> RequestTiming:
        """Register the start of a request. Before: `wait` is 0. After: no other may start until this one is sent or ended."""
        self._unsent = RequestTiming(self._incident)
        return self._unsent

    def sent(self, request: RequestTiming, now: float) -> None:
        """Record that the request is sent. After: the delay counts from when the server receives it."""
        request.sent = True
        self._clear_unsent(request)
        self._latest = request
        self._sent, self._answered = now, math.inf

    def answered(self, request: RequestTiming, now: float) -> None:
        """Record that the answer begins, so the server has the request. After: the delay counts from now at the latest."""
        if self._latest is request:
            self._latest = None
            self._answered = now

    def ended(
        self,
        request: RequestTiming,
        now: float,
        latency: float | None,
        outcome: Outcome | None,
        retry_after: timedelta | None = None,
    ) -> None:
        """Record the end of the request, `latency` seconds after its start. After: clocks and averages are updated.

        Outcome None: we cancelled it ourselves, which says nothing about the server.
        """
        if not request.sent:
            self._clear_unsent(request)
            self._assume_received(now)
        elif latency is not None:
            self._measure(latency)
        if outcome is None:
            return
        self.answered(request, now)
        treatment = TREATMENT[outcome]
        if treatment.back_off:
            self._back_off(request, now, retry_after_seconds(retry_after))
        elif treatment.circuit is Circuit.SUCCESS and request.incident == self._incident and self._level:
            self._successes += 1
            if self._successes >= SUCCESSES_PER_STEP:
                self._successes = 0
                self._level -= 1

    def discovered(self, count: int, pressure: int, now: float) -> None:
        """Record that pages of the domain added `count` URLs to the frontier, of any domain.

        `pressure`: URLs that wait because of it. Nothing happens up to the high-water mark. After: above it, the next request waits until
        the new URLs fit the rate; no URL is lost.
        """
        if not self._per_second or pressure <= self._flood_mark:
            self._credit, self._credit_at = float(URL_BURST), now
            return
        self._credit = min(self._credit + (now - self._credit_at) * self._per_second, URL_BURST) - count
        self._credit_at = now

    def clocks(self, now: float) -> PolitenessClocks:
        """The state to store, without the circuit breaker's part. A request that started but was not sent counts as sent now."""
        due = self._due() if self._unsent is None else max(self._due(), now + self.delay)
        return PolitenessClocks(
            next_request_in=max(due - now, 0.0),
            back_off_in=max(self._back_off_until - now, 0.0),
            back_off_level=self._level,
            response_ms=None if self._average is None else self._average * 1000,
            best_response_ms=None if self._best is None else self._best * 1000,
            delay=self.delay,
            delay_source=self.source,
        )

    def _flood_debt(self, now: float) -> float:
        """Seconds until the added URLs fit the allowed rate."""
        if self._credit >= 0 or not self._per_second:
            return 0.0
        return max(0.0, -self._credit / self._per_second - (now - self._credit_at))

    def _flood_wait(self, now: float) -> float:
        return min(self._flood_debt(now), MAX_FLOOD_WAIT) if self._credit < 0 else 0.0

    def _due(self) -> float:
        # Computed each time: the delay may have grown since, by the robots.txt that this request fetched.
        delay = self.delay
        received = min(self._answered, self._sent + min(delay, ASSUMED_TRANSIT))
        return max(self._not_before, received + delay)

    def _assume_received(self, now: float) -> None:
        """Assume that the server received its last request now."""
        self._latest = None
        self._sent = self._answered = now

    def _clear_unsent(self, request: RequestTiming) -> None:
        if self._unsent is request:
            self._unsent = None

    def _back_off(self, request: RequestTiming, now: float, retry_after: float) -> None:
        step = 0.0
        if request.incident == self._incident:  # it started after the last incident, so this is a new one
            self._incident += 1
            self._level += 1
            first = max(self.delay, MIN_BACK_OFF)
            longest = self._settings.max_back_off.total_seconds()
            step = min(first * 2 ** min(self._level - 1, 40), longest) * (1 + self._rng.uniform(0, BACK_OFF_JITTER))
        self._successes = 0
        self._back_off_until = max(self._back_off_until, now + max(step, retry_after))

    def _measure(self, latency: float) -> None:
        before = latency if self._average is None else self._average
        self._average = before + AVERAGE_WEIGHT * (latency - before)
        self._samples += 1
        if self._samples >= WARM_UP_ANSWERS:
            self._best = self._average if self._best is None else min(self._best, self._average)

    def _slowdown(self) -> float:
        if self._average is None or self._best is None:
            return 0.0
        slower = self._average - self._best
        if slower <= SLOW_MARGIN or self._average <= SLOW_FACTOR * self._best:
            return 0.0
        return min(slower, self._settings.max_crawl_delay.total_seconds())
