"""The folder of backups: its layout, names and small files; which files of the archive it has.

    <folder>/<backup>/                     backup.json, files.txt.gz, and database/ or database.dump
    <folder>/logs/<log>/                   the log of a server without a gap: its files, log.json, and follow.json: how far it goes
    <folder>/archive/<worker>/<segment>    bytes of pages, shared by all backups: append-only, as in the data folder
    <folder>/images/ab/cd/<sha256>.<ext>   files of images, likewise

The rule: a backup has its name once it is complete. Files of the archive are copied before the log that names them, so whatever second
can be restored has its bytes.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from holdfast import private
from holdfast.archive import segment_file
from holdfast.archive.image_store import FOLDER as IMAGES
from holdfast.archive.image_store import FolderImageStore
from holdfast.db.embedded import safe_files
from holdfast.db.embedded.physical import MANIFEST
from holdfast.errors import NotFound, Refused, UsageError

ARCHIVE: Final = "archive"
DATABASE: Final = "database"
DUMP: Final = "database.dump"
KEYS: Final = "keys"
LOGS: Final = "logs"
UNFINISHED: Final = ".new"
LATEST: Final = "latest"
_BACKUP: Final = "backup.json"
_LOG: Final = "log.json"
_FOLLOW: Final = "follow.json"
_FILES: Final = "files.txt.gz"
_FORMAT: Final = 1
_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z(-[0-9]+)?-(full|incremental|dump)")
_WAL: Final = re.compile(r"[0-9A-F]{24}")
_CHUNK: Final = 1 << 20
_SYNCED_AT_ONCE: Final = 32 << 20
"""Bytes that are synced at once: on a slow disk no step takes long, so that it is not taken for one that hangs."""
_PACKED: Final = 4
"""Bytes of a database, with its indexes, for each of its dump: a guess, dumps are compressed."""
_KEY_FILES: Final = ("secret.key", "webhook.secret")


@dataclass(frozen=True, slots=True)
class Log:
    """The log of a server, from a position on, without a gap."""

    name: str
    store: str
    generation: int
    system: str
    """The identifier of the cluster."""
    timeline: int
    segment_bytes: int
    """The size of a file of the log."""
    start: int
    """The position of its first byte."""
    given_up: str | None = None
    """Why it ends."""

    @property
    def history(self) -> tuple[str, int, str, int]:
        """What it shares with the backups that it continues: no other server has written the same log."""
        return self.store, self.generation, self.system, self.timeline

    def segment_name(self, position: int) -> str:
        """The name of the file of the log that has this position."""
        number = position // self.segment_bytes
        per_id = 0x100000000 // self.segment_bytes
        return f"{self.timeline:08X}{number // per_id:08X}{number % per_id:08X}"


@dataclass(frozen=True, slots=True)
class Follow:
    """How far a log goes: all transactions that were committed before `until` are before `position`."""

    until: datetime
    position: int


@dataclass(frozen=True, slots=True)
class StoredBackup:
    """A complete backup in the folder."""

    name: str
    kind: str
    store: str
    generation: int
    system: str
    timeline: int
    """The cluster, and its history; empty and 0 for a dump."""
    parent: str | None
    started_at: datetime
    ended_at: datetime
    start: int
    """The position of the log at which its replay begins; 0 for a dump."""
    bytes: int
    revision: str | None
    """Of the schema."""
    counts_before: dict[str, int]
    counts_after: dict[str, int]
    """Rows of tables when it began and when it ended."""
    keys: bool
    """Whether it has the keys of secrets."""
    images: str
    """Where the files of images are: `copied`, or the address of their store."""
    shared: bool
    """Whether the database is a shared server's: other machines have archives of their own."""

    @property
    def history(self) -> tuple[str, int, str, int]:
        """What it shares with the log that continues it."""
        return self.store, self.generation, self.system, self.timeline


