"""Tasks as the crawl, the scheduler and the parse phase read them, and their schedule: due tasks are queued, and completed ones that recur
are followed by the next task of their URL.

The rule: of one URL there is at most one live task. A task that cannot run is set aside when it is found due, and taken back when its
condition is met; so however many of them there are, the scheduler does not read them again and again. One scheduler at a time: a second
one finds nothing to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import psycopg

from holdfast.db.domains import TREATMENT_COLUMNS, TREATMENT_VALUES, NewDomains
from holdfast.db.rows import by_name
from holdfast.errors import NotFound
from holdfast.model.domain import Seed
from holdfast.model.task import HIGHEST_PRIORITY, LOWEST_PRIORITY, TaskStatus
from holdfast.tasks.records import Archived, Task

IS_LIVE: Final = "status NOT IN ('completed', 'failed', 'cancelled')"
"""The condition of the unique index, word for word: otherwise the planner does not use the index."""

COLUMNS: Final = """
t.id, t.domain_id, d.domain, t.url, t.status::text, t.status_reason, t.priority, t.scheduled_at, t.started_at, t.completed_at,
t.retry_count, t.max_retries, t.error_message, t.crawl_frequency, t.next_crawl_at, t.recrawl_count, t.is_recurring,
t.archive_segment, t.archive_offset, t.archive_length, t.archive_digest, t.http_status_code, t.response_time_ms, t.proxy_id,
t.created_at, t.updated_at, t.created_by, t.parent_task_id, t.previous_task_id, t.batch_id, t.webhook_url, t.claim_epoch, t.attempt,
t.version, t.waits_for, t.parser_name, t.parsed_by, t.parser_version, t.parse_after
"""
"""The columns of `as_task`, of crawl_tasks t and domains d."""

READ: Final = f"SELECT {COLUMNS} FROM crawl_tasks t JOIN domains d ON d.id = t.domain_id"  # noqa: S608 — a constant

# Ordered by name, like every insert of domains.
_DOMAINS: Final = f"""
INSERT INTO domains (domain, parent_domain, base_url, source, priority_score, priority_computed_at, {TREATMENT_COLUMNS})
SELECT DISTINCT ON (w.domain COLLATE "C") w.domain, w.parent, w.base, 'task', -staleness_points(now() - interval '30 days'), now(),
       {TREATMENT_VALUES}
FROM unnest(%(domains)s::text[], %(parents)s::text[], %(bases)s::text[]) AS w(domain, parent, base)
WHERE NOT EXISTS (SELECT FROM domains d WHERE d.domain = w.domain)
ORDER BY w.domain COLLATE "C"
ON CONFLICT (domain) DO NOTHING
"""  # noqa: S608 — composed of constants only

_ANY: Final = f"""
SELECT EXISTS (SELECT FROM crawl_tasks WHERE {IS_LIVE}) OR EXISTS (SELECT FROM crawl_tasks WHERE next_crawl_at IS NOT NULL)
"""  # noqa: S608 — a constant

CHUNK: Final = 1_000
ROUNDS: Final = 20
"""How often a call may read again because it found only tasks to be set aside."""

_SCHEDULE_LOCK: Final = 0x7461736B  # "task"
_LOCK: Final = "SELECT pg_try_advisory_xact_lock(%(key)s)"

_PRIORITIES: Final = """
SELECT p FROM generate_series(%(first)s::int, %(last)s::int) p WHERE EXISTS (
    SELECT FROM crawl_tasks t
    WHERE t.status = 'pending' AND t.waits_for IS NULL AND t.priority = p AND t.scheduled_at <= statement_timestamp())
