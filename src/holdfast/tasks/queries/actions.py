"""What people do to tasks: restart, pause, resume, cancel, hurry; one at a time or thousands.

The rule: whether an operation is allowed is looked up in the table of `model/task` under the lock of the row. Asking twice is no
error and changes nothing; what changes something leaves a row in the audit log, in the same transaction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import psycopg

from holdfast.db import audit
from holdfast.db.tasks import IS_LIVE, no_task
from holdfast.errors import Refused
from holdfast.model.task import OPERATIONS, RESTARTABLE, Operation, OperationVerdict, TaskStatus

CHUNK: Final = 1_000
TRIES: Final = 20
"""How often a chunk is looked at anew because one of its URLs became live meanwhile."""
KIND: Final = "task"
"""What tasks are called in the audit log."""

_STATE: Final = """
SELECT status::text, archive_segment IS NOT NULL, priority, url_hash FROM crawl_tasks WHERE id = %(id)s FOR NO KEY UPDATE
"""
_TWIN: Final = f"SELECT id, status::text FROM crawl_tasks WHERE url_hash = %(key)s AND {IS_LIVE}"  # noqa: S608 — a constant

# From the beginning: also where redirects had led it is forgotten.
_RESTARTED: Final = """
    status = 'pending', status_reason = %(why)s, error_message = NULL, http_status_code = NULL, response_time_ms = NULL,
    fetch_url = NULL, fetch_key = NULL, hops = 0
"""
_RESTART: Final = f"""
UPDATE crawl_tasks SET {_RESTARTED}, scheduled_at = COALESCE(%(at)s, clock_timestamp()), priority = COALESCE(%(priority)s, priority),
    retry_count = CASE WHEN %(reset)s THEN 0 ELSE retry_count END
WHERE id = %(id)s
"""  # noqa: S608 — a constant
_DOWNLOADED: Final = """
UPDATE crawl_tasks SET status = 'downloaded', status_reason = %(why)s, error_message = NULL,
    retry_count = CASE WHEN %(reset)s THEN 0 ELSE retry_count END
WHERE id = %(id)s
"""
_ASK_FOR_PARSING: Final = """
UPDATE crawl_tasks SET status = 'queued_parse', status_reason = 'to be parsed', parse_after = clock_timestamp() WHERE id = %(id)s
"""
_PAUSE: Final = "UPDATE crawl_tasks SET status = 'paused', status_reason = %(why)s WHERE id = %(id)s"
_RESUME: Final = """
UPDATE crawl_tasks SET status = 'pending', status_reason = %(why)s, scheduled_at = clock_timestamp() WHERE id = %(id)s
"""
_CANCEL: Final = "UPDATE crawl_tasks SET status = 'cancelled', status_reason = %(why)s WHERE id = %(id)s"
_PRIORITY: Final = "UPDATE crawl_tasks SET priority = %(priority)s WHERE id = %(id)s"

# Of a URL only the newest row, and only if none of its rows is live: what failed once and was completed since has nothing to be
# made up for.
_RESTART_MANY: Final = f"""
WITH chunk AS MATERIALIZED (
    SELECT t.id, t.url_hash FROM crawl_tasks t WHERE t.id > %(after)s {{where}}
    ORDER BY t.id LIMIT %(chunk)s FOR NO KEY UPDATE OF t SKIP LOCKED
), fit AS MATERIALIZED (
    SELECT c.id FROM chunk c
    WHERE NOT EXISTS (SELECT FROM crawl_tasks n WHERE n.url_hash = c.url_hash AND n.id > c.id)
      AND NOT EXISTS (SELECT FROM crawl_tasks l WHERE l.url_hash = c.url_hash AND l.id <> c.id AND l.{IS_LIVE})
), started AS (
    UPDATE crawl_tasks t SET {_RESTARTED}, retry_count = 0, scheduled_at = clock_timestamp() FROM fit WHERE t.id = fit.id
    RETURNING t.id, t.url
)
SELECT (SELECT max(id) FROM chunk), (SELECT count(*) FROM chunk), count(*), min(id), max(id),
       array_agg(id ORDER BY id), array_agg(url ORDER BY id) FROM started
