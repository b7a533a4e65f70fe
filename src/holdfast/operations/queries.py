"""Long work that somebody asked the API for: asked for, taken, reported on, ended.

The rule: a background that does one gives signs of life. One whose doer is silent is another's to do, from its beginning, so whatever is
done here may be done twice.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from holdfast.errors import NotFound

SILENCE: Final = timedelta(seconds=30)
"""Without a sign of life for so long, whoever did it is dead."""
ATTEMPTS: Final = 5
KEPT: Final = timedelta(days=7)
_CHUNK: Final = 1_000
_NEWEST: Final = 2**63 - 1
_COLUMNS: Final = """
id, kind, state::text, attempts, asked_by, asked_at, started_at, heartbeat_at, ended_at, arguments, progress, result, problem
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


@dataclass(frozen=True, slots=True)
class Operation:
    """Long work, where it is, and what came of it."""

    id: int
    kind: str
    state: str
    attempts: int
    asked_by: str
    asked_at: datetime
    started_at: datetime | None
    heartbeat_at: datetime | None
    ended_at: datetime | None
    arguments: dict[str, Any]
    progress: dict[str, Any]
    result: dict[str, Any] | None
    problem: str | None
    again: bool = False
    """Of one that was taken: whether somebody had begun it before."""


def ask(connection: psycopg.Connection, kind: str, arguments: dict[str, Any], *, actor: str) -> Operation:
    """Have something done. A transaction may be open: it is asked for with its commit."""
    with connection.cursor(row_factory=class_row(Operation)) as cursor:
        made = cursor.execute(_ASK, {"kind": kind, "arguments": Jsonb(arguments), "actor": actor}).fetchone()
    assert made is not None  # noqa: S101 — INSERT … RETURNING answers with a row
    return made


def get(connection: psycopg.Connection, operation_id: int) -> Operation:
    """One of them; NotFound also for one that ended long ago."""
    with connection.cursor(row_factory=class_row(Operation)) as cursor:
        found = cursor.execute(_GET, {"id": operation_id}).fetchone()
    if found is None:
        raise NotFound(f"There is no operation {operation_id}; those that ended are kept for {KEPT.days} days.")
    return found


def listing(
    connection: psycopg.Connection, *, state: str | None = None, before: int | None = None, limit: int = 100
) -> list[Operation]:
    """Operations, the newest first; `before` is the id of the last one seen."""
    given = {"state": state, "before": _NEWEST if before is None else before, "limit": limit}
    with connection.cursor(row_factory=class_row(Operation)) as cursor:
        return cursor.execute(_LIST, given).fetchall()


def take(connection: psycopg.Connection) -> Operation | None:
    """The first that waits or whose doer is silent, now ours; None: there is none."""
    with connection.cursor(row_factory=class_row(Operation)) as cursor:
        return cursor.execute(_TAKE, {"silence": SILENCE}).fetchone()


def beat(connection: psycopg.Connection, operation: Operation, progress: dict[str, Any] | None = None) -> bool:
    """A sign of life, perhaps with how far it is; False if it is another's by now."""
    given = {"id": operation.id, "attempt": operation.attempts, "progress": Jsonb(progress) if progress else None}
    return connection.execute(_BEAT, given).rowcount == 1


def end(
    connection: psycopg.Connection, operation: Operation, *, result: dict[str, Any] | None, problem: str | None
) -> bool:
    """It is done, or failed for good with a problem; False if it is another's by now."""
    given = {"id": operation.id, "attempt": operation.attempts, "problem": problem}
    return connection.execute(_END, given | {"result": Jsonb(result) if result is not None else None}).rowcount == 1


def give_back(connection: psycopg.Connection, operation: Operation) -> bool:
    """It is let go of in order, and counts as not begun; False if it is another's by now."""
    return connection.execute(_GIVE_BACK, {"id": operation.id, "attempt": operation.attempts}).rowcount == 1


def tidy(connection: psycopg.Connection) -> int:
    """Forget those that ended long ago, a chunk of them; how many."""
    return connection.execute(_TIDY, {"kept": KEPT, "chunk": _CHUNK}).rowcount
