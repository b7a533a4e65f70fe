"""The database that a store moves to, from an empty one to the store.

The rule: until the last transaction its revision is `migrate.MOVING`, which every Holdfast refuses, and all that the move has to know is in
a schema of its own, which that transaction drops. So a move that is killed leaves a database that no program takes for the store, and the
next one goes on with it or begins it anew.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

import psycopg
from psycopg import sql

from holdfast.db import generation, migrate, move_tables, own_tables
from holdfast.db.connection import Database
from holdfast.db.generation import Generation
from holdfast.db.move_tables import QUEUE, SequenceValue, Table
from holdfast.errors import Refused, StoreError

_SCRATCH: Final = """
CREATE SCHEMA IF NOT EXISTS holdfast_move;
CREATE TABLE IF NOT EXISTS holdfast_move.state (move_id uuid NOT NULL, revision text NOT NULL);
CREATE TABLE IF NOT EXISTS holdfast_move.copied (name text PRIMARY KEY, rows bigint NOT NULL);
CREATE TABLE IF NOT EXISTS holdfast_move.definitions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, stage integer NOT NULL, bytes bigint NOT NULL, sql text NOT NULL);
"""
_MOVING: Final = "SELECT move_id::text, revision FROM holdfast_move.state"
_STORE: Final = "SELECT id::text, generation FROM store_identity"
# Whatever a person or a worker has done leaves a row in one of these.
_IN_USE: Final = """
SELECT EXISTS (SELECT FROM domains) OR EXISTS (SELECT FROM crawl_runs) OR EXISTS (SELECT FROM users) OR EXISTS (SELECT FROM audit_log)
    OR (SELECT count(*) FROM crawl_jobs) > 2
"""
# What makes filling slow: stage 1 are keys and other indexes, stage 2 are references, which need keys. The partitioned log keeps its own:
# a partition gets its indexes when it is attached.
_DEFINITIONS: Final = """
SELECT CASE con.contype WHEN 'f' THEN 2 ELSE 1 END AS stage,
       format('ALTER TABLE %%s DROP CONSTRAINT %%I', con.conrelid::regclass, con.conname) AS drop,
       format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s', con.conrelid::regclass, con.conname, pg_get_constraintdef(con.oid)) AS make
FROM pg_constraint con
WHERE con.contype IN ('f', 'p', 'u', 'x') AND con.conrelid = ANY(%(tables)s::text[]::regclass[])
UNION ALL
SELECT 1, format('DROP INDEX %%s', i.indexrelid::regclass), pg_get_indexdef(i.indexrelid)
FROM pg_index i
WHERE i.indrelid = ANY(%(tables)s::text[]::regclass[])
  AND NOT EXISTS (SELECT FROM pg_constraint con WHERE con.conindid = i.indexrelid AND con.contype IN ('p', 'u', 'x'))
ORDER BY 1 DESC
"""
_PARTITIONS: Final = """
SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relispartition AND n.nspname = current_schema() AND p.relname = ANY(%(own)s) AND pg_get_expr(c.relpartbound, c.oid) <> 'DEFAULT'
"""
_ALL: Final = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname IN (current_schema(), %(queue)s) AND c.relname <> 'schema_version'
  AND (n.nspname = %(queue)s OR c.relname = ANY(%(own)s))
ORDER BY 1, 2
"""
# Positions among events count transactions of the server before: a subscriber with such a position reads everything again.
_EVENTS_BEGIN: Final = """
UPDATE duties SET mark = pg_snapshot_xmin(pg_current_snapshot())::text || '-0' WHERE name = 'trim'
"""


class Content(Enum):
    """What a database has before a move to it."""

    NOTHING = "nothing"
    """No Holdfast store, or one that was never used."""
    THIS_MOVE = "this move"
    """What this move has copied so far."""
    ANOTHER_MOVE = "another move"
    """What a move that was given up has copied."""
    OLD_STORE = "old store"
    """This store as it was before it was moved from there."""
    THE_STORE = "the store"
    """This store, in use, in a later generation."""
    OTHER = "other"
    """Another store."""


