"""SQL of tasks and batches for people: create, list, show, history, statistics; restart, pause, resume, cancel, change the priority.

The rule: whether an operation is allowed is looked up in the table of `model/task` under the lock of the row. To repeat an operation is no
error and changes nothing; a change leaves a row in the audit log, in the same transaction. A list continues after the last key that was
seen, so that a page among a million tasks costs the same as the first one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import RowMaker

from holdfast.db import audit
from holdfast.db.domains import NewDomains
from holdfast.db.keyset_pagination import Equals, Key, Listing, Order, Page, SortColumn, only_id
from holdfast.db.rows import by_name
from holdfast.db.tasks import COLUMNS, IS_LIVE, READ, as_task, know_domains, no_task
from holdfast.errors import NotFound, Refused
from holdfast.model.domain import Seed
from holdfast.model.task import OPERATIONS, RESTARTABLE, Operation, OperationVerdict, TaskStatus
from holdfast.tasks.records import (
    Batch,
    FailedTasks,
    RestartedTask,
    RestartedTasks,
    Task,
    TaskCount,
    TaskCrawl,
    TaskEvent,
    TaskOptions,
)

CHUNK: Final = 1_000
TRIES: Final = 20
"""Attempts to restart a chunk whose URLs became live meanwhile."""
MAX_LISTED: Final = 1_000
"""Restarted tasks that a result names."""
MAX_COUNTED: Final = 10_000
"""Failed tasks that are looked at to count what a restart would restart."""
KIND: Final = "task"
"""The kind of tasks in the audit log."""
COUNTED: Final = 100_000
"""Tasks that are counted for one page of batches."""
_NEWEST: Final = 2**63 - 1
_DOWN: Final = (SortColumn("t.id", int, descending=True),)
_UP: Final = (SortColumn("t.id", int),)
_LEADING: Final = (("url",), ("batch",), ("domain",), ("status",), ())

TASKS: Final = Listing(
    "crawl_tasks",
    "t.id",
    only_id,
    {
        "status": Equals("t.status", "%(status)s::task_status"),
        "domain": Equals("t.domain_id", "%(domain)s::bigint"),
        "batch": Equals("t.batch_id", "%(batch)s::bigint"),
        "parent_task_id": "t.parent_task_id = %(parent_task_id)s",
        "priority": "t.priority = %(priority)s",
        "url": Equals("t.url_hash", "%(url)s::bytea"),
    },
    {"newest": Order(_DOWN, _LEADING), "oldest": Order(_UP, _LEADING)},
    selective=frozenset({"domain", "batch", "parent_task_id", "status", "url"}),
)


def _batch_of_row(
    id: int,  # noqa: A002 — as the column
    name: str,
    created_at: datetime,
    created_by: str,
    tasks: Mapping[str, int],
    counted_all: bool,
) -> Batch:
    counts = {TaskStatus(status): count for status, count in tasks.items()}
    return Batch(id, name, created_at, created_by, counts, counted_all)


BATCHES: Final = Listing(
    "crawl_batches",
    "t.id, t.name, t.created_at, t.created_by, c.tasks, c.counted < %(count_limit)s AS counted_all",
    _batch_of_row,
    {"prefix": "starts_with(t.name, %(prefix)s)"},
    {"newest": Order(_DOWN), "oldest": Order(_UP)},
    joins="""
    CROSS JOIN LATERAL (
        SELECT COALESCE(jsonb_object_agg(s.status, s.tasks), '{}') AS tasks, COALESCE(sum(s.tasks), 0) AS counted FROM (
            SELECT k.status, count(*) AS tasks FROM (
                SELECT k.status FROM crawl_tasks k WHERE k.batch_id = t.id LIMIT %(count_limit)s) k GROUP BY k.status) s) c
    """,
)

# Ordered by key, like the insert of the scheduler that follows up completed tasks. Of several with one URL the first counts.
_ADD: Final = f"""
INSERT INTO crawl_tasks (domain_id, url, url_hash, priority, scheduled_at, crawl_frequency, is_recurring, max_retries, parent_task_id,
                         batch_id, webhook_url, parser_name, created_by, previous_task_id)
