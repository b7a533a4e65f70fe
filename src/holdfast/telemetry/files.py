"""Log files: how they are opened, and how they are kept from growing without end.

The rule: a log has at most `LONGEST` bytes and one line more; the file before it is kept under the same name with `.1`. Several processes
may write to one file: it is put aside once, and the others follow to the new one.
"""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.errors import UsageError

LONGEST: Final = 10 * 1024 * 1024
"""Bytes."""


def open_log(path: Path) -> int:
    """A descriptor that appends to the file, which is made if it is not there. After: no other user can read it.

    Raises OSError, and UsageError if it is a link: what that leads to may not be ours.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise
        raise UsageError(f"{path} is a symbolic link, which a log is not written through: remove it.") from problem
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
        os.fchmod(descriptor, 0o600)  # as an earlier version left it
    return descriptor


def is_full(descriptor: int) -> bool:
    """Whether a file has its size; what is no file never has."""
    found = os.fstat(descriptor)
    return stat.S_ISREG(found.st_mode) and found.st_size >= LONGEST


def successor(path: Path, descriptor: int) -> int | None:
    """A descriptor of the file that follows a full one, which is put aside. None: there cannot be one, and the old one was emptied."""
    try:
        if is_same(path, descriptor):
            path.replace(path.with_name(f"{path.name}.1"))
        return open_log(path)
    except (OSError, UsageError):
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        return None


def is_same(path: Path, descriptor: int) -> bool:
    """Whether a descriptor is that of the file at a path."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False
