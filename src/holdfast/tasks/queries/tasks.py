"""Tasks and batches as people look at them.

The rule: each question is one statement that an index answers, and a list goes on behind the last id that was seen, so that a page
of a million tasks costs what the first one did.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import RowMaker, class_row

from holdfast.db import audit
from holdfast.db.rows import by_name
from holdfast.db.tasks import COLUMNS, READ, as_task, no_task
from holdfast.errors import NotFound, Refused
from holdfast.model.task import Task, TaskStatus

_NEWEST: Final = 2**63 - 1
_FILTERS: Final = {
    "status": " AND t.status = %(status)s::task_status",
    "domain": " AND t.domain_id = (SELECT id FROM domains WHERE domain = %(domain)s)",
    "batch_id": " AND t.batch_id = %(batch_id)s",
    "parent_task_id": " AND t.parent_task_id = %(parent_task_id)s",
    "priority": " AND t.priority = %(priority)s",
}

# The events come as one value a task: a task has few, and a join would repeat the task for each.
_HISTORY: Final = f"""
SELECT {COLUMNS}, COALESCE((
    SELECT array_agg(ROW(e.version, e.at, e.from_status::text, e.to_status::text, e.why, e.attempt, e.claim_epoch) ORDER BY e.version)
    FROM task_events e WHERE e.task_id = t.id), '{{}}') AS events
FROM crawl_tasks t JOIN domains d ON d.id = t.domain_id
WHERE t.url_hash = (SELECT o.url_hash FROM crawl_tasks o WHERE o.id = %(id)s) AND t.id < %(before)s
ORDER BY t.id DESC LIMIT %(limit)s
"""  # noqa: S608 — a constant
_IS_THERE: Final = "SELECT id FROM crawl_tasks WHERE id = %(id)s"

_SURROUNDINGS: Final = """
SELECT clock_timestamp() AS now, d.is_active AS domain_is_active, b.name AS batch, t.fetch_url AS moved_to
FROM crawl_tasks t JOIN domains d ON d.id = t.domain_id LEFT JOIN crawl_batches b ON b.id = t.batch_id WHERE t.id = %s
"""

_COUNTS: Final = "SELECT status::text, count(*) FROM crawl_tasks GROUP BY status"
_LATELY: Final = """
SELECT status::text, count(*), avg(extract(epoch FROM completed_at - started_at))::float8
FROM crawl_tasks WHERE completed_at >= statement_timestamp() - %(span)s GROUP BY status
"""

_BATCHES: Final = """
SELECT b.id, b.name, b.created_at, b.created_by, COALESCE((
    SELECT jsonb_object_agg(s.status, s.tasks) FROM (
        SELECT t.status, count(*) AS tasks FROM crawl_tasks t WHERE t.batch_id = b.id GROUP BY t.status) s), '{}') AS tasks
FROM crawl_batches b
"""
_NEW_BATCH: Final = """
INSERT INTO crawl_batches (name, created_by) VALUES (%(name)s, left(%(actor)s, 100)) ON CONFLICT (name) DO NOTHING RETURNING id
"""


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks are meant; None: all."""

    status: TaskStatus | None = None
    domain: str | None = None
    batch_id: int | None = None
    parent_task_id: int | None = None
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a task hangs on, beside its own row."""

    now: datetime
    """By the database's clock."""
    domain_is_active: bool
    batch: str | None
    moved_to: str | None
    """Where redirects have led it to so far."""


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """One change of a task's status."""

    version: int
    at: datetime
    from_status: TaskStatus
    to_status: TaskStatus
    why: str
    attempt: int
    claim_epoch: int | None


@dataclass(frozen=True, slots=True)
class Crawled:
    """One crawl of a URL, and all that happened to it, the first first."""

    task: Task
    events: tuple[TaskEvent, ...]


@dataclass(frozen=True, slots=True)
class StatusCount:
    """How many tasks are in a status."""

    tasks: int = 0
    lately: int = 0
    """Those of them that came to it in the time asked for; of the statuses that end a task only."""
    mean_seconds: float | None = None
    """How long those took from the first request to the end, on average."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch, and how many of its tasks are in each status; statuses without any are left out."""

    id: int
    name: str
    created_at: datetime
    created_by: str
    tasks: dict[str, int]


# Tasks ---------------------------------------------------------------------------------------------------------------


def listing(
    connection: psycopg.Connection, chosen: TaskFilter, *, before: int | None = None, limit: int = 100
) -> list[Task]:
    """Tasks, the newest first; `before` is the id of the last one seen."""
    given = {name: getattr(chosen, name) for name in _FILTERS if getattr(chosen, name) is not None}
    where = "".join(_FILTERS[name] for name in given)
    keys = {**given, "before": _NEWEST if before is None else before, "limit": limit}
    with connection.cursor(row_factory=as_task) as cursor:
        return cursor.execute(
            f"{READ} WHERE t.id < %(before)s{where} ORDER BY t.id DESC LIMIT %(limit)s", keys
        ).fetchall()


