"""Files that hold a secret of this installation's own.

The rule: such a file is made once, whole or not at all, and is its owner's alone.
"""

import os
from contextlib import suppress
from pathlib import Path

from holdfast import private
from holdfast.db.embedded import safe_files
from holdfast.errors import SettingsError


def read(file: Path) -> str | None:
    """What is in it; None if there is none. Raises SettingsError for one that cannot be used, UsageError in a folder of another user."""
    private.check(file.parent)
    try:
        mode = file.lstat().st_mode
        text = safe_files.read(file)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise SettingsError(f"{file} cannot be read: {problem.strerror}.") from problem
    if mode & 0o077:
        raise SettingsError(f"{file} may be read by others: make it yours alone with `chmod 600`.")
    return text


def make(file: Path, secret: str) -> None:
    """After: the file is there, with this secret or that of a process that was first. Raises SettingsError or UsageError, as `read`."""
    private.check(file.parent)
    try:
        safe_files.make_folders(file.parent, mode=0o700)
        new = safe_files.unfinished(file)
        safe_files.write(new, f"{secret}\n", uid=os.geteuid(), gid=os.getegid())
        try:
            with suppress(FileExistsError):  # somebody else was first, and that one counts
                os.link(new, file)
        finally:
            new.unlink()
        safe_files.sync_folder(file.parent)
    except OSError as problem:
        raise SettingsError(f"{file} cannot be made: {problem.strerror}.") from problem
