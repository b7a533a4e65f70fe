"""File layout of an embedded server: its cluster, its socket folder, its password, and their owner.

Chooses between `<data>` and /var/lib/holdfast, and names all files beside the cluster.
The rule: the cluster is in `<data>` whenever the server's user can reach it; otherwise a warning was printed.
"""

import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from holdfast import private, trust
from holdfast.db.embedded import os_user as accounts
from holdfast.db.embedded import safe_files
from holdfast.db.embedded.errors import user_name
from holdfast.db.embedded.os_user import OsUser
from holdfast.db.embedded.safe_files import Say
from holdfast.errors import EmbeddedServerError

SHARED = Path("/var/lib/holdfast")
_ID = re.compile(r"[0-9a-f]{16}")
_INVALID_IN_PATH = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # control characters, and bytes that are no UTF-8


@dataclass(frozen=True, slots=True)
class ServerLayout:
    """`home` is the folder that holds the cluster: `<data>`, or one of ours in /var/lib/holdfast."""

    data: Path
    home: Path
    account: OsUser

    @property
    def cluster(self) -> Path:
        return cluster_in(self.home)

    @property
    def start_log(self) -> Path:
        """Output of the server before its own log begins."""
        return self.home / "postgres.start.log"


def resolved(data: Path) -> Path:
    """The real path of `data`, so that all processes refer to the same folder."""
    real = os.path.realpath(data)
    if _INVALID_IN_PATH.search(real):
        raise EmbeddedServerError(
            f"The folder name {real!r} has control characters or is not UTF-8, which PostgreSQL's files cannot hold: "
            "choose another folder with --data."
        )
    return Path(real)


def cluster_in(home: Path) -> Path:
    return home / "postgres"


def lock_file(data: Path) -> Path:
    return data / "postgres.lock"


def password_file(data: Path) -> Path:
    """A libpq passfile; it exists if and only if the server requires passwords."""
    return data / "postgres.password"


def stopped_file(data: Path) -> Path:
    """Marker file; exists from `holdfast db stop` until a command starts the server again."""
    return data / "postgres.stopped"


def _location_file(data: Path) -> Path:
    return data / "postgres.location"


def resolve_owned(data: Path) -> Path:
    """The real path of `data`, after a check that it belongs to this user or does not exist.

    Raises UsageError if it belongs to another user, EmbeddedServerError if its cluster is a symbolic link.
    """
    private.check(data)
    real = resolved(data)
    if (cluster := cluster_in(real)).is_symlink():
        raise EmbeddedServerError(
            f"{cluster} is a symbolic link, and links inside of a data folder are not followed: put the folder itself there."
        )
    return real


def make_data(data: Path, say: Say) -> None:
    """Create `<data>` without access for other users, or remove that access from an existing one of ours."""
    for folder in (data, *data.parents):
        if folder.exists() and not folder.is_dir():
            raise EmbeddedServerError(f"{folder} is a file, not a folder: choose another folder with --data.")
    if not data.exists():
        # The server's user may have to pass through the parent folders.
        safe_files.make_folders(data.parent, mode=0o711 if os.geteuid() == 0 else private.MODE)
        private.make_folder(data)
        return
    cluster = cluster_in(home_of(data))
    if os.geteuid() == 0 and cluster.parent == data and cluster.is_dir():
        found = cluster.lstat()
        if not _may_have_a_group(found.st_uid, found.st_gid):
            return  # closing it would lock out its server, which runs as `nobody` or as a user without a passwd entry
        private.close(data, say, group=found.st_gid)
    elif os.geteuid() != 0 or not _is_prepared(data):
        private.close(data, say)


def _is_prepared(data: Path) -> bool:
    """Whether `data` already grants the server's private group passage, for a cluster that does not exist yet."""
    found = data.lstat()
    return stat.S_IMODE(found.st_mode) == private.MODE_FOR_GROUP and found.st_gid != 0


