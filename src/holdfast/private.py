"""The data folder and the folders in it: closed to other users, never through a link.

The rule: every folder here belongs to us, and no other user can enter it; root's data folder may be passed through, not listed, by the
private group of its database server. What another user owns, or could have filled, is refused with one sentence; what is merely open
is closed. A link inside the data folder is never followed, since it may have been put there before the folder was closed.
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
PASSABLE: Final = 0o710
_FORMER: Final = 0o711
"""Of root's data folders, as earlier versions made them."""
_BITS: Final = 0o777
_OTHERS: Final = 0o077
_INSIDE: Final = ("archive", "logs")
_OURS: Final = ("postgres", "postgresql", "archive", "logs", "secret", "webhook")
"""How the names of Holdfast's own files in a data folder begin."""


def check(data: Path) -> None:
    """Raise UsageError unless `data` is a folder of ours, or nothing is there yet."""
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
    """Make a private folder, and those above it that are missing; close one of ours that is there and open.

    After: `path` is a folder of ours, not a link, that no other user can enter. UsageError: it cannot be.
    """
    missing = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another process of ours
            folder.mkdir(mode=MODE)
    fd = _opened(path)
    try:
        found = os.fstat(fd)
        _check_owner(path, found)
        if found.st_mode & _OTHERS:
            os.fchmod(fd, MODE)
    finally:
        os.close(fd)


def close(data: Path, say: Callable[[str], None], *, group: int | None = None) -> None:
    """Close a data folder that is there, and the archive and logs in it; `say` hears of it if they were open.

    `group` may pass through the folder: the private one of root's database server. UsageError: the folder is another user's, or open and
    not for Holdfast alone.
    """
    fd = _opened(data)
    try:
        found = os.fstat(fd)
        _check_owner(data, found)
        mode = found.st_mode & _BITS
        wanted, gid = (MODE, found.st_gid) if group is None else (PASSABLE, group)
        closed = []
        if (mode, found.st_gid) != (wanted, gid):
            if mode & _OTHERS & ~wanted:
                _check_alone(data, found)
                closed.append(str(data))
            if found.st_gid != gid:
                os.fchmod(fd, MODE)  # first, so that the old group does not pass with the mode of the new one
                os.fchown(fd, -1, gid)
            os.fchmod(fd, wanted)
    finally:
        os.close(fd)
    for name in _INSIDE:
        with suppress(FileNotFoundError):
            if stat.S_IMODE((data / name).lstat().st_mode) & _OTHERS:
                make_folder(data / name)
                closed.append(str(data / name))
    if closed:
        say(f"Closed {' and '.join(closed)} to other users, who could look into it before.")


def close_own(data: Path, say: Callable[[str], None]) -> None:
    """Close a data folder of ours whose database is elsewhere, if it is there, open, and for Holdfast alone; else change nothing."""
    with suppress(FileNotFoundError, NotADirectoryError):
        found = data.lstat()
        if (
            stat.S_ISDIR(found.st_mode)
            and found.st_uid == os.geteuid()
            and found.st_mode & _OTHERS & ~PASSABLE
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
    if found.st_mode & _BITS == _FORMER:
        return
    if (name := _foreign(data)) is not None:
        raise UsageError(
            f"{data} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}) and holds {name!r}, which is not Holdfast's: "
            "choose a folder for Holdfast alone with --data, or close this one (chmod 700)."
        )


def is_alone(data: Path) -> bool:
    """Whether nothing but Holdfast's own files is in `data`, so that its group may be changed."""
    return _foreign(data) is None


def _foreign(data: Path) -> str | None:
    return next((path.name for path in sorted(data.iterdir()) if not path.name.startswith(_OURS)), None)


def _opened(path: Path) -> int:
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
