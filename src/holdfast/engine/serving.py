"""Which jobs a worker serves, and in which turn.

The rule: whether a job may be worked on is asked of the store, each time; what is remembered here is as old as the last look at its
version (`update`), about a second.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from holdfast.engine.desk import Desk
from holdfast.errors import NotFound
from holdfast.model.job import Job
from holdfast.politeness.scope import ScopeRules, compile_rules
from holdfast.store import crawls, jobs
from holdfast.store.edits import JobNow


class Serving:
    """The jobs of one worker: a single one, or all that can be worked on."""

    def __init__(self, desk: Desk, job_id: int | None) -> None:
        """None: all of them, in turn."""
        self._desk = desk
        self._job_id = job_id
        self._turn = 0
        self._known: dict[int, tuple[Job, ScopeRules]] = {}

    async def in_turn(self) -> Job | None:
        """The job to claim for next."""
        if self._job_id is not None:
            return await self.only(self._job_id)
        runnable = await self._desk.call(crawls.runnable)
        if not runnable:
            return None
        self._turn += 1
        job = runnable[self._turn % len(runnable)]
        first = await self._desk.call(crawls.urgent) if len(runnable) > 1 else None
        job = next((one for one in runnable if one.id == first), job)
        self._remember(job)
        return job

    async def only(self, job_id: int) -> Job:
        """A job by its id, with the crawl of it that was open when it was first asked for."""
        if job_id not in self._known:
            self._remember(await self._desk.call(crawls.get, job_id))
        return self._known[job_id][0]

    async def update(self, now: Mapping[int, JobNow]) -> None:
        """Read those of these jobs again that people have edited. Their crawls stay the ones that they were."""
        for job_id, (known, _) in list(self._known.items()):
            if job_id in now and now[job_id].settings_version != known.settings_version:
                with suppress(NotFound):  # deleted in this moment
                    edited = await self._desk.call(crawls.get, job_id)
                    self._remember(replace(edited, crawl_id=known.crawl_id))

    def known(self, job: Job) -> Job:
        """The job as it was last read. Before: it had its turn."""
        return self._known[job.id][0]

    def scope(self, job: Job) -> ScopeRules:
        """What of the web is the job's. Before: it had its turn."""
        return self._known[job.id][1]

    async def ended(self, job_ids: Iterable[int]) -> set[int]:
        """Those of these jobs that nobody may work on any more: paused, cancelled, deleted."""
        return {job_id for job_id in set(job_ids) if not await self._desk.call(jobs.is_runnable, job_id)}

    def _remember(self, job: Job) -> None:
        known = self._known.get(job.id)
        if known is None or known[0] != job:
            self._known[job.id] = (job, compile_rules(job.spec))
