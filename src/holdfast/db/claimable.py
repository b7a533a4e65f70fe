"""Which work can be claimed: the `ready` hint and the order of `job_domains`, and the folding of wakes.

The rule: the caller holds the lock of the domain rows. `job_domains` is never changed without it.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import psycopg

from holdfast.db import array_params, judging, transitions
from holdfast.db.url_reasons import CODE
from holdfast.model.commit_batch import IMAGE_PRIORITY
from holdfast.model.domain import BLOCKING_EVENTS, UNREACHABLE_EVENTS, Event, Status, status_reason
from holdfast.model.outcome import JUDGED_AT_LINK, TREATMENT, Outcome, UrlState
from holdfast.model.url_reason import ROBOTS_UNAVAILABLE, codes_of

STARTED_BONUS: Final = 100_000_000
"""Priority bonus of domains that were started: finishing one is worth more than beginning another."""

URGENT_PRIORITY: Final = 11
"""Frontier priority of a task whose own priority is 1 or 2: its domain comes before all others."""

_STAYS_DENIED: Final = sorted((JUDGED_AT_LINK | {Outcome.OTHER_DOMAIN}) - {Outcome.EXCLUDED})
REOPEN_CHUNK: Final = 10_000
"""Frontier rows that one fold sets back to waiting: a reset of a huge domain must not become one huge statement."""

NETWORK_REASONS: Final = frozenset(
    str(outcome) for outcome, treatment in TREATMENT.items() if treatment.event in UNREACHABLE_EVENTS
)
"""Reasons of URLs that failed because their server could not be reached."""
REFUSAL_REASONS: Final = frozenset(
    str(outcome) for outcome, treatment in TREATMENT.items() if treatment.event in BLOCKING_EVENTS
)
"""Reasons of URLs that failed because their server refused them."""
_ANSWERED: Final = codes_of(UrlState.DONE)
"""Reasons of URLs that were answered, and can be retried."""
_STOPPED: Final = (Status.BLOCKED, Status.UNREACHABLE)
_RETRY_REASON: Final = "a person asked for another attempt"
RETRY_PAUSE: Final = timedelta(seconds=5)
"""The least time between two attempts on a domain that operators ask for."""
ROBOTS_TXT: Final = "robots_txt"
"""In the reasons of a retry: fetch robots.txt again, whatever it said. No URL has this reason."""

_MARK_RETRIED: Final = """
UPDATE domains SET retried_at = GREATEST(clock_timestamp(), retried_at + %(pause)s)
WHERE id = ANY(%(ids)s) AND (retried_at IS NULL OR retried_at <= clock_timestamp())
"""
_REFRESH: Final = """
UPDATE job_domains jd SET ready = want.ready, priority = want.priority
FROM (
    SELECT jd.domain_id, jd.job_id,
           jd.state = 'open' AND job_is_runnable(j) AND d.is_active AND d.claimed_by IS NULL
               AND (d.next_crawl_after IS NULL OR (j.kind = 'tasks' AND d.status = 'exhausted'))
               AND (jd.not_before IS NULL OR jd.not_before <= clock_timestamp()) AS ready,
           d.priority_score + CASE WHEN d.status = 'active' THEN %(bonus)s ELSE 0 END
               + CASE WHEN j.kind = 'tasks' AND EXISTS (
                     SELECT FROM url_frontier f WHERE f.domain_id = jd.domain_id AND f.job_id = jd.job_id AND f.state = 'waiting'
                     AND f.priority >= %(urgent)s) THEN 2 * %(bonus)s ELSE 0 END AS priority
    FROM job_domains jd JOIN domains d ON d.id = jd.domain_id JOIN crawl_jobs j ON j.id = jd.job_id
    WHERE jd.domain_id = ANY(%(ids)s)
) want
WHERE jd.domain_id = want.domain_id AND jd.job_id = want.job_id AND (jd.ready, jd.priority) IS DISTINCT FROM (want.ready, want.priority)
"""

_SCORE: Final = """
UPDATE domains d SET priority_score = domain_score(d), priority_computed_at = clock_timestamp()
WHERE d.id = ANY(%(ids)s) AND d.status NOT IN ('blocked', 'unreachable')
"""

# New URLs end a delay, except one that the server asked for: no visit is possible before it ends.
# The counts of a wake are of rows that are committed with it, so a fold never counts a row that is not there.
_TAKE_WAKES: Final = """
DELETE FROM domain_wakes WHERE domain_id = ANY(%(ids)s::bigint[]) AND again_after IS NULL AND again_key IS NULL
RETURNING domain_id, job_id, inserted, images_stored
"""
_WAKES: Final = "SELECT count(*) FROM domain_wakes WHERE domain_id = ANY(%(ids)s::bigint[])"
_FOLD: Final = f"""
WITH news AS ({_TAKE_WAKES}), sums AS (
    SELECT domain_id, job_id, sum(inserted)::bigint AS inserted, sum(images_stored)::bigint AS images,
           bool_or(images_stored = 0) AS of_urls
    FROM news GROUP BY domain_id, job_id
), rows AS (
    INSERT INTO job_domains (domain_id, job_id, discovered, waiting)
    SELECT domain_id, job_id, inserted, inserted FROM sums WHERE of_urls ORDER BY domain_id, job_id
    ON CONFLICT (domain_id, job_id) DO UPDATE SET
        discovered = job_domains.discovered + excluded.discovered,
        waiting = job_domains.waiting + excluded.waiting,
        seeded = NULLIF(job_domains.seeded, false),
        not_before = CASE WHEN excluded.waiting = 0 THEN job_domains.not_before
            ELSE (SELECT NULLIF(GREATEST(d.back_off_until, d.circuit_open_until, job_domains.yielded_until, now()), now())
                  FROM domains d WHERE d.id = job_domains.domain_id) END,
        state = CASE WHEN excluded.waiting > 0 AND job_domains.state = 'done' THEN 'open' ELSE job_domains.state END
), per_domain AS (
    SELECT s.domain_id, sum(s.inserted)::bigint AS inserted, sum(s.images)::bigint AS images,
           sum(s.inserted) FILTER (WHERE j.kind = 'crawl' AND j.deleted_at IS NULL) > 0 AS woken
    FROM sums s LEFT JOIN crawl_jobs j ON j.id = s.job_id GROUP BY s.domain_id
)
UPDATE domains d SET
    pages_discovered = d.pages_discovered + p.inserted,
    frontier_size = d.frontier_size + p.inserted,
    images_stored = d.images_stored + p.images,
    frontier_updated_at = CASE WHEN p.inserted > 0 THEN clock_timestamp() ELSE d.frontier_updated_at END
