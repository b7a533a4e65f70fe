"""Read-only questions of operators: who holds what, what has expired, what waits."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import class_row, dict_row

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
SELECT j.name AS job, j.state::text AS job_state, jd.state::text, jd.ready, jd.not_before,
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


@dataclass(frozen=True, slots=True)
class WorkerClaims:
    """A worker and how many domains it holds."""

    worker: str
    claims: int
    expired: int
    earliest_expiry: datetime


def claims_by_worker(connection: psycopg.Connection, worker: str | None = None) -> list[WorkerClaims]:
    """Who holds how many domains, expired ones counted apart."""
    with connection.cursor(row_factory=class_row(WorkerClaims)) as cursor:
        return cursor.execute(_BY_WORKER, {"worker": worker}).fetchall()


def expired_claims(connection: psycopg.Connection, *, limit: int) -> list[dict[str, Any]]:
    """Claims whose lease has ended and that no sweep has freed yet."""
    return _rows(connection, _EXPIRED, {"limit": limit})


def waiting_domains(connection: psycopg.Connection) -> dict[str, int]:
    """Domains that could be claimed now, by status."""
    return dict(connection.execute(_WAITING).fetchall())


def cooling_domains(connection: psycopg.Connection) -> int:
    """Domains that are left alone for a while."""
    row = connection.execute(_COOLING).fetchone()
    return int(row[0]) if row else 0


def work_of(connection: psycopg.Connection, domain_id: int) -> list[dict[str, Any]]:
    """What each job has to do on a domain."""
    return _rows(connection, _JOBS_OF, {"id": domain_id})


def transitions_of(connection: psycopg.Connection, domain_id: int, *, limit: int = 10) -> list[dict[str, Any]]:
    """The last changes of a domain's status, newest first."""
    return _rows(connection, _TRANSITIONS, {"id": domain_id, "limit": limit})


def tenures_of(connection: psycopg.Connection, domain_id: int, *, limit: int = 10) -> list[dict[str, Any]]:
    """Who held a domain lately, newest first."""
    return _rows(connection, _TENURES, {"id": domain_id, "limit": limit})


def _rows(connection: psycopg.Connection, query: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, parameters).fetchall()
