"""SQL of the manifest of the archive, as operators see and change it. What the crawl path writes is in `db/archive_segments`."""

from typing import Final

import psycopg
from psycopg.rows import class_row

from holdfast.segments.records import ArchiveMachine, Segment

_MACHINES: Final = """
SELECT m.id, m.name, COALESCE(s.open, 0) AS open, COALESCE(s.waiting, 0) AS waiting, m.waiting_bytes,
       COALESCE(s.uploaded, 0) AS uploaded, COALESCE(s.uploaded_bytes, 0)::bigint AS uploaded_bytes, COALESCE(s.lost, 0) AS lost,
       m.seen_at, m.lost_at, m.problem, m.problem_since
FROM archive_machines m LEFT JOIN (
    SELECT machine_id, count(*) FILTER (WHERE state = 'open') AS open, count(*) FILTER (WHERE state = 'local') AS waiting,
           count(*) FILTER (WHERE state = 'uploaded') AS uploaded, sum(bytes) FILTER (WHERE state = 'uploaded') AS uploaded_bytes,
           count(*) FILTER (WHERE state = 'lost') AS lost
    FROM archive_segments GROUP BY machine_id) s ON s.machine_id = m.id
ORDER BY m.name, m.id
"""
_SEGMENTS: Final = """
SELECT s.segment, m.name AS machine, s.state, s.bytes, encode(s.sha256, 'hex') AS sha256, s.opened_at, s.uploaded_at, s.lost_at
FROM archive_segments s JOIN archive_machines m ON m.id = s.machine_id
WHERE s.segment > %(after)s AND (%(state)s::text IS NULL OR s.state = %(state)s) AND (%(machine)s::text IS NULL OR m.name = %(machine)s)
ORDER BY s.segment LIMIT %(limit)s
"""
_ON_MACHINE: Final = """
SELECT segment FROM archive_segments WHERE machine_id = %s AND state IN ('open', 'local') ORDER BY segment
"""
_LOSE: Final = """
UPDATE archive_segments SET state = 'lost', lost_at = clock_timestamp() WHERE machine_id = %s AND state IN ('open', 'local')
"""
_COUNT: Final = """
SELECT (SELECT count(*) FROM crawled_pages WHERE archive_segment = ANY(%(segments)s)),
       (SELECT count(*) FROM page_versions WHERE archive_segment = ANY(%(segments)s))
"""
_ALIVE: Final = """
SELECT name, extract(epoch FROM clock_timestamp() - heartbeat_at)::float8 FROM workers
WHERE ended_at IS NULL AND heartbeat_at > clock_timestamp() - interval '120 seconds' ORDER BY name
"""


def machines(connection: psycopg.Connection) -> list[ArchiveMachine]:
    """Return all machines, by name."""
    with connection.cursor(row_factory=class_row(ArchiveMachine)) as cursor:
        return cursor.execute(_MACHINES).fetchall()


def segments(
    connection: psycopg.Connection, *, state: str | None, machine: str | None, after: str, limit: int
) -> list[Segment]:
    """Return segments after a name, by name."""
    values = {"state": state, "machine": machine, "after": after, "limit": limit}
    with connection.cursor(row_factory=class_row(Segment)) as cursor:
        return cursor.execute(_SEGMENTS, values).fetchall()


def only_on(connection: psycopg.Connection, machine_id: int) -> list[str]:
    """Return the segments that only this machine has."""
    return [row[0] for row in connection.execute(_ON_MACHINE, (machine_id,))]


def lose(connection: psycopg.Connection, machine_id: int) -> None:
    """Declare a machine lost, with all that the object store does not have of it."""
    connection.execute(_LOSE, (machine_id,))
    connection.execute(
        "UPDATE archive_machines SET lost_at = clock_timestamp(), waiting_bytes = 0, problem = NULL, problem_since = NULL WHERE id = %s",
        (machine_id,),
    )


def count_pages(connection: psycopg.Connection, segments: list[str]) -> tuple[int, int]:
    """Return how many pages, and how many earlier versions of pages, are in these segments. Before: a transaction is open."""
    connection.execute("SET LOCAL statement_timeout = 0")
    row = connection.execute(_COUNT, {"segments": segments}).fetchone()
    assert row is not None  # noqa: S101 — a row of two counts
    return int(row[0]), int(row[1])


def living_workers(connection: psycopg.Connection) -> list[tuple[str, float]]:
    """Return the workers that were heard of in the last two minutes, with the seconds since then."""
    return connection.execute(_ALIVE).fetchall()