"""  # noqa: S608 — a constant
_FILTERS: Final = {
    "domain_id": " AND t.domain_id = %(domain_id)s",
    "batch_id": " AND t.batch_id = %(batch_id)s",
    "since": " AND t.completed_at >= %(since)s",
    "unchanged_since": " AND t.updated_at <= %(unchanged_since)s",
}


class RestartedTask(NamedTuple):
    """One of many that were restarted."""

    id: int
    url: str


@dataclass(frozen=True, slots=True)
class FailedFilter:
    """Which failed tasks are meant; None: all."""

    domain_id: int | None = None
    batch_id: int | None = None
    since: datetime | None = None
    """Those that failed then or later."""
    unchanged_since: datetime | None = None
    """Those to which nothing has happened since then."""


# One task ------------------------------------------------------------------------------------------------------------
# Each returns whether anything changed. A transaction may be open. NotFound if there is no such task, Refused, with its state, if
# the table says so.


def restart(
    connection: psycopg.Connection,
    task_id: int,
    *,
    actor: str,
    reset_retries: bool = True,
    priority: int | None = None,
    scheduled_at: datetime | None = None,
) -> bool:
    """Crawl a task again from the beginning. After: it is pending, now or for the time given, its error forgotten.

    Refused also if another task of its URL is live.
    """
    with connection.transaction():
        found = _look(connection, task_id, Operation.RESTART)
        if found.verdict is OperationVerdict.UNCHANGED:
            return False
        values = {"reset": reset_retries, "priority": priority, "at": scheduled_at}
        _revive(connection, task_id, found, [_RESTART], values | {"why": f"restarted by {actor}"})
        details = {"was": found.status, "reset_retries": reset_retries, "priority": priority}
        _audit(
            connection,
            task_id,
            Operation.RESTART,
            actor,
            details | {"scheduled_at": scheduled_at and str(scheduled_at)},
        )
    return True


def restart_parsing(connection: psycopg.Connection, task_id: int, *, actor: str, reset_retries: bool = True) -> bool:
    """Parse a task's page again, without fetching it. After: it waits to be parsed.

    Refused also if its page is not in the archive, or another task of its URL is live.
    """
    with connection.transaction():
        found = _look(connection, task_id, Operation.RESTART_PARSING)
        if found.verdict is OperationVerdict.UNCHANGED:
            return False
        if not found.has_page:
            raise Refused(f"Task {task_id} has no page in the archive to be parsed; restart it to fetch it again.")
        values = {"reset": reset_retries, "why": f"parsing restarted by {actor}"}
        _revive(connection, task_id, found, [_DOWNLOADED, _ASK_FOR_PARSING], values)
        _audit(
            connection, task_id, Operation.RESTART_PARSING, actor, {"was": found.status, "reset_retries": reset_retries}
        )
    return True


def pause(connection: psycopg.Connection, task_id: int, *, actor: str) -> bool:
    """Let a live task rest. After: it is paused; what comes of it, if it is being crawled or parsed, is refused."""
    return _move(connection, task_id, Operation.PAUSE, _PAUSE, f"paused by {actor}", actor)


def resume(connection: psycopg.Connection, task_id: int, *, actor: str) -> bool:
    """Let a paused task go on. After: it is pending and due; its retries are what they were."""
    return _move(connection, task_id, Operation.RESUME, _RESUME, f"resumed by {actor}", actor)


def cancel(connection: psycopg.Connection, task_id: int, *, actor: str) -> bool:
    """Give a task up. After: it is cancelled, and its URL is not crawled again by itself."""
    return _move(connection, task_id, Operation.CANCEL, _CANCEL, f"cancelled by {actor}", actor)


def set_priority(connection: psycopg.Connection, task_id: int, priority: int, *, actor: str) -> bool:
    """Let a task, and those that follow it, come sooner or later. Before: `priority` is from 1 to 10."""
    with connection.transaction():
        found = _look(connection, task_id, Operation.PRIORITY)
        if found.priority == priority:
            return False
        connection.execute(_PRIORITY, {"id": task_id, "priority": priority})
        _audit(connection, task_id, Operation.PRIORITY, actor, {"was": found.priority, "priority": priority})
    return True


# Many tasks ----------------------------------------------------------------------------------------------------------


def restart_failed(
    connection: psycopg.Connection,
    chosen: FailedFilter,
    *,
    actor: str,
    limit: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    tell: Callable[[Sequence[RestartedTask]], None] = lambda _: None,
) -> int:
    """Restart failed tasks, at most `limit`; how many. `progress` hears after each chunk how many so far, `tell` which ones.

    Before: no transaction is open. After: of each URL whose newest task had failed, that one is pending; an interruption keeps
    what was done, and the same call goes on with the rest.
    """
    deed = {"actor": actor, "action": "restart_failed", "kind": KIND, "object_id": "*"}
    return _restart_many(connection, {TaskStatus.FAILED}, chosen, deed=deed, limit=limit, progress=progress, tell=tell)


def restart_batch(
    connection: psycopg.Connection,
    batch_id: int,
    *,
    actor: str,
    unchanged_since: datetime | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Restart every task of a batch that rests: completed, failed, cancelled or paused; how many. As `restart_failed` otherwise.

    With `unchanged_since` only those to which nothing has happened since: who does it twice restarts nothing twice.
    """
    deed = {"actor": actor, "action": Operation.RESTART, "kind": "batch", "object_id": str(batch_id)}
    return _restart_many(
        connection,
        RESTARTABLE,
        FailedFilter(batch_id=batch_id, unchanged_since=unchanged_since),
        deed=deed,
        limit=None,
        progress=progress,
    )


