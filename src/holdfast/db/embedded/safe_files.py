"""File system operations that are safe against a kill at any point.

Private folders, atomic writes, and locks between processes with a notice about long waits.
The rule: the owner or mode of an existing file or folder is never changed.
"""

import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

Say = Callable[[str], None]

NOTICE_AFTER = 2.0  # seconds of waiting after which a notice is printed
PAUSE = 0.01


class SlowWaitNotice:
    """Prints one sentence, once, when a wait takes more than two seconds."""

    def __init__(self, say: Say, sentence: str) -> None:
        self._say = say
        self._sentence = sentence
        self._since = time.monotonic()
        self._said = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._since

    def tick(self) -> None:
        if not self._said and self.seconds > NOTICE_AFTER:
            self._said = True
            self._say(self._sentence)

    def pause(self) -> None:
        self.tick()
        time.sleep(PAUSE)


def make_folder(path: Path, *, mode: int, uid: int, gid: int) -> None:
    """Create a folder with that owner and mode.

    Before: the path does not exist (else FileExistsError). After: the folder exists with exactly that mode, whatever the umask.
    """
    path.mkdir(mode=0o700)
    # Through a descriptor: another user with write access to the parent could have replaced it by a link.
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        made = os.fstat(fd)
        if made.st_uid != os.geteuid():
            raise FileExistsError(errno.EEXIST, "was replaced while it was made", str(path))
        if made.st_uid != uid:
            os.fchown(fd, uid, gid)
        os.fchmod(fd, mode)
    finally:
        os.close(fd)


def make_folders(path: Path, *, mode: int) -> None:
    """Create `path` and its missing parents, owned by this user, with that mode; existing folders stay as they are."""
    missing = [path] if not path.exists() else []
    missing += [parent for parent in path.parents if not parent.exists()]
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another process starts at the same moment
            make_folder(folder, mode=mode, uid=os.geteuid(), gid=os.getegid())


def is_private(path: Path, uid: int) -> bool:
    """Whether `path` is a folder of that user without access for others. A symbolic link is not."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077


def read(path: Path, start: int = 0) -> str:
    """The text of a file from byte `start` on; never through a link, since the folder may be another user's."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")


def write(path: Path, text: str, *, uid: int, gid: int) -> None:
    """Replace a file atomically: after any kill or power cut it has the whole old or the whole new text.

    After: the file is private to `uid` and synced to disk. A file that already has this text is left alone.
    """
    with suppress(FileNotFoundError):
        if read(path) == text:
            return
    new = unfinished(path)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            if uid != os.geteuid():
                os.fchown(fd, uid, gid)
            file.write(text.encode())
            file.flush()
            os.fsync(fd)
        new.rename(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def unfinished(path: Path) -> Path:
    """A temporary name beside `path`, to be renamed to it when complete."""
    return path.with_name(f"{path.name}.new-{secrets.token_hex(4)}")


def remove_unfinished(folder: Path, prefix: str) -> None:
    """Remove temporary files that a killed process left for names with that prefix. Before: the caller holds the lock."""
    for left in folder.glob(f"{prefix}*.new-{'[0-9a-f]' * 8}"):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left)
        else:
            left.unlink(missing_ok=True)


def open_lock(path: Path) -> int:
    """A descriptor of a lock file, created if needed with the folder's owner, so that a run as root does not lock the
    owner out."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags)
    owner = path.parent.stat()
    if os.geteuid() == 0 and owner.st_uid != 0:
        os.fchown(fd, owner.st_uid, owner.st_gid)
    return fd


def try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def locked(path: Path, patience: SlowWaitNotice) -> Iterator[int]:
    """Hold the lock that serialises start and stop between processes.

    A child may inherit the descriptor: then a kill -9 of this process leaves the lock held until the child exits.
    """
    fd = open_lock(path)
    try:
        while not try_lock(fd):
            patience.pause()
        try:
            yield fd
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)
