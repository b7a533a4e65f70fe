"""Read-only reports for operators: claims, expired leases, waiting work.

The rule: each is one statement that stays fast enough at a million domains and ten million URLs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import class_row, dict_row

from holdfast.db.workers import status_columns
from holdfast.model.outcome import PAGES, TREATMENT

_ERRORS: Final = sorted(outcome for outcome, treatment in TREATMENT.items() if treatment.error)
_BY_WORKER: Final = """
SELECT claimed_by AS worker, count(*) AS claims, count(*) FILTER (WHERE claim_expires_at <= clock_timestamp()) AS expired,
       min(claim_expires_at) AS earliest_expiry
FROM domains WHERE claimed_by IS NOT NULL AND (%(worker)s::text IS NULL OR claimed_by = %(worker)s)
GROUP BY claimed_by ORDER BY claimed_by
"""
_WAITING: Final = """
SELECT d.status::text, count(*) FROM domains d
WHERE d.claimed_by IS NULL AND EXISTS (SELECT FROM job_domains jd WHERE jd.domain_id = d.id AND jd.ready)
GROUP BY d.status ORDER BY d.status
"""
_COOLING: Final = "SELECT count(*) FROM domains WHERE next_crawl_after > clock_timestamp()"
_EXPIRED: Final = """
SELECT domain, claimed_by AS worker, claim_epoch AS epoch, claim_expires_at AS expires_at FROM domains
WHERE claimed_by IS NOT NULL AND claim_expires_at <= clock_timestamp() ORDER BY claim_expires_at LIMIT %(limit)s
"""
_JOBS_OF: Final = """
SELECT j.name AS job, j.state::text AS job_state, job_wants_refresh(j) AS refresh, jd.state::text, jd.ready, jd.not_before,
       jd.discovered, jd.waiting, jd.done, jd.denied, jd.failed
FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id WHERE jd.domain_id = %(id)s ORDER BY j.id
"""
_TRANSITIONS: Final = """
SELECT at, from_status::text, to_status::text, reason, worker FROM domain_transitions
WHERE domain_id = %(id)s ORDER BY version DESC LIMIT %(limit)s
"""
_TENURES: Final = """
SELECT epoch, worker, claimed_at, ended_at, why FROM claim_log WHERE domain_id = %(id)s ORDER BY epoch DESC LIMIT %(limit)s
"""
_ALIVE: Final = "(r.worker IS NOT NULL AND w.heartbeat_at > clock_timestamp() - %(silence)s)"
_WORKERS: Final = f"""
SELECT w.name, w.host, w.pid, w.started_at, w.heartbeat_at, {_ALIVE} AS alive,
       COALESCE(h.held, 0) AS held, COALESCE(r.pages, 0) AS pages, COALESCE(r.in_window, 0) AS in_window,
       {status_columns(_ALIVE, "COALESCE(h.held, 0)", "w")},
       CASE WHEN {_ALIVE} THEN w.activity END AS activity, w.activity_at
FROM workers w
LEFT JOIN (SELECT claimed_by, count(*) AS held FROM domains WHERE claimed_by IS NOT NULL GROUP BY claimed_by) h ON h.claimed_by = w.name
LEFT JOIN (SELECT worker, sum(pages_crawled)::bigint AS pages, sum(in_window)::bigint AS in_window
           FROM crawl_runs WHERE status = 'running' GROUP BY worker) r ON r.worker = w.name
WHERE {_ALIVE} OR h.held > 0
ORDER BY alive DESC, w.name LIMIT %(limit)s
"""  # noqa: S608 — constants
# now(), not clock_timestamp(): it lets the planner leave out the partitions of other weeks.
_LATELY: Final = """
SELECT count(*) FILTER (WHERE outcome = ANY(%(pages)s)) AS pages, count(*) FILTER (WHERE outcome = ANY(%(errors)s)) AS errors,
       COALESCE(sum(bytes), 0)::bigint AS bytes
