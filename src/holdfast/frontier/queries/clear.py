"""URLs that wait, taken out of the frontier because a person says so.

The rule: what was never answered is forgotten, as if it had not been met, and may be met again. What was answered before and waits to be
asked for once more is what it was. A worker that has URLs of it in memory loses its claim: what it still learns of them is refused.
What people added after somebody asked for this is not meant; what was there before and was made to wait again since, is.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg

from holdfast.db import claimable, jobs, sweeper, transitions
from holdfast.model.domain import Event, Status, status_reason

CHUNK: Final = 200
"""Domains that are locked at once."""
ROWS: Final = 10_000
"""URLs of one transaction."""
_DEADLOCK_RETRIES: Final = 5

# The jobs of people: what tasks want is theirs to say.
_JOBS: Final = """
SELECT id FROM crawl_jobs WHERE kind = 'crawl' AND deleted_at IS NULL AND (%(job)s::bigint IS NULL OR id = %(job)s) ORDER BY id
"""
# Each half without repeats: of several jobs, or wakes, on one domain it would end sooner than the other, which then passes over the rest.
_PLACES: Final = """
SELECT domain_id FROM (
    (SELECT DISTINCT domain_id FROM job_domains WHERE job_id = ANY(%(jobs)s) AND domain_id > %(after)s AND waiting > 0 {only}
     ORDER BY domain_id LIMIT %(chunk)s)
    UNION (SELECT DISTINCT domain_id FROM domain_wakes WHERE job_id = ANY(%(jobs)s) AND domain_id > %(after)s {only}
           ORDER BY domain_id LIMIT %(chunk)s)) places
ORDER BY domain_id LIMIT %(chunk)s
"""
# FOR UPDATE: whoever inserts URLs for a domain that he does not hold shares its row, and has to be waited for.
_LOCK: Final = "SELECT id, claimed_by IS NOT NULL FROM domains WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE"
# Whatever was to wait again will not.
_NOT_AGAIN: Final = """
DELETE FROM domain_wakes WHERE domain_id = ANY(%(ids)s) AND job_id = ANY(%(jobs)s) AND (again_after IS NOT NULL OR again_key IS NOT NULL)
"""
# What nobody has counted yet is taken from the wakes: folding them would wake domains for URLs that are about to go.
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
), new_news AS (
    INSERT INTO domain_wakes (domain_id, job_id, inserted)
    SELECT domain_id, job_id, inserted - not_counted FROM counts WHERE not_counted > 0 AND inserted > not_counted ORDER BY domain_id, job_id
)
SELECT domain_id, sum(urls)::bigint, sum(gone)::bigint, array_agg(job_id),
       count(add_counts(domain_id, job_id, not_counted - urls, done, 0, failed))
FROM counts GROUP BY domain_id ORDER BY domain_id
"""
# How many there were of each template is not known any more: counting begins anew.
_NO_TEMPLATES: Final = """
DELETE FROM url_templates WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM url_templates WHERE domain_id = ANY(%(ids)s) AND job_id = ANY(%(jobs)s) LIMIT %(rows)s))
"""
# By proof, in a statement that begins after all inserters were waited for.
_DONE: Final = """
UPDATE job_domains jd SET state = 'done', ready = false, not_before = NULL
WHERE jd.domain_id = ANY(%(ids)s) AND jd.job_id = ANY(%(jobs)s) AND jd.state <> 'done'
  AND NOT EXISTS (SELECT FROM url_frontier f WHERE f.domain_id = jd.domain_id AND f.job_id = jd.job_id AND f.state = 'waiting')
  AND NOT EXISTS (SELECT FROM domain_wakes w WHERE w.domain_id = jd.domain_id AND w.job_id = jd.job_id)
"""
# One that was crawled before, and had been made to wait for what has gone now, comes to rest like one that was under way.
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
    """URLs."""
    put_back: int = 0
    """URLs that had been answered before."""
    taken_away: int = 0
    """Claims."""
    jobs: tuple[int, ...] = ()
    """Of which something went, by id."""

    def __add__(self, other: "Cleared") -> "Cleared":
        return Cleared(
            self.forgotten + other.forgotten,
            self.put_back + other.put_back,
            self.taken_away + other.taken_away,
            tuple(sorted({*self.jobs, *other.jobs})),
        )

    @property
    def urls(self) -> int:
        """All that do not wait any more."""
        return self.forgotten + self.put_back


def jobs_meant(connection: psycopg.Connection, job_id: int | None) -> list[int]:
    """The jobs whose URLs can be cleared: one, or all but that of the tasks."""
    return [row[0] for row in connection.execute(_JOBS, {"job": job_id})]


