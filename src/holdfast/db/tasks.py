"""Tasks: made, found, read.

The rule: of one URL there is at most one live task. Who asks for another is given the one that there is, and nothing of it changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import psycopg

from holdfast.db.domains import TREATMENT_COLUMNS, TREATMENT_VALUES, NewDomains
from holdfast.db.rows import by_name
from holdfast.errors import NotFound
from holdfast.model.domain import Seed
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.task import NewTask, Task, TaskStatus

IS_LIVE: Final = "status NOT IN ('completed', 'failed', 'cancelled')"
"""As the unique index says it: in other words the planner would not know it again."""

COLUMNS: Final = """
t.id, t.domain_id, d.domain, t.url, t.url_hash, t.status::text, t.status_reason, t.priority, t.scheduled_at, t.started_at, t.completed_at,
t.retry_count, t.max_retries, t.error_message, t.crawl_frequency, t.next_crawl_at, t.recrawl_count, t.is_recurring,
t.archive_segment, t.archive_offset, t.archive_length, t.archive_digest, t.http_status_code, t.response_time_ms, t.proxy_id,
t.created_at, t.updated_at, t.created_by, t.parent_task_id, t.previous_task_id, t.batch_id, t.webhook_url, t.claim_epoch, t.attempt,
t.version, t.waits_for, t.parser_name, t.parsed_by, t.parser_version, t.parse_after
"""
"""What `as_task` makes a task of, by name; of crawl_tasks t and domains d."""

READ: Final = f"SELECT {COLUMNS} FROM crawl_tasks t JOIN domains d ON d.id = t.domain_id"  # noqa: S608 — a constant

# By name, as everybody else does who inserts domains.
_DOMAINS: Final = f"""
INSERT INTO domains (domain, parent_domain, base_url, source, priority_score, priority_computed_at, {TREATMENT_COLUMNS})
SELECT DISTINCT ON (w.domain COLLATE "C") w.domain, w.parent, w.base, 'task', -staleness_points(now() - interval '30 days'), now(),
       {TREATMENT_VALUES}