def of_ids(connection: psycopg.Connection, ids: Sequence[int]) -> dict[int, Task]:
    """The tasks with these ids that there are."""
    with connection.cursor(row_factory=as_task) as cursor:
        return {task.id: task for task in cursor.execute(f"{READ} WHERE t.id = ANY(%s)", (list(ids),)).fetchall()}


def surroundings(connection: psycopg.Connection, task_id: int) -> Surroundings:
    """What a task hangs on; NotFound if there is no such task."""
    with connection.cursor(row_factory=class_row(Surroundings)) as cursor:
        found = cursor.execute(_SURROUNDINGS, (task_id,)).fetchone()
    if found is None:
        raise no_task(task_id)
    return found


def history(
    connection: psycopg.Connection, task_id: int, *, before: int | None = None, limit: int = 100
) -> list[Crawled]:
    """Every crawl of a task's URL, the newest first, each with its events; NotFound if there is no such task.

    `before` is the id of the last one seen.
    """
    # In binary a record says of what types its fields are; as text it does not.
    with connection.cursor(row_factory=_as_crawled, binary=True) as cursor:
        given = {"id": task_id, "before": _NEWEST if before is None else before, "limit": limit}
        found = cursor.execute(_HISTORY, given).fetchall()
    if not found and not (before is not None and connection.execute(_IS_THERE, {"id": task_id}).fetchone()):
        raise no_task(task_id)
    return found


def stats(connection: psycopg.Connection, *, span: timedelta = timedelta(days=1)) -> dict[TaskStatus, StatusCount]:
    """How many tasks are in each status, and how it went lately; every status is named."""
    counts: dict[str, int] = dict(connection.execute(_COUNTS).fetchall())
    lately = {row[0]: row[1:] for row in connection.execute(_LATELY, {"span": span})}
    return {status: StatusCount(counts.get(status, 0), *lately.get(status, ())) for status in TaskStatus}


def _as_crawled(cursor: psycopg.Cursor[Any]) -> RowMaker[Crawled]:
    task, history = as_task(cursor), _HISTORY_ROWS(cursor)
    return lambda row: Crawled(task(row), history(row))


def _events(events: Sequence[Sequence[Any]]) -> tuple[TaskEvent, ...]:
    return tuple(_event(*event) for event in events)


_HISTORY_ROWS: Final = by_name(_events)


def _event(
    version: int, at: datetime, old: str, new: str, why: str, attempt: int, claim_epoch: int | None
) -> TaskEvent:
    return TaskEvent(version, at, TaskStatus(old), TaskStatus(new), why, attempt, claim_epoch)


# Batches -------------------------------------------------------------------------------------------------------------


def create_batch(connection: psycopg.Connection, name: str, *, actor: str) -> int:
    """A new batch; its id. Refused if there is one of that name. A transaction may be open."""
    with connection.transaction():
        row = connection.execute(_NEW_BATCH, {"name": name, "actor": actor}).fetchone()
        if row is None:
            raise Refused(f"There is a batch called {name!r} already.")
        audit.write(connection, actor=actor, action="create", kind="batch", object_id=row[0], details={"name": name})
    return int(row[0])


def batches(connection: psycopg.Connection, *, before: int | None = None, limit: int = 100) -> list[Batch]:
    """Batches, the newest first; `before` is the id of the last one seen."""
    keys = {"before": _NEWEST if before is None else before, "limit": limit}
    with connection.cursor(row_factory=class_row(Batch)) as cursor:
        return cursor.execute(f"{_BATCHES} WHERE b.id < %(before)s ORDER BY b.id DESC LIMIT %(limit)s", keys).fetchall()


def batch_id(connection: psycopg.Connection, name: str) -> int:
    """The id of the batch of that name; NotFound if there is none."""
    row = connection.execute("SELECT id FROM crawl_batches WHERE name = %s", (name,)).fetchone()
    if row is None:
        raise NotFound(f"There is no batch called {name!r}.")
    return int(row[0])


def batch(connection: psycopg.Connection, name: str) -> Batch:
    """The batch of that name; NotFound if there is none."""
    with connection.cursor(row_factory=class_row(Batch)) as cursor:
        found = cursor.execute(f"{_BATCHES} WHERE b.name = %s", (name,)).fetchone()
    if found is None:
        raise NotFound(f"There is no batch called {name!r}.")
    return found
