"""SQL of rebuilt counters: what the log, its roll-ups and the frontier say, and the counters where they differ.

The rule: a domain is locked FOR UPDATE before it is counted, which waits for who inserts URLs and keeps workers from committing, and is
counted by a new statement after that; a domain that a worker holds is not locked. So a counter is set only to what is true at that moment.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import psycopg

from holdfast.model.outcome import PAGES, TREATMENT

CHUNK: Final = 200
"""Domains that are counted at once."""
_PAGES: Final = sorted(PAGES)
_ERRORS: Final = sorted(outcome for outcome, treatment in TREATMENT.items() if treatment.error)

_NEXT: Final = """
SELECT id, domain, claimed_by IS NOT NULL FROM domains
WHERE id > %(after)s AND removed_at IS NULL AND (%(domain)s::bigint IS NULL OR id = %(domain)s) ORDER BY id LIMIT %(limit)s
"""
_LOCK: Final = """
SELECT id FROM domains WHERE id = ANY(%(ids)s) AND claimed_by IS NULL AND removed_at IS NULL ORDER BY id FOR UPDATE SKIP LOCKED
"""
_LOGGED: Final = """
SELECT domain_id, job_id, count(*) FILTER (WHERE outcome = ANY(%(pages)s)) AS pages,
       count(*) FILTER (WHERE outcome = ANY(%(errors)s)) AS errors
FROM crawl_log WHERE domain_id = ANY(%(ids)s) GROUP BY domain_id, job_id
UNION ALL SELECT domain_id, job_id, pages, errors FROM crawl_log_rollups WHERE domain_id = ANY(%(ids)s)
"""
# URLs whose wakes are not folded yet are in the frontier of the domain, and not in its counters.
_OF_JOBS: Final = f"""
WITH logged AS (
    SELECT domain_id, job_id, sum(pages)::bigint AS pages, sum(errors)::bigint AS errors FROM ({_LOGGED}) parts GROUP BY domain_id, job_id
), urls AS (
    SELECT domain_id, job_id, count(*) AS known, count(*) FILTER (WHERE state = 'done') AS done,
           count(*) FILTER (WHERE state = 'denied') AS denied, count(*) FILTER (WHERE state = 'failed') AS failed
    FROM url_frontier WHERE domain_id = ANY(%(ids)s) GROUP BY domain_id, job_id
), untold AS (
    SELECT domain_id, job_id, sum(inserted)::bigint AS inserted FROM domain_wakes WHERE domain_id = ANY(%(ids)s) GROUP BY domain_id, job_id
)
SELECT d.domain || ' (' || COALESCE(j.name, 'job ' || jd.job_id) || ')', jd.domain_id, jd.job_id,
       ARRAY[jd.pages, jd.errors, jd.discovered, jd.waiting, jd.done, jd.denied, jd.failed],
       ARRAY[COALESCE(l.pages, 0), COALESCE(l.errors, 0), COALESCE(u.known, 0) - COALESCE(w.inserted, 0),
             COALESCE(u.known, 0) - COALESCE(w.inserted, 0) - COALESCE(u.done, 0) - COALESCE(u.denied, 0) - COALESCE(u.failed, 0),
             COALESCE(u.done, 0), COALESCE(u.denied, 0), COALESCE(u.failed, 0)]
FROM job_domains jd JOIN domains d ON d.id = jd.domain_id LEFT JOIN crawl_jobs j ON j.id = jd.job_id
LEFT JOIN logged l ON l.domain_id = jd.domain_id AND l.job_id = jd.job_id
LEFT JOIN urls u ON u.domain_id = jd.domain_id AND u.job_id = jd.job_id
LEFT JOIN untold w ON w.domain_id = jd.domain_id AND w.job_id = jd.job_id
WHERE jd.domain_id = ANY(%(ids)s) ORDER BY jd.domain_id, jd.job_id
"""  # noqa: S608 — composed of the constant above only
_SET_JOB: Final = """
UPDATE job_domains SET pages = %(pages)s, errors = %(errors)s, discovered = %(discovered)s, waiting = %(waiting)s, done = %(done)s,
    denied = %(denied)s, failed = %(failed)s, state = CASE WHEN %(waiting)s > 0 AND state = 'done' THEN 'open' ELSE state END
WHERE domain_id = %(domain)s AND job_id = %(job)s
"""
_OF_DOMAINS: Final = f"""
WITH logged AS (
    SELECT domain_id, sum(pages)::bigint AS pages, sum(errors)::bigint AS errors FROM ({_LOGGED}) parts GROUP BY domain_id
), work AS (
    SELECT domain_id, sum(known)::bigint AS discovered, sum(waiting)::bigint AS waiting FROM (
        SELECT domain_id, count(*) AS known, count(*) FILTER (WHERE state = 'waiting') AS waiting
        FROM url_frontier WHERE domain_id = ANY(%(ids)s) GROUP BY domain_id
        UNION ALL SELECT domain_id, -inserted, -inserted FROM domain_wakes WHERE domain_id = ANY(%(ids)s)
        UNION ALL SELECT domain_id, discovered, 0 FROM crawl_log_rollups WHERE domain_id = ANY(%(ids)s)) parts GROUP BY domain_id
)
SELECT d.domain, d.id, NULL::bigint, ARRAY[d.pages_crawled, d.total_error_count, d.pages_discovered, d.frontier_size]::bigint[],
       ARRAY[COALESCE(l.pages, 0), COALESCE(l.errors, 0), COALESCE(w.discovered, 0), COALESCE(w.waiting, 0)]
