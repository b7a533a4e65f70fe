"""What the store knows about one URL or one domain, for people who ask why.

The rule: every look-up goes by a key; the few that cannot (who else has this URL, where a foreign link came from) probe the index
once a (domain, job) and are asked only when the direct way found nothing.
"""

from datetime import datetime, timedelta
from typing import Any, Final, cast

import psycopg
from psycopg.rows import dict_row

MOST_AHEAD: Final = 10_000
"""URLs counted before one that waits; more are not."""

_WORK: Final = """
    j.id AS job_id, j.name AS job, j.state::text AS job_state, j.spec, jd.state::text AS work_state, jd.ready,
    jd.not_before AS work_not_before, jd.discovered, jd.waiting, jd.done, jd.denied, jd.failed,
    jd.limit_reached, jd.budget_limit, jd.yielded_until,
    CASE WHEN jd.crawl_id = c.id THEN jd.budget_used ELSE 0 END AS budget_used, c.state::text AS crawl_state, c.max_pages, c.pages_granted,
    c.id IS NULL AND job_is_used_up(j) AS used_up
"""
_OF_URL: Final = f"""
SELECT f.domain_id, f.url_key, f.url, f.state::text, f.kind::text, f.reason, f.depth, f.hops, f.priority, f.attempts, f.discovered_at,
       f.not_before, f.parent_key, {_WORK}
FROM crawl_jobs j JOIN url_frontier f ON f.domain_id = %(domain)s AND f.job_id = j.id AND f.url_key = %(key)s
LEFT JOIN job_domains jd ON jd.domain_id = f.domain_id AND jd.job_id = j.id LEFT JOIN crawls c ON c.job_id = j.id AND c.state <> 'finished'
ORDER BY j.id
"""  # noqa: S608 — a constant
_OF_DOMAIN: Final = f"""
SELECT {_WORK} FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id LEFT JOIN crawls c ON c.job_id = j.id AND c.state <> 'finished'
WHERE jd.domain_id = %(domain)s ORDER BY j.id
"""  # noqa: S608 — a constant
_ELSEWHERE: Final = """
SELECT f.domain_id, d.domain, j.name AS job, f.url, f.state::text, f.reason, f.depth, f.discovered_at, f.parent_key, f.job_id
FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id AND f.url_key = %(key)s
JOIN domains d ON d.id = f.domain_id JOIN crawl_jobs j ON j.id = f.job_id
WHERE %(job)s::bigint IS NULL OR jd.job_id = %(job)s
ORDER BY f.discovered_at LIMIT %(limit)s
"""
_ROW: Final = """
SELECT f.domain_id, f.job_id, f.url, f.depth, f.discovered_at, f.parent_key FROM url_frontier f
WHERE f.domain_id = %(domain)s AND f.job_id = %(job)s AND f.url_key = %(key)s
"""
_PAGE: Final = """
SELECT crawled_at, status, outcome, content_type, content_length, encode(content_hash, 'hex') AS content_hash, title,
       archive_segment, archive_offset, archive_length
FROM crawled_pages WHERE domain_id = %(domain)s AND job_id = %(job)s AND url_key = %(key)s
"""
_ATTEMPTS: Final = """
SELECT j.name AS job, l.crawled_at, l.outcome, l.status, l.duration_ms, l.bytes, l.proxy_id AS proxy, l.crawl_run_id AS run, r.worker
FROM crawl_log l LEFT JOIN crawl_jobs j ON j.id = l.job_id LEFT JOIN crawl_runs r ON r.id = l.crawl_run_id
WHERE l.domain_id = %(domain)s AND l.url_key = %(key)s ORDER BY l.crawled_at DESC LIMIT %(limit)s
"""
_ROBOTS: Final = """
SELECT robots_txt_url AS url, status, robots_txt_content AS content, reachable, problem, robots_txt_last_fetched AS fetched_at, expires_at
FROM domain_robots WHERE domain_id = %(domain)s ORDER BY robots_txt_url
"""
_AHEAD: Final = """
SELECT count(*) FROM (
    SELECT FROM url_frontier WHERE domain_id = %(domain)s AND job_id = %(job)s AND state = 'waiting'
    AND (priority > %(priority)s OR (priority = %(priority)s AND (depth, url_key) < (%(depth)s, %(key)s))) LIMIT %(most)s) before
"""
# A worker that serves one job says which; of one that serves all, the last request under its claim does.
_MOMENT: Final = """
SELECT clock_timestamp() AS now, (SELECT count(*) FROM workers WHERE heartbeat_at > clock_timestamp() - %(silence)s) AS workers,
       EXISTS (SELECT FROM domain_wakes WHERE domain_id = %(domain)s) AS news,
       (SELECT j.name FROM crawl_jobs j WHERE j.id = COALESCE(
           (SELECT r.job_id FROM crawl_runs r WHERE r.worker = d.claimed_by AND r.status = 'running' ORDER BY r.id DESC LIMIT 1),
           (SELECT l.job_id FROM crawl_log l WHERE l.domain_id = d.id AND l.claim_epoch = d.claim_epoch AND d.claimed_by IS NOT NULL
            ORDER BY l.crawled_at DESC LIMIT 1))) AS held_for,
       ARRAY(SELECT j.name FROM job_domains jd JOIN runnable_jobs j ON j.id = jd.job_id
             WHERE jd.domain_id = d.id AND jd.state = 'open' AND jd.waiting > 0
             ORDER BY j.id LIMIT 10) AS others
FROM domains d WHERE d.id = %(domain)s
"""
_OUTCOMES: Final = """
SELECT outcome, count(*) AS times, max(crawled_at) AS last_at FROM crawl_log WHERE domain_id = %(domain)s
GROUP BY outcome ORDER BY times DESC, outcome
"""
_REASONS: Final = """
SELECT state::text, split_part(reason, ':', 1) AS reason, count(*) AS urls, min(url) AS example FROM url_frontier
WHERE domain_id = %(domain)s AND reason IS NOT NULL GROUP BY state, split_part(reason, ':', 1) ORDER BY urls DESC LIMIT 20
"""


