"""Backfill: history and pages that other tools left, imported once each.

The rules: a source is known by its content, so that a second run of a finished one changes nothing, and a run after a kill continues after
the last chunk that was committed. A bad row is reported with its number and does not stop the rest.
"""

import hashlib
import io
import itertools
import json
import os
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast

from holdfast.archive.machine_id import machine_id
from holdfast.archive.reader import ArchiveReader
from holdfast.archive.writer import ArchiveWriter
from holdfast.backfill import pages
from holdfast.backfill.history import Chunk, HistoryReader
from holdfast.backfill.queries import checks, history, imports, source_tables
from holdfast.backfill.queries import pages as page_queries
from holdfast.backfill.records import BadRow, Check, CheckReport, Format, Import, ImportReport, ImportState, RawRow
from holdfast.backfill.sources import scrapy_cache
from holdfast.backfill.sources.scrapy_cache import CacheCaptures
from holdfast.backfill.sources.tables import CsvRows, Layout, ParquetRows
from holdfast.backfill.sources.warc import WarcCaptures
from holdfast.control.input_files import Damaged, opened
from holdfast.db import archive_segments, runs
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.errors import BadUrl, NotFound, Refused, UsageError
from holdfast.model.domain_name import SiteCache, canonical_domain
from holdfast.model.url import UrlRules
from holdfast.settings import Archive

ROWS: Final = 50_000
"""Rows of a chunk of history."""
TABLES: Final = ("crawl_log", "provenance")
JOB: Final = "backfill"
_EDGE: Final = 64 * 1024
"""Bytes at both ends of a file by which it is known."""
_WARC_NAMES: Final = (".warc", ".warc.gz", ".warc.zst")
_PARQUET_MAGIC: Final = b"PAR1"
_WARC_MAGIC: Final = b"WARC/"

Steps = Generator[ImportReport]
_Summed = tuple[Chunk, dict[str, Any] | None]
"""A chunk, and the position after it."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How to import a source."""

    format: Format | None = None
    """None: recognized by name and content."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Names of columns, by ours."""
    job: str = JOB
    """The job for pages."""
    all_types: bool = False
    """Archive responses of every content type as pages, not only those that a crawl would keep."""
    dry_run: bool = False
    again: bool = False
    """Import a file of history although another content of the same name was imported."""


class _Rows(Protocol):
    @property
    def layout(self) -> Layout: ...

    def rows(self, after: int) -> Iterator[RawRow | BadRow]: ...


class _Captures(Protocol):
    def captures(self, position: Mapping[str, Any] | None, number: int) -> Iterator[Any]: ...


