"""Files that hold a secret of this installation.

The rule: such a file is written once, atomically, and only its owner can read it.
"""

import os
from contextlib import suppress
from pathlib import Path

from holdfast import private
from holdfast.db.embedded import safe_files
from holdfast.errors import SettingsError


def read(file: Path) -> str | None:
    """Return the content of a file; None: there is none. Raises SettingsError if it is unusable, UsageError in another user's folder."""
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
    """Create a file. After: it exists, with this secret or that of a process that was first. Raises as `read`."""
    private.check(file.parent)
    try:
        safe_files.make_folders(file.parent, mode=0o700)
        new = safe_files.unfinished(file)
        safe_files.write(new, f"{secret}\n", uid=os.geteuid(), gid=os.getegid())
        try:
            with suppress(FileExistsError):  # the file of the process that was first counts
                os.link(new, file)
        finally:
            new.unlink()
        safe_files.sync_folder(file.parent)
    except OSError as problem:
        raise SettingsError(f"{file} cannot be made: {problem.strerror}.") from problem
