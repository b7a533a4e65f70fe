"""SQL of workers, their runs and claims: lists and reports.

The rule: sums are computed for the rows of a page, and for no others. Each report is one statement that stays fast enough at a million
domains and ten million URLs.
"""

from datetime import timedelta
from typing import Final

import psycopg

from holdfast.db.keyset_pagination import Equals, Listing, Order, SortColumn
from holdfast.db.rows import by_name
from holdfast.db.runs import SILENT
from holdfast.db.workers import status_columns
from holdfast.errors import NotFound
from holdfast.workers.records import ActiveWorker, Claim, ExpiredClaim, Run, Worker, WorkerClaims

_DOWN: Final = (SortColumn("t.id", int, descending=True),)

_RUN: Final = """
    t.id, t.worker, j.name AS job, t.status::text, t.started_at, t.heartbeat_at, t.completed_at, t.error_message,
    t.pages_crawled, t.errors, t.bytes, t.images_found, t.in_window
"""
_JOB_OF_RUN: Final = "LEFT JOIN crawl_jobs j ON j.id = t.job_id"
RUNS: Final = Listing(
    "crawl_runs",
    _RUN,
    Run,
    {
        "running": "t.status = 'running'",
        "status": "t.status = %(status)s::run_status",
        "job": Equals("t.job_id", "%(job)s::bigint"),
        "worker": Equals("t.worker", "%(worker)s::text"),
        "crawl": "t.crawl_id = %(crawl)s",
        "id": Equals("t.id", "%(id)s::bigint"),
    },
    {
        "newest": Order(
            _DOWN,
            (("id",), ("running",), ("job",), ("worker",), ()),
        )
    },
    joins=_JOB_OF_RUN,
    selective=frozenset({"running", "job", "worker", "crawl"}),
)
"""The list of runs."""
_SILENT_RUNS: Final = f"""
SELECT {_RUN} FROM (SELECT * FROM crawl_runs WHERE {SILENT}) t {_JOB_OF_RUN} ORDER BY t.id
"""  # noqa: S608 — constants

_RUNNING: Final = """
SELECT worker, count(*) AS runs, sum(pages_crawled)::bigint AS pages, sum(errors)::bigint AS errors, sum(bytes)::bigint AS bytes,
       sum(in_window)::bigint AS in_window FROM crawl_runs WHERE status = 'running' GROUP BY worker
"""
_HEARD_OF: Final = "t.heartbeat_at > clock_timestamp() - %(silence)s::interval"
_RUNS_AND_BEATS: Final = f"(r.worker IS NOT NULL AND {_HEARD_OF})"
_IS_ALIVE: Final = (
    f"({_HEARD_OF} AND EXISTS (SELECT FROM crawl_runs r WHERE r.status = 'running' AND r.worker = t.name))"
)

WORKERS: Final = Listing(
    "workers",
    f"""
    t.name, t.host, t.pid, t.boot_epoch, t.started_at, t.heartbeat_at, {_RUNS_AND_BEATS} AS alive, h.held, h.expired,
    COALESCE(r.runs, 0) AS runs, COALESCE(r.pages, 0) AS pages, COALESCE(r.errors, 0) AS errors, COALESCE(r.bytes, 0) AS bytes,
    COALESCE(r.in_window, 0) AS in_window, {status_columns(_RUNS_AND_BEATS, "h.held", "t")}, t.ended_at,
    CASE WHEN {_RUNS_AND_BEATS} THEN t.activity END AS activity, t.activity_at
    """,
    Worker,
    {
        "name": Equals("t.name", "%(name)s::text"),
        "alive": _IS_ALIVE,
        "silent": f"NOT {_IS_ALIVE}",
    },
    {"name": Order((SortColumn("t.name", str),), (("name",), ()))},
    joins=f"""
    LEFT JOIN ({_RUNNING}) r ON r.worker = t.name
    CROSS JOIN LATERAL (SELECT count(*) AS held, count(*) FILTER (WHERE d.claim_expires_at <= clock_timestamp()) AS expired
                        FROM domains d WHERE d.claimed_by = t.name) h
    """,  # noqa: S608 — constants
)
"""The list of workers."""
AT_WORK: Final = f"""
SELECT t.name, t.host, t.pid, t.started_at, t.heartbeat_at, {_RUNS_AND_BEATS} AS alive,
       COALESCE(h.held, 0) AS held, COALESCE(r.pages, 0) AS pages, COALESCE(r.in_window, 0) AS in_window,
       {status_columns(_RUNS_AND_BEATS, "COALESCE(h.held, 0)", "t")},
       CASE WHEN {_RUNS_AND_BEATS} THEN t.activity END AS activity, t.activity_at
FROM workers t
LEFT JOIN (SELECT claimed_by, count(*) AS held FROM domains WHERE claimed_by IS NOT NULL GROUP BY claimed_by) h ON h.claimed_by = t.name
LEFT JOIN ({_RUNNING}) r ON r.worker = t.name
WHERE {_RUNS_AND_BEATS} OR h.held > 0
ORDER BY alive DESC, t.name LIMIT %(limit)s
"""  # noqa: S608 — constants
"""Workers that are alive, then silent ones that hold domains."""

