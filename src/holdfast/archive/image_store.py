"""The store of image files: content-addressed, in a folder or in an S3-compatible store.

The rule: a file's key says what its bytes are (`ab/cd/<sha256>.<extension>`), and a file under its key is complete and on disk, so a row
may point to it once `put` has returned. Putting a file again changes nothing. Bytes that are read match their key, or an error is raised.
Every failure that may pass (disk full, no connection, access denied) is `ImageStoreUnavailable`: the caller pauses, and puts again.
"""

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from holdfast import private
from holdfast.archive.object_store import S3_PREFIX, S3Connection
from holdfast.errors import ArchiveDamaged, ImageStoreUnavailable, NotFound
from holdfast.settings import Images

FOLDER: Final = "images"
"""The name of the folder of images in the data folder."""
_KEY: Final = re.compile(r"([0-9a-f]{2})/([0-9a-f]{2})/((?:\1\2)[0-9a-f]{60}\.[a-z]{2,5})")
_STORE_ID: Final = "store-id"
"""The name of the file that names the folder."""
_ID_BYTES: Final = 16
_INCOMING: Final = "incoming"
"""The folder of unfinished files, beside those of complete ones."""
_FILE_MODE: Final = 0o600
_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | _NO_LINK
_AT_ONCE: Final = 8
"""Files that are sent to an S3-compatible store at the same time."""


