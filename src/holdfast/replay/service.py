"""Replays: pages of crawls are queued to be fetched again, or are due for their parsers again, from the archive.

The rule: a retry is a wake (ADR 0063), and a chunk of pages is one transaction. What was fetched or parsed since `as_of` is left alone,
so a replay that was killed goes on with the same `as_of`, and does nothing twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from holdfast.db import audit, domains
from holdfast.db import jobs as job_rows
from holdfast.db.connection import Connection, Database
from holdfast.errors import UsageError
from holdfast.jobs.queries import retries
from holdfast.model.domain_name import canonical_domain
from holdfast.model.job import JobKind, JobState
from holdfast.replay import queries
from holdfast.replay.queries import PageSelection, ReplayJob, SelectedPage
from holdfast.replay.records import Replay, ReplayedJob, ReplayMode

KIND: Final = "page"
_OF_TASKS: Final = "pages of tasks: `holdfast tasks restart ID` fetches one again"
_CANCELLED: Final = "the job is cancelled; `holdfast crawl --job NAME --again` starts it again"


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What to replay; None: all."""

    mode: ReplayMode
    job: str | int | None = None
    domain: str | None = None
    since: datetime | None = None
    """Fetched then or later; `until`: before then."""
    until: datetime | None = None
    parser: str | None = None
    """Only pages that this parser has parsed, or should."""
    as_of: datetime | None = None
    """When the replay was begun; None: now."""

    def check(self) -> None:
        """Raise UsageError if a value is invalid. Needs no database."""
        if any(time is not None and time.tzinfo is None for time in (self.since, self.until, self.as_of)):
            raise UsageError("A time is written with its time zone.")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise UsageError("Nothing was fetched since a time and before an earlier one.")
        if self.mode is ReplayMode.LOST and self.parser is not None:
            raise UsageError("Lost pages are fetched again, whatever parser they are for.")
        if self.domain is not None:
            canonical_domain(self.domain)


