"""Page budgets: how many pages a visit may fetch, from what is left of its share, its own limit and the crawl's limit.

Two kinds of numbers: a *share* is a unit of fairness (`domains.max_pages_per_run`); a domain that used it yields to those that are
ready, or continues at once if none is. A *limit* is set by the operator, and ends the crawl of the domain, or the crawl.

The rule: pages of a crawl with a limit are granted before they are used, on the crawl's row and under its lock, so however many workers
there are and whichever of them die, a crawl never gets more pages than its limit. Unused granted pages are returned when the claim
ends. Grants are fair: no domain gets more than an equal part among all domains that can still be served. A domain that has its part
waits, while another has less, for the next round, in which unused pages are shared.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import psycopg

from holdfast.db import claims, rounds
from holdfast.model.job import DomainLimits, Job

MAX_GRANT: Final = 1000
"""Maximum pages of one grant. The unused pages of a dead worker stay granted until the sweep frees its claims."""

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
    """Pages of the crawl that are not granted; None: it has no limit."""
    round: int | None
    limit: int | None
    reached: str | None
    used: int
    granted: int
    start: int | None
    """`used` when the present share began; None: it is new in this round, or in this crawl."""


class _GrantResult(NamedTuple):
    pages: int | None
    wants_round: int | None = None
    """The crawl in which other domains wait for a round that this one would begin."""


def grant(
    connection: psycopg.Connection,
    *,
    worker: str,
    domain_id: int,
    epoch: int,
    job: Job,
    limits: DomainLimits,
    pending: int = 0,
) -> int | None:
    """Grant pages to this tenure for this job until its next call; None: no limit; 0: its budget is spent for now, or the claim is lost.

    `pending`: pages that may have been fetched and are not committed; they count as used. Before: no transaction is open. After: that
    many pages of the crawl are granted to this domain only; if its share was used and nothing of the job is ready, a new share has
    begun, and with it a round if other domains wait for it.
    """
    answer = _grant(connection, worker, (domain_id, epoch), job, limits, pending, round_begun=False)
    if answer.wants_round is not None:
        rounds.advance(connection, job.id, answer.wants_round)
        answer = _grant(connection, worker, (domain_id, epoch), job, limits, pending, round_begun=True)
    return answer.pages


def _grant(
    connection: psycopg.Connection,
    worker: str,
    tenure: tuple[int, int],
    job: Job,
    limits: DomainLimits,
    pending: int,
    *,
    round_begun: bool,
) -> _GrantResult:
    """One attempt of `grant`. `round_begun`: a round was already started if other domains wait for one."""
    with connection.transaction():
        if not claims.fence(connection, worker=worker, held=[tenure]):
            return _GrantResult(0)
        key = {"domain": tenure[0], "job": job.id}
        connection.execute(_LOCK, key)
        row = connection.execute(_STATE, key).fetchone()
        if row is None:
            return _GrantResult(limits.limit)
        state = _State(*row)
        used = state.used + pending
        own = None if limits.limit is None else max(0, limits.limit - used)
        reached = limits.limited_by if own == 0 else None
        start = state.used if state.start is None else state.start
        if limits.share is not None and state.crawl is not None and reached is None:
            left = limits.share - (used - start)
            if left <= 0 and not rounds.any_ready(connection, job.id):
                if not round_begun and rounds.has_waiting(connection, job.id, state.crawl):
                    return _GrantResult(0, state.crawl)
                start, left = state.used, limits.share - pending
            own = max(left, 0) if own is None else min(max(left, 0), own)
        share = _share(connection, key, state, used, own)
        if state.crawl is not None and (
            share or (state.start, state.limit, state.reached) != (start, limits.limit, reached)
        ):
            values: dict[str, object] = {
                "crawl": state.crawl,
                "limit": limits.limit,
                "reached": reached,
                "used": state.used,
                "granted": state.granted,
                "share": share,
                "round": state.round,
                "start": start,
            }
            connection.execute(_GRANT, {**key, **values})
    if state.remaining is None:
        return _GrantResult(own)
    promised = max(0, state.granted - used + share)
    return _GrantResult(promised if own is None else min(promised, own))


def _share(connection: psycopg.Connection, key: Mapping[str, int], state: _State, used: int, own: int | None) -> int:
    """Pages of the crawl to grant now. Before: the crawl's row is locked, if it has a limit."""
    if state.remaining is None or state.remaining <= 0 or state.granted > used or own == 0:
        return 0
    share, least = _fair_share(connection, key, state, state.round or 1)
    if share <= 0 and state.round == 1 and not rounds.any_ready(connection, key["job"]):
        # Pages reserved for domains that cannot be served go to those that can.
        share, least = _fair_share(connection, key, state, 2)
    if share <= 0:
        if least is not None and least < state.granted:
            return 0
        share = 1
    return min(share, state.remaining, MAX_GRANT, share if own is None else own)


def _fair_share(
    connection: psycopg.Connection, key: Mapping[str, int], state: _State, round_: int
) -> tuple[int, int | None]:
    """Pages missing to an equal part of the crawl's pages, and the smallest grant of another domain."""
    count, theirs, least = rounds.other_domains(connection, {**key, "crawl": state.crawl, "round": round_})
    return ((state.remaining or 0) + theirs + state.granted) // (count + 1) - state.granted, least


def return_unused(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """Return granted but unused pages of these domains to their crawls: a grant ends with the claim.

    Before: the domain rows are locked by this transaction. After: each domain was granted what it used.
    """
    connection.execute(_GIVE_BACK, {"ids": list(domain_ids)})