class ImageFile(NamedTuple):
    """An image to store."""

    sha256: bytes
    extension: str
    body: bytes


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of the store."""

    key: str
    size: int
    modified_at: datetime


class ImageStore(Protocol):
    """Where the files of images are. All calls block; used by any thread."""

    place: str
    """For display; without credentials."""

    def store_id(self) -> str | None:
        """What tells this folder from those of other machines; None: there is none yet, or all machines see the same store. Raises
        ImageStoreUnavailable."""
        ...

    def put(self, sha256: bytes, extension: str, body: bytes) -> str:
        """Store a file and return its key. After: it survives a power cut. Raises ImageStoreUnavailable: perhaps nothing was stored;
        call again."""
        ...

    def put_all(self, images: Sequence[ImageFile]) -> list[str]:
        """Store files and return their keys, as `put` does, faster. Raises ImageStoreUnavailable: some may be stored; call again."""
        ...

    def get(self, key: str) -> bytes:
        """Read a file. Raises NotFound, ArchiveDamaged if its bytes are not those of its key, ImageStoreUnavailable."""
        ...

    def exists(self, key: str) -> bool:
        """Whether there is such a file. Raises ImageStoreUnavailable."""
        ...

    def delete(self, key: str) -> None:
        """Delete a file. After: it is gone, also if it was before. Raises ImageStoreUnavailable."""
        ...

    def delete_orphan(self, key: str, older_than: timedelta) -> bool:
        """Delete a file to which no row points, unless it was put within `older_than`; returns whether it is deleted. A file that is put
        at this moment stays; in an S3-compatible store there are milliseconds in which it does not. Raises ImageStoreUnavailable."""
        ...

    def list(self, after: str = "", limit: int = 1000) -> list[StoredFile]:
        """Return the files whose keys come after `after`, in the order of keys. Raises ImageStoreUnavailable."""
        ...

    def delete_leftovers(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        """Delete unfinished files that a killed process left; returns their number. Raises ImageStoreUnavailable."""
        ...


def key_of(sha256: bytes, extension: str) -> str:
    """The key of an image in every store."""
    name = sha256.hex()
    return f"{name[:2]}/{name[2:4]}/{name}.{extension}"


def sha256_of(key: str) -> bytes:
    """The hash that a key names. Raises NotFound if it is no key."""
    return bytes.fromhex(_match(key)[3].partition(".")[0])


def open_store(settings: Images, data: Path) -> ImageStore:
    """The store that the settings name, or the folder of the data folder. Nothing is created or asked yet. Raises SettingsError."""
    if settings.store is not None and settings.store.startswith(S3_PREFIX):
        return S3ImageStore(settings)
    return FolderImageStore(data / FOLDER if settings.store is None else Path(settings.store).expanduser())


def _match(key: str) -> re.Match[str]:
    found = _KEY.fullmatch(key)
    if found is None:
        raise NotFound(f"{key!r} is not the key of an image.")
    return found


def _checked(key: str, body: bytes, place: str) -> bytes:
    if hashlib.sha256(body).digest() != sha256_of(key):
        raise ArchiveDamaged(f"The image {key} in {place} is damaged: its bytes are not those that were stored.")
    return body


# A folder ------------------------------------------------------------------------------------------------------------


class FolderImageStore:
    """Images in a folder of this machine, or of a network file system. No link in it is followed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place = str(folder)
        self._made = False
        self._id: str | None = None

    def store_id(self) -> str | None:
        if self._id is None:
            with self._reporting(), suppress(FileNotFoundError), _opened(self._folder) as root:
                fd = os.open(_STORE_ID, os.O_RDONLY | _NO_LINK, dir_fd=root)
                with os.fdopen(fd, "rb") as file:
                    self._id = file.read(2 * _ID_BYTES).decode("ascii", "replace") or None
        return self._id

    def put(self, sha256: bytes, extension: str, body: bytes) -> str:
        return self.put_all([ImageFile(sha256, extension, body)])[0]

    def put_all(self, images: Sequence[ImageFile]) -> list[str]:
        keys = [key_of(image.sha256, image.extension) for image in images]
        with self._reporting():
            self._make()
            with _opened(self._folder) as root, _opened(_INCOMING, root) as incoming:
                folders: set[tuple[str, str]] = set()
                for key, image in zip(keys, images, strict=True):
                    first, second, name = _match(key).groups()
                    with (
                        _opened(_made_folder(first, root), root) as outer,
                        _opened(_made_folder(second, outer), outer) as inner,
                    ):
                        if not _is_there(name, inner, len(image.body)):
                            _write(image.body, incoming, name, inner)
                    folders.add((first, second))
                # A file that was there may have been put a moment ago by a process that died before it had synced the folder.
                for first, second in sorted(folders):
                    with _opened(first, root) as outer, _opened(second, outer) as inner:
                        os.fsync(inner)
                        os.fsync(outer)
                os.fsync(root)
        return keys

    def get(self, key: str) -> bytes:
        first, second, name = _match(key).groups()
        with (
            self._reporting(key),
            _opened(self._folder) as root,
            _opened(first, root) as outer,
            _opened(second, outer) as inner,
            os.fdopen(os.open(name, os.O_RDONLY | _NO_LINK, dir_fd=inner), "rb") as file,
        ):
            body = file.read()
        return _checked(key, body, self.place)

    def exists(self, key: str) -> bool:
        first, second, name = _match(key).groups()
        with self._reporting():
            try:
                with self._folder_of(first, second) as (_, inner):
                    return stat.S_ISREG(os.stat(name, dir_fd=inner, follow_symlinks=False).st_mode)
            except FileNotFoundError:
                return False

    def delete(self, key: str) -> None:
        first, second, name = _match(key).groups()
        with self._reporting(), suppress(FileNotFoundError), self._folder_of(first, second) as (_, inner):
            os.unlink(name, dir_fd=inner)

    def delete_orphan(self, key: str, older_than: timedelta) -> bool:
        first, second, name = _match(key).groups()
        aside = f"{name}.{secrets.token_hex(8)}"
        with (
            self._reporting(),
            suppress(FileNotFoundError),
            self._folder_of(first, second) as (root, inner),
            _opened(_INCOMING, root) as incoming,
        ):
            if not _is_older(name, inner, older_than):
                return False
            # `put` renews the time of a file and then looks whether it still has its name: so one of the two notices the other.
            os.rename(name, aside, src_dir_fd=inner, dst_dir_fd=incoming)
            if _is_older(aside, incoming, older_than):
                os.unlink(aside, dir_fd=incoming)
                return True
            os.rename(aside, name, src_dir_fd=incoming, dst_dir_fd=inner)
        return False

    def list(self, after: str = "", limit: int = 1000) -> "list[StoredFile]":
        found: list[StoredFile] = []
        with self._reporting():
            for one in self._files(after):
                found.append(one)
                if len(found) == limit:
                    break
        return found

    def delete_leftovers(self, older_than: timedelta, *, dry_run: bool = False) -> int:
        count, now = 0, datetime.now(UTC)
        with (
            self._reporting(),
            suppress(FileNotFoundError),
            _opened(self._folder) as root,
            _opened(_INCOMING, root) as incoming,
        ):
            for name in sorted(os.listdir(incoming)):  # noqa: PTH208 — by descriptor
                found = _stored(name, name, incoming)
                if found is not None and now - found.modified_at >= older_than:
                    count += 1
                    if not dry_run:
                        os.unlink(name, dir_fd=incoming)
        return count

    @contextmanager
    def _folder_of(self, first: str, second: str) -> Iterator[tuple[int, int]]:
        """Descriptors of the whole folder and of one of its folders of files."""
        with _opened(self._folder) as root, _opened(first, root) as outer, _opened(second, outer) as inner:
            yield root, inner

    def _files(self, after: str) -> Iterator[StoredFile]:
        with suppress(FileNotFoundError), _opened(self._folder) as root:
            for first in _names(root, after[:2]):
                with _opened(first, root) as outer:
                    for second in _names(outer, after[3:5] if first == after[:2] else ""):
                        with _opened(second, outer) as inner:
                            for name in sorted(os.listdir(inner)):  # noqa: PTH208 — by descriptor
                                key = f"{first}/{second}/{name}"
                                if key > after and _KEY.fullmatch(key) and (found := _stored(key, name, inner)):
                                    yield found

    def _make(self) -> None:
        """Before: nothing. After: the folder exists, is private, and survives a power cut."""
        if self._made and self._folder.is_dir():
            return
        new = [place for place in (self._folder, *self._folder.parents) if not place.exists()]
        private.make_folder(self._folder)
        with _opened(self._folder) as root:
            _made_folder(_INCOMING, root)
            with suppress(FileExistsError):
                fd = os.open(_STORE_ID, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, _FILE_MODE, dir_fd=root)
                with os.fdopen(fd, "wb") as file:
                    file.write(secrets.token_hex(_ID_BYTES).encode())
                    file.flush()
                    os.fsync(fd)
            os.fsync(root)
        for place in new:
            with _opened(place.parent) as parent:
                os.fsync(parent)
        self._made = True

    @contextmanager
    def _reporting(self, key: str | None = None) -> Iterator[None]:
        """Turn an error of the file system into one of ours. `key`: it must exist."""
        try:
            yield
        except OSError as problem:
            if key is not None and problem.errno == errno.ENOENT:
                raise NotFound(f"There is no file {key} in {self.place}.") from problem
            if problem.errno in (errno.ELOOP, errno.ENOTDIR):
                why = "a symbolic link or a file is in the place of a folder, and links are not followed"
            else:
                why = (problem.strerror or str(problem)).lower()
            raise ImageStoreUnavailable(f"The images in {self.place} cannot be used: {why}.") from problem