@dataclass(frozen=True, slots=True)
class Repository:
    """The folder of backups of one data folder."""

    folder: Path

    # What is there

    def logs(self) -> list[Log]:
        """All logs, the oldest first."""
        found = []
        with suppress(FileNotFoundError):
            for path in sorted((self.folder / LOGS).iterdir()):
                with suppress(FileNotFoundError):
                    found.append(Log(**_read(path / _LOG)))
        return found

    def has_log(self, log: Log) -> bool:
        """Whether the folder has a log. If it had, and has not, its disk is away."""
        return (self.log_folder(log) / _LOG).exists()

    def log_folder(self, log: Log) -> Path:
        return self.folder / LOGS / log.name

    def save_log(self, log: Log) -> None:
        for folder in (self.folder, self.folder / LOGS, self.log_folder(log)):
            private.make_folder(folder)
        _write(self.log_folder(log) / _LOG, asdict(log))

    def give_up(self, log: Log, why: str) -> Log:
        """Record that a log ends. What it has can still be restored."""
        ended = replace(log, given_up=why)
        self.save_log(ended)
        return ended

    def begin_later(self, log: Log, start: int) -> Log:
        """Let a log begin at a later position. Before: no backup needs what is before it. After: the files before it are deleted."""
        later = replace(log, start=start)
        self.save_log(later)
        first = log.segment_name(start)
        for path in self.wal(log, log.start):
            if path.name < first:
                path.unlink()
        return later

    def follow(self, log: Log) -> Follow | None:
        """How far a log goes; None: nothing of it was copied."""
        try:
            found = _read(self.log_folder(log) / _FOLLOW)
        except FileNotFoundError:
            return None
        return Follow(datetime.fromisoformat(found["until"]), int(found["position"]))

    def save_follow(self, log: Log, follow: Follow) -> None:
        _write(self.log_folder(log) / _FOLLOW, {"until": follow.until.isoformat(), "position": follow.position})

    def log_of(self, backup: StoredBackup) -> tuple[Log, Follow] | None:
        """The log by which seconds after a backup can be restored."""
        for log in self.logs():
            follow = self.follow(log)
            if log.history != backup.history or follow is None:
                continue
            if log.start <= backup.start < follow.position and follow.until > backup.ended_at:
                return log, follow
        return None

    def wal(self, log: Log, since: int) -> list[Path]:
        """The files of a log from the one with the position `since` on."""
        first = log.segment_name(since)
        return sorted(
            path for path in self.log_folder(log).iterdir() if _WAL.fullmatch(path.name) and path.name >= first
        )

    def restorable_since(self, log: Log) -> datetime | None:
        """The first second that a log allows to restore."""
        ends = [
            one.ended_at
            for one in self.backups()
            if (found := self.log_of(one)) is not None and found[0].name == log.name
        ]
        return min(ends, default=None)

    def backups(self) -> list[StoredBackup]:
        """All complete backups, the oldest first."""
        found: list[StoredBackup] = []
        with suppress(FileNotFoundError):
            files = self.folder.glob(f"*/{_BACKUP}")
            found = [_load(file) for file in files if _NAME.fullmatch(file.parent.name)]
        return sorted(found, key=lambda one: (one.started_at, one.name))

    def rows(self) -> list[dict[str, object]]:
        """What the table `backups` has of each complete backup, the oldest first."""
        return [
            {
                "kind": one.kind,
                "place": str(self.path(one)),
                "generation": one.generation,
                "started": one.started_at,
                "ended": one.ended_at,
                "bytes": one.bytes,
                "parent": None if one.parent is None else str(self.folder / one.parent),
            }
            for one in self.backups()
        ]

    def find(self, name: str) -> StoredBackup:
        """The backup of that name, or the `latest`. Raises NotFound."""
        found = self.backups()
        for one in reversed(found):
            if name in (LATEST, one.name):
                return one
        if not found:
            raise NotFound(
                f"There is no complete backup in {self.folder} (backup.folder); `holdfast backup` makes one."
            )
        raise NotFound(
            f"There is no complete backup {name!r} in {self.folder}: the newest is {found[-1].name}, and `holdfast backup list` names all."
        )

    def path(self, backup: StoredBackup) -> Path:
        return self.folder / backup.name

    def chain_of(self, backup: StoredBackup) -> list[StoredBackup]:
        """The backup with those that it needs, the full one first. Raises Refused if one is missing."""
        known = {one.name: one for one in self.backups()}
        needed = [backup]
        while (parent := needed[0].parent) is not None:
            if parent not in known:
                raise Refused(
                    f"Backup {backup.name} cannot be restored: it begins at {parent}, which is not there any more."
                )
            needed.insert(0, known[parent])
        return needed

    def dependents(self, backup: StoredBackup) -> list[StoredBackup]:
        """The backups that cannot be restored without this one."""
        found, lost = [], {backup.name}
        for one in self.backups():
            if one.parent in lost:
                lost.add(one.name)
                found.append(one)
        return found

    # Making and deleting

    def new_name(self, at: datetime, kind: str) -> str:
        """A name that no backup has."""
        stamp = name_at(at, kind).rpartition("-")[0]
        names = {one.name.rpartition("-")[0] for one in self.backups()}
        number = 1
        while (name := stamp if number == 1 else f"{stamp}-{number}") in names:
            number += 1
        return f"{name}-{kind}"

    def unfinished(self, name: str) -> Path:
        """The folder of a backup that is not complete yet."""
        return self.folder / f"{name}{UNFINISHED}"

    def begin(self, name: str) -> Path:
        """Create the folder of a backup that is not complete yet."""
        private.make_folder(self.folder)
        new = self.unfinished(name)
        new.mkdir(mode=private.MODE)
        return new

    def complete(self, new: Path, backup: StoredBackup, files: Iterable[str]) -> None:
        """Give a backup its name. Before: its database part is synced. After: it is complete, also after a power cut."""
        with gzip.open(new / _FILES, "wt", compresslevel=1) as listing:
            listing.writelines(f"{line}\n" for line in files)
        sync(new / _FILES)
        described = asdict(backup)
        described |= {"started_at": backup.started_at.isoformat(), "ended_at": backup.ended_at.isoformat()}
        _write(new / _BACKUP, {"format": _FORMAT, **described})
        new.rename(new.with_name(backup.name))
        safe_files.sync_folder(new.parent)

    def discard_unfinished(self) -> int:
        """Delete what killed backups left; returns how many. Before: no backup is being made."""
        left = list(self.folder.glob(f"*{UNFINISHED}"))
        for folder in left:
            shutil.rmtree(folder, ignore_errors=True)
        return len(left)

    def delete(self, backup: StoredBackup) -> None:
        """Delete a backup. Before: none depends on it."""
        gone = self.path(backup).with_name(f"{backup.name}{UNFINISHED}")
        self.path(backup).rename(gone)  # first: half a backup is none
        shutil.rmtree(gone)

    def superfluous(self, keep: int) -> list[StoredBackup]:
        """The backups that neither are among the newest `keep` nor are needed by them, those that depend on others first."""
        found = self.backups()
        known = {one.name: one for one in found}
        needed: set[str] = set()
        for one in found[-keep:]:
            at: StoredBackup | None = one
            while at is not None and at.name not in needed:
                needed.add(at.name)
                at = known.get(at.parent or "")
        return [one for one in reversed(found) if one.name not in needed]

    def prune_logs(self, current: str | None) -> int:
        """Delete what logs have from before the oldest backup, and logs without one except the `current` one; returns the bytes."""
        kept, size = self.backups(), 0
        for log in self.logs():
            starts = [one.start for one in kept if one.history == log.history]
            starts = [start for start in starts if start >= log.start]
            if not starts and log.name != current:
                size += size_of(self.log_folder(log))
                shutil.rmtree(self.log_folder(log))
                continue
            first = log.segment_name(min(starts)) if starts else ""
            for path in self.wal(log, log.start):
                if path.name < first:
                    size += path.stat().st_size
                    path.unlink()
        return size

    def prune(self, live: Callable[[str], bool]) -> tuple[int, int]:
        """Delete files that no kept backup can name; returns how many, and their bytes. `live`: whether the data folder has a file."""
        kept = self.backups()
        if not kept:
            return 0, 0
        oldest = min(one.started_at for one in kept).timestamp()
        needed = {line.split("\t")[0] for one in kept for line in self.files(one)}
        count = size = 0
        for kind in (ARCHIVE, IMAGES):
            for folder, _, names in os.walk(self.folder / kind):
                for name in names:
                    path = Path(folder, name)
                    relative = str(path.relative_to(self.folder))
                    found = path.stat()
                    # A file that was written since then may be named by a second between two backups.
                    if found.st_mtime < oldest and relative not in needed and not live(relative):
                        path.unlink()
                        count += 1
                        size += found.st_size
        return count, size

    def files(self, backup: StoredBackup) -> Iterator[str]:
        """The files of archive and images that were there when a backup began, as `path<TAB>bytes`."""
        with gzip.open(self.path(backup) / _FILES, "rt") as listing:
            for line in listing:
                yield line.rstrip("\n")

    def has_copy(self, relative: str) -> bool:
        """Whether the folder has a copy of a file of the data folder (`archive/…`, `images/…`)."""
        return (self.folder / relative).is_file()

    def image_store(self) -> FolderImageStore:
        """The copies of images."""
        return FolderImageStore(self.folder / IMAGES)

    # Checks

    def problems(self, backup: StoredBackup, watch: Callable[[int], None] = lambda _: None) -> list[str]:
        """Compare the files of a backup with the SHA-256 in its manifest; returns what is wrong. `watch` gets the bytes so far."""
        path = self.path(backup)
        if backup.kind == "dump":
            wanted = _read(path / "dump.json")
            found = sha256_of_file(path / DUMP, watch, 0)[0] if (path / DUMP).is_file() else "missing"
            return [] if found == wanted["sha256"] else [f"{backup.name}: {DUMP} is not what was written ({found})"]
        base = path / DATABASE
        try:
            text = (base / MANIFEST).read_bytes()
            manifest = json.loads(text)
        except (OSError, ValueError) as problem:
            return [f"{backup.name}: its manifest cannot be read: {problem}"]
        # The manifest's own checksum is that of its text before the last line.
        if hashlib.sha256(text[: text.rindex(b'"Manifest-Checksum"')]).hexdigest() != manifest["Manifest-Checksum"]:
            return [f"{backup.name}: its manifest was changed"]
        wrong, seen = [], 0
        for entry in manifest["Files"]:
            name = entry.get("Path") or bytes.fromhex(entry["Encoded-Path"]).decode(errors="surrogateescape")
            try:
                digest, size = sha256_of_file(base / name, watch, seen)
            except OSError as problem:
                wrong.append(f"{backup.name}: {name}: {problem.strerror}")
                continue
            seen += size
            if (digest, size) != (entry["Checksum"], entry["Size"]):
                wrong.append(f"{backup.name}: {name} is not what was written")
        return wrong

    def size_restored(self, backup: StoredBackup, chain: Sequence[StoredBackup], log: Log | None) -> int:
        """The bytes that a database takes about when it is restored: at least those of the full copy, with the log to replay."""
        if backup.kind == "dump":
            return backup.bytes * _PACKED
        whole = max(one.bytes for one in chain)
        return whole + (0 if log is None else len(self.wal(log, backup.start)) * log.segment_bytes)

    def start_of(self, base: Path) -> int:
        """The position of the log at which the replay of a copied cluster begins."""
        ranges = json.loads((base / MANIFEST).read_bytes())["WAL-Ranges"]
        return min(position_of(one["Start-LSN"]) for one in ranges)

    # Keys

    def copy_keys(self, data: Path, new: Path) -> bool:
        """Copy the keys of secrets into a backup; whether there were any."""
        found = [data / name for name in _KEY_FILES if (data / name).is_file()]
        if found:
            private.make_folder(new / KEYS)
        for file in found:
            safe_files.write(new / KEYS / file.name, safe_files.read(file), uid=os.geteuid(), gid=os.getegid())
        return bool(found)

    def restore_keys(self, backup: StoredBackup, data: Path) -> list[str]:
        """Copy the keys of a backup to where there are none; returns their names."""
        copied = []
        for file in sorted((self.path(backup) / KEYS).glob("*")):
            if not (data / file.name).exists():
                safe_files.write(data / file.name, safe_files.read(file), uid=os.geteuid(), gid=os.getegid())
                copied.append(file.name)
        return copied


