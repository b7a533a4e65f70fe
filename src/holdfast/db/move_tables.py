"""The tables of a store as `holdfast db move` sees them: what is copied, in which form, and how two copies are compared.

The rule: rows travel as text (COPY), which every version of PostgreSQL that Holdfast knows reads alike, and are compared by their number
and by a sum of hashes of their text, which depends neither on their order nor on the server.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

import psycopg
from psycopg import sql

from holdfast.db import own_tables
from holdfast.db.connection import Database
from holdfast.db.rows import by_name

QUEUE: Final = "procrastinate"
"""The schema of the job queue."""

_LEFT_OUT: Final = ("schema_version", "store_move", "document_deletions", "backup_following")
"""The revision, the move and how far backups follow its log are the database's own. Deletions of documents are for search indexes, which a
new generation builds anew. Counters of requests are in unlogged tables, and begin at zero."""
_FIRST_XID: Final = "'3'::xid8"
_REPLACED: Final = {("events", "xid"): _FIRST_XID, ("documents", "changed"): _FIRST_XID}
"""Numbers of transactions mean something on one server only: on the next one, these were written by its first."""
_FORMAT: Final = """
SET client_encoding = 'UTF8'; SET datestyle = 'ISO, MDY'; SET intervalstyle = 'postgres'; SET extra_float_digits = 1;
SET bytea_output = 'hex'; SET timezone = 'UTC'; SET lock_timeout = 0; SET maintenance_work_mem = '256MB'
"""
# A partition whose week is over by an hour gets no more rows.
_TABLES: Final = """
SELECT n.nspname AS schema, c.relname AS name, n.nspname = current_schema() AS main,
       (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '') AS columns,
       p.relname AS parent, pg_get_expr(c.relpartbound, c.oid) AS bound,
       COALESCE((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \\(''([^'']+)''\\)'))[1]::timestamptz
           < clock_timestamp() - interval '1 hour', false) AS closed,
       pg_table_size(c.oid) AS bytes, pg_indexes_size(c.oid) AS index_bytes, GREATEST(c.reltuples, 0)::bigint AS rows
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname IN (current_schema(), %(queue)s) AND c.relname <> ALL(%(left_out)s)
  AND (n.nspname = %(queue)s OR COALESCE(p.relname, c.relname) = ANY(%(own)s))
ORDER BY pg_table_size(c.oid) DESC, n.nspname, c.relname
"""
_SEQUENCES: Final = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'S' AND n.nspname IN (current_schema(), %s) ORDER BY 1, 2
"""
_PAGES_A_CHUNK: Final = 16_384
"""Pages of a table that are copied in one transaction while the crawl goes on: 128 MB, since an open snapshot slows claims."""

_WRITE_BYTES: Final = 256 * 1024
"""Bytes that are written at once: a call for each row would cost more than the row."""


class Table(NamedTuple):
    """A table that has rows of its own."""

    schema: str
    name: str
    main: bool
    """It is in the schema of Holdfast, not in that of the queue."""
    columns: Sequence[str]
    """Those that are not generated."""
    parent: str | None
    bound: str | None
    closed: bool
    """A partition that gets no more rows."""
    bytes: int
    index_bytes: int
    rows: int
    """As the planner estimates them."""

    @property
    def key(self) -> str:
        """The name for people, and among the tables of a move."""
        return self.name if self.main else f"{self.schema}.{self.name}"

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.name) if self.main else sql.Identifier(self.schema, self.name)


class Fingerprint(NamedTuple):
    """What the rows of a table are, whatever their order."""

    rows: int
    hash: str


class SequenceValue(NamedTuple):
    """A sequence and where it is."""

    schema: str
    name: str
    last: int
    called: bool


@contextmanager
def open_side(database: Database, role: str) -> Iterator[psycopg.Connection]:
    """A connection without timeouts, whose text form of values is the same on every server. Errors are raised as StoreError."""
    patient = replace(database, statement_timeout=0, idle_timeout=0, application=f"holdfast move {role}")
    with patient.session() as connection:
        connection.execute(_FORMAT, prepare=False)
        yield connection


