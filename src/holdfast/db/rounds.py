"""Rounds of a crawl: a domain that used its share waits until the other domains had theirs.

A round is a number on the open row of `crawls`. The rules: it is raised by compare-and-set, only when nothing of the job is ready and
a domain waits for it; then the spent rows of older rounds, and of older crawls, are reopened in chunks by any worker or sweep. No further
round begins before all of them are reopened, so a kill between raising and reopening loses nothing. Domains that are held, cooling down
or delayed block no other.
"""

from collections.abc import Mapping
from typing import Final

import psycopg

from holdfast import failpoints
from holdfast.db import claimable

CHUNK: Final = 500
CHUNKS: Final = 10
"""Maximum number of chunks that one call reopens, to bound its duration. The next call or the sweep continues."""
COUNT_LIMIT: Final = 10_000
"""Maximum number of domains counted for a share; with more of them it is an estimate."""

# Spent rows that may go on: of an earlier crawl, or of an earlier round without having reached a limit of their own.
_STALE: Final = """
SELECT domain_id FROM job_domains WHERE job_id = %(job)s AND state = 'spent' AND crawl_id < %(crawl)s AND domain_id > %(after)s
UNION ALL
SELECT domain_id FROM job_domains WHERE job_id = %(job)s AND state = 'spent' AND crawl_id IS NULL AND domain_id > %(after)s
UNION ALL
SELECT jd.domain_id FROM crawls c JOIN job_domains jd ON jd.job_id = c.job_id
WHERE c.id = %(crawl)s AND jd.job_id = %(job)s AND jd.state = 'spent' AND jd.crawl_id = %(crawl)s AND jd.limit_reached IS NULL
  AND jd.round < c.round AND (c.round_below IS NULL OR jd.granted < c.round_below) AND jd.domain_id > %(after)s
"""
_LOCK_STALE: Final = f"""
SELECT d.id FROM domains d WHERE d.id IN (
    SELECT domain_id FROM ({_STALE}) stale
    WHERE EXISTS (SELECT FROM crawls WHERE id = %(crawl)s AND state <> 'finished') ORDER BY domain_id LIMIT %(chunk)s)
ORDER BY d.id FOR NO KEY UPDATE
"""  # noqa: S608 — composed of the constant above only
# In a statement of its own: it sees what was done to these rows until they were locked.
_REOPEN: Final = f"""
UPDATE job_domains jd SET state = 'open', limit_reached = NULL
WHERE jd.job_id = %(job)s AND jd.domain_id = ANY(%(ids)s) AND jd.state = 'spent' AND jd.domain_id IN ({_STALE})
"""  # noqa: S608 — composed of the constant above only

_READY: Final = "SELECT EXISTS (SELECT FROM job_domains WHERE job_id = %(job)s AND ready)"
_WAITS: Final = """
SELECT EXISTS (SELECT FROM job_domains WHERE job_id = %(job)s AND state = 'spent' AND crawl_id = %(crawl)s AND limit_reached IS NULL)
    OR COALESCE((SELECT min(crawl_id) FROM job_domains WHERE job_id = %(job)s AND state = 'spent') < %(crawl)s, false)
"""
_LOOK: Final = """
SELECT round, max_pages - pages_granted FROM crawls
WHERE id = %(crawl)s AND job_id = %(job)s AND state <> 'finished' AND (max_pages IS NULL OR max_pages > pages_granted)
"""
_RAISE: Final = """
UPDATE crawls SET round = %(seen)s + 1, round_below = %(below)s WHERE id = %(crawl)s AND state <> 'finished' AND round = %(seen)s
  AND EXISTS (SELECT FROM job_domains WHERE job_id = %(job)s AND state = 'spent' AND crawl_id = %(crawl)s AND limit_reached IS NULL
              AND (%(below)s::bigint IS NULL OR granted < %(below)s))
"""
# The others among whom the crawl's pages are shared. In the first round a part is kept for those that cannot be served at the
# moment (they cool down, or wait); later only those count that can be served: ready, held, or waiting for a round.
_OTHERS: Final = """
SELECT count(*), COALESCE(sum(granted), 0)::bigint, min(granted) FILTER (WHERE servable) FROM (
    SELECT granted, servable FROM (
        SELECT CASE WHEN jd.crawl_id = %(crawl)s THEN jd.granted ELSE 0 END AS granted,
               jd.ready OR jd.state = 'spent'
                   OR EXISTS (SELECT FROM domains d WHERE d.id = jd.domain_id AND d.claimed_by IS NOT NULL) AS servable
        FROM job_domains jd
        WHERE jd.job_id = %(job)s AND jd.state IN ('open', 'spent') AND jd.waiting > 0 AND jd.domain_id <> %(domain)s
          AND (jd.crawl_id IS DISTINCT FROM %(crawl)s OR jd.budget_limit IS NULL OR jd.granted < jd.budget_limit)) all_others
    WHERE %(round)s = 1 OR servable LIMIT %(most)s) others
"""
# OFFSET 0, min() and LIMIT 1: each is looked up in its index for one crawl after the other. Otherwise the planner reads all work
# (seen: 0.2 s with 500 000 spent domains).
_IDLE: Final = """
SELECT c.id, c.job_id FROM crawls c JOIN runnable_jobs j ON j.id = c.job_id
WHERE c.state <> 'finished' AND j.kind = 'crawl'
  AND NOT EXISTS (SELECT FROM job_domains jd WHERE jd.job_id = c.job_id AND jd.ready OFFSET 0)
  AND ((c.max_pages IS NULL OR c.max_pages > c.pages_granted) AND EXISTS (
           SELECT FROM job_domains jd WHERE jd.job_id = c.job_id AND jd.state = 'spent' AND jd.crawl_id = c.id
           AND jd.limit_reached IS NULL OFFSET 0)
       OR (SELECT min(jd.crawl_id) FROM job_domains jd WHERE jd.job_id = c.job_id AND jd.state = 'spent') < c.id)
ORDER BY c.id
"""
_LEFT: Final = """
SELECT c.id, c.job_id FROM crawls c JOIN runnable_jobs j ON j.id = c.job_id
WHERE c.state <> 'finished' AND j.kind = 'crawl' AND (
    (SELECT min(jd.crawl_id) FROM job_domains jd WHERE jd.job_id = c.job_id AND jd.state = 'spent') < c.id
    OR (SELECT jd.round FROM job_domains jd WHERE jd.job_id = c.job_id AND jd.state = 'spent' AND jd.crawl_id = c.id
        AND jd.limit_reached IS NULL AND (c.round_below IS NULL OR jd.granted < c.round_below)
        ORDER BY jd.limit_reached, jd.round LIMIT 1) < c.round)
ORDER BY c.id
"""


