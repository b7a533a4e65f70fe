"""Where an embedded server lives: its cluster, its socket folder, its password, and whose they are.

Owns the choice between `<data>` and /var/lib/holdfast, and the names of all files beside the cluster.
One rule: the cluster is in `<data>` whenever the server's user can reach it; if it is elsewhere, we said so loudly.
"""

import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

from holdfast import private, trust
from holdfast.errors import EmbeddedServerError
from holdfast.store.embedded import account as accounts
from holdfast.store.embedded import files
from holdfast.store.embedded.account import Account
from holdfast.store.embedded.files import Say
from holdfast.store.embedded.problems import user_name

SHARED = Path("/var/lib/holdfast")
_ID = re.compile(r"[0-9a-f]{16}")
_UNFIT = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")  # control characters, and bytes that are no UTF-8


@dataclass(frozen=True, slots=True)
class Place:
    """`home` is the folder that holds the cluster: `<data>`, or one of ours in /var/lib/holdfast."""

    data: Path
    home: Path
    account: Account

    @property
    def cluster(self) -> Path:
        return cluster_in(self.home)

    @property
    def start_log(self) -> Path:
        """What the server says before its own log begins."""
        return self.home / "postgres.start.log"


def resolved(data: Path) -> Path:
    """`data` without links and dots, so that all processes mean the same folder."""
    real = os.path.realpath(data)
    if _UNFIT.search(real):
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
    """In the format of libpq's passfile; it is there exactly when the server asks for passwords."""
    return data / "postgres.password"


def stopped_file(data: Path) -> Path:
    """It is there from `holdfast db stop` until a command starts the server again."""
    return data / "postgres.stopped"


def _location_file(data: Path) -> Path:
    return data / "postgres.location"


def own(data: Path) -> Path:
    """`data` without links and dots, once it is known to be ours or not there.

    Raises UsageError: it is another user's; EmbeddedServerError: its cluster is a link.
    """
    private.check(data)
    real = resolved(data)
    if (cluster := cluster_in(real)).is_symlink():
        raise EmbeddedServerError(
            f"{cluster} is a symbolic link, and links inside of a data folder are not followed: put the folder itself there."
        )
    return real


def make_data(data: Path, say: Say) -> None:
    """Create `<data>` closed to all others, or close one of ours that is open."""
    for folder in (data, *data.parents):
        if folder.exists() and not folder.is_dir():
            raise EmbeddedServerError(f"{folder} is a file, not a folder: choose another folder with --data.")
    if not data.exists():
        # Those above it may have to let the server's user pass.
        files.make_folders(data.parent, mode=0o711 if os.geteuid() == 0 else private.MODE)
        private.make_folder(data)
        return
    cluster = cluster_in(home_of(data))
    if os.geteuid() == 0 and cluster.parent == data and cluster.is_dir():
        found = cluster.lstat()
        if not _may_have_a_group(found.st_uid, found.st_gid):
            return  # closed, it would keep out the server that lives in it: nobody's, or that of a user this system has lost
        private.close(data, say, group=found.st_gid)
    elif os.geteuid() != 0 or not _is_prepared(data):
        private.close(data, say)


def _is_prepared(data: Path) -> bool:
    """Whether `data` is one that the private group of a server may pass, made for a cluster that is not there yet."""
    found = data.lstat()
    return stat.S_IMODE(found.st_mode) == private.PASSABLE and found.st_gid != 0


def _may_have_a_group(uid: int, gid: int) -> bool:
    """Whether a group is the server's alone, so that it may pass through root's data folder."""
    return user_name(uid) != accounts.NOBODY and trust.is_private_group(gid, uid)


def home_of(data: Path) -> Path:
    """The folder that holds the cluster of `data`, as far as one was chosen."""
    record = _location_file(data)
    try:
        found = record.lstat()
        home = Path(files.read(record).strip())
    except (FileNotFoundError, NotADirectoryError):
        return data
    # Root follows this record, so only root's word counts.
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


def settle(data: Path, say: Say) -> Place:
    """Decide where the cluster is or will be, and whose it is. Call it under the lock.

    Before: `data` is a folder. After: the account can reach `home`; a home outside of `data` is on record.
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
                f"{accounts.stopped_at(account, cluster)} any more: allow it there (chmod o+x), or move the folder."
            )
        return Place(data, home, account)
    account = accounts.for_new_cluster()
    if home == data and account.foreign and _may_have_a_group(account.uid, account.gid) and private.is_alone(data):
        private.close(data, say, group=account.gid)
    if home == data and not accounts.can_enter(account, data):
        private.close(data, lambda _: None)  # as it was
        home = _settle_outside(data, account, say)
    return Place(data, home, account)


def _settle_outside(data: Path, account: Account, say: Say) -> Path:
    """Make a home in /var/lib/holdfast and put it on record.

    A kill before the record is written leaves an empty folder and nothing else.
    """
    barrier = accounts.stopped_at(account, data)
    shelf = shared_folder()
    if shelf is None:
        raise EmbeddedServerError(
            f"PostgreSQL's user {account.name} may not enter {barrier}, and {SHARED} cannot be made to hold the "
            "database instead: choose a folder with --data that every user may pass through."
        )
    home = shelf / secrets.token_hex(8)
    files.make_folder(home, mode=0o711, uid=os.geteuid(), gid=os.getegid())
    if not accounts.can_enter(account, home):
        home.rmdir()
        raise EmbeddedServerError(
            f"PostgreSQL's user {account.name} may enter neither {barrier} nor {accounts.stopped_at(account, shelf)}: "
            "choose a folder with --data that every user may pass through."
        )
    files.write(_location_file(data), f"{home}\n", uid=os.geteuid(), gid=os.getegid())
    say(
        f"ATTENTION: the database is not in {data} but in {home}, because PostgreSQL's user {account.name} may not "
        f"enter {barrier}: keep both when you back up or move, or choose a --data that every user may pass through."
    )
    return home


def shared_folder() -> Path | None:
    """/var/lib/holdfast, made if it is missing; None where this machine does not let us."""
    try:
        files.make_folders(SHARED, mode=0o711)
        found = SHARED.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
        raise EmbeddedServerError(
            f"{SHARED} belongs to {user_name(found.st_uid)} or others may write in it, so root cannot keep a database "
            "there safely: choose a folder with --data that every user may pass through."
        )
    return SHARED
