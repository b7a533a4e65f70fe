"""SQL of `explain`: what the database knows about one URL or one domain.

The rule: every query goes by a key; the few that cannot (which domains have this URL, where a link from another domain is) probe the index
once for each (domain, job), and run only when the query by key found nothing.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, cast

import psycopg
from psycopg.rows import dict_row

from holdfast.db.rows import by_name, select_list
from holdfast.model.record import record
from holdfast.pages.records import LastResponse

MAX_AHEAD: Final = 10_000
"""The most URLs before a waiting one that are counted."""
T = TypeVar("T")


@record
class Attempt:
    """A request for a URL."""

    job: str | None
    crawled_at: datetime
    outcome: str
    status: int | None
    duration_ms: int | None
    bytes: int | None
    proxy: int | None
    """The id of the proxy, if it went through one."""
    run: int | None
    worker: str | None


@record
class OutcomeCount:
    """How often a domain's requests ended with an outcome."""

    outcome: str
    times: int
    last_at: datetime


@record
class ReasonCount:
    """How many URLs of a domain are in a state for a reason, with an example."""

    state: str
    reason: str
    urls: int
    example: str


_WORK: Final = """
    j.id AS job_id, j.name AS job, j.state::text AS job_state, j.spec, jd.state::text AS work_state, jd.ready,
    jd.not_before AS work_not_before, jd.discovered, jd.waiting, jd.done, jd.denied, jd.failed,
    jd.limit_reached, jd.budget_limit, jd.yielded_until,
    CASE WHEN jd.crawl_id = c.id THEN jd.budget_used ELSE 0 END AS budget_used, c.state::text AS crawl_state, c.max_pages, c.pages_granted,
    c.id IS NULL AND job_is_used_up(j) AS used_up
"""
_OF_URL: Final = f"""
SELECT f.domain_id, f.url_key, f.url, f.state::text, f.kind::text, f.reason, f.depth, f.hops, f.priority, f.attempts, f.discovered_at,
       f.not_before, f.parent_key, COALESCE(f.resource::text, 'page') AS resource, COALESCE(f.listed, false) AS listed, f.lastmod, {_WORK}
FROM crawl_jobs j JOIN url_frontier f ON f.domain_id = %(domain)s AND f.job_id = j.id AND f.url_key = %(key)s
LEFT JOIN job_domains jd ON jd.domain_id = f.domain_id AND jd.job_id = j.id LEFT JOIN crawls c ON c.job_id = j.id AND c.state <> 'finished'
ORDER BY j.id
"""  # noqa: S608 — a constant
_OF_DOMAIN: Final = f"""
SELECT {_WORK} FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id LEFT JOIN crawls c ON c.job_id = j.id AND c.state <> 'finished'
WHERE jd.domain_id = %(domain)s ORDER BY j.id
"""  # noqa: S608 — a constant
_ELSEWHERE: Final = """
SELECT f.domain_id, d.domain, j.name AS job, f.url, f.state::text, f.reason, f.depth, f.discovered_at, f.parent_key, f.job_id,
       COALESCE(f.resource::text, 'page') AS resource
FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id AND f.url_key = %(key)s
JOIN domains d ON d.id = f.domain_id JOIN crawl_jobs j ON j.id = f.job_id
WHERE %(job)s::bigint IS NULL OR jd.job_id = %(job)s
ORDER BY f.discovered_at LIMIT %(limit)s
"""
_ROW: Final = """
SELECT f.domain_id, f.job_id, f.url, f.depth, f.discovered_at, f.parent_key, COALESCE(f.resource::text, 'page') AS resource
FROM url_frontier f
WHERE f.domain_id = %(domain)s AND f.job_id = %(job)s AND f.url_key = %(key)s
"""
_PAGE: Final = f"""
SELECT {select_list(LastResponse, "c", content_hash="encode(c.content_hash, 'hex')")}
FROM crawled_pages c WHERE domain_id = %(domain)s AND job_id = %(job)s AND url_key = %(key)s
"""  # noqa: S608 — a constant
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
    AND (priority > %(priority)s OR (priority = %(priority)s AND (depth, url_key) < (%(depth)s, %(key)s))) LIMIT %(maximum)s) before
"""
HELD_FOR: Final = """
(SELECT j.name FROM crawl_jobs j WHERE j.id = COALESCE(
    (SELECT r.job_id FROM crawl_runs r WHERE r.worker = d.claimed_by AND r.status = 'running' ORDER BY r.id DESC LIMIT 1),
    (SELECT l.job_id FROM crawl_log l WHERE l.domain_id = d.id AND l.claim_epoch = d.claim_epoch AND d.claimed_by IS NOT NULL
     ORDER BY l.crawled_at DESC LIMIT 1))) AS held_for
