"""Error messages of the bundled server.

Translates operating-system errors and PostgreSQL's own log lines.
The rule: the operator gets one sentence that says what is wrong, where, and what to do.
"""

import errno
import os
import pwd
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import DiskFull, EmbeddedServerError

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_MIN_FREE_BYTES = 1 << 20
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})
_FULL_LINE = re.compile(r"No space left on device|Disk quota exceeded")
_ERROR_LINE = re.compile(r"(?:PANIC|FATAL|ERROR|initdb: error|postgres: error|invalid|error while loading)[: ]+(.*)")


def current_user_name() -> str:
    """The name of the current user, or its numeric id where it has no name."""
    return user_name(os.geteuid())


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"id {uid}"


def is_full(error: OSError) -> bool:
    """Whether a disk had no room, or a quota was used up."""
    return error.errno in _DISK_FULL


def full_disk(where: Path) -> DiskFull:
    return DiskFull(
        f"The disk that holds {where} is full, so PostgreSQL cannot run there: "
        "free some space and try again, nothing is damaged."
    )


@contextmanager
def translate_os_errors(where: Path) -> Iterator[None]:
    """Re-raise an OSError about `where` as an EmbeddedServerError with one sentence."""
    try:
        yield
    except OSError as error:
        raise _error_of(error, where) from error


def _error_of(error: OSError, where: Path) -> EmbeddedServerError:
    spot = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else where
    if is_full(error):
        return full_disk(where)
    if error.errno in _FORBIDDEN:
        return EmbeddedServerError(
            f"User {current_user_name()} lacks the permission to use {spot}, which the embedded PostgreSQL needs: "
            "choose another folder with --data, or run Holdfast as the user who owns it."
        )
    if error.errno == errno.EROFS:
        return EmbeddedServerError(
            f"{spot} is on a disk that is mounted read-only, so PostgreSQL cannot run there: "
            "choose another folder with --data."
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return EmbeddedServerError(f"{spot} is a file where a folder is needed: choose another folder with --data.")
    return EmbeddedServerError(
        f"The embedded PostgreSQL of {where} cannot be used ({error.strerror or error}: {spot}): "
        "fix that, or choose another folder with --data."
    )


def from_output(text: str, what: str, where: Path, log: Path) -> EmbeddedServerError:
    """The error for a PostgreSQL program that failed after printing `text`; the message refers to `log`."""
    # On a full disk the log has no room for the reason either.
    if _FULL_LINE.search(text) or shutil.disk_usage(log).free < _MIN_FREE_BYTES:
        return full_disk(where)
    telling = _ERROR_LINE.findall(text)
    lines = [line for line in text.splitlines() if line.strip()]
    reason = telling[0] if telling else (lines[-1] if lines else "it said nothing")
    return EmbeddedServerError(f"{what} failed for {where} ({reason.strip().rstrip('.')}): see {log}.")