FROM crawl_log WHERE crawled_at > now() - %(span)s
"""
# Only what leads to a request: the sweep does not continue a job that is cancelled or whose pages are used up, no request goes to a domain
# that is switched off, and a cool-down comes before attempts.
_DUE: Final = """
WITH live AS MATERIALIZED (
    SELECT j.id, job_wants_refresh(j) AS refresh FROM crawl_jobs j
    WHERE j.state <> 'cancelled' AND j.deleted_at IS NULL AND NOT job_is_used_up(j)
)
SELECT what, at, domains FROM (
    SELECT 'cool-down ends' AS what, min(next_crawl_after) AS at, count(*) AS domains FROM domains d
    WHERE next_crawl_after < 'infinity' AND status IN ('blocked', 'unreachable') AND is_active
      AND EXISTS (SELECT FROM job_domains jd JOIN live ON live.id = jd.job_id WHERE jd.domain_id = d.id)
    UNION ALL SELECT 'pages are looked at again', min(next_crawl_after), count(*) FROM domains d
    WHERE next_crawl_after < 'infinity' AND status = 'exhausted' AND is_active
      AND d.id IN (SELECT jd.domain_id FROM job_domains jd WHERE jd.job_id IN (SELECT id FROM live WHERE refresh))
    UNION ALL SELECT 'another attempt', min(jd.not_before), count(DISTINCT d.id)
    FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
    WHERE jd.not_before IS NOT NULL AND jd.job_id IN (SELECT id FROM live) AND d.is_active
      AND (d.next_crawl_after IS NULL OR d.next_crawl_after <= jd.not_before)
    UNION ALL SELECT 'claim expires', min(claim_expires_at), count(*) FROM domains WHERE claimed_by IS NOT NULL
) due WHERE at IS NOT NULL ORDER BY at
"""
_TOTALS: Final = """
SELECT pg_database_size(current_database()) AS database_bytes, clock_timestamp() AS now,
       (SELECT count(*) FROM crawl_runs WHERE status = 'running') AS runs,
       (SELECT count(*) FROM domains WHERE next_crawl_after = 'infinity') AS stay_blocked,
       (SELECT count(*) FROM domain_wakes) AS wakes
"""
_NAMES: Final = "SELECT id, domain FROM domains WHERE id = ANY(%(ids)s)"


@dataclass(frozen=True, slots=True)
class WorkerClaims:
    """A worker and how many domains it holds."""

    worker: str
    claims: int
    expired: int
    earliest_expiry: datetime


def workers(connection: psycopg.Connection, *, silence: timedelta, limit: int = 50) -> list[dict[str, Any]]:
    """Workers with a heartbeat within `silence`, and silent ones that still hold domains."""
    return _rows(connection, _WORKERS, {"silence": silence, "limit": limit})


def recent_activity(connection: psycopg.Connection, span: timedelta) -> dict[str, Any]:
    """Pages, errors and bytes in the log of the last `span`."""
    (row,) = _rows(connection, _LATELY, {"span": span, "pages": sorted(PAGES), "errors": _ERRORS})
    return row


def upcoming(connection: psycopg.Connection) -> list[dict[str, Any]]:
    """Upcoming events of the sweep: what, when first, and for how many domains."""
    return _rows(connection, _DUE, {})


def totals(connection: psycopg.Connection) -> dict[str, Any]:
    """Figures of the whole store, and the database's time."""
    (row,) = _rows(connection, _TOTALS, {})
    return row


def domain_names(connection: psycopg.Connection, ids: Sequence[int]) -> dict[int, str]:
    """The names of domains by id."""
    return dict(connection.execute(_NAMES, {"ids": list(ids)}).fetchall())


def claims_by_worker(connection: psycopg.Connection, worker: str | None = None) -> list[WorkerClaims]:
    """Claims by worker, expired ones counted separately."""
    with connection.cursor(row_factory=class_row(WorkerClaims)) as cursor:
        return cursor.execute(_BY_WORKER, {"worker": worker}).fetchall()


def expired_claims(connection: psycopg.Connection, *, limit: int) -> list[dict[str, Any]]:
    """Claims whose lease has ended and that no sweep has freed yet."""
    return _rows(connection, _EXPIRED, {"limit": limit})


def waiting_domains(connection: psycopg.Connection) -> dict[str, int]:
    """Domains that could be claimed now, by status."""
    return dict(connection.execute(_WAITING).fetchall())


def cooling_domains(connection: psycopg.Connection) -> int:
    """The number of domains in a cool-down."""
    row = connection.execute(_COOLING).fetchone()
    return int(row[0]) if row else 0


def work_of(connection: psycopg.Connection, domain_id: int) -> list[dict[str, Any]]:
    """The work of each job on a domain."""
    return _rows(connection, _JOBS_OF, {"id": domain_id})


def transitions_of(connection: psycopg.Connection, domain_id: int, *, limit: int = 10) -> list[dict[str, Any]]:
    """The last changes of a domain's status, newest first."""
    return _rows(connection, _TRANSITIONS, {"id": domain_id, "limit": limit})


def tenures_of(connection: psycopg.Connection, domain_id: int, *, limit: int = 10) -> list[dict[str, Any]]:
    """The last tenures of a domain, newest first."""
    return _rows(connection, _TENURES, {"id": domain_id, "limit": limit})


def _rows(connection: psycopg.Connection, query: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, parameters).fetchall()
