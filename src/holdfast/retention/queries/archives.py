"""SQL of archives: their list, and the restore of their rows."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

from holdfast.db.rows import by_name
from holdfast.errors import NotFound
from holdfast.retention.records import ArchiveEntry, ArchiveFile, ArchiveSummary

_LOCK: Final = "SELECT pg_try_advisory_lock(hashtextextended('holdfast retention', 0))"
_UNLOCK: Final = "SELECT pg_advisory_unlock(hashtextextended('holdfast retention', 0))"
_COLUMNS: Final = """
a.id, a.kind, a.state, j.name AS job, a.source, a.rows, (SELECT COALESCE(sum(f.bytes), 0)::bigint FROM archive_files f
WHERE f.archive_id = a.id) AS bytes, a.first_at, a.last_at, a.completed_at, a.restored_at, a.place
"""
_FROM: Final = "FROM archives a LEFT JOIN crawl_jobs j ON j.id = a.job_id AND j.deleted_at IS NULL"
_LIST: Final = f"""
SELECT {_COLUMNS} {_FROM} WHERE a.id < %(before)s AND (%(kind)s::text IS NULL OR a.kind = %(kind)s)
  AND (%(job)s::bigint IS NULL OR a.job_id = %(job)s) AND (%(state)s::text IS NULL OR a.state = %(state)s)
ORDER BY a.id DESC LIMIT %(limit)s
"""
_GET: Final = f"SELECT {_COLUMNS} {_FROM} WHERE a.id = %(id)s"
_FILES: Final = """
SELECT table_name, key, rows, bytes, encode(sha256, 'hex') AS sha256 FROM archive_files WHERE archive_id = %(id)s ORDER BY number
"""
_MATCHING: Final = """
SELECT id FROM archives WHERE state = 'complete' AND (%(kind)s::text IS NULL OR kind = %(kind)s)
  AND (%(job)s::bigint IS NULL OR job_id = %(job)s) ORDER BY id
"""
_NEEDED: Final = """
SELECT a.id FROM archives a JOIN (SELECT DISTINCT archive_segment FROM {source}) s ON s.archive_segment = a.source
WHERE a.kind = 'segment' AND a.state = 'complete'
"""
_SUMMARY: Final = """
SELECT a.kind, count(*) AS archives, sum(a.rows)::bigint AS rows, COALESCE(sum(f.bytes), 0)::bigint AS bytes,
       min(a.first_at) AS first_at, max(a.last_at) AS last_at
FROM archives a LEFT JOIN (SELECT archive_id, sum(bytes) AS bytes FROM archive_files GROUP BY archive_id) f ON f.archive_id = a.id
WHERE a.state = 'complete' GROUP BY a.kind ORDER BY a.kind
"""
_LOCK_ARCHIVE: Final = "SELECT state, kind, job_id, source FROM archives WHERE id = %(id)s FOR UPDATE"
_RESTORED: Final = """
UPDATE archives SET state = 'restored', restored_at = clock_timestamp(), kept_until = clock_timestamp() + %(keep)s WHERE id = %(id)s
"""
_KEEP_JOB: Final = """
UPDATE crawl_jobs SET kept_until = GREATEST(kept_until, clock_timestamp() + %(keep)s) WHERE id = %(job)s AND deleted_at IS NULL
RETURNING id
"""
# Rows that were archived by their age are of many jobs; they are locked in this order, as by others.
_KEEP_JOBS: Final = """
WITH locked AS MATERIALIZED (
    SELECT id FROM crawl_jobs WHERE id IN (SELECT job_id FROM {source}) AND deleted_at IS NULL ORDER BY id FOR NO KEY UPDATE
)
UPDATE crawl_jobs j SET kept_until = GREATEST(j.kept_until, clock_timestamp() + %(keep)s) FROM locked WHERE j.id = locked.id
"""
_LOOK_AGAIN: Final = "DELETE FROM retention_progress WHERE job_id = %(job)s"
_TEMPORARY: Final = "CREATE TEMP TABLE {target} (LIKE {table} INCLUDING DEFAULTS) ON COMMIT DROP"
# Rows of domains that were removed since stay in the archive.
_INSERT_URLS: Final = """
WITH locked AS MATERIALIZED (
    SELECT id FROM domains WHERE id IN (SELECT domain_id FROM {source}) AND removed_at IS NULL ORDER BY id FOR UPDATE
), work AS (
    INSERT INTO job_domains (domain_id, job_id, state) SELECT id, %(job)s, 'done' FROM locked ORDER BY id ON CONFLICT DO NOTHING
), added AS (
    INSERT INTO url_frontier ({columns}) SELECT {columns} FROM {source} s JOIN locked ON locked.id = s.domain_id
    ORDER BY s.domain_id, s.job_id, s.url_key ON CONFLICT DO NOTHING RETURNING domain_id, state
)
SELECT domain_id, count(*), count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state = 'denied'),
       count(*) FILTER (WHERE state = 'failed') FROM added GROUP BY domain_id ORDER BY domain_id
