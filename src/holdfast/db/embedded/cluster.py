"""The cluster: PostgreSQL's files on disk.

Creates and recognises them. The rule: under its final name a cluster is complete, with roles and database, or absent.
"""

import os
import secrets
import shutil
import sys
from pathlib import Path
from typing import Final

from holdfast.db.embedded import binaries as programs
from holdfast.db.embedded import config, errors, safe_files
from holdfast.db.embedded import os_user as accounts
from holdfast.db.embedded.binaries import MAJOR, Binaries
from holdfast.db.embedded.layout import ServerLayout, password_file
from holdfast.db.embedded.process import OWNER, SUPERUSER
from holdfast.db.embedded.safe_files import Say, SlowWaitNotice
from holdfast.errors import EmbeddedServerError

_STATE_OFFSET: Final = 16
"""Byte offset of DBState in pg_control: after the system identifier and two version numbers."""
_SHUT_DOWN: Final = frozenset({1, 2})
"""DB_SHUTDOWNED, DB_SHUTDOWNED_IN_RECOVERY."""


def check(cluster: Path) -> None:
    """Raise EmbeddedServerError unless `cluster` has the major version of the bundled PostgreSQL."""
    try:
        found = safe_files.read(cluster / "PG_VERSION").strip()
    except FileNotFoundError:
        raise EmbeddedServerError(
            f"{cluster} exists but is no PostgreSQL cluster (it has no PG_VERSION): "
            "move it away, or choose another folder with --data."
        ) from None
    if found == str(MAJOR):
        return
    advice = (
        "use the Holdfast that made it, or choose another folder with --data"
        if found.isdecimal() and int(found) > MAJOR
        else f"bring it to {MAJOR} with pg_upgrade or a dump, or choose another folder with --data"
    )
    raise EmbeddedServerError(
        f"{cluster} was made by PostgreSQL {found}, this Holdfast brings {MAJOR}: {advice}; nothing was changed."
    )


def is_shut_down(cluster: Path) -> bool:
    """Whether the control file records a clean shutdown; False after a crash."""
    try:
        fd = os.open(cluster / "global" / "pg_control", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        state = os.pread(fd, 4, _STATE_OFFSET)
    finally:
        os.close(fd)
    return int.from_bytes(state, sys.byteorder) in _SHUT_DOWN


def ensure(place: ServerLayout, binaries: Binaries, lock: int, say: Say) -> None:
    """Create the cluster if there is none. Before: the caller holds the start lock; child programs inherit its descriptor.

    After: a cluster of our version exists. A kill at any moment leaves only a temporary folder that the next call removes.
    """
    if place.cluster.exists():
        check(place.cluster)
        return
    password = _ensure_password(place) if place.account.name == accounts.NOBODY else _known_password(place)
    new = safe_files.unfinished(place.cluster)
    safe_files.make_folder(new, mode=0o700, uid=place.account.uid, gid=place.account.gid)
    try:
        _fill(new, place, binaries, lock, password, say)
        new.rename(place.cluster)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    safe_files.sync_folder(place.home)


def _fill(new: Path, place: ServerLayout, binaries: Binaries, lock: int, password: str | None, say: Say) -> None:
    """initdb, then roles and database in single-user mode, then one sync of all; no server has to run for it."""
    patience = SlowWaitNotice(say, f"Creating a PostgreSQL cluster in {place.cluster}, only once …")

    def run(what: str, command: list[str | Path], text: str = "") -> None:
        code, output = accounts.run(place.account, command, keep=[lock], text=text, patience=patience)
        if code:
            output = output or f"it ended with code {code}"
            if code < 0:
                output = f"FATAL: {what} was ended by signal {-code}, try again"
            raise errors.from_output(output, f"{what} of PostgreSQL", place.cluster, place.home)

    with programs.safe_for_initdb(binaries) as safe:
        locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        access = ["--auth=reject", f"--username={SUPERUSER}"]
        options = ["--data-checksums", "--no-instructions", "--no-sync"]
        run("initdb", [safe.bin / "initdb", "-D", new, *locale, *access, *options])
    options = ["-F", "-c", "exit_on_error=true", "-c", "log_checkpoints=off"]
    run("The set-up", [binaries.postgres, "--single", *options, "-D", new, "postgres"], text=_roles(password))
    configuration = new / "postgresql.conf"
    safe_files.write(
        configuration,
        safe_files.read(configuration) + config.INCLUDE,
        uid=place.account.uid,
        gid=place.account.gid,
    )
    config.write(new, place.account, password=password is not None)
    run("The sync", [binaries.bin / "initdb", "--sync-only", "-D", new])


def _roles(password: str | None) -> str:
    """SQL that creates roles and database, one statement per line as single-user mode requires."""
    secret = f" PASSWORD '{password}'" if password else ""
    lines = [
        f"CREATE ROLE {OWNER} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION{secret};",
        f"CREATE DATABASE {OWNER} OWNER {OWNER};",
        *(f"REVOKE ALL ON DATABASE {name} FROM PUBLIC;" for name in (OWNER, "postgres", "template1")),
    ]
    if secret:
        lines.append(f"ALTER ROLE {SUPERUSER}{secret};")
    return "\n".join(lines) + "\n"


def _known_password(place: ServerLayout) -> str | None:
    try:
        return safe_files.read(password_file(place.data)).strip().rpartition(":")[2]
    except FileNotFoundError:
        return None


def _ensure_password(place: ServerLayout) -> str:
    """The password of this server's roles; generated and saved if there is none yet."""
    if known := _known_password(place):
        return known
    password = secrets.token_urlsafe(32)
    safe_files.write(password_file(place.data), f"*:*:*:*:{password}\n", uid=os.geteuid(), gid=os.getegid())
    return password
