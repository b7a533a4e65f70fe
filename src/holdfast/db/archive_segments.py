"""The manifest of the archive: which machine has which segment, and which of them the object store has.

The rule: a segment is known here before a row points into it, and it is `uploaded` only when the object store has all of its bytes. So a
reader can always say where a page is. Written only where an object store is set.
"""

from collections.abc import Sequence
from typing import Final

import psycopg

from holdfast.model.segment import SegmentPlace, SegmentState

# A machine that is heard of is not lost, whatever was said.
_MACHINE: Final = """
INSERT INTO archive_machines AS m (folder_id, name) VALUES (%(folder_id)s, %(name)s)
ON CONFLICT (folder_id) DO UPDATE SET name = excluded.name, seen_at = clock_timestamp(), lost_at = NULL RETURNING id
"""
_OPENED: Final = f"""
WITH machine AS ({_MACHINE})
INSERT INTO archive_segments AS s (segment, machine_id) SELECT %(segment)s, id FROM machine
ON CONFLICT (segment) DO UPDATE SET found = false WHERE s.found AND s.machine_id = excluded.machine_id
"""  # noqa: S608 — composed of the constant above only
# What another machine has is its own affair: here may be a part of it only.
_FOUND: Final = """
INSERT INTO archive_segments (segment, machine_id, state, found)
SELECT f.segment, %(machine)s, 'local', true FROM unnest(%(segments)s::text[]) AS f(segment)
WHERE NOT EXISTS (SELECT FROM archives a WHERE a.kind = 'segment' AND a.state = 'complete' AND a.source = f.segment
                  AND a.deleted_at IS NOT NULL)
ON CONFLICT (segment) DO UPDATE SET state = 'local', lost_at = NULL
WHERE archive_segments.machine_id = excluded.machine_id AND archive_segments.state = 'lost'
"""
_WAITING: Final = """
SELECT segment, found FROM archive_segments WHERE machine_id = %(machine)s AND state IN ('open', 'local')
ORDER BY found, opened_at, segment LIMIT %(limit)s
"""
_CLOSED: Final = """
UPDATE archive_segments SET state = 'local', bytes = %(bytes)s, sha256 = %(sha256)s
WHERE segment = %(segment)s AND machine_id = %(machine)s AND (state = 'open' OR (state = 'local' AND sha256 IS DISTINCT FROM %(sha256)s))
"""
_UPLOADED: Final = """
UPDATE archive_segments SET state = 'uploaded', bytes = %(bytes)s, sha256 = %(sha256)s, uploaded_at = clock_timestamp(), lost_at = NULL
WHERE segment = %(segment)s AND machine_id = %(machine)s
"""
_GONE: Final = """
UPDATE archive_segments SET state = 'lost', lost_at = clock_timestamp()
WHERE segment = %(segment)s AND machine_id = %(machine)s AND state IN ('open', 'local')
"""
_REPORT: Final = """
UPDATE archive_machines SET waiting_bytes = %(bytes)s, problem = %(problem)s,
    problem_since = CASE WHEN %(problem)s::text IS NOT NULL THEN COALESCE(problem_since, clock_timestamp()) END
WHERE id = %(machine)s AND (waiting_bytes, problem) IS DISTINCT FROM (%(bytes)s, %(problem)s::text)
"""
_PLACE: Final = """
SELECT m.name, s.state FROM archive_segments s JOIN archive_machines m ON m.id = s.machine_id WHERE s.segment = %s
"""
WAITING_AT_ONCE: Final = 1_000


def machine(connection: psycopg.Connection, folder_id: str, name: str) -> int:
    """Return the id of a machine by the id of its archive folder. After: it is known, by this name, and not lost."""
    row = connection.execute(_MACHINE, {"folder_id": folder_id, "name": name}).fetchone()
    assert row is not None  # noqa: S101 — RETURNING
    return int(row[0])


def opened(connection: psycopg.Connection, folder_id: str, name: str, segment: str) -> None:
    """Record a new segment of a machine. Before: nothing. After (with the commit): it is known; calling again changes nothing."""
    connection.execute(_OPENED, {"folder_id": folder_id, "name": name, "segment": segment})


def found(connection: psycopg.Connection, machine_id: int, segments: Sequence[str]) -> None:
    """Record segments that are on the disk of a machine. After: those that no machine had, and those that were lost with this one, wait to
    be uploaded; all others are as they were, and what retention has archived and deleted is not uploaded again."""
    connection.execute(_FOUND, {"machine": machine_id, "segments": sorted(segments)})


def waiting(connection: psycopg.Connection, machine_id: int, *, limit: int = WAITING_AT_ONCE) -> list[tuple[str, bool]]:
    """Return segments of a machine that the object store does not have yet, the oldest first; open ones, too. Each with whether it was
    written before there was an object store; those come last."""
    return connection.execute(_WAITING, {"machine": machine_id, "limit": limit}).fetchall()


def closed(connection: psycopg.Connection, machine_id: int, segment: str, size: int, sha256: bytes) -> None:
    """Record that a segment is finished, with its size and hash."""
    connection.execute(_CLOSED, {"machine": machine_id, "segment": segment, "bytes": size, "sha256": sha256})


def uploaded(connection: psycopg.Connection, machine_id: int, segment: str, size: int, sha256: bytes) -> None:
    """Record that the object store has a segment. Before: it has all of these bytes."""
    connection.execute(_UPLOADED, {"machine": machine_id, "segment": segment, "bytes": size, "sha256": sha256})


def gone(connection: psycopg.Connection, machine_id: int, segment: str) -> bool:
    """Record that a segment is not on the disk of its machine any more. Returns False if the object store has it."""
    return connection.execute(_GONE, {"machine": machine_id, "segment": segment}).rowcount > 0


def report(connection: psycopg.Connection, machine_id: int, waiting_bytes: int, problem: str | None) -> None:
    """Record how many bytes of a machine wait to be uploaded, and why they cannot be uploaded at present."""
    connection.execute(_REPORT, {"machine": machine_id, "bytes": waiting_bytes, "problem": problem})


def states(connection: psycopg.Connection, segments: Sequence[str]) -> dict[str, SegmentState]:
    """Return the states of those of these segments that are known."""
    query = "SELECT segment, state FROM archive_segments WHERE segment = ANY(%s)"
    return {segment: SegmentState(state) for segment, state in connection.execute(query, (list(segments),))}


def place(connection: psycopg.Connection, segment: str) -> SegmentPlace | None:
    """Return where a segment is; None: it was written where no object store is set."""
    row = connection.execute(_PLACE, (segment,)).fetchone()
    return None if row is None else SegmentPlace(row[0], SegmentState(row[1]))
