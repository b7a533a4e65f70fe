"""The restore of archives: rows go back into their tables, or into a schema for analysis; segments back into the archive (WARC).

The rule: every file is read to its end and compared with the hash in the manifest before a row of it is written, and an archive is restored
in one transaction, so a restore may be killed and repeated. A row that is newer in the store stays as it is.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast import failpoints
from holdfast.archive.file_store import DEFAULT, FileStore, facts_of
from holdfast.archive.machine_id import machine_id
from holdfast.db import archive_segments
from holdfast.db import archives as manifest
from holdfast.db import jobs as db_jobs
from holdfast.db.connection import Connection, Database
from holdfast.errors import ArchiveDamaged, NotFound, Refused, UnderWay, UsageError
from holdfast.retention import files
from holdfast.retention.queries import archives, jobs, log, runs, tables
from holdfast.retention.records import ArchiveDetails, ArchiveEntry, ArchiveFile, RestoredArchive
from holdfast.retention.scratch import scratch_folder
from holdfast.retention.segment_files import SegmentFiles, reporting

KEEP: Final = timedelta(days=30)
"""How long what was restored is not archived again."""
TABLES: Final = "tables"
KINDS: Final = (*(step.name for step in (*jobs.STEPS, *tables.STEPS)), log.STEP, manifest.SEGMENT)
_SCHEMA: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")
_OWN_SCHEMAS: Final = frozenset({"public", "procrastinate", "information_schema"})

_WITH_SEGMENT: Final = frozenset({"crawled_pages", "page_versions"})
"""Tables whose rows say in which segment their source is."""

RestoreWatch = Callable[[int, int, int], None]
"""Called with the archives that are restored, all that are to be, and the rows that were written."""
OpenStore = Callable[[str], FileStore]
"""Opens the store at a place, as the manifest names it."""


@dataclass(frozen=True, slots=True)
class ArchiveService:
    """The archives of one store: list, show, restore."""

    database: Database
    open_store: OpenStore
    archive: Path
    """The folder of the WARC archive of this machine."""
    scratch: Path
    """The folder for scratch folders."""
    machine: str | None = None
    """The name of this machine in the manifest of the object store (archive.store); None: there is none."""

    def listing(
        self,
        *,
        kind: str | None = None,
        job: str | None = None,
        state: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[ArchiveEntry]:
        """Return archives, the newest first. Raises NotFound if there is no such job, UsageError if there is no such kind."""
        check_kind(kind)
        with self.database.session() as connection:
            job_id = None if job is None else db_jobs.find(connection, job)
            return archives.listing(connection, kind=kind, job_id=job_id, state=state, before=before, limit=limit)

    def show(self, archive_id: int) -> ArchiveDetails:
        """Return an archive with its files. Raises NotFound."""
        with self.database.session() as connection:
            return ArchiveDetails(archives.get(connection, archive_id), archives.files(connection, archive_id))

    def matching(self, *, kind: str | None, job: str | None) -> list[int]:
        """Return the ids of complete archives of a kind and a job, the oldest first. Raises NotFound, UsageError."""
        check_kind(kind)
        with self.database.session() as connection:
            job_id = None if job is None else db_jobs.find(connection, job)
            return archives.matching(connection, kind=kind, job_id=job_id)

    def check(self, archive_id: int, watch: Callable[[int, int], None] = lambda *_: None) -> int:
        """Read all files of an archive and compare them with the manifest; return their number. `watch` is called after each file with the
        files that were read, and all. Raises ArchiveDamaged, NotFound."""
        with self.database.session() as connection:
            entry, listed = archives.get(connection, archive_id), archives.files(connection, archive_id)
        with self._fetched(entry, listed, watch) as paths:
            return len(paths)

    def select(self, *, ids: Sequence[int] = (), kind: str | None = None, job: str | None = None) -> list[int]:
        """Return the archives that a restore takes: these, or the complete ones of a kind and a job, pages before what belongs to them.
        Raises UsageError if nothing is given, NotFound."""
        if not ids and kind is None and job is None:
            raise UsageError(
                "Say which archives: their ids, a kind (--kind) or a job (--job); `holdfast archive list` shows them."
            )
        if ids:
            with self.database.session() as connection:
                return [archives.get(connection, archive_id).id for archive_id in dict.fromkeys(ids)]
        first = self.matching(kind="pages", job=job) if kind in {None, "pages"} else []
        done = set(first)
        return [*first, *(one for one in self.matching(kind=kind, job=job) if one not in done)]

    def restore_all(
        self,
        *,
        ids: Sequence[int] = (),
        kind: str | None = None,
        job: str | None = None,
        schema: str | None = None,
        keep: timedelta = KEEP,
        watch: RestoreWatch = lambda *_: None,
    ) -> list[RestoredArchive]:
        """Restore archives one after the other, those that `select` names: into their tables, or into a schema for analysis. `watch` is
        called after each. Raises what `select` and `restore` raise; what was restored before that stays."""
        check_schema(schema)
        wanted = self.select(ids=ids, kind=kind, job=job)
        done: list[RestoredArchive] = []
        watch(0, len(wanted), 0)
        for archive_id in wanted:
            done.append(self.restore(archive_id, into=schema or TABLES, keep=keep))
            watch(len(done), len(wanted), sum(one.restored for one in done))
        return done

    def restore(self, archive_id: int, *, into: str = TABLES, keep: timedelta = KEEP) -> RestoredArchive:
        """Restore one archive: into its tables, or into the schema `into` for analysis.

        After: its rows are there, those of tables for `keep` at least; one that was restored before is unchanged. Raises NotFound,
        ArchiveDamaged, Refused if its kind or the absence of its job forbids its tables, UnderWay while retention runs.
        """
        with self.database.session() as connection:
            entry, listed = archives.get(connection, archive_id), archives.files(connection, archive_id)
        if entry.state == "writing":
            raise Refused(f"Archive {archive_id} is not complete: its rows are still in the store.")
        if into != TABLES:
            return self._for_analysis(entry, listed, into)
        if entry.kind not in archives.INTO_TABLES:
            raise Refused(
                f"Archive {archive_id} holds {entry.kind}, which are counted when they are written; "
                "`--schema NAME` restores them for analysis."
            )
        with self._fetched(entry, listed) as paths, self.database.session() as connection:
            runs.without_timeouts(connection)
            if not archives.try_lock(connection):
                raise UnderWay("Retention runs on this store; restore when it has ended.")
            try:
                restored, needed = self._into_tables(connection, entry, listed, paths, keep)
            finally:
                archives.unlock(connection)
        rows = len(listed) if entry.kind == manifest.SEGMENT else sum(file.rows for file in listed)
        return RestoredArchive(archive_id, entry.kind, rows, restored, TABLES, sorted(needed))

    def _into_tables(
        self,
        connection: Connection,
        entry: ArchiveEntry,
        listed: Sequence[ArchiveFile],
        paths: Sequence[Path],
        keep: timedelta,
    ) -> tuple[int, set[int]]:
        """Restore an archive; return the rows that were written, and the archives of segments that its pages are in."""
        needed: set[int] = set()
        with connection.transaction():
            state, kind, job_id, source = archives.lock(connection, entry.id)
            if kind == manifest.SEGMENT:
                restored = self._restore_segment(source or "", listed, paths)
            elif kind == log.STEP:
                restored = _restore_week(connection, log.week_of(source or ""), paths) if state == "complete" else 0
            else:
                if job_id is not None and not archives.keep_job(connection, job_id, keep):
                    raise Refused(
                        f"The job of archive {entry.id} was deleted; `--schema NAME` restores its rows for analysis."
                    )
                restored, needed = _restore_rows(connection, listed, paths, job_id, keep)
            failpoints.reach("retention_restored")
            archives.mark_restored(connection, entry.id, keep)
            if kind == manifest.SEGMENT and self.machine is not None:
                # A worker of this machine uploads it; until then others can say where it is.
                with reporting(self.archive):
                    folder_id = machine_id(self.archive)
                archive_segments.found(
                    connection, archive_segments.machine(connection, folder_id, self.machine), [source or ""]
                )
        return restored, needed

    def _restore_segment(self, name: str, listed: Sequence[ArchiveFile], paths: Sequence[Path]) -> int:
        if not paths:
            raise Refused(
                f"The segment {name} was deleted without an archive (retention.archive_segments is false); it cannot be restored."
            )
        target = self.archive / name
        with reporting(target):
            if target.exists():
                if facts_of(target).sha256.hex() != listed[0].sha256:
                    raise Refused(f"There is another file {target}; move it away first.")
                return 0
        SegmentFiles(self.archive, self.scratch).restore(name, paths[0])
        return 1

    def _for_analysis(self, entry: ArchiveEntry, listed: Sequence[ArchiveFile], schema: str) -> RestoredArchive:
        if entry.kind == manifest.SEGMENT:
            raise Refused(f"Archive {entry.id} is a file of the archive (WARC); it is restored without --schema.")
        check_schema(schema)
        restored = 0
        with self._fetched(entry, listed) as paths, self.database.session() as connection:
            runs.without_timeouts(connection)
            with connection.transaction():
                for table in sorted({_table_of(file) for file in listed}):
                    archives.make_for_analysis(connection, schema, table)
                    archives.replace_for_analysis(connection, schema, table, entry.id)
                for file, path in zip(listed, paths, strict=True):
                    names, rows = files.read(path)
                    restored += archives.copy_rows(connection, (schema, _table_of(file)), names, rows)
                for table in sorted({_table_of(file) for file in listed}):
                    archives.sign_for_analysis(connection, schema, table, entry.id)
        return RestoredArchive(entry.id, entry.kind, sum(file.rows for file in listed), restored, schema)

    @contextmanager
    def _fetched(
        self, entry: ArchiveEntry, listed: Sequence[ArchiveFile], watch: Callable[[int, int], None] = lambda *_: None
    ) -> Iterator[list[Path]]:
        """Copies of the files of an archive, each compared with the manifest. Raises ArchiveDamaged, NotFound."""
        store = self.open_store(entry.place)
        with scratch_folder(self.scratch) as folder:
            paths = []
            for number, file in enumerate(listed):
                path = folder / f"{number:06}-{file.key.rpartition('/')[2]}"
                try:
                    store.get_file(file.key, path)
                except NotFound as problem:
                    if entry.place != DEFAULT:
                        raise
                    raise NotFound(
                        f"{problem} Without retention.store archives are in the data folder of the machine that wrote them; if that was "
                        f"another one, restore archive {entry.id} there."
                    ) from problem
                facts = facts_of(path)
                if (facts.size, facts.sha256.hex()) != (file.bytes, file.sha256):
                    raise ArchiveDamaged(
                        f"The file {file.key} of archive {entry.id} in {entry.place} is damaged: it has {facts.size:,} bytes and the "
                        f"SHA-256 {facts.sha256.hex()}, not {file.bytes:,} and {file.sha256}. Nothing of it was restored."
                    )
                paths.append(path)
                watch(len(paths), len(listed))
            failpoints.reach("retention_scratch")
            yield paths


def check_kind(kind: str | None) -> None:
    """Raise UsageError if retention writes no archives of this kind; None: all kinds."""
    if kind is not None and kind not in KINDS:
        raise UsageError(f"There are no archives of the kind {kind[:50]!r}; kinds: {', '.join(KINDS)}.")


def check_schema(schema: str | None) -> None:
    """Raise UsageError if archives cannot be restored into a schema of this name; None: into their tables."""
    if schema is not None and (
        not _SCHEMA.fullmatch(schema) or schema in _OWN_SCHEMAS or schema.startswith("pg_") or schema == TABLES
    ):
        raise UsageError(
            f"--schema {schema[:50]!r} must be a name of small letters, digits and _, and not one of ours."
        )


def _table_of(file: ArchiveFile) -> str:
    return "crawl_log" if file.table_name.startswith("crawl_log") else file.table_name


def _restore_rows(
    connection: Connection, listed: Sequence[ArchiveFile], paths: Sequence[Path], job_id: int | None, keep: timedelta
) -> tuple[int, set[int]]:
    """Insert rows in the order in which they were archived: pages before what hangs on them. Return how many, and the archives of segments
    that they name.

    Before: the job is kept; None: each of these rows has its own.
    """
    restored, needed = 0, set[int]()
    for file, path in zip(listed, paths, strict=True):
        table = file.table_name
        names, rows = files.read(path)
        there = archives.columns_there(connection, table)
        columns = [name for name in names if name in there]
        places = [names.index(name) for name in columns]
        source = archives.make_temporary(connection, table)
        archives.copy_rows(connection, (source,), columns, ([row[place] for place in places] for row in rows))
        if job_id is None:
            archives.keep_jobs(connection, source, keep)
        if table == "url_frontier" and job_id is not None:
            restored += archives.insert_urls(connection, source, columns, job_id)
        else:
            restored += archives.insert(connection, table, source, columns)
        if table in _WITH_SEGMENT:
            needed |= archives.segments_needed(connection, source)
    return restored, needed


def _restore_week(connection: Connection, part: str, paths: Sequence[Path]) -> int:
    restored = 0
    if not log.make_table(connection, part):  # it has rows again, by a backfill, or from another archive
        for path in paths:
            names, rows = files.read(path)
            source = archives.make_temporary(connection, "crawl_log")
            archives.copy_rows(connection, (source,), names, rows)
            restored += log.merge(connection, part, source, names)
            archives.drop_temporary(connection, source)
        return restored
    for path in paths:
        names, rows = files.read(path)
        restored += archives.copy_rows(connection, (part,), names, rows)
    log.restore(connection, part)
    return restored
