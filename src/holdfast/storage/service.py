"""The storage report: sizes of the database, its tables and the folders of this machine, and free disk space.

The rule: a report is read only and cheap. Folders are scanned up to a bound, and the sizes are cached for a minute: keep one service for
all callers. The background measures once a day what the trend is computed from.
"""

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from holdfast.db.connection import Connection, Database
from holdfast.db.embedded import layout
from holdfast.stats.service import Cached
from holdfast.storage import queries
from holdfast.storage.records import FolderSize, StorageReport, VolumeSize
from holdfast.telemetry.bounded_calls import BoundedCalls
from holdfast.telemetry.disk_space import DiskWatch, in_bytes

T = TypeVar("T")

FOLDERS: Final = ("archive", "images", "retention", "logs")
"""Folders in the data folder."""
_ALWAYS: Final = frozenset({"archive", "logs"})
"""Folders that every crawl makes."""
MAX_FILES: Final = 20_000
"""Files of a folder that are counted: an archive of a terabyte has a thousand."""
MAX_SECONDS: Final = 0.1
"""Time to count the files of a folder, which may be on a slow disk."""
_BACKUPS_SECONDS: Final = 0.5
"""The same for backups: a backup of the bundled server has more than a thousand files."""
ANSWER_SECONDS: Final = 3.0
"""Seconds that a look at the folder of backups may take: it may be a network folder whose server is gone."""
FRESH_FOR: Final = 60.0
"""Seconds that a report is cached."""