@contextmanager
def _opened(folder: str | Path, parent: int | None = None) -> Iterator[int]:
    """A descriptor of a folder, never through a link."""
    fd = os.open(folder, _FOLDER_FLAGS, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)


def _made_folder(name: str, parent: int) -> str:
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    return name


def _names(folder: int, first: str) -> Iterator[str]:
    """The names of two hex digits in a folder, from `first` on."""
    yield from (name for name in sorted(os.listdir(folder)) if name >= first and re.fullmatch(r"[0-9a-f]{2}", name))


def _stored(key: str, name: str, folder: int) -> StoredFile | None:
    """A file as it is listed; None if it is none, or has gone meanwhile."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return StoredFile(key, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))


def _is_older(name: str, folder: int, than: timedelta) -> bool:
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return datetime.now(UTC) - datetime.fromtimestamp(found.st_mtime, UTC) >= than


def _is_there(name: str, folder: int, size: int) -> bool:
    """Whether the file is there, and on disk. Its time is renewed, so that it is no orphan to a `gc` that runs now (`delete_orphan`)."""
    with suppress(FileNotFoundError):
        fd = os.open(name, os.O_RDONLY | _NO_LINK, dir_fd=folder)
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and found.st_size == size:
                os.utime(fd)
                os.fsync(fd)
                return os.path.samestat(found, os.stat(name, dir_fd=folder, follow_symlinks=False))
        finally:
            os.close(fd)
    return False


def _write(body: bytes, incoming: int, name: str, folder: int) -> None:
    """Before: nothing. After: the file has its name and its bytes are on disk. OSError: it does not have its name."""
    temporary = f"{name}.{secrets.token_hex(8)}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, _FILE_MODE, dir_fd=incoming)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(fd)
        os.rename(temporary, name, src_dir_fd=incoming, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=incoming)
        raise


# An S3-compatible store ------------------------------------------------------------------------------------------------


class S3ImageStore:
    """Images in an S3-compatible store. Its client is obstore's, which honours `http_proxy` and its like."""

    def __init__(self, settings: Images) -> None:
        """Before: `settings.store` is s3://… Nothing is asked yet. Raises SettingsError for a file of credentials that is not usable."""
        self._s3 = S3Connection(settings.store or "", settings, "images", "The images", ImageStoreUnavailable)
        self.place = self._s3.place
        self._pool: ThreadPoolExecutor | None = None

    def store_id(self) -> None:
        return

    def put(self, sha256: bytes, extension: str, body: bytes) -> str:
        import obstore

        key = key_of(sha256, extension)
        with self._s3.reporting():
            # Not in parts: a process that is killed would leave them.
            obstore.put(self._s3.open(), key, body, use_multipart=False)
        return key

    def put_all(self, images: Sequence[ImageFile]) -> "list[str]":
        if len(images) == 1:
            return [self.put(*images[0])]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="image-store")
        return list(self._pool.map(lambda image: self.put(*image), images))

    def get(self, key: str) -> bytes:
        import obstore

        _match(key)
        with self._s3.reporting(key):
            body = bytes(obstore.get(self._s3.open(), key).bytes())
        return _checked(key, body, self.place)

    def exists(self, key: str) -> bool:
        import obstore

        _match(key)
        with self._s3.reporting():
            try:
                obstore.head(self._s3.open(), key)
            except FileNotFoundError:
                return False
            return True

    def delete(self, key: str) -> None:
        import obstore

        _match(key)
        with self._s3.reporting(), suppress(FileNotFoundError):
            obstore.delete(self._s3.open(), key)

    def delete_orphan(self, key: str, older_than: timedelta) -> bool:
        import obstore

        _match(key)
        with self._s3.reporting(), suppress(FileNotFoundError):
            if datetime.now(UTC) - obstore.head(self._s3.open(), key)["last_modified"] < older_than:
                return False
        self.delete(key)
        return True

    def list(self, after: str = "", limit: int = 1000) -> "list[StoredFile]":
        import obstore

        found: list[StoredFile] = []
        with self._s3.reporting():
            for chunk in obstore.list(self._s3.open(), offset=after or None, chunk_size=limit):
                found += [
                    StoredFile(one["path"], one["size"], one["last_modified"])
                    for one in chunk
                    if _KEY.fullmatch(one["path"])
                ]
                if len(found) >= limit:
                    break
        return found[:limit]

    def delete_leftovers(self, older_than: timedelta, *, dry_run: bool = False) -> int:  # noqa: ARG002 — of the protocol
        return 0  # a file that was sent in part does not exist
