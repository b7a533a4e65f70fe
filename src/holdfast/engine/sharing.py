"""How the domains of a job are shared among the workers that can serve it.

The rule: a claim takes a worker's share of what is ready, at least one domain, and is repeated every tick; so all workers get some, and
the share of one that died does not lie idle. What a worker holds and is too busy to visit goes to one that is idle, by release and claim.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.engine.desk import Desk
from holdfast.engine.visit import Visit
from holdfast.store import claims, workers
from holdfast.telemetry.clock import Clock

LOOK: Final = 1.0
"""Seconds between two looks at how many workers there are, and at a job with plenty of ready domains."""
OVERDUE: Final = 5.0
"""Seconds for which a domain could have been asked and was not, after which it may be given back."""
MOST_GIVEN: Final = 2
"""Domains that are given back at a heartbeat."""
GAVE_WAY: Final = 2.0
"""Seconds after giving back in which nothing is claimed: the idle workers' turn."""


class Sharing:
    """What one worker may claim."""

    def __init__(self, desk: Desk, clock: Clock, siblings: int) -> None:
        """`siblings`: workers that were started together with this one, itself included; some may not be heard of yet."""
        self._desk = desk
        self._clock = clock
        self._siblings = siblings
        self._workers: dict[int, tuple[int, float]] = {}
        self._plenty: dict[int, float] = {}
        self._gave_way = 0.0

    async def share(self, job_id: int, count: int) -> int:
        """How many of up to `count` domains to claim now; 0: others have their turn."""
        now = self._clock.now()
        if now < self._gave_way:
            return 0
        if count <= 1 or now < self._plenty.get(job_id, 0.0):
            return count
        serving = await self._serving(job_id, now)
        enough = count * serving
        ready = await self._desk.call(claims.ready, job_id=job_id, limit=enough)
        if ready >= enough:
            self._plenty[job_id] = now + LOOK
        return min(count, max(1, ready // serving))

    async def _serving(self, job_id: int, now: float) -> int:
        known, until = self._workers.get(job_id, (0, 0.0))
        if now >= until:
            known = max(self._siblings, await self._desk.call(workers.serving, job_id))
            self._workers[job_id] = (known, now + LOOK)
        return known

    async def give_back(self, visits: Iterable[Visit], worker: str) -> list[Visit]:
        """Which visits should end because an idle worker could go on with their domains; after that nothing is claimed for a moment."""
        now = self._clock.now()
        overdue = [visit for visit in visits if visit.overdue(now) >= OVERDUE]
        overdue.sort(key=lambda visit: -visit.overdue(now))
        given = [
            visit
            for visit in overdue[:MOST_GIVEN]
            if await self._desk.call(workers.is_one_idle, visit.job.id, exclude=worker)
        ]
        if given:
            self._gave_way = self._clock.now() + GAVE_WAY
        return given