"""
"""The job that the domain `d` is held for: that of the run or, if the run serves all jobs, that of the last request under the claim."""
_MOMENT: Final = f"""
SELECT clock_timestamp() AS now, (SELECT count(*) FROM workers WHERE heartbeat_at > clock_timestamp() - %(silence)s) AS workers,
       EXISTS (SELECT FROM domain_wakes WHERE domain_id = %(domain)s) AS news,
       {HELD_FOR},
       ARRAY(SELECT j.name FROM job_domains jd JOIN runnable_jobs j ON j.id = jd.job_id
             WHERE jd.domain_id = d.id AND jd.state = 'open' AND jd.waiting > 0
             ORDER BY j.id LIMIT 10) AS others
FROM domains d WHERE d.id = %(domain)s
"""  # noqa: S608 — constants
_OUTCOMES: Final = """
SELECT outcome, count(*) AS times, max(crawled_at) AS last_at FROM crawl_log WHERE domain_id = %(domain)s
GROUP BY outcome ORDER BY times DESC, outcome
"""
_REASONS: Final = """
SELECT state::text, split_part(reason, ':', 1) AS reason, count(*) AS urls, min(url) AS example FROM url_frontier
WHERE domain_id = %(domain)s AND reason IS NOT NULL GROUP BY state, split_part(reason, ':', 1) ORDER BY urls DESC LIMIT 20
"""


def of_url(connection: psycopg.Connection, domain_id: int, url_key: bytes) -> list[dict[str, Any]]:
    """Return the rows of a URL in the frontier of a domain, one for each job, with the job's work on the domain."""
    return _rows(connection, _OF_URL, domain=domain_id, key=url_key)


def of_domain(connection: psycopg.Connection, domain_id: int) -> list[dict[str, Any]]:
    """Return the work of each job on a domain."""
    return _rows(connection, _OF_DOMAIN, domain=domain_id)


def elsewhere(
    connection: psycopg.Connection, url_key: bytes, *, job_id: int | None = None, limit: int = 5
) -> list[dict[str, Any]]:
    """Return rows of a URL under any domain: a denied link is a row of the domain whose page has it."""
    return _rows(connection, _ELSEWHERE, key=url_key, job=job_id, limit=limit)


def row_of(connection: psycopg.Connection, domain_id: int, job_id: int, url_key: bytes) -> dict[str, Any] | None:
    """Return the row of a URL by its key."""
    return next(iter(_rows(connection, _ROW, domain=domain_id, job=job_id, key=url_key)), None)


def last_response(connection: psycopg.Connection, domain_id: int, job_id: int, url_key: bytes) -> LastResponse | None:
    """Return the last response for a URL."""
    return next(iter(_records(connection, LastResponse, _PAGE, domain=domain_id, job=job_id, key=url_key)), None)


def attempts_on(connection: psycopg.Connection, domain_id: int, url_key: bytes, *, limit: int = 10) -> list[Attempt]:
    """Return the requests for a URL, the newest first."""
    return _records(connection, Attempt, _ATTEMPTS, domain=domain_id, key=url_key, limit=limit)


def robots_of(connection: psycopg.Connection, domain_id: int) -> list[dict[str, Any]]:
    """Return the robots.txt of each origin of a domain, as it was last fetched."""
    return _rows(connection, _ROBOTS, domain=domain_id)


def ahead_of(connection: psycopg.Connection, row: dict[str, Any]) -> int:
    """Return how many URLs a visit takes before this one, counted up to `MAX_AHEAD`."""
    keys = {"domain": row["domain_id"], "job": row["job_id"], "key": row["url_key"], "maximum": MAX_AHEAD}
    found = connection.execute(_AHEAD, keys | {"priority": row["priority"], "depth": row["depth"]}).fetchone()
    return int(found[0]) if found else 0


def moment(connection: psycopg.Connection, domain_id: int, *, silence: timedelta) -> dict[str, Any]:
    """Return the database's time (`now`), the number of workers with a heartbeat within `silence` (`workers`), whether new URLs of the
    domain are not counted yet (`news`), the job that it is held for (`held_for`), and the jobs with work on it (`others`)."""
    (row,) = _rows(connection, _MOMENT, domain=domain_id, silence=silence)
    return row


def now(connection: psycopg.Connection) -> datetime:
    """Return the database's time."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None  # noqa: S101 — it always has one
    return cast("datetime", row[0])


def outcomes_of(connection: psycopg.Connection, domain_id: int) -> list[OutcomeCount]:
    """Return how often each outcome occurred on a domain."""
    return _records(connection, OutcomeCount, _OUTCOMES, domain=domain_id)


def reasons_of(connection: psycopg.Connection, domain_id: int) -> list[ReasonCount]:
    """Return the reasons of the states of a domain's URLs, the most frequent first."""
    return _records(connection, ReasonCount, _REASONS, domain=domain_id)


def _rows(connection: psycopg.Connection, query: str, **parameters: object) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, parameters).fetchall()


def _records(connection: psycopg.Connection, kind: Callable[..., T], query: str, **parameters: object) -> list[T]:
    with connection.cursor(row_factory=by_name(kind)) as cursor:
        return cursor.execute(query, parameters).fetchall()