FROM per_domain p WHERE d.id = p.domain_id
RETURNING d.id, COALESCE(p.woken, false) AND d.status = 'exhausted'
"""  # noqa: S608 — composed of the constant above only

# One URL each: for tasks, for retries of single URLs, and for links that are images. What changes is counted by what it was.
_ONCE_MORE: Final = f"""
WITH news AS (
    DELETE FROM domain_wakes WHERE domain_id = ANY(%(ids)s::bigint[]) AND again_key IS NOT NULL
    RETURNING id, domain_id, job_id, again_key, priority, hops
), old AS MATERIALIZED (
    SELECT DISTINCT ON (f.domain_id, f.job_id, f.url_key) f.domain_id, f.job_id, f.url_key, f.state, n.priority, n.hops
    FROM news n JOIN url_frontier f ON f.domain_id = n.domain_id AND f.job_id = n.job_id AND f.url_key = n.again_key
    ORDER BY f.domain_id, f.job_id, f.url_key, n.id DESC
), reopened AS (
    UPDATE url_frontier f SET state = 'waiting', attempts = 0, reason = NULL, not_before = NULL, priority = o.priority, hops = o.hops,
        resource = CASE WHEN o.priority = {IMAGE_PRIORITY} THEN 'image' ELSE f.resource END,
        kind = CASE o.state WHEN 'done' THEN 'refresh'::frontier_kind ELSE f.kind END
    FROM old o WHERE f.domain_id = o.domain_id AND f.job_id = o.job_id AND f.url_key = o.url_key
), counts AS (
    SELECT domain_id, job_id, count(*) FILTER (WHERE state <> 'waiting') AS total, count(*) FILTER (WHERE state = 'done') AS done,
           count(*) FILTER (WHERE state = 'denied') AS denied, count(*) FILTER (WHERE state = 'failed') AS failed
    FROM old GROUP BY domain_id, job_id
)
SELECT domain_id, job_id, total > 0 AND EXISTS (SELECT FROM crawl_jobs j WHERE j.id = job_id AND j.kind = 'crawl' AND j.deleted_at IS NULL),
       add_counts(domain_id, job_id, total, -done, -denied, -failed)