SELECT DISTINCT ON (w.url_key) d.id, w.url, w.url_key, w.priority, COALESCE(w.scheduled_at, clock_timestamp()),
       COALESCE(w.frequency, GREATEST(d.default_crawl_frequency, interval '1 second')), w.recurring, w.retries, w.parent, w.batch,
       w.webhook, w.parser, left(%(created_by)s, 100), (SELECT max(o.id) FROM crawl_tasks o WHERE o.url_hash = w.url_key)
FROM unnest(%(domains)s::text[], %(urls)s::text[], %(keys)s::bytea[], %(priorities)s::smallint[], %(times)s::timestamptz[],
            %(frequencies)s::interval[], %(recurring)s::bool[], %(retries)s::smallint[], %(parent_tasks)s::bigint[],
            %(batches)s::bigint[], %(webhooks)s::text[], %(parsers)s::text[])
     WITH ORDINALITY
     AS w(domain, url, url_key, priority, scheduled_at, frequency, recurring, retries, parent, batch, webhook, parser, place)
JOIN domains d ON d.domain = w.domain
ORDER BY w.url_key, w.place
ON CONFLICT (url_hash) WHERE {IS_LIVE} DO NOTHING
RETURNING url_hash, id
"""  # noqa: S608 — composed of constants only

_LIVE: Final = f"""
SELECT url_hash, id, attempt, status::text FROM crawl_tasks WHERE url_hash = ANY(%(keys)s::bytea[]) AND {IS_LIVE}
"""  # noqa: S608 — a constant

# The events of a task come as one value: there are few of them, and a join would repeat the task for each.
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

_BATCH: Final = """
SELECT b.id, b.name, b.created_at, b.created_by, COALESCE((
    SELECT jsonb_object_agg(s.status, s.tasks) FROM (
        SELECT t.status, count(*) AS tasks FROM crawl_tasks t WHERE t.batch_id = b.id GROUP BY t.status) s), '{}') AS tasks,
       true AS counted_all
FROM crawl_batches b WHERE b.name = %s
"""
_NEW_BATCH: Final = """
INSERT INTO crawl_batches (name, created_by) VALUES (%(name)s, left(%(actor)s, 100)) ON CONFLICT (name) DO NOTHING RETURNING id
"""

_STATE: Final = """
SELECT status::text, archive_segment IS NOT NULL, priority, url_hash FROM crawl_tasks WHERE id = %(id)s FOR NO KEY UPDATE
"""
_TWIN: Final = f"SELECT id, status::text FROM crawl_tasks WHERE url_hash = %(key)s AND {IS_LIVE}"  # noqa: S608 — a constant

# From the beginning: also without the redirects that it followed.
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

# Of a URL only the newest row, and only if none of its rows is live: a failure after which the URL was completed needs no restart.
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
_COUNT_FAILED: Final = f"""
WITH chunk AS MATERIALIZED (
    SELECT t.id, t.url_hash FROM crawl_tasks t WHERE t.status = 'failed'{{where}} ORDER BY t.id LIMIT %(limit)s
)
SELECT count(*) FILTER (
           WHERE NOT EXISTS (SELECT FROM crawl_tasks n WHERE n.url_hash = c.url_hash AND n.id > c.id)
             AND NOT EXISTS (SELECT FROM crawl_tasks l WHERE l.url_hash = c.url_hash AND l.id <> c.id AND l.{IS_LIVE})),
       count(*) < %(limit)s
FROM chunk c
"""  # noqa: S608 — a constant
_FILTERS: Final = {
    "domain_id": " AND t.domain_id = %(domain_id)s",
    "batch_id": " AND t.batch_id = %(batch_id)s",
    "since": " AND t.completed_at >= %(since)s",
    "unchanged_since": " AND t.updated_at <= %(unchanged_since)s",
}


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to create."""

    seed: Seed
    """Its URL and its domain."""
    options: TaskOptions
    batch_id: int | None = None
    """The id of the batch that `options` names."""


@dataclass(frozen=True, slots=True)
class Added:
    """The id of a task that was asked for, and whether it is new or was live before."""

    id: int
    created: bool


