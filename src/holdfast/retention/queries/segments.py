"""SQL of the steps that move and delete files of the WARC archive.

The rule: a segment stays while a page of a live job, a page of a job that ended lately, a task or a record of such a segment needs it. Its
file stays while a kept backup may name it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import psycopg

from holdfast.model.segment import SegmentState

# Which jobs have ended is found once, and not for each page.
_NEEDED: Final = """
WITH ended AS MATERIALIZED (
    SELECT j.id FROM crawl_jobs j WHERE job_ended_at(j) < clock_timestamp() - %(kept)s::interval
    AND COALESCE(j.kept_until < clock_timestamp(), true)
)
SELECT archive_segment FROM crawled_pages WHERE archive_segment IS NOT NULL AND job_id NOT IN (SELECT id FROM ended)
UNION SELECT archive_segment FROM page_versions WHERE archive_segment IS NOT NULL AND job_id NOT IN (SELECT id FROM ended)
UNION SELECT archive_segment FROM page_parses WHERE job_id NOT IN (SELECT id FROM ended)
UNION SELECT archive_segment FROM crawl_tasks WHERE archive_segment IS NOT NULL
UNION SELECT source FROM archives WHERE kind = 'segment' AND (kept_until > clock_timestamp() OR state = 'complete')
"""
_NAMED: Final = """
SELECT archive_segment FROM crawled_pages WHERE archive_segment IS NOT NULL
UNION SELECT archive_segment FROM page_versions WHERE archive_segment IS NOT NULL
UNION SELECT archive_segment FROM page_parses
UNION SELECT archive_segment FROM crawl_tasks WHERE archive_segment IS NOT NULL
UNION SELECT source FROM archives WHERE kind = 'segment' AND (deleted_at IS NULL OR kept_until > clock_timestamp())
"""
_ORIGINALS: Final = "SELECT segment, originals FROM segment_originals WHERE segment = ANY(%(segments)s)"
_SAVE_ORIGINALS: Final = """
INSERT INTO segment_originals (segment, originals) VALUES (%(segment)s, %(originals)s) ON CONFLICT (segment) DO NOTHING
"""
_FORGET_ORIGINALS: Final = "DELETE FROM segment_originals WHERE segment = %(segment)s"
_COMPLETE: Final = """
UPDATE archives SET state = 'complete', completed_at = clock_timestamp(), rows = 1 WHERE id = %(archive)s AND state = 'writing'
"""
_ARCHIVED: Final = """
SELECT source, id, completed_at FROM archives WHERE kind = 'segment' AND state = 'complete' AND deleted_at IS NULL ORDER BY id
"""
_DELETED: Final = "UPDATE archives SET deleted_at = clock_timestamp() WHERE id = %(archive)s"
# Restored ones are not `complete`; one that has two archives may have been restored from the other.
_COPIES: Final = """
SELECT a.source FROM archives a WHERE a.kind = 'segment' AND a.state = 'complete' AND a.deleted_at IS NOT NULL
AND a.source = ANY(%(segments)s) AND NOT EXISTS (
    SELECT FROM archives k WHERE k.kind = 'segment' AND k.source = a.source AND k.kept_until > clock_timestamp())
"""
_KEEP: Final = """
CREATE TEMPORARY TABLE IF NOT EXISTS kept_segments (segment text PRIMARY KEY);
TRUNCATE kept_segments
"""
_KEPT: Final = "SELECT segment FROM kept_segments WHERE segment = ANY(%(segments)s)"
# An order by folder: what belongs together comes together, whatever the collation says of the slash.
_MANIFEST: Final = """
SELECT split_part(m.segment, '/', 1), m.segment, m.state, COALESCE(m.uploaded_at, m.opened_at), COALESCE(m.bytes, 0),
       COALESCE(m.sha256, ''), k.segment IS NOT NULL
