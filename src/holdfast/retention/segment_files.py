"""Closed segments as retention finds them: files on the disk of this machine, and objects that any machine has uploaded.

The rule: what is uploaded may be aged by any machine, and a file by its machine alone. A copy of an object has the hash that the manifest
says.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import failpoints
from holdfast.archive.segment_file import SUFFIX, make_folder, mark_path
from holdfast.archive.segment_store import SegmentStore
from holdfast.errors import ArchiveDamaged, HoldfastError, NotFound
from holdfast.retention.queries.segments import ManifestEntry
from holdfast.retention.scratch import scratch_folder

_BLOCK: Final = 8 * 1024 * 1024
_UNFINISHED: Final = ".restoring"
"""The suffix of a segment that is being restored."""


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The segments of this machine, and those in the object store."""

    folder: Path
    scratch: Path
    """The folder for scratch folders."""
    objects: SegmentStore | None = None
    """The object store (archive.store); None: there is none."""

    def closed(self, folder: str | None = None) -> dict[str, Path]:
        """Return the segments in the archive of this machine, or in one folder of it, that are not open, by name."""
        place, pattern = (self.folder, f"*/*{SUFFIX}") if folder is None else (self.folder / folder, f"*{SUFFIX}")
        return {
            f"{path.parent.name}/{path.name}": path
            for path in sorted(place.glob(pattern))
            if path.is_file() and not path.is_symlink() and not mark_path(path).exists()
        }

    def all(self, folder: str) -> dict[str, Path]:
        """Return all segments in one folder of the archive of this machine, open or not, by name."""
        return {f"{path.parent.name}/{path.name}": path for path in sorted((self.folder / folder).glob(f"*{SUFFIX}"))}

    def folders(self) -> list[str]:
        """Return the folders of the archive of this machine, each of a worker."""
        return sorted(path.name for path in self.folder.glob("*") if path.is_dir())

    def is_here(self, name: str) -> bool:
        """Whether the worker of a segment wrote on this machine."""
        return (self.folder / name).parent.is_dir()

    @contextmanager
    def opened(self, name: str, entry: ManifestEntry | None) -> Iterator[Path]:
        """The file of a segment on this machine, else a copy of its object, which exists until the context ends.

        Raises NotFound, ArchiveUnavailable, ArchiveDamaged if the object is not what was uploaded, HoldfastError.
        """
        path = self.folder / name
        if entry is None or self.objects is None or path.exists():
            yield path
            return
        with scratch_folder(self.scratch) as folder:
            copy = folder / name
            with reporting(copy):
                copy.parent.mkdir()
                digest = self._copy(self.objects, name, copy)
            if (copy.stat().st_size, digest) != (entry.size, entry.sha256):
                raise ArchiveDamaged(
                    f"{name} in {self.objects.place} is damaged: it has {copy.stat().st_size:,} bytes and the SHA-256 {digest.hex()}, not "
                    f"{entry.size:,} and {entry.sha256.hex()}. It is not archived, and stays."
                )
            failpoints.reach("retention_scratch")
            yield copy

    @staticmethod
    def _copy(objects: SegmentStore, name: str, copy: Path) -> bytes:
        size = objects.size(name)
        if size is None:
            raise NotFound(
                f"{objects.place} has no file {name}, although it was uploaded; `holdfast verify` names its pages."
            )
        digest = hashlib.sha256()
        with copy.open("wb") as file:
            for at in range(0, size, _BLOCK):
                block = objects.read(name, at, min(_BLOCK, size - at))
                file.write(block)
                digest.update(block)
        return digest.digest()

    def restore(self, name: str, source: Path) -> None:
        """Copy a file to where the segment is on this machine. Before: this process holds the lock of retention. After: the segment is
        there, and survives a power cut. Raises HoldfastError."""
        target = self.folder / name
        with reporting(target):
            make_folder(self.folder)
            make_folder(target.parent)
            self.delete_unfinished()
            temporary = target.with_name(f".{target.name}{_UNFINISHED}")
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with source.open("rb") as read, os.fdopen(os.open(temporary, flags, 0o600), "wb") as written:
                    shutil.copyfileobj(read, written, _BLOCK)
                    written.flush()
                    os.fsync(written.fileno())
                failpoints.reach("retention_scratch")
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
            _sync_folder(target.parent)

    def delete_unfinished(self) -> None:
        """Delete what restores that were killed left in the archive of this machine. Before: this process holds the lock of retention, so
        none runs. Raises HoldfastError."""
        for path in self.folder.glob(f"*/.*{_UNFINISHED}"):
            with reporting(path):
                path.unlink(missing_ok=True)

    def delete_file(self, name: str) -> None:
        """Delete the file of a segment on this machine, if there is one. After: that survives a power cut. Raises HoldfastError."""
        path = self.folder / name
        with reporting(path):
            path.unlink(missing_ok=True)  # a run that was killed here may have done it
            if path.parent.is_dir():
                _sync_folder(path.parent)


@contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one of ours."""
    try:
        yield
    except OSError as problem:
        raise HoldfastError(f"{path} cannot be used: {(problem.strerror or str(problem)).lower()}.") from problem


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
