"""SQL of the frontier: list, statistics, clearing. What a crawl takes and writes is in `db/frontier` and `db/enqueue`.

The rules: statistics come from counters. What no counter has is counted where there is little, and estimated from a sample where there is
much; `estimated` says so. Clearing deletes URLs that were never answered, as if they had not been discovered; URLs that were answered
before and wait for a refresh are reset to what they were. A worker that has such URLs in memory loses its claim, so that its later results
are refused. URLs that people added after the order to clear stay.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from holdfast.db import claimable, jobs, sweeper, transitions
from holdfast.db.keyset_pagination import Equals, Key, Listing, Order, Page, Range, SortColumn
from holdfast.db.rows import select_list
from holdfast.db.url_reasons import code
from holdfast.frontier.records import FrontierStats, FrontierUrl, JobFrontier
from holdfast.model.domain import Event, Status, status_reason
from holdfast.model.url_reason import CLEARED

COUNTED: Final = 20_000
"""The most waiting URLs that are counted one by one; of more, a sample is counted."""
ENOUGH: Final = 3_000
"""Waiting URLs in a sample."""
SAMPLE: Final = 30_000
"""URLs in a sample, waiting or not."""
CHEAP: Final = 0.25
"""A sample is also used where it costs at most this share of counting all."""
JOBS_SHOWN: Final = 100
CHUNK: Final = 200
"""Domains that are locked at once by clearing."""
ROWS: Final = 10_000
"""URLs that one transaction clears."""
_DEADLOCK_RETRIES: Final = 5

# List -----------------------------------------------------------------------------------------------------------------

_KEY: Final = (SortColumn("t.domain_id", int), SortColumn("t.job_id", int), SortColumn("t.url_key", bytes))

URLS: Final = Listing(
    "url_frontier",
    select_list(
        FrontierUrl,
        "t",
        domain="d.domain",
        job="j.name",
        state="t.state::text",
        kind="t.kind::text",
        resource="COALESCE(t.resource::text, 'page')",
        listed="COALESCE(t.listed, false)",
    ),
    FrontierUrl,
    {
        "domain": Equals("t.domain_id", "%(domain)s::bigint"),
        "job": Equals("t.job_id", "%(job)s::bigint"),
        "first_domain": Range("t.domain_id", at_least="%(first_domain)s::bigint"),
        "last_domain": Range("t.domain_id", below="%(last_domain)s::bigint + 1"),
        "waiting": "t.state = 'waiting'",
        "failed": "t.state = 'failed'",
        "state": "t.state = %(state)s::frontier_state",
        "reason": f"t.state <> 'waiting' AND {code('t')} = %(reason)s",
        "kind": "t.kind = %(kind)s::frontier_kind",
        "pages": "t.resource IS NULL",
        "sitemaps": "t.resource = 'sitemap'",
        "images": "t.resource = 'image'",
        "checks": "t.resource = 'check'",
        "priority": "t.priority = %(priority)s",
        "due": "t.state = 'waiting' AND (t.not_before IS NULL OR t.not_before <= clock_timestamp())",
        "delayed": "t.state = 'waiting' AND t.not_before > clock_timestamp()",
    },
    {
        "key": Order(
            _KEY,
            (
                *(("domain", "job", "sitemaps"), ("domain", "sitemaps"), ("sitemaps",)),
                *(("domain", "job", "images"), ("domain", "images"), ("images",)),
                *(("domain", "job", "checks"), ("domain", "checks"), ("checks",)),
                *(("domain", "job", "failed"), ("domain", "failed"), ("failed",), ("domain", "job"), ("domain",), ()),
            ),
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
# Of each state from both ends of the index, however many domains a job has. Domains with wakes may be missing there.
_DOMAINS: Final = """
SELECT min(domain_id) AS first_domain, max(domain_id) AS last_domain FROM (
    SELECT e.domain_id FROM unnest(enum_range(NULL::job_domain_state)) AS s(state) CROSS JOIN LATERAL (
        (SELECT domain_id FROM job_domains WHERE job_id = %(job)s AND state = s.state ORDER BY domain_id LIMIT 1)
        UNION ALL (SELECT domain_id FROM job_domains WHERE job_id = %(job)s AND state = s.state ORDER BY domain_id DESC LIMIT 1)) e
    UNION ALL SELECT domain_id FROM domain_wakes WHERE job_id = %(job)s) found