FROM archive_segments m LEFT JOIN kept_segments k ON k.segment = m.segment
WHERE %(folder)s::text IS NULL OR split_part(m.segment, '/', 1) = %(folder)s ORDER BY 1, 2
"""
_FORGET: Final = "DELETE FROM archive_segments WHERE segment = %(segment)s"


CHUNK: Final = 1_000
"""Rows of the manifest that are read at once."""


class ManifestEntry(NamedTuple):
    """A segment, as the manifest of the object store knows it."""

    state: SegmentState
    at: datetime
    """When it was uploaded; if it was not, when it was begun."""
    size: int
    sha256: bytes


class ManifestRow(NamedTuple):
    """A row of the manifest, and whether the segment stays."""

    segment: str
    entry: ManifestEntry
    kept: bool


def keep_needed(connection: psycopg.Connection, kept: timedelta) -> None:
    """Note which segments stay: those that pages, versions and tasks need that are not older than `kept`, and archived ones.

    They are a temporary table of this session: there may be millions.
    """
    _keep(connection, _NEEDED, {"kept": kept})


def keep_named(connection: psycopg.Connection) -> None:
    """Note, likewise, those that any page, version or task names, and those that retention will delete."""
    _keep(connection, _NAMED, {})


def _keep(connection: psycopg.Connection, query: str, values: Mapping[str, object]) -> None:
    with connection.transaction():
        connection.execute("SET LOCAL work_mem = '64MB'")
        connection.execute(_KEEP)
        connection.execute(f"INSERT INTO kept_segments {query}".encode(), values)


def kept_of(connection: psycopg.Connection, segments: Sequence[str]) -> set[str]:
    """Return which of these segments were noted."""
    return {row[0] for row in connection.execute(_KEPT, {"segments": list(segments)})}


def known_originals(connection: psycopg.Connection, segments: Sequence[str]) -> dict[str, set[str]]:
    """Return the segments to which records of these segments refer, where that is known."""
    return {row[0]: set(row[1]) for row in connection.execute(_ORIGINALS, {"segments": list(segments)})}


def save_originals(connection: psycopg.Connection, segment: str, originals: Iterable[str]) -> None:
    """Save to which segments records of a closed segment refer."""
    connection.execute(_SAVE_ORIGINALS, {"segment": segment, "originals": sorted(originals)})


def complete(connection: psycopg.Connection, archive_id: int) -> None:
    """Complete the archive of a segment. Before: its file is in the store of archives, and has its row."""
    connection.execute(_COMPLETE, {"archive": archive_id})


def to_delete(connection: psycopg.Connection) -> dict[str, tuple[int, datetime]]:
    """Return the archived segments whose file was not deleted, of all machines: the archive's id, and since when."""
    return {source: (archive, at) for source, archive, at in connection.execute(_ARCHIVED).fetchall()}


def in_manifest(connection: psycopg.Connection, folder: str | None = None) -> Iterator[tuple[str, list[ManifestRow]]]:
    """Yield the manifest of the object store, a chunk of a folder at a time, all chunks of a folder one after the other. Before: what stays
    is noted. No transaction is open meanwhile."""
    with connection.cursor(f"manifest_{folder is None}", withhold=True) as cursor:
        cursor.execute(_MANIFEST, {"folder": folder})
        while rows := cursor.fetchmany(CHUNK):
            for name, of_it in groupby(rows, key=itemgetter(0)):
                yield name, [ManifestRow(r[1], ManifestEntry(SegmentState(r[2]), *r[3:6]), r[6]) for r in of_it]


def deleted_elsewhere(connection: psycopg.Connection, segments: Sequence[str]) -> list[str]:
    """Return those of these segments that are archived and deleted: a file of one is a copy that is left."""
    return [row[0] for row in connection.execute(_COPIES, {"segments": list(segments)})]


def forget(connection: psycopg.Connection, segment: str) -> None:
    """Forget a segment: where it was, and to which segments its records refer. Before: its file and its object are deleted."""
    with connection.transaction():
        connection.execute(_FORGET_ORIGINALS, {"segment": segment})
        connection.execute(_FORGET, {"segment": segment})


def mark_deleted(connection: psycopg.Connection, archive_id: int, segment: str) -> None:
    """Note that the file of an archived segment, and its object, were deleted. After: the manifest of the object store does not name it."""
    with connection.transaction():
        connection.execute(_DELETED, {"archive": archive_id})
        forget(connection, segment)