def of_url(connection: psycopg.Connection, domain_id: int, url_key: bytes) -> list[dict[str, Any]]:
    """The URL's row in the frontier of its own domain, with the work that it belongs to; one a job that has met it."""
    return _rows(connection, _OF_URL, domain=domain_id, key=url_key)


def of_domain(connection: psycopg.Connection, domain_id: int) -> list[dict[str, Any]]:
    """What each job has to do on a domain."""
    return _rows(connection, _OF_DOMAIN, domain=domain_id)


def elsewhere(
    connection: psycopg.Connection, url_key: bytes, *, job_id: int | None = None, limit: int = 5
) -> list[dict[str, Any]]:
    """Rows of a URL under any domain: one that was denied hangs on the domain whose page pointed to it."""
    return _rows(connection, _ELSEWHERE, key=url_key, job=job_id, limit=limit)


def row_of(connection: psycopg.Connection, domain_id: int, job_id: int, url_key: bytes) -> dict[str, Any] | None:
    """A URL's row, by its whole key."""
    return next(iter(_rows(connection, _ROW, domain=domain_id, job=job_id, key=url_key)), None)


def page_of(connection: psycopg.Connection, domain_id: int, job_id: int, url_key: bytes) -> dict[str, Any] | None:
    """What was answered for a URL, the last time."""
    return next(iter(_rows(connection, _PAGE, domain=domain_id, job=job_id, key=url_key)), None)


def attempts_on(
    connection: psycopg.Connection, domain_id: int, url_key: bytes, *, limit: int = 10
) -> list[dict[str, Any]]:
    """Every time that a URL was asked for, the newest first."""
    return _rows(connection, _ATTEMPTS, domain=domain_id, key=url_key, limit=limit)


def robots_of(connection: psycopg.Connection, domain_id: int) -> list[dict[str, Any]]:
    """The robots.txt of each origin of a domain, as it was had the last time."""
    return _rows(connection, _ROBOTS, domain=domain_id)


def ahead_of(connection: psycopg.Connection, row: dict[str, Any]) -> int:
    """How many URLs a visit takes before this one; counted up to `MOST_AHEAD`."""
    keys = {"domain": row["domain_id"], "job": row["job_id"], "key": row["url_key"], "most": MOST_AHEAD}
    found = connection.execute(_AHEAD, keys | {"priority": row["priority"], "depth": row["depth"]}).fetchone()
    return int(found[0]) if found else 0


def moment(connection: psycopg.Connection, domain_id: int, *, silence: timedelta) -> dict[str, Any]:
    """The database's time, how many workers were heard of lately, whether the domain has news that is not folded yet, the job that it is
    held for, and the jobs that have work on it."""
    (row,) = _rows(connection, _MOMENT, domain=domain_id, silence=silence)
    return row


def now(connection: psycopg.Connection) -> datetime:
    """The database's time."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None  # noqa: S101 — it always has one
    return cast("datetime", row[0])


def outcomes_of(connection: psycopg.Connection, domain_id: int) -> list[dict[str, Any]]:
    """How often each outcome was met on a domain."""
    return _rows(connection, _OUTCOMES, domain=domain_id)


def reasons_of(connection: psycopg.Connection, domain_id: int) -> list[dict[str, Any]]:
    """Why URLs of a domain are where they are, the most frequent reason first, each with an example."""
    return _rows(connection, _REASONS, domain=domain_id)


def _rows(connection: psycopg.Connection, query: str, **parameters: object) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, parameters).fetchall()
