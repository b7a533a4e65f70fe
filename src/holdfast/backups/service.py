"""Backups: make, list, delete, prune; when the next one is due.

The rule: the row of a backup is there before anything is copied, so that no file is deleted meanwhile that it may name; its folder has
its name only when all of it is on disk. One process makes or deletes backups at a time; it may be killed at any moment.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from errno import ENOSPC
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.archive.image_store import FolderImageStore, ImageStore, sha256_of
from holdfast.backups import queries
from holdfast.backups.own_dumps import OwnDumps
from holdfast.backups.records import Backup, BackupReport, Check, Drill, Verified
from holdfast.backups.repository import (
    ARCHIVE,
    DATABASE,
    DUMP,
    FileCopier,
    Repository,
    StoredBackup,
    listing,
    locate,
    name_at,
    open_repository,
    sha256_of_file,
    size_of,
    sync,
    write_json,
)
from holdfast.backups.stall_watch import PROGRAM_STALLED_AFTER, StallWatch
from holdfast.db import audit, embedded, generation, migrate
from holdfast.db.connection import Connection, Database, libpq_environment
from holdfast.db.embedded import binaries, physical
from holdfast.db.embedded.os_user import ENVIRONMENT
from holdfast.db.embedded.process import Server
from holdfast.errors import ArchiveDamaged, BackupsUnavailable, HoldfastError, NotFound, Refused, StoreError, UsageError
from holdfast.settings import Backup as BackupSettings
from holdfast.settings import Settings
from holdfast.telemetry.disk_space import existing_folder, in_bytes

if TYPE_CHECKING:
    from holdfast.backups.restore import Plan, Restorer

RETRY_AFTER: Final = timedelta(hours=1)
"""The time from a daily backup that failed to the next attempt."""
RETRY_WANTED_AFTER: Final = timedelta(minutes=5)
"""The same while no backup is there that the log can continue: until then no second can be restored."""
_COPYING: Final = "Copying the database"
_DUMPING: Final = "Dumping the database"
_BY_PROGRAMS: Final = frozenset({_COPYING, _DUMPING})
"""Steps that a program of PostgreSQL does. It syncs at its end, and its bytes do not grow meanwhile."""
_SPARE: Final = 1.1
"""Free space that a full backup needs, relative to the database."""
_MORE_ROOM: Final = "free some space, or set backup.folder to a folder on another disk."
_OF_EVERY_COPY: Final = 40 << 20
"""Bytes that each copy has besides: the databases that a server is made with, and 16 MB of its log."""

Watch = Callable[[str, int], None]
"""Gets what is being done, and the bytes so far."""


def silent(_what: str, _bytes: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class BackupService:
    """The backups of one store, in the folder of this machine."""

    database: Database
    settings: BackupSettings
    data: Path
    archive: Path
    images: ImageStore
    server: Callable[[], Server | None]
    """The bundled server; None: the database is a shared server's, which is dumped."""
    shared: bool = False
    key_is_set: bool = False
    """Whether the key of secrets is in the settings, and not in a file of the data folder."""

    @classmethod
    def of(cls, settings: Settings, database: Database, images: ImageStore) -> "BackupService":
        """From the settings."""
        data = settings.data
        shared = settings.database_url is not None
        server = (lambda: None) if shared else partial(_running, data)
        return cls(
            database, settings.backup, data, data / "archive", images, server, shared, settings.secret_key is not None
        )

    @property
    def folder(self) -> Path:
        """Where backups are."""
        return self.settings.folder if self.settings.folder is not None else self.data / "backups"

    def repository(self) -> Repository:
        """The folder of backups. Raises UsageError if it is another user's."""
        return open_repository(self.folder)

    # Look

    def report(self) -> BackupReport:
        """Return the backups that are kept, and the schedule."""
        with self.database.session() as connection:
            found = queries.listing(connection)
            following = queries.following(connection)
        one = self.settings
        return BackupReport(found, following, one.daily, one.daily_at, one.keep, str(self.folder.absolute()))

    # Make

    def make(
        self,
        *,
        incremental: bool = False,
        dump: bool = False,
        with_keys: bool = False,
        anew: bool = False,
        actor: str,
        watch: Watch = silent,
    ) -> Backup:
        """Make a backup, and return it. `incremental`: of what changed since the last one; `dump`: in the form for shared servers, which
        any PostgreSQL of this or a later version can read; `with_keys`: also copy the keys of stored secrets; `anew`: the backups that the
        store knows in the folder are gone for good.

        After: it can be restored, also after a power cut. Raises UsageError for an incremental dump; Refused if another process makes
        one, or if there is nothing that an incremental one could begin at; BackupsUnavailable if the folder cannot be used: then nothing
        is left of it, and the reason is recorded.
        """
        if incremental and (dump or self.shared):
            why = "" if dump else " A shared server is always dumped."
            raise UsageError(f"A dump is always whole; leave --incremental out.{why}")
        server = self.server()
        as_dump = dump or server is None
        stalls = _StallRecord(self)
        with queries.lock(self.database) as connection, stalls.watch() as stall:
            queries.fail_killed(connection)
            watch = _touching(watch, stall)
            try:
                stall.touch(PROGRAM_STALLED_AFTER)  # what a killed backup left is deleted
                repository = self.repository()
                if anew:
                    self._forget_missing(connection, repository)
                else:
                    self.check_there(connection, repository)
                repository.discard_unfinished()
                parent = None if as_dump or not incremental else self._parent(connection, repository, server)
                kind = "dump" if as_dump else "full" if parent is None else "incremental"
                name = repository.new_name(queries.now(connection), kind)
            except (OSError, BackupsUnavailable, UsageError) as problem:
                kind = "dump" if as_dump else "incremental" if incremental else "full"
                place = str(self.folder / name_at(queries.now(connection), kind))
                number, _ = queries.begin(connection, kind=kind, place=place, parent=None)
                raise self._failed(connection, number, problem) from problem
            stall.touch()
            place = str(repository.folder / name)
            parent_place = None if parent is None else str(repository.path(parent))
            number, started = queries.begin(connection, kind=kind, place=place, parent=parent_place)
            stalls.number = number
            try:
                new = repository.begin(name)
                made = self._fill(
                    connection, repository, new, name, started, server, parent, with_keys, watch, as_dump, stall
                )
            except BaseException as problem:
                shutil.rmtree(repository.unfinished(name), ignore_errors=True)
                failed = self._failed(connection, number, problem)
                if failed is problem:
                    raise
                raise failed from problem
            queries.complete(connection, number, ended=made.ended_at, size=made.bytes)
            self._record_own(repository)
            details = {"kind": kind, "place": place, "bytes": made.bytes}
            with connection.transaction():
                audit.write(connection, actor=actor, action="make", kind="backup", object_id=name, details=details)
            with _reporting(f"The backup {name} is complete, but older ones cannot be deleted"):
                self._delete_superfluous(connection, repository, watch)
            return next(one for one in queries.listing(connection) if one.id == number)

    def _failed(self, connection: Connection, number: int, problem: BaseException) -> BaseException:
        """Record why a backup failed; returns the error to raise."""
        if isinstance(problem, OSError):
            advice = f" {_MORE_ROOM.capitalize()}" if problem.errno == ENOSPC else ""
            problem = BackupsUnavailable(f"The backup in {self.folder} failed: {problem.strerror or problem}.{advice}")
        elif isinstance(problem, StoreError) and os.strerror(ENOSPC) in str(problem):  # a program of PostgreSQL
            free = in_bytes(shutil.disk_usage(existing_folder(self.folder)).free)
            problem = BackupsUnavailable(
                f"The backup in {self.folder} failed: {os.strerror(ENOSPC)}, and {free} are free without it. {_MORE_ROOM.capitalize()}"
            )
        reason = str(problem) if isinstance(problem, HoldfastError) else f"{type(problem).__name__}: {problem}"
        with suppress(HoldfastError):
            queries.fail(connection, number, reason or "It was interrupted.")
        return problem

    def check_there(self, connection: Connection, repository: Repository) -> None:
        """Raise BackupsUnavailable if backups in the folder are known, and the folder has none of them: its disk is not mounted, and what
        was written now would lie on another one."""
        known = self._known(connection, repository)
        if known and not any(os.path.lexists(place) for place in known):
            raise BackupsUnavailable(away_sentence(repository.folder))

    def _known(self, connection: Connection, repository: Repository) -> list[str]:
        """The places of backups that the folder should have: as the store knows or, for a shared server, as this machine does, since
        others may have folders of the same name."""
        if self.shared:
            return [str(repository.folder / name) for name in OwnDumps(self.data).names(repository.folder)]
        return queries.complete_in(connection, str(repository.folder))

    def _forget_missing(self, connection: Connection, repository: Repository) -> None:
        """Record as deleted what is known and the folder does not have."""
        for place in self._known(connection, repository):
            if not os.path.lexists(place):
                queries.mark_deleted(connection, place)

    def _record_own(self, repository: Repository) -> None:
        """Let this machine remember what it has in the folder, if the server is shared."""
        if self.shared:
            OwnDumps(self.data).record(repository.folder, [one.name for one in repository.backups()])

    def _parent(self, connection: Connection, repository: Repository, server: Server | None) -> StoredBackup:
        """The backup that an incremental one can begin at. Raises Refused."""
        found = [one for one in repository.backups() if one.kind != "dump"]
        if not found or server is None:
            raise Refused(
                "There is no full backup yet that an incremental one could begin at; leave --incremental out."
            )
        last, now = found[-1], generation.current(connection)
        with queries.admin(server) as admin:
            cluster = queries.cluster(admin)
        if last.history != (now.store, now.number, cluster.system, cluster.timeline):
            raise Refused(
                f"The newest backup, {last.name}, is of the store before it was restored or moved, so an incremental one cannot "
                "begin there; leave --incremental out."
            )
        return last

    def _fill(
        self,
        connection: Connection,
        repository: Repository,
        new: Path,
        name: str,
        started: datetime,
        server: Server | None,
        parent: StoredBackup | None,
        with_keys: bool,
        watch: Watch,
        as_dump: bool,
        stall: StallWatch,
    ) -> StoredBackup:
        stall.rest()  # the database may take long to count
        files = list(listing(self.archive))
        if isinstance(self.images, FolderImageStore):
            files += (f"images/{key}" for rows in queries.images(connection) for _, key in rows)
        before = queries.counts(connection)
        now = generation.current(connection)
        stall.touch()
        system, timeline, start = "", 0, 0
        if as_dump or server is None:
            self._dump(new, watch, stall)
        else:
            with queries.admin(server) as admin:
                cluster = queries.cluster(admin)
                queries.summarize(admin)
            system, timeline = cluster.system, cluster.timeline
            base = None if parent is None else repository.path(parent) / DATABASE
            self._check_space(connection, new, parent)
            target = new / DATABASE
            physical.base_backup(server, target, parent=base, watch=lambda: watch(_COPYING, size_of(target)))
            stall.touch()
            start = repository.start_of(target)
        stall.rest()
        ended = queries.now(connection)
        after = queries.counts(connection)
        stall.touch()
        size = size_of(new)
        # After the database: so all bytes are there that its rows name.
        FileCopier(self.archive, repository).copy(lambda done: watch("Copying the archive", done))
        images = self._copy_images(connection, repository, watch)
        keys = with_keys and repository.copy_keys(self.data, new)
        made = StoredBackup(
            name=name,
            kind=name.rpartition("-")[2],
            store=now.store,
            generation=now.number,
            system=system,
            timeline=timeline,
            parent=None if parent is None else parent.name,
            started_at=started,
            ended_at=ended,
            start=start,
            bytes=size,
            revision=migrate.current(connection),
            counts_before=before,
            counts_after=after,
            keys=keys,
            images=images,
            shared=server is None,
        )
        repository.complete(new, made, files)
        return made

    def _check_space(self, connection: Connection, new: Path, parent: StoredBackup | None) -> None:
        if parent is not None:
            return
        needed, free = self._needed(connection), shutil.disk_usage(new).free
        if free < needed:
            raise Refused(
                f"The disk of {new.parent} has {in_bytes(free)} free, and a full backup takes about {in_bytes(needed)}: {_MORE_ROOM}"
            )

    def _needed(self, connection: Connection) -> int:
        return int(queries.database_size(connection) * _SPARE) + _OF_EVERY_COPY

    def _copy_images(self, connection: Connection, repository: Repository, watch: Watch) -> str:
        """Copy the files of images that are not there yet; returns where they are."""
        if not isinstance(self.images, FolderImageStore):
            return self.images.place
        target, size = repository.image_store(), 0
        for rows in queries.images(connection):
            before = size
            size += copy_images(self.images, target, [key for _, key in rows], partial(watch, "Copying images", before))
            watch("Copying images", size)
        return "copied"

    def _dump(self, new: Path, watch: Watch, stall: StallWatch) -> None:
        """Dump the database by pg_dump. An open snapshot for as long as it takes makes claims slower."""
        found = shutil.which("pg_dump") if self.server() is None else None
        bundled = binaries.wheel().bin / "pg_dump"
        target = new / DUMP
        problem = ""
        for program in dict.fromkeys([bundled, *([Path(found)] if found else [])]):
            command = [str(program), "--format=custom", "--no-owner", "--no-privileges", "--file", str(target)]
            with subprocess.Popen(
                command, env=environment_of(self.database), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            ) as running:
                try:
                    while running.poll() is None:
                        time.sleep(0.1)
                        watch(_DUMPING, target.stat().st_size if target.exists() else 0)
                except BaseException:
                    running.kill()
                    raise
                output = running.stderr.read().decode(errors="replace") if running.stderr is not None else ""
            if running.returncode == 0:
                target.chmod(0o600)
                stall.touch(PROGRAM_STALLED_AFTER)  # it may have much to sync
                sync(target)
                digest, _ = sha256_of_file(target, partial(watch, "Checking the dump"))
                write_json(new / "dump.json", {"sha256": digest})
                return
            problem = next((line for line in output.splitlines() if "error:" in line), output.strip())
        advice = ""
        if "version mismatch" in output:
            advice = " It refuses servers that are newer than itself: install the pg_dump of the server's version."
        raise StoreError(f"pg_dump failed: {problem}{advice}")

    # Delete

    def check_known(self, name: str) -> None:
        """Raise NotFound unless there is a backup of that name, or the store knows one that is not on the disk any more."""
        with _reporting(f"Nothing was deleted in {self.folder}"):
            repository, name = locate(name, self.repository())
            with self.database.session() as connection:
                known = {one.name for one in queries.listing(connection) if one.state == "complete"}
            if name not in known:
                repository.find(name)

    def delete(self, name: str, *, actor: str, dependents: bool = False) -> list[str]:
        """Delete a backup and, if asked, those that cannot be restored without it; returns their names. One that is not on the disk any
        more is forgotten. Raises NotFound, Refused if others need it.
        """
        with queries.lock(self.database) as connection, _reporting(f"Nothing more was deleted in {self.folder}"):
            repository, name = locate(name, self.repository())
            if self._forget_gone(connection, name, actor):
                return [name]
            backup = repository.find(name)
            needing = repository.dependents(backup)
            if needing and not dependents:
                names = ", ".join(one.name for one in needing)
                raise Refused(f"{names} cannot be restored without {backup.name}: --dependents deletes them, too.")
            gone = [*reversed(needing), backup]
            for one in gone:
                self._delete_one(connection, repository, one, actor)
            self._prune(repository)
            return [one.name for one in gone]

    def _forget_gone(self, connection: Connection, name: str, actor: str) -> bool:
        """Mark a backup as deleted that is not on the disk any more, as after a change of `backup.folder`; returns whether it was one.

        Files that it names would stay for ever. Not for a shared server, where another machine may have it. Raises BackupsUnavailable if
        the disk of the present folder is not mounted.
        """
        known = [one for one in queries.listing(connection) if one.name == name and one.state == "complete"]
        gone = [one for one in known if not os.path.lexists(one.place)]
        if self.shared or not gone or len(gone) < len(known):
            return False
        self.check_there(connection, self.repository())
        with connection.transaction():
            for one in gone:
                queries.mark_deleted(connection, one.place)
                audit.write(connection, actor=actor, action="delete", kind="backup", object_id=one.name)
        return True

    def _delete_one(self, connection: Connection, repository: Repository, backup: StoredBackup, actor: str) -> None:
        repository.delete(backup)
        self._record_own(repository)
        with connection.transaction():
            queries.mark_deleted(connection, str(repository.path(backup)))
            audit.write(connection, actor=actor, action="delete", kind="backup", object_id=backup.name)

    def _delete_superfluous(self, connection: Connection, repository: Repository, watch: Watch) -> None:
        gone = repository.superfluous(self.settings.keep)
        for backup in gone:
            watch(f"Deleting {backup.name}", 0)
            self._delete_one(connection, repository, backup, "backup.keep")
        if gone:
            self._prune(repository)

    def _prune(self, repository: Repository) -> None:
        server = self.server()
        current = None
        if server is not None:
            with queries.admin(server) as admin, self.database.session() as connection:
                cluster, now = queries.cluster(admin), generation.current(connection)
            history = now.store, now.number, cluster.system, cluster.timeline
            logs = [log for log in repository.logs() if log.history == history]
            current = logs[-1].name if logs and logs[-1].given_up is None else None
        repository.prune_logs(current)
        repository.prune(lambda relative: (self.data / relative).exists())

    # Try

    def verify(self, restorer: "Restorer", plan: "Plan", scratch: Path) -> Verified:
        """Restore a backup into a folder in `scratch` and run all checks; what passes is marked as verified."""
        begun = time.monotonic()
        repository = restorer.repository
        faults = restorer.problems(plan)
        checks, last = 0, None
        if not faults:
            with restorer.scratch(plan, scratch) as (_, recovered):
                images = repository.image_store() if plan.backup.images == "copied" else self.images
                findings = restorer.verify(recovered, repository.folder / ARCHIVE, images)
            checks, last = len(findings), recovered.last_change
            faults = [f"{one.check}: {one.faults:,} faults" for one in findings if one.faults]
        if not faults:
            with self.database.session() as connection:
                queries.mark_verified(connection, [str(repository.path(one)) for one in plan.chain])
        return Verified(plan.backup.name, not faults, last, checks, faults, time.monotonic() - begun)

    def drill(self, restorer: "Restorer", plan: "Plan", scratch: Path, on_check: Callable[[Check], None]) -> Drill:
        """Run the recovery testing checklist; `on_check` gets each line when it is checked."""
        from holdfast.backups import drill

        has_key = self.key_is_set or (self.data / "secret.key").exists()
        done = drill.run(restorer, plan, scratch, self.images, on_check, has_key=has_key)
        if done.ok:
            with self.database.session() as connection:
                queries.mark_verified(connection, [str(restorer.repository.path(one)) for one in plan.chain])
        return done

    # The schedule

    @property
    def follows(self) -> bool:
        """Whether the log of the server is kept between backups."""
        return self.settings.daily and not self.shared

    def is_due(self, *, wanted: bool = False) -> bool:
        """Whether the daily backup is due: none was begun since its time of day, or one is `wanted` that the log can continue, and there is
        room for it; and none failed a moment ago."""
        with self.database.session() as connection:
            last, failed, now = queries.last_attempt(connection)
            needed = self._needed(connection) if wanted else 0
        patience = RETRY_WANTED_AFTER if wanted else RETRY_AFTER
        if failed is not None and now - failed < patience and (last is None or failed > last):
            return False
        if last is None or last < last_time_of(self.settings.daily_at, now):
            return True
        if not wanted:
            return False
        with suppress(OSError), _StallRecord(self).watch() as stall:  # `make` says what is wrong with the folder
            stall.touch()
            return shutil.disk_usage(self.folder).free >= needed
        return True

    def make_daily(self, watch: Watch = silent) -> Backup:
        """Make the daily backup: incremental, and every so often a full one."""
        found: list[StoredBackup] = []
        # `make` says what is wrong with the folder.
        with suppress(OSError, UsageError), _StallRecord(self).watch() as stall:
            stall.touch()
            found = [one for one in self.repository().backups() if one.kind != "dump"]
        since_full = 0
        for one in reversed(found):
            since_full += 1
            if one.kind == "full":
                break
        if found and since_full < self.settings.full_every and self.server() is not None:
            with suppress(Refused, StoreError):  # a full one may succeed; not where the folder cannot be used
                return self.make(incremental=True, actor="schedule", watch=watch)
        return self.make(actor="schedule", watch=watch)


