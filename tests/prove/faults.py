"""Faults that need more than a signal: death at a named point, a connection that is cut at COMMIT."""

import random
import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence

from holdfast.control.torture import proof
from holdfast.control.torture.ground import Ground
from holdfast.control.torture.ordeal import Struck, Suffered, Tell
from holdfast.control.torture.plan import Fault, Plan
from holdfast.control.torture.process import Victim
from holdfast.simweb.process import WebProcess
from tests.prove.ground import BorrowedGround, begin, worker
from tests.support.severing import Cut, SeveringProxy

PATIENCE = 120.0
CUTS = (Cut.AFTER_COMMIT, Cut.BEFORE_COMMIT)
"""Half of them after the server committed."""
LATEST: dict[str, int] = {"after_fetch": 40, "in_claim": 1, "in_heartbeat": 2, "round_raised": 1}
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

    def __call__(self, plan: Plan, ground: Ground, web: WebProcess, tell: Tell) -> Suffered:
        desk, job = begin(plan, ground, web)
        suffered = Suffered()
        for number, order in enumerate(self.orders, 1):
            victim = worker(plan, ground, "--failpoint", order)
            code = end_of(victim, suffered)
            landed = code == -signal.SIGKILL
            suffered.lives += 1
            suffered.struck.append(Struck(Fault.KILL_ALL, landed, requests(web)))
            faults = [f"after {order}: {fault}" for fault in proof.store_faults(ground)]
            suffered.violations += faults
            tell(f"{number}/{len(self.orders)} {order}: {'reached' if landed else f'ended with {code}'}{faults or ''}")
            if not landed:
                break
            self.reached[order.partition(":")[0]] += 1
        finish([worker(plan, ground)], suffered)
        suffered.completed = desk.end(job).completed
        if not suffered.completed:
            suffered.violations.append("I1 the crawl ended without being complete")
        return suffered


class AtCommits:
    """A crawl whose connections are cut at COMMIT, again and again; its workers live on."""

    def __init__(
        self, ground: BorrowedGround, count: int, seed: int, workers: int = 2, kinds: Sequence[Cut] = CUTS
    ) -> None:
        self._ground = ground
        self._count = count
        self._workers = workers
        self._kinds = kinds
        self._dice = random.Random(seed)
        self.cuts: Counter[Cut] = Counter()

    def __call__(self, plan: Plan, ground: Ground, web: WebProcess, tell: Tell) -> Suffered:
        desk, job = begin(plan, ground, web)
        suffered = Suffered(lives=1)
        with SeveringProxy(self._ground.database().url, Cut.NOWHERE) as proxy:
            behind = BorrowedGround(ground.folder, self._ground.database(), proxy.url)
            behind.more = self._ground.more
            victims = [worker(plan, behind, name=f"victim-{number}") for number in range(self._workers)]
            try:
                for number in range(self._count):
                    cut = self._kinds[number % len(self._kinds)]
                    if not self._strike(proxy, cut, victims):
                        break
                    self.cuts[cut] += 1
                    suffered.violations += [f"after cut {number + 1}: {f}" for f in proof.store_faults(ground)]
                    suffered.struck.append(Struck(Fault.KILL_ONE, True, requests(web)))
                tell(f"{sum(self.cuts.values())} of {self._count} cuts: {suffered.violations or 'the store is whole'}")
                finish(victims, suffered)
            finally:
                for victim in victims:
                    victim.kill()
        suffered.completed = desk.end(job).completed
        if not suffered.completed:
            suffered.violations.append("I1 the crawl ended without being complete")
        return suffered

    def _strike(self, proxy: SeveringProxy, cut: Cut, victims: Iterable[Victim]) -> bool:
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


def end_of(victim: Victim, suffered: Suffered) -> int | None:
    """How it ended; if it does not, that is a violation."""
    try:
        if not victim.wait(PATIENCE):
            suffered.violations.append(f"I8 a worker has not ended within {PATIENCE:.0f} s")
        return victim.code
    finally:
        victim.kill()


def finish(victims: Iterable[Victim], suffered: Suffered) -> None:
    """Wait until these workers have nothing more to do."""
    for victim in victims:
        code = end_of(victim, suffered)
        if code != 0:
            suffered.violations.append(f"a worker ended by itself with exit code {code}")


def requests(web: WebProcess) -> int:
    return sum(web.stats()["requests"].values())