@dataclass(frozen=True, slots=True)
class BackfillService:
    """Imports into one database, and into the archive of this machine."""

    database: Database
    rules: UrlRules
    defaults: NewDomains
    archive: Path
    """The archive folder of this machine."""
    reader: ArchiveReader
    archive_settings: Archive
    cooldowns: Mapping[str, timedelta]
    """How long a new domain that is blocked cools down, by reason code."""
    software: str
    registrable: bool = False
    max_bytes: int = 10 * 1024 * 1024
    """Of a page; what is after it is cut off."""
    versions: int = 20
    """Versions of a page that are kept."""
    links_per_page: int = 1000

    # Sources -------------------------------------------------------------------------------------------------------------

    def import_path(self, name: str, options: ImportOptions) -> Steps:
        """Import a file or a folder; yields the report, the last time at the end. Before: `check_source` has accepted it."""
        path = Path(name)
        if path.is_dir():
            if options.format not in {None, Format.SCRAPY_CACHE}:
                raise UsageError(f"{name} is a folder; {options.format} is not the format of a folder.")
            report = ImportReport(name, Format.SCRAPY_CACHE, options.dry_run)
            captures = CacheCaptures(path, max_bytes=self.max_bytes)
            yield from self._import_pages(captures, scrapy_cache.identity(path), report, options)
            return
        stream, size = opened(name, "a source")
        file = cast("io.BufferedReader[Any]", stream)
        assert size is not None  # noqa: S101 — `check_source`
        with file:
            format_ = options.format or recognize(path, file)
            report = ImportReport(os.fsencode(name).decode(errors="replace"), format_, options.dry_run, size=size)
            identity = _identity_of(file, size, format_)
            if format_ is Format.WARC:
                steps = self._import_pages(WarcCaptures(file, max_bytes=self.max_bytes), identity, report, options)
            elif format_ is Format.PARQUET:
                steps = self._import_rows(lambda: ParquetRows(path, options.mapping, name), identity, report, options)
            elif format_ is Format.CSV:
                steps = self._import_rows(lambda: CsvRows(file, options.mapping, name), identity, report, options)
            else:
                raise UsageError(f"{name} is a file; {format_} is not the format of a file.")
            with closing(steps):
                for step in steps:
                    step.bytes_read = file.tell()
                    yield step

    def import_tables(
        self, url: str | None, schema: str, tables: Sequence[str], options: ImportOptions
    ) -> Generator[ImportReport]:
        """Import tables of another schema, or of another PostgreSQL; those that were not named are optional.

        Yields the report of each table in turn. Raises NotFound if there is none of them.
        """
        source = self.database if url is None else Database(url, application="holdfast backfill")
        with source.session() as connection:
            source_tables.read_only(connection)
            found = []
            for name in tables or TABLES:
                try:
                    found.append(source_tables.find(connection, schema, name))
                except NotFound:
                    if tables:
                        raise
            if not found:
                raise NotFound(
                    f"The schema {schema!r} of {source.address} has no table {' or '.join(TABLES)}; --table names one."
                )
            for table in found:
                yield from self._import_table(table, source.address, options)

    def _import_table(self, table: source_tables.SourceTable, address: str, options: ImportOptions) -> Steps:
        report = ImportReport(f"{address} {table.name}", Format.TABLE, options.dry_run, size=table.blocks())
        layout = Layout(table.columns, options.mapping, table.name)
        report.notes += layout.notes

        def chunks(known: Import | None) -> Iterator[tuple[Iterator[RawRow | BadRow], dict[str, Any] | None]]:
            position = known.position if known is not None else None
            for rows, after, blocks in table.pieces(layout.names, position, report.counts.rows):
                report.bytes_read = blocks
                yield iter(rows), after

        yield from self._import_history(
            chunks, _hash(table.identity()), report, options, lambda known: table.is_rewritten(known.position or {})
        )

    # History -------------------------------------------------------------------------------------------------------------

    def _import_rows(
        self, make: Callable[[], _Rows], identity: bytes, report: ImportReport, options: ImportOptions
    ) -> Steps:
        source = make()
        report.notes += source.layout.notes

        def chunks(known: Import | None) -> Iterator[tuple[Iterator[RawRow | BadRow], dict[str, Any] | None]]:
            rows = _until_damaged(source.rows(known.rows if known is not None else 0), report)
            while (first := next(rows, None)) is not None:
                yield itertools.chain((first,), itertools.islice(rows, ROWS - 1)), None

        yield from self._import_history(chunks, identity, report, options)

    def _import_history(
        self,
        chunks: Callable[[Import | None], Iterator[tuple[Iterator[RawRow | BadRow], dict[str, Any] | None]]],
        identity: bytes,
        report: ImportReport,
        options: ImportOptions,
        is_changed: Callable[[Import], bool] = lambda _: False,
    ) -> Steps:
        with self.database.session() as connection:
            known = (
                None if options.dry_run else self._begin(connection, identity, report, is_changed, again=options.again)
            )
            if report.known:
                yield report
                return
            history.prepare(connection, dry_run=options.dry_run)
            if known is None or known.state is ImportState.READING:
                yield from self._read(connection, known, chunks, report)
            report.state = ImportState.MERGING
            yield report
            if known is None:
                self._add(report, history.preview(connection, 0))
            else:
                yield from self._merge(connection, known, report)
        report.state = ImportState.FINISHED
        yield report

    def _begin(
        self,
        connection: Connection,
        identity: bytes,
        report: ImportReport,
        is_changed: Callable[[Import], bool],
        *,
        again: bool,
    ) -> Import:
        """Find or begin the import of a source of history."""
        imports.lock(connection, identity)
        known = imports.find(connection, identity)
        if known is not None and known.state is ImportState.READING and known.position and is_changed(known):
            imports.forget(connection, known.id)
            report.notes.append(
                "The table was rewritten since its import was interrupted: it is read from the beginning."
            )
            known = None
        if known is None:
            self._check_name(connection, identity, report, again=again)
            return imports.begin(connection, identity, report.format, report.source)
        report.counts = imports.counts(connection, known.id)
        report.known = known.state is ImportState.FINISHED
        report.state = known.state
        report.resumed_at = None if report.known else known.rows
        return known

    def _check_name(self, connection: Connection, identity: bytes, report: ImportReport, *, again: bool) -> None:
        other = imports.of_source(connection, identity, report.format, report.source)
        if other is None:
            return
        if other.state is ImportState.READING:  # nothing of it has been counted
            imports.lock(connection, other.identity)
            imports.forget(connection, other.id)
            report.notes.append("It has changed since its import was interrupted: it is read from the beginning.")
        elif not again:
            raise Refused(
                f"{report.source} was imported before with another content, so rows that are in both would count twice. "
                "Import a file with the new rows only; --again imports all of it."
            )

    def _read(
        self,
        connection: Connection,
        known: Import | None,
        chunks: Callable[[Import | None], Iterator[tuple[Iterator[RawRow | BadRow], dict[str, Any] | None]]],
        report: ImportReport,
    ) -> Steps:
        """Stage all rows. After: the import is read to its end, or to where it is damaged."""
        import_id = 0 if known is None else known.id
        reader = HistoryReader(datetime.now(UTC), registrable=self.registrable)
        summed = ((reader.read(rows), position) for rows, position in chunks(known))
        for chunk, position in _ahead(summed):
            with connection.transaction():
                history.stage(connection, import_id, chunk.domains)
                if known is not None:
                    imports.add(connection, import_id, chunk.counts, state=ImportState.READING, position=position)
            report.counts.add(chunk.counts)
            for bad in chunk.bad_rows:
                report.refuse(bad)
            yield report
        if known is not None:
            imports.add(connection, import_id, type(report.counts)(), state=ImportState.MERGING)

    def _merge(self, connection: Connection, known: Import, report: ImportReport) -> Steps:
        """Merge all domains; those that workers hold come last, and are waited for. Raises Refused if they stay held."""
        source = f"backfill_{report.format} {Path(report.source).name}"
        after, waits_until = "", None
        while True:
            merged = history.merge(
                connection, known, after, source=source, defaults=self.defaults, cooldowns=self.cooldowns
            )
            if merged is not None:
                after = merged.last
                if merged.counts.domains_new or merged.counts.domains_updated:
                    waits_until = None
                self._add(report, merged)
                yield report
                continue
            left = history.finish(connection, known)
            if left is None:
                return
            now = time.monotonic()
            waits_until = now + pages.WAIT if waits_until is None else waits_until
            if now >= waits_until:
                raise Refused(_still_held(left))
            time.sleep(pages.RETRY)
            after = ""

    @staticmethod
    def _add(report: ImportReport, merged: history.Merged) -> None:
        report.counts.add(merged.counts)
        for status, domains in merged.statuses.items():
            report.statuses[status] = report.statuses.get(status, 0) + domains

    # Pages ---------------------------------------------------------------------------------------------------------------

    def _import_pages(self, source: _Captures, identity: bytes, report: ImportReport, options: ImportOptions) -> Steps:
        sites = SiteCache(registrable=self.registrable)
        with self.database.session() as connection, ExitStack() as stack:
            if options.dry_run:
                for found in pages.preview(
                    source.captures(None, 0), self.rules, sites, report, all_types=options.all_types
                ):
                    report.counts.domains_new = len(found)
                    yield report
                known = page_queries.count_known(connection, found)
                report.counts.domains_new, report.counts.domains_updated = len(found) - known, known
                report.state = ImportState.FINISHED
                yield report
                return
            imports.lock(connection, identity)
            begun = imports.find(connection, identity)
            if begun is not None and begun.state is ImportState.FINISHED:
                report.counts, report.state = imports.counts(connection, begun.id), begun.state
                report.known = True
                yield report
                return
            with connection.transaction():
                job_id = begun.job_id if begun is not None and begun.job_id is not None else None
                if begun is None:
                    begun = imports.begin(connection, identity, report.format, report.source)
                else:
                    report.counts, report.resumed_at = imports.counts(connection, begun.id), begun.rows
                if job_id is None:
                    job_id = page_queries.job_of_its_own(connection, options.job)
                    imports.set_job(connection, begun.id, job_id)
            report.job = page_queries.job_name(connection, job_id)
            page_queries.prepare(connection)
            worker = f"backfill-{begun.id}"
            writer = ArchiveWriter(
                self.archive,
                worker,
                self.archive_settings,
                software=self.software,
                on_opened=None if self.reader.store is None else partial(self._announce, connection),
            )
            stack.callback(writer.close)
            run_id = runs.begin(connection, worker=worker, job_id=job_id)
            importer = pages.PageImporter(
                connection=connection,
                import_id=begun.id,
                job_id=job_id,
                job=report.job,
                run_id=run_id,
                worker=worker,
                source=f"backfill_{report.format} {Path(report.source).name}",
                archive=writer,
                reader=self.reader,
                rules=self.rules,
                sites=sites,
                defaults=self.defaults,
                versions=self.versions,
                links_per_page=self.links_per_page,
                all_types=options.all_types,
            )
            try:
                for _ in importer.run(source.captures(begun.position, begun.rows), report):
                    yield report
            except BaseException as problem:
                runs.end(connection, run_id, error=str(problem) or type(problem).__name__)
                raise
            runs.end(connection, run_id, error=None)
        report.state = ImportState.FINISHED
        yield report

    def _announce(self, connection: Connection, segment: str) -> None:
        """Record a new segment before a row points into it; a worker or the background of this machine uploads it."""
        name = self.archive_settings.machine or socket.gethostname()[:150]
        archive_segments.opened(connection, machine_id(self.archive), name, segment)

    # Validation ----------------------------------------------------------------------------------------------------------

    def check(self) -> CheckReport:
        """Validate all that was imported."""
        with self.database.session() as connection:
            results = [
                Check(name, not number, f"{number} faults: {'; '.join(first)}" if number else "ok")
                for name, number, first in checks.faults(connection)
            ]
            wrong = [name for name in checks.names(connection) if not self._is_canonical(name)]
            detail = f"{len(wrong)} faults: {'; '.join(wrong[:3])}" if wrong else "ok"
            results.insert(0, Check("every domain has its canonical name", not wrong, detail))
            covered = checks.coverage(connection)
            return CheckReport(all(one.ok for one in results), *covered, checks.statuses(connection), results)

    def _is_canonical(self, name: str) -> bool:
        try:
            return canonical_domain(name, registrable=self.registrable) == name
        except BadUrl:
            return False


