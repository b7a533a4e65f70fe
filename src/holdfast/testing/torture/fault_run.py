"""Runs a crawl under faults: starts the same command after each fault until the crawl completes by itself.

The rule: a fault is injected after a request of the crawl was observed, and counts as landed only if the process was alive. After each
fault the store is checked, in the state that the fault left it in.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from holdfast.db import crawls
from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.torture import checks
from holdfast.testing.torture.process import CrawlProcess, is_alive, kill_server, send
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import LEASE, SCOPE, SWEEP, Fault, PlannedFault, Scenario, crawl_settings
from holdfast.workers import queries

_POLL_SECONDS: Final = 0.02
_HANG_SECONDS: Final = 120.0
"""Seconds without a request after which a crawl counts as hanging."""
_TAKEOVER_SECONDS: Final = LEASE + 3 * SWEEP
"""Seconds after which a frozen worker must have lost its domains."""
_SILENT_AFTER: Final = timedelta(minutes=1)
JOB: Final = "torture"

OnProgress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that was injected."""

    fault: Fault
    landed: bool
    requests: int
    """Requests to the sites at that time."""
    lost_claims: bool = True
    """A frozen worker lost its domains; False: it held row locks when it was frozen."""


@dataclass(slots=True)
class FaultRunResult:
    """The result of a crawl under faults."""

    injected: list[InjectedFault] = field(default_factory=list)
    lives: int = 0
    first_fetch: list[float] = field(default_factory=list)
    """Seconds from each start to its first request."""
    violations: list[str] = field(default_factory=list)
    completed: bool = False
    allowed_repeats: int = 0
    """Repeated requests that have other reasons than the faults."""

    @property
    def landed(self) -> Counter[Fault]:
        """Faults that hit a running crawl, by kind."""
        return Counter(injected.fault for injected in self.injected if injected.landed)


