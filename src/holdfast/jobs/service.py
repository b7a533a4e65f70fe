"""Jobs: list, show, compare crawls, plan, create, edit, log, schedule, pause, resume, cancel, delete.

The rule: pausing and cancelling are a state in the database. Workers read it, commit, and release their domains; a crash ends the same way.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from holdfast.db import audit, crawls, job_rules, jobs
from holdfast.db.connection import Connection, Database
from holdfast.db.keyset_pagination import MAX_PAGE, Key, Page, check_page_size
from holdfast.errors import NotFound, Refused
from holdfast.jobs import edits, live, log
from holdfast.jobs.crawls import CrawlRequest, CrawlService
from holdfast.jobs.live import JobBreakdown
from holdfast.jobs.planner import CrawlPlanner
from holdfast.jobs.queries import actions, comparison, job_domains
from holdfast.jobs.queries import depths as depth_queries
from holdfast.jobs.queries import jobs as queries
from holdfast.jobs.queries import log as log_queries
from holdfast.jobs.queries.comparison import ComparedCrawl
from holdfast.jobs.queries.progress import JobNow
from holdfast.jobs.records import (
    ComparedPage,
    Comparison,
    CrawlPlan,
    CrawlSummary,
    CreatedJob,
    EditedJob,
    Job,
    JobDepths,
    JobDomain,
    JobEvent,
    JobFilter,
    JobPace,
    JobProgress,
    JobsChanged,
    PageChange,
    RulesVersion,
    ScopePreview,
    StateChange,
)
from holdfast.jobs.seed_import import ImportProgress
from holdfast.jobs.summary import summarize_job
from holdfast.model.cursor import encode_cursor
from holdfast.model.domain import Seed
from holdfast.model.job import JobAction, JobKind, JobSpec, JobState
from holdfast.model.request_secrets import RequestSecrets
from holdfast.model.schedule import parse
from holdfast.model.scope import RuleSettings, rules_of_spec

OnProgress = Callable[[int], None]
"""Called with the number of domains that are ready again, or of URLs that are deleted, so far."""


def _ignore(_: int) -> None:
    """Ignore progress."""


MAX_AT_ONCE: Final = 500
"""Jobs that one action on all jobs of a filter changes."""
_NAMES: Final = 20


@dataclass(frozen=True, slots=True)
class JobService:
    """The jobs of one database. A job is named by its name or its id."""

    database: Database
    actor: str
    """The user or program that acts, for the audit log."""
    rule_settings: RuleSettings = field(default_factory=RuleSettings)
    """By which URLs are judged when rules are edited."""

    def page(
        self, where: JobFilter | None = None, *, order: str = "newest", after: Key | None = None, limit: int = 100
    ) -> Page[Job]:
        """Return one page of jobs; `after` is the `next` of the page before. Raises UsageError."""
        check_page_size(limit)
        with self.database.session() as connection:
            return queries.page(connection, where or JobFilter(), order=order, after=after, limit=limit)

    def all(self) -> list[Job]:
        """Return all jobs, by id."""
        with self.database.session() as connection:
            return queries.everything(connection)

    def some(self, job_ids: Collection[int]) -> list[Job]:
        """Return those of these jobs that exist, by id."""
        with self.database.session() as connection:
            return queries.some(connection, list(job_ids))

    def progress(self, job_ids: Collection[int]) -> dict[int, JobProgress]:
        """Return those of these jobs that exist, with their requests in flight and waits at this moment."""
        return live.progress(self.database, self.some(job_ids))

    def pace(self, job: str | int) -> JobPace:
        """Return how fast a job is crawled at this moment, and when it would be done at that rate. Raises NotFound."""
        with self.database.session() as connection:
            return live.pace(connection, _id(connection, job))

    def now(self, job_id: int) -> JobNow:
        """Return what moves of a job, whichever process crawls it, in one statement. `live.live_now` makes its state and its pace of it.
        Raises NotFound."""
        with self.database.session() as connection:
            return live.now(connection, job_id)

    def breakdown(self, job_id: int) -> JobBreakdown:
        """Return what takes longer to read of a job: its domains by status, what they wait for, failed requests, URLs by depth. Reads all
        of its domains. Raises NotFound."""
        with self.database.session() as connection:
            return live.breakdown(connection, job_id)

    def domains(
        self, job: str | int, state: str | None = None, *, after: Key | None = None, limit: int = 100
    ) -> Page[JobDomain]:
        """Return one page of the domains of a job, those with work left first; `state` is one of `DOMAIN_STATES`. Raises UsageError,
        NotFound."""
        check_page_size(limit)
        with self.database.session() as connection:
            return job_domains.page(connection, _id(connection, job), state, after=after, limit=limit)

    def id_of(self, job: str | int) -> int:
        """Return the id of a job. Raises NotFound."""
        with self.database.session() as connection:
            return _id(connection, job)

    def show(self, job: str | int) -> Job:
        """Return one job. Raises NotFound."""
        with self.database.session() as connection:
            found = queries.some(connection, [_id(connection, job)])
        if not found:
            raise NotFound(f"There is no job called {job!r} any more.")
        return found[0]

    def summary(self, job: str | int) -> CrawlSummary:
        """Return how a job stands: URLs not crawled by reason, waits, and the next step. Reads all of its URLs."""
        with self.database.session() as connection:
            return summarize_job(connection, crawls.get(connection, _id(connection, job)))

    def compare(self, job: str | int, limit: int | None = None) -> Comparison:
        """Compare the last crawl of a job with the one before: counts of pages by kind of change. Raises NotFound if it was never
        crawled. Each count is exact below `limit`; None: `comparison.COUNT_LIMIT`."""
        limit = comparison.COUNT_LIMIT if limit is None else limit
        with self.database.session() as connection:
            job_id = _id(connection, job)
            crawl = _last_crawl(connection, job_id)
            found = comparison.counts(connection, job_id, crawl, limit)
        capped = [change for change, count in found.items() if count >= limit]
        fetched = found[PageChange.NEW] + found[PageChange.CHANGED] + found[PageChange.UNCHANGED]
        rest = PageChange.UNCHANGED if crawl.previous_started_at else PageChange.NEW
        if fetched >= limit and rest not in capped:
            capped.append(rest)
        return Comparison(
            crawl.job,
            crawl.id,
            crawl.started_at,
            crawl.ended_at,
            crawl.previous_started_at,
            new=found[PageChange.NEW],
            changed=found[PageChange.CHANGED],
            gone=found[PageChange.GONE],
            failed=found[PageChange.FAILED],
            unchanged=found[PageChange.UNCHANGED],
            at_least=capped,
        )

    def compared_pages(
        self, job: str | int, change: PageChange, *, cursor: str | None = None, limit: int = 100
    ) -> Page[ComparedPage]:
        """Return one page of the pages of a kind in `compare`; `cursor` is the `next` of the page before, encoded. Raises UsageError,
        NotFound."""
        check_page_size(limit)
        with self.database.session() as connection:
            job_id = _id(connection, job)
            crawl = _last_crawl(connection, job_id)
            return comparison.page(connection, job_id, crawl, change, cursor=cursor, limit=limit)

    def some_compared(self, job: str | int, change: PageChange, limit: int) -> list[ComparedPage]:
        """Return the first pages of a kind in `compare`, at most `limit`. Raises NotFound."""
        rows: list[ComparedPage] = []
        cursor: str | None = None
        while len(rows) < limit:
            found = self.compared_pages(job, change, cursor=cursor, limit=min(limit - len(rows), MAX_PAGE))
            rows += found.rows
            if found.next is None:
                break
            cursor = encode_cursor(found.next)
        return rows

    def depths(self, job: str | int) -> JobDepths:
        """Return the URLs of a job by depth and state; of more than 100 000, by a sample. Raises NotFound."""
        with self.database.session() as connection:
            found = crawls.get(connection, _id(connection, job))
            return depth_queries.depths(connection, found.id, found.name)

    def events(self, job: str | int, after: Key | None = None, limit: int = 100) -> Page[JobEvent]:
        """Return one page of a job's log, the newest entry first: state changes and runs of workers of the last day, edits, retries, starts
        by its schedule, and all its crawls. `after` is the `next` of the page before. Raises NotFound, UsageError."""
        check_page_size(limit)
        with self.database.session() as connection:
            job_id = jobs.id_of(connection, job)
            found = log_queries.page(connection, job_id, after=after, limit=limit)
        return Page([log.event(row) for row in found.rows], found.next)

    def plan(
        self, crawl_service: CrawlService, request: CrawlRequest, seeds: Sequence[Seed] | None = None
    ) -> CrawlPlan:
        """Plan a crawl before it starts: of a new job, or of an existing one that is named without seeds. Nothing is written. `seeds`:
        those of `request.urls`, if the caller has read them already.

        Raises UsageError, NotFound, BadUrl; Refused if a new job has the name of another.
        """
        return CrawlPlanner(self.database, crawl_service.importer, crawl_service.max_depth).plan(request, seeds)

    def create(
        self,
        crawl_service: CrawlService,
        request: CrawlRequest,
        on_progress: Callable[[ImportProgress], None] = lambda _: None,
        schedule: str | None = None,
    ) -> CreatedJob:
        """Create a job without crawling it. Refused if there is one of that name."""
        if schedule is not None:
            parse(schedule)  # an invalid one is refused before anything is created
        crawl_service.check_seeds(request)
        name = request.job or ""
        with self.database.session() as connection:
            if actions.is_named(connection, name):
                raise Refused(f"There is a job called {name!r} already.")
        prepared = crawl_service.prepare(request, on_progress)
        if prepared.known:  # another process created it at this moment
            raise Refused(f"There is a job called {name!r} already.")
        job_id, seeds = prepared.job.id, prepared.seeds
        crawl_service.retry(job_id)
        with self.database.session() as connection, connection.transaction():
            details: dict[str, object] = {"name": prepared.job.name, "seeds": seeds.seeds}
            if request.secrets:
                details["secrets"] = [name for text in request.secrets.texts() for name in text.names]
            self._record(connection, "create", job_id, details)
        if schedule is not None:
            self.schedule(job_id, schedule)
        return CreatedJob(self.show(job_id), seeds.seeds, seeds.bad, seeds.bad_lines)

    def schedule(self, job: str | int, when: str | None) -> datetime | None:
        """Crawl a job at an interval or by a cron expression; None: no longer. Returns the time of the next crawl."""
        schedule = parse(when) if when is not None else None
        with self.database.session() as connection, connection.transaction():
            job_id = _id(connection, job)
            actions.check_schedulable(connection, job_id)
            following = schedule.next_after(jobs.now(connection)) if schedule is not None else None
            jobs.set_schedule(connection, job_id, str(schedule) if schedule is not None else None, following)
            self._record(connection, "schedule", job_id, {"schedule": str(schedule) if schedule is not None else None})
        return following

    def edit(self, job: str | int, changes: Mapping[str, object], version: int | None = None) -> EditedJob:
        """Change options of a job (`edits.KEYS`), also for running visits; `edits.follow_up` is the second half."""
        with self.database.session() as connection:
            job_id = _id(connection, job)
            changed, note = edits.edit(
                connection, job_id, changes, version, actor=self.actor, settings=self.rule_settings
            )
            return EditedJob(**asdict(queries.get(connection, job_id)), changed=changed, note=note)

    def preview_scope(self, job: str | int, changes: Mapping[str, object], *, estimated: bool = False) -> ScopePreview:
        """Return what an edit of the rules of a job (scope, include, exclude, max_depth) would do to its URLs. Changes nothing. It takes up
        to 20 s for a million URLs; with `estimated`, a tenth of a second."""
        with self.database.session() as connection:
            settings = self.rule_settings
            return edits.preview(connection, _id(connection, job), changes, settings=settings, estimated=estimated)

    def undo_scope(self, job: str | int, version: int | None = None) -> EditedJob:
        """Restore the rules that a job had before their last edit; `edits.follow_up`, with the names in `changed`, is the second half.

        URLs that the edit removed wait again, pages that were crawled stay. Repeated, it undoes the edit before that.
        """
        with self.database.session() as connection:
            job_id = _id(connection, job)
            changed, note = edits.undo(connection, job_id, version, actor=self.actor, settings=self.rule_settings)
            return EditedJob(**asdict(queries.get(connection, job_id)), changed=changed, note=note)

    def scope_history(self, job: str | int) -> list[RulesVersion]:
        """Return all versions of the rules of a job, the oldest first; the last one is in force."""
        with self.database.session() as connection:
            job_id = _id(connection, job)
            versions = job_rules.history(connection, job_id)
            if versions:
                return [RulesVersion(**asdict(one)) for one in versions]
            found = queries.get(connection, job_id)
            return [RulesVersion(0, rules_of_spec(JobSpec.from_json(found.spec)), found.created_at, None, None)]

    def set_secrets(self, crawl_service: CrawlService, job_id: int, secrets: RequestSecrets) -> list[str]:
        """Change the headers, cookies and credentials of a job, also for running visits. Returns the names of those that it has.

        Domains of the job that require a login are tried again, and a job that had ended is reopened for it.
        """
        assert crawl_service.sealer is not None  # noqa: S101 — services that take secrets have one
        with self.database.session() as connection, connection.transaction():
            names = crawl_service.sealer.set_job_secrets(connection, job_id, secrets, ())
            self._record(connection, "secrets", job_id, {"secrets": names})
            retries = bool(secrets.texts()) and actions.wants_login(connection, job_id)
            if retries:
                jobs.reopen(connection, job_id, "it was given a header, a cookie or a password")
                jobs.ask_for_crawl(connection, [job_id])
        if retries:
            crawl_service.retry(job_id, logged_in=True)
        return names

    def begin_again(self, job: str | int) -> Job:
        """The first half of starting a job again, which is short: refuse what cannot be started, and note who did it.

        `finish_again` is the second half.
        """
        with self.database.session() as connection, connection.transaction():
            found, state = crawls.lock(connection, _id(connection, job))
            if found.kind is JobKind.TASKS:
                raise Refused(f"Job {found.name} is the one of all tasks; restart tasks instead.")
            if state is JobState.PAUSED:
                raise Refused(f"Job {found.name} is paused; resume it first.")
            self._record(connection, "again", found.id, {"name": found.name, "before": state})
        return self.show(found.id)

    def finish_again(self, crawl_service: CrawlService, job_id: int) -> None:
        """Let all pages of a job be fetched again, in a new crawl. Takes longer the more domains there are; idempotent."""
        crawl_service.restart(job_id)

    def matching(self, where: JobFilter, action: JobAction) -> JobsChanged:
        """Return which jobs `act_on_all` would change. Raises UsageError."""
        found = self._matching(where, action)
        return _changed(action, found[:MAX_AT_ONCE], more=len(found) > MAX_AT_ONCE)

    def act_on_all(self, where: JobFilter, action: JobAction) -> tuple[JobsChanged, list[int]]:
        """Pause, resume or cancel the jobs of a filter, `MAX_AT_ONCE` of them; returns what was changed, and the ids. For each job that
        is resumed `finish_resume` is the second half."""
        found = self._matching(where, action)
        changed: list[tuple[int, str]] = []
        for job_id, name in found[:MAX_AT_ONCE]:
            with suppress(NotFound, Refused):  # it was changed or deleted since
                change = self._act(job_id, action)
                changed += [(job_id, name)] if change.after is not change.before else []
        return _changed(action, changed, more=len(found) > MAX_AT_ONCE), [job_id for job_id, _ in changed]

    def _matching(self, where: JobFilter, action: JobAction) -> list[tuple[int, str]]:
        with self.database.session() as connection:
            return actions.matching(connection, where, action, limit=MAX_AT_ONCE + 1)

    def pause(self, job: str | int) -> StateChange:
        """Pause a job: within two seconds nothing of it is fetched any more. `resume` continues where it was."""
        return self._act(job, JobAction.PAUSE)

    def cancel(self, job: str | int) -> StateChange:
        """End a job where it is. What it found stays."""
        return self._act(job, JobAction.CANCEL)

    def resume(self, job: str | int, on_progress: OnProgress = _ignore) -> StateChange:
        """Let workers continue a paused job. If this is interrupted, the next sweep of a worker completes it."""
        change = self.begin_resume(job)
        self.finish_resume(change.job_id, on_progress)
        return change

    def begin_resume(self, job: str | int) -> StateChange:
        """The first half of `resume`, which is short: the state. `finish_resume` is the second."""
        return self._act(job, JobAction.RESUME)

    def finish_resume(self, job_id: int, on_progress: OnProgress = _ignore) -> None:
        """Make work ready that was parked while a job was paused. Takes longer the more there is."""
        self._repeat(jobs.unpark, job_id, on_progress)

    def delete(self, job: str | int, on_progress: OnProgress = _ignore) -> str:
        """Delete a job, its URLs and its pages; returns its name. The log and the archive keep requests and responses."""
        job_id, name = self.begin_delete(job)
        self.finish_delete(job_id, on_progress)
        return name

    def begin_delete(self, job: str | int) -> tuple[int, str]:
        """The first half of `delete`, which is short: the job is not found any more; its id and name. `finish_delete` is the second."""
        with self.database.session() as connection, connection.transaction():
            job_id = _id(connection, job)
            name = actions.delete(connection, job_id)
            self._record(connection, "delete", job_id, {"name": name})
        return job_id, name

    def finish_delete(self, job_id: int, on_progress: OnProgress = _ignore) -> None:
        """Delete the rows of a deleted job. Takes longer the more there are; if it is interrupted, the sweep of a worker completes it."""
        self._repeat(jobs.forget, job_id, on_progress)

    def _act(self, job: str | int, action: JobAction) -> StateChange:
        with self.database.session() as connection, connection.transaction():
            change = actions.act(connection, _id(connection, job), action)
            if change.after is not change.before:
                self._record(connection, action, change.job_id, {"name": change.name, "before": change.before})
        return change

    def _record(self, connection: Connection, action: str, job_id: int, details: dict[str, Any]) -> None:
        audit.write(connection, actor=self.actor, action=action, kind="job", object_id=job_id, details=details)

    def _repeat(self, step: Callable[[Connection, int], int | None], job_id: int, on_progress: OnProgress) -> None:
        """Call a step until it returns None, each time in a transaction of its own."""
        total = 0
        with self.database.session() as connection:
            while (done := step(connection, job_id)) is not None:
                total += done
                on_progress(total)


def _changed(action: JobAction, found: Sequence[tuple[int, str]], *, more: bool) -> JobsChanged:
    return JobsChanged(action, len(found), [name for _, name in found[:_NAMES]], more)


def _id(connection: Connection, job: str | int) -> int:
    return job if isinstance(job, int) else jobs.find(connection, job)


def _last_crawl(connection: Connection, job_id: int) -> ComparedCrawl:
    crawl = comparison.last_crawl(connection, job_id)
    if crawl is None:
        raise NotFound(f"Job {job_id} was not crawled yet, so there is nothing to compare.")
    return crawl
