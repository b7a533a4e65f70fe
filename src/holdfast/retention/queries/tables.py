"""SQL of the steps of retention that go by the age of rows: versions, tasks, claims, changes of status, audit, webhooks, images.

The rule: what the present state is read from stays, however old: the newest version of a page, the newest task of a URL, the last change of
a domain's status, tenures of rows that are in the log.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, LiteralString

import psycopg

from holdfast.retention.queries.chunks import Keys, Part, delete, fitting

CHUNK: Final = 5_000


@dataclass(frozen=True, slots=True)
class TableStep:
    """A step of retention that goes by the age of rows."""

    name: str
    """The kind of its archives, and the setting with its period."""
    setting: str
    types: Mapping[LiteralString, LiteralString]
    """The columns of a key, with their types."""
    parts: tuple[Part, ...]
    wanted: LiteralString
    """FROM and WHERE of the rows that are older than `%(kept)s`; the table is `t`."""
    lock: LiteralString
    """Locks those of the keys `k` that may still be deleted; their number must be that of the keys."""
    remove: Callable[[psycopg.Connection, Keys], int] | None = None
    """Deletes the rows; None: those of the first table."""


def _old(column: LiteralString) -> LiteralString:
    return f"{column} < clock_timestamp() - %(kept)s::interval"


def _rows(table: LiteralString, on: LiteralString) -> LiteralString:
    return f"SELECT count(*) FROM (SELECT 1 FROM {table} t JOIN {{keys}} ON {on} FOR UPDATE OF t) locked"  # noqa: S608 — constants


_VERSION: Final = "t.domain_id = k.domain_id AND t.job_id = k.job_id AND t.url_key = k.url_key AND t.number = k.number"
_ENDED_TASK: Final = "t.status IN ('completed', 'failed', 'cancelled')"

# Which jobs live is found once, and not for each row.
_NO_LIVE_JOB: Final = """NOT EXISTS (
    SELECT FROM job_domains jd WHERE jd.domain_id = t.domain_id AND jd.job_id = ANY(ARRAY(
        SELECT j.id FROM crawl_jobs j WHERE j.deleted_at IS NULL AND NOT COALESCE(
            job_ended_at(j) < clock_timestamp() - %(kept)s::interval AND COALESCE(j.kept_until < clock_timestamp(), true), false))))"""

_DELETE_PLACES: Final = """
WITH gone AS MATERIALIZED (
    DELETE FROM provenance p USING {keys} WHERE p.id = k.id RETURNING p.domain_id, p.image_id, p.job_id
), last AS MATERIALIZED (
    SELECT g.domain_id, g.image_id, COALESCE(min(g.job_id), -1) AS job_id FROM gone g WHERE NOT EXISTS (
        SELECT FROM provenance p WHERE p.domain_id = g.domain_id AND p.image_id = g.image_id AND p.id <> ALL(%(id)s::bigint[]))
    GROUP BY g.domain_id, g.image_id
), listed AS (
    DELETE FROM domain_images i USING last l WHERE i.domain_id = l.domain_id AND i.image_id = l.image_id
    RETURNING i.domain_id, l.job_id
), rolled AS (
    INSERT INTO crawl_log_rollups AS r (domain_id, job_id, images_stored)
    SELECT domain_id, job_id, count(*) FROM listed GROUP BY domain_id, job_id ORDER BY domain_id, job_id
    ON CONFLICT (domain_id, job_id) DO UPDATE SET images_stored = r.images_stored + excluded.images_stored
)
SELECT count(*) FROM gone
"""


def _remove_places(connection: psycopg.Connection, keys: Keys) -> int:
    """Delete images of pages; a domain stored as many as before, as its roll-up says."""
    row = connection.execute(_DELETE_PLACES.format(keys=keys.source()), keys.parameters(), prepare=False).fetchone()
    return 0 if row is None else int(row[0])


VERSIONS: Final = TableStep(
    "versions",
    "versions",
    {"domain_id": "bigint", "job_id": "bigint", "url_key": "bytea", "number": "integer"},
    (Part("page_versions", _VERSION, "replaced_at"),),
    f"""
    FROM page_versions t WHERE {_old("t.replaced_at")} AND EXISTS (
        SELECT FROM page_versions n WHERE n.domain_id = t.domain_id AND n.job_id = t.job_id AND n.url_key = t.url_key
        AND n.number > t.number)
    AND NOT EXISTS (SELECT FROM crawl_jobs j WHERE j.id = t.job_id AND j.kept_until > clock_timestamp())
    """,  # noqa: S608 — constants
    _rows("page_versions", _VERSION),
)
TASKS: Final = TableStep(
    "tasks",
    "tasks",
    {"id": "bigint"},
    (
        Part("crawl_tasks", "t.id = k.id", "completed_at"),
        Part("task_events", "t.task_id = k.id"),
        Part("parse_results", "t.task_id = k.id", wide="data"),
    ),
    f"""
    FROM crawl_tasks t WHERE {_ENDED_TASK} AND {_old("t.completed_at")}
    AND EXISTS (SELECT FROM crawl_tasks n WHERE n.url_hash = t.url_hash AND n.id > t.id)
    AND NOT EXISTS (SELECT FROM crawl_tasks c WHERE c.parent_task_id = t.id AND c.status NOT IN ('completed', 'failed', 'cancelled'))
    """,  # noqa: S608 — constants
    _rows("crawl_tasks", f"t.id = k.id AND {_ENDED_TASK}"),
)
# The last change of a status is read as the present one.
TRANSITIONS: Final = TableStep(
    "transitions",
    "history",
    {"domain_id": "bigint", "version": "integer"},
    (Part("domain_transitions", "t.domain_id = k.domain_id AND t.version = k.version", "at"),),
    f"""
    FROM domain_transitions t WHERE {_old("t.at")}
    AND EXISTS (SELECT FROM domain_transitions n WHERE n.domain_id = t.domain_id AND n.version > t.version)
    """,
    _rows("domain_transitions", "t.domain_id = k.domain_id AND t.version = k.version"),
)
# Every row of the log lies in a tenure, so tenures stay as long as the log.
CLAIMS: Final = TableStep(
    "claims",
    "history",
    {"domain_id": "bigint", "epoch": "bigint"},
    (Part("claim_log", "t.domain_id = k.domain_id AND t.epoch = k.epoch", "claimed_at"),),
    f"""
    FROM claim_log t WHERE {_old("t.ended_at")} AND t.ended_at < (SELECT log_begins_at FROM retention_state)
    AND t.ended_at < COALESCE((SELECT min(crawled_at) FROM crawl_log_default), 'infinity')
    """,  # noqa: S608 — constants
    _rows("claim_log", "t.domain_id = k.domain_id AND t.epoch = k.epoch AND t.ended_at IS NOT NULL"),
)
AUDIT: Final = TableStep(
    "audit",
    "audit",
    {"id": "bigint"},
    (Part("audit_log", "t.id = k.id", "at", wide="details"),),
    f"FROM audit_log t WHERE {_old('t.at')}",
    _rows("audit_log", "t.id = k.id"),
)
WEBHOOKS: Final = TableStep(
    "webhooks",
    "webhooks",
    {"id": "bigint"},
    (Part("webhook_deliveries", "t.id = k.id", "created_at", wide="body"),),
    f"FROM webhook_deliveries t WHERE ({_old('t.delivered_at')} OR {_old('t.gave_up_at')})",
    _rows("webhook_deliveries", "t.id = k.id AND t.next_attempt_at IS NULL"),
)
# A row names the job that saw the image first; other jobs of the domain may have the page, too.
IMAGES: Final = TableStep(
    "images",
    "images",
    {"id": "bigint"},
    (Part("provenance", "t.id = k.id", "last_seen_at"),),
    f"""
    FROM provenance t WHERE {_old("t.last_seen_at")} AND {_NO_LIVE_JOB}
    """,
    f"""
    WITH held AS MATERIALIZED (
        SELECT d.id FROM domains d WHERE d.id IN (SELECT t.domain_id FROM provenance t JOIN {{keys}} ON t.id = k.id)
        ORDER BY d.id FOR UPDATE)
    SELECT count(*) FROM provenance t JOIN {{keys}} ON t.id = k.id JOIN held h ON h.id = t.domain_id WHERE {_NO_LIVE_JOB}
    """,  # noqa: S608 — constants
    _remove_places,
)
STEPS: Final = (VERSIONS, TASKS, IMAGES, WEBHOOKS, AUDIT, TRANSITIONS, CLAIMS)


def chunks(connection: psycopg.Connection, step: TableStep, kept: timedelta) -> Iterator[Keys]:
    """Yield the keys of rows that are older than `kept`, in chunks. Before: no transaction is open."""
    names = ", ".join(f"t.{name}" for name in step.types)
    after: dict[str, Any] = {}
    while True:
        bounds = ", ".join(f"%(after_{name})s::{kind}" for name, kind in step.types.items())
        beyond = f"({names}) > ({bounds})" if after else "true"
        query = f"SELECT {names} {step.wanted} AND {beyond} ORDER BY {names} LIMIT {CHUNK}"
        rows = connection.execute(query, {"kept": kept} | after, prepare=False).fetchall()
        if not rows:
            return
        found = Keys(step.types, {name: [row[place] for row in rows] for place, name in enumerate(step.types)})
        keys = fitting(connection, step.parts, found)
        yield keys
        if len(rows) < CHUNK and len(keys) == len(rows):
            return
        after = {f"after_{name}": values[-1] for name, values in keys.values.items()}


def count(connection: psycopg.Connection, step: TableStep, kept: timedelta) -> int:
    """Count the rows of a step that are older than `kept`."""
    row = connection.execute(f"SELECT count(*) {step.wanted}", {"kept": kept}, prepare=False).fetchone()
    return 0 if row is None else int(row[0])


def lock(connection: psycopg.Connection, step: TableStep, keys: Keys, kept: timedelta) -> bool:
    """Lock the rows of the keys; False if one may not be deleted any more. Before: a transaction is open."""
    query = step.lock.format(keys=keys.source())
    row = connection.execute(query, keys.parameters() | {"kept": kept}, prepare=False).fetchone()
    return row is not None and row[0] == len(keys)


def remove(connection: psycopg.Connection, step: TableStep, keys: Keys) -> int:
    """Delete the rows of the keys; return how many. Before: `lock` returned True, and they are unchanged."""
    if step.remove is not None:
        return step.remove(connection, keys)
    return delete(connection, step.parts[0], keys)