FROM unnest(%(domains)s::text[], %(parents)s::text[], %(bases)s::text[]) AS w(domain, parent, base)
WHERE NOT EXISTS (SELECT FROM domains d WHERE d.domain = w.domain)
ORDER BY w.domain COLLATE "C"
ON CONFLICT (domain) DO NOTHING
"""  # noqa: S608 — composed of constants only

# By key, as the schedule does that follows up completed ones. The first of several with one URL counts.
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

_ANY: Final = f"""
SELECT EXISTS (SELECT FROM crawl_tasks WHERE {IS_LIVE}) OR EXISTS (SELECT FROM crawl_tasks WHERE next_crawl_at IS NOT NULL)
"""  # noqa: S608 — a constant


@dataclass(frozen=True, slots=True)
class Added:
    """A task that was asked for: its id, and whether it is new or was live before."""

    id: int
    created: bool


@dataclass(frozen=True, slots=True)
class LiveTask:
    """The live task of a URL; `attempt` goes back with what came of it."""

    id: int
    attempt: int
    status: TaskStatus


def add(
    connection: psycopg.Connection, wanted: Sequence[NewTask], *, created_by: str, defaults: NewDomains
) -> list[Added]:
    """Make tasks, some thousands at most; one answer for each that is wanted, in their order.

    A transaction may be open. After: each URL has a live task: a new one that is pending, or the one that it had, unchanged. Domains
    that were unknown are known, with nothing to do yet. NotFound if a parent or a batch does not exist; then nothing was made.
    """
    with connection.transaction():
        made: dict[bytes, int] = {}
        found: dict[bytes, int] = {}
        while missing := [task for task in wanted if task.seed.url_key not in made.keys() | found.keys()]:
            # Each time: one that was there may be removed in this moment.
            connection.execute(_DOMAINS, _columns(missing) | defaults.columns())
            made |= _insert(connection, _columns(missing) | {"created_by": created_by})
            others = [task.seed.url_key for task in missing if task.seed.url_key not in made]
            # One that was in the way and has ended since is in neither: it is tried again.
            found |= {key: task.id for key, task in live(connection, others).items()}
    answers = []
    for task in wanted:
        key = task.seed.url_key
        answers.append(Added(made[key], created=True) if key in made else Added(found[key], created=False))
        if key in made:  # wanted twice: the second one is given the first
            found[key] = made.pop(key)
    return answers


def know_domains(connection: psycopg.Connection, seeds: Sequence[Seed], defaults: NewDomains) -> dict[str, int]:
    """The ids of the domains of these seeds, by name. After: those that were unknown are known, with nothing to do yet."""
    names = [seed.domain for seed in seeds]
    homes = {"parents": [seed.parent_domain for seed in seeds], "bases": [seed.base_url for seed in seeds]}
    found: dict[str, int] = {}
    while not found.keys() >= set(names):  # one that was there may be removed in this moment
        connection.execute(_DOMAINS, {"domains": names, **homes, **defaults.columns()})
        found = dict(connection.execute("SELECT domain, id FROM domains WHERE domain = ANY(%s)", (names,)).fetchall())
    return found


def any_live(connection: psycopg.Connection) -> bool:
    """Whether a task is under way, or will be by itself."""
    row = connection.execute(_ANY).fetchone()
    return bool(row and row[0])


def live(connection: psycopg.Connection, url_keys: Sequence[bytes]) -> dict[bytes, LiveTask]:
    """The live tasks of these URLs. Inside the transaction that commits a batch it says whose results it has."""
    rows = connection.execute(_LIVE, {"keys": list(url_keys)}) if url_keys else ()
    return {key: LiveTask(task_id, attempt, TaskStatus(status)) for key, task_id, attempt, status in rows}


def get(connection: psycopg.Connection, task_id: int) -> Task:
    """A task; NotFound if there is none with this id."""
    with connection.cursor(row_factory=as_task) as cursor:
        task = cursor.execute(f"{READ} WHERE t.id = %s", (task_id,)).fetchone()
    if task is None:
        raise no_task(task_id)
    return task


def no_task(task_id: int) -> NotFound:
    """What is raised about a task that does not exist."""
    return NotFound(f"There is no task {task_id}.")


def _archive(
    archive_segment: str | None, archive_offset: int, archive_length: int, archive_digest: bytes
) -> ArchiveRef | None:
    if archive_segment is None:
        return None
    return ArchiveRef(archive_segment, archive_offset, archive_length, archive_digest)


def _status(status: str) -> TaskStatus:
    return TaskStatus(status)


as_task: Final = by_name(Task, archive=_archive, status=_status)
"""The row factory of `COLUMNS`."""


def _insert(connection: psycopg.Connection, columns: dict[str, object]) -> dict[bytes, int]:
    try:
        return dict(connection.execute(_ADD, columns).fetchall())
    except psycopg.errors.ForeignKeyViolation as problem:
        what = "parent task" if problem.diag.constraint_name == "crawl_tasks_parent_task_id_fkey" else "batch"
        raise NotFound(f"A {what} of these tasks does not exist.") from problem


def _columns(tasks: Sequence[NewTask]) -> dict[str, object]:
    return {
        "domains": [task.seed.domain for task in tasks],
        "parents": [task.seed.parent_domain for task in tasks],
        "bases": [task.seed.base_url for task in tasks],
        "urls": [task.seed.url for task in tasks],
        "keys": [task.seed.url_key for task in tasks],
        "priorities": [task.priority for task in tasks],
        "times": [task.scheduled_at for task in tasks],
        "frequencies": [task.frequency for task in tasks],
        "recurring": [task.recurring for task in tasks],
        "retries": [task.max_retries for task in tasks],
        "parent_tasks": [task.parent_task_id for task in tasks],
        "batches": [task.batch_id for task in tasks],
        "webhooks": [task.webhook_url for task in tasks],
        "parsers": [task.parser for task in tasks],
    }
