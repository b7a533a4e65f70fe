"""The progress of a job, whichever process crawls it, of one crawl of it, and what its domains wait for.

The rule: figures of a job are summed over its domains, where every worker counts, so those of `crawl`, `serve` and `worker` are the same.
That reads all domains of the job: next to nothing for thousands, half a second for 200,000; a live display reads less often if it is slow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import class_row, dict_row

from holdfast.db.combined_query import as_record, fetch_combined
from holdfast.db.explain import HELD_FOR
from holdfast.db.workers import ACTIVITIES
from holdfast.errors import NotFound
from holdfast.jobs.queries.job_domains import FIRST
from holdfast.jobs.queries.jobs import SOME_JOBS
from holdfast.jobs.records import Job, JobDomain, UrlSources
from holdfast.model.activity import Activity
from holdfast.model.outcome import PAGES, TREATMENT, Outcome
from holdfast.sitemaps import queries as sitemaps

_ERRORS: Final = sorted(outcome for outcome, treatment in TREATMENT.items() if treatment.error)
_JOB: Final = """
SELECT clock_timestamp() AS now, j.id AS job_id, j.name AS job, j.state::text, j.schedule, j.next_run_at, c.id AS crawl_id,
       c.state::text AS crawl, c.started_at, c.max_pages,
       (SELECT count(*) FROM crawl_runs r JOIN workers w ON w.name = r.worker WHERE r.status = 'running'
          AND (r.job_id IS NULL OR r.job_id = j.id) AND w.heartbeat_at > clock_timestamp() - %(silence)s) AS workers
FROM crawl_jobs j LEFT JOIN crawls c ON c.job_id = j.id AND c.state <> 'finished'
WHERE j.id = %(job)s AND j.deleted_at IS NULL
"""
_FIGURES: Final = """
SELECT d.status::text, count(*) AS domains, sum(jd.pages)::bigint AS pages_in_all, sum(jd.errors)::bigint AS errors,
       sum(jd.bytes)::bigint AS bytes, sum(jd.discovered)::bigint AS discovered, sum(jd.waiting)::bigint AS waiting,
       sum(jd.done)::bigint AS done, sum(jd.denied)::bigint AS denied, sum(jd.failed)::bigint AS failed,
       COALESCE(sum(jd.budget_used) FILTER (WHERE jd.crawl_id = c.id), 0)::bigint AS pages,
       count(*) FILTER (WHERE jd.ready) AS ready, count(*) FILTER (WHERE jd.state = 'open') AS open,
       count(*) FILTER (WHERE d.claimed_by IS NOT NULL AND jd.state = 'open') AS held
FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
LEFT JOIN crawls c ON c.job_id = jd.job_id AND c.state <> 'finished'
WHERE jd.job_id = %(job)s GROUP BY d.status
"""
# By the domains that are held, which are few.
_HELD_COUNT: Final = """
SELECT count(*) AS held FROM domains d JOIN job_domains jd ON jd.domain_id = d.id AND jd.job_id = %(job)s AND jd.state = 'open'
WHERE d.claimed_by IS NOT NULL
"""
_SERVING: Final = """
SELECT j.id, count(r.id) FROM unnest(%(jobs)s::bigint[]) AS j(id) LEFT JOIN (
    SELECT r.id, r.job_id FROM crawl_runs r JOIN workers w ON w.name = r.worker
    WHERE r.status = 'running' AND w.heartbeat_at > clock_timestamp() - %(silence)s) r ON r.job_id IS NULL OR r.job_id = j.id
