"""One segment file of the archive: appending, syncing, and recovery after a crash.

The rule: synced bytes are never truncated, and bytes after the last complete record never remain. A segment has its final name from
the beginning, so a reference stays valid. While a segment is open, a small file beside it (`.open`, the mark) has the number of synced
bytes. The mark is written after the bytes are synced and is not synced itself: after a power cut it may be too low, never too high. So
recovery reads only the bytes after the mark (a batch after a kill, up to half a minute of writes after a power cut) instead of
decompressing a gigabyte, and it does not search for record boundaries: a body can contain bytes that look like the start of a record.
The writer holds a lock on the mark, so a frozen process that resumes finds its file unchanged.
"""

import errno
import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

from isal import isal_zlib

from holdfast import private

SUFFIX: Final = ".warc.gz"
OPEN_SUFFIX: Final = ".open"
SEGMENT_NAME: Final = r"[A-Za-z0-9_-][A-Za-z0-9._-]*/[A-Za-z0-9_-][A-Za-z0-9._-]*"
"""The pattern of a segment's name: the folder of its worker, and its file. It never leads out of the archive's folder."""
_MARK: Final = re.compile(rb"[0-9]{20}\n")
_CHUNK_BYTES: Final = 32 * 1024
"""Bytes decompressed at once; small, because the bytes after the end of a member are copied each time."""
_GZIP: Final = 31
_BAD_GZIP: Final = cast("type[Exception]", isal_zlib.error)
_datasync: Final = getattr(os, "fdatasync", os.fsync)
"""macOS has no fdatasync."""


class GzipMember(NamedTuple):
    """A complete gzip member: position and length in the file, and its decompressed text."""

    offset: int
    length: int
    text: bytes


@dataclass(frozen=True, slots=True)
class RecoveredSegment:
    """The result of the recovery of one segment."""

    segment: str
    kept: int
    """Bytes kept; 0: it had no complete record and was deleted."""
    cut: int


class OpenSegment:
    """A segment open for writing. Used by one thread."""

    def __init__(self, folder: Path, worker: str) -> None:
        """Before: `folder` exists. After: it has a new, empty segment, and its mark is on disk. OSError: neither exists."""
        self.path, self._mark = _create_mark(folder, worker)
        self._file = -1
        try:
            # Some network file systems have no locks; there only the unique name of the worker protects the segment.
            with suppress(OSError):
                fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write_mark(0)
            os.fsync(self._mark)
            _sync_folder(folder)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            self._finish(keep_mark=False)
            raise
        self.opened_at = time.monotonic()
        self.size = 0
        """Bytes of complete records, synced or not."""
        self._synced = 0
        self._partial = False
        self._folder_synced = False

    def write(self, data: bytes) -> None:
        """Append `data`. Before: nothing. After: it is at the end, perhaps not yet on disk. OSError: nothing was added; retry."""
        if self._partial:
            os.ftruncate(self._file, self.size)
        self._partial = True
        at = self.size
        rest = memoryview(data)
        try:
            while rest:
                written = os.pwrite(self._file, rest, at)
                at += written
                rest = rest[written:]
        except OSError:
            with suppress(OSError):  # it stays partial, and the next write truncates again
                os.ftruncate(self._file, self.size)
            raise
        self.size = at
        self._partial = False

    def sync(self) -> None:
        """Before: nothing. After: everything written survives a power cut. OSError: unknown; call `abandon`."""
        if self._synced == self.size:
            return
        _datasync(self._file)
        if not self._folder_synced:
            _sync_folder(self.path.parent)
            self._folder_synced = True
        self._synced = self.size
        with suppress(OSError):  # an older mark is still correct; it only costs time at recovery
            self._write_mark(self._synced)

    def close(self) -> None:
        """Before: it is synced. After: the segment is final; an empty one is deleted."""
        if self._partial:
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
        self._finish(keep_mark=self._partial)

    def abandon(self) -> None:
        """Before: `sync` failed. After: the segment ends at its last synced byte and accepts no more writes.

        A later fsync does not report pages for which an earlier one failed, so the truncation may be lost too: the mark stays, and
        recovery truncates again.
        """
        with suppress(OSError):
            os.ftruncate(self._file, self._synced)
        self.size = self._synced
        self._finish(keep_mark=True)

    def _write_mark(self, synced: int) -> None:
        text = b"%020d\n" % synced
        if os.pwrite(self._mark, text, 0) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(mark_path(self.path)))

    def _finish(self, *, keep_mark: bool) -> None:
        # Unlinked before they are closed: once the lock is released, another process may use them. A mark that cannot be unlinked
        # only causes a needless recovery.
        empty = self._file < 0 or not self.size
        with suppress(OSError):
            if empty and self._file >= 0:
                self.path.unlink(missing_ok=True)
            if empty or not keep_mark:
                mark_path(self.path).unlink(missing_ok=True)
        for file in (self._file, self._mark):
            if file >= 0:
                os.close(file)


