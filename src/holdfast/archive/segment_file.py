"""One file of the archive while it is written, and what a crash leaves of it.

The rule: what was synced is never cut, and what is behind the last whole record never stays. A segment has its final name from the
beginning, so a reference is good for ever. While it is open, a small file beside it (`.open`) says up to where it is on the disk.
That mark is written after the bytes are synced and is not synced itself: after a power cut it may be old, never ahead. So an
opening has to look only at what is behind the mark (a batch after a kill, half a minute's worth after a power cut) instead of
unpacking a gigabyte, and it need not guess: a body can hold things that look like the beginning of a record. The mark is locked
while its writer lives, so a frozen process that wakes up finds its file as it left it.
"""

import errno
import fcntl
import os
import re
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
OPEN: Final = ".open"
_MARK: Final = re.compile(rb"[0-9]{20}\n")
_STEP: Final = 32 * 1024
"""Bytes to unpack at once: what is behind the end of a member is copied each time, so not many."""
_GZIP: Final = 31
_BAD_GZIP: Final = cast("type[Exception]", isal_zlib.error)
_datasync: Final = getattr(os, "fdatasync", os.fsync)
"""macOS has no fdatasync."""


class Member(NamedTuple):
    """A whole gzip member: where it is, and what was in it."""

    offset: int
    length: int
    text: bytes


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of a segment that was not closed."""

    segment: str
    kept: int
    """Bytes; 0: nothing whole was in it, and it is gone."""
    cut: int


class OpenSegment:
    """A segment that is being written. It belongs to one thread."""

    def __init__(self, folder: Path, worker: str) -> None:
        """Before: `folder` exists. After: a new, empty segment in it, and its mark on the disk. OSError: neither."""
        self.path, self._mark = _create_mark(folder, worker)
        self._file = -1
        try:
            with suppress(
                OSError
            ):  # some network file systems have no locks; then only the name of a worker protects it
                fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write_mark(0)
            os.fsync(self._mark)
            _sync_folder(folder)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            self._end(keep_mark=False)
            raise
        self.size = 0
        """Bytes of whole records, on the disk or not."""
        self._synced = 0
        self._torn = False
        self._named = False

    def write(self, data: bytes) -> None:
        """Before: nothing. After: `data` is at the end, perhaps not yet on the disk. OSError: nothing was added; try again."""
        if self._torn:
            os.ftruncate(self._file, self.size)
        self._torn = True
        at = self.size
        rest = memoryview(data)
        try:
            while rest:
                written = os.pwrite(self._file, rest, at)
                at += written
                rest = rest[written:]
        except OSError:
            with suppress(OSError):  # it stays torn, and the next write tries again to cut it
                os.ftruncate(self._file, self.size)
            raise
        self.size = at
        self._torn = False

    def sync(self) -> None:
        """Before: nothing. After: all that was written survives a power cut. OSError: nobody knows; `abandon` it."""
        if self._synced == self.size:
            return
        _datasync(self._file)
        if not self._named:
            _sync_folder(self.path.parent)
            self._named = True
        self._synced = self.size
        with suppress(OSError):  # an older mark is as true, and only costs time
            self._write_mark(self._synced)

    def close(self) -> None:
        """Before: it is synced. After: the segment is final; an empty one is gone."""
        if self._torn:
            with suppress(OSError):
                os.ftruncate(self._file, self.size)
        self._end(keep_mark=self._torn)

    def abandon(self) -> None:
        """Before: `sync` failed. After: the segment ends where it was last synced, and nothing more is written to it.

        A later fsync would say nothing about pages that an earlier one failed on, so the cut may be lost too: the mark stays, and
        the next opening cuts again.
        """
        with suppress(OSError):
            os.ftruncate(self._file, self._synced)
        self.size = self._synced
        self._end(keep_mark=True)

    def _write_mark(self, synced: int) -> None:
        text = b"%020d\n" % synced
        if os.pwrite(self._mark, text, 0) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(mark_of(self.path)))

    def _end(self, *, keep_mark: bool) -> None:
        # Unlinked before they are closed: with the lock gone, another process might be at them. A mark that cannot be unlinked
        # costs the next opening a look.
        empty = self._file < 0 or not self.size
        with suppress(OSError):
            if empty and self._file >= 0:
                self.path.unlink(missing_ok=True)
            if empty or not keep_mark:
                mark_of(self.path).unlink(missing_ok=True)
        for file in (self._file, self._mark):
            if file >= 0:
                os.close(file)


def _create_mark(folder: Path, worker: str) -> tuple[Path, int]:
    """The path of a segment that is not there yet, and its mark, newly made."""
    start = f"holdfast-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    for number in count(1):
        path = folder / f"{start}-{number:05}-{worker}{SUFFIX}"
        if path.exists():
            continue
        with suppress(FileExistsError):
            return path, os.open(mark_of(path), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    raise AssertionError("count() does not end")


def mark_of(segment: Path) -> Path:
    """Where the mark of `segment` is while it is open."""
    return segment.with_name(segment.name + OPEN)


def synced_bytes(segment: Path) -> int | None:
    """Up to where an open segment is known to be on the disk; None if it is closed, or its mark cannot be read."""
    try:
        mark = mark_of(segment).read_bytes()
    except FileNotFoundError:
        return None
    return int(mark) if _MARK.fullmatch(mark) else None


def members(segment: Path, start: int = 0, end: int | None = None) -> Iterator[Member]:
    """The whole gzip members of `segment` between `start` and `end`, up to the first that is not whole.

    Before: `start` is where a member begins.
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