GROUP BY j.id
"""
_HELD: Final = f"""
SELECT d.domain, {HELD_FOR} FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
WHERE jd.job_id = %(job)s AND jd.state = 'open' AND jd.waiting > 0 AND d.claimed_by IS NOT NULL ORDER BY d.id LIMIT %(limit)s
"""  # noqa: S608 — constants
# now(), not clock_timestamp(): it lets the planner leave out the partitions of other weeks.
_CAUSES: Final = """
SELECT outcome, count(*) FROM crawl_log WHERE crawled_at > now() - %(span)s AND job_id = %(job)s AND outcome = ANY(%(errors)s)
GROUP BY outcome ORDER BY count(*) DESC, outcome
"""
_PACE: Final = """
SELECT count(*) FILTER (WHERE outcome = ANY(%(pages)s)) AS pages, count(*) AS urls FROM crawl_log
WHERE crawled_at > now() - %(span)s AND job_id = %(job)s
"""
# Of the open crawl only, if it began within the span.
_PACE_NOW: Final = f"""
{_PACE} AND crawled_at > (SELECT COALESCE(max(started_at), '-infinity') FROM crawls WHERE job_id = %(job)s AND state <> 'finished')
"""  # noqa: S608 — a constant
_NOW: Final = {
    "job": SOME_JOBS,
    "state": _JOB,
    "held": _HELD_COUNT,
    "activities": ACTIVITIES,
    "logged": _PACE_NOW,
    "domains": FIRST,
}
"""All of `JobNow`, as one statement."""
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
# Of all workers: a run of one that serves all jobs belongs to no crawl.
_CRAWL_PAGES: Final = """
SELECT COALESCE(sum(budget_used), 0)::bigint AS pages FROM job_domains WHERE job_id = %(job)s AND crawl_id = %(crawl)s
"""
_SPREAD: Final = """
SELECT d.status::text, count(*) AS domains, sum(jd.discovered)::bigint AS discovered, sum(jd.waiting)::bigint AS waiting,
       sum(jd.done)::bigint AS done, sum(jd.denied)::bigint AS denied, sum(jd.failed)::bigint AS failed,
       count(*) FILTER (WHERE jd.state = 'spent') AS spent, count(*) FILTER (WHERE jd.state = 'done') AS finished,
       count(*) FILTER (WHERE jd.ready) AS ready, min(jd.not_before) AS next_at
FROM job_domains jd JOIN domains d ON d.id = jd.domain_id WHERE jd.job_id = %(job)s GROUP BY d.status
"""
_TOTALS: Final = """
SELECT clock_timestamp() AS now, COALESCE(sum(pages), 0)::bigint AS pages, COALESCE(sum(waiting), 0)::bigint AS waiting
FROM job_domains WHERE job_id = %(job)s
"""
_SITEMAPS: Final = """
SELECT count(*) AS sitemaps, count(s.problem) AS problems, min((f.url || chr(1) || s.problem) COLLATE "C") AS example
FROM job_domains jd JOIN sitemaps s ON s.domain_id = jd.domain_id AND s.job_id = jd.job_id
LEFT JOIN url_frontier f ON f.domain_id = s.domain_id AND f.job_id = s.job_id AND f.url_key = s.url_key AND s.problem IS NOT NULL
WHERE jd.job_id = %(job)s
"""
_STORED_IMAGES: Final = """
SELECT count(DISTINCT u.image_id) FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id
JOIN image_urls u ON u.url_key = f.url_key AND u.image_id IS NOT NULL
WHERE jd.job_id = %(job)s AND f.resource = 'image' AND f.state = 'done'
"""
_SOURCES: Final = """
SELECT count(*) FILTER (WHERE f.depth = 0) AS seeds, count(*) FILTER (WHERE f.depth > 0 AND f.listed) AS listed,
       count(*) FILTER (WHERE f.depth > 0 AND f.listed IS NOT TRUE) AS linked
FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id
WHERE jd.job_id = %(job)s AND f.resource IS NULL
"""
_TYPES: Final = """
SELECT left(split_part(f.reason, ': ', 2), 100) AS media_type, count(*) AS urls
FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id
WHERE jd.job_id = %(job)s AND f.reason LIKE %(reason)s AND f.state <> 'waiting'
GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %(limit)s
"""
_WAIT: Final = """
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
    SELECT {_WAIT} AS kind, COALESCE(d.block_reason_code, split_part(r.problem, ':', 1)) AS code, jd.waiting, d.id AS domain_id, d.domain,
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
class JobFigures:
    """How far a job is."""

    now: datetime
    """By the database's clock."""
    job_id: int
    job: str
    state: str
    schedule: str | None
    next_run_at: datetime | None
    crawl_id: int | None
    """Of the crawl that is open; None: none is."""
    crawl: str | None
    started_at: datetime | None
    max_pages: int | None
    """A limit that the open crawl has."""
    workers: int
    """Worker processes that run and serve this job."""
    domains: dict[str, int] = field(default_factory=dict)
    """How many are in each status; those without any are left out."""
    pages: int = 0
    """Of the open crawl."""
    pages_in_all: int = 0
    """Of every crawl of the job."""
    errors: int = 0
    bytes: int = 0
    discovered: int = 0
    waiting: int = 0
    done: int = 0
    denied: int = 0
    failed: int = 0
    ready: int = 0
    """Domains that a worker can take."""
    open: int = 0
    """Domains with something left to do in this crawl."""
    held: int = 0
    """Domains of those that a worker holds, for this job or for another one."""


@dataclass(frozen=True, slots=True)
class JobNow:
    """What moves of a job at this moment."""

    job: Job
    figures: JobFigures
    """Without its domains by status, and without the pages of its open crawl."""
    activities: Mapping[str, Activity]
    """By worker."""
    logged: tuple[int, int]
    """The pages, and the outcomes of any kind, that the log has of the open crawl within the span."""
    domains: list[JobDomain]
    """The first ones of its list."""


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


_SUMS: Final = (
    *("pages", "pages_in_all", "errors", "bytes", "discovered", "waiting"),
    *("done", "denied", "failed", "ready", "open", "held"),
)


def figures(connection: psycopg.Connection, job_id: int, *, silence: timedelta) -> JobFigures:
    """How far a job is; NotFound if it was deleted. A worker that was not heard of within `silence` counts as dead."""
    queries = {"state": _JOB, "statuses": _FIGURES}
    found = fetch_combined(connection, queries, {"job": job_id, "silence": silence})
    if not found["state"]:
        raise NotFound(f"There is no job {job_id} any more.")
    (job,), rows = found["state"], found["statuses"]
    sums = {name: sum(row[name] for row in rows) for name in _SUMS}
    return as_record(JobFigures, {**job, "domains": {row["status"]: row["domains"] for row in rows}, **sums})


def now(connection: psycopg.Connection, job_id: int, span: timedelta, *, limit: int, silence: timedelta) -> JobNow:
    """What moves of a job at this moment, in one statement; NotFound if it was deleted. `span`: of the log; `limit`: of domains."""
    values = {"jobs": [job_id], "job": job_id, "limit": limit, "silence": silence, "span": span, "pages": sorted(PAGES)}
    found = fetch_combined(connection, _NOW, values)
    if not found["job"] or not found["state"]:
        raise NotFound(f"There is no job {job_id} any more.")
    job, (held,), (logged,) = as_record(Job, found["job"][0]), found["held"], found["logged"]
    sums = {
        "pages_in_all": job.pages,
        **{
            name: getattr(job, name)
            for name in ("errors", "bytes", "discovered", "waiting", "denied", "failed", "ready")
        },
        "done": job.urls_done,
        "open": job.domains - job.done - job.spent,
    }
    return JobNow(
        job,
        as_record(JobFigures, {**found["state"][0], **sums, **held}),
        {row["name"]: Activity.from_json(row["activity"], row["age"] or 0.0) for row in found["activities"]},
        (logged["pages"], logged["urls"]),
        [as_record(JobDomain, row) for row in found["domains"]],
    )


def crawl_progress(connection: psycopg.Connection, job_id: int, crawl_id: int, *, spread: bool = True) -> CrawlProgress:
    """The figures of a crawl; NotFound if there is no such crawl.

    Without `spread` it reads the crawl's runs only and takes a millisecond. `spread` reads all domains of the job, next to nothing for
    thousands, half a second for 200,000; `pages` then has those of workers that serve all jobs, too.
    """
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(_CRAWL, {"crawl": crawl_id}).fetchone()
    if row is None:
        raise NotFound(f"There is no crawl {crawl_id}.")
    if not spread:
        return CrawlProgress(**row, spread=None)
    (crawled,) = _rows(connection, _CRAWL_PAGES, {"job": job_id, "crawl": crawl_id})
    row["pages"] = max(row["pages"], crawled["pages"])
    return CrawlProgress(**row, spread=domain_breakdown(connection, job_id))


