"""Read-only reports for operators: jobs, progress of crawls, activity, upcoming events.

The rule: each is one statement that stays fast enough at a million domains and ten million URLs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from holdfast.db.planner_hints import fetch_with_settings
from holdfast.errors import NotFound
from holdfast.model.outcome import PAGES, TREATMENT

_ERRORS: Final = sorted(outcome for outcome, treatment in TREATMENT.items() if treatment.error)
_JOBS: Final = """
SELECT j.id, j.name, j.kind::text, j.state::text, j.created_at, j.updated_at, j.completed_at, j.state_reason, j.schedule, j.next_run_at,
       j.spec, j.settings_version AS version,
       c.state::text AS crawl, c.started_at AS crawl_started_at, c.max_pages,
       COALESCE(w.pages, 0) AS pages, COALESCE(w.errors, 0) AS errors, COALESCE(w.bytes, 0) AS bytes,
       COALESCE(w.domains, 0) AS domains, COALESCE(w.ready, 0) AS ready, COALESCE(w.spent, 0) AS spent, COALESCE(w.done, 0) AS done,
       COALESCE(w.discovered, 0) AS discovered, COALESCE(w.waiting, 0) AS waiting, COALESCE(w.urls_done, 0) AS urls_done,
       COALESCE(w.denied, 0) AS denied, COALESCE(w.failed, 0) AS failed, COALESCE(w.depth, 0) AS depth,
       CASE WHEN j.state = 'pending' AND c.id IS NULL AND w.spent > 0 AND w.spent + w.done = w.domains
            THEN NOT EXISTS (SELECT FROM domain_wakes k WHERE k.job_id = j.id)
            ELSE j.state = 'pending' AND c.id IS NULL AND w.waiting > 0 AND job_is_used_up(j) END AS out_of_budget,
       ARRAY(SELECT unnest(s.names) FROM job_secrets s WHERE s.job_id = j.id ORDER BY 1) AS secrets
FROM crawl_jobs j
LEFT JOIN crawls c ON c.job_id = j.id AND c.state <> 'finished'
LEFT JOIN {each} (
    SELECT job_id, count(*) AS domains, count(*) FILTER (WHERE ready) AS ready, count(*) FILTER (WHERE state = 'spent') AS spent,
           count(*) FILTER (WHERE state = 'done') AS done, sum(discovered)::bigint AS discovered, sum(waiting)::bigint AS waiting,
           sum(job_domains.done)::bigint AS urls_done, sum(denied)::bigint AS denied, sum(failed)::bigint AS failed,
           sum(pages)::bigint AS pages, sum(errors)::bigint AS errors, sum(bytes)::bigint AS bytes,
           max(depth_reached) AS depth
    FROM job_domains {of_it} GROUP BY job_id) w ON w.job_id = j.id
WHERE j.deleted_at IS NULL {wanted} ORDER BY j.id
"""
_ALL_JOBS: Final = _JOBS.format(each="", of_it="", wanted="")
_SOME_JOBS: Final = _JOBS.format(
    each="LATERAL", of_it="WHERE job_id = j.id", wanted="AND j.id = ANY(%(jobs)s::bigint[])"
)
# By bitmaps, which take half the time where a job has work on many domains: the planner believes that to walk along an index is as good.
_BY_BITMAPS: Final = {"enable_indexscan": "off", "max_parallel_workers_per_gather": "0"}
_ONE_BY_ONE: Final = _BY_BITMAPS | {"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"}
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
_CRAWL: Final = """
SELECT c.state::text, c.started_at, c.max_pages, c.pages_granted,
       COALESCE(sum(r.pages_crawled), 0)::bigint AS pages, COALESCE(sum(r.errors), 0)::bigint AS errors,
       COALESCE(sum(r.bytes), 0)::bigint AS bytes, count(r.id) FILTER (WHERE r.status = 'running') AS runs,
       COALESCE(sum(r.in_window) FILTER (WHERE r.status = 'running'), 0)::bigint AS in_window,
       (SELECT count(*) FROM domains d WHERE d.claimed_by IN (
            SELECT worker FROM crawl_runs o WHERE o.crawl_id = c.id AND o.status = 'running')) AS held