class StorageService:
    """The storage of one database and of this machine. It may be shared by threads."""

    def __init__(
        self,
        database: Database,
        data: Path,
        cluster: Path | None,
        disks: DiskWatch | None = None,
        *,
        backups: Path | None = None,
        fresh_for: float = FRESH_FOR,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        """`data`: the data folder of this machine. `cluster`: the folder of the bundled server; None: the database is elsewhere.
        `disks`: judges the room that is left. `backups`: the folder of backups, which may be on another disk."""
        self._disks = disks
        self._database = database
        self._places = {name: data / name for name in FOLDERS}
        if backups is not None:
            self._places["backups"] = backups
        if cluster is not None:
            self._places["database log"] = layout.cluster_in(cluster) / "pg_wal"
        self._cluster = cluster
        self._backup_calls = BoundedCalls(answer_seconds)
        self._report = Cached(self._look, seconds=fresh_for)
        self._measured: date | None = None

    def report(self) -> StorageReport:
        """Return the report, at most a minute old."""
        return self._report.get()

    def _look(self) -> StorageReport:
        with self._database.session() as connection:
            at, size = queries.database_size(connection)
            tables = queries.tables(connection)
            oldest = queries.oldest_rows(connection)
            growth = queries.growth(connection)
            days, domains = queries.days(connection), queries.domain_sizes(connection)
        notes: list[str] = []
        folders = list(self._folders(notes))
        notes += self._replaced()
        volumes = [_forecast(volume, growth) for volume in self._volumes([folder.name for folder in folders], notes)]
        grown = [replace(table, bytes_per_day=growth.get(("table", table.name))) for table in tables]
        return StorageReport(
            at, size, grown, oldest, folders, volumes, notes, growth.get(("database", "")), days, domains
        )

    def measure(self, connection: Connection) -> bool:
        """Store the sizes of today for the trend, unless this service has; return whether it did. Before: no transaction is open."""
        today = datetime.now(UTC).date()
        if self._measured == today:
            return False
        sizes = {_folder_name(folder.name): folder.bytes for folder in self._folders([]) if folder.complete}
        queries.measure(connection, sizes)
        self._measured = today
        return True

    def _folders(self, notes: list[str]) -> Iterator[FolderSize]:
        for name, path in self._places.items():
            try:
                seconds = _BACKUPS_SECONDS if name == "backups" else MAX_SECONDS
                found = replace(self._look_at(name, partial(folder_size, path, max_seconds=seconds)), name=name)
            except TimeoutError:
                limit = f"{self._backup_calls.seconds:g} s"
                notes.append(
                    f"The folder {path} does not answer (limit: {limit}), so it is left out. Is its disk or server gone?"
                )
                continue
            except FileNotFoundError:
                if name in _ALWAYS:
                    notes.append(f"There is no folder {path} on this machine: nothing was crawled here.")
                continue
            except OSError as problem:
                notes.append(f"The folder {path} cannot be read: {problem.strerror}.")
                continue
            if not found.complete:
                notes.append(f"{path} has more than {found.files:,} files; only these are counted.")
            yield found

    def _look_at(self, name: str, look: Callable[[], T]) -> T:
        """Call a function that looks at a folder; the folder of backups may hang, so with a limit of time there."""
        return self._backup_calls.call(look) if name == "backups" else look()

    def _replaced(self) -> Iterator[str]:
        """Name the databases that a restore replaced and kept."""
        for path in sorted(self._cluster.glob("postgres.before-*")) if self._cluster is not None else ():
            with suppress(OSError):  # it was deleted meanwhile, or is another user's
                found = folder_size(path)
                least = "" if found.complete else "at least "
                yield (
                    f"{path} is a database that a restore replaced, {least}{in_bytes(found.bytes)}: delete it when it is not needed."
                )

    def _volumes(self, folders: list[str], notes: list[str]) -> list[VolumeSize]:
        places = {name: self._places[name] for name in folders}
        if self._cluster is not None:
            places["database"] = self._cluster
        else:
            notes.append("The database is on a server of its own, so the free space of its disk is not known here.")
        volumes: dict[int, VolumeSize] = {}
        for name, path in places.items():
            try:
                device, total, free = self._look_at(name, partial(_disk_of, path))
            except OSError as problem:
                notes.append(f"The volume of {path} cannot be read: {problem.strerror or 'it does not answer'}.")
                continue
            known = volumes.setdefault(device, VolumeSize(str(path), [], total, free))
            known.holds.append(name)
        states = {name: one.state for one in (self._disks.look() if self._disks else ()) for name in one.holds}
        return [replace(volume, state=states.get(volume.holds[0], "ok")) for volume in volumes.values()]


def _disk_of(path: Path) -> tuple[int, int, int]:
    """The device of a folder, its bytes, and those that are free."""
    usage = shutil.disk_usage(path)
    return path.stat().st_dev, usage.total, usage.free


def _folder_name(name: str) -> str:
    """The name of a folder of this machine, among those of all machines."""
    return f"{name}@{socket.gethostname()[:64]}"


def _forecast(volume: VolumeSize, growth: Mapping[tuple[str, str], float]) -> VolumeSize:
    """Add to a volume how fast what is on it grows, and when it is full."""
    keys = [("database", "") if name == "database" else ("folder", _folder_name(name)) for name in volume.holds]
    known = [growth[key] for key in keys if key in growth]
    if not known:
        return volume
    daily = sum(known)
    return replace(volume, bytes_per_day=daily, days_until_full=volume.free_bytes / daily if daily > 0 else None)


def folder_size(
    path: Path,
    *,
    max_files: int = MAX_FILES,
    max_seconds: float = MAX_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> FolderSize:
    """Count the files of a folder and of those in it, up to a bound; links are not followed. Raises OSError if it cannot be read."""
    end = clock() + max_seconds
    files = size = 0
    waiting = [os.fspath(path)]
    while waiting:
        folder = waiting.pop()
        try:
            entries = os.scandir(folder)
        except OSError:
            if folder == os.fspath(path):
                raise
            continue  # a folder that was removed meanwhile
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    continue
                if files >= max_files or clock() >= end:
                    return FolderSize(path.name, str(path), files, size, complete=False)
                try:
                    size += entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue
                files += 1
    return FolderSize(path.name, str(path), files, size, complete=True)