FROM domains d LEFT JOIN logged l ON l.domain_id = d.id LEFT JOIN work w ON w.domain_id = d.id WHERE d.id = ANY(%(ids)s) ORDER BY d.id
"""  # noqa: S608 — composed of the constant above only
_SET_DOMAIN: Final = """
UPDATE domains SET pages_crawled = %(pages_crawled)s, total_error_count = %(total_error_count)s,
    pages_discovered = %(pages_discovered)s, frontier_size = %(frontier_size)s
WHERE id = %(domain)s
"""
# Of a run that is older than the log, the log no longer says all.
_OF_RUNS: Final = """
WITH chunk AS MATERIALIZED (
    SELECT id, worker, pages_crawled, errors FROM crawl_runs
    WHERE id > %(after)s AND status <> 'running'
      AND (started_at > (SELECT min(crawled_at) FROM crawl_log) OR NOT EXISTS (SELECT FROM crawl_log_rollups WHERE job_id <> 0))
    ORDER BY id LIMIT %(limit)s
), logged AS (
    SELECT crawl_run_id, count(*) FILTER (WHERE outcome = ANY(%(pages)s)) AS pages,
           count(*) FILTER (WHERE outcome = ANY(%(errors)s)) AS errors
    FROM crawl_log WHERE crawl_run_id IN (SELECT id FROM chunk) GROUP BY crawl_run_id
)
SELECT 'run ' || r.id || ' of ' || r.worker, r.id, NULL::bigint, ARRAY[r.pages_crawled, r.errors]::bigint[],
       ARRAY[COALESCE(l.pages, 0), COALESCE(l.errors, 0)]
FROM chunk r LEFT JOIN logged l ON l.crawl_run_id = r.id ORDER BY r.id
"""
_SET_RUN: Final = """
UPDATE crawl_runs SET pages_crawled = %(pages_crawled)s, errors = %(errors)s WHERE id = %(run)s AND status <> 'running'
"""
OF_JOBS: Final = ("pages", "errors", "discovered", "waiting", "done", "denied", "failed")
OF_DOMAINS: Final = ("pages_crawled", "total_error_count", "pages_discovered", "frontier_size")
OF_RUNS: Final = ("pages_crawled", "errors")


@dataclass(frozen=True, slots=True)
class Counted:
    """The counters of one row, as they are and as they should be."""

    name: str
    id: int
    job_id: int | None
    before: list[int]
    after: list[int]

    @property
    def differs(self) -> bool:
        """Whether a counter is wrong."""
        return self.before != self.after


def next_domains(connection: psycopg.Connection, after: int, domain_id: int | None) -> list[tuple[int, str, bool]]:
    """Return the next domains after an id: their ids, names, and whether a worker holds them."""
    return connection.execute(_NEXT, {"after": after, "domain": domain_id, "limit": CHUNK}).fetchall()


def lock(connection: psycopg.Connection, domain_ids: Sequence[int]) -> list[int]:
    """Lock those of these domains that no worker holds, and no other transaction has locked; returns them."""
    return [row[0] for row in connection.execute(_LOCK, {"ids": list(domain_ids)})]


def of_jobs(connection: psycopg.Connection, domain_ids: Sequence[int]) -> list[Counted]:
    """Count the work of jobs on these domains."""
    return [Counted(*row) for row in connection.execute(_OF_JOBS, _values(domain_ids), prepare=False)]


def of_domains(connection: psycopg.Connection, domain_ids: Sequence[int]) -> list[Counted]:
    """Count these domains."""
    return [Counted(*row) for row in connection.execute(_OF_DOMAINS, _values(domain_ids), prepare=False)]


def of_runs(connection: psycopg.Connection, after: int) -> list[Counted]:
    """Count the next runs that have ended, after an id."""
    values = {"after": after, "limit": CHUNK, "pages": _PAGES, "errors": _ERRORS}
    return [Counted(*row) for row in connection.execute(_OF_RUNS, values, prepare=False)]


def set_job(connection: psycopg.Connection, one: Counted) -> None:
    """Set the counters of a job on a domain. Before: the domain is locked by this transaction."""
    values = dict(zip(OF_JOBS, one.after, strict=True))
    connection.execute(_SET_JOB, values | {"domain": one.id, "job": one.job_id})


def set_domain(connection: psycopg.Connection, one: Counted) -> None:
    """Set the counters of a domain. Before: it is locked by this transaction."""
    connection.execute(_SET_DOMAIN, dict(zip(OF_DOMAINS, one.after, strict=True)) | {"domain": one.id})


def set_run(connection: psycopg.Connection, one: Counted) -> None:
    """Set the counters of a run that has ended."""
    connection.execute(_SET_RUN, dict(zip(OF_RUNS, one.after, strict=True)) | {"run": one.id})


def _values(domain_ids: Sequence[int]) -> dict[str, object]:
    return {"ids": list(domain_ids), "pages": _PAGES, "errors": _ERRORS}
