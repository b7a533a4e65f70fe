"""SQL of the storage report: sizes of the database and its tables, and their oldest rows.

The rule: a report is read only, and no cost of it grows with the number of rows: rows are estimated, and the oldest row is the first of an
index or a file. What costs more is measured once a day.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import psycopg

from holdfast.db.rows import by_name
from holdfast.storage.records import DaySize, DomainSize, OldestRow, TableSize

_DATABASE: Final = "SELECT clock_timestamp(), pg_database_size(current_database())"
# A partition counts for its table. Tables without rows of their own (partitioned ones) have none to add.
_TABLES: Final = """
SELECT CASE WHEN n.nspname = 'public' THEN '' ELSE n.nspname || '.' END || COALESCE(p.relname, c.relname) AS name,
       sum(c.reltuples) FILTER (WHERE c.reltuples >= 0)::bigint AS rows,
       sum(pg_table_size(c.oid))::bigint AS table_bytes, sum(pg_indexes_size(c.oid))::bigint AS index_bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
WHERE c.relkind = 'r' AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
GROUP BY 1 ORDER BY sum(pg_total_relation_size(c.oid)) DESC, 1
"""
# The log has no index by time alone: its partitions are in the order of time, and rows of a partition in that of their writing.
_OLDEST: Final = {
    "crawl_log": "SELECT crawled_at FROM crawl_log LIMIT 1",
    "crawled_pages": "SELECT crawled_at FROM crawled_pages ORDER BY crawled_at LIMIT 1",
    "crawl_tasks": "SELECT created_at FROM crawl_tasks ORDER BY id LIMIT 1",
    "events": "SELECT at FROM events ORDER BY id LIMIT 1",
    "audit_log": "SELECT at FROM audit_log ORDER BY id LIMIT 1",
}


def _table(name: str, rows: int | None, table_bytes: int, index_bytes: int) -> TableSize:
    return TableSize(name, rows, table_bytes, index_bytes)


_as_table: Final = by_name(_table)


def database_size(connection: psycopg.Connection) -> tuple[datetime, int]:
    """Return the time and the bytes of the database."""
    ((at, size),) = connection.execute(_DATABASE).fetchall()
    return at, size


def tables(connection: psycopg.Connection) -> list[TableSize]:
    """Return all tables with their sizes, the largest first."""
    with connection.cursor(row_factory=_as_table) as cursor:
        return cursor.execute(_TABLES).fetchall()


def oldest_rows(connection: psycopg.Connection) -> list[OldestRow]:
    """Return the times of the oldest rows of the tables that grow with time. That of the log is of the row that was written first."""
    found = []
    for table, query in _OLDEST.items():
        row = connection.execute(query).fetchone()
        found.append(OldestRow(table, None if row is None else row[0]))
    return found


# The trend ------------------------------------------------------------------------------------------------------------

TREND_DAYS: Final = 30
"""Days from which the growth is computed."""
DOMAINS: Final = 20
"""Domains that are measured: those from which most was fetched."""
_KEPT_DAYS: Final = 400

_MEASURE: Final = f"""
INSERT INTO storage_days (day, kind, name, rows, bytes)
SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date, m.* FROM (
    SELECT 'database', '', NULL::bigint, pg_database_size(current_database())
    UNION ALL SELECT 'table', name, rows, table_bytes + index_bytes FROM ({_TABLES.replace("%", "%%")}) t
    UNION ALL SELECT 'folder', f.name, NULL, f.bytes FROM unnest(%(folders)s::text[], %(sizes)s::bigint[]) AS f(name, bytes)
    UNION ALL (SELECT 'domain', d.domain, s.pages, s.bytes FROM (
                  SELECT domain_id, sum(pages)::bigint AS pages, sum(bytes)::bigint AS bytes FROM job_domains
                  GROUP BY domain_id ORDER BY sum(bytes) DESC LIMIT {DOMAINS}) s
               JOIN domains d ON d.id = s.domain_id AND d.removed_at IS NULL WHERE s.bytes > 0)
) m (kind, name, rows, bytes)
ON CONFLICT (day, kind, name) DO UPDATE SET rows = excluded.rows, bytes = excluded.bytes
"""  # noqa: S608 — constants
_FORGET: Final = f"DELETE FROM storage_days WHERE day < (clock_timestamp() AT TIME ZONE 'UTC')::date - {_KEPT_DAYS}"  # noqa: S608
_GROWTH: Final = f"""
SELECT kind, name, regr_slope(bytes, day - date '2020-01-01') FROM storage_days
WHERE day >= (clock_timestamp() AT TIME ZONE 'UTC')::date - {TREND_DAYS} AND kind <> 'domain' GROUP BY kind, name
"""  # noqa: S608 — constants
_DAYS: Final = f"""
SELECT day, bytes FROM storage_days
WHERE kind = 'database' AND day >= (clock_timestamp() AT TIME ZONE 'UTC')::date - {TREND_DAYS} ORDER BY day
"""  # noqa: S608 — constants
_DOMAIN_SIZES: Final = f"""
SELECT l.name AS domain, l.rows AS pages, l.bytes,
       (SELECT regr_slope(s.bytes, s.day - date '2020-01-01') FROM storage_days s
        WHERE s.kind = 'domain' AND s.name = l.name AND s.day >= l.day - {TREND_DAYS}) AS bytes_per_day
FROM storage_days l WHERE l.kind = 'domain' AND l.day = (SELECT max(day) FROM storage_days WHERE kind = 'domain')
ORDER BY l.bytes DESC, l.name
"""  # noqa: S608 — constants


def measure(connection: psycopg.Connection, folders: Mapping[str, int]) -> None:
    """Store the sizes of today: the database, its tables, the largest domains, these folders of a machine. Those of today are replaced."""
    with connection.transaction():
        connection.execute(_MEASURE, {"folders": list(folders), "sizes": list(folders.values())})
        connection.execute(_FORGET)


def growth(connection: psycopg.Connection) -> dict[tuple[str, str], float]:
    """Return by how many bytes a day the database, tables and folders grew lately, by kind and name."""
    return {(kind, name): slope for kind, name, slope in connection.execute(_GROWTH) if slope is not None}


def days(connection: psycopg.Connection) -> list[DaySize]:
    """Return the size of the database on the last days, the oldest first."""
    with connection.cursor(row_factory=by_name(DaySize)) as cursor:
        return cursor.execute(_DAYS).fetchall()


def domain_sizes(connection: psycopg.Connection) -> list[DomainSize]:
    """Return the domains from which most was fetched, as they were measured last."""
    with connection.cursor(row_factory=by_name(DomainSize)) as cursor:
        return cursor.execute(_DOMAIN_SIZES).fetchall()
