"""Restores: a store of its own from a backup, as of the second of the backup or any later one that the log has.

The rule: the store is recovered in a folder beside its place, begins a new generation, is verified, and only then takes its place. So a
restore that is killed or fails leaves the present store as it was, stopped.
"""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from holdfast import private
from holdfast.archive.image_store import FOLDER as IMAGES
from holdfast.archive.image_store import FolderImageStore, ImageStore
from holdfast.archive.reader import ArchiveReader
from holdfast.backups import queries
from holdfast.backups.records import Restored
from holdfast.backups.repository import ARCHIVE, DATABASE, DUMP, LATEST, Log, Repository, StoredBackup, append
from holdfast.backups.service import Watch, copy_images, environment_of, silent
from holdfast.control.verify import Verifier
from holdfast.db import embedded, generation, migrate
from holdfast.db.connection import Database
from holdfast.db.embedded import binaries, layout, physical
from holdfast.db.embedded.layout import ServerLayout
from holdfast.db.embedded.physical import TargetNotReached
from holdfast.db.embedded.process import Server
from holdfast.db.verify import Finding
from holdfast.errors import Refused, StoreError
from holdfast.telemetry.disk_space import existing_folder, in_bytes

SCRATCH: Final = "postgres.scratch"
END: Final = datetime.max.replace(tzinfo=UTC)
"""The second to restore to: the last one that there is."""

Say = Callable[[str], None]


def silent_say(_text: str) -> None:
    """Say nothing: messages of a server name `holdfast db stop`, which would stop another one than that of a scratch folder."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a restore is made of."""

    repository: Repository
    backup: StoredBackup
    chain: list[StoredBackup]
    log: Log | None
    """None: the second of the backup itself."""
    to: datetime | None
    until: datetime | None
    """The last second that the log has."""


@dataclass(slots=True)
class Recovered:
    """A store that was recovered, in a folder of its own, and is running."""

    database: Database
    server: Server | None
    """The server that runs it; None: a shared one."""
    generation: int
    last_change: datetime | None