@dataclass(frozen=True, slots=True)
class LiveTask:
    """The live task of a URL."""

    id: int
    attempt: int
    status: TaskStatus


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the state of a task depends on, beside its own row."""

    now: datetime
    """By the database's clock."""
    domain_is_active: bool
    batch: str | None
    moved_to: str | None
    """Where redirects have led it to so far."""


@dataclass(frozen=True, slots=True)
class RestartFilter:
    """Which tasks to restart; None: all."""

    domain_id: int | None = None
    batch_id: int | None = None
    since: datetime | None = None
    """Those that failed then or later."""
    unchanged_since: datetime | None = None
    """Those that have not changed since then."""


# Create --------------------------------------------------------------------------------------------------------------


def add(
    connection: psycopg.Connection, wanted: Sequence[NewTask], *, created_by: str, defaults: NewDomains
) -> list[Added]:
    """Create tasks, some thousands at most; returns one answer for each of `wanted`, in their order.

    A transaction may be open. After: each URL has a live task: a new one that is pending, or the one that it had, unchanged. Unknown
    domains are inserted, with nothing to do yet. NotFound if a parent or a batch does not exist; then nothing was created.
    """
    with connection.transaction():
        created: dict[bytes, int] = {}
        found: dict[bytes, int] = {}
        while missing := [task for task in wanted if task.seed.url_key not in created.keys() | found.keys()]:
            # Each time: a domain that was there may be removed in this moment.
            know_domains(connection, [task.seed for task in missing], defaults)
            created |= _insert(connection, _columns(missing) | {"created_by": created_by})
            others = [task.seed.url_key for task in missing if task.seed.url_key not in created]
            # A live task that has ended since the insert is in neither: its URL is tried again.
            found |= {key: task.id for key, task in live(connection, others).items()}
    answers = []
    for task in wanted:
        key = task.seed.url_key
        answers.append(Added(created[key], created=True) if key in created else Added(found[key], created=False))
        if key in created:  # wanted twice: the second answer is the first task
            found[key] = created.pop(key)
    return answers


def live(connection: psycopg.Connection, url_keys: Sequence[bytes]) -> dict[bytes, LiveTask]:
    """Return the live tasks of these URLs."""
    rows = connection.execute(_LIVE, {"keys": list(url_keys)}) if url_keys else ()
    return {key: LiveTask(task_id, attempt, TaskStatus(status)) for key, task_id, attempt, status in rows}


def _insert(connection: psycopg.Connection, columns: dict[str, object]) -> dict[bytes, int]:
    try:
        return dict(connection.execute(_ADD, columns).fetchall())
    except psycopg.errors.ForeignKeyViolation as problem:
        what = "parent task" if problem.diag.constraint_name == "crawl_tasks_parent_task_id_fkey" else "batch"
        raise NotFound(f"A {what} of these tasks does not exist.") from problem


def _columns(tasks: Sequence[NewTask]) -> dict[str, object]:
    options = [task.options for task in tasks]
    return {
        "domains": [task.seed.domain for task in tasks],
        "urls": [task.seed.url for task in tasks],
        "keys": [task.seed.url_key for task in tasks],
        "priorities": [one.priority for one in options],
        "times": [one.scheduled_at for one in options],
        "frequencies": [one.crawl_frequency for one in options],
        "recurring": [one.is_recurring for one in options],
        "retries": [one.max_retries for one in options],
        "parent_tasks": [one.parent_task_id for one in options],
        "batches": [task.batch_id for task in tasks],
        "webhooks": [one.webhook_url for one in options],
        "parsers": [one.parser_name for one in options],
    }


# Read ----------------------------------------------------------------------------------------------------------------


def page(
    connection: psycopg.Connection,
    filters: Mapping[str, object],
    *,
    order: str = "newest",
    after: Key | None = None,
    limit: int = 100,
) -> Page[Task]:
    """Return one page of tasks; `filters` by the names of `TASKS`, a domain and a batch by their ids."""
    return TASKS.records(connection, _by_ids, filters, order=order, after=after, limit=limit)


