"""A fault injection experiment: a crawl without faults, the same crawl with them, and the comparison of both.

The rule: both crawls see the same web at the same address, served by a new process each, so that the results can be compared byte by
byte.
"""

import random
import socket
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.testing.simweb.access_log import Hit
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.site import ExpectedPage
from holdfast.testing.torture import checks
from holdfast.testing.torture.checks import UrlResults
from holdfast.testing.torture.fault_run import FaultRun, FaultRunResult, OnProgress
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import Scenario

Crawl = Callable[[Scenario, Sandbox, WebProcess, OnProgress], FaultRunResult]
"""Runs a crawl under faults."""

_PORTS: Final = (10_240, 32_000)
"""Below the ephemeral ports: the second crawl must find the same port free again."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The result of a crawl without faults, to which the others are compared."""

    port: int
    results: UrlResults
    hits: list[Hit]
    expected: list[ExpectedPage]
    seconds: float
    violations: list[str]


@dataclass(slots=True)
class Report:
    """The result of an experiment."""

    seed: int
    workers: int
    urls: int
    """URLs in the store."""
    pages: int
    planned: int
    landed: dict[str, int]
    lives: int
    requests: int
    repeats: int
    """Requests that a crawl without faults would not have made."""
    max_repeats: int
    """The maximum of `repeats` that the faults account for."""
    first_fetch: float
    """Median seconds from a start of the crawl to its first request."""
    slowest_first_fetch: float
    kept_claims: int
    """Frozen workers that kept their domains because they held row locks."""
    refusals: int
    """Log lines in which a worker reports a lost claim."""
    seconds: float
    violations: list[str] = field(default_factory=list)

    @property
    def landed_count(self) -> int:
        """The number of faults that hit a running crawl."""
        return sum(self.landed.values())

    @property
    def ok(self) -> bool:
        """There are no violations, and at least one fault landed (if any was planned)."""
        return not self.violations and (self.landed_count > 0 or not self.planned)

    def as_json(self) -> dict[str, Any]:
        """The report for `--json`."""
        return {
            "ok": self.ok,
            "seed": self.seed,
            "workers": self.workers,
            "urls": self.urls,
            "pages": self.pages,
            "faults": {"planned": self.planned, "landed": self.landed_count, "by_kind": self.landed},
            "lives": self.lives,
            "requests": self.requests,
            "repeated_requests": self.repeats,
            "repeated_requests_allowed": self.max_repeats,
            "first_fetch_seconds": {
                "median": round(self.first_fetch, 2),
                "slowest": round(self.slowest_first_fetch, 2),
            },
            "refused_writes": self.refusals,
            "seconds": round(self.seconds, 1),
            "violations": self.violations,
        }


def run_reference(scenario: Scenario, sandbox: Sandbox, *, keep: bool = False) -> Reference:
    """Crawl the web of the scenario without faults and delays, into a store of its own."""
    began = time.monotonic()
    with WebProcess(scenario.web, port=_free_port()) as web, sandbox:
        sandbox.keep = keep
        without_faults = Scenario(scenario.seed, 1, scenario.web, (), 0.0, scenario.concurrency)
        run = FaultRun(without_faults, sandbox, web, lambda _: None, delay=0.0).run()
        expected = expected_pages(web)
        found = checks.read_results(sandbox.database())
        hits = web.log()
        faults = [*run.violations, *checks.verify_store(sandbox), *checks.compare_expected(expected, found)]
        faults += checks.check_politeness(without_faults, web.address, expected, hits)
        return Reference(
            web.port, found, hits, expected, time.monotonic() - began, [f"without any fault: {f}" for f in faults]
        )


def run_with_faults(
    scenario: Scenario,
    reference: Reference,
    sandbox: Sandbox,
    on_progress: OnProgress,
    *,
    keep: bool = False,
    crawl: Crawl | None = None,
) -> Report:
    """Crawl the same web under the scenario's faults, and compare. `crawl` replaces the default fault run."""
    began = time.monotonic()
    with WebProcess(scenario.web, port=reference.port) as web, sandbox:
        sandbox.keep = keep
        run = (
            crawl(scenario, sandbox, web, on_progress) if crawl else FaultRun(scenario, sandbox, web, on_progress).run()
        )
        report = evaluate(scenario, reference, sandbox, web, run)
        report.seconds = time.monotonic() - began
        sandbox.keep = keep or not report.ok
        return report


def evaluate(
    scenario: Scenario, reference: Reference, sandbox: Sandbox, web: WebProcess, run: FaultRunResult
) -> Report:
    """Check the results of a crawl against the reference, the expected pages and the access log."""
    hits = web.log()
    found = checks.read_results(sandbox.database())
    faults = [*run.violations]
    faults += [f"at the end: {fault}" for fault in checks.verify_store(sandbox)]
    faults += checks.compare_expected(reference.expected, found)
    faults += checks.compare_results(reference.results, found)
    faults += checks.check_politeness(scenario, web.address, reference.expected, hits)
    repeats = checks.count_repeats(hits, reference.hits)
    max_repeats = scenario.max_repeats(scenario.planned_faults[: len(run.injected)]) + run.allowed_repeats
    if repeats > max_repeats:
        faults.append(f"I9 {repeats} requests were repeated, and the faults account for {max_repeats} at most")
    logs = sandbox.logs()
    return Report(
        seed=scenario.seed,
        workers=scenario.workers,
        urls=len(found),
        pages=sum(end.content is not None for end in found.values()),
        planned=len(scenario.planned_faults),
        landed={str(fault): count for fault, count in run.landed.items()},
        lives=run.lives,
        requests=len(hits),
        repeats=repeats,
        max_repeats=max_repeats,
        first_fetch=statistics.median(run.first_fetch or [0.0]),
        slowest_first_fetch=max(run.first_fetch, default=0.0),
        kept_claims=sum(not injected.lost_claims for injected in run.injected),
        refusals=logs.count("their leases ended, or they were taken over") + logs.count("were refused at a commit"),
        seconds=0.0,
        violations=faults,
    )


def expected_pages(web: WebProcess) -> list[ExpectedPage]:
    """The expected pages of all sites."""
    return [page for site in range(web.web.sites) for page in web.expected(site)]


def _free_port() -> int:
    rng = random.SystemRandom()
    while True:
        port = rng.randint(*_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
