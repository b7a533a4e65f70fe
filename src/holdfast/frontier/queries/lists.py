"""URLs of the frontier in pages, and the frontier in figures.

The rule: figures come from the counters. What no counter has is counted where it is little, and estimated from a sample where it is
much, and then says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from holdfast.db.keyset_pagination import Equals, Key, Listing, Order, Page, Range, SortColumn

COUNTED: Final = 20_000
"""URLs that wait: so many may be counted one by one, of more a sample is."""
ENOUGH: Final = 3_000
"""URLs that wait in a sample."""
SAMPLE: Final = 30_000
"""URLs in a sample, whether they wait or not."""
CHEAP: Final = 0.25
"""A sample is counted as well where that takes so much less than to count all."""
JOBS_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class UrlRow:
    """A URL that a job has met."""

    domain_id: int
    domain: str
    job_id: int
    job: str
    url_key: bytes
    url: str
    state: str
    kind: str
    reason: str | None
    priority: int
    depth: int
    hops: int
    attempts: int
    discovered_at: datetime
    not_before: datetime | None
    parent_key: bytes | None


_KEY: Final = (SortColumn("t.domain_id", int), SortColumn("t.job_id", int), SortColumn("t.url_key", bytes))

URLS: Final = Listing(
    "url_frontier",
    """
    t.domain_id, d.domain, t.job_id, j.name AS job, t.url_key, t.url, t.state::text, t.kind::text, t.reason, t.priority, t.depth, t.hops,
    t.attempts, t.discovered_at, t.not_before, t.parent_key
    """,
    UrlRow,
    {
        "domain": Equals("t.domain_id", "%(domain)s::bigint"),
        "job": Equals("t.job_id", "%(job)s::bigint"),
        "first_domain": Range("t.domain_id", at_least="%(first_domain)s::bigint"),
        "last_domain": Range("t.domain_id", below="%(last_domain)s::bigint + 1"),
        "waiting": "t.state = 'waiting'",
        "failed": "t.state = 'failed'",
        "state": "t.state = %(state)s::frontier_state",
        "kind": "t.kind = %(kind)s::frontier_kind",
        "priority": "t.priority = %(priority)s",
        "due": "t.state = 'waiting' AND (t.not_before IS NULL OR t.not_before <= clock_timestamp())",
        "delayed": "t.state = 'waiting' AND t.not_before > clock_timestamp()",
    },
    {
        "key": Order(
            _KEY,
            (("domain", "job", "failed"), ("domain", "failed"), ("failed",), ("domain", "job"), ("domain",), ()),
            frozenset({"first_domain", "last_domain"}),
        ),
        "taken": Order(
            (
                SortColumn("t.priority", int, descending=True),
                SortColumn("t.depth", int),
                SortColumn("t.url_key", bytes),
            ),
            (("domain", "job", "waiting", "priority"), ("domain", "job", "waiting")),
        ),
    },
    joins="JOIN domains d ON d.id = t.domain_id JOIN crawl_jobs j ON j.id = t.job_id",
    selective=frozenset({"domain", "failed"}),
)
# Of each state from both ends of the index, however many domains a job has. Those of wakes need not be in it yet.
_DOMAINS: Final = """
SELECT min(domain_id) AS first_domain, max(domain_id) AS last_domain FROM (
    SELECT e.domain_id FROM unnest(enum_range(NULL::job_domain_state)) AS s(state) CROSS JOIN LATERAL (
        (SELECT domain_id FROM job_domains WHERE job_id = %(job)s AND state = s.state ORDER BY domain_id LIMIT 1)
        UNION ALL (SELECT domain_id FROM job_domains WHERE job_id = %(job)s AND state = s.state ORDER BY domain_id DESC LIMIT 1)) e
    UNION ALL SELECT domain_id FROM domain_wakes WHERE job_id = %(job)s) places
