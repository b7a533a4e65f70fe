"""How many pages a visit may fetch: its domain's own limit, and its share of the crawl's.

The rule: what is promised is counted before it is used, on the crawl's row and under its lock, so however many workers there are and
whichever of them die, a crawl never gets more pages than it has. A promise that was not used comes back when the claim ends.

Shares are fair: in a round every domain gets the same part of what is left; who has used up his waits for the next round, while
another domain could still be served.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import psycopg

from holdfast.model.job import Job
from holdfast.store import claims

MOST_AT_ONCE: Final = 1000
"""Pages of one promise. What a worker takes to its grave is promised to nobody else until the sweep finds out."""
MOST_COUNTED: Final = 10_000
"""Domains that a share is reckoned for; with more of them the shares are a page each or the crawl is huge anyway."""

_LOCK: Final = """
SELECT id FROM crawls WHERE job_id = %(job)s AND state <> 'finished' AND max_pages IS NOT NULL FOR NO KEY UPDATE
"""
# A budget belongs to a crawl: what the row says of another one means nothing.
_STATE: Final = """
SELECT c.id, c.max_pages - c.pages_granted, c.round, jd.budget_limit,
       CASE WHEN c.id IS NULL OR jd.crawl_id = c.id THEN jd.budget_used ELSE 0 END,
       CASE WHEN jd.crawl_id = c.id THEN jd.granted ELSE 0 END,
       CASE WHEN jd.crawl_id = c.id THEN jd.round ELSE 0 END,
       jd.crawl_id IS NOT DISTINCT FROM c.id
FROM job_domains jd LEFT JOIN crawls c ON c.job_id = jd.job_id AND c.state <> 'finished'
WHERE jd.domain_id = %(domain)s AND jd.job_id = %(job)s
"""
_UNSERVED: Final = """
SELECT count(*) FROM (
    SELECT FROM job_domains WHERE job_id = %(job)s AND state = 'open' AND waiting > 0
      AND (crawl_id IS DISTINCT FROM %(crawl)s OR round < %(round)s) LIMIT %(most)s) unserved
"""
_OTHERS_FIRST: Final = """
SELECT EXISTS (SELECT FROM job_domains WHERE job_id = %(job)s AND ready)
    OR EXISTS (SELECT FROM job_domains WHERE job_id = %(job)s AND state = 'spent' AND waiting > 0
               AND (crawl_id IS DISTINCT FROM %(crawl)s OR budget_limit IS NULL OR budget_used < budget_limit))
"""
_OPEN: Final = """
SELECT count(*) FROM (SELECT FROM job_domains WHERE job_id = %(job)s AND state = 'open' AND waiting > 0 LIMIT %(most)s) open_rows
"""
_GRANT: Final = """
WITH mine AS (
    UPDATE job_domains jd SET crawl_id = %(crawl)s, budget_limit = %(limit)s, budget_used = %(used)s, granted = %(granted)s + %(share)s,
        round = %(round)s
    WHERE jd.domain_id = %(domain)s AND jd.job_id = %(job)s
)
UPDATE crawls SET pages_granted = pages_granted + %(share)s WHERE id = %(crawl)s AND %(share)s > 0
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
    served: int
    """The round in which this domain got its last share."""
    known: bool
    """The row is of this crawl already."""


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
        share = _share(connection, job.id, state, own)
        if state.crawl is not None and (share or not state.known or state.limit != per_domain):
            served = state.round if share else state.served
            connection.execute(
                _GRANT,
                key
                | {
                    "crawl": state.crawl,
                    "limit": per_domain,
                    "used": state.used,
                    "granted": state.granted,
                    "share": share,
                    "round": served,
                },
            )
    if state.remaining is None:
        return own
    left = state.granted - state.used + share
    return left if own is None else min(left, own)


def _share(connection: psycopg.Connection, job_id: int, state: _State, own: int | None) -> int:
    """Pages of the crawl to be promised now. Before: the crawl's row is locked, if it has a limit."""
    if state.remaining is None or state.remaining <= 0 or state.granted > state.used or own == 0:
        return 0
    assert state.round is not None  # noqa: S101 — a crawl with a limit has one
    key = {
        "job": job_id,
        "crawl": state.crawl,
        "round": state.round,
        "most": min(MOST_COUNTED, state.remaining),
    }
    if state.served < state.round:
        others = connection.execute(_UNSERVED, key).fetchone()
    else:
        first = connection.execute(_OTHERS_FIRST, key).fetchone()
        if first and first[0]:
            return 0
        others = connection.execute(_OPEN, key).fetchone()
    share = max(1, state.remaining // max(1, others[0] if others else 1))
    return min(share, MOST_AT_ONCE, share if own is None else own)


def give_back(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """What these domains were promised and did not use is their crawls' again: a promise ends with the claim.

    Before: the domain rows are locked by this transaction. After: each domain was granted what it used.
    """
    connection.execute(_GIVE_BACK, {"ids": list(domain_ids)})
