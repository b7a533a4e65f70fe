"""Replays: pages of crawls that are fetched or parsed again."""

from datetime import datetime
from enum import StrEnum

from holdfast.model.record import Int64, record


class ReplayMode(StrEnum):
    """What is done with the selected pages."""

    FETCH = "fetch"
    """They are queued, and fetched again."""
    PARSE = "parse"
    """They are due for their parsers again, from the archive."""
    LOST = "lost"
    """Those whose bytes were lost with a machine are queued, and fetched again."""


@record
class ReplayedJob:
    """Pages of one job."""

    job: str
    pages: Int64
    skipped: str | None
    """Why none of them is replayed; null: they are."""


@record
class Replay:
    """What a replay did, or would do."""

    mode: str
    """`fetch`, `parse` or `lost`."""
    dry_run: bool
    as_of: datetime
    """Pages that were fetched or parsed since then are left alone: with the same time a replay goes on where it was interrupted."""
    looked_at: Int64
    pages: Int64
    """Pages that are replayed."""
    waiting: Int64
    """Selected pages that wait to be fetched, or are due for their parsers, already."""
    skipped: Int64
    """Selected pages of jobs that are cancelled, and pages of tasks."""
    forgotten: Int64
    """Of lost pages: references to bytes that cannot be fetched again (of skipped pages, and of earlier versions)."""
    jobs: list[ReplayedJob]
