"""Jobs of a server."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, cast

from holdfast.cli.remote.seeds import Portion, RemoteSeedImporter, as_sent, refuse, seed_portions
from holdfast.client import Client
from holdfast.errors import UsageError
from holdfast.frontier.records import Retried
from holdfast.jobs.crawls import CrawlRequest
from holdfast.jobs.records import (
    ComparedPage,
    Comparison,
    CrawlPlan,
    CrawlSummary,
    CreatedJob,
    EditedJob,
    Job,
    JobChanges,
    JobEvent,
    JobOptions,
    PageChange,
    RulesVersion,
    ScopeChanges,
    ScopePreview,
    StateChange,
)
from holdfast.jobs.seed_import import ImportProgress, open_seeds
from holdfast.jobs.service import OnProgress


@dataclass(frozen=True, slots=True)
class RemoteJobs:
    """The jobs of a server, with the methods of `jobs/service`."""

    client: Client

    def all(self) -> list[Job]:
        """Return all jobs, by id."""
        return list(self.client.jobs(order="oldest"))

    def show(self, job: str | int) -> Job:
        """Return one job."""
        return self.client.job(job)

    def summary(self, job: str | int) -> CrawlSummary:
        """Return how a job stands."""
        return self.client.job_summary(job)

    def compare(self, job: str | int) -> Comparison:
        """Compare the last crawl of a job with the one before."""
        return self.client.comparison(job)

    def some_compared(self, job: str | int, change: PageChange, limit: int) -> list[ComparedPage]:
        """Return the first pages of a kind in that comparison."""
        return list(islice(self.client.compared_pages(job, str(change)), limit))

    def create(
        self, request: CrawlRequest, on_progress: Callable[[ImportProgress], None], schedule: str | None = None
    ) -> CreatedJob:
        """Create a job. Seeds of a file are read here and sent in portions, without their ranks."""
        progress = ImportProgress()
        arguments: Portion = [(0, url) for url in request.urls]  # arguments have no line
        if request.seeds_file is None:
            return _created(self._create(request, arguments, schedule, progress), progress)
        job: Job | None = None
        file, _, _ = open_seeds(request.seeds_file)
        with closing(file):
            portions = seed_portions(file, progress)
            for portion in _only_one(portions) if request.secrets else portions:
                if job is None:
                    job = self._create(request, [*arguments, *portion], schedule, progress)
                elif portion:
                    RemoteSeedImporter(self.client, job.id).send(portion, progress)
                on_progress(progress)
        assert job is not None  # noqa: S101 — there is a last portion
        return _created(job, progress)

    def plan(self, request: CrawlRequest) -> CrawlPlan:
        """Plan a new job, or an existing one that is named without seeds. Seeds of a file are read here, and must fit into one request."""
        if not request.urls and request.seeds_file is None:
            return self.client.job_plan(request.job or "", again=request.again)
        seeds: Portion = [(0 if request.seeds_file else number, url) for number, url in enumerate(request.urls, 1)]
        progress = ImportProgress()
        if request.seeds_file is not None:
            file, _, _ = open_seeds(request.seeds_file)
            with closing(file):
                portions = list(islice(seed_portions(file, progress), 2))
            if any(portions[1:]):
                raise UsageError(
                    "A plan of this many seeds needs the database: run this command on its machine, without --server."
                )
            seeds += [seed for portion in portions for seed in portion]
        plan = self.client.plan_job(
            [url for _, url in seeds], name=request.job, **cast("JobOptions", request.options or {})
        )
        refuse(progress, [(seeds[bad.line - 1][0], bad.problem) for bad in plan.bad_seeds])
        return replace(plan, bad=progress.bad, bad_seeds=progress.bad_lines)

    def events(self, job: str | int, limit: int) -> list[JobEvent]:
        """Return the newest entries of a job's log."""
        return list(islice(self.client.job_log(job), limit))

    def schedule(self, job: str | int, when: str | None) -> datetime | None:
        """Schedule a job; None: no longer. Returns the time of the next crawl."""
        return self.client.schedule(job, when).next_run_at

    def edit(self, job: str | int, changes: Mapping[str, object]) -> EditedJob:
        """Change options of a job; the server applies the consequences."""
        return self.client.edit_job(job, **cast("JobChanges", dict(changes)))

    def preview_scope(self, job: str | int, changes: Mapping[str, object]) -> ScopePreview:
        """Return what an edit of the rules of a job would do to its URLs."""
        return self.client.preview_scope(job, **cast("ScopeChanges", dict(changes)))

    def undo_scope(self, job: str | int) -> EditedJob:
        """Restore the rules that a job had before their last edit; the server applies the consequences."""
        return self.client.undo_scope(job)

    def scope_history(self, job: str | int) -> list[RulesVersion]:
        """Return all versions of the rules of a job."""
        return self.client.scope_history(job)

    def count_retry(self, job: str | int, **what: Any) -> Retried:
        """Count the URLs that `retry` would take."""
        return self.client.retry_urls(job, **what, dry_run=True)

    def retry(self, job: str | int, **what: Any) -> Retried:
        """Retry URLs of a job."""
        return self.client.retry_urls(job, **what)

    def pause(self, job: str | int) -> StateChange:
        """Pause a job."""
        return self._change(job, self.client.pause)

    def cancel(self, job: str | int) -> StateChange:
        """Cancel a job."""
        return self._change(job, self.client.cancel)

    def resume(self, job: str | int, on_progress: OnProgress) -> StateChange:  # noqa: ARG002 — the server reports none
        """Resume a paused job."""
        return self._change(job, self.client.resume)

    def delete(self, job: str | int, on_progress: OnProgress) -> str:  # noqa: ARG002 — likewise
        """Delete a job; returns its name."""
        name = self.client.job(job).name
        self.client.delete_job(job)
        return name

    def _change(self, job: str | int, action: Callable[[str | int], Job]) -> StateChange:
        before = self.client.job(job).state
        after = action(job)
        return StateChange(after.id, after.name, before, after.state)

    def _create(self, request: CrawlRequest, seeds: Portion, schedule: str | None, progress: ImportProgress) -> Job:
        created = self.client.create_job(
            request.job or "",
            [url for _, url in seeds],
            schedule=schedule,
            secrets=as_sent(request.secrets),
            **cast("JobOptions", request.options or {}),
        )
        progress.seeds += created.seeds
        refuse(progress, [(seeds[bad.line - 1][0], bad.problem) for bad in created.bad_seeds])
        return created


def _created(job: Job, progress: ImportProgress) -> CreatedJob:
    return CreatedJob(job, progress.seeds, progress.bad, progress.bad_lines)


def _only_one(portions: Iterator[Portion]) -> Iterator[Portion]:
    """The only portion, that a job is created with. Later ones would be crawled before the server knows that secrets are for them."""
    some = list(islice(portions, 2))
    if any(some[1:]):
        raise UsageError(
            "Headers, cookies and passwords cannot be sent to a server together with so large a file of seeds; give them to the domains "
            "that need them (`holdfast domains set DOMAIN header=…`)."
        )
    return iter(some)
