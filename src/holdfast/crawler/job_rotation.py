"""Which jobs a worker serves, and in which order.

The rule: whether a job is runnable is read from the database each time; the cached jobs are as old as the last check of their version
(`reload_edited`), about a second.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from holdfast.crawler.db_thread import DbThread
from holdfast.db import crawls, jobs
from holdfast.db.edits import JobVersion
from holdfast.errors import NotFound
from holdfast.model.job import Job
from holdfast.politeness.scope import ScopeRules, compile_rules


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
