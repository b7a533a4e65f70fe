"""The ends of crawls and jobs: finish a crawl, and complete or fail its job.

The rule: a job is completed by proof only: all its work is done and no wake for it is left.
"""

from dataclasses import dataclass
from typing import Final

import psycopg

from holdfast.db import crawls, jobs, rounds
from holdfast.db.url_reasons import CODE
from holdfast.errors import NotFound
from holdfast.model.outcome import Outcome

# Work that the sweep or a worker continues. Domains that are blocked until an operator resets them are not.
_GOES_ON: Final = """
SELECT FROM job_domains jd WHERE jd.job_id = %(job)s AND jd.state = ANY(%(states)s::job_domain_state[]) AND NOT (
    jd.state = 'open' AND EXISTS (SELECT FROM domains d WHERE d.id = jd.domain_id AND d.status IN ('blocked', 'unreachable')
                                  AND d.next_crawl_after = 'infinity'))
"""
_PROOF: Final = f"""
SELECT NOT EXISTS (SELECT FROM domain_wakes WHERE job_id = %(job)s),
       NOT EXISTS (SELECT FROM job_domains WHERE job_id = %(job)s AND state <> 'done'), NOT EXISTS ({_GOES_ON})
"""  # noqa: S608 — a constant
_LOCK_NOT_BEGUN: Final = """
SELECT j.id, j.name FROM crawl_jobs j WHERE j.id = %(job)s AND j.state = 'pending'
  AND NOT EXISTS (SELECT FROM crawls c WHERE c.job_id = j.id AND c.state <> 'finished') FOR NO KEY UPDATE OF j SKIP LOCKED
"""
_FINISH: Final = """
UPDATE crawls SET state = 'finished', ended_at = clock_timestamp() WHERE id = %(crawl)s AND state <> 'finished'
"""
_END_JOB: Final = """
UPDATE crawl_jobs j SET state = %(state)s, completed_at = CASE WHEN %(ends)s THEN clock_timestamp() END, state_reason = %(why)s
WHERE j.id = %(job)s AND job_is_runnable(j)
"""
_WITHOUT_PAGE: Final = """
SELECT COALESCE(sum(pages), 0) = 0 AND COALESCE(sum(discovered), 0) > 0 FROM job_domains WHERE job_id = %(job)s
"""
_LEFT: Final = """
SELECT count(*), COALESCE(sum(jd.waiting), 0)::bigint, min(d.domain) FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
WHERE jd.job_id = %(job)s AND jd.state <> 'done'
"""

# Idle crawls: no process serves this crawl only, and workers that serve all jobs find nothing to do in it.
_IDLE: Final = """
SELECT c.id, c.job_id FROM crawls c JOIN runnable_jobs j ON j.id = c.job_id
WHERE c.state = 'running' AND j.kind = 'crawl'
  AND NOT EXISTS (SELECT FROM crawl_runs r WHERE r.crawl_id = c.id AND r.status = 'running')
  AND NOT EXISTS (SELECT FROM job_domains jd WHERE jd.job_id = j.id AND jd.ready)
  AND NOT EXISTS (SELECT FROM domain_wakes w WHERE w.job_id = j.id)
ORDER BY c.id
"""
# Jobs that no worker can begin, or go on with after their last crawl.
_NOT_BEGUN: Final = """
SELECT j.id FROM crawl_jobs j
WHERE j.state = 'pending' AND j.kind = 'crawl' AND j.name <> ALL(%(standing)s) AND j.deleted_at IS NULL
  AND NOT EXISTS (SELECT FROM crawls c WHERE c.job_id = j.id AND c.state <> 'finished')
  AND NOT EXISTS (SELECT FROM job_domains jd WHERE jd.job_id = j.id AND jd.ready)
  AND EXISTS (SELECT FROM job_domains jd WHERE jd.job_id = j.id AND jd.state = 'open')
ORDER BY j.id
"""
# Traps are counted by kind, as each has a limit of its own: their details without what differs from URL to URL.
# The example is a URL with its own reason: one text, as a row of two has no minimum before PostgreSQL 18.
_BY_REASON: Final = f"""
SELECT f.state::text AS state, {CODE} AS reason, count(*) AS urls,
       min((f.url || chr(1) || f.reason) COLLATE "C") AS example
FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id
WHERE jd.job_id = %(job)s AND f.reason IS NOT NULL
GROUP BY f.state, {CODE},
         CASE WHEN f.reason LIKE 'trap:%%' THEN regexp_replace(f.reason, '[0-9]+|(repeats|parameter|year) .*', '', 'g') END
ORDER BY urls DESC, reason
"""  # noqa: S608 — a constant


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many URLs of a job are in a state for one reason."""

    state: str
    reason: str
    """The code of the reason (`model/url_reason`): an outcome, mostly."""
    urls: int
    example: str
    """One of them."""
    detail: str
    """The whole reason of that one."""


def can_continue(connection: psycopg.Connection, job_id: int) -> bool:
    """Whether a job has a wake, or work that continues without an operator."""
    no_news, _, nothing_goes_on = _proof(connection, job_id)
    return not (no_news and nothing_goes_on)


def by_reason(connection: psycopg.Connection, job_id: int) -> list[ReasonCount]:
    """The job's URLs that have a reason, grouped, the most frequent first. Reads all its URLs: 1 s for 1.5 million of them."""
    rows = connection.execute(_BY_REASON, {"job": job_id}).fetchall()
    return [ReasonCount(*counts, *example.split("\x01", 1)) for *counts, example in rows]


