"""The archive on many machines: where its segments are, upload by hand, and what a lost machine had.

The rule: a machine is lost only when a person says so. Its pages are then named by `verify` and can be replayed; if it comes back, what is
on its disk is uploaded, and is lost no more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast.archive.writer import safe_name
from holdfast.crawler.segment_uploader import SegmentUploader, UploadCounts
from holdfast.db import audit
from holdfast.db.connection import Connection, Database
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.model.segment import SegmentState
from holdfast.segments import queries
from holdfast.segments.records import ArchiveMachine, LostMachine, Segment, UploadedSegments

KIND: Final = "archive machine"
MAX_SHOWN: Final = 10_000
"""Segments that one answer lists."""


@dataclass(frozen=True, slots=True)
class SegmentService:
    """The manifest of one database."""

    database: Database

    def machines(self) -> list[ArchiveMachine]:
        """Return the machines whose archives go to an object store."""
        with self.database.session() as connection:
            return queries.machines(connection)

    def list(
        self, *, state: str | None = None, machine: str | None = None, after: str = "", limit: int = 100
    ) -> "list[Segment]":
        """Return segments by name; `after` is the last one of the page before. Raises UsageError."""
        if state is not None and state not in set(SegmentState):
            raise UsageError(f"A segment is {', '.join(SegmentState)}; not {state!r}.")
        if not 1 <= limit <= MAX_SHOWN:
            raise UsageError(f"1 to {MAX_SHOWN:,} segments are listed at once, not {limit:,}.")
        with self.database.session() as connection:
            return queries.segments(connection, state=state, machine=machine, after=after, limit=limit)

    def check_lost(self, machine: str, *, dry_run: bool) -> ArchiveMachine:
        """Return the machine of this name or id. Raises NotFound, UsageError, and Refused if it lives and this is no dry run."""
        with self.database.session() as connection, connection.transaction():
            found = self._find(connection, machine)
            if not dry_run:
                self._check_dead(connection, found)
            return found

    def count_lost(self, machine: str) -> LostMachine:
        """Return what `lose` would declare lost. Raises NotFound, UsageError."""
        with self.database.session() as connection, connection.transaction():
            return self._lost(connection, self._find(connection, machine), dry_run=True)

    def lose(self, machine: str, *, actor: str) -> LostMachine:
        """Declare a machine lost for good, by its name or id.

        After: the segments that only it had are `lost`; `verify` names their pages, and `replay --lost` queues them again. Refused while
        a worker lives that writes one of them. Raises NotFound, UsageError.
        """
        with self.database.session() as connection, connection.transaction():
            found = self._find(connection, machine)
            self._check_dead(connection, found)
            lost = self._lost(connection, found, dry_run=False)
            queries.lose(connection, found.id)
            details = {"segments": len(lost.segments), "pages": lost.pages, "versions": lost.versions}
            audit.write(connection, actor=actor, action="lost", kind=KIND, object_id=found.name, details=details)
            return lost

    def _find(self, connection: Connection, machine: str) -> ArchiveMachine:
        known = queries.machines(connection)
        named = [one for one in known if machine in (one.name, str(one.id))]
        if not named:
            names = ", ".join(sorted({one.name for one in known})) or "none"
            raise NotFound(f"No machine {machine!r} has uploaded a part of the archive; known machines: {names}.")
        if len(named) > 1:
            ids = ", ".join(str(one.id) for one in named)
            raise UsageError(
                f"{len(named)} machines are named {machine}: say which by its id, one of {ids} (`holdfast segments`)."
            )
        return named[0]

    @staticmethod
    def _lost(connection: Connection, machine: ArchiveMachine, *, dry_run: bool) -> LostMachine:
        segments = queries.only_on(connection, machine.id)
        pages, versions = queries.count_pages(connection, segments)
        return LostMachine(machine.name, dry_run, segments, pages, versions)

    @staticmethod
    def _check_dead(connection: Connection, machine: ArchiveMachine) -> None:
        writing = {segment.partition("/")[0] for segment in queries.only_on(connection, machine.id)}
        for name, seconds in queries.living_workers(connection):
            if safe_name(name) in writing:
                raise Refused(
                    f"Machine {machine.name} is not lost: its worker {name} was heard of {seconds:.0f} s ago. A worker that died counts as "
                    "silent after 120 s."
                )


def upload_now(uploader: SegmentUploader, watch: Callable[[UploadCounts], None] = lambda _: None) -> UploadedSegments:
    """Upload all that is finished on this machine. Before: the uploader was not started. After: it is stopped. Raises
    ArchiveUnavailable."""
    try:
        uploader.register_found()
        done = UploadCounts()
        while True:
            step = uploader.upload_waiting(watch)
            done = UploadCounts(done.uploaded + step.uploaded, done.bytes + step.bytes, step.left)
            if not step.uploaded:
                return UploadedSegments(uploader.machine, done.uploaded, done.bytes, done.left)
    finally:
        uploader.stop(0)
