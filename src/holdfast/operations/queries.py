"""SQL of operations: create, take, report progress, end.

The rule: the process that runs an operation sends heartbeats. Without them another process takes the operation, from its beginning, so
every operation may run twice.
"""

from datetime import timedelta
from typing import Any, Final

import psycopg
from psycopg.types.json import Jsonb

from holdfast.db.rows import by_name
from holdfast.errors import NotFound
from holdfast.operations.records import Operation, StartedOperation

SILENCE: Final = timedelta(seconds=30)
"""Without a heartbeat for this long, the process that runs an operation counts as dead."""
ATTEMPTS: Final = 5
KEPT: Final = timedelta(days=7)
_CHUNK: Final = 1_000
_NEWEST: Final = 2**63 - 1
_COLUMNS: Final = """
id, kind, state::text, attempts, asked_by, asked_at, started_at, ended_at, arguments, progress, result, problem
"""

_ASK: Final = f"""
INSERT INTO operations (kind, arguments, asked_by) VALUES (%(kind)s, %(arguments)s, left(%(actor)s, 100)) RETURNING {_COLUMNS}
"""  # noqa: S608 — a constant
_LIST: Final = f"""
SELECT {_COLUMNS} FROM operations WHERE id < %(before)s AND (%(state)s::text IS NULL OR state::text = %(state)s)
ORDER BY id DESC LIMIT %(limit)s
"""  # noqa: S608 — a constant
_GET: Final = f"SELECT {_COLUMNS} FROM operations WHERE id = %(id)s"  # noqa: S608 — a constant
_TAKE: Final = f"""
WITH due AS MATERIALIZED (
    SELECT id, started_at IS NOT NULL AS again FROM operations
    WHERE state = 'waiting' OR (state = 'running' AND heartbeat_at < clock_timestamp() - %(silence)s)
    ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE operations o SET state = 'running', attempts = attempts + 1, started_at = clock_timestamp(), heartbeat_at = clock_timestamp(),
    progress = '{{}}'
FROM due WHERE o.id = due.id RETURNING {_COLUMNS.replace("id,", "o.id,", 1)}, due.again
"""  # noqa: S608 — a constant
_BEAT: Final = """
UPDATE operations SET heartbeat_at = clock_timestamp(), progress = COALESCE(%(progress)s, progress)
WHERE id = %(id)s AND state = 'running' AND attempts = %(attempt)s
"""
_END: Final = """
UPDATE operations SET state = CASE WHEN %(problem)s::text IS NULL THEN 'done' ELSE 'failed' END::operation_state,
    ended_at = clock_timestamp(), result = %(result)s, problem = %(problem)s
WHERE id = %(id)s AND state = 'running' AND attempts = %(attempt)s
"""
_GIVE_BACK: Final = """
UPDATE operations SET state = 'waiting', attempts = attempts - 1, heartbeat_at = NULL WHERE id = %(id)s AND state = 'running'
    AND attempts = %(attempt)s
"""
_TIDY: Final = """
DELETE FROM operations WHERE id IN (
    SELECT id FROM operations WHERE ended_at < clock_timestamp() - %(kept)s ORDER BY ended_at LIMIT %(chunk)s)
"""


def ask(connection: psycopg.Connection, kind: str, arguments: dict[str, Any], *, actor: str) -> Operation:
    """Create an operation. If a transaction is open, it exists with its commit."""
    with connection.cursor(row_factory=by_name(Operation)) as cursor:
        created = cursor.execute(_ASK, {"kind": kind, "arguments": Jsonb(arguments), "actor": actor}).fetchone()
    assert created is not None  # noqa: S101 — INSERT … RETURNING answers with a row
    return created


def get(connection: psycopg.Connection, operation_id: int) -> Operation:
    """Return one operation. Raises NotFound, also for one that ended long ago."""
    with connection.cursor(row_factory=by_name(Operation)) as cursor:
        found = cursor.execute(_GET, {"id": operation_id}).fetchone()
    if found is None:
        raise NotFound(f"There is no operation {operation_id}; those that ended are kept for {KEPT.days} days.")
    return found


def listing(
    connection: psycopg.Connection, *, state: str | None = None, before: int | None = None, limit: int = 100
) -> list[Operation]:
    """Return operations, the newest first; `before` is the last id of the page before."""
    parameters = {"state": state, "before": _NEWEST if before is None else before, "limit": limit}
    with connection.cursor(row_factory=by_name(Operation)) as cursor:
        return cursor.execute(_LIST, parameters).fetchall()


def take(connection: psycopg.Connection) -> StartedOperation | None:
    """Take the first operation that waits, or whose process is silent; None: there is none. After: this process owns it."""
    with connection.cursor(row_factory=by_name(StartedOperation)) as cursor:
        return cursor.execute(_TAKE, {"silence": SILENCE}).fetchone()


def beat(connection: psycopg.Connection, operation: Operation, progress: dict[str, Any] | None = None) -> bool:
    """Write a heartbeat, and the progress if there is any; False if another process has taken the operation."""
    parameters = {"id": operation.id, "attempt": operation.attempts, "progress": Jsonb(progress) if progress else None}
    return connection.execute(_BEAT, parameters).rowcount == 1


def end(
    connection: psycopg.Connection, operation: Operation, *, result: dict[str, Any] | None, problem: str | None
) -> bool:
    """End an operation: it is done, or with a problem it has failed; False if another process has taken it."""
    parameters = {"id": operation.id, "attempt": operation.attempts, "problem": problem}
    return (
        connection.execute(_END, parameters | {"result": Jsonb(result) if result is not None else None}).rowcount == 1
    )


def give_back(connection: psycopg.Connection, operation: Operation) -> bool:
    """Let an operation wait again, without counting the attempt; False if another process has taken it."""
    return connection.execute(_GIVE_BACK, {"id": operation.id, "attempt": operation.attempts}).rowcount == 1


def tidy(connection: psycopg.Connection) -> int:
    """Delete a chunk of operations that ended long ago; return how many."""
    return connection.execute(_TIDY, {"kept": KEPT, "chunk": _CHUNK}).rowcount
