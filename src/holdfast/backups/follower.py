"""The follower: copies the log of the bundled server and the bytes that it names, every second, so that any second can be restored.

The rule: a position of the log is noted first, then the bytes of pages and images are copied that exist now, then the log up to that
position. Bytes are on disk before the row that names them commits; so a log never goes beyond the files that its rows name, whenever
the follower is killed. The server keeps what is not copied by a replication slot, up to `backup.wal_limit`; then the log is given up.
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from holdfast.archive.image_store import FolderImageStore
from holdfast.backups import queries
from holdfast.backups.repository import FileCopier, Log, Repository, append
from holdfast.backups.repository import Follow as Follow
from holdfast.backups.service import BackupService, away_sentence, copy_images, stalled_sentence
from holdfast.backups.stall_watch import StallWatch
from holdfast.db import generation
from holdfast.db.connection import Connection
from holdfast.db.embedded import safe_files
from holdfast.db.embedded.process import Server
from holdfast.errors import BackupsUnavailable, ImageStoreUnavailable, Refused, StoreError, UsageError
from holdfast.telemetry.disk_space import in_bytes

log: Final = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
RECORD_SECONDS: Final = 30.0
"""Seconds between two records in the database of how far it is; on the disk it is recorded each time."""
_WAL_FOLDER: Final = "pg_wal"
_WHY_GIVEN_UP: Final = "the server has deleted some of it before it was copied, since it keeps no more than allowed"


@dataclass(slots=True)
class _Images:
    """Which images were copied: all up to `floor`, and `beyond` it those that were visible."""

    floor: int = 0
    beyond: set[int] = field(default_factory=set)
    horizons: list[tuple[int, int]] = field(default_factory=list)
    """Last ids, with the transaction that must have ended before all up to them are visible."""


class Follower:
    """Follows one server. Before: the lock of the follower is held; used by one thread."""

    def __init__(
        self, service: BackupService, server: Server, connection: Connection, touch: Callable[[], None] = lambda: None
    ) -> None:
        """`connection`: of the superuser, to the store. `touch` is called with every piece that is copied."""
        self._service = service
        self._touch = touch
        self._repository: Repository = service.repository()
        self._connection = connection
        self._wal = server.cluster / _WAL_FOLDER
        self._copier = FileCopier(service.archive, self._repository)
        self._images = _Images()
        self._store = service.images if isinstance(service.images, FolderImageStore) else None
        self._noted: tuple[datetime, int] | None = None
        """The time and position that the tick before has noted."""
        self._reached: Follow | None = None
        """How far the log goes, as the folder says."""
        self._copies = False
        """Whether something of the log was copied since the start, so that what was wrong before is over."""
        self._started: datetime | None = None
        self._copied = 0
        self._slot_at = 0
        self._recorded = 0.0
        self.log = self._open()

    def _open(self) -> Log:
        """The log to continue; a new one, if there is none or the server has deleted some of it. Raises BackupsUnavailable."""
        connection, repository = self._connection, self._repository
        self._service.check_there(connection, repository)
        queries.limit_log(connection, self._service.settings.wal_limit)
        queries.summarize(connection)
        now, cluster = generation.current(connection), queries.cluster(connection)
        slot = queries.slot(connection)
        history = now.store, now.number, cluster.system, cluster.timeline
        known = [one for one in repository.logs() if one.history == history]
        last = known[-1] if known and known[-1].given_up is None else None
        if last is not None and slot is not None and not slot.lost:
            self._reached = repository.follow(last)
            reached = last.start if self._reached is None else self._reached.position
            if slot.start <= reached:
                self._copied = reached
                return last
        if last is not None:
            self._end(last)
        self._reached = None
        queries.drop_slot(connection)
        self._copied = queries.create_slot(connection)
        self._copied -= self._copied % cluster.segment_bytes
        name = f"{now.number:012d}-{cluster.timeline:08X}-{self._copied // cluster.segment_bytes:012X}"
        new = Log(name, now.store, now.number, cluster.system, cluster.timeline, cluster.segment_bytes, self._copied)
        repository.save_log(new)
        return new

    def _end(self, ended: Log) -> None:
        """Record that a log ends, in the store first: its folder may have no room."""
        follow = self._repository.follow(ended)
        queries.record_given_up(self._connection, given_up_sentence(None if follow is None else follow.until))
        self._repository.give_up(ended, _WHY_GIVEN_UP)
        log.error("the log %s was given up: %s", ended.name, _WHY_GIVEN_UP)

    @property
    def needs_backup(self) -> bool:
        """Whether no backup can be continued by this log."""
        return not any(
            one.history == self.log.history and one.start >= self.log.start for one in self._repository.backups()
        )

    def tick(self) -> Follow | None:
        """Copy what is new; returns how far the log goes now. Raises StoreError when the log was given up, BackupsUnavailable."""
        if not self._repository.has_log(self.log):
            raise BackupsUnavailable(away_sentence(self._service.folder))
        at, position, started = queries.position(self._connection)
        if started != self._started:
            # After a crash the end of the log may be written anew.
            self._started = started
            segment = self.log.segment_bytes
            self._copied = max(self.log.start, self._copied - self._copied % segment - segment)
        self._copier.copy(lambda _: self._touch())
        self._copy_images()
        noted, self._noted = self._noted, (at, position)
        if noted is None:
            return None
        until, end = noted
        if self.needs_backup:
            self._begin_later(end)
        if end > self._copied:
            far_behind = end - self._copied > self.log.segment_bytes
            self._copy_log(end)
            if far_behind:  # the server may have begun to use a file anew while it was copied
                self.check_slot()
        follow = Follow(until, max(end, self._copied))
        self._save(follow, end)
        self._record(follow)
        return follow

    def _begin_later(self, end: int) -> None:
        """Leave out what no backup can be continued by: a disk without room for one must not fill with log that nothing needs.

        A backup that begins from now on begins after `end`; before one that is being made, all is kept.
        """
        segment = self.log.segment_bytes
        start = end - end % segment - segment
        if start <= self.log.start or queries.is_running(self._connection):
            return
        self.log = self._repository.begin_later(self.log, start)
        self._copied = max(self._copied, start)
        self._reached = None
        queries.advance_slot(self._connection, start)
        self._slot_at = start

    def _save(self, follow: Follow, copied: int) -> None:
        """Record how far the log goes. Before: it is on disk."""
        self._repository.save_follow(self.log, follow)
        self._reached = follow
        self._advance(copied)
        if not self._copies:
            self._copies = True
            queries.record_copied_again(self._connection)

    def _copy_images(self) -> None:
        if self._store is None:
            return
        last, oldest, following = queries.images_seen(self._connection)
        known, target = self._images, self._repository.image_store()
        for rows in queries.images(self._connection, known.floor):
            new = [(image_id, key) for image_id, key in rows if image_id not in known.beyond]
            copy_images(self._store, target, [key for _, key in new], self._touch)
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
                append(self._wal / name, target, at - begin, stop - begin, watch=lambda _: self._touch())
            except FileNotFoundError as problem:
                if (self._wal / name).exists():
                    raise  # it is the target that is gone
                if new:
                    target.unlink()
                self._end(self.log)
                queries.drop_slot(self._connection)
                raise StoreError(f"The server has deleted {name} of its log before it was copied.") from problem
            if new:
                safe_files.sync_folder(folder)
            at = stop
            self._copied = max(self._copied, at)
            if at < end and self._reached is not None and at > self._reached.position:
                # Far behind: the server need not keep what is copied until all is. The seconds that can be restored are those of before.
                self._save(Follow(self._reached.until, at), at)
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
        since = self._repository.restorable_since(self.log)
        # Before the first backup nothing can be restored by it, and why the last log ended stays known.
        if since is not None:
            self._recorded = now
            queries.record_following(self._connection, since=since, until=follow.until)

    def check_slot(self) -> None:
        """Give the log up if the server has deleted some of it. Raises StoreError."""
        slot = queries.slot(self._connection)
        if slot is None or slot.lost:
            self._end(self.log)
            queries.drop_slot(self._connection)
            raise StoreError("The log of the server could not be copied in time.")


def follow(
    service: BackupService,
    stopped: Callable[[], bool],
    wait: Callable[[float], object] = time.sleep,
    on_tick: Callable[[Follow | None, bool], None] = lambda _follow, _needs_backup: None,
) -> None:
    """Follow the server until `stopped`. `on_tick` gets how far the log goes, and whether a backup is needed that it can continue.

    Raises Refused if another process follows, or the database is a shared server's; any other HoldfastError if it cannot go on at present:
    the caller tries again later, and what is wrong is recorded.
    """
    server = service.server()
    if server is None:
        raise Refused(
            "Only the log of the bundled server is kept; for a shared server use its own archiving of the log."
        )
    # One connection for the lock and all else: a process that has lost it stops following.
    with queries.lock(queries.admin_database(server), follower=True) as connection:
        try:
            with stall_watch(service, server) as stall:
                stall.touch()
                follower = Follower(service, server, connection, stall.touch)
                while not stopped():
                    stall.touch()
                    reached, needs_backup = follower.tick(), follower.needs_backup
                    stall.rest()
                    on_tick(reached, needs_backup)
                    wait(TICK_SECONDS)
        except OSError as problem:
            where = problem.filename if isinstance(problem.filename, str | Path) else service.folder
            raise _reported(service, connection, f"{problem.strerror or problem} ({where}).") from problem
        except (BackupsUnavailable, ImageStoreUnavailable, UsageError) as problem:
            raise _reported(service, connection, str(problem)) from problem


def stall_watch(service: BackupService, server: Server) -> StallWatch:
    """A watch that records while the folder of backups does not answer, and enforces `backup.wal_limit` meanwhile."""
    store = queries.admin_database(server)

    def report(seconds: float) -> None:
        with store.session() as connection:
            until = found.restorable_until if (found := queries.following(connection)) else None
            _report(service, connection, f"{stalled_sentence(service.folder, seconds)}.", lambda: until)

    def returned() -> None:
        with store.session() as connection:
            queries.record_copied_again(connection)

    return StallWatch(report, returned)


def _reported(service: BackupService, connection: Connection, reason: str) -> BackupsUnavailable:
    """Record why the log is not copied, and whether it was given up; returns the error that says so."""
    return _report(service, connection, reason, lambda: _until(service, connection))


def _report(
    service: BackupService, connection: Connection, reason: str, until: Callable[[], datetime | None]
) -> BackupsUnavailable:
    """Do the same; `until` finds out the last second that can be restored.

    After: the server keeps no more of its log for us than `backup.wal_limit`, and what is written until the next look.
    """
    limit, slot = service.settings.wal_limit, queries.slot(connection)
    sentence = f"The log of the database is not copied: {reason}"
    kept = ""
    if slot is not None and not slot.lost:
        kept = f" The server keeps {in_bytes(slot.behind)} of it, at most {in_bytes(limit)}"
    queries.record_problem(connection, f"{sentence}{kept} (backup.wal_limit)." if kept else sentence)
    if slot is not None and not slot.lost and slot.behind > limit:
        queries.checkpoint(connection)
        slot = queries.slot(connection)
    if slot is not None and slot.lost:
        queries.record_given_up(connection, given_up_sentence(until()))
    return BackupsUnavailable(sentence)


def _until(service: BackupService, connection: Connection) -> datetime | None:
    """The last second that the newest log allows to restore: as the folder says or, if that is unavailable, as the store has recorded."""
    with suppress(OSError, UsageError):
        repository = service.repository()
        if (logs := repository.logs()) and (follow := repository.follow(logs[-1])) is not None:
            return follow.until
    found = queries.following(connection)
    return found.restorable_until if found else None


def given_up_sentence(until: datetime | None) -> str:
    """What a person reads when a log has ended. `until`: the last second that it allows to restore, if that is known."""
    seconds = "" if until is None else f" Seconds up to {until:%Y-%m-%d %H:%M:%S} UTC can be restored."
    return f"The log of these backups was given up: {_WHY_GIVEN_UP} (backup.wal_limit).{seconds} The next backup begins another."


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
            queries.drop_slot(connection)
            queries.forget_following(connection)
            repository = (
                service.repository()
            )  # last: it may be full, and a log without a slot is given up by the next follower
            for one in repository.logs():
                if one.given_up is None:
                    repository.give_up(one, "backup.daily was switched off")
            return True
    except Refused:  # it is followed
        return False


def _make_whole(path: Path, size: int) -> None:
    """Create a file of that size: the server accepts only whole files of its log; what is not copied yet is empty, and ends a replay."""
    with path.open("xb") as file:
        path.chmod(0o600)
        file.truncate(size)
