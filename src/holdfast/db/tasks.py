"""Tasks as the crawl, the scheduler and the parse phase read them.

The rule: of one URL there is at most one live task.
"""

from collections.abc import Sequence
from typing import Final

import psycopg

from holdfast.db.domains import TREATMENT_COLUMNS, TREATMENT_VALUES, NewDomains
from holdfast.db.rows import by_name
from holdfast.errors import NotFound
from holdfast.model.domain import Seed
from holdfast.model.task import TaskStatus
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
