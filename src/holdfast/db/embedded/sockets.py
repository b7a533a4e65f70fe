"""The folder of the server's socket.

Chooses and checks it. The rule: only the server's user (and root) may enter it, and its name is short enough for a
socket; a folder that another user could have created is never used.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from holdfast.db.embedded import os_user as accounts
from holdfast.db.embedded import safe_files
from holdfast.db.embedded.layout import ServerLayout
from holdfast.errors import EmbeddedServerError

PORT = 5432
SOCKET = f".s.PGSQL.{PORT}"
_MAX_PATH_BYTES = 100  # bytes; macOS allows 103 for the whole name, Linux 107


def choose_folder(place: ServerLayout) -> Path:
    """A private socket folder: beside the cluster, or if that path is too long a short one, the same at each start.

    After: the folder exists, belongs to the server's user and is closed to all others.
    """
    beside = place.home / "postgres.socket"
    record = place.cluster / "holdfast.socket"
    if not safe_files.is_private(beside, place.account.uid):
        with suppress(OSError):  # a kill may have left it before it got its owner, empty
            beside.rmdir()
    candidates = [beside] if _fits(beside) else []
    with suppress(FileNotFoundError):
        candidates.append(Path(safe_files.read(record).rstrip("\n")))
    for candidate in candidates:
        with suppress(FileExistsError, FileNotFoundError):
            if not safe_files.is_private(candidate, place.account.uid):
                safe_files.make_folder(candidate, mode=0o700, uid=place.account.uid, gid=place.account.gid)
            return candidate
    found = _make_short(place)
    safe_files.write(record, f"{found}\n", uid=place.account.uid, gid=place.account.gid)
    return found


def usable(folder: Path, owner: int) -> bool:
    """Whether the folder has the socket of a running server and only its user and root can reach it."""
    return safe_files.is_private(folder, owner) and (folder / SOCKET).exists()


def _fits(folder: Path) -> bool:
    name = os.fsencode(folder / SOCKET)
    return len(name) <= _MAX_PATH_BYTES and b"," not in name  # libpq reads a comma as the end of a host


def _make_short(place: ServerLayout) -> Path:
    # /tmp first: $XDG_RUNTIME_DIR goes away when its user logs out, but the server stays.
    bases = ["/tmp", tempfile.gettempdir()]  # noqa: S108 - a folder of random name, closed to others, is made in it
    if not place.account.foreign:
        bases.append(os.environ.get("XDG_RUNTIME_DIR", ""))
    for base in filter(None, bases):
        with suppress(OSError):
            # mkdtemp proves that we may write there; our own folder replaces it, to be of the right owner at once.
            probe = Path(tempfile.mkdtemp(prefix="holdfast-", dir=os.path.realpath(base)))
            probe.rmdir()
            if _fits(probe) and accounts.can_enter(place.account, probe.parent):
                safe_files.make_folder(probe, mode=0o700, uid=place.account.uid, gid=place.account.gid)
                return probe
    raise EmbeddedServerError(
        f"The name of {place.home} is too long for a socket, and no folder for one can be made in /tmp: "
        "choose a --data with a shorter name, or make /tmp writable."
    )