class FileCopier:
    """Copies the files of a data folder that rows may name, again and again; each byte once. Used by one thread."""

    def __init__(self, archive: Path, repository: Repository) -> None:
        self._source = archive
        self._target = repository.folder / ARCHIVE
        self._copied: dict[str, int] = {}
        self._closed: set[str] = set()
        self._watch: Callable[[int], None] = lambda _: None
        self.bytes = 0
        """Copied so far."""

    def copy(self, watch: Callable[[int], None] = lambda _: None) -> None:
        """Copy what segments have more than at the last call. After: all bytes that were synced before the call are there, and on disk.

        `watch` gets the bytes so far, with every piece.
        """
        self._watch = watch
        for worker in _folders(self._source):
            changed = False
            for entry in _entries(worker):
                if entry.name.endswith(segment_file.SUFFIX):
                    changed = self._follow(Path(entry.path), f"{worker.name}/{entry.name}") or changed
                    watch(self.bytes)
            if changed:
                for folder in (self._target / worker.name, self._target):
                    safe_files.sync_folder(folder)

    def _follow(self, segment: Path, name: str) -> bool:
        """Copy one segment; whether a file was created."""
        if name in self._closed:
            return False
        mark = segment_file.mark_path(segment)
        is_open = os.path.lexists(mark)
        synced = segment_file.synced_bytes(segment) if is_open else None
        if is_open and synced is None and not os.path.lexists(mark):
            is_open = False  # it was closed meanwhile
        try:
            size = segment.stat().st_size
        except FileNotFoundError:  # it was empty, or retention deleted it
            return False
        end = size if synced is None else min(synced, size)
        target = self._target / name
        have = self._copied.get(name)
        created = False
        if have is None:
            private.make_folder(target.parent)
            created = not target.exists()
            have = 0 if created else target.stat().st_size
        if end > have:
            before = self.bytes
            self.bytes += append(segment, target, have, end, watch=lambda done: self._watch(before + done))
        self._copied[name] = max(have, end)
        if not is_open and self._copied[name] >= size:
            self._closed.add(name)
            del self._copied[name]
        return created and end > 0


