"""Totals of a job, and what its domains wait for: figures of the summary of a crawl. URLs by reason are in `db/job_ends`.

The rule: grouped in the database, and read once, at the end of a crawl or for an operator; the hot path counts nothing for it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import psycopg
from psycopg.rows import class_row

_TOTALS: Final = """
SELECT clock_timestamp() AS now, COALESCE(sum(pages), 0)::bigint AS pages, COALESCE(sum(waiting), 0)::bigint AS waiting
FROM job_domains WHERE job_id = %(job)s
"""
_KINDS: Final = """
CASE WHEN d.status IN ('blocked', 'unreachable') THEN d.status::text
     WHEN NOT d.is_active THEN 'inactive'
     WHEN jd.state = 'parked' THEN 'parked'
     WHEN jd.state = 'spent' THEN 'limit'
     WHEN r.url IS NOT NULL THEN 'robots'
     WHEN d.claimed_by IS NOT NULL THEN 'held'
     WHEN d.back_off_until > clock_timestamp() THEN 'back_off'
     WHEN d.circuit_open_until IS NOT NULL AND GREATEST(d.circuit_open_until, jd.not_before) > clock_timestamp() THEN 'circuit'
     WHEN jd.not_before > clock_timestamp() THEN 'attempt'
     ELSE 'ready' END
"""
# A blocked domain is counted even if the job has nothing left on it: its URLs were refused, and may be fetched later.
_WAITS: Final = f"""
SELECT kind, code, count(*) AS domains, sum(waiting)::bigint AS urls, min(until) AS until, min(domain_id) AS example_id,
       (array_agg(domain ORDER BY domain_id))[1] AS example, (array_agg(robots_url ORDER BY domain_id))[1] AS robots_url,
       CASE WHEN kind = 'circuit' THEN (
           SELECT CASE WHEN l.status IS NULL THEN l.outcome ELSE l.outcome || ': HTTP ' || l.status END FROM crawl_log l
           WHERE l.domain_id = min(mine.domain_id) ORDER BY l.crawled_at DESC LIMIT 1)
       ELSE (array_agg(problem ORDER BY domain_id))[1] END AS problem
FROM (
    SELECT {_KINDS} AS kind, COALESCE(d.block_reason_code, split_part(r.problem, ':', 1)) AS code, jd.waiting, d.id AS domain_id, d.domain,
           r.url AS robots_url, r.problem,
           CASE WHEN d.status IN ('blocked', 'unreachable') THEN NULLIF(d.next_crawl_after, 'infinity')
                ELSE COALESCE(r.expires_at, GREATEST(d.back_off_until, d.circuit_open_until, jd.not_before)) END AS until
    FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
    LEFT JOIN LATERAL (
        SELECT o.robots_txt_url AS url, o.problem, o.expires_at FROM domain_robots o
        WHERE o.domain_id = d.id AND NOT o.reachable AND o.robots_txt_content IS NULL AND o.expires_at > clock_timestamp()
          AND jd.not_before IS NOT NULL
        ORDER BY o.robots_txt_url LIMIT 1) r ON true
    WHERE jd.job_id = %(job)s AND (jd.state <> 'done' OR d.status IN ('blocked', 'unreachable'))
) mine GROUP BY kind, code ORDER BY domains DESC, kind
"""  # noqa: S608 — a constant


@dataclass(frozen=True, slots=True)
class JobTotals:
    """Totals of all crawls of a job."""

    now: datetime
    pages: int
    waiting: int
    """URLs."""


@dataclass(frozen=True, slots=True)
class WaitCount:
    """How many domains of a job wait for the same condition."""

    kind: str
    code: str | None
    """Why it is blocked, or why its robots.txt cannot be fetched."""
    domains: int
    urls: int
    """URLs that wait on them."""
    until: datetime | None
    """When the first of them can continue."""
    example_id: int
    example: str
    robots_url: str | None
    problem: str | None
    """Why the robots.txt of the example could not be fetched, or how its last request ended, if its circuit is open."""


def waits(connection: psycopg.Connection, job_id: int) -> list[WaitCount]:
    """What domains of the job that are not done wait for, the most frequent first; includes `ready` and `held` ones."""
    with connection.cursor(row_factory=class_row(WaitCount)) as cursor:
        return cursor.execute(_WAITS, {"job": job_id}).fetchall()


def totals(connection: psycopg.Connection, job_id: int) -> JobTotals:
    """The totals of all crawls of a job, and the database's time."""
    with connection.cursor(row_factory=class_row(JobTotals)) as cursor:
        row = cursor.execute(_TOTALS, {"job": job_id}).fetchone()
    assert row is not None  # noqa: S101 — an aggregate answers with a row
    return row