FROM counts
"""  # noqa: S608 — composed of a constant only
_NOT_BEFORE_ALLOWED: Final = """
UPDATE job_domains jd SET
    not_before = (SELECT NULLIF(GREATEST(d.back_off_until, d.circuit_open_until, jd.yielded_until, now()), now())
                  FROM domains d WHERE d.id = jd.domain_id)
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[]) AS w(domain_id, job_id)
WHERE jd.domain_id = w.domain_id AND jd.job_id = w.job_id
"""

_AGAIN: Final = """
SELECT id, domain_id, job_id, again_after FROM domain_wakes
WHERE domain_id = ANY(%(ids)s) AND again_after IS NOT NULL AND retry IS NULL AND deeper IS NULL AND NOT by_rules
ORDER BY id
"""
# An operator's restart resets a domain's own budget, unless the crawl has a limit over all domains: fetched pages stay counted.
_RENEW: Final = """
UPDATE job_domains jd SET budget_used = 0, granted = 0, round_start = 0, limit_reached = NULL
WHERE jd.domain_id = ANY(%(ids)s) AND (%(job)s::bigint IS NULL OR jd.job_id = %(job)s)
  AND NOT EXISTS (SELECT FROM crawls c WHERE c.job_id = jd.job_id AND c.state <> 'finished' AND c.max_pages IS NOT NULL)