def _restart_many(
    connection: psycopg.Connection,
    statuses: Iterable[TaskStatus],
    chosen: FailedFilter,
    *,
    deed: Mapping[str, str],
    limit: int | None,
    progress: Callable[[int], None],
    tell: Callable[[Sequence[RestartedTask]], None] = lambda _: None,
) -> int:
    """`deed` is what the audit log says of each chunk."""
    given = {name: getattr(chosen, name) for name in _FILTERS if getattr(chosen, name) is not None}
    named = ", ".join(f"'{status}'" for status in sorted(statuses))
    query = _RESTART_MANY.format(where=f"AND t.status IN ({named})" + "".join(_FILTERS[name] for name in given))
    about = {name: str(value) for name, value in given.items()}
    after = total = tries = 0
    while limit is None or total < limit:
        chunk = CHUNK if limit is None else min(CHUNK, limit - total)
        keys = {**given, "after": after, "chunk": chunk, "why": f"restarted by {deed['actor']}"}
        try:
            with connection.transaction():
                row = connection.execute(query, keys).fetchone()
                last, met, started, lowest, highest, ids, urls = row or (None, 0, 0, None, None, None, None)
                if started:
                    details = {**about, "tasks": started, "from_id": lowest, "to_id": highest}
                    audit.write(connection, **deed, details=details)
        except (
            psycopg.errors.UniqueViolation
        ):  # somebody made one of these URLs live meanwhile: the next look leaves it out
            tries += 1
            if tries == TRIES:
                raise
            continue
        tries = 0
        total += started
        if started:
            progress(total)
            tell([RestartedTask(*pair) for pair in zip(ids, urls, strict=True)])
        if met < chunk:
            break
        after = last
    return total


@dataclass(frozen=True, slots=True)
class _Found:
    verdict: OperationVerdict
    status: TaskStatus
    has_page: bool
    priority: int
    url_key: bytes


def _look(connection: psycopg.Connection, task_id: int, operation: Operation) -> _Found:
    """Lock the task and look the operation up; Refused if it is not for this status."""
    row = connection.execute(_STATE, {"id": task_id}).fetchone()
    if row is None:
        raise no_task(task_id)
    status = TaskStatus(row[0])
    verdict = OPERATIONS[status][operation]
    if verdict is OperationVerdict.REFUSE:
        allowed = [other for other in TaskStatus if OPERATIONS[other][operation] is OperationVerdict.ACT]
        words = str(operation).replace("_", " ")
        raise Refused(f"Task {task_id} is {status}; {words} is for tasks that are {', '.join(allowed)}.")
    return _Found(verdict, status, row[1], row[2], row[3])


def _revive(
    connection: psycopg.Connection, task_id: int, found: _Found, statements: Iterable[str], values: Mapping[str, object]
) -> None:
    """Make a task live; Refused, naming the one, if another of its URL is."""
    try:
        with connection.transaction():
            for statement in statements:
                connection.execute(statement, {**values, "id": task_id})
    except psycopg.errors.UniqueViolation as problem:
        twin = connection.execute(_TWIN, {"key": found.url_key}).fetchone()
        other = f"Task {twin[0]}, which is {twin[1]}," if twin else "Another task"
        raise Refused(f"{other} is for the same URL as task {task_id}, which is {found.status}.") from problem


def _move(
    connection: psycopg.Connection, task_id: int, operation: Operation, statement: str, why: str, actor: str
) -> bool:
    with connection.transaction():
        found = _look(connection, task_id, operation)
        if found.verdict is OperationVerdict.UNCHANGED:
            return False
        connection.execute(statement, {"id": task_id, "why": why})
        _audit(connection, task_id, operation, actor, {"was": found.status})
    return True


def _audit(
    connection: psycopg.Connection, task_id: int, operation: Operation, actor: str, details: Mapping[str, object]
) -> None:
    audit.write(connection, actor=actor, action=operation, kind=KIND, object_id=task_id, details=details)
