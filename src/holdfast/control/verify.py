"""Verification of the store: all checks that the database can prove, and the bytes of the archive if it is on this machine.

The rule: nothing is changed, no lock is held, and workers may run meanwhile.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from holdfast.archive.image_store import FolderImageStore, ImageStore
from holdfast.archive.reader import ArchiveReader
from holdfast.db import archive_segments, archives, images, operator_reports
from holdfast.db import verify as checks
from holdfast.db.connection import Database
from holdfast.errors import HoldfastError, NotFound
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.segment import SegmentState

BYTES: Final = "I11 every reference leads to bytes with its hash"
FILES: Final = "I10 every record of the archive is whole"
IMAGES: Final = "I11 every image has its file, with its hash"

_REPORT_SECONDS: Final = 0.2
_Looking = Iterator[tuple[int, checks.Finding | None]]


@dataclass(frozen=True, slots=True)
class Step:
    """Progress: a check that has started, with the number of rows that it has looked at, or one that has ended (`finding`)."""

    number: int
    total: int
    check: str
    looked_at: int = 0
    finding: checks.Finding | None = None


@dataclass(frozen=True, slots=True)
class Verifier:
    """Verifies one store. `archive` reads its archive; None: it is on another machine, or not requested."""

    database: Database
    retries: int
    archive: ArchiveReader | None = None
    images: ImageStore | None = None
    """The store of images, read if there are any; None: it is not requested."""
    shared: bool = False
    """Other machines write to the same database, each with an archive of its own."""
    read_uploaded: bool = False
    """Also read the pages that only the object store has; else the size of their segments is checked."""

    def run(self) -> Iterator[Step]:
        """Run all checks in order; yield a step when each starts, more while it reads the archive, and one with its finding."""
        reading = self._reading()
        names = [*checks.CHECKS, *(name for name, _ in reading)]
        with self.database.session() as connection:
            found = checks.verify(connection, retries=self.retries)
            for number, name in enumerate(checks.CHECKS, 1):
                yield Step(number, len(names), name)
                yield Step(number, len(names), name, finding=next(found))
            found.close()  # its snapshot ends here, before the long reading
        for number, (name, look) in enumerate(reading, len(checks.CHECKS) + 1):
            yield Step(number, len(names), name)
            for looked_at, finding in look():
                yield Step(number, len(names), name, looked_at, finding)

    def _reading(self) -> list[tuple[str, Callable[[], _Looking]]]:
        """The checks that read files."""
        found: list[tuple[str, Callable[[], _Looking]]] = []
        if self.archive:
            found = [(BYTES, partial(self._bytes, self.archive)), (FILES, partial(self._files, self.archive))]
        if self.images is not None and self._has_images():
            found.append((IMAGES, partial(self._images, self.images)))
        return found

    def names_of(self, findings: list[checks.Finding]) -> dict[int, str]:
        """Return the names of the domains in the rows of findings, by id."""
        ids = {row["domain_id"] for finding in findings for row in finding.rows if row.get("domain_id")}
        with self.database.session() as connection:
            return operator_reports.domain_names(connection, sorted(ids))

    def _bytes(self, archive: ArchiveReader) -> Iterator[tuple[int, checks.Finding | None]]:
        tally = _Tally(BYTES)
        sizes: dict[str, int | str | None] = {}
        with self.database.session() as connection:
            moved = archives.archived_segments(connection)
            for chunk in checks.references(connection):
                missing = {row["archive_segment"] for row in chunk if not archive.has(row["archive_segment"])}
                states = archive_segments.states(connection, sorted(missing)) if missing else {}
                for row in chunk:
                    tally.looked_at += 1
                    segment = row["archive_segment"]
                    if segment in missing and segment in moved and self._is_moved(archive, moved[segment], sizes):
                        tally.archived += 1
                    elif self._is_elsewhere_or_lost(archive, segment, states.get(segment), missing=segment in missing):
                        # What was lost with a machine is the finding of a check of its own.
                        tally.skipped += states.get(segment) is not SegmentState.LOST
                    elif problem := self._problem_of(archive, row, sizes, states.get(segment)):
                        version = {} if row["number"] is None else {"version": row["number"]}
                        where = {"domain_id": row["domain_id"], "job_id": row["job_id"], "url": row["url"]}
                        tally.fault({**where, **version, "problem": problem})
                    if tally.is_time():
                        yield tally.looked_at, None
        yield tally.looked_at, tally.finding()

    @staticmethod
    def _is_moved(
        archive: ArchiveReader, segment: archives.ArchivedSegment, sizes: dict[str, int | str | None]
    ) -> bool:
        """Whether only the store of archives has a segment; also if retention was killed before it noted that."""
        if segment.deleted or archive.store is None:
            return segment.deleted
        return _size(archive, segment.segment, sizes) is None

    def _is_elsewhere_or_lost(
        self, archive: ArchiveReader, segment: str, state: SegmentState | None, *, missing: bool
    ) -> bool:
        """Whether a segment cannot be read from here, without a fault of this machine or of the object store."""
        if not missing or state is None:
            return (
                missing and self.shared and (archive.folder is None or not (archive.folder / segment).parent.is_dir())
            )
        return state is not SegmentState.UPLOADED or archive.store is None

    def _problem_of(
        self,
        archive: ArchiveReader,
        row: dict[str, Any],
        sizes: dict[str, int | str | None],
        state: SegmentState | None,
    ) -> str | None:
        """Return why the bytes of a page cannot be read. Of an uploaded segment the size is enough; `sizes` keeps it."""
        if state is not SegmentState.UPLOADED or archive.store is None or self.read_uploaded:
            return _problem(archive, row)
        segment = row["archive_segment"]
        size = _size(archive, segment, sizes)
        if isinstance(size, str):
            return size
        if size is None:
            return f"{archive.store.place} has no file {segment}, although it was uploaded."
        end = row["archive_offset"] + row["archive_length"]
        return (
            None
            if end <= size
            else f"{segment} has {size:,} bytes in {archive.store.place}, and the page ends at {end:,}."
        )

    def _has_images(self) -> bool:
        with self.database.session() as connection:
            return images.has_any(connection)

    def _images(self, store: ImageStore) -> Iterator[tuple[int, checks.Finding | None]]:
        tally = _Tally(IMAGES)
        with self.database.session() as connection:
            for chunk in images.references(connection):
                for row in chunk:
                    tally.looked_at += 1
                    try:
                        store.get(row["file"])
                    except NotFound as problem:
                        if self.shared and self._is_elsewhere(store, row["store_id"]):
                            tally.skipped += 1
                        else:
                            tally.fault({"image_id": row["id"], "file": row["file"], "problem": str(problem)})
                    except HoldfastError as problem:
                        tally.fault({"image_id": row["id"], "file": row["file"], "problem": str(problem)})
                    if tally.is_time():
                        yield tally.looked_at, None
        yield tally.looked_at, tally.finding()

    @staticmethod
    def _is_elsewhere(store: ImageStore, store_id: str | None) -> bool:
        """Whether an image is in a folder of another machine; None: perhaps, as its row does not say."""
        return isinstance(store, FolderImageStore) and (store_id is None or store_id != store.store_id())

    def _files(self, archive: ArchiveReader) -> Iterator[tuple[int, checks.Finding | None]]:
        tally = _Tally(FILES)
        for problem in archive.check():
            tally.looked_at += 1
            tally.fault({"segment": problem.segment, "offset": problem.offset, "problem": problem.detail})
            if tally.is_time():
                yield tally.looked_at, None
        yield tally.looked_at, tally.finding()


class _Tally:
    """Counts the faults of one check, and says when to report progress."""

    def __init__(self, check: str) -> None:
        self.looked_at = self.skipped = self.archived = 0
        self._check = check
        self._faults = 0
        self._rows: list[dict[str, Any]] = []
        self._started = self._reported = time.monotonic()

    def fault(self, row: dict[str, Any]) -> None:
        self._faults += 1
        if len(self._rows) < checks.ROWS_SHOWN:
            self._rows.append(row)

    def is_time(self) -> bool:
        now = time.monotonic()
        if now - self._reported < _REPORT_SECONDS:
            return False
        self._reported = now
        return True

    def finding(self) -> checks.Finding:
        seconds = time.monotonic() - self._started
        return checks.Finding(self._check, self._faults, self._rows, seconds, self.skipped, self.archived)


def _problem(archive: ArchiveReader, row: dict[str, Any]) -> str | None:
    """Return why the bytes of a page cannot be read; None: they exist and have the right hash."""
    ref = ArchiveRef(
        row["archive_segment"], row["archive_offset"], row["archive_length"], bytes(row["payload_digest"] or b"")
    )
    try:
        archive.read(ref)
    except (HoldfastError, OSError) as problem:
        return str(problem)
    return None


def _size(archive: ArchiveReader, segment: str, sizes: dict[str, int | str | None]) -> int | str | None:
    """The size of an uploaded segment; None: there is no such object, a text: why that is not known. `sizes` keeps it."""
    if segment not in sizes and archive.store is not None:
        try:
            sizes[segment] = archive.store.size(segment)
        except HoldfastError as problem:
            sizes[segment] = str(problem)
    return sizes.get(segment)