"""


def page(
    connection: psycopg.Connection, filters: Mapping[str, object], *, order: str, after: Key | None, limit: int
) -> Page[FrontierUrl]:
    """Return one page of URLs; `filters` have ids. URLs of a job are searched from its first domain to its last."""
    if "job" in filters and "domain" not in filters:
        with connection.cursor(row_factory=dict_row) as cursor:
            ends = cursor.execute(_DOMAINS, filters).fetchone() or {}
        if ends["first_domain"] is None:
            return Page([], None)
        filters = {**filters, **ends}
    return URLS.page(connection, filters, order=order, after=after, limit=limit)


# Statistics -----------------------------------------------------------------------------------------------------------

_BY_JOB: Final = """
SELECT j.id AS job_id, j.name AS job, j.state::text, w.domains, w.discovered, w.waiting, w.done, w.denied, w.failed, w.with_waiting, w.ready
FROM (
    SELECT job_id, count(*) AS domains, sum(discovered)::bigint AS discovered, sum(waiting)::bigint AS waiting, sum(done)::bigint AS done,
           sum(denied)::bigint AS denied, sum(failed)::bigint AS failed, count(*) FILTER (WHERE waiting > 0) AS with_waiting,
           count(*) FILTER (WHERE ready) AS ready
    FROM job_domains WHERE %(job)s::bigint IS NULL OR job_id = %(job)s GROUP BY job_id) w JOIN crawl_jobs j ON j.id = w.job_id
WHERE j.deleted_at IS NULL ORDER BY w.waiting DESC, j.id
"""
_NOT_COUNTED: Final = """
SELECT (SELECT COALESCE(sum(inserted), 0)::bigint FROM domain_wakes WHERE %(job)s::bigint IS NULL OR job_id = %(job)s) AS unfolded,
       (SELECT COALESCE(sum(in_window), 0)::bigint FROM crawl_runs
        WHERE status = 'running' AND (%(job)s::bigint IS NULL OR job_id = %(job)s)) AS in_memory
"""
_WAITING: Final = """
SELECT f.priority, f.kind::text, count(*) AS urls, min(f.discovered_at) AS oldest FROM {rows}
WHERE f.state = 'waiting' AND (%(job)s::bigint IS NULL OR f.job_id = %(job)s) GROUP BY f.priority, f.kind
"""
_COUNT_ALL: Final = _WAITING.format(
    rows="job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id AND jd.waiting > 0"
)
# Blocks of the table at random. The oldest rows are mostly in its first blocks.
_COUNT_SAMPLE: Final = _WAITING.format(rows="url_frontier f TABLESAMPLE SYSTEM (%(percent)s)")
_ESTIMATED_ROWS: Final = "SELECT reltuples AS urls FROM pg_class WHERE oid = 'url_frontier'::regclass"
_OLDEST_IN_FIRST_BLOCKS: Final = """
SELECT min(f.discovered_at) FROM url_frontier f
WHERE f.ctid < '(100,0)'::tid AND f.state = 'waiting' AND (%(job)s::bigint IS NULL OR f.job_id = %(job)s)
"""


def stats(connection: psycopg.Connection, job_id: int | None = None) -> FrontierStats:
    """Return statistics of the frontier of all jobs, or of one. Reads the rows of `job_domains`, not all URLs."""
    key = {"job": job_id}
    with connection.cursor(row_factory=dict_row) as cursor:
        by_job = cursor.execute(_BY_JOB, key).fetchall()
        not_counted: dict[str, Any] = cursor.execute(_NOT_COUNTED, key).fetchone() or {}
        sums = {
            name: sum(row[name] for row in by_job) for name in ("discovered", "waiting", "done", "denied", "failed")
        }
        estimate = cursor.execute(_ESTIMATED_ROWS).fetchone()
        known, waiting = max(1, sums["discovered"], estimate["urls"] if estimate else 0), max(1, sums["waiting"])
        share = min(1.0, ENOUGH / waiting, SAMPLE / known)
        estimated = waiting > COUNTED or share * known < CHEAP * waiting
        rows = cursor.execute(
            _COUNT_SAMPLE if estimated else _COUNT_ALL, key | {"percent": 100 * share}, prepare=False
        ).fetchall()
        oldest = [row["oldest"] for row in rows]
        if estimated:
            first = cursor.execute(_OLDEST_IN_FIRST_BLOCKS, key).fetchone()
            oldest += [first["min"]] if first and first["min"] else []
    factor = sums["waiting"] / max(1, sum(row["urls"] for row in rows)) if estimated else 1
    by_priority: dict[int, int] = {}
    by_kind: dict[str, int] = {}
    for row in rows:
        urls = round(row["urls"] * factor)
        by_priority[row["priority"]] = by_priority.get(row["priority"], 0) + urls
        by_kind[row["kind"]] = by_kind.get(row["kind"], 0) + urls
    with_waiting, ready = sum(row.pop("with_waiting") for row in by_job), sum(row.pop("ready") for row in by_job)
    return FrontierStats(
        **sums,
        **not_counted,
        domains=with_waiting,
        ready=ready,
        jobs=[JobFrontier(**row) for row in by_job[:JOBS_SHOWN]],
        estimated=estimated,
        by_priority=dict(sorted(by_priority.items(), reverse=True)),
        by_kind=dict(sorted(by_kind.items())),
        oldest_waiting_at=min(oldest, default=None),
    )


# Clearing -------------------------------------------------------------------------------------------------------------

# Not the job of the tasks: a task is cancelled or paused instead.
_CLEARABLE_JOBS: Final = """
SELECT id FROM crawl_jobs WHERE kind = 'crawl' AND deleted_at IS NULL AND (%(job)s::bigint IS NULL OR id = %(job)s) ORDER BY id
"""
# DISTINCT in each half: with repeated domains one half would end sooner than the other, and domains would be skipped.
_DOMAINS_TO_CLEAR: Final = """
SELECT domain_id FROM (
    (SELECT DISTINCT domain_id FROM job_domains WHERE job_id = ANY(%(jobs)s) AND domain_id > %(after)s AND waiting > 0 {only}
     ORDER BY domain_id LIMIT %(chunk)s)
    UNION (SELECT DISTINCT domain_id FROM domain_wakes WHERE job_id = ANY(%(jobs)s) AND domain_id > %(after)s {only}
           ORDER BY domain_id LIMIT %(chunk)s)) found