def recover(folder: Path) -> list[Recovered]:
    """Close what an earlier life left open in `folder`.

    Before: nothing. After: each segment there whose writer is dead ends with a whole record, is on the disk and has no mark.
    Nothing that was synced is cut; if the mark cannot be read, which takes a broken disk, nothing is.
    """
    found = []
    for mark in sorted(folder.glob(f"*{SUFFIX}{OPEN}")):
        if mark.is_symlink() or mark.with_name(mark.name.removesuffix(OPEN)).is_symlink():
            continue  # we make none, and what it leads to is not ours to cut
        with suppress(FileNotFoundError), closing(_opened(mark)) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            except OSError:  # no locks here
                pass
            segment = mark.with_name(mark.name.removesuffix(OPEN))
            if segment.exists():
                found.append(_cut(segment))
            mark.unlink(missing_ok=True)
    if found:
        _sync_folder(folder)
    return found


def make_folder(folder: Path) -> None:
    """Before: nothing. After: `folder` is there, is private, and survives a power cut. UsageError: it is a link, or another user's."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    private.make_folder(folder)
    for place in new:
        _sync_folder(place.parent)


def _opened(file: Path) -> IO[bytes]:
    """A file of ours to be read and written; OSError if it is a link."""
    return os.fdopen(os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "rb+")


def _member(file: int, start: int, end: int) -> Member | None:
    unpacker = isal_zlib.decompressobj(_GZIP)
    parts = []
    at = start
    while at < end and not unpacker.eof:
        # Not through mmap, where a bad disk would be a signal instead of an error.
        step = os.pread(file, min(_STEP, end - at), at)
        try:
            parts.append(unpacker.decompress(step))
        except _BAD_GZIP:
            return None
        at += len(step)
    if not unpacker.eof:
        return None
    return Member(start, at - len(unpacker.unused_data) - start, b"".join(parts))


def _cut(segment: Path) -> Recovered:
    size = segment.stat().st_size
    synced = synced_bytes(segment)
    kept = size if synced is None else min(synced, size)
    for member in members(segment, kept):
        kept = member.offset + member.length
    if not kept:
        segment.unlink()
        return Recovered(segment.name, 0, size)
    file = os.open(segment, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.ftruncate(file, kept)
        os.fsync(file)
    finally:
        os.close(file)
    return Recovered(segment.name, kept, size - kept)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