"""
# URLs denied because of the link where they were found stay denied: the page is fetched again, and its links are judged by the rules of
# today. What the job's patterns left out is judged again when it is taken.
_REOPEN: Final = """
WITH chunk AS MATERIALIZED (
    SELECT url_key, state, state = 'denied' AND split_part(reason, ':', 1) = ANY(%(stays)s::text[]) AS stays FROM url_frontier
    WHERE domain_id = %(domain)s AND job_id = %(job)s AND url_key > %(after)s ORDER BY url_key LIMIT %(chunk)s
), reopened AS (
    UPDATE url_frontier f SET state = 'waiting', attempts = 0, reason = NULL, not_before = NULL,
        kind = CASE c.state WHEN 'done' THEN 'refresh'::frontier_kind WHEN 'waiting' THEN f.kind ELSE 'discovery' END
    FROM chunk c WHERE f.domain_id = %(domain)s AND f.job_id = %(job)s AND f.url_key = c.url_key AND NOT c.stays
      AND (c.state <> 'waiting' OR f.attempts > 0 OR f.not_before IS NOT NULL)
    RETURNING c.state AS was
), counted AS MATERIALIZED (
    SELECT add_counts(%(domain)s, %(job)s, count(*) FILTER (WHERE was <> 'waiting'), -count(*) FILTER (WHERE was = 'done'),
                      -count(*) FILTER (WHERE was = 'denied'), -count(*) FILTER (WHERE was = 'failed')) FROM reopened
)
SELECT count(*), max(url_key), (SELECT count(*) FROM counted) FROM chunk
"""
_DUE_AT_ONCE: Final = """
UPDATE job_domains SET not_before = NULL, state = CASE WHEN state = 'spent' THEN 'open' ELSE state END
WHERE domain_id = %(domain)s AND job_id = %(job)s
"""

_DEEPER: Final = """
SELECT id, domain_id, job_id, again_after, deeper FROM domain_wakes WHERE domain_id = ANY(%(ids)s::bigint[]) AND deeper IS NOT NULL
ORDER BY id
"""
# Those that belong to other domains wait here, too, until the visit that takes them puts them into the frontier of their own.
_DEEPEN: Final = """
WITH chunk AS MATERIALIZED (
    SELECT url_key FROM url_frontier
    WHERE domain_id = %(domain)s AND job_id = %(job)s AND state = 'denied' AND url_key > %(after)s AND depth <= %(deeper)s
      AND split_part(reason, ':', 1) = %(too_deep)s ORDER BY url_key LIMIT %(chunk)s
), reopened AS (
    UPDATE url_frontier f SET state = 'waiting', reason = NULL, not_before = NULL
    FROM chunk c WHERE f.domain_id = %(domain)s AND f.job_id = %(job)s AND f.url_key = c.url_key
    RETURNING f.url_key
), counted AS MATERIALIZED (
    SELECT total, add_counts(%(domain)s, %(job)s, more_waiting => total, more_denied => -total)
    FROM (SELECT count(*) AS total FROM reopened) n WHERE total > 0
)
SELECT count(*), max(url_key), EXISTS (SELECT FROM counted) FROM chunk
"""

_BY_RULES: Final = """
SELECT id, domain_id, job_id, again_after FROM domain_wakes WHERE domain_id = ANY(%(ids)s::bigint[]) AND by_rules ORDER BY id
"""

_RETRIES: Final = """
SELECT id, domain_id, job_id, again_after, retry FROM domain_wakes WHERE domain_id = ANY(%(ids)s::bigint[]) AND retry IS NOT NULL
ORDER BY id
"""
_EXPIRE_ROBOTS: Final = """
UPDATE domain_robots r SET expires_at = LEAST(r.expires_at, GREATEST(clock_timestamp(), d.retried_at))
FROM domains d WHERE d.id = r.domain_id AND d.id = ANY(%(ids)s) AND NOT r.reachable
"""
_FETCH_ROBOTS_AGAIN: Final = """
UPDATE domain_robots r SET expires_at = LEAST(r.expires_at, GREATEST(clock_timestamp(), d.retried_at))
FROM domains d WHERE d.id = r.domain_id AND d.id = ANY(%(ids)s)
"""
# The circuit stays as it is where the server answered, if only with an error.
_CLOSE_CIRCUIT: Final = """
UPDATE domains d SET circuit_open_until = NULL, circuit_failures = 0, circuit_successes = 0
WHERE d.id = ANY(%(ids)s) AND d.circuit_open_until IS NOT NULL AND (
    EXISTS (SELECT FROM domain_robots r WHERE r.domain_id = d.id AND NOT r.reachable
            AND split_part(r.problem, ':', 1) = ANY(%(network)s))
    OR (SELECT l.outcome FROM crawl_log l WHERE l.domain_id = d.id ORDER BY l.crawled_at DESC LIMIT 1) = ANY(%(network)s))
"""
_REACHABLE_AGAIN: Final = """
UPDATE domains d SET retry_count = 0
WHERE d.id = ANY(%(ids)s) AND (d.status = 'unreachable'
    OR (d.status = 'blocked' AND d.block_reason_code = 'robots_denied' AND d.id = ANY(%(no_robots)s))
    OR (d.status = 'blocked' AND d.block_reason_code = 'login_required' AND d.id = ANY(%(logged_in)s)))
