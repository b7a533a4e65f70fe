"""What a worker claims next: for which job, how many domains, and which domains it gives back to idle workers.

The rules: whether a job is runnable is read from the database each time; the cached jobs are as old as the last check of their version
(`reload_edited`), about a second. A claim takes a worker's share of the ready domains, at least one, and is repeated every tick; so all
workers get some, and the share of a dead worker does not stay idle. A domain whose worker is too busy to visit it goes to an idle one, by
release and claim.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from holdfast.crawler.db_thread import DbThread
from holdfast.crawler.visit import Visit
from holdfast.db import claims, crawls, jobs, workers
from holdfast.db.edits import JobVersion
from holdfast.errors import NotFound
from holdfast.model.job import Job
from holdfast.model.scope import ScopeRules, compile_rules
from holdfast.telemetry.clock import Clock


class JobRotation:
    """The jobs of one worker: a single one, or all runnable ones, round robin."""

    def __init__(self, db: DbThread, job_id: int | None) -> None:
        """`job_id` None: all runnable jobs, in turn."""
        self._db = db
        self._job_id = job_id
        self._turn = 0
        self._known: dict[int, tuple[Job, ScopeRules]] = {}

    async def next_job(self) -> Job | None:
        """Return the job to claim for next; urgent jobs come first."""
        if self._job_id is not None:
            return await self.job(self._job_id)
        runnable = await self._db.call(crawls.runnable)
        if not runnable:
            return None
        self._turn += 1
        job = runnable[self._turn % len(runnable)]
        first = await self._db.call(crawls.urgent_job) if len(runnable) > 1 else None
        job = next((one for one in runnable if one.id == first), job)
        self._remember(job)
        return job

    async def job(self, job_id: int) -> Job:
        """Return a job by its id, with the crawl that was open when it was first read."""
        if job_id not in self._known:
            self._remember(await self._db.call(crawls.get, job_id))
        return self._known[job_id][0]

    async def reload_edited(self, now: Mapping[int, JobVersion]) -> None:
        """Read edited jobs again. After: they have their new settings and the same crawl as before."""
        for job_id, (known, _) in list(self._known.items()):
            if job_id in now and now[job_id].settings_version != known.settings_version:
                with suppress(NotFound):  # deleted meanwhile
                    edited = await self._db.call(crawls.get, job_id)
                    self._remember(replace(edited, crawl_id=known.crawl_id))

    async def reload(self, job: Job) -> Job:
        """Read a job again that was edited meanwhile, and return it with the same crawl as before."""
        edited = await self._db.call(crawls.get, job.id)
        self._remember(replace(edited, crawl_id=job.crawl_id))
        return self._known[job.id][0]

    def current(self, job: Job) -> Job:
        """Return the job as it was last read. Before: `next_job` or `job` returned it."""
        return self._known[job.id][0]

    def scope(self, job: Job) -> ScopeRules:
        """Return the compiled scope of the job. Before: `next_job` or `job` returned it."""
        return self._known[job.id][1]

    async def not_runnable(self, job_ids: Iterable[int]) -> set[int]:
        """Return those of these jobs that are not runnable any more: paused, cancelled, deleted."""
        return {job_id for job_id in set(job_ids) if not await self._db.call(jobs.is_runnable, job_id)}

    def _remember(self, job: Job) -> None:
        known = self._known.get(job.id)
        if known is None or known[0] != job:
            self._known[job.id] = (job, compile_rules(job.spec))


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
