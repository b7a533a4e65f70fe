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
from holdfast.archive.image_store import S3_PREFIX, S3ImageStore
from holdfast.errors import HoldfastError, ImageStoreUnavailable, NotFound
from holdfast.settings import Images

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


def open_store(place: str | None, images: Images, data: Path) -> FileStore:
    """The store at a folder or s3://…; None: the folder `retention` of the data folder. Nothing is created or asked yet. The connection to
    an S3-compatible store is that of images. Raises SettingsError."""
    if place is not None and place.startswith(S3_PREFIX):
        return S3FileStore(images.model_copy(update={"store": place}))
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
        except OSError as problem:
            if key is not None and problem.errno == errno.ENOENT:
                raise NotFound(f"There is no file {key} in {self._folder}.") from problem
            why = (problem.strerror or str(problem)).lower()
            raise ArchiveStoreUnavailable(
                f"The archives in {self._folder} cannot be used: {why} (retention.store)."
            ) from problem


class S3FileStore(S3ImageStore):
    """Archives in an S3-compatible store, over the connection of images."""

    def put_file(self, key: str, source: Path) -> None:
        import obstore

        with self._ours():
            # In parts if it is large; those of a process that is killed are left to the life-cycle rules of the bucket.
            obstore.put(self._open(), _checked(key), source)

    def get_file(self, key: str, target: Path) -> None:
        import obstore

        with self._ours(key), target.open("wb") as file:
            for chunk in obstore.get(self._open(), _checked(key)).stream():
                file.write(chunk)

    def delete_file(self, key: str) -> None:
        import obstore

        with self._ours(), suppress(FileNotFoundError):
            obstore.delete(self._open(), _checked(key))

    @contextmanager
    def _ours(self, key: str | None = None) -> Iterator[None]:
        try:
            with self._reporting(key):
                yield
        except ImageStoreUnavailable as problem:
            text = str(problem).replace("The images in", "The archives in", 1)
            raise ArchiveStoreUnavailable(text) from None


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