def copy_images(
    source: FolderImageStore, target: FolderImageStore, keys: list[str], touch: Callable[[], None] = lambda: None
) -> int:
    """Copy files of images that `target` does not have; returns their bytes. Files that are gone or damaged are left out: `verify` names
    them. `touch` is called with each."""
    size = 0
    for key in keys:
        touch()
        if not target.exists(key):
            with suppress(NotFound, ArchiveDamaged):
                body = source.get(key)
                target.put(sha256_of(key), key.rpartition(".")[2], body)
                size += len(body)
    return size


def away_sentence(folder: Path) -> str:
    """What a person reads when the folder of backups has nothing of what the store knows to be there."""
    return (
        f"The folder of backups, {folder} (backup.folder), has none of the backups that the store knows there: mount its disk. If they are "
        "gone for good, `holdfast backup --anew` begins anew."
    )


def stalled_sentence(folder: Path, seconds: float) -> str:
    """What a person reads while a call on the folder of backups does not return, without its end."""
    return (
        f"The folder of backups, {folder} (backup.folder), has not answered for {seconds:.0f} s: look at its disk or, if it is on another "
        "machine, at the network. It goes on by itself"
    )


class _StallRecord:
    """Records in the row of a backup that it makes no progress."""

    def __init__(self, service: BackupService) -> None:
        self._service = service
        self.number: int | None = None
        """The row of the backup; None: it has none yet."""
        self._recorded = False

    def watch(self) -> StallWatch:
        return StallWatch(self._begin, self._end)

    def _begin(self, seconds: float) -> None:
        sentence = f"{stalled_sentence(self._service.folder, seconds)}."
        with self._service.database.session() as connection:
            if self.number is not None:
                queries.record_stalled(connection, self.number, sentence)
            elif not self._recorded:  # it hangs before it has a row: this one says so until another backup is complete
                kind = "dump" if self._service.shared else "full"
                place = str(self._service.folder / name_at(queries.now(connection), kind))
                number, _ = queries.begin(connection, kind=kind, place=place, parent=None)
                queries.fail(connection, number, sentence)
        self._recorded = True

    def _end(self) -> None:
        if self.number is not None:
            with self._service.database.session() as connection:
                queries.record_stalled(connection, self.number, None)