def _create_mark(folder: Path, worker: str) -> tuple[Path, int]:
    """Choose the path of a new segment and create its mark; returns the path and the mark's descriptor."""
    start = f"holdfast-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    for number in count(1):
        path = folder / f"{start}-{number:05}-{worker}{SUFFIX}"
        if path.exists():
            continue
        with suppress(FileExistsError):
            return path, os.open(mark_path(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    raise AssertionError("count() does not end")


def mark_path(segment: Path) -> Path:
    """The path of the mark of `segment`."""
    return segment.with_name(segment.name + OPEN_SUFFIX)


def synced_bytes(segment: Path) -> int | None:
    """The number of synced bytes of an open segment; None if it is closed or its mark is invalid."""
    try:
        mark = mark_path(segment).read_bytes()
    except FileNotFoundError:
        return None
    return int(mark) if _MARK.fullmatch(mark) else None


def members(segment: Path, start: int = 0, end: int | None = None) -> Iterator[GzipMember]:
    """Yield the gzip members of `segment` between offsets `start` and `end`, up to the first incomplete one.

    Before: a member begins at `start`.
    """
    with os.fdopen(os.open(segment, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        end = size if end is None else min(end, size)
        while start < end:
            member = _member(file.fileno(), start, end)
            if member is None:
                return
            yield member
            start += member.length


def recover(folder: Path, *, own: bool = True) -> list[RecoveredSegment]:
    """Close the segments that a crashed writer left open in `folder`.

    Before: `own`: the caller is the folder's worker; else another process may be, and where the file system has no locks nothing is
    done. After: each segment whose writer is dead ends with a complete record, is on disk and has no mark. Synced bytes are never
    truncated; if the mark is invalid (a broken disk), nothing is.
    """
    found = []
    for mark in sorted(folder.glob(f"*{SUFFIX}{OPEN_SUFFIX}")):
        if mark.is_symlink() or mark.with_name(mark.name.removesuffix(OPEN_SUFFIX)).is_symlink():
            continue  # Holdfast creates no links, and the target may belong to another program
        with suppress(FileNotFoundError), closing(_open_for_recovery(mark)) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            except OSError:  # the file system has no locks
                if not own:
                    continue
            segment = mark.with_name(mark.name.removesuffix(OPEN_SUFFIX))
            if segment.exists():
                found.append(_truncate(segment))
            mark.unlink(missing_ok=True)
    if found:
        _sync_folder(folder)
    return found


def make_folder(folder: Path) -> None:
    """Create `folder`. Before: nothing. After: it exists, is private, and survives a power cut. UsageError: it is a link or another
    user's."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    private.make_folder(folder)
    for place in new:
        _sync_folder(place.parent)


def _open_for_recovery(file: Path) -> IO[bytes]:
    """Open a file for reading and writing; OSError if it is a link."""
    return os.fdopen(os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "rb+")


def _member(file: int, start: int, end: int) -> GzipMember | None:
    decompressor = isal_zlib.decompressobj(_GZIP)
    parts = []
    at = start
    while at < end and not decompressor.eof:
        # Not mmap: a disk error would be a signal instead of an exception.
        chunk = os.pread(file, min(_CHUNK_BYTES, end - at), at)
        try:
            parts.append(decompressor.decompress(chunk))
        except _BAD_GZIP:
            return None
        at += len(chunk)
    if not decompressor.eof:
        return None
    return GzipMember(start, at - len(decompressor.unused_data) - start, b"".join(parts))


def _truncate(segment: Path) -> RecoveredSegment:
    size = segment.stat().st_size
    synced = synced_bytes(segment)
    kept = size if synced is None else min(synced, size)
    for member in members(segment, kept):
        kept = member.offset + member.length
    if not kept:
        segment.unlink()
        return RecoveredSegment(segment.name, 0, size)
    file = os.open(segment, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.ftruncate(file, kept)
        os.fsync(file)
    finally:
        os.close(file)
    return RecoveredSegment(segment.name, kept, size - kept)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
