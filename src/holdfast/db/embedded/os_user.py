"""The operating-system user that the server runs as.

Finds or creates that user, and runs programs as it.
The rule: PostgreSQL never runs as root, and access is tested as that user, not derived from mode bits.
"""

import grp
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from holdfast.db.embedded.safe_files import SlowWaitNotice, locked
from holdfast.errors import EmbeddedServerError

# A person may already be called holdfast; the server must not run as a person.
SYSTEM_NAMES: Sequence[str] = ("holdfast", "holdfast-postgres")
NOBODY = "nobody"
_FIRST_LOGIN_UID = 1000
_CREATE_LOCK = Path("/var/run/holdfast-useradd.lock")
_NO_LOGIN = ("/usr/sbin/nologin", "/sbin/nologin", "/usr/bin/nologin", "/bin/false", "/usr/bin/false")

# Nothing of the caller's environment: no PG* variable, no locale, no library path.
ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}


@dataclass(frozen=True, slots=True)
class OsUser:
    """A user to run PostgreSQL as. `name` is None where the owner of a cluster has no passwd entry here."""

    uid: int
    gid: int
    name: str | None
    groups: tuple[int, ...]

    @property
    def foreign(self) -> bool:
        """Whether programs must change user to run as this account."""
        return self.uid != os.geteuid()


def current() -> OsUser:
    """The user of this process."""
    uid = os.geteuid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedServerError(
            f"The user id {uid} has no entry in the passwd database, which PostgreSQL needs: run Holdfast as root "
            "or as a named user, add an entry, or point HOLDFAST_DATABASE_URL to a server."
        ) from None
    return OsUser(uid, os.getegid(), entry.pw_name, ())


def of_owner(cluster: Path) -> OsUser:
    """The user for an existing cluster: its owner, the only one that PostgreSQL accepts."""
    found = cluster.stat()
    uid, gid = found.st_uid, found.st_gid
    if uid == 0:
        raise EmbeddedServerError(
            f"{cluster} belongs to root, and PostgreSQL refuses to run as root: "
            "give it back to the user who made it (chown -R)."
        )
    if uid == os.geteuid():
        return current()
    if os.geteuid() != 0:
        owner = _lookup_uid(uid)
        raise EmbeddedServerError(
            f"{cluster} belongs to user {owner.pw_name if owner else uid}: "
            "run Holdfast as that user or as root, or choose another folder with --data."
        )
    entry = _lookup_uid(uid)
    # A container that was made anew has lost the entry, but not the volume: the server itself needs no name.
    account = _user_of_entry(entry) if entry else OsUser(uid, gid, None, (gid,))
    _check_switch(account)
    return account


def for_new_cluster() -> OsUser:
    """The user for a new cluster: the current one, or for root an unprivileged system user, created if needed."""
    if os.geteuid() != 0:
        return current()
    entry = _system_user() or _lookup(NOBODY)
    if entry is None:
        raise EmbeddedServerError(
            "PostgreSQL refuses to run as root, and here is no system user holdfast, no way to add one and no user "
            "nobody: add a system user called holdfast, or run Holdfast as an ordinary user."
        )
    account = _user_of_entry(entry)
    _check_switch(account)
    return account


def _system_user() -> pwd.struct_passwd | None:
    for name in SYSTEM_NAMES:
        entry = _lookup(name) or _create(name)
        if entry and entry.pw_uid > 0 and (entry.pw_uid < _FIRST_LOGIN_UID or entry.pw_shell in _NO_LOGIN):
            return entry
    return None


def _create(name: str) -> pwd.struct_passwd | None:
    """Add a system user without home or login; its passwd entry, or None where none can be added."""
    shell = next((path for path in _NO_LOGIN if Path(path).exists()), "/bin/false")
    search = ENVIRONMENT["PATH"]
    if useradd := shutil.which("useradd", path=search):
        try:
            group = ["--gid", str(grp.getgrnam(name).gr_gid)]
        except KeyError:
            group = ["--user-group"]
        command = [useradd, "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", shell, *group]
    elif adduser := shutil.which("adduser", path=search):  # busybox; Debian's adduser comes with a useradd
        command = [adduser, "-S", "-D", "-H", "-h", "/nonexistent", "-s", shell]
    else:
        return None
    # Two useradd at once add the user twice, and the second entry replaces the first with another uid.
    with ExitStack() as stack:
        held: tuple[int, ...] = ()
        with suppress(OSError):  # no /var/run, or not writable: nor is /etc/passwd then
            held = (stack.enter_context(locked(_CREATE_LOCK, SlowWaitNotice(lambda _: None, ""))),)
        if entry := _lookup(name):
            return entry
        # The lock is inherited, so that a kill of this process does not let the next one in before useradd has ended.
        subprocess.run(
            [*command, name], env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, check=False, pass_fds=held
        )
    return _lookup(name)


def _lookup(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _lookup_uid(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def _user_of_entry(entry: pwd.struct_passwd) -> OsUser:
    groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
    return OsUser(entry.pw_uid, entry.pw_gid, entry.pw_name, groups)


def _check_switch(account: OsUser) -> None:
    if not can_enter(account, Path("/")):
        raise EmbeddedServerError(
            f"PostgreSQL refuses to run as root, and this root may not become user {account.name or account.uid} "
            "(a container without CAP_SETUID and CAP_SETGID?): run Holdfast as an ordinary user."
        )


def popen(
    account: OsUser,
    command: Sequence[str | Path],
    *,
    cwd: Path = Path("/"),
    keep: Sequence[int] = (),
    stdin: int = subprocess.DEVNULL,
    output: int | IO[bytes] = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start a program as `account`, in a session of its own, with a minimal environment and the descriptors `keep`."""
    return subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env=ENVIRONMENT,
        stdin=stdin,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=keep,
        start_new_session=True,
        umask=0o077,
        user=account.uid if account.foreign else None,
        group=account.gid if account.foreign else None,
        extra_groups=account.groups if account.foreign else None,
    )


def run(
    account: OsUser,
    command: Sequence[str | Path],
    *,
    keep: Sequence[int] = (),
    text: str = "",
    patience: SlowWaitNotice | None = None,
) -> tuple[int, str]:
    """Run a program as `account` to its end; exit code and output. An interrupt kills the program too."""
    with popen(account, command, keep=keep, stdin=subprocess.PIPE) as process:
        feed: bytes | None = text.encode()
        try:
            while True:
                try:
                    output = process.communicate(feed, timeout=0.5)[0]
                    return process.returncode, output.decode(errors="replace")
                except subprocess.TimeoutExpired:
                    feed = None
                    if patience:
                        patience.tick()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def can_enter(account: OsUser, folder: Path) -> bool:
    """Whether `account` may enter `folder` and all its parents. Tested as that user."""
    if not account.foreign:
        return os.access(folder, os.X_OK)
    test = shutil.which("test", path=ENVIRONMENT["PATH"]) or "/usr/bin/test"
    try:
        return run(account, [test, "-x", folder])[0] == 0
    except OSError:
        return False


def first_forbidden_folder(account: OsUser, folder: Path) -> Path:
    """The topmost folder on the path to `folder` that `account` may not enter (`folder` itself if there is none)."""
    way = [*reversed(folder.parents), folder]
    return next((step for step in way if not can_enter(account, step)), folder)
