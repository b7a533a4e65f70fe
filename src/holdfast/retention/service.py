"""Retention: archives what is old, and deletes it; says what it keeps and what it did.

The rule: nothing is deleted before its archive is complete. Each chunk is a transaction, and each file has its name when it is complete, so
a run may be killed at any moment, and the next one goes on. One run at a time works on a store.
"""

import logging
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast import failpoints
from holdfast.archive import reader
from holdfast.archive.file_store import FileStore, facts_of
from holdfast.archive.segment_file import SUFFIX as SEGMENT_SUFFIX
from holdfast.archive.segment_store import SegmentStore
from holdfast.archive.writer import safe_name
from holdfast.db import archive_segments, audit, backups
from holdfast.db import archives as manifest
from holdfast.db.connection import Connection, Database
from holdfast.errors import ArchiveDamaged, HoldfastError, NotFound, StoreError, StoreUnavailable, UnderWay
from holdfast.model import schedule
from holdfast.model.segment import SegmentState
from holdfast.retention import files
from holdfast.retention.queries import archives, chunks, jobs, log, runs, segments, tables
from holdfast.retention.queries.chunks import InterruptedArchive, Keys, ReadPart
from holdfast.retention.records import (
    ArchiveFile,
    RetentionResult,
    RetentionRule,
    RetentionStatus,
    SegmentGarbage,
    StepResult,
)
from holdfast.retention.scratch import delete_stale, scratch_folder
from holdfast.retention.segment_files import SegmentFiles, reporting
from holdfast.settings import Retention

logger: Final = logging.getLogger(__name__)

ACTOR: Final = "schedule"
"""The actor of runs by the schedule, in the audit log."""
URL_STEPS: Final = frozenset(step.name for step in jobs.STEPS)
"""The steps whose results count URLs."""
SEGMENTS: Final = "segments"
"""The step that moves files of the WARC archive."""
_WAITING: Final = frozenset({SegmentState.OPEN, SegmentState.LOCAL})
"""Segments that the object store does not have yet; they are aged when it has."""
_ATTEMPTS: Final = 5
"""How often a chunk is read again that changed meanwhile."""
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


