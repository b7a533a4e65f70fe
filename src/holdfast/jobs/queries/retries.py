"""SQL of retries of a job's URLs that were not crawled: which there are, and a chunk of them at a time.

The rule: what is retried on a domain is a wake, which is folded under the lock of the domain row, at once or by the worker that holds the
domain (`actions`). A chunk is one transaction, which locks the job first: the job is open again if and only if URLs of it
were retried.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from shlex import quote
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from holdfast.db import claimable, crawls, jobs
from holdfast.db.planner_hints import limited_to
from holdfast.db.url_reasons import CODE
from holdfast.errors import Refused
from holdfast.jobs.queries import actions
from holdfast.jobs.queries.depths import scale
from holdfast.model.job import Job, JobKind, JobState
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.url_reason import state_of

CHUNK: Final = 500
"""Domains that are locked at once."""
COUNTED: Final = 100_000
"""URLs that are counted before a retry; of more it is only known that there are more."""
SAMPLE: Final = 10_000
"""URLs of the job in the sample of an estimate."""
READ: Final = 300_000
"""URLs of all jobs that an estimate may read."""
_ENDED: Final = (JobState.COMPLETED, JobState.FAILED)
_STATES: Final = (UrlState.FAILED, UrlState.DENIED, UrlState.DONE)

# Of failed URLs there is an index. Of the others, all URLs of domains that have some are read.
_MATCHING: Final = """
SELECT f.domain_id, {code} AS reason FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id
WHERE jd.job_id = %(job)s AND jd.{state} > 0 AND (%(domain)s::bigint IS NULL OR jd.domain_id = %(domain)s)
  AND f.state = '{state}' AND {code} = ANY(%(reasons)s)
"""
_COUNT: Final = """
SELECT reason, count(*), count(DISTINCT domain_id) FROM ({rows} LIMIT %(limit)s) found GROUP BY GROUPING SETS ((reason), ())
ORDER BY count(*) DESC, reason
"""
_TOTALS: Final = """
SELECT COALESCE(sum(failed), 0)::bigint AS failed, COALESCE(sum(denied), 0)::bigint AS denied, COALESCE(sum(done), 0)::bigint AS done,
       (SELECT reltuples FROM pg_class WHERE oid = 'url_frontier'::regclass) AS known
FROM job_domains WHERE job_id = %(job)s AND (%(domain)s::bigint IS NULL OR domain_id = %(domain)s)
"""
_SAMPLED: Final = f"""
SELECT f.state::text, COALESCE({CODE}, ''), count(*) FROM url_frontier f TABLESAMPLE SYSTEM (%(percent)s)
WHERE f.job_id = %(job)s AND (%(domain)s::bigint IS NULL OR f.domain_id = %(domain)s) AND f.state = ANY(%(states)s::frontier_state[])
GROUP BY 1, 2
"""  # noqa: S608 — composed of the constant above only
_DOMAINS: Final = """
SELECT jd.domain_id FROM job_domains jd
WHERE jd.job_id = %(job)s AND jd.domain_id > %(after)s AND (%(domain)s::bigint IS NULL OR jd.domain_id = %(domain)s) AND ({some})
ORDER BY jd.domain_id LIMIT %(chunk)s
"""
_SOME: Final = """
(jd.{state} > 0 AND EXISTS (SELECT FROM url_frontier f WHERE f.domain_id = jd.domain_id AND f.job_id = jd.job_id
                            AND f.state = '{state}' AND {code} = ANY(%(reasons)s)))
"""
_NAMED: Final = f"""
SELECT f.domain_id, f.url_key, f.state::text, {CODE} FROM unnest(%(names)s::text[], %(keys)s::bytea[]) AS t(name, url_key)
JOIN domains d ON d.domain = t.name JOIN url_frontier f ON f.domain_id = d.id AND f.job_id = %(job)s AND f.url_key = t.url_key
"""  # noqa: S608 — composed of the constant above only
_BLOCKED: Final = """
SELECT d.domain, count(*) OVER () FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
WHERE jd.job_id = %(job)s AND (%(domain)s::bigint IS NULL OR d.id = %(domain)s) AND d.status = 'blocked' AND jd.waiting + jd.failed > 0
  AND d.block_reason_code <> ALL(%(lifted)s)
ORDER BY d.domain LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Matching:
    """How many URLs a retry would take."""

    urls: int
    domains: int
    by_reason: Mapping[str, int] = field(default_factory=dict)
    estimated: bool = False
    """By a sample, which knows no number of domains."""


@dataclass(frozen=True, slots=True)
class KnownUrl:
    """A URL that a job knows."""

    domain_id: int
    url_key: bytes
    state: UrlState
    reason: str | None
    """The code."""


def count(
    connection: psycopg.Connection,
    job_id: int,
    reasons: Collection[str],
    domain_id: int | None,
    *,
    within: timedelta | None = None,
) -> Matching:
    """Count the URLs of a job that ended for one of these reasons, up to COUNTED and one more; if that takes longer than `within`,
    estimate them.

    Before: a transaction is open.
    """
    rows = " UNION ALL ".join(_MATCHING.format(state=state, code=CODE) for state in _states(reasons))
    parameters = {"job": job_id, "domain": domain_id, "reasons": sorted(reasons), "limit": COUNTED + 1}
    try:
        with limited_to(connection, within):
            found = connection.execute(_COUNT.format(rows=rows), parameters, prepare=False).fetchall()
    except psycopg.errors.QueryCanceled:
        if within is None:
            raise
        return _estimate(connection, job_id, reasons, domain_id)
    urls, domains = next(((urls, domains) for reason, urls, domains in found if reason is None), (0, 0))
    return Matching(urls, domains, {reason: urls for reason, urls, _ in found if reason is not None})


