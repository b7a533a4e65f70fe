"""The manifest of archives: what retention has moved out of the store, and where it is.

The rule: a file is in its place before its row, and the transaction that completes an archive deletes what it holds. So every row and every
segment is in the store or in exactly one complete archive, whenever a process is killed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import psycopg

SEGMENT: Final = "segment"
"""The kind of an archive that holds a file of the WARC archive."""

_SEGMENTS: Final = """
SELECT source, id, deleted_at IS NOT NULL FROM archives
WHERE kind = 'segment' AND state = 'complete' AND (%(sources)s::text[] IS NULL OR source = ANY(%(sources)s))
"""
_LOG_BEGINS: Final = "SELECT log_begins_at FROM retention_state"


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """A file of the WARC archive that is in the store of archives."""

    segment: str
    archive_id: int
    deleted: bool
    """Whether its file was deleted from the folder that it was in."""


def archived_segments(
    connection: psycopg.Connection, segments: Sequence[str] | None = None
) -> dict[str, ArchivedSegment]:
    """Return which of these segments are archived; None: of all."""
    rows = connection.execute(_SEGMENTS, {"sources": None if segments is None else list(segments)})
    return {source: ArchivedSegment(source, archive_id, deleted) for source, archive_id, deleted in rows}


def log_begins_at(connection: psycopg.Connection) -> datetime | None:
    """Return since when the log is complete; None: since the beginning of the store."""
    row = connection.execute(_LOG_BEGINS).fetchone()
    return row[0] if row else None