def _may_have_a_group(uid: int, gid: int) -> bool:
    """Whether the server's user is the only member of the group, which may then pass through root's data folder."""
    return user_name(uid) != accounts.NOBODY and trust.is_private_group(gid, uid)


def home_of(data: Path) -> Path:
    """The folder that holds the cluster of `data`: the recorded one, else `data` itself."""
    record = _location_file(data)
    try:
        found = record.lstat()
        home = Path(safe_files.read(record).strip())
    except (FileNotFoundError, NotADirectoryError):
        return data
    # Root follows this record, so only a record written by root is trusted.
    if found.st_uid != 0 or home.parent != SHARED or not _ID.fullmatch(home.name):
        raise EmbeddedServerError(
            f"{record} is not the record that Holdfast wrote as root, so it does not tell where the database is: "
            "restore it from a backup, or remove it if the database is not needed any more."
        )
    if not home.is_dir():
        raise EmbeddedServerError(
            f"The database of {data} should be in {home}, but that folder is gone: "
            f"bring it back, or remove {record} to begin with an empty database."
        )
    return home


def choose_layout(data: Path, say: Say) -> ServerLayout:
    """Decide where the cluster is or will be, and which user owns it.

    Before: `data` is a folder; the caller holds the start lock. After: that user can reach `home`; a home outside `data` is recorded.
    """
    home = home_of(data)
    cluster = cluster_in(home)
    if os.path.lexists(cluster):
        if not cluster.is_dir():
            raise EmbeddedServerError(f"{cluster} is a file, not a folder: choose another folder with --data.")
        account = accounts.of_owner(cluster)
        if not accounts.can_enter(account, cluster):
            raise EmbeddedServerError(
                f"User {account.name or account.uid}, who owns the database in {cluster}, may not enter "
                f"{accounts.first_forbidden_folder(account, cluster)} any more: allow it there (chmod o+x), or move the folder."
            )
        return ServerLayout(data, home, account)
    account = accounts.for_new_cluster()
    if home == data and account.foreign and _may_have_a_group(account.uid, account.gid) and private.is_alone(data):
        private.close(data, say, group=account.gid)
    if home == data and not accounts.can_enter(account, data):
        private.close(data, lambda _: None)  # as it was
        home = _choose_shared_home(data, account, say)
    return ServerLayout(data, home, account)


def _choose_shared_home(data: Path, account: OsUser, say: Say) -> Path:
    """Create a home in /var/lib/holdfast and record its location.

    A kill before the record is written leaves an empty folder and nothing else.
    """
    barrier = accounts.first_forbidden_folder(account, data)
    shelf = shared_folder()
    if shelf is None:
        raise EmbeddedServerError(
            f"PostgreSQL's user {account.name} may not enter {barrier}, and {SHARED} cannot be made to hold the "
            "database instead: choose a folder with --data that every user may pass through."
        )
    home = shelf / secrets.token_hex(8)
    safe_files.make_folder(home, mode=0o711, uid=os.geteuid(), gid=os.getegid())
    if not accounts.can_enter(account, home):
        home.rmdir()
        raise EmbeddedServerError(
            f"PostgreSQL's user {account.name} may enter neither {barrier} nor {accounts.first_forbidden_folder(account, shelf)}: "
            "choose a folder with --data that every user may pass through."
        )
    safe_files.write(_location_file(data), f"{home}\n", uid=os.geteuid(), gid=os.getegid())
    say(
        f"ATTENTION: the database is not in {data} but in {home}, because PostgreSQL's user {account.name} may not "
        f"enter {barrier}: keep both when you back up or move, or choose a --data that every user may pass through."
    )
    return home


def shared_folder() -> Path | None:
    """/var/lib/holdfast, created if missing; None without the permission to create it."""
    try:
        safe_files.make_folders(SHARED, mode=0o711)
        found = SHARED.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
        raise EmbeddedServerError(
            f"{SHARED} belongs to {user_name(found.st_uid)} or others may write in it, so root cannot keep a database "
            "there safely: choose a folder with --data that every user may pass through."
        )
    return SHARED