def _estimate(connection: psycopg.Connection, job_id: int, reasons: Collection[str], domain_id: int | None) -> Matching:
    """Estimate the URLs of these reasons by a sample of each state, which is scaled to the counters of the job."""
    states = list(map(str, _states(reasons)))
    values: dict[str, object] = {"job": job_id, "domain": domain_id, "states": states}
    with connection.cursor(row_factory=dict_row) as cursor:
        totals: dict[str, Any] = cursor.execute(_TOTALS, values).fetchone() or {}
    urls = sum(totals[state] for state in states)
    values["percent"] = 100 * min(1.0, SAMPLE / max(1, urls), READ / max(1.0, totals["known"]))
    sampled: dict[str, dict[str, int]] = {state: {} for state in states}
    for state, code, found in connection.execute(_SAMPLED, values, prepare=False):
        sampled[state][code] = found
    by_reason: Counter[str] = Counter()
    for state, codes in sampled.items():
        by_reason.update({code: n for code, n in scale(codes, totals[state]).items() if code in reasons and n})
    return Matching(by_reason.total(), 0, dict(by_reason.most_common()), estimated=True)


def known_urls(connection: psycopg.Connection, job_id: int, urls: Sequence[tuple[str, bytes]]) -> list[KnownUrl]:
    """Return those of these URLs, each by the name of its domain and its key, that the job knows."""
    parameters = {"job": job_id, "names": [name for name, _ in urls], "keys": [key for _, key in urls]}
    return [
        KnownUrl(domain_id, key, UrlState(state), reason or None)
        for domain_id, key, state, reason in connection.execute(_NAMED, parameters)
    ]


def domains_to_retry(
    connection: psycopg.Connection, job_id: int, reasons: Collection[str], domain_id: int | None, *, after: int
) -> list[int]:
    """Return the next domains after the id `after` on which URLs of the job ended for one of these reasons."""
    some = " OR ".join(_SOME.format(state=state, code=CODE) for state in _states(reasons))
    parameters = {"job": job_id, "domain": domain_id, "reasons": sorted(reasons), "after": after, "chunk": CHUNK}
    return [row[0] for row in connection.execute(_DOMAINS.format(some=some), parameters, prepare=False)]


def retry_chunk(
    connection: psycopg.Connection,
    job_id: int,
    domain_ids: Sequence[int],
    reasons: Collection[str],
    *,
    keys: Sequence[tuple[int, bytes]] = (),
    only_urls: bool = False,
    why: str,
) -> bool:
    """Retry URLs of a job on these domains: those that ended for one of these reasons, or single ones, by domain and key. Returns whether
    the job was reopened. Refused if it is cancelled.

    Before: no transaction is open, or the caller's has locked no domain. After (with the commit): the URLs wait, with attempts 0, or a
    wake for them does, which the worker that holds the domain folds within about a second; a job that had ended is pending, and its
    next crawl is a new one. `only_urls`: see `actions.wake_for_retry`.
    """
    again = {claimable.ROBOTS_TXT} if Outcome.ROBOTS_DENIED in reasons else set()
    with connection.transaction():
        _, state = lock_job(connection, job_id)
        if state in _ENDED:  # first: work of a job that has ended is not made ready
            jobs.reopen(connection, job_id, why)
            jobs.ask_for_crawl(connection, [job_id])
        causes = again if keys else {*reasons, *again}
        actions.wake_for_retry(connection, domain_ids, job_id, causes, keys=keys, only_urls=only_urls)
    return state in _ENDED


def lock_job(connection: psycopg.Connection, job_id: int) -> tuple[Job, JobState]:
    """Lock a job whose URLs can be retried; returns it with its state. Refused if it is cancelled, or the one of all tasks."""
    job, state = crawls.lock(connection, job_id)
    if job.kind is JobKind.TASKS:
        raise Refused(f"Job {job.name} is the one of all tasks: `holdfast tasks restart ID` retries a task.")
    if state is JobState.CANCELLED:
        raise Refused(f"Job {job.name} is cancelled; `holdfast crawl --job {quote(job.name)} --again` starts it again.")
    return job, state


def blocked(
    connection: psycopg.Connection, job_id: int, domain_id: int | None, *, lifted: Collection[str]
) -> tuple[str, int] | None:
    """Return one of the job's domains that are blocked for another reason than those `lifted`, and how many there are; None: none is."""
    row = connection.execute(_BLOCKED, {"job": job_id, "domain": domain_id, "lifted": sorted(lifted)}).fetchone()
    return None if row is None else (row[0], row[1])


def _states(reasons: Collection[str]) -> list[UrlState]:
    """The states of URLs that ended for these reasons."""
    found = {state_of(reason) for reason in reasons}
    return [state for state in _STATES if state in found]