class FaultRun:
    """Runs one crawl and restarts it after each fault."""

    def __init__(
        self,
        scenario: Scenario,
        sandbox: Sandbox,
        web: WebProcess,
        on_progress: OnProgress,
        *,
        delay: float | None = None,
    ) -> None:
        """`on_progress` is called after each fault; `delay` (seconds) overrides the scenario's."""
        self._scenario = scenario
        self._sandbox = sandbox
        self._web = web
        self._on_progress = on_progress
        self._delay = scenario.delay if delay is None else delay
        self._result = FaultRunResult()
        self._late_writes = checks.LateWriteCheck()

    def run(self) -> FaultRunResult:
        """Inject every fault, then let the crawl finish. After: none of its processes runs."""
        result = self._result
        crawl = self._start()
        try:
            for number, planned in enumerate(self._scenario.planned_faults, 1):
                if not crawl.alive:
                    crawl = self._start()
                if not self._wait_for_request(crawl, planned.after):
                    break
                injected = self._inject(crawl, planned)
                result.injected.append(injected)
                self._check_store(number, injected)
            if not crawl.alive and not self._completed(crawl):
                crawl = self._start()
            self._finish(crawl)
            result.violations += self._late_writes.late_writes(self._sandbox.database())
        finally:
            crawl.kill()
        return result

    def _start(self) -> CrawlProcess:
        scenario = self._scenario
        arguments = [
            "crawl",
            *self._web.urls,
            "--job",
            JOB,
            "--scope",
            SCOPE,
            "--workers",
            str(scenario.workers),
            "--json",
        ]
        arguments += ["--delay", f"{self._delay:g}", "--concurrency", str(scenario.concurrency)]
        arguments += ["--max-depth", "1000", "--allow-private", *(["--images"] if scenario.has_images else [])]
        self._requests_before = self.requests()
        self._began = time.monotonic()
        self._result.lives += 1
        return CrawlProcess(
            ["--data", str(self._sandbox.data), *arguments],
            settings=crawl_settings(scenario) | self._sandbox.settings(),
            folder=self._sandbox.folder,
            supervised=scenario.workers > 1,
        )

    def requests(self) -> int:
        """The number of requests to the sites so far."""
        return sum(self._web.stats()["requests"].values())

    def _wait_for_request(self, crawl: CrawlProcess, seconds: float) -> bool:
        """Wait for a request since the last start and then for `seconds`; returns whether the crawl still runs."""
        before, began = self.requests(), time.monotonic()
        new_life = len(self._result.first_fetch) < self._result.lives
        if new_life:
            before = self._requests_before
        while crawl.alive and self.requests() <= before:
            if time.monotonic() - began > _HANG_SECONDS:
                self._result.violations.append(f"I8 no request within {_HANG_SECONDS:.0f} s")
                return False
            time.sleep(_POLL_SECONDS)
        if new_life and crawl.alive:
            self._result.first_fetch.append(time.monotonic() - self._began)
        return not crawl.wait(seconds)

    def _inject(self, crawl: CrawlProcess, planned: PlannedFault) -> InjectedFault:
        if planned.fault is Fault.KILL_ONE:
            pid, _ = self._holder(crawl, planned.which)
            return InjectedFault(planned.fault, pid is not None and send(pid, signal.SIGKILL), self.requests())
        if planned.fault is Fault.FREEZE:
            return self._freeze(crawl, planned)
        postmaster = self._sandbox.server().pid if planned.fault is Fault.KILL_WITH_SERVER else None
        landed, requests = crawl.alive, self.requests()
        crawl.kill()
        if postmaster is not None:
            kill_server(postmaster)
        return InjectedFault(planned.fault, landed, requests)

    def _holder(self, crawl: CrawlProcess, which: float) -> tuple[int | None, str]:
        """The pid and the name of a running worker that holds domains; None: there is none."""
        alive = set(crawl.workers())
        with self._sandbox.database().session() as connection:
            rows = [row for row in queries.at_work(connection, silence=_SILENT_AFTER) if row.held and row.pid in alive]
        if not rows:
            return None, ""
        row = rows[int(which * len(rows))]
        return row.pid, row.name

    def _freeze(self, crawl: CrawlProcess, planned: PlannedFault) -> InjectedFault:
        pid, name = self._holder(crawl, planned.which)
        if pid is None or not send(pid, signal.SIGSTOP):
            return InjectedFault(planned.fault, False, self.requests())
        until = time.monotonic() + _TAKEOVER_SECONDS
        try:
            while not (gone := self._holds_nothing(name)) and time.monotonic() < until:
                time.sleep(_POLL_SECONDS * 5)
            landed = is_alive(pid)
            self._result.violations += self._late_writes.late_writes(self._sandbox.database())
        finally:
            send(pid, signal.SIGCONT)
        return InjectedFault(planned.fault, landed, self.requests(), lost_claims=gone)

    def _holds_nothing(self, name: str) -> bool:
        with self._sandbox.database().session() as connection:
            return not queries.claims_by_worker(connection, name)

    def _describe_state(self) -> str:
        """Claims by worker and the state of the job, for the diagnosis of a hang."""
        with self._sandbox.database().session() as connection:
            held = {claims.worker: claims.claims for claims in queries.claims_by_worker(connection)}
            job = crawls.find(connection, name=JOB)
            return f"held {held}; {crawls.status(connection, job.id, job.crawl_id or 0) if job else 'there is no job'}"

    def _check_store(self, number: int, injected: InjectedFault) -> None:
        found = [*checks.verify_store(self._sandbox), *self._late_writes.late_writes(self._sandbox.database())]
        faults = [f"after fault {number}: {fault}" for fault in found]
        self._result.violations += faults
        how = "no process was alive" if not injected.landed else f"{injected.requests} requests so far"
        self._on_progress(
            f"{number}/{len(self._scenario.planned_faults)} {injected.fault}: {how}{'; ' + faults[0] if faults else ''}"
        )

    def _completed(self, crawl: CrawlProcess) -> bool:
        """Whether the crawl completed by itself."""
        return crawl.code == 0

    def _finish(self, crawl: CrawlProcess) -> None:
        """Wait for the end of the crawl as long as there is progress."""
        asked, since = self.requests(), time.monotonic()
        while not crawl.wait(0.1):
            now = self.requests()
            if now != asked:
                asked, since = now, time.monotonic()
            elif time.monotonic() - since > _HANG_SECONDS:
                self._result.violations.append(
                    f"I8 the crawl hangs for {_HANG_SECONDS:.0f} s: {self._describe_state()}"
                )
                return
        if crawl.code != 0:
            self._result.violations.append(f"the crawl ended by itself with exit code {crawl.code}")
        self._result.completed = bool(crawl.output_json().get("completed"))
        if not self._result.completed:
            self._result.violations.append("I1 the crawl ended without being complete")
