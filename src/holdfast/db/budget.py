"""How many pages a visit may fetch: what is left of its share, of its own limit, and of the crawl's.

Two kinds of numbers: a *share* is a unit of fairness (`domains.max_pages_per_run`); a domain that used it gives way to those that are
ready, or goes on at once if none is. A *limit* is what a person gave, and ends the crawl of the domain, or the crawl.

The rule: pages of a crawl with a limit are promised before they are used, on the crawl's row and under its lock, so however many workers
there are and whichever of them die, a crawl never gets more pages than it has. A promise that was not used comes back when the claim
ends. Promises are fair: no domain gets more than there would be for each if all domains that can still be served had the same. A domain
that has this much waits, while another has less, for the next round, in which what others did not need is shared.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import psycopg

from holdfast.model.job import Job
from holdfast.model.limits import DomainLimits
from holdfast.store import claims, rounds

MOST_AT_ONCE: Final = 1000
"""Pages of one promise. What a worker takes to its grave is promised to nobody else until the sweep finds out."""

_LOCK: Final = """
SELECT id FROM crawls WHERE id = (SELECT max(id) FROM crawls WHERE job_id = %(job)s) AND max_pages IS NOT NULL FOR NO KEY UPDATE
"""
# A budget belongs to a crawl, the last one of the job: what the row says of another one means nothing. A visit may outlast its crawl,
# which time may go on with.
_STATE: Final = """
SELECT c.id, c.max_pages - c.pages_granted, c.round, jd.budget_limit, jd.limit_reached,
       CASE WHEN c.id IS NULL OR jd.crawl_id = c.id THEN jd.budget_used ELSE 0 END,
       CASE WHEN jd.crawl_id = c.id THEN jd.granted ELSE 0 END,
       CASE WHEN jd.crawl_id = c.id AND jd.round = c.round THEN jd.round_start END
FROM job_domains jd LEFT JOIN crawls c ON c.id = (SELECT max(id) FROM crawls WHERE job_id = jd.job_id)
WHERE jd.domain_id = %(domain)s AND jd.job_id = %(job)s
"""
_GRANT: Final = """
WITH mine AS (
    UPDATE job_domains jd SET crawl_id = %(crawl)s, budget_limit = %(limit)s, limit_reached = %(reached)s, budget_used = %(used)s,
        granted = %(granted)s + %(share)s, round = %(round)s, round_start = %(start)s
    WHERE jd.domain_id = %(domain)s AND jd.job_id = %(job)s
)
UPDATE crawls SET pages_granted = pages_granted + %(share)s WHERE id = %(crawl)s AND %(share)s > 0
"""
_GIVE_BACK: Final = """
WITH unused AS MATERIALIZED (
    SELECT jd.domain_id, jd.job_id, jd.crawl_id, jd.granted - jd.budget_used AS pages
    FROM job_domains jd JOIN crawls c ON c.id = jd.crawl_id
    WHERE jd.domain_id = ANY(%(ids)s) AND jd.granted > jd.budget_used
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
    """Pages of the crawl that are not promised; None: it has no limit."""
    round: int | None
    limit: int | None
    reached: str | None
    used: int
    granted: int
    start: int | None
    """`used` when the present share began; None: it is new in this round, or in this crawl."""


class _Answer(NamedTuple):
    pages: int | None
    wants_round: int | None = None
    """The crawl in which other domains wait for a round that this one would begin."""


def ask(
    connection: psycopg.Connection,
    *,
    worker: str,
    domain_id: int,
    epoch: int,
    job: Job,
    limits: DomainLimits,
    pending: int = 0,
) -> int | None:
    """Pages that this tenure may fetch for this job until it asks again; None: as many as there are; 0: it is spent for now.

    `pending`: pages that it may have fetched and that are not committed; they count as used. Before: no transaction is open. After: so
    many pages of the crawl are promised to this domain, and to no other; if its share was used and nothing of the job is ready, a new one
    has begun, and with it a round if others wait for it. 0 also if the claim is lost.
    """
    answer = _ask(connection, worker, (domain_id, epoch), job, limits, pending, alone=False)
    if answer.wants_round is not None:
        rounds.advance(connection, job.id, answer.wants_round)
        answer = _ask(connection, worker, (domain_id, epoch), job, limits, pending, alone=True)
    return answer.pages


def _ask(
    connection: psycopg.Connection,
    worker: str,
    tenure: tuple[int, int],
    job: Job,
    limits: DomainLimits,
    pending: int,
    *,
    alone: bool,
) -> _Answer:
    """`alone`: a round was begun if others wait for one."""
    with connection.transaction():
        if not claims.fence(connection, worker=worker, held=[tenure]):
            return _Answer(0)
        key = {"domain": tenure[0], "job": job.id}
        connection.execute(_LOCK, key)
        row = connection.execute(_STATE, key).fetchone()
        if row is None:
            return _Answer(limits.limit)
        state = _State(*row)
        used = state.used + pending
        own = None if limits.limit is None else max(0, limits.limit - used)
        reached = limits.limited_by if own == 0 else None
        start = state.used if state.start is None else state.start
        if limits.share is not None and state.crawl is not None and reached is None:
            left = limits.share - (used - start)
            if left <= 0 and not rounds.any_ready(connection, job.id):
                if not alone and rounds.waits(connection, job.id, state.crawl):
                    return _Answer(0, state.crawl)
                start, left = state.used, limits.share - pending
            own = max(left, 0) if own is None else min(max(left, 0), own)
        share = _share(connection, key, state, used, own)
        if state.crawl is not None and (
            share or (state.start, state.limit, state.reached) != (start, limits.limit, reached)
        ):
            told: dict[str, object] = {
                "crawl": state.crawl,
                "limit": limits.limit,
                "reached": reached,
                "used": state.used,
                "granted": state.granted,
                "share": share,
                "round": state.round,
                "start": start,
            }
            connection.execute(_GRANT, {**key, **told})
    if state.remaining is None:
        return _Answer(own)
    promised = max(0, state.granted - used + share)
    return _Answer(promised if own is None else min(promised, own))


def _share(connection: psycopg.Connection, key: Mapping[str, int], state: _State, used: int, own: int | None) -> int:
    """Pages of the crawl to be promised now. Before: the crawl's row is locked, if it has a limit."""
    if state.remaining is None or state.remaining <= 0 or state.granted > used or own == 0:
        return 0
    share, least = _fair(connection, key, state, state.round or 1)
    if share <= 0 and state.round == 1 and not rounds.any_ready(connection, key["job"]):
        # What was kept for domains that cannot be served is for those that can.
        share, least = _fair(connection, key, state, 2)
    if share <= 0:
        if least is not None and least < state.granted:
            return 0
        share = 1
    return min(share, state.remaining, MOST_AT_ONCE, share if own is None else own)


def _fair(connection: psycopg.Connection, key: Mapping[str, int], state: _State, round_: int) -> tuple[int, int | None]:
    """What is missing to an equal part of the crawl's pages, and the least that another domain was granted."""
    count, theirs, least = rounds.others(connection, {**key, "crawl": state.crawl, "round": round_})
    return ((state.remaining or 0) + theirs + state.granted) // (count + 1) - state.granted, least


def give_back(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """What these domains were promised and did not use is their crawls' again: a promise ends with the claim.

    Before: the domain rows are locked by this transaction. After: each domain was granted what it used.
    """
    connection.execute(_GIVE_BACK, {"ids": list(domain_ids)})
