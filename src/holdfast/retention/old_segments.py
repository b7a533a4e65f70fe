"""Which segments of the WARC archive may go: those that nothing needs that is kept.

The rule: a segment stays while one that stays holds a record that refers to its body, and while the worker that wrote it may still refer to
it (archive.dedup_age). Before: the caller has noted which segments stay (queries.segments).
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.archive import reader
from holdfast.db.connection import Connection
from holdfast.errors import NotFound
from holdfast.model.segment import SegmentState
from holdfast.retention.queries import segments
from holdfast.retention.segment_files import SegmentFiles, reporting

_CLOCK_TOLERANCE: Final = timedelta(minutes=5)
"""By which the clocks of the machines and of the database may differ, and the time between the choice of a reference and its record."""
WAITING: Final = frozenset({SegmentState.OPEN, SegmentState.LOCAL})
"""Segments that the object store does not have yet; they are aged when it has."""


@dataclass(frozen=True, slots=True)
class OldSegment:
    """A segment that may go."""

    size: int
    entry: segments.ManifestEntry | None
    """What the manifest of the object store says; None: nothing."""
    at: datetime
    """When the file was written; of one that is not here, when it was uploaded."""


class _FolderCandidates:
    """Which segments of one folder of the archive may go. Used once, by one thread."""

    def __init__(self, folder: str, there: dict[str, Path], before: datetime, dedup_age: timedelta) -> None:
        """`there`: the closed files of this machine; `before`: what may go is older; `dedup_age`: a record refers to a body of that age."""
        self.folder = folder
        self.there = there
        """The files of this machine that the manifest did not name, so far."""
        self.old: dict[str, OldSegment] = {}
        """What may go, unless a segment that stays holds records that refer to it."""
        self._before = before
        self._dedup_age = dedup_age
        self._named: dict[str, Path] = {}
        self.closed = frozenset(there)
        self._stays_from(datetime.now(UTC))

    def take(self, rows: Sequence[segments.ManifestRow]) -> None:
        """Judge segments of the manifest."""
        for row in rows:
            if (path := self.there.pop(row.segment, None)) is not None:
                self._named[row.segment] = path
            if row.entry.state in WAITING:
                if self.readable(row) is None:  # what only another machine has cannot be read here
                    self._stays_from(row.entry.at)
            elif not row.kept and (one := self.readable(row)) is not None and one.at < self._before:
                self.old[row.segment] = one

    def take_rest(self, kept: set[str]) -> None:
        """Judge what is on this machine, and not in the manifest. `kept`: what of it stays."""
        for name in self.there:
            if name not in kept and (one := self.of_file(name, None)) is not None and one.at < self._before:
                self.old[name] = one
        self.old = {name: one for name, one in self.old.items() if one.at < self._before}

    def readable(self, row: segments.ManifestRow) -> OldSegment | None:
        """A segment of the manifest that can be read here; None: another machine has it, or it is lost."""
        if row.segment in self._named and (one := self.of_file(row.segment, row.entry)) is not None:
            return one
        return OldSegment(row.entry.size, row.entry, row.entry.at) if row.entry.state is SegmentState.UPLOADED else None

    def of_file(self, name: str, entry: segments.ManifestEntry | None) -> OldSegment | None:
        """A segment on this machine; None: it was uploaded and removed meanwhile."""
        path = self._named[name] if name in self._named else self.there[name]
        try:
            facts = path.stat()
        except FileNotFoundError:
            return None
        return OldSegment(facts.st_size, entry, datetime.fromtimestamp(facts.st_mtime, UTC))

    def _stays_from(self, at: datetime) -> None:
        """Keep what records that are written from this time on may refer to."""
        self._before = min(self._before, at - self._dedup_age - _CLOCK_TOLERANCE)


@dataclass(frozen=True, slots=True)
class OldSegments:
    """The segments of this machine, and those that any has uploaded, as far as they may go."""

    files: SegmentFiles
    dedup_age: timedelta
    """The greatest age of a body to which a new record refers (archive.dedup_age)."""

    def unneeded(self, connection: Connection, age: timedelta) -> dict[str, OldSegment]:
        """Return the segments of this machine, and those that any has uploaded, that are older than `age`, are not noted to stay, and hold
        no body of one that stays. Before: what stays is noted.

        Folder by folder, each of a worker, since records refer to bodies of their own folder only; of each no more is in memory than what
        may go, and what is on this machine.
        """
        before = datetime.now(UTC) - age
        here, found = set(self.files.folders()), dict[str, OldSegment]()
        candidates: _FolderCandidates | None = None
        for folder, rows in segments.in_manifest(connection) if self.files.objects is not None else ():
            if candidates is None or candidates.folder != folder:
                found |= self._of_folder(connection, candidates)
                candidates = _FolderCandidates(folder, self.files.closed(folder), before, self.dedup_age)
                here.discard(folder)
            candidates.take(rows)
        found |= self._of_folder(connection, candidates)
        for folder in sorted(here):
            found |= self._of_folder(
                connection, _FolderCandidates(folder, self.files.closed(folder), before, self.dedup_age)
            )
        return found

    def _of_folder(self, connection: Connection, candidates: _FolderCandidates | None) -> dict[str, OldSegment]:
        """Return what may go of a folder. Before: it has all rows of the manifest."""
        if candidates is None:
            return {}
        candidates.take_rest(segments.kept_of(connection, list(candidates.there)))
        old = candidates.old
        if not old:
            return {}
        for original in self._originals_of_open(candidates):
            old.pop(original, None)
        for staying in self._staying(connection, candidates):
            originals = segments.known_originals(connection, list(staying))
            for name, one in staying.items():
                known = originals.get(name)
                for original in self._originals(connection, name, one) if known is None else known:
                    old.pop(original, None)
            if not old:
                break
        return old

    def _staying(self, connection: Connection, candidates: _FolderCandidates) -> Iterator[dict[str, OldSegment]]:
        """Yield, in chunks, the segments of a folder that can be read here and stay."""
        if self.files.objects is not None:
            for _, rows in segments.in_manifest(connection, candidates.folder):
                yield {
                    row.segment: one
                    for row in rows
                    if (one := candidates.readable(row)) and row.segment not in candidates.old
                }
        yield {
            name: one
            for name in candidates.there
            if name not in candidates.old and (one := candidates.of_file(name, None))
        }

    def _originals_of_open(self, candidates: _FolderCandidates) -> Iterator[str]:
        """Yield the segments to which records of segments refer that are open, that a killed worker left open, or that were opened or
        closed since `candidates` was made."""
        for name, path in self.files.all(candidates.folder).items():
            if name not in candidates.closed and not path.is_symlink():
                with reporting(path), suppress(FileNotFoundError):
                    yield from reader.originals(path)

    def _originals(self, connection: Connection, name: str, one: OldSegment) -> set[str]:
        """Read and save to which segments records of a segment refer."""
        try:
            with self.files.opened(name, one.entry) as path, reporting(path):
                found = reader.originals(path)
        except NotFound:
            return set()  # its object was deleted in the store by another program, so it cannot be read anyway
        segments.save_originals(connection, name, found)
        return found
