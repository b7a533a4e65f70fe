"""Retention: what it keeps how long, what it did, and the archives that it wrote."""

from dataclasses import field
from datetime import datetime, timedelta
from typing import Literal

from holdfast.model.record import Int64, durations_in_seconds, record

ArchiveState = Literal["writing", "complete", "restored"]


@durations_in_seconds
@record
class RetentionRule:
    """A line of the table: what is kept how long."""

    step: str
    """The part of a run that applies it."""
    setting: str
    """The setting that changes it."""
    what: str
    kept: timedelta | None
    """null: forever."""


@record
class StepResult:
    """What one step of a run did, or would do."""

    step: str
    rows: Int64
    """What was archived and deleted: URLs with all that belongs to them (the steps `content`, `frontier_completed`, `frontier_failed`
    and `pages`), files (`segments`), or rows."""
    archives: int
    bytes: Int64
    """What their archives take."""
    problem: str | None = None
    """Why the step did not come to its end; the next run goes on."""


@record
class RetentionResult:
    """The result of a run."""

    dry_run: bool
    steps: list[StepResult]

    @property
    def problems(self) -> list[str]:
        """Why steps did not come to their end: each reason once, after the names of the steps."""
        steps: dict[str, list[str]] = {}
        for step in self.steps:
            if step.problem is not None:
                steps.setdefault(step.problem, []).append(step.step)
        return [f"{', '.join(names)}: {problem}" for problem, names in steps.items()]


@record
class RetentionRun:
    """The last run on one machine."""

    machine: str
    started_at: datetime | None
    ended_at: datetime | None
    """null: it runs, or was killed; the next run goes on."""
    rows: Int64
    archives: int
    bytes: Int64
    problem: str | None


@record
class ArchiveSummary:
    """The archives of one kind."""

    kind: str
    archives: int
    rows: Int64
    bytes: Int64
    first_at: datetime | None
    """The time of the oldest row."""
    last_at: datetime | None


@record
class RetentionStatus:
    """What retention keeps, what it did, and what it has archived."""

    schedule: str | None
    """When it runs by itself; null: only when it is asked to."""
    next_run_at: datetime | None
    store: str
    """Where archives go."""
    rules: list[RetentionRule]
    runs: list[RetentionRun]
    archives: list[ArchiveSummary]
    log_begins_at: datetime | None
    """The log is complete since then; null: since the beginning."""


@record
class ArchiveFile:
    """A file of an archive."""

    table_name: str
    key: str
    rows: Int64
    bytes: Int64
    sha256: str


@record
class ArchiveEntry:
    """Rows, or a file of the WARC archive, that retention moved out of the store."""

    id: int
    kind: str
    """The step of retention that wrote it."""
    state: ArchiveState
    """`writing`: its rows are still in the store. `complete`: its files hold them. `restored`: they are back in the store."""
    job: str | None
    """null: of no job, or of one that was deleted."""
    source: str | None
    """The week of the log, or the segment of the WARC archive."""
    rows: Int64
    bytes: Int64
    first_at: datetime | None
    last_at: datetime | None
    completed_at: datetime | None
    restored_at: datetime | None
    place: str
    """The store of archives that has its files."""


@record
class ArchiveDetails:
    """An archive with its files."""

    archive: ArchiveEntry
    files: list[ArchiveFile]


@record
class RestoredArchive:
    """What a restore of one archive did."""

    id: int
    kind: str
    rows: Int64
    """Rows in its files, or 1 for a segment."""
    restored: Int64
    """Rows that were written; the others were there."""
    into: str
    """`tables`, the name of a schema, or a folder."""
    segments: list[Int64] = field(default_factory=list)
    """Archives of segments that its pages are in, and which are not restored: without them the sources of those pages cannot be read."""


@record
class SegmentGarbage:
    """What `holdfast gc --segments` deleted, or would delete."""

    files: int
    """Files of the archive (WARC) that no page, version or task names."""
    bytes: Int64
    for_backups: int
    """Further ones that a kept backup may name: they stay until those backups are deleted."""
    dry_run: bool