def places(connection: psycopg.Connection, job_ids: Sequence[int], domain_id: int | None, *, after: int) -> list[int]:
    """Domains behind `after` on which URLs of these jobs may wait, or this one; some of them, by id."""
    given = {"jobs": list(job_ids), "after": after, "chunk": CHUNK, "domain": domain_id}
    only = "" if domain_id is None else "AND domain_id = %(domain)s"
    return [row[0] for row in connection.execute(_PLACES.format(only=only), given, prepare=False)]


@dataclass(frozen=True, slots=True)
class Meant:
    """Which URLs somebody means who has them cleared."""

    job_ids: Sequence[int]
    until: datetime | None = None
    """Met up to then, by the database's clock; None: whenever."""
    links: bool = True
    """Also links that were met later, and what is to wait again: a crawl goes on finding some, until its domains are taken away."""
    rest: timedelta | None = None
    """Until the pages of a domain that has nothing else to do are looked at again; None: as long as it says itself."""


def clear(connection: psycopg.Connection, domain_ids: Sequence[int], meant: Meant) -> Cleared:
    """Take URLs that are meant and wait on these domains out, up to ROWS; what was done. With fewer there are none left.

    Before: the transaction, if one is open, has locked no domain. After (with its commit): counters are right; work without URLs is done,
    and a domain without work exhausted, if it was under way; whoever held a domain of which something went holds it no more.
    """
    for _ in range(
        _DEADLOCK_RETRIES
    ):  # a batch fences its own domains before it shares others, in another order than ours
        with suppress(psycopg.errors.DeadlockDetected):
            return _clear(connection, domain_ids, meant)
    return _clear(connection, domain_ids, meant)


def _clear(connection: psycopg.Connection, domain_ids: Sequence[int], meant: Meant) -> Cleared:
    ids = sorted(domain_ids)
    key: dict[str, Any] = {
        "ids": ids,
        "jobs": list(meant.job_ids),
        "until": meant.until or "infinity",
        "links": meant.links,
    }
    key |= {"rows": ROWS, "cleared": "cleared: a person took it out"}
    with connection.transaction():
        held = {domain_id for domain_id, is_held in connection.execute(_LOCK, key) if is_held}
        if meant.links:
            connection.execute(_NOT_AGAIN, key)
        rows = connection.execute(_CLEAR, key, prepare=False).fetchall()
        counted = key | {"ids": [row[0] for row in rows if row[2]]}
        # All of them: no other call comes back for the rest.
        while connection.execute(_NO_TEMPLATES, counted).rowcount == ROWS:
            pass
        taken = [row[0] for row in rows if row[0] in held]
        sweeper.revoke_claims(connection, taken, why="forced")
        # Whoever is on a domain of which nothing went may be about to find more: its end is his to prove.
        calm = key | {"ids": [domain_id for domain_id in ids if domain_id not in held.difference(taken)]}
        connection.execute(_DONE, calm)
        crawled = [row[0] for row in connection.execute(_WAS_CRAWLED, calm)]
        before = status_reason(Event.OUTCOME, "it was crawled before")
        transitions.change(connection, crawled, Status.ACTIVE, only_from=[Status.PENDING], reason=before)
        why = status_reason(Event.FRONTIER_EMPTY, "its frontier was cleared")
        jobs.come_to_rest(connection, calm["ids"], why, rest=meant.rest)
        claimable.update_ready(connection, ids)
    gone = sum(row[2] for row in rows)
    return Cleared(
        gone,
        sum(row[1] for row in rows) - gone,
        len(taken),
        tuple(sorted({job_id for row in rows for job_id in row[3]})),
    )


def end_if_nothing_is_left(connection: psycopg.Connection, job_id: int) -> bool:
    """End a job and its crawl, if it has nothing to do and no process of its own that would find out; whether it was.

    Before: nothing. After (with the commit): with True it is completed. A standing job, or one that a person paused, never is.
    """
    with connection.transaction():
        row = connection.execute(_LOCK_JOB, {"job": job_id}).fetchone()
        if row is None or row[0] in jobs.STANDING:
            return False
        # In a statement of its own: seeds that were being added wait for, or made us wait for, the lock of the job's row.
        left = connection.execute(_NOTHING_LEFT, {"job": job_id}).fetchone()
        if not (left and left[0]):
            return False
        connection.execute(_END_CRAWL, {"job": job_id})
        connection.execute(_END_JOB, {"job": job_id})
    return True