ORDER BY p
"""
# One priority at a time: within it the index is in order of time, and later tasks are not read. (By the time of the statement: a clock
# that moves within it cannot be searched in an index.)
DUE: Final = """
SELECT t.id, CASE WHEN NOT d.is_active THEN 'domain' WHEN p.status <> 'completed' THEN 'parent' END AS obstacle
FROM crawl_tasks t JOIN domains d ON d.id = t.domain_id LEFT JOIN crawl_tasks p ON p.id = t.parent_task_id
WHERE t.status = 'pending' AND t.waits_for IS NULL AND t.priority = %(priority)s AND t.scheduled_at <= statement_timestamp()
ORDER BY t.scheduled_at, t.id LIMIT %(limit)s
FOR NO KEY UPDATE OF t SKIP LOCKED
"""
_TAKE: Final = f"""
WITH met AS MATERIALIZED ({DUE}
), aside AS (
    UPDATE crawl_tasks t SET waits_for = m.obstacle FROM met m WHERE t.id = m.id AND m.obstacle IS NOT NULL
), queued AS (
    UPDATE crawl_tasks t SET status = 'queued', status_reason = 'due' FROM met m WHERE t.id = m.id AND m.obstacle IS NULL
    RETURNING t.id, t.attempt, t.domain_id, t.url, t.url_hash, t.priority, t.scheduled_at
)
SELECT (SELECT count(*) FROM met), id, attempt, domain_id, url, url_hash, priority
FROM (SELECT 1) one LEFT JOIN queued ON true ORDER BY scheduled_at, id
"""  # noqa: S608 — a constant

# From one domain to the next by index, not over all tasks that are set aside; and from the domain to its tasks (LATERAL), whatever number
# of them the planner expects.
_ACTIVE_AGAIN: Final = """
WITH RECURSIVE aside AS (
    SELECT min(domain_id) AS domain_id FROM crawl_tasks WHERE waits_for = 'domain'
    UNION ALL
    SELECT (SELECT min(t.domain_id) FROM crawl_tasks t WHERE t.waits_for = 'domain' AND t.domain_id > aside.domain_id)
    FROM aside WHERE aside.domain_id IS NOT NULL
), back AS MATERIALIZED (
    SELECT t.id FROM (SELECT d.id FROM aside JOIN domains d ON d.id = aside.domain_id WHERE d.is_active) awake, LATERAL (
        SELECT t.id FROM crawl_tasks t WHERE t.domain_id = awake.id AND t.waits_for = 'domain'
        LIMIT %(chunk)s FOR NO KEY UPDATE SKIP LOCKED) t
    LIMIT %(chunk)s
)
UPDATE crawl_tasks t SET waits_for = NULL FROM back WHERE t.id = back.id
"""
_PARENT_COMPLETED: Final = """
WITH back AS MATERIALIZED (
    SELECT c.id FROM (SELECT p.id FROM crawl_tasks p WHERE p.frees_children) parent, LATERAL (
        SELECT c.id FROM crawl_tasks c WHERE c.parent_task_id = parent.id AND c.waits_for = 'parent'
        LIMIT %(chunk)s FOR NO KEY UPDATE SKIP LOCKED) c
    LIMIT %(chunk)s
)
UPDATE crawl_tasks t SET waits_for = NULL FROM back WHERE t.id = back.id
"""
_ALL_FREED: Final = """
WITH done AS MATERIALIZED (
    SELECT p.id FROM crawl_tasks p WHERE p.frees_children
      AND NOT EXISTS (SELECT FROM crawl_tasks c WHERE c.parent_task_id = p.id AND c.waits_for = 'parent')
    LIMIT %(chunk)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE crawl_tasks t SET frees_children = false FROM done WHERE t.id = done.id
"""

# Only the newest row of a URL has a next one. Where an older one is live, because an operator restarted it, the URL is being crawled
# now: the next time is one frequency from now.
_SPAWN: Final = f"""
WITH ended AS MATERIALIZED (
    SELECT t.id, t.url_hash, NOT EXISTS (SELECT FROM crawl_tasks n WHERE n.url_hash = t.url_hash AND n.id > t.id) AS newest
    FROM crawl_tasks t WHERE t.next_crawl_at <= statement_timestamp()
    ORDER BY t.next_crawl_at LIMIT %(limit)s FOR NO KEY UPDATE OF t SKIP LOCKED
), next AS (
    INSERT INTO crawl_tasks (domain_id, url, url_hash, priority, crawl_frequency, is_recurring, max_retries, batch_id, webhook_url,
                             parser_name, recrawl_count, previous_task_id, created_by)
    SELECT t.domain_id, t.url, t.url_hash, t.priority, t.crawl_frequency, true, t.max_retries, t.batch_id, t.webhook_url,
           t.parser_name, t.recrawl_count + 1, t.id, 'schedule'
    FROM ended e JOIN crawl_tasks t ON t.id = e.id WHERE e.newest ORDER BY t.url_hash
    ON CONFLICT (url_hash) WHERE {IS_LIVE} DO NOTHING
    RETURNING id, previous_task_id
), settled AS (
    UPDATE crawl_tasks t SET next_crawl_at = CASE WHEN e.newest AND n.id IS NULL THEN clock_timestamp() + t.crawl_frequency END
    FROM ended e LEFT JOIN next n ON n.previous_task_id = e.id WHERE t.id = e.id
)
SELECT id FROM next ORDER BY id
"""  # noqa: S608 — a constant


@dataclass(frozen=True, slots=True)
class DueTask:
    """A due task, whose URL goes into the frontier."""

    id: int
    attempt: int
    """Its result must have the same attempt."""
    domain_id: int
    url: str
    url_key: bytes
    priority: int


def know_domains(connection: psycopg.Connection, seeds: Sequence[Seed], defaults: NewDomains) -> dict[str, int]:
    """Return the ids of the domains of these seeds, by name. After: unknown domains are inserted, with nothing to do yet."""
    names = [seed.domain for seed in seeds]
    homes = {"parents": [seed.parent_domain for seed in seeds], "bases": [seed.base_url for seed in seeds]}
    found: dict[str, int] = {}
    while not found.keys() >= set(names):  # a domain that was there may be removed in this moment
        connection.execute(_DOMAINS, {"domains": names, **homes, **defaults.columns()})
        found = dict(connection.execute("SELECT domain, id FROM domains WHERE domain = ANY(%s)", (names,)).fetchall())
    return found


def any_live(connection: psycopg.Connection) -> bool:
    """Whether a task is live, or will be crawled again."""
    row = connection.execute(_ANY).fetchone()
    return bool(row and row[0])


def get(connection: psycopg.Connection, task_id: int) -> Task:
    """Return a task. Raises NotFound."""
    with connection.cursor(row_factory=as_task) as cursor:
        task = cursor.execute(f"{READ} WHERE t.id = %s", (task_id,)).fetchone()
    if task is None:
        raise no_task(task_id)
    return task


def no_task(task_id: int) -> NotFound:
    """The error about a task that does not exist."""
    return NotFound(f"There is no task {task_id}.")


def _archive(
    archive_segment: str | None, archive_offset: int, archive_length: int, archive_digest: bytes
) -> Archived | None:
    if archive_segment is None:
        return None
    return Archived(archive_segment, archive_offset, archive_length, archive_digest.hex())


def _status(status: str) -> TaskStatus:
    return TaskStatus(status)


as_task: Final = by_name(Task, archive=_archive, status=_status)
"""The row factory of `COLUMNS`."""


# The schedule --------------------------------------------------------------------------------------------------------


def due(connection: psycopg.Connection, limit: int) -> list[DueTask]:
    """Queue tasks whose time has come, of active domains, whose parent, if any, is completed: by priority, time, id.

    A transaction may be open, and should be: the insert into the frontier belongs into it. After (with its commit): those in the
    answer are queued under a new attempt; due tasks that cannot run are set aside. Returns nothing while another transaction
    schedules.
    """
    taken: list[DueTask] = []
    with connection.transaction():
        row = connection.execute(_LOCK, {"key": _SCHEDULE_LOCK}).fetchone()
        if not row or not row[0]:
            return []
        for statement in (_ACTIVE_AGAIN, _PARENT_COMPLETED, _ALL_FREED):
            connection.execute(statement, {"chunk": CHUNK})
        rounds = ROUNDS
        scale = {"first": HIGHEST_PRIORITY, "last": LOWEST_PRIORITY}
        for (priority,) in connection.execute(_PRIORITIES, scale).fetchall():
            more = True
            while more and len(taken) < limit and rounds:
                wanted = limit - len(taken)
                rows = connection.execute(_TAKE, {"priority": priority, "limit": wanted}).fetchall()
                found = [DueTask(*row[1:]) for row in rows if row[1] is not None]
                taken += found
                more = rows[0][0] == wanted
                rounds -= len(found) < wanted and more
    return taken


def spawn_due(connection: psycopg.Connection, limit: int) -> list[int]:
    """Follow up completed tasks that recur and whose time has come; returns the ids of the new ones, pending and due at once.

    A transaction may be open. After (with its commit): each has a next row, which carries on url, domain, priority, frequency,
    retries, batch, webhook and parser; two schedulers never follow up the same one.
    """
    with connection.transaction():
        return [row[0] for row in connection.execute(_SPAWN, {"limit": limit})]
