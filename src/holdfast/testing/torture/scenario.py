"""Scenarios: the simulated web, the settings of the crawl, and the faults with their times.

The rule: everything follows from the seed, and the simulated web does not depend on time or chance. So a crawl with faults must end
exactly like one without.
"""

import math
import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from holdfast.settings import Flush, Politeness
from holdfast.testing.simweb.spec import ImageKind, Robots, Site, SpecialUrl, Web

SITES: Final = 8
"""Large sites; one with a long Crawl-delay and one of a single page are added."""
WORK_PER_FAULT: Final = 1.3
"""Seconds of crawling per fault."""
EARLIEST_FAULT: Final = 0.3
LATEST_FAULT: Final = 1.5
"""Seconds from the first request after a start to the fault."""
CONCURRENCY: Final = 2
SCOPE: Final = "any"
CRAWL_DELAY: Final = 1.5
"""Seconds in the robots.txt of one site: longer than a restart takes, so that a request too early after a crash is detected."""
LEASE: Final = 5.0
SWEEP: Final = 1.0
FLUSH: Final = Flush(pages=25)
LISTED: Final = 4
"""Pages of each large site that only its sitemaps list."""
PAGES_PER_ROUND: Final = 8
"""Pages of a domain in a round; low, so that there are several rounds."""


IMAGE_KINDS: Final = tuple(
    kind for kind in ImageKind if kind not in (ImageKind.PLAIN, ImageKind.BROKEN, ImageKind.PACKED)
)
"""Without those that always fail with 500, by which their host would be given up, and without those that take long to make."""


class Fault(StrEnum):
    """Kinds of faults."""

    KILL_ALL = "kill -9 of the whole crawl"
    KILL_ONE = "kill -9 of one worker"
    FREEZE = "a worker frozen past its lease"
    KILL_WITH_SERVER = "kill -9 of the crawl and its database server"


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault of a scenario."""

    fault: Fault
    after: float
    """Seconds after the first request since the last start."""
    which: float
    """0 to 1: selects one of the workers."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A crawl and the faults injected into it."""

    seed: int
    workers: int
    web: Web
    planned_faults: tuple[PlannedFault, ...]
    delay: float
    """Seconds between two requests to a site; long enough that every fault hits a running crawl."""
    concurrency: int = CONCURRENCY

    @property
    def has_images(self) -> bool:
        """Whether pages of the web show images: the crawl stores them, and they are checked."""
        return any(self.web.site(number).images for number in range(self.web.sites))

    @property
    def max_repeats_per_worker(self) -> int:
        """Fetches repeated at most after the death of one worker: the current batch, the batch being committed, requests in flight."""
        return 2 * FLUSH.pages + self.domains_per_worker * self.concurrency

    @property
    def domains_per_worker(self) -> int:
        """Low enough that all workers get domains, high enough that one can take over another's. A single worker leaves some for the
        next round."""
        return max(1, self.web.sites - 2) if self.workers == 1 else math.ceil(self.web.sites / self.workers) + 1

    def max_repeats(self, planned_faults: tuple[PlannedFault, ...]) -> int:
        """Fetches repeated at most because of these faults."""
        kills_all = {Fault.KILL_ALL, Fault.KILL_WITH_SERVER}
        return sum(
            self.max_repeats_per_worker * (self.workers if planned.fault in kills_all else 1)
            for planned in planned_faults
        )


