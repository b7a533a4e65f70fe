"""The follower: copies the log of the bundled server and the bytes that it names, every second, so that any second can be restored.

The rule: a position of the log is noted first, then the bytes of pages and images are copied that exist now, then the log up to that
position. Bytes are on disk before the row that names them commits; so a log never goes beyond the files that its rows name, whenever
the follower is killed. The server keeps what is not copied by a replication slot, up to `backup.wal_limit`; then the log is given up.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from holdfast.archive.image_store import FolderImageStore
from holdfast.backups import queries
from holdfast.backups.repository import FileCopier, Log, Repository, append
from holdfast.backups.repository import Follow as Follow
from holdfast.backups.service import BackupService, copy_images
from holdfast.db import generation
from holdfast.db.connection import Connection
from holdfast.db.embedded import safe_files
from holdfast.db.embedded.process import Server
from holdfast.errors import Refused

log: Final = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
RECORD_SECONDS: Final = 30.0
"""Seconds between two records in the database of how far it is; on the disk it is recorded each time."""
_WAL_FOLDER: Final = "pg_wal"


@dataclass(slots=True)
class _Images:
    """Which images were copied: all up to `floor`, and `beyond` it those that were visible."""

    floor: int = 0
    beyond: set[int] = field(default_factory=set)
    horizons: list[tuple[int, int]] = field(default_factory=list)
    """Last ids, with the transaction that must have ended before all up to them are visible."""


class Follower:
    """Follows one server. Before: the lock of the follower is held; used by one thread."""

    def __init__(self, service: BackupService, server: Server, connection: Connection) -> None:
        """`connection`: of the superuser, to the store."""
        self._service = service
        self._repository: Repository = service.repository()
        self._connection = connection
        self._wal = server.cluster / _WAL_FOLDER
        self._copier = FileCopier(service.archive, self._repository)
        self._images = _Images()
        self._store = service.images if isinstance(service.images, FolderImageStore) else None
        self._noted: tuple[datetime, int] | None = None
        """The time and position that the tick before has noted."""
        self._started: datetime | None = None
        self._copied = 0
        self._slot_at = 0
        self._recorded = 0.0
        self.log = self._open()

    def _open(self) -> Log:
        """The log to continue; a new one, if there is none or the server has deleted some of it."""
        connection, repository = self._connection, self._repository
        queries.limit_log(connection, self._service.settings.wal_limit)
        queries.summarize(connection)
        now, cluster = generation.current(connection), queries.cluster(connection)
        slot = queries.slot(connection)
        history = now.store, now.number, cluster.system, cluster.timeline
        known = [one for one in repository.logs() if one.history == history]
        last = known[-1] if known and known[-1].given_up is None else None
        if last is not None and slot is not None and not slot.lost:
            follow = repository.follow(last)
            reached = last.start if follow is None else follow.position
            if slot.start <= reached:
                self._copied = reached
                return last
        if last is not None:
            self._end(last, "the server has deleted some of it before it was copied")
        queries.drop_slot(connection)
        self._copied = queries.create_slot(connection)
        self._copied -= self._copied % cluster.segment_bytes
        name = f"{now.number:012d}-{cluster.timeline:08X}-{self._copied // cluster.segment_bytes:012X}"
        new = Log(name, now.store, now.number, cluster.system, cluster.timeline, cluster.segment_bytes, self._copied)
        repository.save_log(new)
        return new

    def _end(self, ended: Log, why: str) -> None:
        follow = self._repository.follow(ended)
        until = "" if follow is None else f" Seconds up to {follow.until:%Y-%m-%d %H:%M:%S} UTC can be restored."
        self._repository.give_up(ended, why)
        sentence = (
            f"The log of these backups was given up: {why} (backup.wal_limit).{until} The next backup begins another."
        )
        log.error("%s", sentence)
        queries.record_following(self._connection, since=None, until=None, given_up=sentence)

    @property
    def needs_backup(self) -> bool:
        """Whether no backup can be continued by this log."""
        return not any(
            one.history == self.log.history and one.start >= self.log.start for one in self._repository.backups()
        )

    def tick(self) -> Follow | None:
        """Copy what is new; returns how far the log goes now. Raises Refused when the log was given up."""
        at, position, started = queries.position(self._connection)
        if started != self._started:
            # After a crash the end of the log may be written anew.
            self._started = started
            segment = self.log.segment_bytes
            self._copied = max(self.log.start, self._copied - self._copied % segment - segment)
        self._copier.copy()
        self._copy_images()
        noted, self._noted = self._noted, (at, position)
        if noted is None:
            return None
        until, end = noted
        if end > self._copied:
            far_behind = end - self._copied > self.log.segment_bytes
            self._copy_log(end)
            if far_behind:  # the server may have begun to use a file anew while it was copied
                self.check_slot()
        follow = Follow(until, max(end, self._copied))
        self._repository.save_follow(self.log, follow)
        self._advance(end)
        self._record(follow)
        return follow

    def _copy_images(self) -> None:
        if self._store is None:
            return
        last, oldest, following = queries.images_seen(self._connection)
        known, target = self._images, self._repository.image_store()
        for rows in queries.images(self._connection, known.floor):
            new = [(image_id, key) for image_id, key in rows if image_id not in known.beyond]
            copy_images(self._store, target, [key for _, key in new])
            known.beyond.update(image_id for image_id, _ in new)
        known.horizons.append((last, following))
        while known.horizons and known.horizons[0][1] <= oldest:
            known.floor = max(known.floor, known.horizons.pop(0)[0])
        known.beyond = {image_id for image_id in known.beyond if image_id > known.floor}

    def _copy_log(self, end: int) -> None:
        segment, folder = self.log.segment_bytes, self._repository.log_folder(self.log)
        at = self._copied
        while at < end:
            name = self.log.segment_name(at)
            begin = at - at % segment
            stop = min(end, begin + segment)
            target = folder / name
            new = not target.exists()
            if new:
                _make_whole(target, segment)
            try:
                append(self._wal / name, target, at - begin, stop - begin)
            except FileNotFoundError as problem:
                if new:
                    target.unlink()
                self._end(self.log, "the server has deleted some of it before it was copied")
                queries.drop_slot(self._connection)
                raise Refused(f"The server has deleted {name} of its log before it was copied.") from problem
            if new:
                safe_files.sync_folder(folder)
            at = stop
        self._copied = end

    def _advance(self, end: int) -> None:
        """Let the server delete what is copied, except the last two files, which a crash may change."""
        segment = self.log.segment_bytes
        to = end - end % segment - segment
        if to > self._slot_at and to > self.log.start:
            queries.advance_slot(self._connection, to)
            self._slot_at = to

    def _record(self, follow: Follow) -> None:
        now = time.monotonic()
        if now - self._recorded < RECORD_SECONDS:
            return
        self._recorded = now
        since = self._repository.restorable_since(self.log)
        if (
            since is not None
        ):  # before the first backup nothing can be restored by it, and why the last log ended stays known
            queries.record_following(self._connection, since=since, until=follow.until)

    def check_slot(self) -> None:
        """Give the log up if the server has deleted some of it. Raises Refused."""
        slot = queries.slot(self._connection)
        if slot is None or slot.lost:
            self._end(self.log, "it could not be copied, and the server would have kept more of it than allowed")
            queries.drop_slot(self._connection)
            raise Refused("The log of the server could not be copied in time.")


def follow(
    service: BackupService,
    stopped: Callable[[], bool],
    wait: Callable[[float], object] = time.sleep,
    on_tick: Callable[[Follow | None, bool], None] = lambda _follow, _needs_backup: None,
) -> None:
    """Follow the server until `stopped`. `on_tick` gets how far the log goes, and whether a backup is needed that it can continue.

    Raises Refused if another process follows, or the database is a shared server's; HoldfastError or OSError if it cannot go on at present:
    the caller tries again later.
    """
    server = service.server()
    if server is None:
        raise Refused(
            "Only the log of the bundled server is kept; for a shared server use its own archiving of the log."
        )
    # One connection for the lock and all else: who has lost it follows no more.
    with queries.lock(queries.admin_database(server), follower=True) as connection:
        follower = Follower(service, server, connection)
        try:
            while not stopped():
                on_tick(follower.tick(), follower.needs_backup)
                wait(TICK_SECONDS)
        except OSError as problem:
            reason = f"{problem.strerror or problem} ({problem.filename or service.folder})"
            queries.record_following(connection, since=None, until=None, problem=f"The log cannot be copied: {reason}.")
            follower.check_slot()
            raise


def abandon(service: BackupService) -> bool:
    """Let the server keep no log for a follower any more, unless one runs; returns whether it did.

    After `backup.daily` was switched off the server would keep its log up to `backup.wal_limit`.
    """
    server = service.server()
    if server is None:
        return False
    try:
        with queries.lock(queries.admin_database(server), follower=True) as connection:
            if queries.slot(connection) is None:
                return False
            repository = service.repository()
            for one in repository.logs():
                if one.given_up is None:
                    repository.give_up(one, "backup.daily was switched off")
            queries.drop_slot(connection)
            queries.forget_following(connection)
            return True
    except Refused:  # it is followed
        return False


def _make_whole(path: Path, size: int) -> None:
    """Create a file of that size: the server accepts only whole files of its log; what is not copied yet is empty, and ends a replay."""
    with path.open("xb") as file:
        path.chmod(0o600)
        file.truncate(size)
