"""The mark of a store that moves to another database: who reads it, who sets it, and how the store is closed by it.

The rule: a store that is closed refuses every write in the database itself, by a trigger on each table, so that no worker, command or
program of any version writes to it. The triggers exist only from the closing on: a store that does not move pays nothing. They are made
one table at a time, each in a transaction of its own, so that the move waits for writers and never closes a circle of locks with them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

import psycopg
from psycopg import sql

from holdfast.db import own_tables
from holdfast.db.rows import by_name
from holdfast.errors import Refused, StoreMoved

LOCK_TIMEOUT: Final = 30.0
"""Seconds to wait for the writers of a table."""

_MOVE_LOCK: Final = 0x6D6F7665  # "move"
_TRIGGER: Final = "holdfast_moved"
_READ: Final = "SELECT id::text AS id, state, destination, started_at, closed_at, moved_at FROM store_move"
_BEGIN: Final = """
INSERT INTO store_move (destination, advice) VALUES (%(destination)s, %(advice)s)
ON CONFLICT (only_row) DO UPDATE SET
    id = gen_random_uuid(), started_at = clock_timestamp(), closed_at = NULL, moved_at = NULL, state = 'copying',
    destination = excluded.destination, advice = excluded.advice
"""
# domains first: with it, nothing can be claimed or committed any more. Counters of requests are in unlogged tables, which do not move.
_OPEN_TABLES: Final = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_inherits i ON i.inhrelid = c.oid LEFT JOIN pg_class p ON p.oid = i.inhparent
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND n.nspname IN (current_schema(), 'procrastinate')
  AND c.oid <> 'store_move'::regclass AND (n.nspname = 'procrastinate' OR COALESCE(p.relname, c.relname) = ANY(%(own)s))
  AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = %(trigger)s)
ORDER BY c.oid <> 'domains'::regclass, n.nspname, c.relname
"""
_CLOSED_TABLES: Final = """
SELECT n.nspname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.tgname = %(trigger)s ORDER BY n.nspname, c.relname
"""
_CLOSE: Final = """
CREATE OR REPLACE TRIGGER {trigger} BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION refuse_moved()
"""
_WRITERS: Final = """
SELECT string_agg(DISTINCT format('%%s (process %%s)', COALESCE(NULLIF(a.application_name, ''), 'a session'), a.pid), ', ')
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.relation = %(table)s::regclass AND l.granted AND a.pid <> pg_backend_pid() AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')
"""


class State(StrEnum):
    """How far the move of a store is."""

    COPYING = "copying"
    CLOSED = "closed"
    MOVED = "moved"


class Move(NamedTuple):
    """The move of a store."""

    id: str
    state: State
    destination: str
    started_at: datetime
    closed_at: datetime | None
    moved_at: datetime | None


def read(connection: psycopg.Connection) -> Move | None:
    """The move of this store; None: it does not move. Before: the schema is of this version."""
    with connection.cursor(row_factory=by_name(Move)) as cursor:
        return cursor.execute(_READ).fetchone()


def check(connection: psycopg.Connection) -> None:
    """Raise StoreMoved if another database is the store now. Before: the schema is of this version."""
    row = connection.execute("SELECT store_move_notice() FROM store_move WHERE state = 'moved'").fetchone()
    if row is not None:
        raise StoreMoved(str(row[0]))


@contextmanager
def exclusive(connection: psycopg.Connection) -> Iterator[None]:
    """Let no other `holdfast db move` of this store run until the end of the block. Raises Refused if one does."""
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", (_MOVE_LOCK,)).fetchone()
    if row is None or not row[0]:
        raise Refused("Another `holdfast db move` of this store is under way; wait for its end, or stop it.")
    try:
        yield
    finally:
        with suppress(psycopg.Error):
            connection.execute("SELECT pg_advisory_unlock(%s)", (_MOVE_LOCK,))


def begin(connection: psycopg.Connection, *, destination: str, advice: str) -> Move:
    """Begin a move, or continue the one to the same destination; the move. Before: the caller is `exclusive`.

    After: the state is what it was, or copying. Raises Refused if the store is closed for a move to another place.
    """
    found = read(connection)
    if found is not None and found.destination == destination:
        return found
    if found is not None and found.state is not State.COPYING:
        raise Refused(
            f"This store is closed for a move to {found.destination}: the same command as before continues it, "
            "`holdfast db move --abandon` takes it back."
        )
    connection.execute(_BEGIN, {"destination": destination, "advice": advice})
    made = read(connection)
    assert made is not None  # noqa: S101 — just written
    return made


def close(connection: psycopg.Connection, *, lock_timeout: float = LOCK_TIMEOUT) -> None:
    """Close the store: wait for transactions that write, table by table, and refuse all that come later.

    Before: a move is under way; no transaction is open. After: every transaction that wrote anything has ended, and none can write, to
    the end of the move. Raises Refused if a writer does not end in time; then the store is open again.
    """
    connection.execute("UPDATE store_move SET state = 'closed', closed_at = COALESCE(closed_at, clock_timestamp())")
    open_tables = {"trigger": _TRIGGER, "own": list(own_tables.names())}
    while tables := connection.execute(_OPEN_TABLES, open_tables).fetchall():
        for schema, name in tables:
            table = sql.Identifier(schema, name)
            with connection.transaction():
                connection.execute(
                    sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(round(lock_timeout * 1000)))
                )
                try:
                    with connection.transaction():
                        connection.execute(
                            sql.SQL(_CLOSE).format(trigger=sql.Identifier(_TRIGGER), table=table), prepare=False
                        )
                except psycopg.errors.LockNotAvailable:
                    writers = connection.execute(_WRITERS, {"table": table.as_string(connection)}).fetchone()
                else:
                    continue
            connection.execute("UPDATE store_move SET state = 'copying', closed_at = NULL")
            _remove_triggers(connection)
            who = writers[0] if writers and writers[0] else "a transaction"
            raise Refused(
                f"The store could not be closed: {who} has written to {name} for {lock_timeout:.0f} s without an end. "
                "The store is open again; end that, and run the command again."
            )


def mark_moved(connection: psycopg.Connection) -> None:
    """Say that another database is the store now. Before: the store is closed, and the other one has all that it has."""
    connection.execute("UPDATE store_move SET state = 'moved', moved_at = COALESCE(moved_at, clock_timestamp())")


def reopen(connection: psycopg.Connection) -> None:
    """Take a move back. Before: no other database is the store. After: everything can be written at once.

    The triggers refuse nothing without a move, so one that cannot be removed for now (a long query reads its table) does no harm.
    """
    connection.execute("DELETE FROM store_move")
    _remove_triggers(connection)


def _remove_triggers(connection: psycopg.Connection) -> None:
    deadline = time.monotonic() + 10
    for schema, name in connection.execute(_CLOSED_TABLES, {"trigger": _TRIGGER}).fetchall():
        with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.UndefinedTable), connection.transaction():
            patience = max(0.05, min(2.0, deadline - time.monotonic()))
            connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(round(patience * 1000))))
            connection.execute(
                sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(
                    sql.Identifier(_TRIGGER), sql.Identifier(schema, name)
                )
            )