def make_scenario(
    *, seed: int, pages: int, workers: int, kills: int, faults: tuple[Fault, ...] = (), images: bool = False
) -> Scenario:
    """Make a scenario of `kills` faults on a web of about `pages` pages. Without `faults`, a mixture for the number of workers. `images`:
    its pages show images, most of them on two other hosts."""
    rng = random.Random(seed)  # noqa: S311 — reproducible
    mixture = faults or _mixture(workers)
    planned_faults = tuple(
        PlannedFault(rng.choice(mixture), rng.uniform(EARLIEST_FAULT, LATEST_FAULT), rng.random())
        for _ in range(max(0, kills))
    )
    if (
        Fault.FREEZE in mixture and len(mixture) > 1 and len(planned_faults) > 2
    ):  # one at least, not too many: each takes a lease
        frozen = rng.randrange(len(planned_faults))
        planned_faults = tuple(
            replace(planned, fault=Fault.FREEZE) if index == frozen else _without_freeze(planned)
            for index, planned in enumerate(planned_faults)
        )
    large = max(1, pages // SITES)
    seconds = WORK_PER_FAULT * len(planned_faults) + (
        LEASE if any(s.fault is Fault.FREEZE for s in planned_faults) else 0
    )
    delay = min(1.0, seconds / large)
    web = _web(seed, large)
    return Scenario(seed, workers, _with_images(web) if images else web, planned_faults, round(delay, 3))


def _mixture(workers: int) -> tuple[Fault, ...]:
    if workers == 1:
        return (Fault.KILL_ALL,)
    return (Fault.KILL_ALL, Fault.KILL_ALL, Fault.KILL_ONE, Fault.FREEZE)


def _without_freeze(planned: PlannedFault) -> PlannedFault:
    return replace(planned, fault=Fault.KILL_ONE) if planned.fault is Fault.FREEZE else planned


def _web(seed: int, pages: int) -> Web:
    """A web with transient and permanent errors, redirects, duplicates, dead links and disallowed pages."""
    common = dict.fromkeys(
        (SpecialUrl.MISSING, SpecialUrl.MOVED, SpecialUrl.COPY, SpecialUrl.PRIVATE, SpecialUrl.HIDDEN), 0.03
    )
    rare = dict.fromkeys(
        (
            SpecialUrl.GONE,
            SpecialUrl.BROKEN,
            SpecialUrl.LOOP,
            SpecialUrl.FAR,
            SpecialUrl.AWAY,
            SpecialUrl.NOFOLLOW,
            SpecialUrl.NOINDEX,
            SpecialUrl.BINARY,
        ),
        0.01,
    )
    site = Site(
        *(pages, 12, 3000),
        external=0.1,
        latency=0.005,
        jitter=0.02,
        robots=Robots.DENY,
        flaky=0.04,
        listed=LISTED,
        odd=common | rare,
    )
    slow = Site(4, 4, 2000, robots=Robots.ALLOW, crawl_delay=CRAWL_DELAY, external=0.5)
    return Web(seed, SITES + 2, site, {SITES: slow, SITES + 1: Site(1)})


def _with_images(web: Web) -> Web:
    """The web with images: those of the large sites on a host that denies /private/, those of one on the site itself, and those of the slow
    site on a host that asks for the same delay."""
    first, last = web.sites, web.sites + 1
    default = replace(web.default, images=3, gallery=len(IMAGE_KINDS), image_kinds=IMAGE_KINDS, image_host=first)
    own = tuple(kind for kind in IMAGE_KINDS if kind is not ImageKind.AWAY)
    special = {
        0: replace(default, image_kinds=own, image_host=None),
        **web.special,
        SITES: replace(web.special[SITES], images=2, gallery=2, image_host=last),
        first: Site(1, robots=Robots.DENY),
        last: Site(1, robots=Robots.ALLOW, crawl_delay=CRAWL_DELAY),
    }
    return replace(web, sites=web.sites + 2, default=default, special=special)


def crawl_settings(scenario: Scenario) -> dict[str, str]:
    """Settings of the crawls, by name: waiting times are shortened, nothing that affects durability is changed."""
    return {
        "claims.lease": f"{LEASE:g}s",
        "claims.sweep_interval": f"{SWEEP:g}s",
        "claims.batch": "1" if scenario.workers > 1 else "10",
        "fetch.timeout": "2s",
        "worker.heartbeat": "1s",
        "worker.idle": "0.1s",
        "worker.domains": str(scenario.domains_per_worker),
        "flush.pages": str(FLUSH.pages),
        "flush.seconds": "0.4s",
        "politeness.retry_delay": "0.05s",
        "politeness.circuit_open": "0.1s",
        "crawl.discovered_per_second": "0",
        "crawl.max_depth": "1000",
        "domains.max_pages_per_run": str(PAGES_PER_ROUND),
        "fetch.allow_private": "true",
    }


RETRIES: Final = Politeness().retries