def _by_ids(connection: psycopg.Connection, ids: Sequence[int]) -> dict[int, Task]:
    with connection.cursor(row_factory=as_task) as cursor:
        return {task.id: task for task in cursor.execute(f"{READ} WHERE t.id = ANY(%s)", (list(ids),)).fetchall()}


def surroundings(connection: psycopg.Connection, task_id: int) -> Surroundings:
    """Return what the state of a task depends on. Raises NotFound."""
    with connection.cursor(row_factory=by_name(Surroundings)) as cursor:
        found = cursor.execute(_SURROUNDINGS, (task_id,)).fetchone()
    if found is None:
        raise no_task(task_id)
    return found


def history(
    connection: psycopg.Connection, task_id: int, *, before: int | None = None, limit: int = 100
) -> list[TaskCrawl]:
    """Return the crawls of a task's URL, the newest first, with their events; `before` is the id of the last one seen. Raises NotFound."""
    # In binary a row value has the types of its fields; as text it has not.
    with connection.cursor(row_factory=_as_crawl, binary=True) as cursor:
        values = {"id": task_id, "before": _NEWEST if before is None else before, "limit": limit}
        found = cursor.execute(_HISTORY, values).fetchall()
    if not found and not (before is not None and connection.execute(_IS_THERE, {"id": task_id}).fetchone()):
        raise no_task(task_id)
    return found


def stats(connection: psycopg.Connection, *, span: timedelta = timedelta(days=1)) -> list[TaskCount]:
    """Return how many tasks are in each status, and those that ended within `span`; every status is listed."""
    counts: dict[str, int] = dict(connection.execute(_COUNTS).fetchall())
    lately = {row[0]: row[1:] for row in connection.execute(_LATELY, {"span": span})}
    return [TaskCount(status, counts.get(status, 0), *lately.get(status, (0, None))) for status in TaskStatus]


def _as_crawl(cursor: psycopg.Cursor[Any]) -> RowMaker[TaskCrawl]:
    task, events = as_task(cursor), _as_events(cursor)
    return lambda row: TaskCrawl(task(row), events(row))


def _events(events: Sequence[Sequence[Any]]) -> list[TaskEvent]:
    return [
        TaskEvent(version, at, TaskStatus(old), TaskStatus(new), why, attempt, claim_epoch)
        for version, at, old, new, why, attempt, claim_epoch in events
    ]


_as_events: Final = by_name(_events)


# Batches -------------------------------------------------------------------------------------------------------------


def create_batch(connection: psycopg.Connection, name: str, *, actor: str) -> int:
    """Create a batch; returns its id. Refused if there is one of that name. A transaction may be open."""
    with connection.transaction():
        row = connection.execute(_NEW_BATCH, {"name": name, "actor": actor}).fetchone()
        if row is None:
            raise Refused(f"There is a batch called {name!r} already.")
        audit.write(connection, actor=actor, action="create", kind="batch", object_id=row[0], details={"name": name})
    return int(row[0])