RETURNING d.id
"""
# Where no page was fetched at all, a seed given without a scheme is tried over https again, too.
_RETRY: Final = f"""
WITH chunk AS MATERIALIZED (
    (SELECT url_key, state FROM url_frontier f
     WHERE domain_id = %(domain)s AND job_id = %(job)s AND state = 'failed' AND url_key > %(after)s
       AND {CODE} = ANY(%(retry)s) ORDER BY url_key LIMIT %(chunk)s)
    UNION ALL
    (SELECT url_key, state FROM url_frontier f
     WHERE domain_id = %(domain)s AND job_id = %(job)s AND state = 'denied' AND url_key > %(after)s
       AND %(denied)s AND {CODE} = ANY(%(retry)s) ORDER BY url_key LIMIT %(chunk)s)
    UNION ALL
    (SELECT url_key, state FROM url_frontier f
     WHERE domain_id = %(domain)s AND job_id = %(job)s AND state = 'done' AND url_key > %(after)s
       AND %(done)s AND {CODE} = ANY(%(retry)s) ORDER BY url_key LIMIT %(chunk)s)
    UNION ALL
    (SELECT url_key, state FROM url_frontier f
     WHERE domain_id = %(domain)s AND job_id = %(job)s AND state = 'waiting' AND url_key > %(after)s
       AND not_before > clock_timestamp() AND split_part(reason, ':', 1) = ANY(%(waits)s) ORDER BY url_key LIMIT %(chunk)s)
    UNION ALL
    (SELECT url_key, state FROM url_frontier
     WHERE domain_id = %(domain)s AND job_id = %(job)s AND state = 'denied' AND reason LIKE %(no_https)s AND url_key > %(after)s
       AND EXISTS (SELECT FROM job_domains WHERE domain_id = %(domain)s AND job_id = %(job)s AND pages = 0)
     ORDER BY url_key LIMIT %(chunk)s)
    ORDER BY url_key LIMIT %(chunk)s
), reopened AS (
    UPDATE url_frontier f SET state = 'waiting', attempts = 0, reason = NULL, not_before = NULL,
        kind = CASE c.state WHEN 'waiting' THEN f.kind WHEN 'done' THEN 'refresh' ELSE 'discovery' END
    FROM chunk c WHERE f.domain_id = %(domain)s AND f.job_id = %(job)s AND f.url_key = c.url_key
    RETURNING c.state AS was
), counts AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE was <> 'waiting') AS total, count(*) FILTER (WHERE was = 'done') AS done,
           count(*) FILTER (WHERE was = 'denied') AS denied, count(*) FILTER (WHERE was = 'failed') AS failed
    FROM reopened
), counted AS MATERIALIZED (
    SELECT add_counts(%(domain)s, %(job)s, total, -done, -denied, -failed) FROM counts WHERE total > 0
)
SELECT count(*), max(url_key), EXISTS (SELECT FROM counted) FROM chunk
"""  # noqa: S608 — composed of the constant above only
_NOT_BEFORE_ASKED: Final = """
UPDATE job_domains jd SET
    not_before = (SELECT until FROM (SELECT GREATEST(d.back_off_until, d.circuit_open_until, d.retried_at) AS until
                                     FROM domains d WHERE d.id = jd.domain_id) asked WHERE until > clock_timestamp())
