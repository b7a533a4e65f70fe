"""Scratch folders: where files of archives are while they are written, compared and restored.

The rule: a scratch folder belongs to one process, which holds the lock file beside it until it ends, however it ends. A folder whose lock
is free was left by a process that was killed, and is deleted by the next one that needs a scratch folder; no other one is touched.
"""

import fcntl
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast import private
from holdfast.errors import HoldfastError

logger: Final = logging.getLogger(__name__)

_LOCK: Final = ".lock"
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """A new empty folder in `parent`, which is private and made if it is missing. After: the folder is deleted, and so are those of
    processes that were killed. Raises HoldfastError if it cannot be made, UsageError if `parent` is another user's."""
    try:
        private.make_folder(parent)
        delete_stale(parent)
        lock, fd = _locked(parent)
    except OSError as problem:
        raise HoldfastError(
            f"{parent} cannot be written: {(problem.strerror or str(problem)).lower()}. Files of archives are prepared there."
        ) from problem
    folder = lock.with_suffix("")
    try:
        folder.mkdir(0o700)
        yield folder
    finally:
        _delete(folder, lock)
        os.close(fd)


def delete_stale(parent: Path) -> None:
    """Delete the scratch folders in `parent` whose processes have ended. What cannot be deleted stays, with a warning."""
    for lock in sorted(parent.glob(f"*{_LOCK}")):
        try:
            fd = os.open(lock, _FLAGS)
        except OSError:  # its process has just ended, or it is not ours
            continue
        try:
            if _takes(lock, fd):
                _delete(lock.with_suffix(""), lock)
        finally:
            os.close(fd)


def _locked(parent: Path) -> tuple[Path, int]:
    """Make a lock file of a new name, and lock it."""
    while True:
        lock = parent / f"{secrets.token_hex(8)}{_LOCK}"
        fd = os.open(lock, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if _takes(lock, fd):
                return lock, fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # another process saw it before it was locked, and has deleted it


def _takes(lock: Path, fd: int) -> bool:
    """Lock a lock file; False if its process runs, or if it was deleted before it was locked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), lock.lstat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _delete(folder: Path, lock: Path) -> None:
    """Delete a folder and then its lock file, so that no folder is without one. Before: it is locked."""
    try:
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
        lock.unlink(missing_ok=True)
    except OSError as problem:
        logger.warning("%s cannot be deleted: %s", folder, problem.strerror)
