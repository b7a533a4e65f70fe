"""The store of finished segments that all machines read: a shared folder, or an S3-compatible store.

The rule: a segment has the same name in the store as in the folder of its machine, and never changes once it is there. A segment that is
put again is replaced by the same bytes. Every failure that may pass is `ArchiveUnavailable`: the caller tries again.
"""

import errno
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from holdfast.archive.object_store import S3_PREFIX, S3Connection
from holdfast.archive.segment_file import SEGMENT_NAME
from holdfast.errors import ArchiveUnavailable, NotFound
from holdfast.settings import Archive

_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_COPY_BYTES: Final = 1024 * 1024
_PART_BYTES: Final = 8 * 1024 * 1024
"""A larger segment is sent in parts of this size, so that a worker needs no memory for a whole one."""
_PARTS_AT_ONCE: Final = 2
_INCOMING: Final = ".incoming"
"""The folder of unfinished files in a shared folder."""


class SegmentStore(Protocol):
    """Where finished segments are. All calls block; used by any thread."""

    place: str
    """For display; without credentials."""

    def put(self, segment: str, path: Path) -> None:
        """Store the file at `path`. After: the store has all of its bytes under the segment's name. Raises ArchiveUnavailable: perhaps
        nothing was stored; call again. OSError: the file cannot be read."""
        ...

    def read(self, segment: str, offset: int, length: int) -> bytes:
        """Read a range of a segment; fewer bytes if it ends there. Raises NotFound, ArchiveUnavailable."""
        ...

    def size(self, segment: str) -> int | None:
        """The size of a segment; None: there is none. Raises ArchiveUnavailable."""
        ...

    def delete(self, segment: str) -> None:
        """Delete a segment. After: it is gone, also if it was before. Raises ArchiveUnavailable: call again."""
        ...


def open_segment_store(settings: Archive) -> SegmentStore | None:
    """The store that the settings name; None: segments stay where they were written. Nothing is asked yet. Raises SettingsError."""
    if settings.store is None:
        return None
    if settings.store.startswith(S3_PREFIX):
        return S3SegmentStore(settings)
    return FolderSegmentStore(Path(settings.store).expanduser())


def _checked(segment: str) -> str:
    if not re.fullmatch(SEGMENT_NAME, segment):
        raise NotFound(f"{segment!r} is not the name of a segment of the archive.")
    return segment


class FolderSegmentStore:
    """Segments in a folder that all machines share, and that exists. No link in it is followed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place = str(folder)

    def put(self, segment: str, path: Path) -> None:
        target = self._folder / _checked(segment)
        with self._reporting():
            # The folder itself is not created: where it is missing, the file system of all machines is not mounted.
            for folder in (self._folder / _INCOMING, target.parent):
                with suppress(FileExistsError):
                    folder.mkdir(0o700)
        source = os.open(path, os.O_RDONLY | _NO_LINK)
        prefix = segment.replace("/", "~")
        temporary = self._folder / _INCOMING / f"{prefix}.{secrets.token_hex(8)}"
        try:
            with self._reporting():
                # One upload of a segment runs at a time, so these are of uploads that were killed.
                for leftover in temporary.parent.glob(f"{prefix}.*"):
                    leftover.unlink(missing_ok=True)
                self._copy(source, temporary)
                temporary.rename(target)
                for folder in (target.parent, self._folder):
                    _sync_folder(folder)
        finally:
            os.close(source)
            with suppress(OSError):
                temporary.unlink()

    @staticmethod
    def _copy(source: int, temporary: Path) -> None:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600), "wb") as file:
            at = 0
            while chunk := os.pread(source, _COPY_BYTES, at):
                file.write(chunk)
                at += len(chunk)
            file.flush()
            os.fsync(file.fileno())

    def read(self, segment: str, offset: int, length: int) -> bytes:
        with self._reporting(segment):
            file = os.open(self._folder / _checked(segment), os.O_RDONLY | _NO_LINK)
            try:
                return os.pread(file, length, offset)
            finally:
                os.close(file)

    def size(self, segment: str) -> int | None:
        with self._reporting():
            try:
                return (self._folder / _checked(segment)).lstat().st_size
            except FileNotFoundError:
                return None

    def delete(self, segment: str) -> None:
        path = self._folder / _checked(segment)
        with suppress(NotFound), self._reporting(segment):
            path.unlink()
            _sync_folder(path.parent)

    @contextmanager
    def _reporting(self, segment: str | None = None) -> Iterator[None]:
        """Turn an error of the file system into one of ours. `segment`: it must exist, and so must the folder of all."""
        try:
            yield
        except OSError as problem:
            if segment is not None and problem.errno == errno.ENOENT and self._folder.is_dir():
                raise NotFound(f"There is no file {segment} in {self.place}.") from problem
            why = (problem.strerror or str(problem)).lower()
            raise ArchiveUnavailable(f"The archive in {self.place} cannot be used: {why} (archive.store).") from problem


class S3SegmentStore:
    """Segments in an S3-compatible store."""

    def __init__(self, settings: Archive) -> None:
        """Before: `settings.store` is s3://… Nothing is asked yet. Raises SettingsError for a file of credentials that is not usable."""
        self._s3 = S3Connection(settings.store or "", settings, "archive", "The archive", ArchiveUnavailable)
        self.place = self._s3.place

    def put(self, segment: str, path: Path) -> None:
        import obstore

        key = _checked(segment)
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_LINK), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            with self._s3.reporting():
                if size <= _PART_BYTES:
                    obstore.put(self._s3.open(), key, file.read(), use_multipart=False)
                else:
                    obstore.put(
                        self._s3.open(),
                        key,
                        file,
                        use_multipart=True,
                        chunk_size=_PART_BYTES,
                        max_concurrency=_PARTS_AT_ONCE,
                    )

    def read(self, segment: str, offset: int, length: int) -> bytes:
        import obstore

        key = _checked(segment)
        with self._s3.reporting(key):
            return bytes(obstore.get_range(self._s3.open(), key, start=offset, length=length))

    def size(self, segment: str) -> int | None:
        import obstore

        key = _checked(segment)
        try:
            with self._s3.reporting(key):
                return obstore.head(self._s3.open(), key)["size"]
        except NotFound:
            return None

    def delete(self, segment: str) -> None:
        import obstore

        key = _checked(segment)
        with suppress(NotFound), self._s3.reporting(key):
            obstore.delete(self._s3.open(), key)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK)
    try:
        os.fsync(file)
    finally:
        os.close(file)