WHERE jd.domain_id = %(domain)s AND jd.job_id = %(job)s
"""


def update_ready(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """Recompute `ready` and `priority` of all rows of these domains.

    Before: the domain rows are locked by this transaction. After: a row is ready if and only if its domain could be claimed for
    its job now.
    """
    if domain_ids:
        connection.execute(_REFRESH, {"ids": list(domain_ids), "bonus": STARTED_BONUS, "urgent": URGENT_PRIORITY})


def rescore(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """Recompute the stored scores of these domains, except blocked and unreachable ones. The caller updates `priority`.

    Before: the domain rows are locked by this transaction.
    """
    connection.execute(_SCORE, {"ids": list(domain_ids)})


def reset_budgets(connection: psycopg.Connection, domain_ids: Sequence[int], *, job_id: int | None = None) -> None:
    """Reset the budgets of these domains, for one job or all, when an operator starts them over. No timer ever does this.

    Before: the domain rows are locked by this transaction. After: what they used in a crawl without `max_pages` is forgotten.
    """
    connection.execute(_RENEW, {"ids": list(domain_ids), "job": job_id})


def fold_counts(connection: psycopg.Connection, domain_ids: Sequence[int]) -> set[int]:
    """Fold the wakes of these domains that carry counts, or ask for one URL again; returns the domains that had some.

    Before: the domain rows are locked by this transaction. After: every URL that this statement could see is counted; exhausted
    domains with new URLs are pending. The caller updates `ready`.
    """
    ids = {"ids": array_params.numbers(domain_ids)}
    if connection.execute(_WAKES, ids).fetchone() == (0,):  # as at nearly every commit
        return set()
    counted = connection.execute(_FOLD, ids).fetchall()
    _reopen_exhausted(connection, [domain_id for domain_id, woken in counted if woken], "new URLs arrived")
    once_more = connection.execute(_ONCE_MORE, ids).fetchall()
    if once_more:
        # A task changes no status.
        woken = [domain_id for domain_id, _, is_woken, _ in once_more if is_woken]
        _reopen_exhausted(connection, sorted(set(woken)), _RETRY_REASON)
        work = {"domains": [row[0] for row in once_more], "jobs": [row[1] for row in once_more]}
        connection.execute(_NOT_BEFORE_ALLOWED, work)
    return {domain_id for domain_id, _ in counted} | {row[0] for row in once_more}


def fold_wakes(connection: psycopg.Connection, domain_ids: Sequence[int], *, retries: bool = True) -> int:
    """Fold all wakes of these domains; returns the number of domains that had some.

    Before: the domain rows are locked by this transaction. After: no committed wake that this statement could see is left, except
    a reset or an edit of rules with further chunks to process; exhausted domains with new URLs are pending. The caller updates `ready`,
    and without `retries` calls `fold_retries`.
    """
    if not domain_ids:
        return 0
    folded = fold_counts(connection, domain_ids)
    for wake, domain, job, after in connection.execute(_AGAIN, {"ids": list(domain_ids)}).fetchall():
        _reopen_chunk(connection, wake, domain, job, after)
        folded.add(domain)
    for wake, domain, job, after, deeper in connection.execute(_DEEPER, {"ids": list(domain_ids)}).fetchall():
        _deepen_chunk(connection, wake, domain, job, after, deeper)
        folded.add(domain)
    for wake, domain, job, after in connection.execute(_BY_RULES, {"ids": list(domain_ids)}).fetchall():
        _judge_chunk(connection, wake, domain, job, after)
        folded.add(domain)
    return len(folded | (fold_retries(connection, domain_ids) if retries else set()))


def fold_retries(connection: psycopg.Connection, domain_ids: Sequence[int]) -> set[int]:
    """Fold the wakes by which an operator asks for a retry (`jobs/queries/actions`); returns the domains that had some.

    Before: the domain rows are locked by this transaction, and all else about their visits is decided. After: failed robots.txt
    files are due again (with `ROBOTS_TXT` all of them), waits after failures to reach the server are over, unreachable domains are
    pending, and URLs that ended for one of the given reasons wait again. A pause that the server asked for stays. The caller updates
    `ready`.
    """
    wakes = connection.execute(_RETRIES, {"ids": list(domain_ids)}).fetchall()
    first = sorted({domain for _, domain, _, after, _ in wakes if not after})
    if first:
        robots_again = {domain for _, domain, _, _, retry in wakes if ROBOTS_TXT in retry}
        no_robots = {domain for _, domain, _, _, retry in wakes if str(Outcome.ROBOTS_DENIED) in retry} | robots_again
        logged_in = {domain for _, domain, _, _, retry in wakes if str(Outcome.LOGIN_WALL) in retry}
        parameters = {"ids": first, "network": sorted(NETWORK_REASONS), "no_robots": sorted(no_robots)}
        parameters |= {"logged_in": sorted(logged_in)}
        connection.execute(_CLOSE_CIRCUIT, parameters)
        connection.execute(_EXPIRE_ROBOTS, parameters)
        if robots_again:
            connection.execute(_FETCH_ROBOTS_AGAIN, {"ids": sorted(robots_again)})
        again = [row[0] for row in connection.execute(_REACHABLE_AGAIN, parameters)]
        words = status_reason(Event.COOLDOWN_ENDED, _RETRY_REASON)
        transitions.change(connection, again, Status.PENDING, only_from=_STOPPED, reason=words)
    for wake, domain, job, after, retry in wakes:
        key = {"domain": domain, "job": job, "after": after, "chunk": REOPEN_CHUNK, "retry": retry}
        key |= {"denied": str(Outcome.ROBOTS_DENIED) in retry, "done": not _ANSWERED.isdisjoint(retry)}
        key |= {"waits": sorted(NETWORK_REASONS | {ROBOTS_UNAVAILABLE})}
        key |= {"no_https": f"{Outcome.NO_HTTPS}:%" if retry else ""}
        seen, last, woken = connection.execute(_RETRY, key).fetchone() or (0, None, False)
        connection.execute(_NOT_BEFORE_ASKED, key)
        _reopen_exhausted(connection, [domain] if woken else [], _RETRY_REASON)
        _finish_chunk(connection, wake, seen, last)
    return {domain for _, domain, _, _, _ in wakes}


def mark_retried(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """Note that an operator asks for another attempt now. Before: the domain rows are locked by this transaction."""
    connection.execute(_MARK_RETRIED, {"ids": list(domain_ids), "pause": RETRY_PAUSE})


def expire_failed_robots(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """Expire each failed robots.txt of these domains, so that the next visit fetches it again.

    Before: the domain rows are locked by this transaction.
    """
    connection.execute(_EXPIRE_ROBOTS, {"ids": list(domain_ids)})


def _reopen_chunk(connection: psycopg.Connection, wake: int, domain: int, job: int, after: bytes) -> None:
    parameters = {"domain": domain, "job": job, "after": after, "chunk": REOPEN_CHUNK, "stays": _STAYS_DENIED}
    seen, last, _ = connection.execute(_REOPEN, parameters).fetchone() or (0, None, 0)
    connection.execute(_DUE_AT_ONCE, parameters)
    _finish_chunk(connection, wake, seen, last)


def _deepen_chunk(connection: psycopg.Connection, wake: int, domain: int, job: int, after: bytes, deeper: int) -> None:
    parameters = {"domain": domain, "job": job, "after": after, "chunk": REOPEN_CHUNK, "deeper": deeper}
    parameters |= {"too_deep": str(Outcome.TOO_DEEP)}
    seen, last, woken = connection.execute(_DEEPEN, parameters).fetchone() or (0, None, False)
    _reopen_exhausted(connection, [domain] if woken else [], "URLs that were too deep are not any more")
    _finish_chunk(connection, wake, seen, last)


def _judge_chunk(connection: psycopg.Connection, wake: int, domain: int, job: int, after: bytes) -> None:
    judged = judging.judge_chunk(connection, domain, job, after, REOPEN_CHUNK)
    _reopen_exhausted(connection, [domain] if judged.returned else [], "the rules of a job were edited")
    _finish_chunk(connection, wake, judged.seen, judged.last)


def _reopen_exhausted(connection: psycopg.Connection, domain_ids: Sequence[int], why: str) -> None:
    """Set exhausted domains to pending. Before: their rows are locked by this transaction, and URLs wait on them."""
    words = status_reason(Event.WOKEN, why)
    transitions.change(connection, domain_ids, Status.PENDING, only_from=[Status.EXHAUSTED], reason=words)


def _finish_chunk(connection: psycopg.Connection, wake: int, seen: int, last: bytes | None) -> None:
    """Finish one chunk of a wake's URLs. After: the wake is deleted, or stores where the next chunk begins."""
    if seen < REOPEN_CHUNK:
        connection.execute("DELETE FROM domain_wakes WHERE id = %s", (wake,))
    else:
        connection.execute("UPDATE domain_wakes SET again_after = %s WHERE id = %s", (last, wake))
