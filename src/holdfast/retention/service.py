"""Retention: archives what is old, and deletes it; says what it keeps and what it did.

The rule: nothing is deleted before its archive is complete. Each chunk is a transaction, and each file has its name when it is complete, so
a run may be killed at any moment, and the next one goes on. One run at a time works on a store.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.archive.file_store import FileStore
from holdfast.archive.segment_store import SegmentStore
from holdfast.db import archives as manifest
from holdfast.db import audit
from holdfast.db.connection import Connection, Database
from holdfast.errors import HoldfastError, StoreUnavailable, UnderWay
from holdfast.retention.archive_files import ArchiveFiles
from holdfast.retention.queries import archives, chunks, jobs, log, runs, tables
from holdfast.retention.records import (
    RetentionResult,
    RetentionRule,
    RetentionStatus,
    SegmentGarbage,
    StepResult,
)
from holdfast.retention.row_steps import RowSteps, Tally, Work
from holdfast.retention.schedule import RetentionSchedule, machine
from holdfast.retention.scratch import delete_stale
from holdfast.retention.segment_files import SegmentFiles
from holdfast.retention.segment_steps import SegmentSteps
from holdfast.settings import Archive, Retention

logger: Final = logging.getLogger(__name__)

ACTOR: Final = "schedule"
"""The actor of runs by the schedule, in the audit log."""
URL_STEPS: Final = frozenset(step.name for step in jobs.STEPS)
"""The steps whose results count URLs."""
SEGMENTS: Final = "segments"
"""The step that moves files of the WARC archive."""
_WHAT: Final = {
    "content": ("content", "texts, documents and files of the archive (WARC) of jobs that ended"),
    "frontier_completed": ("frontier_completed", "URLs without a page of jobs that ended: done or denied"),
    "frontier_failed": ("frontier_failed", "URLs without a page of jobs that ended: failed"),
    "pages": ("pages", "pages of jobs that ended, with their URLs, links, items, versions"),
    "versions": ("versions", "earlier versions of pages, from their replacement on"),
    "tasks": ("tasks", "tasks that ended, but the newest of each URL"),
    "images": ("images", "images on pages since they were last seen, on domains without a live job"),
    "webhooks": ("webhooks", "messages that were delivered or given up"),
    "audit": ("audit", "the audit log"),
    "log": ("crawl_log", "the log of requests, by weeks; sums stay"),
    "transitions": ("history", "changes of the status of domains, but the last"),
    "claims": ("history", "claims that ended, never longer ago than the log begins"),
    "segments": ("content", "files of the archive (WARC) that no page needs that is kept"),
}
"""The steps of a run in their order: the setting with the period, and what it is."""
STEPS: Final = tuple(_WHAT)

Watch = Callable[[str, int], None]
"""Called with the step, and the rows that it has done so far."""


class Stopped(Exception):
    """The run was asked to stop; the next one goes on."""


@dataclass(frozen=True, slots=True)
class RetentionService:
    """The retention of one store, and of the archive of this machine."""

    database: Database
    settings: Retention
    store: FileStore
    """Where archives go."""
    open_store: Callable[[str], FileStore]
    """Opens the store at a place, as the manifest names it."""
    archive: Path
    """The folder of the WARC archive of this machine."""
    scratch: Path
    """The folder for scratch folders."""
    objects: SegmentStore | None = None
    """The object store of the WARC archive (archive.store); None: there is none."""
    dedup_age: timedelta = Archive.model_fields["dedup_age"].default
    """The greatest age of a body to which a new record of the WARC archive refers (archive.dedup_age)."""

    @property
    def _files(self) -> ArchiveFiles:
        return ArchiveFiles(self.store, self.open_store, self.scratch, self.settings.format)

    @property
    def _row_steps(self) -> RowSteps:
        return RowSteps(self._files)

    @property
    def _segment_steps(self) -> SegmentSteps:
        files = SegmentFiles(self.archive, self.scratch, self.objects)
        return SegmentSteps(self._files, files, self.settings.archive_segments, self.dedup_age)

    @property
    def _schedule(self) -> RetentionSchedule:
        return RetentionSchedule(self.database, self.settings)

    @property
    def place(self) -> str:
        """Where archives go."""
        return self.store.place

    def rules(self) -> list[RetentionRule]:
        """Return what is kept how long, in the order of a run."""
        periods = self.settings.periods()
        return [
            RetentionRule(step, f"retention.{setting}", what, periods.get(setting))
            for step, (setting, what) in _WHAT.items()
        ]

    def status(self) -> RetentionStatus:
        """Return what is kept, what was done, and what is archived."""
        with self.database.session() as connection:
            due = self._schedule.next_run(connection)
            return RetentionStatus(
                schedule=self.settings.schedule,
                next_run_at=due,
                store=self.place,
                rules=self.rules(),
                runs=runs.listing(connection),
                archives=archives.summary(connection),
                log_begins_at=manifest.log_begins_at(connection),
            )

    def is_due(self) -> bool:
        """Whether the schedule asks for a run on this machine now."""
        return self._schedule.is_due()

    def vacuum_if_due(self, stopped: Callable[[], bool] = bool) -> bool:
        """Vacuum and analyze all tables if the settings ask for it now; return whether it was done."""
        return self._schedule.vacuum_if_due(stopped)

    def run(
        self,
        *,
        dry_run: bool = False,
        actor: str = ACTOR,
        watch: Watch = lambda _step, _rows: None,
        stopped: Callable[[], bool] = bool,
    ) -> RetentionResult:
        """Archive and delete what is older than the settings say; `dry_run`: only count it.

        After: what is left is younger, or belongs to a live job. A step that cannot go on says so in its result, and the others are done.
        Raises UnderWay if another run works on this store, Stopped.
        """
        if dry_run:
            with self._session() as connection:
                return RetentionResult(True, [self._counted(connection, step, watch) for step in _WHAT])
        with self._session() as connection:
            if not archives.try_lock(connection):
                raise UnderWay("Retention runs already on this store; `holdfast retention status` says where.")
            try:
                runs.begin(connection, machine())
                self._clean_up(connection)
                result = RetentionResult(
                    False, [self._done(connection, step, watch, stopped) for step in _WHAT if not stopped()]
                )
                if stopped():
                    raise Stopped
                with connection.transaction():
                    runs.end(connection, machine(), result)
                    details = {step.step: step.rows for step in result.steps if step.rows}
                    audit.write(
                        connection, actor=actor, action="run", kind="retention", object_id=machine(), details=details
                    )
            finally:
                archives.unlock(connection)
        return result

    @contextmanager
    def _session(self) -> Iterator[Connection]:
        """A session whose statements may take long."""
        with self.database.session() as connection:
            runs.without_timeouts(connection)
            yield connection

    def _counted(self, connection: Connection, step: str, watch: Watch) -> StepResult:
        kept = self.settings.periods().get(_WHAT[step][0])
        watch(step, 0)
        if kept is None:
            return StepResult(step, 0, 0, 0)
        if step == SEGMENTS:
            found = self._segment_steps.old(connection, kept)
            return StepResult(step, len(found), 0, sum(one.size for one in found.values()))
        rows = 0
        if step == log.STEP:
            for _, count in log.waiting(connection, kept):
                rows += count
                watch(step, rows)
        elif step in _JOB_STEPS:
            for job in jobs.ended_jobs(connection, _JOB_STEPS[step], kept):
                rows += jobs.count(connection, _JOB_STEPS[step], job)
                watch(step, rows)
        else:
            rows = tables.count(connection, _TABLE_STEPS[step], kept)
        watch(step, rows)
        return StepResult(step, rows, 0, 0)

    def _done(self, connection: Connection, step: str, watch: Watch, stopped: Callable[[], bool]) -> StepResult:
        kept = self.settings.periods().get(_WHAT[step][0])
        tally = Tally()
        watch(step, 0)
        if kept is None:
            return StepResult(step, 0, 0, 0)
        work = self._work(connection, step, kept, tally)
        try:
            for _ in work:
                watch(step, tally.rows)
                if stopped():
                    raise Stopped
        except StoreUnavailable:
            raise
        except HoldfastError as problem:
            return StepResult(step, tally.rows, tally.archives, tally.bytes, str(problem))
        finally:
            work.close()
        return StepResult(step, tally.rows, tally.archives, tally.bytes)

    def _work(self, connection: Connection, step: str, kept: timedelta, tally: Tally) -> Work:
        if step == SEGMENTS:
            return self._segment_steps.move(connection, kept, tally)
        if step == log.STEP:
            return self._row_steps.drop_weeks(connection, kept, tally)
        if step in _JOB_STEPS:
            return self._row_steps.age_jobs(connection, _JOB_STEPS[step], kept, tally)
        return self._row_steps.age_table(connection, _TABLE_STEPS[step], kept, tally)

    def _clean_up(self, connection: Connection) -> None:
        """Delete what killed processes left: scratch folders, and files of archives that were not completed, whose rows are in the store.
        Weeks of the log go on."""
        delete_stale(self.scratch)
        self._segment_steps.segments.delete_unfinished()
        for found in chunks.interrupted(connection):
            if found.kind == log.STEP and found.place == self.store.place:
                continue
            try:
                self._files.discard(connection, found)
            except StoreUnavailable:
                raise
            except HoldfastError as problem:
                if found.place == self.store.place:
                    continue  # the steps say why, and the next run tries again
                logger.warning(
                    "retention: files of archive %d, which was not completed, may be left in %s: %s",
                    found.id,
                    found.place,
                    problem,
                )
                chunks.forget(connection, found.id)

    def collect_segments(
        self, grace: timedelta, *, dry_run: bool = False, watch: Callable[[int], None] = lambda _: None
    ) -> SegmentGarbage:
        """Delete files of the archive (WARC) of this machine, and objects, that no page, version or task names, without an archive.

        Only those older than `grace` that hold no body of a segment that stays; one that a kept backup may name stays, too.
        """
        with self._session() as connection:
            if not archives.try_lock(connection):
                raise UnderWay("Retention runs on this store; collect when it has ended.")
            try:
                return self._segment_steps.collect(connection, grace, dry_run=dry_run, watch=watch)
            finally:
                archives.unlock(connection)


_JOB_STEPS: Final = {step.name: step for step in jobs.STEPS}
_TABLE_STEPS: Final = {step.name: step for step in tables.STEPS}