ORDER BY domain_id LIMIT %(chunk)s
"""
# FOR UPDATE waits for workers that insert URLs of a domain that they do not hold: they share a lock on its row.
_LOCK: Final = "SELECT id, claimed_by IS NOT NULL FROM domains WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE"
# Orders to fetch URLs again are dropped.
_NOT_AGAIN: Final = """
DELETE FROM domain_wakes WHERE domain_id = ANY(%(ids)s) AND job_id = ANY(%(jobs)s) AND (again_after IS NOT NULL OR again_key IS NOT NULL)
"""
# URLs that are not counted yet are subtracted from the wakes: to fold these would wake domains for URLs that are being deleted.
_CLEAR: Final = """
WITH chunk AS MATERIALIZED (
    SELECT f.domain_id, f.job_id, f.url_key, CASE
        WHEN f.kind = 'refresh' THEN 'done'
        WHEN EXISTS (SELECT FROM crawled_pages p
                     WHERE p.domain_id = f.domain_id AND p.job_id = f.job_id AND p.url_key = f.url_key) THEN 'failed' END AS was
    FROM url_frontier f WHERE f.domain_id = ANY(%(ids)s) AND f.job_id = ANY(%(jobs)s) AND f.state = 'waiting'
      AND (f.discovered_at <= %(until)s OR (%(links)s AND f.parent_key IS NOT NULL)) LIMIT %(rows)s
), gone AS (
    DELETE FROM url_frontier f USING chunk c
    WHERE c.was IS NULL AND f.domain_id = c.domain_id AND f.job_id = c.job_id AND f.url_key = c.url_key
), back AS (
    UPDATE url_frontier f SET state = c.was::frontier_state, not_before = NULL, reason = CASE WHEN c.was = 'failed' THEN %(cleared)s END
    FROM chunk c WHERE c.was IS NOT NULL AND f.domain_id = c.domain_id AND f.job_id = c.job_id AND f.url_key = c.url_key
), news AS MATERIALIZED (
    SELECT domain_id, job_id, sum(inserted)::bigint AS inserted FROM domain_wakes
    WHERE domain_id = ANY(%(ids)s) AND job_id = ANY(%(jobs)s) AND again_after IS NULL AND again_key IS NULL GROUP BY domain_id, job_id
), counts AS MATERIALIZED (
    SELECT c.*, COALESCE(n.inserted, 0) AS inserted, LEAST(c.gone, COALESCE(n.inserted, 0)) AS not_counted FROM (
        SELECT domain_id, job_id, count(*) AS urls, count(*) FILTER (WHERE was IS NULL) AS gone,
               count(*) FILTER (WHERE was = 'done') AS done, count(*) FILTER (WHERE was = 'failed') AS failed
        FROM chunk GROUP BY domain_id, job_id) c LEFT JOIN news n ON n.domain_id = c.domain_id AND n.job_id = c.job_id
), old_news AS (
    DELETE FROM domain_wakes w USING counts c
    WHERE w.domain_id = c.domain_id AND w.job_id = c.job_id AND c.not_counted > 0 AND w.again_after IS NULL AND w.again_key IS NULL
      AND w.images_stored = 0
), new_news AS (
    INSERT INTO domain_wakes (domain_id, job_id, inserted)
    SELECT domain_id, job_id, inserted - not_counted FROM counts WHERE not_counted > 0 AND inserted > not_counted ORDER BY domain_id, job_id
)
SELECT domain_id, sum(urls)::bigint, sum(gone)::bigint, array_agg(job_id),
       count(add_counts(domain_id, job_id, not_counted - urls, done, 0, failed))
