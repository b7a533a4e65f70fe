"""The end of a visit: status, clocks and claim change in one transaction.

The rule: a domain is exhausted only by proof. The row is locked FOR UPDATE, which waits for every transaction that is inserting URLs
for it at this moment, and the frontier is read again in a statement that begins after that.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import psycopg

from holdfast.db import budget, claimable, transitions
from holdfast.errors import ClaimLost
from holdfast.model.domain import STOPPING_EVENTS, Event, Status, next_status, status_reason
from holdfast.model.outcome import REFUSED, STREAK_BREAKING
from holdfast.model.visit_report import VisitEnd

Cooldown = Callable[[Event, int, timedelta | None], timedelta | None]
"""Cool-down after an event, from the number of blocks so far and the server's Retry-After; None: until an operator resets it."""

YIELD_TIME: Final = timedelta(seconds=5)
"""How long a job that yielded leaves the domain to the other job, if that one does not claim it sooner."""

_LOCK: Final = """
SELECT status, retry_count, settings_version FROM domains
WHERE id = %(id)s AND claimed_by = %(worker)s AND claim_epoch = %(epoch)s AND claim_expires_at > clock_timestamp()
FOR UPDATE
"""

_RECOUNT: Final = """
UPDATE job_domains jd SET
    state = CASE
        WHEN NOT look.waiting THEN 'done'::job_domain_state
        WHEN jd.job_id = ANY(%(spent)s) THEN 'spent'
        WHEN jd.state = 'done' THEN 'open'
        ELSE jd.state END,
    not_before = GREATEST(look.not_before, clock_timestamp() + %(wait)s * interval '1 second',
                          CASE WHEN jd.job_id = ANY(%(yielding)s) THEN clock_timestamp() + %(turn)s END),
    yielded_until = CASE WHEN jd.job_id = ANY(%(yielding)s) THEN clock_timestamp() + %(turn)s END
FROM (
    SELECT r.job_id,
        EXISTS (SELECT FROM url_frontier f WHERE f.domain_id = %(id)s AND f.job_id = r.job_id AND f.state = 'waiting') AS waiting,
        CASE WHEN NOT EXISTS (SELECT FROM url_frontier f WHERE f.domain_id = %(id)s AND f.job_id = r.job_id AND f.state = 'waiting'
                              AND (f.not_before IS NULL OR f.not_before <= clock_timestamp()))
             THEN (SELECT min(f.not_before) FROM url_frontier f
                   WHERE f.domain_id = %(id)s AND f.job_id = r.job_id AND f.state = 'waiting') END AS not_before
    FROM job_domains r WHERE r.domain_id = %(id)s
) look
WHERE jd.domain_id = %(id)s AND jd.job_id = look.job_id
"""

_NOTHING_LEFT: Final = """
SELECT NOT EXISTS (SELECT FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id
                   WHERE jd.domain_id = %(id)s AND j.state <> 'cancelled' AND j.kind = 'crawl' AND jd.state <> 'done')
"""

# The streak as the log has it, over visits and jobs: what was refused since the last answer that broke it. Tasks have attempts of
# their own, and a link that was checked is broken.
_PUT_BACK: Final = """
WITH recent AS MATERIALIZED (
    SELECT l.job_id, l.url_key, l.outcome, l.crawled_at FROM crawl_log l JOIN crawl_jobs j ON j.id = l.job_id AND j.kind = 'crawl'
    WHERE l.domain_id = %(id)s ORDER BY l.crawled_at DESC LIMIT %(most)s
), streak AS (
    SELECT DISTINCT job_id, url_key FROM recent
    WHERE outcome = ANY(%(refused)s) AND crawled_at > COALESCE(
        (SELECT max(crawled_at) FROM recent WHERE outcome = ANY(%(breaking)s)), '-infinity')
), old AS MATERIALIZED (
    SELECT f.job_id, f.url_key, f.state FROM streak s JOIN url_frontier f
        ON f.domain_id = %(id)s AND f.job_id = s.job_id AND f.url_key = s.url_key AND f.state IN ('failed', 'waiting')
        AND f.resource IS DISTINCT FROM 'check'
), put_back AS (
    UPDATE url_frontier f SET state = 'waiting', attempts = 0, not_before = NULL
    FROM old WHERE f.domain_id = %(id)s AND f.job_id = old.job_id AND f.url_key = old.url_key
)
SELECT add_counts(%(id)s, job_id, more_waiting => count(*), more_failed => -count(*)) FROM old WHERE state = 'failed' GROUP BY job_id
"""
STREAK_LOG_LIMIT: Final = 1000
"""Log rows that are read for the refusal streak: at most those of a streak and of requests in flight with it."""

