"""What a job has not crawled, by reason, and what its domains wait for: the figures of a crawl's last lines.

The rule: grouped in the database, and asked for once, at the end of a crawl or by a person; the hot path counts nothing for it. The
first goes over the job's URLs (measured: 1 s for 1.5 million of them, 1.1 million with a reason, on a busy machine), the second over its
domains that are not done.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import class_row, dict_row

# Traps are counted by kind, as each has a limit of its own: their details without what differs from URL to URL.
# The example is a URL with its own reason: one text, as a row of two has no minimum before PostgreSQL 18.
_BY_REASON: Final = """
SELECT f.state::text AS state, split_part(f.reason, ':', 1) AS reason, count(*) AS urls,
       min((f.url || chr(1) || f.reason) COLLATE "C") AS example
FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id
WHERE jd.job_id = %(job)s AND f.reason IS NOT NULL
GROUP BY f.state, split_part(f.reason, ':', 1),
         CASE WHEN f.reason LIKE 'trap:%%' THEN regexp_replace(f.reason, '[0-9]+|(repeats|parameter|year) .*', '', 'g') END
ORDER BY urls DESC, reason
"""
_FIGURES: Final = """
SELECT clock_timestamp() AS now, COALESCE(sum(pages), 0)::bigint AS pages, COALESCE(sum(discovered), 0)::bigint AS discovered,
       COALESCE(sum(waiting), 0)::bigint AS waiting, COALESCE(sum(bytes), 0)::bigint AS bytes, COALESCE(sum(errors), 0)::bigint AS errors
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
# A domain that is blocked is named also when the job has nothing left on it: its URLs were refused, and may be had later.
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
class ReasonCount:
    """How many URLs of a job are in a state for one reason."""

    state: str
    reason: str
    """The word that the reason begins with: an outcome, mostly."""
    urls: int
    example: str
    """One of them."""
    detail: str
    """The whole reason of that one."""


@dataclass(frozen=True, slots=True)
class WaitCount:
    """How many domains of a job wait for the same."""

    kind: str
    code: str | None
    """Why it is blocked, or why its robots.txt cannot be fetched."""
    domains: int
    urls: int
    """That wait on them."""
    until: datetime | None
    """When the first of them can go on."""
    example_id: int
    example: str
    robots_url: str | None
    problem: str | None
    """Why the robots.txt of the example could not be fetched, or how its last request ended, if its circuit is open."""


def by_reason(connection: psycopg.Connection, job_id: int) -> list[ReasonCount]:
    """The job's URLs that have a reason, the most frequent first."""
    rows = connection.execute(_BY_REASON, {"job": job_id}).fetchall()
    return [ReasonCount(*counts, *example.split("\x01", 1)) for *counts, example in rows]


def waits(connection: psycopg.Connection, job_id: int) -> list[WaitCount]:
    """What the job's domains wait for that are not done, the most frequent first; `ready` and `held` ones are among them."""
    with connection.cursor(row_factory=class_row(WaitCount)) as cursor:
        return cursor.execute(_WAITS, {"job": job_id}).fetchall()


def figures(connection: psycopg.Connection, job_id: int) -> dict[str, Any]:
    """All that the job has done so far, in every crawl of it, and the database's time."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_FIGURES, {"job": job_id}).fetchone()
    assert row is not None  # noqa: S101 — an aggregate answers with a row
    return row
