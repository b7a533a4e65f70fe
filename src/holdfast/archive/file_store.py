"""The store of archives: files under keys, in a folder or in an S3-compatible store.

The rule: a file under its key is complete and on disk; until then it has no such name. Putting a file again replaces it. Every failure that
may pass (disk full, no connection, access denied) is ArchiveStoreUnavailable.
"""

import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Protocol

from holdfast import private
from holdfast.archive.object_store import S3_PREFIX, S3Connection
from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.settings import Retention

DEFAULT: Final = "data/retention"
"""The place of the store in the data folder, wherever that is."""
_KEY: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_BLOCK: Final = 1 << 20
_MODE: Final = 0o600


class ArchiveStoreUnavailable(HoldfastError):
    """The store of archives cannot be used at the moment."""

    exit_code: ClassVar[int] = 3


class FileFacts(NamedTuple):
    """Size and SHA-256 of a file."""

    size: int
    sha256: bytes


class FileStore(Protocol):
    """Where archives are. All calls block."""

    place: str
    """For display; without credentials."""

    def put_file(self, key: str, source: Path) -> None:
        """Store a file under a key. After: it survives a power cut. Raises ArchiveStoreUnavailable: call again."""
        ...

    def get_file(self, key: str, target: Path) -> None:
        """Copy a file to a path. Raises NotFound, ArchiveStoreUnavailable."""
        ...

    def delete_file(self, key: str) -> None:
        """Delete a file. After: it is gone, also if it was before. Raises ArchiveStoreUnavailable."""
        ...


def facts_of(path: Path) -> FileFacts:
    """Read a file to its end. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return FileFacts(size, digest.digest())


def open_store(place: str | None, settings: Retention, data: Path) -> FileStore:
    """The store at a folder or s3://…; None: the folder `retention` of the data folder. Nothing is created or asked yet. Raises
    SettingsError."""
    if place is not None and place.startswith(S3_PREFIX):
        return S3FileStore(place, settings)
    if place is None or place == DEFAULT:
        return FolderFileStore(data / "retention", DEFAULT)
    folder = Path(place).expanduser().absolute()
    return FolderFileStore(folder, str(folder))


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key) or ".." in key:
        raise NotFound(f"{key!r} is not the name of an archived file.")
    return key


class FolderFileStore:
    """Archives in a folder of this machine, or of a network file system."""

    def __init__(self, folder: Path, place: str) -> None:
        self._folder = folder
        self.place = place

    def put_file(self, key: str, source: Path) -> None:
        target = self._folder / _checked(key)
        with self._reporting():
            self._make(target.parent)
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with source.open("rb") as read, os.fdopen(os.open(temporary, flags, _MODE), "wb") as written:
                    shutil.copyfileobj(read, written, _BLOCK)
                    written.flush()
                    os.fsync(written.fileno())
                temporary.replace(target)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                raise
            _sync_folder(target.parent)

    def get_file(self, key: str, target: Path) -> None:
        with self._reporting(key):
            read = os.open(self._folder / _checked(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(read, "rb") as file, target.open("wb") as written:
                shutil.copyfileobj(file, written, _BLOCK)

    def delete_file(self, key: str) -> None:
        path = self._folder / _checked(key)
        with self._reporting():
            # Also what a killed process left of this file.
            for leftover in path.parent.glob(f".{path.name}.*.part"):
                leftover.unlink(missing_ok=True)
            path.unlink(missing_ok=True)

    def _make(self, folder: Path) -> None:
        """After: the folder and those above it, up to that of the store, are private and survive a power cut."""
        new = [place for place in (folder, *folder.parents) if not place.exists()]
        private.make_folder(self._folder)
        for place in reversed([folder, *folder.parents]):
            if place != self._folder and place.is_relative_to(self._folder):
                private.make_folder(place)
        for place in new:
            _sync_folder(place.parent)

    @contextmanager
    def _reporting(self, key: str | None = None) -> Iterator[None]:
        try:
            yield
        except UsageError as problem:
            if self.place == DEFAULT:
                raise
            raise ArchiveStoreUnavailable(
                f"The archives in {self._folder} cannot be used: {str(problem).partition(': ')[0]} (retention.store)."
            ) from problem
        except OSError as problem:
            if key is not None and problem.errno == errno.ENOENT:
                raise NotFound(f"There is no file {key} in {self._folder}.") from problem
            why = (problem.strerror or str(problem)).lower()
            raise ArchiveStoreUnavailable(
                f"The archives in {self._folder} cannot be used: {why} (retention.store)."
            ) from problem


class S3FileStore:
    """Archives in an S3-compatible store."""

    def __init__(self, url: str, settings: Retention) -> None:
        """Before: `url` is s3://… Nothing is asked yet. Raises SettingsError for a file of credentials that is not usable."""
        self._bucket = S3Connection(url, settings, "retention", "The archives", ArchiveStoreUnavailable)
        self.place = self._bucket.place

    def put_file(self, key: str, source: Path) -> None:
        import obstore

        with self._bucket.reporting():
            # In parts if it is large; those of a process that is killed are left to the life-cycle rules of the bucket.
            obstore.put(self._bucket.open(), _checked(key), source)

    def get_file(self, key: str, target: Path) -> None:
        import obstore

        with self._bucket.reporting(key), target.open("wb") as file:
            for chunk in obstore.get(self._bucket.open(), _checked(key)).stream():
                file.write(chunk)

    def delete_file(self, key: str) -> None:
        import obstore

        with self._bucket.reporting(), suppress(FileNotFoundError):
            obstore.delete(self._bucket.open(), _checked(key))


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
