"""Faults that need more than a signal: death at a named point, a connection that is cut at COMMIT."""

import random
import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast.testing.simweb.process import WebProcess
from holdfast.testing.torture import checks
from holdfast.testing.torture.fault_run import FaultRunResult, InjectedFault, OnProgress
from holdfast.testing.torture.process import CrawlProcess
from holdfast.testing.torture.sandbox import Sandbox
from holdfast.testing.torture.scenario import Fault, Scenario
from tests.prove.sandbox import ExternalSandbox, begin, worker
from tests.support.severing import Cut, SeveringProxy

PATIENCE = 120.0
CUTS = (Cut.AFTER_COMMIT, Cut.BEFORE_COMMIT)
"""Half of them after the server committed."""
LATEST: dict[str, int] = {"after_fetch": 40, "in_claim": 1, "in_heartbeat": 2, "round_raised": 1, "sitemap_read": 2}
"""A point is reached this often at most before it kills; commits, which are all others, three times."""
BETWEEN = "after_fetch:10"
"""Every other life that is to die in a claim gets some work done first, so that there is something to take back."""


def points(name: str, count: int, seed: int) -> list[str]:
    """`count` orders to die at the point `name`, at one of the first times that it is reached."""
    dice = random.Random(f"{name} {seed}")
    orders = [f"{name}:{dice.randint(1, LATEST.get(name, 3))}" for _ in range(count)]
    return [each for order in orders for each in (BETWEEN, order)] if name == "in_claim" else orders


class AtPoints:
    """A crawl by one worker that dies at each of these points in turn."""

    def __init__(self, orders: Sequence[str]) -> None:
        self.orders = orders
        self.reached: Counter[str] = Counter()

    def __call__(
        self, scenario: Scenario, sandbox: Sandbox, web: WebProcess, on_progress: OnProgress
    ) -> FaultRunResult:
        desk, job = begin(scenario, sandbox, web)
        result = FaultRunResult()
        for number, order in enumerate(self.orders, 1):
            victim = worker(scenario, sandbox, "--failpoint", order)
            code = end_of(victim, result)
            landed = code == -signal.SIGKILL
            result.lives += 1
            result.injected.append(InjectedFault(Fault.KILL_ALL, landed, requests(web)))
            faults = [f"after {order}: {fault}" for fault in checks.verify_store(sandbox)]
            result.violations += faults
            on_progress(
                f"{number}/{len(self.orders)} {order}: {'reached' if landed else f'ended with {code}'}{faults or ''}"
            )
            if not landed:
                break
            self.reached[order.partition(":")[0]] += 1
        finish([worker(scenario, sandbox)], result)
        result.completed = desk.end(job).completed
        if not result.completed:
            result.violations.append("I1 the crawl ended without being complete")
        return result


class AtCommits:
    """A crawl whose connections are cut at COMMIT, again and again; its workers live on."""

    def __init__(
        self, sandbox: ExternalSandbox, count: int, seed: int, workers: int = 2, kinds: Sequence[Cut] = CUTS
    ) -> None:
        self._sandbox = sandbox
        self._count = count
        self._workers = workers
        self._kinds = kinds
        self._dice = random.Random(seed)
        self.cuts: Counter[Cut] = Counter()

    def __call__(
        self, scenario: Scenario, sandbox: Sandbox, web: WebProcess, on_progress: OnProgress
    ) -> FaultRunResult:
        desk, job = begin(scenario, sandbox, web)
        result = FaultRunResult(lives=1)
        with SeveringProxy(self._sandbox.database().url, Cut.NOWHERE) as proxy:
            behind = ExternalSandbox(sandbox.folder, self._sandbox.database(), proxy.url)
            behind.more = self._sandbox.more
            victims = [worker(scenario, behind, name=f"victim-{number}") for number in range(self._workers)]
            try:
                for number in range(self._count):
                    cut = self._kinds[number % len(self._kinds)]
                    if not self._strike(proxy, cut, victims):
                        break
                    self.cuts[cut] += 1
                    result.violations += [f"after cut {number + 1}: {f}" for f in checks.verify_store(sandbox)]
                    result.injected.append(InjectedFault(Fault.KILL_ONE, True, requests(web)))
                on_progress(
                    f"{sum(self.cuts.values())} of {self._count} cuts: {result.violations or 'the store is whole'}"
                )
                finish(victims, result)
            finally:
                for victim in victims:
                    victim.kill()
        result.completed = desk.end(job).completed
        if not result.completed:
            result.violations.append("I1 the crawl ended without being complete")
        return result

    def _strike(self, proxy: SeveringProxy, cut: Cut, victims: Iterable[CrawlProcess]) -> bool:
        """Cut one COMMIT (or the few that come in the same instant); False if there is none any more."""
        time.sleep(self._dice.uniform(0.0, 0.4))
        before = proxy.cuts
        proxy.cut = cut
        try:
            while proxy.cuts == before:
                if not any(victim.alive for victim in victims):
                    return False
                time.sleep(0.002)
        finally:
            proxy.cut = Cut.NOWHERE
        return True


def end_of(victim: CrawlProcess, result: FaultRunResult) -> int | None:
    """How it ended; if it does not, that is a violation."""
    try:
        if not victim.wait(PATIENCE):
            result.violations.append(f"I8 a worker has not ended within {PATIENCE:.0f} s")
        return victim.code
    finally:
        victim.kill()


def finish(victims: Iterable[CrawlProcess], result: FaultRunResult) -> None:
    """Wait until these workers have nothing more to do."""
    for victim in victims:
        code = end_of(victim, result)
        if code != 0:
            result.violations.append(f"a worker ended by itself with exit code {code}")


def requests(web: WebProcess) -> int:
    return sum(web.stats()["requests"].values())
