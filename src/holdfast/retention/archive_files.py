"""The files of an archive: written to the store of archives, compared, and deleted if the archive was not completed.

The rule: a file has its key before it is written, so that it can be found and deleted after a kill.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import failpoints
from holdfast.archive.file_store import FileStore, facts_of
from holdfast.archive.segment_file import SUFFIX as SEGMENT_SUFFIX
from holdfast.db import archives as manifest
from holdfast.db.connection import Connection
from holdfast.errors import NotFound
from holdfast.retention import files
from holdfast.retention.queries import archives, chunks, jobs, log, tables
from holdfast.retention.queries.chunks import InterruptedArchive, ReadPart
from holdfast.retention.records import ArchiveFile
from holdfast.retention.scratch import scratch_folder
from holdfast.retention.segment_files import reporting

_PARTS: Final = {step.name: step.parts for step in jobs.STEPS} | {step.name: step.parts for step in tables.STEPS}


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """The files of the archives that a run writes."""

    store: FileStore
    """Where archives go."""
    open_store: Callable[[str], FileStore]
    """Opens the store at a place, as the manifest names it."""
    scratch: Path
    """The folder for scratch folders."""
    format: str

    @property
    def suffix(self) -> str:
        """The suffix of files with rows."""
        return files.SUFFIX[self.format]

    def write(self, key: str, part: ReadPart) -> ArchiveFile:
        """Write rows of a table to a file, and store it. Raises ArchiveStoreUnavailable, HoldfastError."""
        with scratch_folder(self.scratch) as folder:
            path = folder / f"rows{self.suffix}"
            with reporting(path):
                files.write(path, part.columns, part.rows, self.format)
                facts = facts_of(path)
            failpoints.reach("retention_scratch")
            self.store.put_file(key, path)
        return ArchiveFile(part.part.table, key, len(part.rows), facts.size, facts.sha256.hex())

    def discard(self, connection: Connection, found: InterruptedArchive) -> None:
        """Delete the files and the row of an archive that was not completed. Raises HoldfastError: nothing was forgotten."""
        store = self.store if found.place == self.store.place else self.open_store(found.place)
        listed = archives.files(connection, found.id)
        keys = {file.key for file in listed}
        for suffix in (*files.SUFFIX.values(), SEGMENT_SUFFIX):
            if found.kind == log.STEP:
                keys.add(log_file_key(found.id, log.week_of(found.source or ""), len(listed), suffix))
            else:
                names = [part.table for part in _PARTS[found.kind]] if found.kind in _PARTS else [manifest.SEGMENT]
                keys |= {file_key(found.kind, found.id, name, suffix) for name in names}
        for key in sorted(keys):
            store.delete_file(key)
        chunks.forget(connection, found.id)

    def is_stored(self, connection: Connection, archive_id: int) -> bool:
        """Whether the store has all noted files of an archive, as they were written: another machine may have written them, whose store has
        the same name."""
        with scratch_folder(self.scratch) as folder:
            for file in archives.files(connection, archive_id):
                try:
                    self.store.get_file(file.key, folder / "file")
                except NotFound:
                    return False
                with reporting(folder):
                    facts = facts_of(folder / "file")
                if (facts.size, facts.sha256.hex()) != (file.bytes, file.sha256):
                    return False
        return True


def log_file_key(archive_id: int, part: str, number: int, suffix: str) -> str:
    """The key of a file of a week of the log."""
    return file_key(log.STEP, archive_id, part, f"-{number:05}{suffix}")


def file_key(kind: str, archive_id: int, table: str, suffix: str) -> str:
    """The key of a file; known before it is written, so that it can be found after a kill."""
    return f"{kind}/{archive_id // 1000:06}/{archive_id:09}-{table}{suffix}"