"""
_COUNT_URLS: Final = "SELECT add_counts(%(domain)s, %(job)s, 0, %(done)s, %(denied)s, %(failed)s)"
# What the roll-up had of them the job counts again; the domain has discovered as much as before.
_ROLL_BACK: Final = """
WITH had AS (
    SELECT LEAST(r.discovered, %(urls)s) AS urls FROM crawl_log_rollups r WHERE r.domain_id = %(domain)s AND r.job_id = %(job)s FOR UPDATE
), rolled AS (
    UPDATE crawl_log_rollups r SET discovered = r.discovered - had.urls FROM had WHERE r.domain_id = %(domain)s AND r.job_id = %(job)s
)
UPDATE domains d SET pages_discovered = d.pages_discovered - had.urls FROM had WHERE d.id = %(domain)s
"""
# Only where the page is there, and no newer row is.
_INSERT: Final = "INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {source} s {where} ON CONFLICT DO NOTHING"
_OF_PAGE: Final = """
WHERE EXISTS (SELECT FROM crawled_pages p WHERE p.domain_id = s.domain_id AND p.job_id = s.job_id AND p.url_key = s.url_key)
"""
_OF_URL: Final = """
WHERE EXISTS (SELECT FROM url_frontier f WHERE f.domain_id = s.domain_id AND f.job_id = s.job_id AND f.url_key = s.url_key)
"""
_OF_PARSE: Final = """
WHERE EXISTS (SELECT FROM page_parses p WHERE p.domain_id = s.domain_id AND p.job_id = s.job_id AND p.url_key = s.url_key
              AND p.parser = s.parser)