FROM counts GROUP BY domain_id ORDER BY domain_id
"""
# The counts of templates are no longer known, and start again from 0.
_NO_TEMPLATES: Final = """
DELETE FROM url_templates WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM url_templates WHERE domain_id = ANY(%(ids)s) AND job_id = ANY(%(jobs)s) LIMIT %(rows)s))
"""
# Proved in a statement that begins after the locks: all inserts are visible to it.
_DONE: Final = """
UPDATE job_domains jd SET state = 'done', ready = false, not_before = NULL
WHERE jd.domain_id = ANY(%(ids)s) AND jd.job_id = ANY(%(jobs)s) AND jd.state <> 'done'
  AND NOT EXISTS (SELECT FROM url_frontier f WHERE f.domain_id = jd.domain_id AND f.job_id = jd.job_id AND f.state = 'waiting')
  AND NOT EXISTS (SELECT FROM domain_wakes w WHERE w.domain_id = jd.domain_id AND w.job_id = jd.job_id)
"""
# Domains that were crawled before and were pending because of the deleted URLs come to rest like active ones.
_WAS_CRAWLED: Final = """
SELECT d.id FROM domains d WHERE d.id = ANY(%(ids)s) AND d.status = 'pending'
  AND d.last_crawled_at IS NOT NULL AND NOT EXISTS (
    SELECT FROM (SELECT job_id FROM job_domains WHERE domain_id = d.id AND state <> 'done'
                 UNION ALL SELECT job_id FROM domain_wakes WHERE domain_id = d.id) work JOIN crawl_jobs j ON j.id = work.job_id
    WHERE j.state <> 'cancelled' AND j.kind = 'crawl')
"""

_LOCK_JOB: Final = """
SELECT j.name FROM crawl_jobs j WHERE j.id = %(job)s AND job_is_runnable(j) AND j.kind = 'crawl' FOR NO KEY UPDATE
"""
_NOTHING_LEFT: Final = """
SELECT NOT EXISTS (SELECT FROM job_domains WHERE job_id = %(job)s AND state <> 'done')
   AND NOT EXISTS (SELECT FROM domain_wakes WHERE job_id = %(job)s)
   AND NOT EXISTS (SELECT FROM crawl_runs r JOIN crawls c ON c.id = r.crawl_id
                   WHERE c.job_id = %(job)s AND c.state <> 'finished' AND r.status = 'running')
"""
_END_CRAWL: Final = (
    "UPDATE crawls SET state = 'finished', ended_at = clock_timestamp() WHERE job_id = %(job)s AND state <> 'finished'"
)
_END_JOB: Final = "UPDATE crawl_jobs SET state = 'completed', completed_at = clock_timestamp() WHERE id = %(job)s"


@dataclass(frozen=True, slots=True)
class Cleared:
    """What a step of clearing did."""

    forgotten: int = 0
    """URLs that were deleted."""
    put_back: int = 0
    """URLs that had been answered before, and are reset to what they were."""
    taken_away: int = 0
    """Claims that were revoked."""
    jobs: tuple[int, ...] = ()
    """The jobs of these URLs, by id."""

    def __add__(self, other: "Cleared") -> "Cleared":
        return Cleared(
            self.forgotten + other.forgotten,
            self.put_back + other.put_back,
            self.taken_away + other.taken_away,
            tuple(sorted({*self.jobs, *other.jobs})),
        )

    @property
    def urls(self) -> int:
        """All URLs that no longer wait."""
        return self.forgotten + self.put_back


@dataclass(frozen=True, slots=True)
class ClearScope:
    """Which URLs are cleared."""

    job_ids: Sequence[int]
    until: datetime | None = None
    """Only URLs that were discovered up to then, by the database's clock; None: at any time."""
    links: bool = True
    """Also links that were discovered later, and orders to fetch URLs again: a crawl goes on finding links until its claims are revoked."""
    rest: timedelta | None = None
    """How long a domain that has nothing left to do rests until its pages are refreshed; None: as its own setting says."""