def listing(archive: Path) -> Iterator[str]:
    """The segments of an archive, as `path<TAB>bytes`."""
    for worker in _folders(archive):
        for entry in _entries(worker):
            if entry.name.endswith(segment_file.SUFFIX):
                with suppress(FileNotFoundError):
                    yield f"{ARCHIVE}/{worker.name}/{entry.name}\t{entry.stat(follow_symlinks=False).st_size}"


def append(source: Path, target: Path, start: int, end: int, *, watch: Callable[[int], None] = lambda _: None) -> int:
    """Copy the bytes of `source` from `start` to `end` to the same place of `target`, and sync them; returns their number.

    `watch` gets the bytes so far, with every piece.
    """
    read = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        write = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            at = synced = start
            while at < end:
                data = os.pread(read, min(_CHUNK, end - at), at)
                if not data:
                    break
                rest = memoryview(data)
                while rest:
                    written = os.pwrite(write, rest, at)
                    at += written
                    rest = rest[written:]
                if at - synced >= _SYNCED_AT_ONCE:
                    os.fsync(write)
                    synced = at
                watch(at - start)
            os.fsync(write)
            return at - start
        finally:
            os.close(write)
    finally:
        os.close(read)


def name_at(at: datetime, kind: str) -> str:
    """The name of the first backup of that second."""
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{kind}"


