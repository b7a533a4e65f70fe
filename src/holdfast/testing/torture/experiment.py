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

from holdfast.images.records import Garbage
from holdfast.testing.simweb.access_log import Hit
from holdfast.testing.simweb.expected_images import ExpectedImages, expected_images
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.simweb.site import ExpectedPage
from holdfast.testing.torture import checks, image_checks
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
    images: ExpectedImages | None = None
    """The images of the web; None: its pages show none."""


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
    images: int | None = None
    """Images that are stored; None: the web has none."""
    garbage: Garbage | None = None
    """What `holdfast gc` deleted at the end."""

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
            "images": self._images_as_json(),
            "seconds": round(self.seconds, 1),
            "violations": self.violations,
        }

    def _images_as_json(self) -> dict[str, int] | None:
        if self.images is None or self.garbage is None:
            return None
        found = {"stored": self.images, "orphans": self.garbage.files, "unfinished_files": self.garbage.leftovers}
        return found | {"without_a_page": self.garbage.images}


def run_reference(scenario: Scenario, sandbox: Sandbox, *, keep: bool = False) -> Reference:
    """Crawl the web of the scenario without faults and delays, into a store of its own."""
    began = time.monotonic()
    with WebProcess(scenario.web, port=_free_port()) as web, sandbox:
        sandbox.keep = keep
        without_faults = Scenario(scenario.seed, 1, scenario.web, (), 0.0, scenario.concurrency)
        run = FaultRun(without_faults, sandbox, web, lambda _: None, delay=0.0).run()
        images = _expected_images(scenario, web)
        expected = expected_pages(web) + (images.pages if images else [])
        found = checks.read_results(sandbox.database())
        hits = web.log()
        faults = [*run.violations, *checks.verify_store(sandbox), *checks.compare_expected(expected, found)]
        faults += checks.check_politeness(without_faults, web.address, expected, hits)
        if images is not None:
            garbage, problems = _check_images(images, sandbox)
            faults += problems
            if garbage.files or garbage.leftovers:
                faults.append(f"I11 gc has found {garbage.files} orphans and {garbage.leftovers} unfinished files")
        violations = [f"without any fault: {fault}" for fault in faults]
        return Reference(web.port, found, hits, expected, time.monotonic() - began, violations, images)


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
    garbage = None
    if reference.images is not None:
        garbage, problems = _check_images(reference.images, sandbox)
        faults += problems
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
        images=len(reference.images.stored) if reference.images else None,
        garbage=garbage,
    )


def _expected_images(scenario: Scenario, web: WebProcess) -> ExpectedImages | None:
    return expected_images(web.web, web.address) if scenario.has_images else None


def _check_images(expected: ExpectedImages, sandbox: Sandbox) -> tuple[Garbage, list[str]]:
    """Compare the images of a crawl that has ended with the web, then collect garbage and verify all files once more."""
    faults = image_checks.compare_images(expected, sandbox.database())
    garbage, orphans = image_checks.collect_garbage(sandbox.database(), sandbox.images)
    return garbage, faults + orphans + [f"after gc: {fault}" for fault in checks.verify_store(sandbox)]


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
