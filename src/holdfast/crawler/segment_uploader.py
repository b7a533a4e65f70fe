"""Uploads finished segments of this machine's archive to the object store, in a thread of its own.

The rule: nothing waits for it, except fetching when more bytes than `archive.max_waiting` wait to be uploaded. A segment counts as uploaded
when the store has all of its bytes; a local copy is removed after that, never before. Segments that another process left, killed or not,
are uploaded by any process of this machine: one at a time uploads a segment, the oldest of a worker first, so that no revisit is in the
store before the body that it refers to.
"""

import fcntl
import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import failpoints
from holdfast.archive import segment_file
from holdfast.archive.machine_id import machine_id
from holdfast.archive.segment_store import SegmentStore
from holdfast.crawler.db_thread import DbThread, StoppedWaiting
from holdfast.db import archive_segments
from holdfast.db.connection import Database
from holdfast.errors import ArchiveUnavailable, HoldfastError
from holdfast.settings import Archive

log: Final = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""Seconds between two looks for segments that wait, if nothing wakes the thread."""
RETRY_SECONDS: Final = 5.0
"""Seconds to wait after the object store could not be used."""
_GIVE_UP_SECONDS: Final = 1.0
_CHUNK: Final = 1024 * 1024
_NAMES_AT_ONCE: Final = 1_000


@dataclass(slots=True)
class UploadCounts:
    """What one look did."""

    uploaded: int = 0
    bytes: int = 0
    left: int = 0
    """Segments that still wait; open ones, too."""


class SegmentUploader:
    """The uploads of one machine, by one of its processes."""

    def __init__(self, database: Database, folder: Path, settings: Archive, store: SegmentStore) -> None:
        """Before: `folder` is the archive folder of this machine; it need not exist. Nothing is asked yet."""
        self._db = DbThread(database, "uploader")
        self._folder = folder
        self._settings = settings
        self._store = store
        self.machine: Final = settings.machine or socket.gethostname()[:150]
        self._folder_id: str | None = None
        self._machine_id: int | None = None
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._last_look = threading.Event()
        self._thread: threading.Thread | None = None
        self.problem: str | None = None
        """Why nothing can be uploaded at present, as a sentence; None: it can, as far as is known."""

    @property
    def folder_id(self) -> str:
        """The identity of the archive folder. Raises OSError, HoldfastError."""
        if self._folder_id is None:
            self._folder_id = machine_id(self._folder)
        return self._folder_id

    # For the batch writer ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="segment-uploader", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look now: a segment was closed."""
        self._wake.set()

    def note_written(self, size: int) -> None:
        """Count bytes that this process has added to the archive since the last look."""
        with self._lock:
            self._waiting_bytes += size

    def why_full(self) -> str | None:
        """Why no more bytes may be added to the archive at present, as a clause; None: they may."""
        limit, waiting = self._settings.max_waiting, self._waiting_bytes
        if not limit or waiting <= limit:
            return None
        cause = f": {self.problem.removesuffix('.')}" if self.problem else ""
        return f"{waiting:,} bytes of it wait to be uploaded, and archive.max_waiting is {limit:,}{cause}"

    def stop(self, patience: float) -> None:
        """Stop. After: the thread is over; what was closed is uploaded, or the object store was unavailable, or `patience` seconds were
        not enough: the next process of this machine uploads the rest."""
        self._last_look.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(patience)
        self._stopping.set()
        self._db.give_up()
        if self._thread is not None:
            self._thread.join(
                _GIVE_UP_SECONDS
            )  # it is a daemon: a request that hangs does not hold up the end of the process
        if self._waiting_bytes:
            why = f": {self.problem}" if self.problem else "; the next process here does it."
            log.warning("%d bytes of the archive on this machine are not uploaded%s", self._waiting_bytes, why)
        self._db.close()

    # In the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        registered = False
        while not self._stopping.is_set():
            last = self._last_look.is_set()
            self._wake.clear()
            try:
                if not registered:
                    self.register_found()
                    registered = True
                self.upload_waiting()
                pause = LOOK_SECONDS
            except StoppedWaiting:
                return
            except (HoldfastError, OSError) as problem:
                self._set_problem(problem)
                pause = RETRY_SECONDS
            except Exception:
                log.exception("an upload failed with an internal error; it is tried again")
                pause = RETRY_SECONDS
            if last:
                return
            self._wake.wait(pause)

    def register_found(self) -> None:
        """Record the segments on the disk that the database does not know: those from before there was an object store."""
        machine_key = self._machine()
        names: list[str] = []
        for path in sorted(self._folder.glob(f"*/*{segment_file.SUFFIX}")):
            if not path.is_symlink() and not path.parent.is_symlink():
                names.append(f"{path.parent.name}/{path.name}")
            if len(names) == _NAMES_AT_ONCE:
                self._db.run(archive_segments.found, machine_key, names)
                names = []
        if names:
            self._db.run(archive_segments.found, machine_key, names)

    def upload_waiting(self, watch: Callable[[UploadCounts], None] = lambda _: None) -> UploadCounts:
        """Upload the segments of this machine that wait and are closed, and report what is left. Raises ArchiveUnavailable.

        Before: called on the thread, or nothing else uses this object. After: what is closed is in the store.
        """
        machine_key = self._machine()
        segments = self._db.run(archive_segments.waiting, machine_key)
        counts = UploadCounts(left=len(segments))
        # What was there before is no reason to stop a crawl.
        sizes = {segment: 0 if was_found else self._size(segment) for segment, was_found in segments}
        failed: set[str] = set()
        problem: Exception | None = None
        try:
            for segment, _ in segments:
                if self._stopping.is_set():
                    break
                worker = segment.partition("/")[0]
                if worker in failed:
                    continue
                try:
                    done = self._upload(machine_key, segment)
                except OSError as error:
                    # Later segments of this worker may refer to bodies in this one.
                    failed.add(worker)
                    problem = error
                    log.error("the segment %s cannot be uploaded: %s", segment, error.strerror or error)  # noqa: TRY400
                    continue
                if done is not None:
                    sizes.pop(segment)
                    counts = UploadCounts(counts.uploaded + 1, counts.bytes + done, counts.left - 1)
                    watch(counts)
        except ArchiveUnavailable as error:
            problem = error
            raise
        finally:
            with self._lock:
                self._waiting_bytes = sum(sizes.values())
            self._set_problem(problem)
            if not self._stopping.is_set():
                self._db.run(archive_segments.report, machine_key, self._waiting_bytes, self.problem)
        return counts

    def _machine(self) -> int:
        if self._machine_id is None:
            self._machine_id = self._db.run(archive_segments.machine, self.folder_id, self.machine)
        return self._machine_id

    def _size(self, segment: str) -> int:
        with suppress(OSError):
            return (self._folder / segment).lstat().st_size
        return 0

    def _upload(self, machine_key: int, segment: str) -> int | None:
        """Upload a segment, if it is closed; returns its size, or None if it still waits. Raises ArchiveUnavailable, OSError."""
        path = self._folder / segment
        if segment_file.mark_path(path).exists():
            segment_file.recover(path.parent, own=False)
            if segment_file.mark_path(path).exists():
                return None  # its writer lives
        with _locked(path) as file:
            if file is None:
                return None  # another process of this machine uploads it
            if file < 0:
                if self._db.run(archive_segments.gone, machine_key, segment):
                    log.error("the segment %s is not on this machine any more: its pages are lost", segment)
                return 0
            size, digest = _sum(file)
            self._db.run(archive_segments.closed, machine_key, segment, size, digest)
            begun = time.monotonic()
            self._store.put(segment, path)
            if (stored := self._store.size(segment)) != size:
                raise ArchiveUnavailable(
                    f"The archive in {self._store.place} did not keep {segment}: it has {stored} bytes of {size}."
                )
            failpoints.reach("segment_uploaded")
            self._db.run(archive_segments.uploaded, machine_key, segment, size, digest)
            failpoints.reach("segment_recorded")
            if not self._settings.keep_local:
                path.unlink(missing_ok=True)
        log.info("%s uploaded: %d bytes in %.1f s", segment, size, time.monotonic() - begun)
        return size

    def _set_problem(self, problem: Exception | None) -> None:
        if problem is None:
            if self.problem is not None:
                log.warning("segments of the archive are uploaded again")
            self.problem = None
            return
        text = str(problem) if isinstance(problem, HoldfastError) else f"A file cannot be read: {problem}."
        if self.problem is None:
            log.warning("%s Segments of the archive wait on this machine until they can be uploaded.", text)
        self.problem = text


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """The descriptor of a segment, locked against other uploads; None: another process has it, -1: there is no such file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield -1
        return
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        except OSError:  # the file system has no locks; two uploads of the same bytes do no harm
            pass
        # Removed by the one that had the lock before.
        yield file if os.fstat(file).st_nlink else -1
    finally:
        os.close(file)


def _sum(file: int) -> tuple[int, bytes]:
    digest, at = hashlib.sha256(), 0
    while chunk := os.pread(file, _CHUNK, at):
        digest.update(chunk)
        at += len(chunk)
    return at, digest.digest()