def finish(connection: psycopg.Connection, crawl_id: int) -> bool:
    """End a crawl; returns whether all work of its job is done, by proof, and no wake is left.

    Before: no transaction is open. After: the crawl is finished; the job is completed (failed, with the cause, if it has no page at
    all) if all its work is done or the rest waits for an operator to unblock domains; else it is pending. A standing job never ends:
    its domains are crawled again when they are due.
    """
    with connection.transaction():
        row = connection.execute(crawls.LOCK_JOB, {"crawl": crawl_id}).fetchone()
        if row is None:
            raise NotFound(f"There is no crawl {crawl_id}.")
        connection.execute(_FINISH, {"crawl": crawl_id})
        return _end_job(connection, *row)


def _end_job(connection: psycopg.Connection, job_id: int, name: str) -> bool:
    """End a job if nothing continues by itself; returns whether all its work is done. Before: its row is locked by this transaction."""
    # In a statement of its own: transactions that add seeds or unblock a domain serialise with this one on the job's row.
    no_news, done, nothing_goes_on = _proof(connection, job_id)
    ends = no_news and nothing_goes_on and name not in jobs.STANDING
    failure = _no_page_reason(connection, job_id) if ends else None
    rest = _waiting_for_operator(connection, job_id) if ends and not done else None
    state = "pending" if not ends else "completed" if failure is None else "failed"
    why = "; ".join(filter(None, (failure, rest))) or None
    connection.execute(_END_JOB, {"job": job_id, "state": state, "ends": ends, "why": why})
    return bool(no_news and done)


def _proof(connection: psycopg.Connection, job_id: int) -> tuple[bool, bool, bool]:
    """Whether a job has no wake, whether all its work is done, and whether none of it continues by itself."""
    row = connection.execute(_PROOF, {"job": job_id, "states": ["open", "parked", "spent"]}).fetchone()
    return row or (False, False, False)


def _waiting_for_operator(connection: psycopg.Connection, job_id: int) -> str:
    """A sentence about the URLs that wait for an operator. Before: nothing of the job continues by itself."""
    domains, urls, example = connection.execute(_LEFT, {"job": job_id}).fetchone() or (0, 0, None)
    waits = "1 URL waits" if urls == 1 else f"{urls:,} URLs wait"
    where = example if domains == 1 else f"{domains:,} domains, for example {example}"
    return f"{waits} for a person to unblock {where}"


def _no_page_reason(connection: psycopg.Connection, job_id: int) -> str | None:
    """A sentence with the most frequent reason of a job's URLs if none became a page; None: one did, or it has no URLs."""
    row = connection.execute(_WITHOUT_PAGE, {"job": job_id}).fetchone()
    if not (row and row[0]):
        return None
    reasons = by_reason(connection, job_id)
    if not reasons:
        return "no page was fetched"
    first = next((count for count in reasons if count.reason != Outcome.REDIRECT), reasons[0])
    urls = "1 URL" if first.urls == 1 else f"{first.urls:,} URLs"
    return f"no page was fetched: {urls} ended with {first.reason}, for example {first.example} ({first.detail})"


def finish_idle(connection: psycopg.Connection) -> int:
    """End idle crawls that no run serves alone, and jobs that only an operator can continue; returns how many.

    Before: no transaction is open. After: a job whose work is done is completed; one that reached a limit is pending.
    """
    ended = 0
    for crawl_id, job_id in connection.execute(_IDLE).fetchall():
        if not _can_continue(connection, job_id, "open", "parked") and not rounds.advance(connection, job_id, crawl_id):
            finish(connection, crawl_id)
            ended += 1
    for (job_id,) in connection.execute(_NOT_BEGUN, {"standing": sorted(jobs.STANDING)}).fetchall():
        if not _can_continue(connection, job_id, "open", "parked", "spent"):
            with connection.transaction():
                for job in connection.execute(_LOCK_NOT_BEGUN, {"job": job_id}).fetchall():
                    _end_job(connection, *job)
                    ended += 1
    return ended


def _can_continue(connection: psycopg.Connection, job_id: int, *states: str) -> bool:
    """Whether work of a job in one of these states continues without an operator."""
    query = f"SELECT EXISTS ({_GOES_ON})"
    row = connection.execute(query, {"job": job_id, "states": list(states)}).fetchone()
    return bool(row and row[0])