@dataclass(frozen=True, slots=True)
class Restorer:
    """Restores backups of a repository."""

    repository: Repository
    retries: int
    say: Say
    watch: Watch = silent
    extra: Mapping[str, str] = field(default_factory=dict)
    """Settings of the server while it recovers, for tests."""
    spare: int = 0
    """Bytes that must be left free on the disk to which it restores: the store in use may be there, too."""

    def plan(self, name: str, to: datetime | None = None) -> Plan:
        """What is needed to restore a backup, or to a second after it: then of the newest backup before it that the same log continues.
        To a second of `latest`, also of the logs of the store before it was last restored.

        Raises NotFound, Refused if the second cannot be restored, with the seconds that can.
        """
        repository = self.repository
        backup = repository.find(name)
        if to is None:
            return Plan(repository, backup, repository.chain_of(backup), None, None, None)
        if backup.kind == "dump":
            raise Refused(
                f"{backup.name} is a dump, which holds one second only: {_time(backup.ended_at)} UTC; leave --to out."
            )
        candidates = []
        for one in repository.backups():
            found = repository.log_of(one)
            may = one.history == backup.history or (name == LATEST and to != END)
            if found is not None and may and one.ended_at <= to and (to == END or to <= found[1].until):
                candidates.append((one, *found))
        if not candidates:
            raise Refused(self._refusal(backup, to))
        one, log, follow = candidates[-1]
        return Plan(repository, one, repository.chain_of(one), log, to, follow.until)

    def _refusal(self, backup: StoredBackup, to: datetime) -> str:
        """Why a second cannot be restored, and which can."""
        what = "No second after a backup" if to == END else f"{_time(to)} UTC"
        verb = "can" if to == END else "cannot"
        alone = f"{what} {verb} be restored: {backup.name} holds {_time(backup.ended_at)} UTC"
        earlier = [one for one in self.repository.backups() if one.ended_at <= to and one.name != backup.name]
        before = ""
        if earlier and to < backup.ended_at:
            before = f" {earlier[-1].name} holds {_time(earlier[-1].ended_at)} UTC."
        found = self.repository.log_of(backup)
        if found is None:
            return (
                f"{alone}, and no log of the time after it was kept (backup.daily, or `holdfast backup follow`).{before} "
                "Without --to the second of the backup is restored."
            )
        log, follow = found
        since = self.repository.restorable_since(log)
        return f"{alone}, and the log has the seconds from {_time(since)} to {_time(follow.until)} UTC.{before}"

    def check_room(self, plan: Plan, folder: Path, *, files: bool, option: str) -> None:
        """Raise Refused if a disk has too little room for what a plan restores. `files`: the archive is copied, too; `option` changes the
        folder.

        A crawl pauses before a disk is full, but a restore would take the last byte from the database in use.
        """
        needed = self.repository.size_restored(plan.backup, plan.chain, plan.log)
        if files:
            needed += sum(size for _, _, size in self._missing(folder / ARCHIVE))
        free = shutil.disk_usage(existing_folder(folder)).free
        if free < needed + self.spare:
            spare = f", and {in_bytes(self.spare)} must stay free (disk.min_free)" if self.spare else ""
            raise Refused(
                f"The disk of {folder} has {in_bytes(free)} free, but restoring {plan.backup.name} takes about {in_bytes(needed)}{spare}: "
                f"free some space, or name a folder on another disk ({option})."
            )

    def _missing(self, archive: Path) -> Iterator[tuple[Path, Path, int]]:
        """The segments of the backups that an archive does not have, or not as far: source, target and the bytes that are missing."""
        for segment in sorted((self.repository.folder / ARCHIVE).glob("*/*")):
            copy = archive / segment.parent.name / segment.name
            have, end = copy.stat().st_size if copy.exists() else 0, segment.stat().st_size
            if have < end:
                yield segment, copy, end - have

    def problems(self, plan: Plan) -> list[str]:
        """Compare the files of the backups that are needed with their manifests; returns what is wrong."""
        found = []
        for one in plan.chain:
            found += self.repository.problems(one, partial(self.watch, f"Checking {one.name}"))
        if plan.log is not None:
            found += _gaps(self.repository, plan.log, plan.backup)
        return found

    # Into a data folder

    def restore(self, plan: Plan, data: Path, *, actor: str, verify: bool = True) -> Restored:
        """Restore into a data folder; a store that is there is kept aside. Raises Refused while a program is connected to it,
        StoreError if the backup is damaged or the restored store is not whole.

        Before: nothing. After: the folder has the store as of the second of the plan, in a new generation; it is stopped.
        """
        begun = time.monotonic()
        self._check_idle(data)
        self.check_room(plan, data, files=True, option="--into")
        if wrong := self.problems(plan):
            raise StoreError(f"Backup {plan.backup.name} is damaged, and nothing was restored: {'; '.join(wrong[:3])}.")
        if embedded.state(data) is embedded.State.RUNS:
            embedded.stop(data, self.say)
        with physical.replacing(data, self.say) as here:
            aside = _aside(here) if here.cluster.exists() else None
            with self.recovered(plan, here, actor) as recovered:
                size = self.copy_files(plan, data)
                keys = self.repository.restore_keys(plan.backup, data)
                findings = self.verify(recovered, data / ARCHIVE, FolderImageStore(data / IMAGES)) if verify else []
            bad = [finding for finding in findings if finding.faults]
            if bad:
                physical.discard_work(here)
                raise StoreError(
                    f"The store that was restored from {plan.backup.name} fails {len(bad)} of {len(findings)} checks, so it did not take "
                    f"its place: {_fault(bad[0])} --no-verify restores it all the same."
                )
            physical.install(here, here.data / physical.WORK_FOLDER, aside)
        return Restored(
            backup=plan.backup.name,
            data=str(data),
            asked_for=None if plan.to in (None, END) else plan.to,
            last_change_at=recovered.last_change,
            generation=recovered.generation,
            bytes=size,
            checks=len(findings),
            faults=0,
            aside=None if aside is None else str(aside),
            notes=self._notes(plan, data, keys),
            seconds=time.monotonic() - begun,
        )

    def restore_shared(
        self, plan: Plan, database: Database, data: Path, *, actor: str, verify: bool = True
    ) -> Restored:
        """Load a dump into the empty database of a shared server, and its files into the data folder of this machine."""
        begun = time.monotonic()
        if plan.backup.kind != "dump":
            raise Refused(
                f"{plan.backup.name} is of a bundled server, and goes into a data folder only: unset HOLDFAST_DATABASE_URL; "
                "`holdfast backup --dump` makes backups for shared servers."
            )
        if wrong := self.problems(plan):
            raise StoreError(f"Backup {plan.backup.name} is damaged, and nothing was restored: {'; '.join(wrong[:3])}.")
        load_dump(self.repository.path(plan.backup) / DUMP, database, self.watch)
        number = self._begin_generation(plan, database, actor)
        size = self.copy_files(plan, data)
        keys = self.repository.restore_keys(plan.backup, data)
        recovered = Recovered(database, None, number, plan.backup.started_at)
        findings = self.verify(recovered, data / ARCHIVE, FolderImageStore(data / IMAGES)) if verify else []
        return Restored(
            backup=plan.backup.name,
            data=database.address,
            asked_for=None,
            last_change_at=recovered.last_change,
            generation=number,
            bytes=size,
            checks=len(findings),
            faults=sum(finding.faults for finding in findings),
            aside=None,
            notes=self._notes(plan, data, keys),
            seconds=time.monotonic() - begun,
        )

    def _begin_generation(self, plan: Plan, database: Database, actor: str) -> int:
        """Bring the schema up and begin a new generation. Before: no program uses the restored store yet."""
        migrate.upgrade(database)
        at = "" if plan.to is None else f" to {'the last second' if plan.to == END else plan.to.isoformat()}"
        with database.session() as connection:
            number = generation.begin(connection, why=f"restored from {plan.backup.name}{at}", actor=actor)
            with connection.transaction():
                queries.settle_after_restore(connection, self.repository.rows())
                queries.end_sessions(connection)
        return number

    def _check_idle(self, data: Path) -> None:
        """Raise Refused if another program is connected to the store of a data folder."""
        server = embedded.find(data) if data.exists() else None
        if server is None:
            return
        with queries.admin(server) as admin:
            if others := queries.others(admin, "holdfast"):
                names = ", ".join(sorted(set(others))[:5])
                connections = "1 connection is" if len(others) == 1 else f"{len(others)} connections are"
                raise Refused(
                    f"The store in {data} is in use by other programs: {connections} open ({names}). Stop `holdfast serve`, "
                    "`holdfast background`, workers and crawls that use it, then restore again."
                )

    def _notes(self, plan: Plan, data: Path, keys: list[str]) -> list[str]:
        notes = []
        if keys:
            notes.append(f"The keys of secrets were copied: {', '.join(keys)}.")
        elif not (data / "secret.key").exists():
            notes.append(
                "The key of secrets (secret.key in the data folder, or HOLDFAST_SECRET_KEY) is not in the backup: bring it, or passwords "
                "of proxies and headers of jobs have to be given again."
            )
        if plan.backup.images != "copied":
            notes.append(f"Files of images are where they were: {plan.backup.images} (images.store).")
        if plan.backup.shared:
            notes.append("Pages that other machines archived are in their archives, not in this backup.")
        notes.append("All users were logged out. The search index is built anew by the background or the next search.")
        return notes

    def copy_files(self, plan: Plan, data: Path) -> int:
        """Copy segments and images that a data folder does not have; returns their bytes. Longer segments stay as they are."""
        target, size = data / ARCHIVE, 0
        for segment, copy, missing in self._missing(target):
            private.make_folder(target)
            private.make_folder(copy.parent)
            end = segment.stat().st_size
            size += append(segment, copy, end - missing, end)
            self.watch("Copying the archive", size)
        if plan.backup.images == "copied":
            copies, last = self.repository.image_store(), ""
            while found := copies.list(last):
                last = found[-1].key
                size += copy_images(copies, FolderImageStore(data / IMAGES), [one.key for one in found])
                self.watch("Copying images", size)
        return size

    # Anywhere

    @contextmanager
    def scratch(self, plan: Plan, folder: Path) -> Iterator[tuple[Path, Recovered]]:
        """A restored store in a new folder in `folder`, which is gone afterwards; its archive is the backup's, and is not copied."""
        physical.remove_stale(folder, SCRATCH)
        self.check_room(plan, folder, files=False, option="--scratch")
        data = folder / f"{SCRATCH}-{plan.backup.name}-{int(time.time())}"
        try:
            with physical.replacing(data, silent_say) as here, self.recovered(plan, here, "backup verify") as recovered:
                yield here.data / physical.WORK_FOLDER, recovered
        finally:
            physical.remove(data)

    @contextmanager
    def recovered(self, plan: Plan, here: ServerLayout, actor: str) -> Iterator[Recovered]:
        """The store of a plan, running in a folder within `here`; it is stopped at the end, and deleted if there was an error."""
        work = here.data / physical.WORK_FOLDER
        try:
            server = self._load_dump(plan, here) if plan.backup.kind == "dump" else self._recover(plan, here)
            database = Database(server.url(), statement_timeout=0)
            last = plan.backup.ended_at
            if plan.backup.kind != "dump":
                with queries.admin(server) as admin:
                    last = queries.last_change(admin) or plan.backup.started_at
            number = self._begin_generation(plan, database, actor)
            yield Recovered(database, server, number, last)
        except BaseException:
            if work.exists():
                physical.stop(work, self.say)
                physical.discard_work(here)
            raise
        else:
            physical.stop(work, self.say)

    def _recover(self, plan: Plan, here: ServerLayout) -> Server:
        log = plan.log
        wal = [] if log is None else self.repository.wal(log, plan.backup.start)
        chain = [self.repository.path(one) / DATABASE for one in plan.chain]
        work = physical.prepare(here, chain, wal, silent_say, lambda: self.watch("Joining the backups", 0))
        target: dict[str, str] = {}
        if log is None:
            target = {"recovery_target": "immediate"}
        elif plan.to is not None and plan.to != END:
            target = {"recovery_target_time": plan.to.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00")}
        self.watch("Replaying the log", 0)
        try:
            return physical.recover(work, target, self.extra, silent_say)
        except TargetNotReached:
            return physical.recover(work, {}, self.extra, silent_say)  # nothing happened after that second

    def _load_dump(self, plan: Plan, here: ServerLayout) -> Server:
        work = here.data / physical.WORK_FOLDER
        physical.discard_work(here)
        layout.make_data(work, silent_say)
        server = embedded.ensure_running(work, silent_say, self.extra)
        load_dump(self.repository.path(plan.backup) / DUMP, Database(server.url()), self.watch)
        return server

    def verify(self, recovered: Recovered, archive: Path, images: ImageStore) -> list[Finding]:
        """Run all checks of `holdfast verify` on a restored store."""
        verifier = Verifier(
            recovered.database, self.retries, ArchiveReader(archive) if archive.is_dir() else None, images
        )
        findings = []
        for step in verifier.run():
            self.watch(f"Verifying ({step.number} of {step.total})", step.looked_at)
            if step.finding is not None:
                findings.append(step.finding)
        return findings


def load_dump(dump: Path, database: Database, watch: Watch = silent) -> None:
    """Load a dump into an empty database. Raises Refused if it is not empty, StoreError."""
    with database.session() as connection:
        if not queries.is_empty(connection):
            raise Refused(
                f"The database at {database.address} is not empty; a dump is loaded into an empty one: create another (createdb)."
            )
    program = str(binaries.wheel().bin / "pg_restore")
    options = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"]
    name = environment_of(database).get("PGDATABASE", "")
    with subprocess.Popen(
        [program, *options, "--dbname", name, str(dump)],
        env=environment_of(database),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as running:
        try:
            while running.poll() is None:
                time.sleep(0.1)
                watch("Loading the dump", 0)
        except BaseException:
            running.kill()
            raise
        output = running.stderr.read().decode(errors="replace") if running.stderr is not None else ""
    if running.returncode:
        problem = next((line for line in output.splitlines() if "error:" in line), output.strip())
        raise StoreError(f"The dump could not be loaded: {problem}")
    with database.session() as connection:
        queries.analyze(connection)


def parse_second(text: str) -> datetime:
    """A time as a person writes it, in UTC unless it says another zone. Raises ValueError."""
    if text == "latest":
        return END
    found = datetime.fromisoformat(text.strip())
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return found.astimezone(UTC)


def default_data(backup: StoredBackup) -> Path:
    """The data folder for a store that is restored beside the present one."""
    return Path(f"holdfast-{backup.name}")


def _gaps(repository: Repository, log: Log, backup: StoredBackup) -> list[str]:
    """Files of the log that are missing or have another size."""
    follow = repository.follow(log)
    if follow is None:
        return [f"the log {log.name} is empty"]
    known = {path.name: path.stat().st_size for path in repository.wal(log, backup.start)}
    wrong, at = [], backup.start - backup.start % log.segment_bytes
    while at < follow.position:
        name = log.segment_name(at)
        if known.get(name) != log.segment_bytes:
            wrong.append(f"{name} of the log is {'missing' if name not in known else 'not whole'}")
        at += log.segment_bytes
    return wrong


def _aside(here: ServerLayout) -> Path:
    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    return here.home / f"postgres.before-{stamp}"


def _fault(finding: Finding) -> str:
    return f"{finding.check}: {finding.faults} {'fault' if finding.faults == 1 else 'faults'}."


def _time(moment: datetime | None) -> str:
    if moment is None:
        return "none"
    if moment == END:
        return "the last second"
    return f"{moment.astimezone(UTC).replace(microsecond=0):%Y-%m-%d %H:%M:%S}"