@dataclass(slots=True)
class _Tally:
    rows: int = 0
    archives: int = 0
    bytes: int = 0


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

    @property
    def _files(self) -> SegmentFiles:
        return SegmentFiles(self.archive, self.scratch, self.objects)

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
            due = self._next_run(connection)
            return RetentionStatus(
                schedule=self.settings.schedule,
                next_run_at=due,
                store=self.place,
                rules=self.rules(),
                runs=runs.listing(connection),
                archives=archives.summary(connection),
                log_begins_at=manifest.log_begins_at(connection),
            )

    # The schedule ----------------------------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Whether the schedule asks for a run on this machine now."""
        if self.settings.schedule is None:
            return False
        with self.database.session() as connection:
            due = self._next_run(connection)
            return due is not None and due <= runs.now(connection)

    def vacuum_if_due(self, stopped: Callable[[], bool] = bool) -> bool:
        """Vacuum and analyze all tables if the settings ask for it now; return whether it was done."""
        if self.settings.vacuum is None:
            return False
        with self._session() as connection:
            last = runs.vacuumed_at(connection)
            if schedule.parse(self.settings.vacuum).next_after(last) > runs.now(connection):
                return False
            if not archives.try_lock(connection):
                return False
            try:
                runs.vacuum(connection, stopped=stopped)
            finally:
                archives.unlock(connection)
        return True

    def _next_run(self, connection: Connection) -> datetime | None:
        if self.settings.schedule is None:
            return None
        return schedule.parse(self.settings.schedule).next_after(runs.due_from(connection, machine()))

    # A run -----------------------------------------------------------------------------------------------------------

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
            found = self._old_segments(connection, kept)
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
        tally = _Tally()
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

    def _work(self, connection: Connection, step: str, kept: timedelta, tally: _Tally) -> "_Work":
        if step == SEGMENTS:
            return self._move_segments(connection, kept, tally)
        if step == log.STEP:
            return self._drop_weeks(connection, kept, tally)
        if step in _JOB_STEPS:
            return self._age_jobs(connection, _JOB_STEPS[step], kept, tally)
        return self._age_table(connection, _TABLE_STEPS[step], kept, tally)

    def _clean_up(self, connection: Connection) -> None:
        """Delete what killed processes left: scratch folders, and files of archives that were not completed, whose rows are in the store.
        Weeks of the log go on."""
        delete_stale(self.scratch)
        self._files.delete_unfinished()
        for found in chunks.interrupted(connection):
            if found.kind == log.STEP and found.place == self.store.place:
                continue
            try:
                self._discard(connection, found)
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

    def _discard(self, connection: Connection, found: InterruptedArchive) -> None:
        """Delete the files and the row of an archive that was not completed. Raises HoldfastError: nothing was forgotten."""
        store = self.store if found.place == self.store.place else self.open_store(found.place)
        listed = archives.files(connection, found.id)
        keys = {file.key for file in listed}
        for suffix in (*files.SUFFIX.values(), SEGMENT_SUFFIX):
            if found.kind == log.STEP:
                keys.add(_log_key(found.id, found.source or "", len(listed), suffix))
            else:
                names = [part.table for part in _PARTS[found.kind]] if found.kind in _PARTS else [manifest.SEGMENT]
                keys |= {_key(found.kind, found.id, name, suffix) for name in names}
        for key in sorted(keys):
            store.delete_file(key)
        chunks.forget(connection, found.id)

    # Chunks of rows ----------------------------------------------------------------------------------------------------

    def _age_jobs(self, connection: Connection, step: jobs.JobStep, kept: timedelta, tally: _Tally) -> "_Work":
        for job in jobs.ended_jobs(connection, step, kept):
            ended = True
            for keys in jobs.chunks(connection, step, job):

                def lock(keys: Keys = keys) -> bool:
                    return jobs.lock(connection, keys, kept)

                def delete(keys: Keys = keys, job: jobs.EndedJob = job) -> int:
                    if step.forgets:
                        jobs.forget(connection, keys, job.ended_at, pages=step is jobs.PAGES)
                    else:
                        for part in step.parts:
                            chunks.delete(connection, part, keys)
                    jobs.save_progress(connection, step, job)
                    return len(keys)

                ended = self._archive(connection, step.name, step.parts, keys, tally, lock=lock, delete=delete)
                yield
                if not ended:
                    break  # it was begun again: its rows are its memory
            if ended:
                jobs.save_progress(connection, step, job, done=True)

    def _age_table(self, connection: Connection, step: tables.TableStep, kept: timedelta, tally: _Tally) -> "_Work":
        for keys in tables.chunks(connection, step, kept):

            def lock(keys: Keys = keys) -> bool:
                return tables.lock(connection, step, keys, kept)

            def delete(keys: Keys = keys) -> int:
                return tables.remove(connection, step, keys)

            self._archive(connection, step.name, step.parts, keys, tally, lock=lock, delete=delete)
            yield

    def _archive(
        self,
        connection: Connection,
        kind: str,
        parts: Sequence[chunks.Part],
        keys: Keys,
        tally: _Tally,
        *,
        lock: Callable[[], bool],
        delete: Callable[[], int],
    ) -> bool:
        """Archive the rows of a chunk and delete them; False if `lock` says that they may not be deleted any more.

        After: the rows are in a complete archive, or still in the store. Raises StoreError for a chunk that others change all the time.
        """
        for _ in range(_ATTEMPTS):
            archive_id = chunks.begin(connection, kind, place=self.store.place, job_id=keys.job_id)
            with chunks.snapshot(connection):
                found = list(chunks.read(connection, parts, keys))
            failpoints.reach("retention_read")
            suffix = files.SUFFIX[self.settings.format]
            written = [
                self._write(_key(kind, archive_id, part.part.table, suffix), part)
                for part in found
                if part.rows or part is found[0]
            ]
            failpoints.reach("retention_archived")
            with connection.transaction():
                may = lock()
                if may and chunks.is_unchanged(connection, found, keys):
                    rows = delete()
                    for number, file in enumerate(written):
                        chunks.add_file(connection, archive_id, number, file)
                    first = min((part.first_at for part in found if part.first_at), default=None)
                    last = max((part.last_at for part in found if part.last_at), default=None)
                    total = sum(len(part.rows) for part in found)
                    if not chunks.complete(connection, archive_id, rows=total, first=first, last=last):
                        raise StoreError(
                            f"Archive {archive_id} is not being written any more; another run has taken it."
                        )
                    failpoints.reach("retention_deleted")
                    tally.rows += rows
                    tally.archives += 1
                    tally.bytes += sum(file.bytes for file in written)
                    return True
            for file in written:
                self.store.delete_file(file.key)
            chunks.forget(connection, archive_id)
            if not may:
                return False
        raise StoreError(
            f"Rows of the step {kind} changed each of {_ATTEMPTS} times while they were archived; they stay, and the next run goes on."
        )

    def _write(self, key: str, part: ReadPart) -> ArchiveFile:
        with scratch_folder(self.scratch) as folder:
            path = folder / f"rows{files.SUFFIX[self.settings.format]}"
            with reporting(path):
                files.write(path, part.columns, part.rows, self.settings.format)
                facts = facts_of(path)
            failpoints.reach("retention_scratch")
            self.store.put_file(key, path)
        return ArchiveFile(part.part.table, key, len(part.rows), facts.size, facts.sha256.hex())

    # Weeks of the log --------------------------------------------------------------------------------------------------

    def _drop_weeks(self, connection: Connection, kept: timedelta, tally: _Tally) -> "_Work":
        for part in log.old_parts(connection, kept):
            begun = log.started(connection, part.name, self.store.place)
            if begun is not None and not self._has_files(connection, begun.id):
                self._discard(connection, InterruptedArchive(begun.id, log.STEP, self.store.place, part.name))
                begun = None
            if begun is None:
                chunks.begin(connection, log.STEP, place=self.store.place, source=part.name)
                begun = log.started(connection, part.name, self.store.place)
                assert begun is not None  # noqa: S101 — it was begun a moment ago
            block, number, rows = begun.next_block, begun.files, begun.rows
            suffix = files.SUFFIX[self.settings.format]
            # What a killed run left of its last file.
            self.store.delete_file(_log_key(begun.id, part.name, number, suffix))
            last = False
            while not last:
                found = log.read(connection, part.name, block)
                block, last = found.next_block, found.last
                failpoints.reach("retention_read")
                if found.rows or not number:
                    read = ReadPart(chunks.Part("crawl_log", ""), found.columns, found.rows, 0, None, None)
                    file = self._write(_log_key(begun.id, part.name, number, suffix), read)
                    failpoints.reach("retention_archived")
                    chunks.add_file(connection, begun.id, number, file, str(block))
                    tally.bytes += file.bytes
                    number += 1
                    rows += len(found.rows)
                yield
            if not log.drop(connection, part.name, begun.id, rows):
                self._discard(connection, InterruptedArchive(begun.id, log.STEP, self.store.place, part.name))
                raise StoreError(
                    f"The week {part.name} of the log has {log.count(connection, part.name):,} rows, and {rows:,} were archived. It was "
                    "written to meanwhile, and stays; the next run archives it anew."
                )
            failpoints.reach("retention_deleted")
            tally.rows += rows
            tally.archives += 1
            yield

    def _has_files(self, connection: Connection, archive_id: int) -> bool:
        """Whether the store has all noted files of an archive, as they were written: another machine may have written them, whose store has
        the same name."""
        with scratch_folder(self.scratch) as folder:
            for file in archives.files(connection, archive_id):
                try:
                    self.store.get_file(file.key, folder / "file")
                except NotFound:
                    return False
                with reporting(folder):
                    facts = facts_of(folder / "file")
                if (facts.size, facts.sha256.hex()) != (file.bytes, file.sha256):
                    return False
        return True

    # Files of the WARC archive -----------------------------------------------------------------------------------------

    def _move_segments(self, connection: Connection, kept: timedelta, tally: _Tally) -> "_Work":
        problem: HoldfastError | None = None
        for name, old in self._old_segments(connection, kept).items():
            try:
                size = self._archive_segment(connection, name, old)
            except (ArchiveDamaged, NotFound) as found:  # the object of this one; it stays, and the others go on
                problem = found
                continue
            tally.rows += 1
            tally.archives += 1
            tally.bytes += size
            yield
        yield from self._delete_segments(connection)
        if problem is not None:
            raise problem

    def _archive_segment(self, connection: Connection, name: str, old: "_OldSegment") -> int:
        """Archive a segment, and return its size; nothing is deleted yet."""
        if not self.settings.archive_segments:
            archive_id = chunks.begin(connection, manifest.SEGMENT, place=self.store.place, source=name)
            segments.complete(connection, archive_id)
            return old.size
        with self._files.opened(name, old.entry) as path:
            with reporting(path):
                facts = facts_of(path)
            archive_id = chunks.begin(connection, manifest.SEGMENT, place=self.store.place, source=name)
            key = _key(manifest.SEGMENT, archive_id, manifest.SEGMENT, SEGMENT_SUFFIX)
            self.store.put_file(key, path)
        failpoints.reach("retention_archived")
        with connection.transaction():
            file = ArchiveFile(manifest.SEGMENT, key, 1, facts.size, facts.sha256.hex())
            chunks.add_file(connection, archive_id, 0, file)
            segments.complete(connection, archive_id)
        return facts.size

    def _delete_segments(self, connection: Connection) -> "_Work":
        """Delete the files and objects of archived segments that no kept backup names, then what the manifest says of them."""
        oldest = backups.oldest_kept(connection)
        archived = segments.to_delete(connection)
        states = archive_segments.states(connection, list(archived))
        for name, (archive_id, archived_at) in archived.items():
            state, here = states.get(name), self._files.is_here(name)
            if state is SegmentState.LOST and not here:
                segments.mark_deleted(connection, archive_id, name)  # its machine is gone, and its archive is not
                continue
            if (oldest is not None and oldest <= archived_at) or (self.objects is not None and state in _WAITING):
                continue  # it is in a backup, or uploaded first
            if not here and (state is not SegmentState.UPLOADED or self.objects is None):
                continue  # it is on another machine
            self._delete_segment(name, state)
            failpoints.reach("retention_deleted")
            if self.objects is not None or state is not SegmentState.UPLOADED:
                segments.mark_deleted(connection, archive_id, name)
            yield
        if self.objects is not None:
            for name in segments.deleted_elsewhere(connection, list(self._files.closed())):
                self._files.delete_file(name)  # another machine has archived it, from the object store
                yield

    def _delete_segment(self, name: str, state: SegmentState | None) -> None:
        """Delete the file of a segment and, if it is uploaded, its object. It may be repeated. Raises ArchiveUnavailable, HoldfastError."""
        self._files.delete_file(name)
        if self.objects is not None and state is SegmentState.UPLOADED:
            failpoints.reach("retention_file_deleted")
            self.objects.delete(name)

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
                segments.keep_named(connection)
                old = self._unneeded(connection, grace)
                free = backups.deletable(connection, manifest.SEGMENT, list(old), dry_run=dry_run)
                sizes = {name: one.size for name, one in old.items() if name in free}
                for number, name in enumerate(() if dry_run else sizes, 1):
                    entry = old[name].entry
                    self._delete_segment(name, None if entry is None else entry.state)
                    segments.forget(connection, name)
                    watch(number)
                if not dry_run:
                    backups.forget_unnamed(connection, manifest.SEGMENT, list(sizes))
            finally:
                archives.unlock(connection)
        return SegmentGarbage(len(sizes), sum(sizes.values()), len(old) - len(sizes), dry_run)

    def _old_segments(self, connection: Connection, kept: timedelta) -> "dict[str, _OldSegment]":
        """Return the segments that no page needs that is kept, and that are not archived yet, by name."""
        segments.keep_needed(connection, kept)
        return self._unneeded(connection, kept)

    def _unneeded(self, connection: Connection, age: timedelta) -> "dict[str, _OldSegment]":
        """Return the segments of this machine, and those that any has uploaded, that are older than `age`, are not noted to stay, and hold
        no body of one that stays. Before: what stays is noted.

        Folder by folder, each of a worker, since records refer to bodies of their own folder only; of each no more is in memory than what
        may go, and what is on this machine.
        """
        before = datetime.now(UTC) - age
        began = {safe_name(name): at for name, at in segments.writers(connection).items()}
        here, found = set(self._files.folders()), dict[str, _OldSegment]()
        look: _FolderLook | None = None
        for folder, rows in segments.in_manifest(connection) if self.objects is not None else ():
            if look is None or look.folder != folder:
                found |= self._of_folder(connection, look)
                look = _FolderLook(folder, self._files.closed(folder), before, began.get(folder))
                here.discard(folder)
            look.take(rows)
        found |= self._of_folder(connection, look)
        for folder in sorted(here):
            found |= self._of_folder(
                connection, _FolderLook(folder, self._files.closed(folder), before, began.get(folder))
            )
        return found

    def _of_folder(self, connection: Connection, look: "_FolderLook | None") -> "dict[str, _OldSegment]":
        """Return what may go of a folder. Before: it has all rows of the manifest."""
        if look is None:
            return {}
        look.take_rest(segments.kept_of(connection, list(look.there)))
        old = look.old
        if not old:
            return {}
        for staying in self._staying(connection, look):
            originals = segments.known_originals(connection, list(staying))
            for name, one in staying.items():
                known = originals.get(name)
                for original in self._originals(connection, name, one) if known is None else known:
                    old.pop(original, None)
            if not old:
                break
        return old

    def _staying(self, connection: Connection, look: "_FolderLook") -> "Iterator[dict[str, _OldSegment]]":
        """Yield, in chunks, the segments of a folder that can be read here and stay."""
        if self.objects is not None:
            for _, rows in segments.in_manifest(connection, look.folder):
                yield {row.segment: one for row in rows if (one := look.readable(row)) and row.segment not in look.old}
        yield {name: one for name in look.there if name not in look.old and (one := look.of_file(name, None))}

    def _originals(self, connection: Connection, name: str, one: "_OldSegment") -> set[str]:
        """Read and save to which segments records of a segment refer."""
        try:
            with self._files.opened(name, one.entry) as path, reporting(path):
                found = reader.originals(path)
        except NotFound:
            return set()  # someone deleted its object, so it cannot be read anyway
        segments.save_originals(connection, name, found)
        return found