def batches(
    connection: psycopg.Connection,
    filters: Mapping[str, object],
    *,
    order: str = "newest",
    after: Key | None = None,
    limit: int = 100,
    count_all: bool = False,
) -> Page[Batch]:
    """Return one page of batches; `count_all`: count all tasks of each batch, however many there are."""
    extra = {"count_limit": _NEWEST if count_all else max(1, COUNTED // max(1, limit))}
    return BATCHES.page(connection, filters, order=order, after=after, limit=limit, extra=extra)


def batch_id(connection: psycopg.Connection, name: str) -> int:
    """Return the id of the batch of that name. Raises NotFound."""
    row = connection.execute("SELECT id FROM crawl_batches WHERE name = %s", (name,)).fetchone()
    if row is None:
        raise _no_batch(name)
    return int(row[0])


def batch(connection: psycopg.Connection, name: str) -> Batch:
    """Return the batch of that name, with all its tasks counted. Raises NotFound."""
    with connection.cursor(row_factory=_as_batch) as cursor:
        found = cursor.execute(_BATCH, (name,)).fetchone()
    if found is None:
        raise _no_batch(name)
    return found


def _no_batch(name: str) -> NotFound:
    return NotFound(f"There is no batch called {name!r}.")


_as_batch: Final = by_name(_batch_of_row)


# Operations on one task ----------------------------------------------------------------------------------------------
# Each returns whether anything changed. A transaction may be open. Raises NotFound, or Refused, with the status, if the table of
# operations says so.


def restart(
    connection: psycopg.Connection,
    task_id: int,
    *,
    actor: str,
    reset_retries: bool = True,
    priority: int | None = None,
    scheduled_at: datetime | None = None,
) -> bool:
    """Crawl a task again from the beginning. After: it is pending, due now or at `scheduled_at`, without its error.

    Refused also if another task of its URL is live.
    """
    with connection.transaction():
        found = _lock(connection, task_id, Operation.RESTART)
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
        found = _lock(connection, task_id, Operation.RESTART_PARSING)
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
    """Pause a live task. After: it is paused; the result of a crawl or a parse that is under way is refused."""
    return _set_status(connection, task_id, Operation.PAUSE, _PAUSE, f"paused by {actor}", actor)


def resume(connection: psycopg.Connection, task_id: int, *, actor: str) -> bool:
    """Resume a paused task. After: it is pending and due, with the retries that it had."""
    return _set_status(connection, task_id, Operation.RESUME, _RESUME, f"resumed by {actor}", actor)


def cancel(connection: psycopg.Connection, task_id: int, *, actor: str) -> bool:
    """Cancel a task. After: it is cancelled, and its URL is not crawled again by itself."""
    return _set_status(connection, task_id, Operation.CANCEL, _CANCEL, f"cancelled by {actor}", actor)


def set_priority(connection: psycopg.Connection, task_id: int, priority: int, *, actor: str) -> bool:
    """Set the priority of a task and of those that follow it. Before: `priority` is from 1 to 10."""
    with connection.transaction():
        found = _lock(connection, task_id, Operation.PRIORITY)
        if found.priority == priority:
            return False
        connection.execute(_PRIORITY, {"id": task_id, "priority": priority})
        _audit(connection, task_id, Operation.PRIORITY, actor, {"was": found.priority, "priority": priority})
    return True


# Operations on many tasks --------------------------------------------------------------------------------------------


def restart_failed(
    connection: psycopg.Connection,
    where: RestartFilter,
    *,
    actor: str,
    limit: int | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> RestartedTasks:
    """Restart failed tasks, at most `limit`; `on_progress` is called after each chunk with the number so far.

    Before: no transaction is open. After: of each URL whose newest task had failed, that one is pending; an interruption keeps
    what was done, and the same call continues with the rest.
    """
    entry = {"actor": actor, "action": "restart_failed", "kind": KIND, "object_id": "*"}
    return _restart_many(connection, {TaskStatus.FAILED}, where, entry=entry, limit=limit, on_progress=on_progress)


def count_failed(connection: psycopg.Connection, where: RestartFilter, *, limit: int = MAX_COUNTED) -> FailedTasks:
    """Return how many tasks `restart_failed` would restart, among the first `limit` that failed."""
    filters = {name: getattr(where, name) for name in _FILTERS if getattr(where, name) is not None}
    query = _COUNT_FAILED.format(where="".join(_FILTERS[name] for name in filters))
    row = connection.execute(query, {**filters, "limit": limit}).fetchone()
    assert row is not None  # noqa: S101 — a count answers with a row
    return FailedTasks(*row)


def restart_batch(
    connection: psycopg.Connection,
    batch_id: int,
    *,
    actor: str,
    unchanged_since: datetime | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Restart every task of a batch that is completed, failed, cancelled or paused; returns how many. As `restart_failed` otherwise.

    With `unchanged_since` only those that have not changed since then: a call that is repeated restarts nothing twice.
    """
    entry = {"actor": actor, "action": Operation.RESTART, "kind": "batch", "object_id": str(batch_id)}
    where = RestartFilter(batch_id=batch_id, unchanged_since=unchanged_since)
    return _restart_many(connection, RESTARTABLE, where, entry=entry, limit=None, on_progress=on_progress).restarted


def _restart_many(
    connection: psycopg.Connection,
    statuses: Iterable[TaskStatus],
    where: RestartFilter,
    *,
    entry: Mapping[str, str],
    limit: int | None,
    on_progress: Callable[[int], None],
) -> RestartedTasks:
    """Restart tasks in chunks; `entry` is the entry of the audit log for each chunk, without its details."""
    filters = {name: getattr(where, name) for name in _FILTERS if getattr(where, name) is not None}
    listed = ", ".join(f"'{status}'" for status in sorted(statuses))
    query = _RESTART_MANY.format(where=f"AND t.status IN ({listed})" + "".join(_FILTERS[name] for name in filters))
    about = {name: str(value) for name, value in filters.items()}
    tasks: list[RestartedTask] = []
    after = total = tries = 0
    while limit is None or total < limit:
        chunk = CHUNK if limit is None else min(CHUNK, limit - total)
        values = {**filters, "after": after, "chunk": chunk, "why": f"restarted by {entry['actor']}"}
        try:
            with connection.transaction():
                row = connection.execute(query, values).fetchone()
                last, found, started, lowest, highest, ids, urls = row or (None, 0, 0, None, None, None, None)
                if started:
                    details = {**about, "tasks": started, "from_id": lowest, "to_id": highest}
                    audit.write(connection, **entry, details=details)
        except (
            psycopg.errors.UniqueViolation
        ):  # one of these URLs became live meanwhile: the next attempt leaves it out
            tries += 1
            if tries == TRIES:
                raise
            continue
        tries = 0
        total += started
        if started:
            on_progress(total)
            tasks += list(map(RestartedTask, ids, urls))[: MAX_LISTED - len(tasks)]
        if found < chunk:
            break
        after = last
    return RestartedTasks(total, tasks)


@dataclass(frozen=True, slots=True)
class _Locked:
    verdict: OperationVerdict
    status: TaskStatus
    has_page: bool
    priority: int
    url_key: bytes


def _lock(connection: psycopg.Connection, task_id: int, operation: Operation) -> _Locked:
    """Lock the task and look up the operation. Raises NotFound, or Refused if it is not allowed in this status."""
    row = connection.execute(_STATE, {"id": task_id}).fetchone()
    if row is None:
        raise no_task(task_id)
    status = TaskStatus(row[0])
    verdict = OPERATIONS[status][operation]
    if verdict is OperationVerdict.REFUSE:
        allowed = [other for other in TaskStatus if OPERATIONS[other][operation] is OperationVerdict.ACT]
        words = str(operation).replace("_", " ")
        raise Refused(f"Task {task_id} is {status}; {words} is for tasks that are {', '.join(allowed)}.")
    return _Locked(verdict, status, row[1], row[2], row[3])


def _revive(
    connection: psycopg.Connection,
    task_id: int,
    found: _Locked,
    statements: Iterable[str],
    values: Mapping[str, object],
) -> None:
    """Make a task live. Raises Refused, with its id, if another task of its URL is live."""
    try:
        with connection.transaction():
            for statement in statements:
                connection.execute(statement, {**values, "id": task_id})
    except psycopg.errors.UniqueViolation as problem:
        twin = connection.execute(_TWIN, {"key": found.url_key}).fetchone()
        other = f"Task {twin[0]}, which is {twin[1]}," if twin else "Another task"
        raise Refused(f"{other} is for the same URL as task {task_id}, which is {found.status}.") from problem


def _set_status(
    connection: psycopg.Connection, task_id: int, operation: Operation, statement: str, why: str, actor: str
) -> bool:
    with connection.transaction():
        found = _lock(connection, task_id, operation)
        if found.verdict is OperationVerdict.UNCHANGED:
            return False
        connection.execute(statement, {"id": task_id, "why": why})
        _audit(connection, task_id, operation, actor, {"was": found.status})
    return True


def _audit(
    connection: psycopg.Connection, task_id: int, operation: Operation, actor: str, details: Mapping[str, object]
) -> None:
    audit.write(connection, actor=actor, action=operation, kind=KIND, object_id=task_id, details=details)