def _touching(watch: Watch, stall: StallWatch) -> Watch:
    """`watch`, and each call of it is a sign of progress; from a program of PostgreSQL only more bytes are one."""
    before = ("", 0)

    def touching(what: str, done: int) -> None:
        nonlocal before
        if what not in _BY_PROGRAMS:
            stall.touch()
        elif (what, done) != before:
            stall.touch(PROGRAM_STALLED_AFTER)
        before = (what, done)
        watch(what, done)

    return touching


@contextmanager
def _reporting(what: str) -> Iterator[None]:
    """Turn an error of the file system into one of ours."""
    try:
        yield
    except OSError as problem:
        raise BackupsUnavailable(f"{what}: {problem.strerror or problem} ({problem.filename}).") from problem


def last_time_of(at: str, now: datetime) -> datetime:
    """The last moment, at or before `now`, with that time of day in UTC."""
    hour, minute = map(int, at.split(":"))
    today = now.astimezone(UTC).replace(hour=hour, minute=minute, second=0, microsecond=0)
    return today if today <= now else today - timedelta(days=1)


def _running(data: Path) -> Server:
    server = embedded.find(data)
    if server is None:
        raise StoreError(f"PostgreSQL in {data} does not run; `holdfast status` starts it.")
    return server


def environment_of(database: Database) -> Mapping[str, str]:
    """The address of a database as variables, for programs of PostgreSQL."""
    return {**ENVIRONMENT, **libpq_environment(database.url)}
