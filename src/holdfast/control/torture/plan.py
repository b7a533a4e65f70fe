"""What is crawled under torture, how, and which faults strike when.

The rule: all of it follows from the seed, and nothing in the web that is crawled ends differently because of time or luck. So a crawl
with faults must end exactly like one without.
"""

import math
import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from holdfast.settings import Flush, Politeness
from holdfast.simweb.plan import Odd, Robots, Site, Web

SITES: Final = 8
"""Large ones; one with a long Crawl-delay and one of a single page come on top."""
WORK_PER_FAULT: Final = 1.3
"""Seconds of crawling that each fault should find."""
SOONEST: Final = 0.3
LATEST: Final = 1.5
"""Seconds from the first request of a life to the fault that ends it."""
CONCURRENCY: Final = 2
SCOPE: Final = "any"
CRAWL_DELAY: Final = 1.5
"""What the robots.txt of one site asks for: longer than a crawl takes to come back, so that haste after a crash would show."""
LEASE: Final = 5.0
SWEEP: Final = 1.0
FLUSH: Final = Flush(pages=25)
SHARE: Final = 8
"""Pages of a domain in a round: so few that there are several."""


class Fault(StrEnum):
    """What is done to a crawl."""

    KILL_ALL = "kill -9 of the whole crawl"
    KILL_ONE = "kill -9 of one worker"
    FREEZE = "a worker frozen past its lease"
    KILL_WITH_SERVER = "kill -9 of the crawl and its database server"


@dataclass(frozen=True, slots=True)
class Stroke:
    """One fault."""

    fault: Fault
    after: float
    """Seconds after the first request that the present life was seen to make."""
    which: float
    """0 to 1: which of the workers."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A crawl and its faults."""

    seed: int
    workers: int
    web: Web
    strokes: tuple[Stroke, ...]
    delay: float
    """Seconds between two requests to a site: so slow that every fault finds a crawl under way."""
    concurrency: int = CONCURRENCY

    @property
    def window(self) -> int:
        """Fetches that the death of one worker may cost again: the batch that fills, the one being committed, what is in flight."""
        return 2 * FLUSH.pages + self.domains_per_worker * self.concurrency

    @property
    def domains_per_worker(self) -> int:
        """So few that all workers get some, and enough that some can take over another's. One alone leaves some for the next round."""
        return max(1, self.web.sites - 2) if self.workers == 1 else math.ceil(self.web.sites / self.workers) + 1

    def lost_at_most(self, strokes: tuple[Stroke, ...]) -> int:
        """Fetches that these faults may cost again, all together."""
        whole = {Fault.KILL_ALL, Fault.KILL_WITH_SERVER}
        return sum(self.window * (self.workers if stroke.fault in whole else 1) for stroke in strokes)


def make(*, seed: int, pages: int, workers: int, kills: int, faults: tuple[Fault, ...] = ()) -> Plan:
    """A plan of `kills` faults on a web of about `pages` pages. Without `faults`, a mixture that suits the number of workers."""
    dice = random.Random(seed)  # noqa: S311 — the same every time
    mixture = faults or _mixture(workers)
    strokes = tuple(
        Stroke(dice.choice(mixture), dice.uniform(SOONEST, LATEST), dice.random()) for _ in range(max(0, kills))
    )
    if (
        Fault.FREEZE in mixture and len(mixture) > 1 and len(strokes) > 2
    ):  # one at least, not too many: each takes a lease
        frozen = dice.randrange(len(strokes))
        strokes = tuple(
            replace(stroke, fault=Fault.FREEZE) if place == frozen else _killing(stroke)
            for place, stroke in enumerate(strokes)
        )
    large = max(1, pages // SITES)
    seconds = WORK_PER_FAULT * len(strokes) + (LEASE if any(s.fault is Fault.FREEZE for s in strokes) else 0)
    delay = min(1.0, seconds / large)
    return Plan(seed, workers, _web(seed, large), strokes, round(delay, 3))


def _mixture(workers: int) -> tuple[Fault, ...]:
    if workers == 1:
        return (Fault.KILL_ALL,)
    return (Fault.KILL_ALL, Fault.KILL_ALL, Fault.KILL_ONE, Fault.FREEZE)


def _killing(stroke: Stroke) -> Stroke:
    return replace(stroke, fault=Fault.KILL_ONE) if stroke.fault is Fault.FREEZE else stroke


def _web(seed: int, pages: int) -> Web:
    """Everything that a crawl must get right: errors that pass and errors that stay, redirects, copies, dead links, closed doors."""
    usual = dict.fromkeys((Odd.MISSING, Odd.MOVED, Odd.COPY, Odd.PRIVATE, Odd.HIDDEN), 0.03)
    rare = dict.fromkeys(
        (Odd.GONE, Odd.BROKEN, Odd.LOOP, Odd.FAR, Odd.AWAY, Odd.NOFOLLOW, Odd.NOINDEX, Odd.BINARY), 0.01
    )
    site = Site(
        pages, 12, 3000, external=0.1, latency=0.005, jitter=0.02, robots=Robots.DENY, flaky=0.04, odd=usual | rare
    )
    slow = Site(4, 4, 2000, robots=Robots.ALLOW, crawl_delay=CRAWL_DELAY, external=0.5)
    return Web(seed, SITES + 2, site, {SITES: slow, SITES + 1: Site(1)})


def crawl_settings(plan: Plan) -> dict[str, str]:
    """Settings of the crawls, by name: everything that waits for seconds is made quick, nothing that keeps a promise is changed."""
    return {
        "claims.lease": f"{LEASE:g}s",
        "claims.sweep_interval": f"{SWEEP:g}s",
        "claims.batch": "1" if plan.workers > 1 else "10",
        "fetch.timeout": "2s",
        "worker.heartbeat": "1s",
        "worker.idle": "0.1s",
        "worker.domains": str(plan.domains_per_worker),
        "flush.pages": str(FLUSH.pages),
        "flush.seconds": "0.4s",
        "politeness.retry_delay": "0.05s",
        "politeness.circuit_open": "0.1s",
        "crawl.discovered_per_second": "0",
        "crawl.max_depth": "1000",
        "domains.max_pages_per_run": str(SHARE),
        "fetch.allow_private": "true",
    }


RETRIES: Final = Politeness().retries