CLAIMS: Final = Listing(
    "domains",
    """
    t.domain, t.claimed_by AS worker, t.claim_epoch AS epoch, l.claimed_at, t.claim_expires_at AS expires_at,
    t.claim_expires_at <= clock_timestamp() AS expired, t.status::text, t.frontier_size
    """,
    Claim,
    {
        "worker": Equals("t.claimed_by", "%(worker)s::text"),
        "expired": "t.claim_expires_at <= clock_timestamp()",
        "lasting": "t.claim_expires_at > clock_timestamp()",
    },
    {"worker": Order((SortColumn("t.claimed_by", str), SortColumn("t.id", int)), (("worker",), ()))},
    joins="LEFT JOIN claim_log l ON l.domain_id = t.id AND l.epoch = t.claim_epoch",
    condition="t.claimed_by IS NOT NULL",
)
"""The list of claims."""
_BY_WORKER: Final = """
SELECT claimed_by AS worker, count(*) AS claims, count(*) FILTER (WHERE claim_expires_at <= clock_timestamp()) AS expired,
       min(claim_expires_at) AS earliest_expiry
FROM domains WHERE claimed_by IS NOT NULL AND (%(worker)s::text IS NULL OR claimed_by = %(worker)s)
GROUP BY claimed_by ORDER BY claimed_by
"""
_ON_DOMAIN: Final = """
SELECT claimed_by AS worker, 1 AS claims, (claim_expires_at <= clock_timestamp())::int AS expired, claim_expires_at AS earliest_expiry
FROM domains WHERE id = %(domain)s AND claimed_by IS NOT NULL
"""
_EXPIRED: Final = """
SELECT domain, claimed_by AS worker, claim_epoch AS epoch, claim_expires_at AS expires_at FROM domains
WHERE claimed_by IS NOT NULL AND claim_expires_at <= clock_timestamp() ORDER BY claim_expires_at LIMIT %(limit)s
"""
_WAITING: Final = """
SELECT d.status::text, count(*) FROM domains d
WHERE d.claimed_by IS NULL AND EXISTS (SELECT FROM job_domains jd WHERE jd.domain_id = d.id AND jd.ready)
GROUP BY d.status ORDER BY d.status
"""
_COOLING: Final = "SELECT count(*) FROM domains WHERE next_crawl_after > clock_timestamp()"

_as_run: Final = by_name(Run)
_as_active_worker: Final = by_name(ActiveWorker)
_as_worker_claims: Final = by_name(WorkerClaims)
_as_expired_claim: Final = by_name(ExpiredClaim)


def run(connection: psycopg.Connection, run_id: int) -> Run:
    """Return one run. Raises NotFound."""
    found = RUNS.page(connection, {"id": run_id}, order="newest", limit=1).rows
    if not found:
        raise NotFound(f"There is no run {run_id}.")
    return found[0]


def silent_runs(connection: psycopg.Connection, *, older_than: timedelta) -> list[Run]:
    """Return runs in state running without a heartbeat for `older_than`."""
    with connection.cursor(row_factory=_as_run) as cursor:
        return cursor.execute(_SILENT_RUNS, {"older_than": older_than}).fetchall()


def at_work(connection: psycopg.Connection, *, silence: timedelta, limit: int = 50) -> list[ActiveWorker]:
    """Return workers with a heartbeat within `silence`, then silent ones that still hold domains."""
    with connection.cursor(row_factory=_as_active_worker) as cursor:
        return cursor.execute(AT_WORK, {"silence": silence, "limit": limit}).fetchall()


def claims_by_worker(connection: psycopg.Connection, worker: str | None = None) -> list[WorkerClaims]:
    """Count claims by worker, expired ones also separately."""
    with connection.cursor(row_factory=_as_worker_claims) as cursor:
        return cursor.execute(_BY_WORKER, {"worker": worker}).fetchall()


def claims_on_domain(connection: psycopg.Connection, domain_id: int) -> list[WorkerClaims]:
    """Return the worker that holds this domain, with this one claim; empty: none does."""
    with connection.cursor(row_factory=_as_worker_claims) as cursor:
        return cursor.execute(_ON_DOMAIN, {"domain": domain_id}).fetchall()


def expired_claims(connection: psycopg.Connection, *, limit: int) -> list[ExpiredClaim]:
    """Return claims whose lease has ended and that no sweep has released yet."""
    with connection.cursor(row_factory=_as_expired_claim) as cursor:
        return cursor.execute(_EXPIRED, {"limit": limit}).fetchall()


def waiting_domains(connection: psycopg.Connection) -> dict[str, int]:
    """Count domains that could be claimed now, by status."""
    return dict(connection.execute(_WAITING).fetchall())


def cooling_domains(connection: psycopg.Connection) -> int:
    """Count domains in a cool-down."""
    row = connection.execute(_COOLING).fetchone()
    return int(row[0]) if row else 0
