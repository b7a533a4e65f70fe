"""How many pages a visit may fetch: its domain's own limit, and its share of the crawl's.

The rule: what is promised is counted before it is used, on the crawl's row and under its lock, so however many workers there are and
whichever of them die, a crawl never gets more pages than it has. A promise that was not used comes back when the claim ends.

Shares are fair: nobody gets more than what there would be for each if all domains that can still be served had the same. Who has
that much waits, while another has less, for the next round, in which what others did not need is shared.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import psycopg

from holdfast.model.job import Job
from holdfast.store import claims

MOST_AT_ONCE: Final = 1000
"""Pages of one promise. What a worker takes to its grave is promised to nobody else until the sweep finds out."""
MOST_COUNTED: Final = 10_000
"""Domains that a share is reckoned from; with more of them it is an estimate."""

_LOCK: Final = """
SELECT id FROM crawls WHERE job_id = %(job)s AND state <> 'finished' AND max_pages IS NOT NULL FOR NO KEY UPDATE
"""
# A budget belongs to a crawl: what the row says of another one means nothing.
_STATE: Final = """
SELECT c.id, c.max_pages - c.pages_granted, c.round, jd.budget_limit,
       CASE WHEN c.id IS NULL OR jd.crawl_id = c.id THEN jd.budget_used ELSE 0 END,
       CASE WHEN jd.crawl_id = c.id THEN jd.granted ELSE 0 END,
       jd.crawl_id IS NOT DISTINCT FROM c.id
FROM job_domains jd LEFT JOIN crawls c ON c.job_id = jd.job_id AND c.state <> 'finished'
WHERE jd.domain_id = %(domain)s AND jd.job_id = %(job)s
"""
# The others among whom the crawl's pages are shared. In the first round a part is kept for those that cannot be served at the
# moment (they cool down, or wait); later only who can be served counts: ready, held, or waiting for a round.
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
_GRANT: Final = """
WITH mine AS (
    UPDATE job_domains jd SET crawl_id = %(crawl)s, budget_limit = %(limit)s, budget_used = %(used)s, granted = %(granted)s + %(share)s
    WHERE jd.domain_id = %(domain)s AND jd.job_id = %(job)s
)
UPDATE crawls SET pages_granted = pages_granted + %(share)s WHERE id = %(crawl)s AND %(share)s > 0
"""
_ROUND: Final = """
SELECT max_pages - pages_granted FROM crawls WHERE id = %(crawl)s AND state <> 'finished' FOR NO KEY UPDATE
"""
_IDLE: Final = """
SELECT NOT EXISTS (SELECT FROM job_domains WHERE job_id = %(job)s AND ready)
   AND EXISTS (SELECT FROM job_domains WHERE job_id = %(job)s AND state = 'spent')
"""
_GIVE_BACK: Final = """
WITH unused AS MATERIALIZED (
    SELECT jd.domain_id, jd.job_id, jd.crawl_id, jd.granted - jd.budget_used AS pages
    FROM job_domains jd JOIN crawls c ON c.id = jd.crawl_id
    WHERE jd.domain_id = ANY(%(ids)s) AND jd.granted > jd.budget_used AND c.state <> 'finished'
), crawls_locked AS MATERIALIZED (
    SELECT id FROM crawls WHERE id IN (SELECT crawl_id FROM unused) ORDER BY id FOR NO KEY UPDATE
), returned AS (
    UPDATE job_domains jd SET granted = jd.budget_used FROM unused u WHERE jd.domain_id = u.domain_id AND jd.job_id = u.job_id
)
UPDATE crawls c SET pages_granted = c.pages_granted - u.pages
FROM (SELECT crawl_id, sum(pages)::bigint AS pages FROM unused GROUP BY crawl_id) u JOIN crawls_locked l ON l.id = u.crawl_id
WHERE c.id = u.crawl_id AND c.max_pages IS NOT NULL
"""


class _State(NamedTuple):
    crawl: int | None
    remaining: int | None
    """Pages of the crawl that nobody has been promised; None: it has no limit."""
    round: int | None
    limit: int | None
    used: int
    granted: int
    known: bool
    """The row is of this crawl already."""


class Round(NamedTuple):
    """Who may go on in a new round: domains that were granted fewer pages than this; None: all."""

    below: int | None


def ask(
    connection: psycopg.Connection, *, worker: str, domain_id: int, epoch: int, job: Job, per_domain: int | None
) -> int | None:
    """Pages that this tenure may fetch for this job until it asks again; None: as many as there are; 0: its budget is spent for now.

    Before: everything that the visit fetched is committed; no transaction is open. After: so many pages of the crawl are promised to
    this domain, and to nobody else. 0 also if the claim is lost.
    """
    with connection.transaction():
        if not claims.fence(connection, worker=worker, held=[(domain_id, epoch)]):
            return 0
        key: dict[str, object] = {"domain": domain_id, "job": job.id}
        connection.execute(_LOCK, key)
        row = connection.execute(_STATE, key).fetchone()
        if row is None:
            return per_domain
        state = _State(*row)
        own = None if per_domain is None else max(0, per_domain - state.used)
        share = _share(connection, key, state, own)
        if state.crawl is not None and (share or not state.known or state.limit != per_domain):
            told = {
                "crawl": state.crawl,
                "limit": per_domain,
                "used": state.used,
                "granted": state.granted,
                "share": share,
            }
            connection.execute(_GRANT, key | told)
    if state.remaining is None:
        return own
    left = state.granted - state.used + share
    return left if own is None else min(left, own)


def _share(connection: psycopg.Connection, key: Mapping[str, object], state: _State, own: int | None) -> int:
    """Pages of the crawl to be promised now. Before: the crawl's row is locked, if it has a limit."""
    if state.remaining is None or state.remaining <= 0 or state.granted > state.used or own == 0:
        return 0
    others, theirs, least = _others(connection, {**key, "crawl": state.crawl, "round": state.round})
    share = (state.remaining + theirs + state.granted) // (others + 1) - state.granted
    if share <= 0:
        if least is not None and least < state.granted:
            return 0
        share = 1
    return min(share, state.remaining, MOST_AT_ONCE, share if own is None else own)


def next_round(connection: psycopg.Connection, job_id: int, crawl_id: int) -> Round | None:
    """Begin another round, if nothing of the job is ready and pages of the crawl are left; who may go on in it.

    Before: no transaction is open. After: with an answer, the round has begun; making the work of those ready is the caller's.
    """
    key = {"job": job_id, "crawl": crawl_id, "domain": 0, "round": 2}
    with connection.transaction():
        row = connection.execute(_ROUND, key).fetchone()
        idle = connection.execute(_IDLE, key).fetchone()
        if row is None or not (idle and idle[0]) or (row[0] is not None and row[0] <= 0):
            return None
        connection.execute("UPDATE crawls SET round = round + 1 WHERE id = %(crawl)s", key)
        if row[0] is None:
            return Round(None)
        others, theirs, least = _others(connection, key)
        return Round(max((row[0] + theirs) // max(1, others), (least or 0) + 1))


def _others(connection: psycopg.Connection, key: Mapping[str, object]) -> tuple[int, int, int | None]:
    """How many others share, what they were granted together, and the least that one of them was that can be served."""
    row = connection.execute(_OTHERS, {**key, "most": MOST_COUNTED}).fetchone()
    return (row[0], row[1], row[2]) if row else (0, 0, None)


def give_back(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """What these domains were promised and did not use is their crawls' again: a promise ends with the claim.

    Before: the domain rows are locked by this transaction. After: each domain was granted what it used.
    """
    connection.execute(_GIVE_BACK, {"ids": list(domain_ids)})