FROM crawls c LEFT JOIN crawl_runs r ON r.crawl_id = c.id
WHERE c.id = %(crawl)s GROUP BY c.id
"""
_SPREAD: Final = """
SELECT d.status::text, count(*) AS domains, sum(jd.discovered)::bigint AS discovered, sum(jd.waiting)::bigint AS waiting,
       sum(jd.done)::bigint AS done, sum(jd.denied)::bigint AS denied, sum(jd.failed)::bigint AS failed,
       count(*) FILTER (WHERE jd.state = 'spent') AS spent, count(*) FILTER (WHERE jd.state = 'done') AS finished,
       count(*) FILTER (WHERE jd.ready) AS ready, min(jd.not_before) AS next_at
FROM job_domains jd JOIN domains d ON d.id = jd.domain_id WHERE jd.job_id = %(job)s GROUP BY d.status
"""


@dataclass(frozen=True, slots=True)
class DomainBreakdown:
    """A job's work over its domains."""

    domains: dict[str, int] = field(default_factory=dict)
    """Number of domains by status; statuses without any are left out."""
    discovered: int = 0
    waiting: int = 0
    done: int = 0
    denied: int = 0
    failed: int = 0
    spent: int = 0
    """Domains that reached a limit, or used their share and wait for the next round."""
    finished: int = 0
    """Domains with nothing left to do."""
    ready: int = 0
    next_at: datetime | None = None
    """When the first delayed domain continues."""


@dataclass(frozen=True, slots=True)
class CrawlProgress:
    """Progress of a crawl."""

    state: str
    started_at: datetime
    max_pages: int | None
    pages_granted: int
    pages: int
    errors: int
    bytes: int
    runs: int
    """Running worker processes of the crawl."""
    in_window: int
    held: int
    """Domains that they hold."""
    spread: DomainBreakdown | None
    """None: it was not requested."""


def crawl_progress(connection: psycopg.Connection, job_id: int, crawl_id: int, *, spread: bool = True) -> CrawlProgress:
    """The figures of a crawl for a live display; NotFound if there is no such crawl.

    Without `spread` it reads the crawl's runs only and takes a millisecond. `spread` reads all domains of the job: next to nothing for
    thousands, half a second for 200,000; a live display requests it less often if it is slow.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_CRAWL, {"crawl": crawl_id}).fetchone()
    if row is None:
        raise NotFound(f"There is no crawl {crawl_id}.")
    return CrawlProgress(**row, spread=domain_breakdown(connection, job_id) if spread else None)


def domain_breakdown(connection: psycopg.Connection, job_id: int) -> DomainBreakdown:
    """A job's work over its domains."""
    rows = _rows(connection, _SPREAD, {"job": job_id})
    sums = ("discovered", "waiting", "done", "denied", "failed", "spent", "finished", "ready")
    return DomainBreakdown(
        domains={row["status"]: row["domains"] for row in rows},
        next_at=min((row["next_at"] for row in rows if row["next_at"]), default=None),
        **{name: sum(row[name] for row in rows) for name in sums},
    )


def jobs(connection: psycopg.Connection, job_ids: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """All jobs, or these, with their open crawl and their work. Reads all domains of them."""
    if job_ids is None:
        return fetch_with_settings(connection, _BY_BITMAPS, _ALL_JOBS, {}, row_factory=dict_row)
    return fetch_with_settings(connection, _ONE_BY_ONE, _SOME_JOBS, {"jobs": list(job_ids)}, row_factory=dict_row)


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


def _rows(connection: psycopg.Connection, query: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, parameters).fetchall()
