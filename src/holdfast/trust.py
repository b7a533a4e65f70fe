"""Trust in files that were found, not named: settings and code of another user must not run as us.

The rule: a trusted file belongs to us or to root, and no other user can write or replace it, in any folder or through any link on its path.
A private group (the owner's own, without another member) counts as its owner. In a folder with the sticky bit others may add files, but not
replace those of a trusted owner. The file that is read is the file that was checked: both use one descriptor.
"""

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Final

_MAX_LINKS: Final = 40
_ACL: Final = "system.posix_acl_access"


class Untrusted(Exception):
    """The file may not be used; the message names the cause and the place: "/tmp/x belongs to user bob (mode 0644)"."""


def read(path: Path) -> bytes:
    """Read a trusted file. Raises Untrusted, and OSError if it does not exist or cannot be read."""
    fd = os.open(
        path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    )  # not waiting for the writer of a pipe that another user put there
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Untrusted(f"{path} is not a file")
        last, judged = _check_path(path)
        if not os.path.samestat(found, judged):
            raise Untrusted(f"{last} was replaced while it was read")
        return file.read()


def read_named(path: Path) -> bytes:
    """Read a file that the operator named: Untrusted only if every user can write it. OSError as for any file."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        if stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IWOTH:
            raise Untrusted(f"{path} can be written by every user (mode {_mode(found)})")
        return file.read()


def check(path: Path) -> None:
    """Raise Untrusted unless the file or folder at `path` is trusted; OSError if it does not exist."""
    _check_path(path)


def is_closed(folder: Path) -> bool:
    """Whether `folder` is trusted and no other user can even add a file to it."""
    try:
        _check_path(folder)
        return not writers(folder, folder.stat())
    except (Untrusted, OSError):
        return False


def check_links(path: Path) -> None:
    """Raise Untrusted if a link on the path belongs to another user; OSError if nothing exists there."""
    _check_path(path, links_only=True)


def _check_path(path: Path, *, links_only: bool = False) -> tuple[Path, os.stat_result]:
    """Check every folder and link on the path, and its end. Returns the path without links, and its status."""
    parts = list(reversed(Path.cwd().joinpath(path).parts[1:]))
    here, links = Path("/"), 0
    status = here.stat()
    while parts:
        if (part := parts.pop()) == "..":
            here = here.parent
            status = here.stat()
            continue
        there = here / part
        found = there.lstat()
        if stat.S_ISLNK(found.st_mode) or not links_only:
            _check_owner(there, found)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MAX_LINKS:
                raise Untrusted(f"{there} leads round in a circle")
            target = there.readlink()
            parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            here = Path("/") if target.is_absolute() else here
            status = here.stat()
            continue
        if (
            not links_only
            and (who := writers(there, found))
            and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX)
        ):
            raise Untrusted(f"{there} can be written by {who} (mode {_mode(found)}, owner {user_name(found.st_uid)})")
        here, status = there, found
    return here, status


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise Untrusted(f"{path} belongs to user {user_name(found.st_uid)} (mode {_mode(found)})")


def writers(path: Path, found: os.stat_result) -> str | None:
    """Users or groups other than the owner that can write the file with this status; None: no other user."""
    if found.st_mode & stat.S_IWOTH:
        return "every user"
    if not found.st_mode & stat.S_IWGRP:
        return None
    # With an access list the group bits are the maximum for every entry of the list.
    if hasattr(os, "listxattr") and _ACL in _attributes(path):
        return "the users of its access list"
    return None if is_private_group(found.st_gid, found.st_uid) else f"group {_group(found.st_gid)}"


def _attributes(path: Path) -> list[str]:
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError:  # a file system without any
        return []


def is_private_group(gid: int, uid: int) -> bool:
    """Whether a group is the user's own and has no other member, as on systems whose umask is 002."""
    try:
        owner, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    if owner.pw_gid != gid or set(group.gr_mem) - {owner.pw_name}:
        return False
    return all(entry.pw_gid != gid or entry.pw_uid == uid for entry in pwd.getpwall())


def user_name(uid: int) -> str:
    """The name of a user, or the number if there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"