def tables(connection: psycopg.Connection) -> list[Table]:
    """All tables that are copied, the largest first: those of Holdfast and of its queue."""
    with connection.cursor(row_factory=by_name(Table)) as cursor:
        return cursor.execute(
            _TABLES, {"queue": QUEUE, "left_out": list(_LEFT_OUT), "own": list(own_tables.names())}
        ).fetchall()


def place(connection: psycopg.Connection) -> tuple[str, str]:
    """Which database of which server it is, by whatever address it was reached."""
    row = connection.execute("SELECT (pg_control_system()).system_identifier::text, current_database()").fetchone()
    assert row is not None  # noqa: S101 — a function has a value
    return str(row[0]), str(row[1])


def sequences(connection: psycopg.Connection) -> list[SequenceValue]:
    """All sequences with their values."""
    found = []
    for schema, name in connection.execute(_SEQUENCES, (QUEUE,)).fetchall():
        query = sql.SQL("SELECT last_value, is_called FROM {}").format(sql.Identifier(schema, name))
        row = connection.execute(query).fetchone()
        assert row is not None  # noqa: S101 — a sequence has a row, always
        found.append(SequenceValue(schema, name, *row))
    return found


def fingerprint(connection: psycopg.Connection, table: Table) -> Fingerprint:
    """The number of rows, and the sum of their hashes as they arrive at the other database."""
    query = sql.SQL(
        'SELECT count(*), COALESCE(sum(hashtextextended(ROW({columns})::text COLLATE "C", 0)), 0)::text FROM ONLY {table}'
    ).format(columns=_expressions(table), table=table.identifier)
    row = connection.execute(query, prepare=False).fetchone()
    assert row is not None  # noqa: S101 — an aggregate has a row
    return Fingerprint(*row)


def copy_rows(
    source: psycopg.Connection,
    target: psycopg.Connection,
    table: Table,
    *,
    in_chunks: bool,
    progress: Callable[[int, int], None],
) -> int:
    """Copy all rows of a table; how many. `progress` is called with the rows and bytes since its last call.

    Before: the table in the target was made or emptied in the transaction that is open there; the source has none open. `in_chunks`: read
    in short transactions; the caller knows that the rows do not move meanwhile.
    """
    into = sql.SQL("COPY {table} ({columns}) FROM STDIN (FREEZE)").format(
        table=table.identifier, columns=sql.SQL(", ").join(map(sql.Identifier, table.columns))
    )
    rows = 0
    with target.cursor() as writer, writer.copy(into) as written:
        for condition in _chunks(source, table) if in_chunks else [sql.SQL("")]:
            query = sql.SQL("COPY (SELECT {columns} FROM ONLY {table}{condition}) TO STDOUT").format(
                columns=_expressions(table), table=table.identifier, condition=condition
            )
            with source.cursor() as reader, reader.copy(query) as read:
                pieces: list[bytes | bytearray | memoryview] = []
                size = 0
                for row in read:
                    pieces.append(row)
                    size += len(row)
                    if size > _WRITE_BYTES:
                        written.write(b"".join(pieces))
                        progress(len(pieces), size)
                        rows += len(pieces)
                        pieces.clear()
                        size = 0
                written.write(b"".join(pieces))
                progress(len(pieces), size)
                rows += len(pieces)
    return rows


def _chunks(connection: psycopg.Connection, table: Table) -> Iterator[sql.Composable]:
    """Conditions that divide the rows of a table by where they are; the last one has no end."""
    row = connection.execute(
        sql.SQL("SELECT pg_relation_size({}::regclass) / current_setting('block_size')::bigint").format(
            sql.Literal(table.identifier.as_string(connection))
        )
    ).fetchone()
    pages = int(row[0]) if row else 0
    begins = range(0, max(pages, 1), _PAGES_A_CHUNK)
    for begin in begins:
        end = sql.SQL("") if begin == begins[-1] else sql.SQL(f" AND ctid < '({begin + _PAGES_A_CHUNK},0)'")
        yield sql.SQL(f" WHERE ctid >= '({begin},0)'") + end


def _expressions(table: Table) -> sql.Composable:
    return sql.SQL(", ").join(
        sql.SQL(_REPLACED[table.name, column]) if (table.name, column) in _REPLACED else sql.Identifier(column)
        for column in table.columns
    )