@dataclass(slots=True)
class _Counts:
    looked_at: int = 0
    pages: int = 0
    waiting: int = 0
    skipped: int = 0
    forgotten: int = 0
    by_job: dict[int, int] = field(default_factory=dict)
    known: dict[int, ReplayJob] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplayService:
    """Replays of one database."""

    database: Database
    registrable: bool = False

    def arguments(self, request: ReplayRequest) -> dict[str, Any]:
        """Return the request as JSON: a job by its id, a domain by its canonical name. Raises NotFound, UsageError."""
        request.check()
        with self.database.session() as connection:
            selection = self._selection(connection, request)
        name = None if request.domain is None else canonical_domain(request.domain, registrable=self.registrable)
        given = (("since", request.since), ("until", request.until), ("as_of", request.as_of))
        times = {name: time.isoformat() for name, time in given if time}
        return {"mode": str(request.mode), "job": selection.job_id, "domain": name, "parser": request.parser, **times}

    def begun(self, request: ReplayRequest) -> ReplayRequest:
        """The request with the time at which it is begun: now, by the database's clock, unless it goes on with an earlier one."""
        if request.as_of is not None:
            return request
        with self.database.session() as connection:
            return replace(request, as_of=queries.now(connection))

    def count(self, request: ReplayRequest, watch: Callable[[int, int], None] = lambda *_: None) -> Replay:
        """Count what `run` would replay; nothing is changed. Raises NotFound, UsageError."""
        return self._walk(request, watch, None)

    def run(self, request: ReplayRequest, *, actor: str, watch: Callable[[int, int], None] = lambda *_: None) -> Replay:
        """Replay the selected pages. `watch` is called after each chunk with the pages looked at, and those that are replayed.

        After: with `fetch` and `lost` they wait, or a wake for them does, and ended jobs are open again; with `parse` they are due for
        their parsers. Pages that wait already, of cancelled jobs and of tasks are left alone, and counted. If it is killed, another call
        with the same `as_of` does the rest. Raises NotFound, UsageError.
        """
        return self._walk(request, watch, actor)

    def _walk(self, request: ReplayRequest, watch: Callable[[int, int], None], actor: str | None) -> Replay:
        request.check()
        counts = _Counts()
        with self.database.session() as connection:
            selection = self._selection(connection, request)
            after = queries.FIRST
            while chunk := queries.pages(connection, selection, after):
                after = chunk[-1].key
                counts.looked_at += len(chunk)
                self._take(connection, selection, [one for one in chunk if one.selected], counts, dry_run=actor is None)
                watch(counts.looked_at, counts.pages)
            if selection.lost:
                counts.forgotten += queries.forget_lost_versions(connection, selection, dry_run=actor is None)
            found = _answer(request, selection, counts, dry_run=actor is None)
            if actor is not None and (counts.pages or counts.forgotten):
                details = {
                    "mode": str(request.mode),
                    "pages": counts.pages,
                    "job": request.job,
                    "domain": request.domain,
                }
                with connection.transaction():
                    audit.write(connection, actor=actor, action="replay", kind=KIND, object_id="*", details=details)
        return found

    def _selection(self, connection: Connection, request: ReplayRequest) -> PageSelection:
        job_id = None if request.job is None else job_rows.id_of(connection, request.job)
        domain_id = None
        if request.domain is not None:
            domain_id = domains.id_of(connection, canonical_domain(request.domain, registrable=self.registrable))
        return PageSelection(
            job_id,
            domain_id,
            request.since,
            request.until,
            request.parser,
            request.as_of or queries.now(connection),
            lost=request.mode is ReplayMode.LOST,
            parse=request.mode is ReplayMode.PARSE,
        )

    def _take(
        self,
        connection: Connection,
        selection: PageSelection,
        found: Sequence[SelectedPage],
        counts: _Counts,
        *,
        dry_run: bool,
    ) -> None:
        """Replay the selected pages of a chunk, job by job."""
        by_job: dict[int, list[SelectedPage]] = {}
        for one in found:
            by_job.setdefault(one.job_id, []).append(one)
        if new := [job_id for job_id in by_job if job_id not in counts.known]:
            counts.known |= queries.jobs(connection, new)
        for job_id, of_job in sorted(by_job.items()):
            job = counts.known.get(job_id)
            if job is None:  # deleted; its rows go with it
                continue
            if _why_skipped(job) is not None:
                counts.skipped += len(of_job)
                counts.by_job[job_id] = counts.by_job.get(job_id, 0) + len(of_job)
                if selection.lost:
                    counts.forgotten += len(of_job) if dry_run else self._forget(connection, of_job)
                continue
            new_pages = [one for one in of_job if not one.waits]
            if not dry_run and (new_pages or selection.lost):
                self._replay(connection, selection, job, new_pages, of_job)
            counts.waiting += len(of_job) - len(new_pages)
            counts.pages += len(new_pages)
            counts.by_job[job_id] = counts.by_job.get(job_id, 0) + len(new_pages)

    @staticmethod
    def _replay(
        connection: Connection,
        selection: PageSelection,
        job: ReplayJob,
        new: Sequence[SelectedPage],
        every: Sequence[SelectedPage],
    ) -> None:
        """Replay pages of one job in one transaction. Refused if the job was cancelled meanwhile."""
        with connection.transaction():
            if selection.parse:
                queries.make_due(connection, selection, new)
                return
            if new:
                # All domains that are locked here, at once: they are locked in the order of their ids.
                domain_ids = sorted({one.domain_id for one in (every if selection.lost else new)})
                keys = [(one.domain_id, one.url_key) for one in new]
                pages = f"{len(new):,} page{'s were' if len(new) > 1 else ' was'}"
                retries.retry_chunk(
                    connection, job.id, domain_ids, (), keys=keys, only_urls=True, why=f"{pages} replayed"
                )
            if selection.lost:
                queries.lock_domains(connection, sorted({one.domain_id for one in every}))
                queries.forget_lost(connection, every)

    @staticmethod
    def _forget(connection: Connection, found: Sequence[SelectedPage]) -> int:
        with connection.transaction():
            queries.lock_domains(connection, sorted({one.domain_id for one in found}))
            return queries.forget_lost(connection, found)


def _why_skipped(job: ReplayJob) -> str | None:
    if job.kind is JobKind.TASKS:
        return _OF_TASKS
    return _CANCELLED if job.state is JobState.CANCELLED else None


def _answer(request: ReplayRequest, selection: PageSelection, counts: _Counts, *, dry_run: bool) -> Replay:
    jobs = [
        ReplayedJob(job.name, counts.by_job[job.id], _why_skipped(job))
        for job in sorted(counts.known.values(), key=lambda one: one.name)
        if counts.by_job.get(job.id)
    ]
    return Replay(
        mode=str(request.mode),
        dry_run=dry_run,
        as_of=selection.as_of,
        looked_at=counts.looked_at,
        pages=counts.pages,
        waiting=counts.waiting,
        skipped=counts.skipped,
        forgotten=counts.forgotten,
        jobs=jobs,
    )


def check_mode(*, fetch: bool, parse: bool, lost: bool) -> ReplayMode:
    """Return the one mode that is asked for. Raises UsageError."""
    asked = [mode for mode, on in ((ReplayMode.FETCH, fetch), (ReplayMode.PARSE, parse), (ReplayMode.LOST, lost)) if on]
    if len(asked) != 1:
        raise UsageError(
            "Say what to do: --fetch queues pages again, --parse parses them again, --lost queues what was lost."
        )
    return asked[0]
