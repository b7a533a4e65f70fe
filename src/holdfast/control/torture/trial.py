"""A whole trial: a crawl without faults, the same with them, and what proves that they ended alike.

The rule: both crawls see the same web at the same address, served anew for each, so that what they find can be compared byte by byte.
"""

import random
import socket
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.control.torture import proof
from holdfast.control.torture.ground import Ground
from holdfast.control.torture.ordeal import Ordeal, Suffered, Tell
from holdfast.control.torture.plan import Plan
from holdfast.control.torture.proof import Ends
from holdfast.simweb.log import Hit
from holdfast.simweb.process import WebProcess
from holdfast.simweb.site import ExpectedPage

Crawl = Callable[[Plan, Ground, WebProcess, Tell], Suffered]
"""A way to crawl under faults."""

_PORTS: Final = (10_240, 32_000)
"""Below those that systems give to connections: the second crawl must find the same port free again."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A crawl without faults: the measure of those with them."""

    port: int
    ends: Ends
    hits: list[Hit]
    expected: list[ExpectedPage]
    seconds: float
    violations: list[str]


@dataclass(slots=True)
class Report:
    """What a trial has shown."""

    seed: int
    workers: int
    urls: int
    """That the crawl has dealt with."""
    pages: int
    planned: int
    landed: dict[str, int]
    lives: int
    requests: int
    repeats: int
    """Requests that a crawl without faults would not have made."""
    most_repeats: int
    """How many there may be."""
    first_fetch: float
    """Seconds from a start to its first request, in the middle of all lives."""
    slowest_first_fetch: float
    not_taken_away: int
    """Frozen workers that kept their domains, because they had them locked."""
    refusals: int
    """Lines in which a worker says that a domain was not its own any more."""
    seconds: float
    violations: list[str] = field(default_factory=list)

    @property
    def struck(self) -> int:
        """Faults that landed."""
        return sum(self.landed.values())

    @property
    def ok(self) -> bool:
        """Nothing was lost, doubled or changed, and there were faults to show it by."""
        return not self.violations and (self.struck > 0 or not self.planned)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "ok": self.ok,
            "seed": self.seed,
            "workers": self.workers,
            "urls": self.urls,
            "pages": self.pages,
            "faults": {"planned": self.planned, "landed": self.struck, "by_kind": self.landed},
            "lives": self.lives,
            "requests": self.requests,
            "repeated_requests": self.repeats,
            "repeated_requests_allowed": self.most_repeats,
            "first_fetch_seconds": {
                "median": round(self.first_fetch, 2),
                "slowest": round(self.slowest_first_fetch, 2),
            },
            "refused_writes": self.refusals,
            "seconds": round(self.seconds, 1),
            "violations": self.violations,
        }


def without_faults(plan: Plan, ground: Ground, *, keep: bool = False) -> Reference:
    """Crawl the web of the plan as quickly as it goes, into a store of its own."""
    began = time.monotonic()
    with WebProcess(plan.web, port=_quiet_port()) as web, ground:
        ground.keep = keep
        calm = Plan(plan.seed, 1, plan.web, (), 0.0, plan.concurrency)
        suffered = Ordeal(calm, ground, web, lambda _: None, delay=0.0).run()
        expected = everything_expected(web)
        found = proof.ends(ground.database())
        hits = web.log()
        faults = [*suffered.violations, *proof.store_faults(ground), *proof.untrue(expected, found)]
        faults += proof.rude(calm, web.address, expected, hits)
        return Reference(
            web.port, found, hits, expected, time.monotonic() - began, [f"without any fault: {f}" for f in faults]
        )


def with_faults(
    plan: Plan,
    reference: Reference,
    ground: Ground,
    tell: Tell,
    *,
    keep: bool = False,
    crawl: Crawl | None = None,
) -> Report:
    """Crawl the same web under the plan's faults, and compare. `crawl` may be another way to do that."""
    began = time.monotonic()
    with WebProcess(plan.web, port=reference.port) as web, ground:
        ground.keep = keep
        suffered = crawl(plan, ground, web, tell) if crawl else Ordeal(plan, ground, web, tell).run()
        report = judge(plan, reference, ground, web, suffered)
        report.seconds = time.monotonic() - began
        ground.keep = keep or not report.ok
        return report


def judge(plan: Plan, reference: Reference, ground: Ground, web: WebProcess, suffered: Suffered) -> Report:
    """What is left of a crawl, against everything that is known of how it must be."""
    hits = web.log()
    found = proof.ends(ground.database())
    faults = [*suffered.violations]
    faults += [f"at the end: {fault}" for fault in proof.store_faults(ground)]
    faults += proof.untrue(reference.expected, found)
    faults += proof.unlike(reference.ends, found)
    faults += proof.rude(plan, web.address, reference.expected, hits)
    repeats = proof.repeats(hits, reference.hits)
    most = plan.lost_at_most(plan.strokes[: len(suffered.struck)]) + suffered.spare
    if repeats > most:
        faults.append(f"I9 {repeats} requests were repeated, and the faults account for {most} at most")
    logs = ground.logs()
    return Report(
        seed=plan.seed,
        workers=plan.workers,
        urls=len(found),
        pages=sum(end.content is not None for end in found.values()),
        planned=len(plan.strokes),
        landed={str(fault): count for fault, count in suffered.landed.items()},
        lives=suffered.lives,
        requests=len(hits),
        repeats=repeats,
        most_repeats=most,
        first_fetch=statistics.median(suffered.first_fetch or [0.0]),
        slowest_first_fetch=max(suffered.first_fetch, default=0.0),
        not_taken_away=sum(not struck.taken_away for struck in suffered.struck),
        refusals=logs.count("their leases ended, or they were taken over") + logs.count("were refused at a commit"),
        seconds=0.0,
        violations=faults,
    )


def everything_expected(web: WebProcess) -> list[ExpectedPage]:
    """The truth about all sites."""
    return [page for site in range(web.web.sites) for page in web.expected(site)]


def _quiet_port() -> int:
    dice = random.SystemRandom()
    while True:
        port = dice.randint(*_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
