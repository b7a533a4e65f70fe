"""SQL of runs of retention: when they are due, what they did; and the vacuum of all tables."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from holdfast.db.rows import by_name
from holdfast.retention.records import RetentionResult, RetentionRun

_DUE_FROM: Final = "SELECT due_from FROM retention_runs WHERE machine = %(machine)s"
_FIRST: Final = "INSERT INTO retention_runs (machine) VALUES (%(machine)s) ON CONFLICT (machine) DO NOTHING"
_BEGIN: Final = """
INSERT INTO retention_runs (machine, started_at) VALUES (%(machine)s, clock_timestamp())
ON CONFLICT (machine) DO UPDATE SET started_at = clock_timestamp(), ended_at = NULL, result = NULL, problem = NULL
"""
_END: Final = """
UPDATE retention_runs SET ended_at = clock_timestamp(), due_from = clock_timestamp(), result = %(result)s, problem = %(problem)s
WHERE machine = %(machine)s
"""
_RUNS: Final = """
SELECT machine, started_at, ended_at, COALESCE((result->>'rows')::bigint, 0) AS rows, COALESCE((result->>'archives')::int, 0) AS archives,
       COALESCE((result->>'bytes')::bigint, 0) AS bytes, problem
FROM retention_runs WHERE started_at IS NOT NULL ORDER BY machine
"""
_VACUUMED: Final = "SELECT vacuumed_at FROM retention_state"
_NEVER_VACUUMED: Final = "UPDATE retention_state SET vacuumed_at = clock_timestamp() WHERE vacuumed_at IS NULL"
_TABLES: Final = """
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind = 'r' ORDER BY c.relname
"""


def without_timeouts(connection: psycopg.Connection) -> None:
    """Let statements of this session take as long as they need, and transactions wait for a file of an archive."""
    connection.execute("SET statement_timeout = 0")


def now(connection: psycopg.Connection) -> datetime:
    """Return the time of the database."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None  # noqa: S101 — a select without a table answers with a row
    moment: datetime = row[0]
    return moment


def due_from(connection: psycopg.Connection, machine: str) -> datetime:
    """Return since when the next run of a machine is counted: the end of its last run, or when it was asked first."""
    row = connection.execute(_DUE_FROM, {"machine": machine}).fetchone()
    if row is None:
        connection.execute(_FIRST, {"machine": machine})
        return now(connection)
    since: datetime = row[0]
    return since


def begin(connection: psycopg.Connection, machine: str) -> None:
    """Note that a run begins. It stays due until `end`."""
    connection.execute(_BEGIN, {"machine": machine})


def end(connection: psycopg.Connection, machine: str, result: RetentionResult) -> None:
    """Note that a run has come to its end."""
    sums = {
        "rows": sum(step.rows for step in result.steps),
        "archives": sum(step.archives for step in result.steps),
        "bytes": sum(step.bytes for step in result.steps),
    }
    problem = " ".join(result.problems) or None
    connection.execute(_END, {"machine": machine, "result": Jsonb(sums), "problem": problem})


def listing(connection: psycopg.Connection) -> list[RetentionRun]:
    """Return the last run of each machine."""
    with connection.cursor(row_factory=by_name(RetentionRun)) as cursor:
        return cursor.execute(_RUNS).fetchall()


def vacuumed_at(connection: psycopg.Connection) -> datetime:
    """Return when all tables were vacuumed last; that is now if they never were."""
    row = connection.execute(_VACUUMED).fetchone()
    if row is None or row[0] is None:
        connection.execute(_NEVER_VACUUMED)
        return now(connection)
    at: datetime = row[0]
    return at


def vacuum(connection: psycopg.Connection, *, stopped: Callable[[], bool]) -> int:
    """Vacuum and analyze the tables of the store that no other session has locked; return how many. Before: no transaction is open.

    `stopped` is asked before each table; then the rest is left, and due.
    """
    names = [row[0] for row in connection.execute(_TABLES)]
    for done, name in enumerate(names):
        if stopped():
            return done
        connection.execute(sql.SQL("VACUUM (ANALYZE, SKIP_LOCKED) {}").format(sql.Identifier(name)))
    connection.execute("UPDATE retention_state SET vacuumed_at = clock_timestamp()")
    return len(names)