"""
_WHERE: Final[dict[str, LiteralString]] = {
    "crawled_pages": _OF_URL,
    "sitemaps": _OF_URL,
    "link_answers": _OF_URL,
    "page_versions": _OF_PAGE,
    "page_texts": _OF_PAGE,
    "page_links": _OF_PAGE,
    "page_parses": _OF_PAGE,
    "documents": _OF_PAGE,
    "items": _OF_PARSE,
}
INTO_TABLES: Final = frozenset(
    {"frontier_completed", "frontier_failed", "pages", "content", "versions", "log", "segment"}
)
"""Kinds of archives that go back into their tables. The others are history that triggers counted once; they go into a schema."""
_DERIVED: Final = {"documents": frozenset({"changed"})}
"""Columns that are written anew: so a search index sees the document."""


def try_lock(connection: psycopg.Connection) -> bool:
    """Take the lock of retention for this session; False if another one has it."""
    row = connection.execute(_LOCK).fetchone()
    return bool(row and row[0])


def unlock(connection: psycopg.Connection) -> None:
    """Free the lock of retention."""
    if not connection.broken:
        connection.execute(_UNLOCK)


def listing(
    connection: psycopg.Connection,
    *,
    kind: str | None = None,
    job_id: int | None = None,
    state: str | None = None,
    before: int | None = None,
    limit: int = 100,
) -> list[ArchiveEntry]:
    """Return archives, the newest first; `before` is the last id of the page before."""
    values = {"kind": kind, "job": job_id, "state": state, "before": 2**63 - 1 if before is None else before}
    with connection.cursor(row_factory=by_name(ArchiveEntry)) as cursor:
        return cursor.execute(_LIST, values | {"limit": limit}).fetchall()


def get(connection: psycopg.Connection, archive_id: int) -> ArchiveEntry:
    """Return one archive. Raises NotFound."""
    with connection.cursor(row_factory=by_name(ArchiveEntry)) as cursor:
        found = cursor.execute(_GET, {"id": archive_id}).fetchone()
    if found is None:
        raise NotFound(f"There is no archive {archive_id}; `holdfast archive list` shows all.")
    return found


def files(connection: psycopg.Connection, archive_id: int) -> list[ArchiveFile]:
    """Return the files of an archive."""
    with connection.cursor(row_factory=by_name(ArchiveFile)) as cursor:
        return cursor.execute(_FILES, {"id": archive_id}).fetchall()


def matching(connection: psycopg.Connection, *, kind: str | None, job_id: int | None) -> list[int]:
    """Return the ids of complete archives, the oldest first."""
    return [row[0] for row in connection.execute(_MATCHING, {"kind": kind, "job": job_id})]


def summary(connection: psycopg.Connection) -> list[ArchiveSummary]:
    """Return what is archived, by kind."""
    with connection.cursor(row_factory=by_name(ArchiveSummary)) as cursor:
        return cursor.execute(_SUMMARY).fetchall()


# Restore --------------------------------------------------------------------------------------------------------------


def lock(connection: psycopg.Connection, archive_id: int) -> tuple[str, str, int | None, str | None]:
    """Lock an archive, and return its state, kind, job and source. Before: a transaction is open. Raises NotFound."""
    row = connection.execute(_LOCK_ARCHIVE, {"id": archive_id}).fetchone()
    if row is None:
        raise NotFound(f"There is no archive {archive_id}; `holdfast archive list` shows all.")
    return row[0], row[1], row[2], row[3]


def mark_restored(connection: psycopg.Connection, archive_id: int, keep: timedelta) -> None:
    """Note that an archive is back in the store, and is not archived again before `keep` has passed."""
    connection.execute(_RESTORED, {"id": archive_id, "keep": keep})


def keep_job(connection: psycopg.Connection, job_id: int, keep: timedelta) -> bool:
    """Lock a job, and keep its rows for `keep`; False if it was deleted. Before: a transaction is open."""
    connection.execute(_LOOK_AGAIN, {"job": job_id})
    return connection.execute(_KEEP_JOB, {"job": job_id, "keep": keep}).fetchone() is not None


def keep_jobs(connection: psycopg.Connection, source: str, keep: timedelta) -> None:
    """Keep the rows of all jobs that rows of a temporary table belong to for `keep`. Before: a transaction is open."""
    connection.execute(sql.SQL(_KEEP_JOBS).format(source=sql.Identifier(source)), {"keep": keep}, prepare=False)


def columns_there(connection: psycopg.Connection, table: str) -> set[str]:
    """Return the names of the columns of a table of this schema."""
    query = """
        SELECT a.attname FROM pg_attribute a
        WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    """
    return {row[0] for row in connection.execute(query, {"table": table})}


def make_temporary(connection: psycopg.Connection, table: str) -> str:
    """Make an empty temporary table like `table`, and return its name. Before: a transaction is open; it is gone with its end."""
    name = f"restored_{table}"
    connection.execute(
        sql.SQL(_TEMPORARY).format(target=sql.Identifier(name), table=sql.Identifier("public", table)), prepare=False
    )
    return name


def drop_temporary(connection: psycopg.Connection, name: str) -> None:
    """Drop a temporary table before the end of its transaction."""
    connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier("pg_temp", name)), prepare=False)


def make_for_analysis(connection: psycopg.Connection, schema: str, table: str) -> None:
    """Make a table like `table`, without its keys and checks, and with the id of the archive. Before: a transaction is open."""
    place = sql.Identifier(schema, table)
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
    connection.execute(
        sql.SQL("CREATE TABLE IF NOT EXISTS {} (LIKE {})").format(place, sql.Identifier("public", table))
    )
    connection.execute(sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS archive_id bigint").format(place))
    nullable = connection.execute(
        """SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND attnotnull AND NOT attisdropped
           AND attidentity = ''""",
        (place.as_string(connection),),
    ).fetchall()
    if nullable:
        drops = sql.SQL(", ").join(
            sql.SQL("ALTER COLUMN {} DROP NOT NULL").format(sql.Identifier(row[0])) for row in nullable
        )
        connection.execute(sql.SQL("ALTER TABLE {} {}").format(place, drops))


def replace_for_analysis(connection: psycopg.Connection, schema: str, table: str, archive_id: int) -> None:
    """Delete what an earlier restore of an archive put into a table for analysis."""
    connection.execute(
        sql.SQL("DELETE FROM {} WHERE archive_id = %s OR archive_id IS NULL").format(sql.Identifier(schema, table)),
        (archive_id,),
    )


def sign_for_analysis(connection: psycopg.Connection, schema: str, table: str, archive_id: int) -> None:
    """Note from which archive rows of a table for analysis came."""
    connection.execute(
        sql.SQL("UPDATE {} SET archive_id = %s WHERE archive_id IS NULL").format(sql.Identifier(schema, table)),
        (archive_id,),
    )


def copy_rows(
    connection: psycopg.Connection, target: Sequence[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> int:
    """Copy rows into a table; return how many. `target`: its name, or the names of its schema and of itself."""
    query = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(*target), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    count = 0
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        for row in rows:
            copy.write_row(row)
            count += 1
    return count


def insert_urls(connection: psycopg.Connection, source: str, columns: Sequence[str], job_id: int) -> int:
    """Insert URLs from a temporary table where there are none, and count them; return how many. Before: the job is locked."""
    query = sql.SQL(_INSERT_URLS).format(source=sql.Identifier(source), columns=_names(columns))
    added = connection.execute(query, {"job": job_id}, prepare=False).fetchall()
    for domain_id, urls, done, denied, failed in added:
        values = {"domain": domain_id, "job": job_id, "urls": urls, "done": done, "denied": denied, "failed": failed}
        connection.execute(_COUNT_URLS, values)
        connection.execute(_ROLL_BACK, values)
    return sum(row[1] for row in added)


def insert(connection: psycopg.Connection, table: str, source: str, columns: Sequence[str]) -> int:
    """Insert rows from a temporary table where there are none; return how many."""
    kept = [name for name in columns if name not in _DERIVED.get(table, ())]
    query = sql.SQL(_INSERT).format(
        table=sql.Identifier(table),
        source=sql.Identifier(source),
        columns=_names(kept),
        where=sql.SQL(_WHERE.get(table, "")),
    )
    return connection.execute(query, prepare=False).rowcount


def segments_needed(connection: psycopg.Connection, source: str) -> set[int]:
    """Return the ids of complete archives of segments that rows of a temporary table name."""
    query = sql.SQL(_NEEDED).format(source=sql.Identifier(source))
    return {row[0] for row in connection.execute(query, prepare=False)}


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
