"""SQL of the storage report: sizes of the database and its tables, and their oldest rows.

The rule: read only, and no cost grows with the number of rows: rows are estimated, and the oldest row is the first of an index or a file.
"""

from datetime import datetime
from typing import Final

import psycopg

from holdfast.db.rows import by_name
from holdfast.storage.records import OldestRow, TableSize

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

_as_table: Final = by_name(TableSize)


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