_FREE: Final = """
UPDATE domains SET
    claimed_by = NULL, claim_expires_at = NULL,
    retry_count = CASE WHEN %(stopped)s THEN retry_count + 1 WHEN %(forgiven)s THEN 0 ELSE retry_count END,
    last_visit_ended_at = CASE WHEN %(crawled)s THEN clock_timestamp() ELSE last_visit_ended_at END
WHERE id = %(id)s
"""

_END_TENURE: Final = """
UPDATE claim_log SET ended_at = GREATEST(clock_timestamp(), claimed_at), why = 'released' WHERE domain_id = %(id)s AND epoch = %(epoch)s
"""


def release(connection: psycopg.Connection, *, worker: str, ending: VisitEnd, cooldown: Cooldown) -> Status:
    """Release a domain; returns its new status. Raises ClaimLost, with nothing written, if `worker` no longer holds it.

    Before: everything that the visit learnt is committed; no transaction is open. After: the domain is free; it is exhausted if
    it was started and no job that is not cancelled has a URL waiting on it; a stopping event has begun its cool-down, and the URLs
    refused since the last proper response wait again; rows that can be claimed again are ready, delayed ones (by their URLs or the
    domain) become ready when the delay ends; a job that yielded is not ready for `YIELD_TIME`, others are; unused granted pages are
    returned to the crawl; the tenure in the claim log has ended.
    """
    key = {"id": ending.domain_id, "epoch": ending.epoch}
    with connection.transaction():
        row = connection.execute(_LOCK, key | {"worker": worker}).fetchone()
        if row is None:
            raise ClaimLost(f"Domain {ending.domain_id} is no longer held by {worker} under epoch {ending.epoch}.")
        claimable.fold_wakes(connection, [ending.domain_id], retries=False)
        before = _status_now(connection, ending.domain_id)
        event = None if ending.keeps_status else ending.event
        if event is not None and event in STOPPING_EVENTS and next_status(before, event) is not before:
            _requeue_refused(connection, ending.domain_id)
        how = {
            "spent": list(ending.spent_jobs),
            # A wait computed from settings that were edited since is void.
            "wait": ending.wait if ending.settings_version in (None, row[2]) else None,
            "yielding": list(ending.yielding_jobs),
            "turn": YIELD_TIME,
        }
        connection.execute(_RECOUNT, key | how)
        budget.return_unused(connection, [ending.domain_id])
        if event is None and not ending.keeps_status:
            event = _frontier_empty_event(connection, ending.domain_id)
        after = next_status(before, event) if event else before
        if event and after is not before:
            stopped = event in STOPPING_EVENTS
            pause = cooldown(event, row[1], ending.retry_after)
            transitions.change(
                connection,
                [ending.domain_id],
                after,
                only_from=[before],
                reason=status_reason(event, ending.detail),
                worker=worker,
                code=event if stopped else None,
                detail=(ending.detail or None) if stopped else None,
                cooldown=pause,
                forever=pause is None,
            )
        facts = {
            "stopped": event in STOPPING_EVENTS and after is not before,
            "forgiven": ending.crawled and ending.answered and not ending.keeps_status and event not in STOPPING_EVENTS,
            "crawled": ending.crawled,
        }
        connection.execute(_FREE, key | facts)
        # After all that the visit decided: a retry that an operator asked for during the visit takes effect.
        if claimable.fold_retries(connection, [ending.domain_id]):
            after = _status_now(connection, ending.domain_id)
        claimable.rescore(connection, [ending.domain_id])
        connection.execute(_END_TENURE, key)
        claimable.update_ready(connection, [ending.domain_id])
    return after


def _requeue_refused(connection: psycopg.Connection, domain_id: int) -> None:
    """Requeue the URLs whose refusals stopped the domain, with all their attempts. Their reasons stay for display."""
    parameters = {
        "id": domain_id,
        "most": STREAK_LOG_LIMIT,
        "refused": sorted(REFUSED),
        "breaking": sorted(STREAK_BREAKING),
    }
    connection.execute(_PUT_BACK, parameters)


def _status_now(connection: psycopg.Connection, domain_id: int) -> Status:
    """The status after folding: a wake may have changed it."""
    row = connection.execute("SELECT status FROM domains WHERE id = %s", (domain_id,)).fetchone()
    return Status(row[0]) if row else Status.PENDING


def _frontier_empty_event(connection: psycopg.Connection, domain_id: int) -> Event | None:
    row = connection.execute(_NOTHING_LEFT, {"id": domain_id}).fetchone()
    return Event.FRONTIER_EMPTY if row and row[0] else None
