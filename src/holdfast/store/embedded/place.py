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


def make_data(data: Path) -> None:
    """Create `<data>` if it is missing, so that nobody else can list it (root: its server's user may pass through).

    One that exists is left as it is, whatever its mode.
    """
    for folder in (data, *data.parents):
        if folder.exists() and not folder.is_dir():
            raise EmbeddedServerError(f"{folder} is a file, not a folder: choose another folder with --data.")
    files.make_folders(data, mode=0o711 if os.geteuid() == 0 else 0o700)


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
    if home == data and not accounts.can_enter(account, data):
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