def clearable_jobs(connection: psycopg.Connection, job_id: int | None) -> list[int]:
    """Return the jobs whose URLs can be cleared: one, or all except the job of the tasks."""
    return [row[0] for row in connection.execute(_CLEARABLE_JOBS, {"job": job_id})]


def domains_to_clear(
    connection: psycopg.Connection, job_ids: Sequence[int], domain_id: int | None, *, after: int
) -> list[int]:
    """Return the next domains after the id `after` on which URLs of these jobs may wait; only `domain_id`, if it is not None."""
    values = {"jobs": list(job_ids), "after": after, "chunk": CHUNK, "domain": domain_id}
    only = "" if domain_id is None else "AND domain_id = %(domain)s"
    return [row[0] for row in connection.execute(_DOMAINS_TO_CLEAR.format(only=only), values, prepare=False)]


def clear(connection: psycopg.Connection, domain_ids: Sequence[int], scope: ClearScope) -> Cleared:
    """Clear waiting URLs of this scope on these domains, up to ROWS; with fewer there are none left.

    Before: the transaction, if one is open, has locked no domain. After (with its commit): counters are right; work without URLs is done,
    and a domain without work is exhausted, if it was active; the holder of a domain whose URLs were cleared has lost its claim.
    """
    for _ in range(_DEADLOCK_RETRIES):  # a batch locks its own domains before others
        with suppress(psycopg.errors.DeadlockDetected):
            return _clear(connection, domain_ids, scope)
    return _clear(connection, domain_ids, scope)


def _clear(connection: psycopg.Connection, domain_ids: Sequence[int], scope: ClearScope) -> Cleared:
    ids = sorted(domain_ids)
    key: dict[str, Any] = {
        "ids": ids,
        "jobs": list(scope.job_ids),
        "until": scope.until or "infinity",
        "links": scope.links,
    }
    key |= {"rows": ROWS, "cleared": f"{CLEARED}: a person took it out"}
    with connection.transaction():
        held = {domain_id for domain_id, is_held in connection.execute(_LOCK, key) if is_held}
        if scope.links:
            connection.execute(_NOT_AGAIN, key)
        rows = connection.execute(_CLEAR, key, prepare=False).fetchall()
        counted = key | {"ids": [row[0] for row in rows if row[2]]}
        # All of them: no other call comes back for the rest.
        while connection.execute(_NO_TEMPLATES, counted).rowcount == ROWS:
            pass
        taken = [row[0] for row in rows if row[0] in held]
        sweeper.revoke_claims(connection, taken, why="forced")
        # A holder of a domain without cleared URLs may be about to find more: the proof of the end is left to its release.
        idle = key | {"ids": [domain_id for domain_id in ids if domain_id not in held.difference(taken)]}
        connection.execute(_DONE, idle)
        crawled = [row[0] for row in connection.execute(_WAS_CRAWLED, idle)]
        before = status_reason(Event.OUTCOME, "it was crawled before")
        transitions.change(connection, crawled, Status.ACTIVE, only_from=[Status.PENDING], reason=before)
        why = status_reason(Event.FRONTIER_EMPTY, "its frontier was cleared")
        jobs.come_to_rest(connection, idle["ids"], why, rest=scope.rest)
        claimable.update_ready(connection, ids)
    deleted = sum(row[2] for row in rows)
    return Cleared(
        deleted,
        sum(row[1] for row in rows) - deleted,
        len(taken),
        tuple(sorted({job_id for row in rows for job_id in row[3]})),
    )


def complete_if_done(connection: psycopg.Connection, job_id: int) -> bool:
    """Complete a job and its crawl, if it has nothing left to do and no running process that would notice. Returns whether it did.

    Before: nothing. After (with the commit): with True it is completed. A standing or a paused job never is.
    """
    with connection.transaction():
        row = connection.execute(_LOCK_JOB, {"job": job_id}).fetchone()
        if row is None or row[0] in jobs.STANDING:
            return False
        # A statement of its own, after the lock of the job's row: seeds that were being added are visible to it.
        left = connection.execute(_NOTHING_LEFT, {"job": job_id}).fetchone()
        if not (left and left[0]):
            return False
        connection.execute(_END_CRAWL, {"job": job_id})
        connection.execute(_END_JOB, {"job": job_id})
    return True
