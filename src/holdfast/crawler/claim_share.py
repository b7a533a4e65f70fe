"""How many domains of a job a worker claims, and which it gives back to idle workers.

The rule: a claim takes a worker's share of the ready domains, at least one, and is repeated every tick; so all workers get some, and
the share of a dead worker does not stay idle. A domain whose worker is too busy to visit it goes to an idle one, by release and claim.
"""

from collections.abc import Iterable
from typing import Final

from holdfast.crawler.db_thread import DbThread
from holdfast.crawler.visit import Visit
from holdfast.db import claims, workers
from holdfast.telemetry.clock import Clock

POLL_SECONDS: Final = 1.0
"""Seconds between two counts of the workers, and between two counts of a job's ready domains when it has plenty."""
OVERDUE_SECONDS: Final = 5.0
"""Seconds for which a request could have been sent to a domain and was not, after which it may be given back."""
MAX_GIVEN_BACK: Final = 2
"""Maximum number of domains that are given back per heartbeat."""
CLAIM_PAUSE: Final = 2.0
"""Seconds without claims after domains were given back, so that idle workers claim them."""


class ClaimShare:
    """The share of one worker."""

    def __init__(self, db: DbThread, clock: Clock, siblings: int) -> None:
        """`siblings`: workers that were started together with this one, itself included; some may not have registered yet."""
        self._db = db
        self._clock = clock
        self._siblings = siblings
        self._workers: dict[int, tuple[int, float]] = {}
        self._plenty_until: dict[int, float] = {}
        self._no_claims_until = 0.0

    async def claim_limit(self, job_id: int, count: int) -> int:
        """Return how many of up to `count` domains to claim now; 0: idle workers come first."""
        now = self._clock.now()
        if now < self._no_claims_until:
            return 0
        if count <= 1 or now < self._plenty_until.get(job_id, 0.0):
            return count
        worker_count = await self._worker_count(job_id, now)
        wanted = count * worker_count
        ready = await self._db.call(claims.count_ready, job_id=job_id, limit=wanted)
        if ready >= wanted:
            self._plenty_until[job_id] = now + POLL_SECONDS
        return min(count, max(1, ready // worker_count))

    async def _worker_count(self, job_id: int, now: float) -> int:
        known, until = self._workers.get(job_id, (0, 0.0))
        if now >= until:
            known = max(self._siblings, await self._db.call(workers.count_serving, job_id))
            self._workers[job_id] = (known, now + POLL_SECONDS)
        return known

    async def visits_to_give_back(self, visits: Iterable[Visit], worker: str) -> list[Visit]:
        """Return the visits that should end because an idle worker can take their domains. After: no claim for `CLAIM_PAUSE` seconds."""
        now = self._clock.now()
        overdue = [visit for visit in visits if visit.overdue(now) >= OVERDUE_SECONDS]
        overdue.sort(key=lambda visit: -visit.overdue(now))
        given = [
            visit
            for visit in overdue[:MAX_GIVEN_BACK]
            if await self._db.call(workers.has_idle_worker, visit.job.id, exclude=worker)
        ]
        if given:
            self._no_claims_until = self._clock.now() + CLAIM_PAUSE
        return given