def advance(connection: psycopg.Connection, job_id: int, crawl_id: int) -> bool:
    """Start the next round if nothing of the job is ready; returns whether anything of it is ready now.

    Before: no transaction is open. After: rows that earlier rounds and crawls left are reopened (or some chunks of them); if there were
    none, a further round has begun where one is wanted and pages of the crawl are left. Safe to call by any number of workers at once.
    """
    if reopen(connection, job_id, crawl_id):
        return True
    if raise_round(connection, job_id, crawl_id):
        failpoints.reach("round_raised")
        reopen(connection, job_id, crawl_id)
    return any_ready(connection, job_id)


def advance_idle(connection: psycopg.Connection) -> int:
    """Advance every crawl that has nothing ready and domains that wait for a round; returns how many can continue.

    Before: no transaction is open.
    """
    return sum(advance(connection, job_id, crawl_id) for crawl_id, job_id in connection.execute(_IDLE).fetchall())


def reopen_leftovers(connection: psycopg.Connection) -> int:
    """Reopen rows left when a round or crawl began: by a worker that died, or that reached its maximum number of chunks.

    Returns the number of domains. Before: no transaction is open.
    """
    return sum(reopen(connection, job_id, crawl_id) for crawl_id, job_id in connection.execute(_LEFT).fetchall())


def raise_round(connection: psycopg.Connection, job_id: int, crawl_id: int) -> bool:
    """Begin the next round by compare-and-set; False if none is needed, no pages are left, or another worker was faster.

    Before: no transaction is open; nothing of an older round is left to reopen. After: on True, the caller reopens.
    """
    key = {"job": job_id, "crawl": crawl_id}
    if any_ready(connection, job_id) or not has_waiting(connection, job_id, crawl_id):
        return False
    row = connection.execute(_LOOK, key).fetchone()
    if row is None:
        return False
    seen, left = row
    below = None
    if left is not None:
        count, granted, least = other_domains(connection, {**key, "domain": 0, "round": 2})
        below = max((left + granted) // max(1, count), (least or 0) + 1)
    return connection.execute(_RAISE, {**key, "seen": seen, "below": below}).rowcount > 0


def reopen(connection: psycopg.Connection, job_id: int, crawl_id: int) -> int:
    """Reopen spent rows of older rounds and crawls, up to `CHUNKS` chunks; returns the number of domains.

    Before: no transaction is open. After: each of them is open, and ready if it can be claimed now.
    """
    key = {"job": job_id, "crawl": crawl_id, "chunk": CHUNK, "after": 0}
    total = 0
    for _ in range(CHUNKS):
        with connection.transaction():
            # Planned for these values each time: a plan for any would read all work of the job.
            ids = [row[0] for row in connection.execute(_LOCK_STALE, key, prepare=False)]
            if ids:
                connection.execute(_REOPEN, {**key, "ids": ids, "after": ids[0] - 1}, prepare=False)
                claimable.update_ready(connection, ids)
        total += len(ids)
        if len(ids) < CHUNK:
            break
        key["after"] = ids[-1]
    return total


def any_ready(connection: psycopg.Connection, job_id: int) -> bool:
    """Whether a domain can be claimed for the job now."""
    row = connection.execute(_READY, {"job": job_id}).fetchone()
    return bool(row and row[0])


def has_waiting(connection: psycopg.Connection, job_id: int, crawl_id: int) -> bool:
    """Whether a domain of the crawl, or of an earlier one, waits for a round."""
    row = connection.execute(_WAITS, {"job": job_id, "crawl": crawl_id}).fetchone()
    return bool(row and row[0])


def other_domains(connection: psycopg.Connection, key: Mapping[str, object]) -> tuple[int, int, int | None]:
    """The number of other domains that share the crawl's pages, the pages granted to all of them, and the smallest grant."""
    row = connection.execute(_OTHERS, {**key, "most": COUNT_LIMIT}).fetchone()
    return (row[0], row[1], row[2]) if row else (0, 0, None)
