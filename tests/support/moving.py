"""Stores that move: what a test compares, and where to."""

from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg import sql

from holdfast.control.store_move import Destination, MoveService
from holdfast.db.connection import Database

ANEW = {
    "crawl_log": (),
    "domains": ("claim_epoch", "claimed_by", "claim_expires_at", "updated_at", "priority_computed_at"),
    "claim_log": ("ended_at", "why"),
    "crawl_runs": ("status", "completed_at", "in_window", "error_message"),
    "workers": ("ended_at", "activity", "activity_at"),
    "job_domains": ("ready", "priority", "granted"),
    "crawls": ("pages_granted",),
    "duties": ("mark",),
    "store_identity": ("generation",),
    "documents": ("changed",),
}
"""Columns that a new generation or another server sets."""
OWN = {"schema_version", "store_move", "document_deletions", "rate_keys", "rate_hits", "audit_log", "events"}
"""Tables that are not the same in both: a new generation is an entry in the audit log, and ends runs, which are events."""


def old_weeks(connection: psycopg.Connection) -> None:
    """Rows of the log in three partitions of weeks that are over."""
    for weeks in (5, 4, 3):
        connection.execute(
            sql.SQL("CREATE TABLE {} PARTITION OF crawl_log FOR VALUES FROM ({}) TO ({})").format(
                sql.Identifier(f"crawl_log_2020010{weeks}"),
                sql.Literal(f"2020-0{weeks}-01 00:00:00+00"),
                sql.Literal(f"2020-0{weeks}-08 00:00:00+00"),
            )
        )
        connection.execute(
            """
            INSERT INTO crawl_log (domain_id, job_id, claim_epoch, crawled_at, url_key, outcome, page_url)
            SELECT 1, 1, 1, %s::timestamptz + n * interval '1 minute', decode(md5(n::text), 'hex'), 'ok', E'http://a/\\\\t\\t\\n' || n
            FROM generate_series(1, 1000) n
            """,
            (f"2020-0{weeks}-01",),
        )


def rows_of(connection: psycopg.Connection) -> dict[str, str]:
    """An MD5 of the sorted rows of each table, found by another way than the move's own."""
    tables = connection.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind IN ('r', 'p') AND n.nspname IN ('public', 'procrastinate') ORDER BY 1, 2"
    ).fetchall()
    found = {}
    for schema, name in tables:
        if name in OWN:
            continue
        columns = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = format('%%I.%%I', %s::text, %s::text)::regclass AND attnum > 0 "
            "AND NOT attisdropped AND attname <> ALL(%s) ORDER BY attnum",
            (schema, name, list(ANEW.get(name, ()))),
        )
        query = sql.SQL(
            "SELECT count(*) || ' ' || COALESCE(md5(string_agg(r::text, E'\\n' ORDER BY r::text COLLATE \"C\")), '') "
            "FROM (SELECT {} FROM {}) r"
        ).format(sql.SQL(", ").join(sql.Identifier(column) for (column,) in columns), sql.Identifier(schema, name))
        row = connection.execute(query).fetchone()
        assert row is not None
        found[f"{schema}.{name}"] = row[0]
    return found


def events_of(connection: psycopg.Connection) -> list[tuple[object, ...]]:
    return connection.execute(
        "SELECT id, at, kind, job_id, domain_id, domain, data FROM events ORDER BY xid, id"
    ).fetchall()


def sequences_of(connection: psycopg.Connection) -> list[tuple[object, ...]]:
    query = (
        "SELECT schemaname, sequencename, last_value FROM pg_sequences "
        "WHERE sequencename NOT IN ('audit_log_id_seq', 'events_id_seq') ORDER BY 1, 2"
    )
    return connection.execute(query).fetchall()


def to_database(database: Database, name: str = "db.example:5432/holdfast") -> Destination:
    return Destination(lambda: database, name, "set HOLDFAST_DATABASE_URL to the address of that database")


def mover(
    source: Database, destination: Destination, *, patience: float = 1.0, say: Callable[[str], None] = lambda _: None
) -> MoveService:
    return MoveService(source, destination, data=Path("/nonexistent"), actor="test", say=say, lock_timeout=patience)


def yes(_: float) -> None:
    """Agree to the pause."""