"""


def urls(
    connection: psycopg.Connection, given: Mapping[str, object], *, order: str, after: Key | None, limit: int
) -> Page[UrlRow]:
    """URLs that fit. Those of a job are looked for from its first domain to its last."""
    if "job" in given and "domain" not in given:
        with connection.cursor(row_factory=dict_row) as cursor:
            ends = cursor.execute(_DOMAINS, given).fetchone() or {}
        if ends["first_domain"] is None:
            return Page([], None)
        given = {**given, **ends}
    return URLS.page(connection, given, order=order, after=after, limit=limit)


@dataclass(frozen=True, slots=True)
class JobFrontier:
    """The URLs of one job."""

    job_id: int
    job: str
    state: str
    """Of the job."""
    domains: int
    discovered: int
    waiting: int
    done: int
    denied: int
    failed: int


@dataclass(frozen=True, slots=True)
class FrontierStats:
    """The frontier in figures."""

    discovered: int
    waiting: int
    done: int
    denied: int
    failed: int
    unfolded: int
    """URLs that were inserted for domains that somebody holds, and wait to be counted."""
    in_memory: int
    """Of those that wait: workers have them in their windows, as they said last."""
    domains: int
    """With URLs that wait; one counts for each job that has some on it."""
    ready: int
    """Of these: they could be claimed now."""
    jobs: list[JobFrontier]
    """Those with the most URLs that wait."""
    estimated: bool
    """What follows was told from a sample."""
    by_priority: dict[int, int] = field(default_factory=dict)
    """Of those that wait; likewise by kind."""
    by_kind: dict[str, int] = field(default_factory=dict)
    oldest_waiting_at: datetime | None = None
    """When the one that waits for longest was met; an estimate is never too old."""


_BY_JOB: Final = """
SELECT j.id AS job_id, j.name AS job, j.state::text, w.domains, w.discovered, w.waiting, w.done, w.denied, w.failed, w.with_waiting, w.ready
FROM (
    SELECT job_id, count(*) AS domains, sum(discovered)::bigint AS discovered, sum(waiting)::bigint AS waiting, sum(done)::bigint AS done,
           sum(denied)::bigint AS denied, sum(failed)::bigint AS failed, count(*) FILTER (WHERE waiting > 0) AS with_waiting,
           count(*) FILTER (WHERE ready) AS ready
    FROM job_domains WHERE %(job)s::bigint IS NULL OR job_id = %(job)s GROUP BY job_id) w JOIN crawl_jobs j ON j.id = w.job_id
WHERE j.deleted_at IS NULL ORDER BY w.waiting DESC, j.id
"""
_BESIDE: Final = """
SELECT (SELECT COALESCE(sum(inserted), 0)::bigint FROM domain_wakes WHERE %(job)s::bigint IS NULL OR job_id = %(job)s) AS unfolded,
       (SELECT COALESCE(sum(in_window), 0)::bigint FROM crawl_runs
        WHERE status = 'running' AND (%(job)s::bigint IS NULL OR job_id = %(job)s)) AS in_memory
"""
_WAITING: Final = """
SELECT f.priority, f.kind::text, count(*) AS urls, min(f.discovered_at) AS oldest FROM {rows}
WHERE f.state = 'waiting' AND (%(job)s::bigint IS NULL OR f.job_id = %(job)s) GROUP BY f.priority, f.kind
"""
_ALL: Final = _WAITING.format(
    rows="job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id AND jd.waiting > 0"
)
# The rows of a job or of all, some blocks of the table here and there. What was inserted first lies, for the most part, at its beginning.
_SOME: Final = _WAITING.format(rows="url_frontier f TABLESAMPLE SYSTEM (%(percent)s)")
_ABOUT: Final = "SELECT reltuples AS urls FROM pg_class WHERE oid = 'url_frontier'::regclass"
_FIRST: Final = """
SELECT min(f.discovered_at) FROM url_frontier f
WHERE f.ctid < '(100,0)'::tid AND f.state = 'waiting' AND (%(job)s::bigint IS NULL OR f.job_id = %(job)s)
"""


def stats(connection: psycopg.Connection, job_id: int | None = None) -> FrontierStats:
    """The frontier of all jobs, or of one, in figures. Goes over the work of the job on all its domains, not over URLs."""
    key = {"job": job_id}
    with connection.cursor(row_factory=dict_row) as cursor:
        jobs = cursor.execute(_BY_JOB, key).fetchall()
        beside: dict[str, Any] = cursor.execute(_BESIDE, key).fetchone() or {}
        sums = {name: sum(row[name] for row in jobs) for name in ("discovered", "waiting", "done", "denied", "failed")}
        about = cursor.execute(_ABOUT).fetchone()
        known, waiting = max(1, sums["discovered"], about["urls"] if about else 0), max(1, sums["waiting"])
        share = min(1.0, ENOUGH / waiting, SAMPLE / known)
        estimated = waiting > COUNTED or share * known < CHEAP * waiting
        rows = cursor.execute(_SOME if estimated else _ALL, key | {"percent": 100 * share}, prepare=False).fetchall()
        oldest = [row["oldest"] for row in rows]
        if estimated:
            first = cursor.execute(_FIRST, key).fetchone()
            oldest += [first["min"]] if first and first["min"] else []
    factor = sums["waiting"] / max(1, sum(row["urls"] for row in rows)) if estimated else 1
    by_priority: dict[int, int] = {}
    by_kind: dict[str, int] = {}
    for row in rows:
        urls = round(row["urls"] * factor)
        by_priority[row["priority"]] = by_priority.get(row["priority"], 0) + urls
        by_kind[row["kind"]] = by_kind.get(row["kind"], 0) + urls
    with_waiting, ready = sum(row.pop("with_waiting") for row in jobs), sum(row.pop("ready") for row in jobs)
    return FrontierStats(
        **sums,
        **beside,
        domains=with_waiting,
        ready=ready,
        jobs=[JobFrontier(**row) for row in jobs[:JOBS_SHOWN]],
        estimated=estimated,
        by_priority=dict(sorted(by_priority.items(), reverse=True)),
        by_kind=dict(sorted(by_kind.items())),
        oldest_waiting_at=min(oldest, default=None),
    )