@dataclass(frozen=True, slots=True)
class _OldSegment:
    size: int
    entry: segments.ManifestEntry | None
    """What the manifest of the object store says; None: nothing."""
    at: datetime
    """When the file was written; of one that is not here, when it was uploaded."""


class _FolderLook:
    """Which segments of one folder of the archive may go. Used once, by one thread."""

    def __init__(self, folder: str, there: dict[str, Path], before: datetime, began: datetime | None) -> None:
        """`there`: the closed files of this machine; `before`: what may go is older; `began`: since when the worker of the folder runs."""
        self.folder = folder
        self.there = there
        """The files of this machine that the manifest did not name, so far."""
        self.old: dict[str, _OldSegment] = {}
        """What may go, unless a segment that stays holds records that refer to it."""
        self._before = before
        self._began = began
        self._named: dict[str, Path] = {}
        self._is_readable = True

    def take(self, rows: Sequence[segments.ManifestRow]) -> None:
        """Judge segments of the manifest."""
        for row in rows:
            if (path := self.there.pop(row.segment, None)) is not None:
                self._named[row.segment] = path
            if row.entry.state in _WAITING:
                # What only another machine has cannot be read here; it may refer to a body of any segment of its worker's life.
                self._is_readable &= self.readable(row) is not None or self._is_of_worker(row.entry.at)
            elif not row.kept and (one := self.readable(row)) is not None and self._is_old(one):
                self.old[row.segment] = one

    def take_rest(self, kept: set[str]) -> None:
        """Judge what is on this machine, and not in the manifest. `kept`: what of it stays."""
        for name in self.there:
            if name not in kept and (one := self.of_file(name, None)) is not None and self._is_old(one):
                self.old[name] = one
        if not self._is_readable:
            self.old = {}

    def readable(self, row: segments.ManifestRow) -> _OldSegment | None:
        """A segment of the manifest that can be read here; None: another machine has it, or it is lost."""
        if row.segment in self._named and (one := self.of_file(row.segment, row.entry)) is not None:
            return one
        return (
            _OldSegment(row.entry.size, row.entry, row.entry.at) if row.entry.state is SegmentState.UPLOADED else None
        )

    def of_file(self, name: str, entry: segments.ManifestEntry | None) -> _OldSegment | None:
        """A segment on this machine; None: it was uploaded and removed meanwhile."""
        path = self._named[name] if name in self._named else self.there[name]
        try:
            facts = path.stat()
        except FileNotFoundError:
            return None
        return _OldSegment(facts.st_size, entry, datetime.fromtimestamp(facts.st_mtime, UTC))

    def _is_old(self, one: _OldSegment) -> bool:
        return one.at < self._before and not self._is_of_worker(one.at)

    def _is_of_worker(self, at: datetime) -> bool:
        """Whether a segment of this time is of the present life of a worker that runs."""
        return self._began is not None and at >= self._began


_Work = Generator[None, None, None]
_JOB_STEPS: Final = {step.name: step for step in jobs.STEPS}
_TABLE_STEPS: Final = {step.name: step for step in tables.STEPS}
_PARTS: Final = {step.name: step.parts for step in jobs.STEPS} | {step.name: step.parts for step in tables.STEPS}


def machine() -> str:
    """The name of this machine, as runs of retention are listed."""
    return socket.gethostname()[:64] or "?"


def _log_key(archive_id: int, part: str, number: int, suffix: str) -> str:
    """The key of a file of a week of the log."""
    return _key(log.STEP, archive_id, part, f"-{number:05}{suffix}")


def _key(kind: str, archive_id: int, table: str, suffix: str) -> str:
    """The key of a file; known before it is written, so that it can be found after a kill."""
    return f"{kind}/{archive_id // 1000:06}/{archive_id:09}-{table}{suffix}"