def content(connection: psycopg.Connection, *, move_id: str | None, source: Generation) -> Content:
    """What the database has, for a move of `source`. Raises StoreError if it cannot hold a store."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(
            f"The database to move to has the encoding {encoding}, and Holdfast needs UTF8: "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0."
        )
    at = migrate.current(connection)
    if at is None:
        return Content.NOTHING
    if at == migrate.MOVING:
        row = connection.execute(_MOVING).fetchone()
        return Content.THIS_MOVE if row == (move_id, migrate.HEAD) else Content.ANOTHER_MOVE
    if connection.execute("SELECT to_regclass('store_identity') IS NULL").fetchone() == (True,):
        row = None
    else:
        row = connection.execute(_STORE).fetchone()
    if row is not None and row[0] == source.store:
        if row[1] > source.number:
            return Content.THE_STORE
        moved = "SELECT EXISTS (SELECT FROM store_move WHERE state = 'moved')"
        is_moved = at == migrate.HEAD and connection.execute(moved).fetchone() == (True,)
        return Content.OLD_STORE if is_moved else Content.OTHER
    return Content.OTHER if connection.execute(_IN_USE).fetchone() == (True,) else Content.NOTHING


def prepare(database: Database, connection: psycopg.Connection, *, move_id: str, found: Content) -> None:
    """Make the database ready to be filled. Before: `found` is its content, and nothing in it is needed.

    After: it has the tables of this version, all empty, without keys, indexes or triggers; `finish_indexes` and `activate` bring those.
    """
    if found is Content.ANOTHER_MOVE:
        row = connection.execute("SELECT revision FROM holdfast_move.state").fetchone()
        if row != (migrate.HEAD,):
            raise Refused(
                f"{database.address} has the rest of a move by another version of Holdfast; drop that database and create it again."
            )
    elif found is Content.OLD_STORE:
        from holdfast.db import store_move

        store_move.reopen(connection)
    if found is not Content.ANOTHER_MOVE:
        migrate.upgrade(database)
    with connection.transaction():
        connection.execute(_SCRATCH, prepare=False)
        connection.execute("UPDATE schema_version SET version_num = %s", (migrate.MOVING,))
        everything = [sql.Identifier(*row) for row in connection.execute(_ALL, _ours()).fetchall()]
        for table in everything:
            connection.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(table))
        _put_definitions_aside(connection)
        for (name,) in connection.execute(_PARTITIONS, {"own": list(own_tables.names())}).fetchall():
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
        connection.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(everything)))
        connection.execute("DELETE FROM holdfast_move.copied")
        connection.execute("DELETE FROM holdfast_move.state")
        connection.execute("INSERT INTO holdfast_move.state VALUES (%s, %s)", (move_id, migrate.HEAD))


def _put_definitions_aside(connection: psycopg.Connection) -> None:
    names = [table.identifier.as_string(connection) for table in move_tables.tables(connection) if table.parent is None]
    for stage, drop, make in connection.execute(_DEFINITIONS, {"tables": names}).fetchall():
        connection.execute(
            "INSERT INTO holdfast_move.definitions (stage, bytes, sql) VALUES (%s, 0, %s)", (stage, make)
        )
        connection.execute(drop)


def copied(connection: psycopg.Connection) -> dict[str, int]:
    """The tables that are copied, with their rows."""
    return dict(connection.execute("SELECT name, rows FROM holdfast_move.copied").fetchall())


def fill(
    source: psycopg.Connection,
    connection: psycopg.Connection,
    table: Table,
    *,
    in_chunks: bool,
    progress: Callable[[int, int], None],
) -> int:
    """Copy a table as a whole, in one transaction; the number of its rows. What the table had before is replaced.

    Before: `prepare`. `in_chunks`: see `move_tables.copy_rows`.
    """
    with connection.transaction():
        attach = table.parent is not None and not _exists(connection, table)
        if attach:
            connection.execute(
                sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS)").format(
                    table.identifier, sql.Identifier(table.parent or "")
                )
            )
        else:
            connection.execute(sql.SQL("TRUNCATE {}").format(table.identifier))
        rows = move_tables.copy_rows(source, connection, table, in_chunks=in_chunks, progress=progress)
        if attach:
            connection.execute(
                sql.SQL("ALTER TABLE {} ATTACH PARTITION {} {}").format(
                    sql.Identifier(table.parent or ""), table.identifier, sql.SQL(table.bound or "")
                )
            )
        connection.execute(
            "INSERT INTO holdfast_move.copied VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET rows = excluded.rows",
            (table.key, rows),
        )
    return rows


def drop_partition(connection: psycopg.Connection, name: str) -> None:
    """Remove a partition that the source does not have any more."""
    with connection.transaction():
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)))
        connection.execute("DELETE FROM holdfast_move.copied WHERE name = %s", (name,))


def definitions(connection: psycopg.Connection, stage: int) -> list[int]:
    """The keys and indexes (stage 1) or references (stage 2) that are still to be made."""
    query = "SELECT id FROM holdfast_move.definitions WHERE stage = %s ORDER BY id"
    return [row[0] for row in connection.execute(query, (stage,))]


def define(connection: psycopg.Connection, number: int) -> None:
    """Make a key, an index or a reference. Before: its table is filled."""
    with connection.transaction():
        row = connection.execute(
            "DELETE FROM holdfast_move.definitions WHERE id = %s RETURNING sql", (number,)
        ).fetchone()
        if row is not None:
            connection.execute(row[0], prepare=False)


def analyze(connection: psycopg.Connection, tables: Sequence[Table]) -> None:
    """Collect the planner's statistics of these tables."""
    for table in tables:
        connection.execute(sql.SQL("ANALYZE {}").format(table.identifier))


def set_sequences(connection: psycopg.Connection, values: Sequence[SequenceValue]) -> None:
    """Set the sequences."""
    for value in values:
        name = sql.Identifier(value.schema, value.name).as_string(connection)
        connection.execute("SELECT setval(%s::regclass, %s, %s)", (name, value.last, value.called))


def activate(connection: psycopg.Connection, *, why: str, actor: str) -> int:
    """Make it the store; returns its generation. Before: it has every row, key and index of the old store, which takes no writes.

    After: in one transaction, a new generation began, triggers fire, and nothing of the move is left.
    """
    with connection.transaction():
        for row in connection.execute(_ALL, _ours()).fetchall():
            connection.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(sql.Identifier(*row)))
        connection.execute(_EVENTS_BEGIN)
        connection.execute("DROP SCHEMA holdfast_move CASCADE")
        connection.execute("UPDATE schema_version SET version_num = %s", (migrate.HEAD,))
        return generation.begin(connection, why=why, actor=actor)


def _ours() -> dict[str, object]:
    return {"queue": QUEUE, "own": list(own_tables.names())}


def _exists(connection: psycopg.Connection, table: Table) -> bool:
    name = table.identifier.as_string(connection)
    return connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone() == (True,)
