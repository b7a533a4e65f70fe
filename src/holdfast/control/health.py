"""Health check of the database: it answers, and its schema is the one of this version.

The rule: it never raises, and its causes name no address, since the result is public.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.alerts import queries as alerts
from holdfast.db import migrate
from holdfast.db.connection import Database
from holdfast.errors import DiskFull, SchemaMismatch, StoreDiskFull, StoreError, StoreMoved
from holdfast.model.activity import ProblemKind, WorkerProblem
from holdfast.model.health import Part
from holdfast.stats import queries as stats
from holdfast.stats.records import SILENCE
from holdfast.telemetry.disk_space import DiskWatch, describe

_UNKNOWN: Final = Part("schema", works=False, cause="Unknown, since the database does not answer.")
_CAUSES: Final = {
    ProblemKind.DISK_FULL: "a disk has too little room (disk.min_free)",
    ProblemKind.ARCHIVE: "the archive cannot be written",
    ProblemKind.IMAGES: "images cannot be stored",
    ProblemKind.DATABASE: "the database cannot be written",
}
_BACKUPS: Final = {
    "backup": "The last backup failed, or makes no progress.",
    "log": "The log between backups is not copied, or was given up.",
}
NO_ANSWER: Final = [Part("database", works=False, cause="It does not answer in time."), _UNKNOWN]
"""The result while a check takes too long."""


def look(database: Database, disks: DiskWatch | None = None) -> list[Part]:
    """Check each part, in the order in which they depend on each other. `disks`: the volumes of this machine."""
    return [*_database(database), *([] if disks is None else [_disk(disks)])]


def _disk(disks: DiskWatch) -> Part:
    """Whether the volumes of this machine have room; also known while the database does not answer."""
    full = disks.full()
    cause = None if full is None else f"Fetching is paused: {describe(full, where=False)}."
    return Part("disk", works=full is None, cause=cause)


def _database(database: Database) -> list[Part]:
    try:
        with database.session() as connection:
            at = migrate.current(connection)
            try:
                migrate.check(connection, "")
            except StoreMoved:
                return [
                    Part("database", works=True),
                    Part("schema", works=False, cause="The store was moved to another database."),
                ]
            except SchemaMismatch:
                cause = f"It is at revision {at}, this Holdfast needs {migrate.HEAD}."
                return [Part("database", works=True), Part("schema", works=False, cause=cause)]
            paused = [one for one in stats.worker_problems(connection, silence=SILENCE) if one.pauses]
            failed = [one.subject for one in alerts.failed_backups(connection)]
    except (StoreDiskFull, DiskFull):
        return [Part("database", works=False, cause="Its disk is full."), _UNKNOWN]
    except StoreError as problem:
        cause = f"It does not answer ({type(problem).__name__})."
        return [Part("database", works=False, cause=cause), _UNKNOWN]
    return [Part("database", works=True), Part("schema", works=True), _crawl(paused), _backups(failed)]


def _backups(failed: Sequence[str]) -> Part:
    """Whether the last backup succeeded, and the log between backups is kept. The kinds only: the messages name folders."""
    causes = [cause for subject, cause in _BACKUPS.items() if subject in failed]
    return Part("backups", works=not causes, cause=" ".join(causes) or None)


def _crawl(paused: Sequence[WorkerProblem]) -> Part:
    """Whether workers may write what they fetch. The kinds only: the messages name folders and addresses."""
    if not paused:
        return Part("crawl", works=True)
    causes = ", ".join(sorted({_CAUSES[one.kind] for one in paused}))
    return Part("crawl", works=False, cause=f"Workers fetch nothing and go on by themselves: {causes}.")