def domain_breakdown(connection: psycopg.Connection, job_id: int) -> DomainBreakdown:
    """A job's work over its domains."""
    rows = _rows(connection, _SPREAD, {"job": job_id})
    sums = ("discovered", "waiting", "done", "denied", "failed", "spent", "finished", "ready")
    return DomainBreakdown(
        domains={row["status"]: row["domains"] for row in rows},
        next_at=min((row["next_at"] for row in rows if row["next_at"]), default=None),
        **{name: sum(row[name] for row in rows) for name in sums},
    )


def is_first_crawl(connection: psycopg.Connection, crawl_id: int) -> bool:
    """Whether this is the first crawl of the database."""
    row = connection.execute("SELECT NOT EXISTS (SELECT FROM crawls WHERE id < %s)", (crawl_id,)).fetchone()
    return bool(row and row[0])


def serving(connection: psycopg.Connection, job_ids: Sequence[int], *, silence: timedelta) -> dict[int, int]:
    """How many worker processes serve each of these jobs."""
    return dict(connection.execute(_SERVING, {"jobs": list(job_ids), "silence": silence}).fetchall())


def held(connection: psycopg.Connection, job_id: int, *, limit: int) -> list[tuple[str, str | None]]:
    """Domains on which the job has something to do and that a worker holds: their names, and the job that they are held for."""
    return connection.execute(_HELD, {"job": job_id, "limit": limit}).fetchall()


def to_parse(connection: psycopg.Connection, job_id: int) -> int:
    """Return how many pages of a job are due for a parser."""
    row = connection.execute("SELECT count(*) FROM page_parses WHERE due AND job_id = %s", [job_id]).fetchone()
    return int(row[0]) if row else 0


def causes(connection: psycopg.Connection, job_id: int, span: timedelta) -> dict[str, int]:
    """Outcomes of the job's requests that failed within the last `span`, the most frequent first."""
    parameters = {"job": job_id, "span": span, "errors": _ERRORS}
    return dict(connection.execute(_CAUSES, parameters).fetchall())


def logged(connection: psycopg.Connection, job_id: int, span: timedelta) -> tuple[int, int]:
    """The pages, and the outcomes of any kind, that the log has of a job within the last `span`."""
    row = connection.execute(_PACE, {"job": job_id, "span": span, "pages": sorted(PAGES)}).fetchone()
    assert row is not None  # noqa: S101 — an aggregate answers with a row
    return row[0], row[1]


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


def sources(connection: psycopg.Connection, job_id: int) -> UrlSources | None:
    """Where the URLs of a job came from; None: it has read no sitemap. Reads all its URLs."""
    (found,) = _rows(connection, _SITEMAPS, {"job": job_id})
    if not found["sitemaps"]:
        return None
    (counts,) = _rows(connection, _SOURCES, {"job": job_id})
    url, _, problem = (found.pop("example") or "").partition("\x01")
    read = sitemaps.of_job(connection, job_id)
    return UrlSources(**counts, **found, problem_url=url or None, problem=problem or None, read=read)


def images(connection: psycopg.Connection, job_id: int) -> int:
    """The number of different images to which URLs of a job led, and which are stored. Reads all its URLs."""
    row = connection.execute(_STORED_IMAGES, {"job": job_id}).fetchone()
    return int(row[0]) if row else 0


def wrong_types(connection: psycopg.Connection, job_id: int, *, limit: int) -> list[tuple[str, int]]:
    """The content types of URLs that were not read for them, with their numbers, the most frequent first. Reads all URLs of the job."""
    parameters = {"job": job_id, "reason": f"{Outcome.WRONG_TYPE}:%", "limit": limit}
    return connection.execute(_TYPES, parameters).fetchall()


def _rows(connection: psycopg.Connection, query: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, parameters).fetchall()