def position_of(text: str) -> int:
    """A position of the log, as PostgreSQL writes it (`0/4000028`)."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def sync(path: Path) -> None:
    """Make the content of a file durable."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(parent, name).lstat().st_size
    return total


def open_repository(folder: Path) -> Repository:
    """The backups in a folder. Raises UsageError if it is another user's, or a file."""
    private.check(folder)
    if folder.is_file():
        raise UsageError(f"{folder} is a file, not a folder: set backup.folder to another one.")
    return Repository(Path(os.path.realpath(folder)))


def locate(text: str, repository: Repository) -> tuple[Repository, str]:
    """The repository and name of a backup that is given by name, or by the path of its folder."""
    if "/" not in text:
        return repository, text
    path = Path(os.path.realpath(text))
    if _NAME.fullmatch(path.name) and (path / _BACKUP).is_file():
        return open_repository(path.parent), path.name
    if any(path.glob(f"*/{_BACKUP}")):
        return open_repository(path), LATEST
    raise UsageError(f"{text} is neither a backup nor a folder of backups; `holdfast backup list` names them.")


def _folders(archive: Path) -> list[Path]:
    return [Path(entry.path) for entry in _entries(archive) if entry.is_dir(follow_symlinks=False)]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []


def sha256_of_file(path: Path, watch: Callable[[int], None], before: int = 0) -> tuple[str, int]:
    """The SHA-256 of a file, and its bytes. `watch` gets the bytes so far, and `before`."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            digest.update(data)
            size += len(data)
            watch(before + size)
    return digest.hexdigest(), size


def _load(file: Path) -> StoredBackup:
    found = _read(file)
    if found.pop("format") != _FORMAT:
        raise Refused(f"{file.parent} was made by another version of Holdfast, which this one cannot restore.")
    found |= {name: datetime.fromisoformat(found[name]) for name in ("started_at", "ended_at")}
    return StoredBackup(**found)


def _read(file: Path) -> dict[str, Any]:
    found = json.loads(safe_files.read(file))
    return dict(found)


def _write(file: Path, value: object) -> None:
    safe_files.write(file, json.dumps(value, indent=1), uid=os.geteuid(), gid=os.getegid())


def write_json(file: Path, value: object) -> None:
    """Write a small file atomically."""
    _write(file, value)
