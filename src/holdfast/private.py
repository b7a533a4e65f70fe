"""The data folder and its subfolders: closed to other users, never followed through a link.

The rule: every folder here belongs to us, and no other user can enter it; the private group of root's database server may traverse root's
data folder, not list it. A folder that another user owns, or could have filled, is refused with one sentence; one that is merely open is
closed. A link inside the data folder is never followed, since it may have been put there before the folder was closed.
"""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast import trust
from holdfast.errors import UsageError

MODE: Final = 0o700
MODE_FOR_GROUP: Final = 0o710
_OLD_MODE: Final = 0o711
"""The mode of root's data folders in earlier versions."""
_MODE_BITS: Final = 0o777
_OTHERS_BITS: Final = 0o077
_SUBFOLDERS: Final = ("archive", "images", "logs", "retention", "scratch", "search")
"""Without `backups`: it may be a network folder whose server is gone, and only commands of backups, which close it, may wait for it."""
_OWN_PREFIXES: Final = (
    "postgres",
    "postgresql",
    "archive",
    "backups",
    "images",
    "logs",
    "retention",
    "scratch",
    "search",
    "secret",
    "webhook",
)
"""Prefixes of the names of Holdfast's own files in a data folder."""


def check(data: Path) -> None:
    """Raise UsageError unless `data` is a folder of ours, or does not exist yet."""
    try:
        trust.check_links(data)
        found = data.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except trust.Untrusted as why:
        raise UsageError(f"The data folder {data} is not used: {why}; choose another folder with --data.") from why
    except PermissionError:
        return  # the code that uses it says which permission is missing
    _check_owner(data, found)


def make_folder(path: Path) -> None:
    """Create a private folder and its missing parents; close one of ours that exists and is open.

    After: `path` is a folder of ours, not a link, that no other user can enter. Raises UsageError if that is impossible.
    """
    missing = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another process of ours
            folder.mkdir(mode=MODE)
    fd = _open_folder(path)
    try:
        found = os.fstat(fd)
        _check_owner(path, found)
        if found.st_mode & _OTHERS_BITS:
            os.fchmod(fd, MODE)
    finally:
        os.close(fd)


def close(data: Path, say: Callable[[str], None], *, group: int | None = None) -> None:
    """Close an existing data folder, its archive and its logs to other users; `say` gets a message if they were open.

    `group` may traverse the folder: the private one of root's database server. Raises UsageError if the folder is another user's, or open
    and not used by Holdfast alone.
    """
    fd = _open_folder(data)
    try:
        found = os.fstat(fd)
        _check_owner(data, found)
        mode = found.st_mode & _MODE_BITS
        wanted, gid = (MODE, found.st_gid) if group is None else (MODE_FOR_GROUP, group)
        closed = []
        if (mode, found.st_gid) != (wanted, gid):
            if mode & _OTHERS_BITS & ~wanted:
                _check_alone(data, found)
                closed.append(str(data))
            if found.st_gid != gid:
                os.fchmod(fd, MODE)  # first, so that the old group does not pass with the mode of the new one
                os.fchown(fd, -1, gid)
            os.fchmod(fd, wanted)
    finally:
        os.close(fd)
    for name in _SUBFOLDERS:
        with suppress(FileNotFoundError):
            if stat.S_IMODE((data / name).lstat().st_mode) & _OTHERS_BITS:
                make_folder(data / name)
                closed.append(str(data / name))
    if closed:
        say(f"Closed {' and '.join(closed)} to other users, who could look into it before.")


def close_own(data: Path, say: Callable[[str], None]) -> None:
    """Close a data folder of ours whose database is elsewhere, if it exists, is open, and holds only Holdfast's files; else change
    nothing."""
    with suppress(FileNotFoundError, NotADirectoryError):
        found = data.lstat()
        if (
            stat.S_ISDIR(found.st_mode)
            and found.st_uid == os.geteuid()
            and found.st_mode & _OTHERS_BITS & ~MODE_FOR_GROUP
            and is_alone(data)
        ):
            close(data, say)


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        owner = trust.user_name(found.st_uid)
        raise UsageError(
            f"{path} belongs to user {owner} (mode {stat.S_IMODE(found.st_mode):04o}): run Holdfast as that user, or choose another "
            "folder with --data."
        )


def _check_alone(data: Path, found: os.stat_result) -> None:
    """Raise UsageError for a folder whose mode must not be changed, or whose content may be another user's."""
    if who := trust.writers(data, found):
        raise UsageError(
            f"{data} can be written by {who} (mode {stat.S_IMODE(found.st_mode):04o}), who may have put files into it: choose another "
            "folder with --data, or look into this one and close it (chmod 700)."
        )
    if found.st_mode & _MODE_BITS == _OLD_MODE:
        return
    if (name := _foreign_file(data)) is not None:
        raise UsageError(
            f"{data} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}) and holds {name!r}, which is not Holdfast's: "
            "choose a folder for Holdfast alone with --data, or close this one (chmod 700)."
        )


def is_alone(data: Path) -> bool:
    """Whether `data` holds nothing but Holdfast's own files, so that its group may be changed."""
    return _foreign_file(data) is None


def _foreign_file(data: Path) -> str | None:
    return next((path.name for path in sorted(data.iterdir()) if not path.name.startswith(_OWN_PREFIXES)), None)


def _open_folder(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as problem:
        if path.is_symlink():
            raise UsageError(
                f"{path} is a symbolic link, and links inside of a data folder are not followed: put a folder there, or choose "
                "another folder with --data."
            ) from problem
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path} is a file, not a folder: choose another folder with --data.") from problem
        raise
