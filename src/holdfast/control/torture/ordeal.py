"""A crawl under faults: the same command again and again, until it has come to its end by itself.

The rule: a fault strikes a crawl that was just seen to ask for something, and counts as landed only if it found it alive. After each
the store is judged, whatever state it was left in.
"""

import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from holdfast.control.torture import proof
from holdfast.control.torture.ground import Ground
from holdfast.control.torture.plan import LEASE, SCOPE, SWEEP, Fault, Plan, Stroke, crawl_settings
from holdfast.control.torture.process import Victim, is_alive, kill_server, send
from holdfast.simweb.process import WebProcess
from holdfast.store import crawls, reports

_TICK: Final = 0.02
_PATIENCE: Final = 120.0
"""Seconds without a single request after which a crawl hangs."""
_TAKEN_AWAY: Final = LEASE + 3 * SWEEP
"""Seconds after which a frozen worker has lost its domains."""
_SILENCE: Final = timedelta(minutes=1)
JOB: Final = "torture"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault as it happened."""

    fault: Fault
    landed: bool
    requests: int
    """What the sites had been asked for by then."""
    taken_away: bool = True
    """A frozen worker lost its domains; if not, it was frozen with them locked."""


@dataclass(slots=True)
class Suffered:
    """What a crawl went through."""

    struck: list[Struck] = field(default_factory=list)
    lives: int = 0
    first_fetch: list[float] = field(default_factory=list)
    """Seconds from each start to its first request."""
    violations: list[str] = field(default_factory=list)
    completed: bool = False
    spare: int = 0
    """Requests that may have been repeated for other reasons than the faults."""

    @property
    def landed(self) -> Counter[Fault]:
        """Faults that found the crawl alive, by kind."""
        return Counter(struck.fault for struck in self.struck if struck.landed)


class Ordeal:
    """One crawl and all its lives."""

    def __init__(self, plan: Plan, ground: Ground, web: WebProcess, tell: Tell, *, delay: float | None = None) -> None:
        """`tell` hears of each fault; `delay` is instead of the plan's."""
        self._plan = plan
        self._ground = ground
        self._web = web
        self._tell = tell
        self._delay = plan.delay if delay is None else delay
        self._suffered = Suffered()
        self._tenures = proof.Tenures()

    def run(self) -> Suffered:
        """Let every fault strike, then let the crawl finish. After: nothing of it runs."""
        suffered = self._suffered
        victim = self._start()
        try:
            for number, stroke in enumerate(self._plan.strokes, 1):
                if not victim.alive:
                    victim = self._start()
                if not self._await_work(victim, stroke.after):
                    break
                struck = self._strike(victim, stroke)
                suffered.struck.append(struck)
                self._judge(number, struck)
            if not victim.alive and not self._ended(victim):
                victim = self._start()
            self._finish(victim)
            suffered.violations += self._tenures.late_writes(self._ground.database())
        finally:
            victim.kill()
        return suffered

    def _start(self) -> Victim:
        plan = self._plan
        arguments = ["crawl", *self._web.urls, "--job", JOB, "--scope", SCOPE, "--workers", str(plan.workers), "--json"]
        arguments += ["--delay", f"{self._delay:g}", "--concurrency", str(plan.concurrency)]
        arguments += ["--max-depth", "1000", "--allow-private"]
        self._requests_before = self.requests()
        self._began = time.monotonic()
        self._suffered.lives += 1
        return Victim(
            ["--data", str(self._ground.data), *arguments],
            settings=crawl_settings(plan) | self._ground.settings(),
            folder=self._ground.folder,
            supervised=plan.workers > 1,
        )

    def requests(self) -> int:
        """What the sites have been asked for so far."""
        return sum(self._web.stats()["requests"].values())

    def _await_work(self, victim: Victim, seconds: float) -> bool:
        """Wait for a request of this life and then so long; whether it is still at work."""
        before, began = self.requests(), time.monotonic()
        new_life = len(self._suffered.first_fetch) < self._suffered.lives
        if new_life:
            before = self._requests_before
        while victim.alive and self.requests() <= before:
            if time.monotonic() - began > _PATIENCE:
                self._suffered.violations.append(f"I8 nothing was asked for within {_PATIENCE:.0f} s")
                return False
            time.sleep(_TICK)
        if new_life and victim.alive:
            self._suffered.first_fetch.append(time.monotonic() - self._began)
        return not victim.wait(seconds)

    def _strike(self, victim: Victim, stroke: Stroke) -> Struck:
        if stroke.fault is Fault.KILL_ONE:
            pid, _ = self._holder(victim, stroke.which)
            return Struck(stroke.fault, pid is not None and send(pid, signal.SIGKILL), self.requests())
        if stroke.fault is Fault.FREEZE:
            return self._freeze(victim, stroke)
        postmaster = self._ground.server().pid if stroke.fault is Fault.KILL_WITH_SERVER else None
        landed, requests = victim.alive, self.requests()
        victim.kill()
        if postmaster is not None:
            kill_server(postmaster)
        return Struck(stroke.fault, landed, requests)

    def _holder(self, victim: Victim, which: float) -> tuple[int | None, str]:
        """A worker of this life that holds domains, and its name."""
        alive = set(victim.workers())
        with self._ground.database().session() as connection:
            rows = [row for row in reports.workers(connection, silence=_SILENCE) if row["held"] and row["pid"] in alive]
        if not rows:
            return None, ""
        row = rows[int(which * len(rows))]
        return int(row["pid"]), str(row["name"])

    def _freeze(self, victim: Victim, stroke: Stroke) -> Struck:
        pid, name = self._holder(victim, stroke.which)
        if pid is None or not send(pid, signal.SIGSTOP):
            return Struck(stroke.fault, False, self.requests())
        until = time.monotonic() + _TAKEN_AWAY
        try:
            while not (gone := self._holds_nothing(name)) and time.monotonic() < until:
                time.sleep(_TICK * 5)
            landed = is_alive(pid)
            self._suffered.violations += self._tenures.late_writes(self._ground.database())
        finally:
            send(pid, signal.SIGCONT)
        return Struck(stroke.fault, landed, self.requests(), taken_away=gone)

    def _holds_nothing(self, name: str) -> bool:
        with self._ground.database().session() as connection:
            return not reports.claims_by_worker(connection, name)

    def _standing(self) -> str:
        """Who holds what, and what waits: for whoever has to find out why."""
        with self._ground.database().session() as connection:
            held = {claims.worker: claims.claims for claims in reports.claims_by_worker(connection)}
            job = crawls.find(connection, name=JOB)
            return (
                f"held {held}; {crawls.standing(connection, job.id, job.crawl_id or 0) if job else 'there is no job'}"
            )

    def _judge(self, number: int, struck: Struck) -> None:
        found = [*proof.store_faults(self._ground), *self._tenures.late_writes(self._ground.database())]
        faults = [f"after fault {number}: {fault}" for fault in found]
        self._suffered.violations += faults
        how = "found nobody alive" if not struck.landed else f"{struck.requests} requests so far"
        self._tell(f"{number}/{len(self._plan.strokes)} {struck.fault}: {how}{'; ' + faults[0] if faults else ''}")

    def _ended(self, victim: Victim) -> bool:
        """Whether it came to its end by itself."""
        return victim.code == 0

    def _finish(self, victim: Victim) -> None:
        """Wait for the end, as long as there is any progress."""
        asked, since = self.requests(), time.monotonic()
        while not victim.wait(0.1):
            now = self.requests()
            if now != asked:
                asked, since = now, time.monotonic()
            elif time.monotonic() - since > _PATIENCE:
                self._suffered.violations.append(f"I8 the crawl hangs for {_PATIENCE:.0f} s: {self._standing()}")
                return
        if victim.code != 0:
            self._suffered.violations.append(f"the crawl ended by itself with exit code {victim.code}")
        self._suffered.completed = bool(victim.answer().get("completed"))
        if not self._suffered.completed:
            self._suffered.violations.append("I1 the crawl ended without being complete")
