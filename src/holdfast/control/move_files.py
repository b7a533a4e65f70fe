"""Files of a data folder that go along when a store moves to another data folder: the archive, images, keys.

The rule: a file is under its name in the new folder only when it is whole, on the disk, and read back with the hash of what was copied. A
file whose size and time of change are the same in both folders was copied by an earlier attempt.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import private
from holdfast.errors import HoldfastError

_LEFT: Final = ("postgres", "logs", "search", "backups")
"""The database, which is copied as rows; logs; the search index, which a new generation builds anew; backups, which are of the old
server: no backup of the new one can begin at them."""
_OPEN: Final = ".open"
"""The end of the names of files of segments that are being written."""
_PART: Final = ".moving"
_CHUNK: Final = 1 << 20


@dataclass(slots=True)
class CopiedFiles:
    """What was copied of a data folder."""

    files: int = 0
    bytes: int = 0


def size(data: Path) -> CopiedFiles:
    """The files that are copied, and their bytes."""
    found = CopiedFiles()
    for path in _files(data):
        found.files += 1
        found.bytes += path.lstat().st_size
    return found


def copy(source: Path, target: Path, *, closed_only: bool, progress: Callable[[int], None]) -> CopiedFiles:
    """Copy what is not in `target` yet; what was copied now. `closed_only`: leave segments that are being written.

    Before: both are data folders of ours; without `closed_only` nothing writes to `source`. Raises HoldfastError, as for a full disk.
    """
    done = CopiedFiles()
    for path in _files(source):
        if closed_only and _is_open(path):
            continue
        copy_to = target / path.relative_to(source)
        found = path.lstat()
        if _is_same(found, copy_to):
            continue
        try:
            for folder in reversed([copy_to.parent, *copy_to.parent.parents]):
                if folder.is_relative_to(target) and folder != target:
                    private.make_folder(folder)
            _copy_file(path, copy_to, found)
        except OSError as problem:
            raise HoldfastError(
                f"{path} could not be copied to {copy_to}: {problem.strerror or problem}. The old store is whole; "
                "make room or mend that, and run the command again."
            ) from problem
        done.files += 1
        done.bytes += found.st_size
        progress(found.st_size)
    return done


def _files(data: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(data):
        if Path(folder) == data:
            names[:] = [name for name in names if not name.startswith(_LEFT)]
            files = [name for name in files if not name.startswith(_LEFT)]
        names.sort()
        # The mark of an open segment first: it may say fewer bytes than the segment has, never more.
        for name in sorted(files, key=lambda name: (not name.endswith(_OPEN), name)):
            path = Path(folder, name)
            if stat.S_ISREG(path.lstat().st_mode) and not name.endswith(_PART):
                yield path


def _is_open(path: Path) -> bool:
    return path.name.endswith(_OPEN) or path.with_name(path.name + _OPEN).exists()


def _is_same(found: os.stat_result, copy_to: Path) -> bool:
    try:
        there = copy_to.lstat()
    except FileNotFoundError:
        return False
    return (there.st_size, there.st_mtime_ns) == (found.st_size, found.st_mtime_ns)


def _copy_file(path: Path, copy_to: Path, found: os.stat_result) -> None:
    part = copy_to.with_name(copy_to.name + _PART)
    part.unlink(missing_ok=True)
    digest = hashlib.sha256()
    with (
        os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as reader,
        os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as writer,
    ):
        left = (
            found.st_size
        )  # a segment may grow meanwhile; its time of change tells, and the last pass copies it again
        while left and (chunk := reader.read(min(left, _CHUNK))):
            digest.update(chunk)
            writer.write(chunk)
            left -= len(chunk)
        writer.flush()
        os.fsync(writer.fileno())
    with part.open("rb") as written:
        if hashlib.file_digest(written, "sha256").digest() != digest.digest():
            raise OSError(0, "what was written is not what was read")
    os.utime(part, ns=(found.st_atime_ns, found.st_mtime_ns))
    part.replace(copy_to)
    folder = os.open(copy_to.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
