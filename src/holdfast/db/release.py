"""The end of a visit: status, clocks and claim in one transaction.

The rule: a domain is exhausted only by proof. The row is locked FOR UPDATE, which waits for everybody who is inserting URLs for
it at this moment, and the frontier is looked at again in a statement that begins after that.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import psycopg

from holdfast.errors import ClaimLost
from holdfast.model.domain import STOPPING, Event, Status, decide, reason
from holdfast.model.outcome import BREAKING, REFUSED
from holdfast.model.work import Ending
from holdfast.store import budget, readiness, transitions

Cooldown = Callable[[Event, int, timedelta | None], timedelta | None]
"""How long to leave a domain alone after an event, given the blocks so far and what the server asked for; None: until a reset."""

TURN: Final = timedelta(seconds=5)
"""How long a job that gave way leaves the domain to the other one, if that one does not take it sooner."""

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
# their own.
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
), put_back AS (
    UPDATE url_frontier f SET state = 'waiting', attempts = 0, not_before = NULL
    FROM old WHERE f.domain_id = %(id)s AND f.job_id = old.job_id AND f.url_key = old.url_key
), counts AS MATERIALIZED (
    SELECT job_id, count(*) AS urls FROM old WHERE state = 'failed' GROUP BY job_id
), counted AS (
    UPDATE job_domains jd SET waiting = jd.waiting + c.urls, failed = jd.failed - c.urls
    FROM counts c WHERE jd.domain_id = %(id)s AND jd.job_id = c.job_id
)
UPDATE domains SET frontier_size = frontier_size + (SELECT COALESCE(sum(urls), 0)::bigint FROM counts) WHERE id = %(id)s
"""
MOST_PUT_BACK: Final = 1000
"""Rows of the log that are looked at for the streak: those of a streak at most, and what was in flight with it."""

_LET_GO: Final = """
UPDATE domains SET
    claimed_by = NULL, claim_expires_at = NULL,
    retry_count = CASE WHEN %(stopped)s THEN retry_count + 1 WHEN %(forgiven)s THEN 0 ELSE retry_count END,
    last_visit_ended_at = CASE WHEN %(crawled)s THEN clock_timestamp() ELSE last_visit_ended_at END
WHERE id = %(id)s
"""

_END_TENURE: Final = """
UPDATE claim_log SET ended_at = GREATEST(clock_timestamp(), claimed_at), why = 'released' WHERE domain_id = %(id)s AND epoch = %(epoch)s
"""


def release(connection: psycopg.Connection, *, worker: str, ending: Ending, cooldown: Cooldown) -> Status:
    """Let go of a domain; its status afterwards. Raises ClaimLost, with nothing written, if `worker` no longer holds it.

    Before: everything that the visit learnt is committed; no transaction is open. After: the domain is free; it is exhausted if
    it was under way and no job that is not cancelled has a URL waiting on it; a stopping event has begun its cool-down, and the URLs that
    were refused since the last proper answer wait again; rows that can be
    claimed again are ready, those that are to wait (their URLs, or the domain) when it is time; a job that gave way is not ready for a
    moment, others are; unused pages of the crawl are its own again; the tenure in the claim log has ended.
    """
    key = {"id": ending.domain_id, "epoch": ending.epoch}
    with connection.transaction():
        row = connection.execute(_LOCK, key | {"worker": worker}).fetchone()
        if row is None:
            raise ClaimLost(f"Domain {ending.domain_id} is no longer held by {worker} under epoch {ending.epoch}.")
        readiness.fold(connection, [ending.domain_id], retries=False)
        before = _status_now(connection, ending.domain_id)
        event = None if ending.keeps_status else ending.event
        if event is not None and event in STOPPING and decide(before, event) is not before:
            _put_back(connection, ending.domain_id)
        how = {
            "spent": list(ending.spent_jobs),
            # What was judged by settings that people have changed since says nothing any more.
            "wait": ending.wait if ending.settings_version in (None, row[2]) else None,
            "yielding": list(ending.yielding_jobs),
            "turn": TURN,
        }
        connection.execute(_RECOUNT, key | how)
        budget.give_back(connection, [ending.domain_id])
        if event is None and not ending.keeps_status:
            event = _proof_of_the_end(connection, ending.domain_id)
        after = decide(before, event) if event else before
        if event and after is not before:
            stopped = event in STOPPING
            pause = cooldown(event, row[1], ending.retry_after)
            transitions.change(
                connection,
                [ending.domain_id],
                after,
                only_from=[before],
                reason=reason(event, ending.detail),
                worker=worker,
                code=event if stopped else None,
                detail=(ending.detail or None) if stopped else None,
                rest=pause,
                forever=pause is None,
            )
        facts = {
            "stopped": event in STOPPING and after is not before,
            "forgiven": ending.crawled and ending.answered and not ending.keeps_status and event not in STOPPING,
            "crawled": ending.crawled,
        }
        connection.execute(_LET_GO, key | facts)
        # After all that the visit decided: a person who asked for another attempt while it was under way gets one.
        if readiness.fold_retries(connection, [ending.domain_id]):
            after = _status_now(connection, ending.domain_id)
        readiness.rescore(connection, [ending.domain_id])
        connection.execute(_END_TENURE, key)
        readiness.refresh(connection, [ending.domain_id])
    return after


def _put_back(connection: psycopg.Connection, domain_id: int) -> None:
    """Let the URLs wait again whose refusals stopped the domain, with all their attempts. Their reasons stay, for people."""
    parameters = {"id": domain_id, "most": MOST_PUT_BACK, "refused": sorted(REFUSED), "breaking": sorted(BREAKING)}
    connection.execute(_PUT_BACK, parameters)


def _status_now(connection: psycopg.Connection, domain_id: int) -> Status:
    """The status after folding: a wake may have changed it."""
    row = connection.execute("SELECT status FROM domains WHERE id = %s", (domain_id,)).fetchone()
    return Status(row[0]) if row else Status.PENDING


def _proof_of_the_end(connection: psycopg.Connection, domain_id: int) -> Event | None:
    row = connection.execute(_NOTHING_LEFT, {"id": domain_id}).fetchone()
    return Event.FRONTIER_EMPTY if row and row[0] else None