def check_source(name: str) -> None:
    """Raise UsageError for a file or folder that cannot be imported. Needs no database, so that invalid usage starts none."""
    path = Path(name)
    if path.is_dir():
        scrapy_cache.check(path)
        if not scrapy_cache.is_cache(path):
            raise UsageError(f"{name} is a folder, but not a file cache of Scrapy; name its files instead.")
    elif name == "-" or not path.is_file():
        if name != "-":
            opened(name, "a source")[0].close()
        raise UsageError(f"{name} is not a file; a source must be a file, so that an interrupted import can continue.")


def recognize(path: Path, file: "io.BufferedReader[Any]") -> Format:
    """The format of a file, by its name and its first bytes."""
    name = path.name.lower()
    head = file.peek(4)
    if name.endswith(_WARC_NAMES) or head.startswith(_WARC_MAGIC):
        return Format.WARC
    return Format.PARQUET if head.startswith(_PARQUET_MAGIC) else Format.CSV


def _identity_of(file: "io.BufferedReader[Any]", size: int, format_: Format) -> bytes:
    """The identity of a file: of its size and both of its ends, so that a copy or another name is the same source."""
    head = file.read(_EDGE)
    file.seek(max(0, size - _EDGE))
    tail = file.read(_EDGE)
    file.seek(0)
    return _hash("file", format_, str(size), hashlib.sha256(head).hexdigest(), hashlib.sha256(tail).hexdigest())


def _hash(*parts: str) -> bytes:
    return hashlib.sha256(json.dumps(parts).encode()).digest()[:16]


def _still_held(left: history.Left) -> str:
    by = "locked by another process" if left.worker is None else f"held by worker {left.worker}"
    return (
        f"Domains of this history that are not imported yet: {left.domains:,}. {left.domain} is {by}. "
        "Stop the workers, or wait until the domains are crawled; the same command continues then."
    )


def _ahead(steps: Iterator[_Summed]) -> Generator[_Summed]:
    """Yield from an iterator while a thread computes its next value: Python sums a chunk while PostgreSQL stages the one before."""
    with ThreadPoolExecutor(1, thread_name_prefix="backfill-read") as thread:
        coming = thread.submit(next, steps, None)
        while (step := coming.result()) is not None:
            coming = thread.submit(next, steps, None)
            yield step


def _until_damaged(rows: Iterator[RawRow | BadRow], report: ImportReport) -> Iterator[RawRow | BadRow]:
    """Yield what can be read; the report has the reason of an early end."""
    number = 0
    try:
        for row in rows:
            number = row.number
            yield row
    except Damaged as problem:
        report.stopped = f"Reading stopped after line {number}: {problem}."
