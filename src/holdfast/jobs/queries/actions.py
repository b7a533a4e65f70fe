"""Operators' changes of jobs: pause, resume, cancel, delete, retry, a deeper limit, refreshes.

The rule: a change is one row, which workers read; no statement touches all work of a big job. The rest follows in chunks.

A retry tries again at once what failed before. Only an operator (a command, an API call) asks for it, never a schedule, and each domain is
tried at most every 5 s, by the database's clock. Nothing of a domain that a worker holds is changed here: the request is a wake, which the
holder folds at its release (`claimable.fold_retries`). A pause that the server asked for (Retry-After) and a block stay.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import psycopg

from holdfast.db import claimable, crawls, jobs, listen_notify, request_secrets
from holdfast.errors import NotFound, Refused
from holdfast.jobs.records import JobFilter, StateChange
from holdfast.model.content_type import expand, is_wanted
from holdfast.model.job import JobAction, JobKind, JobSpec, JobState, state_after
from holdfast.model.outcome import Outcome

CHUNK: Final = 500
TYPES_CHUNK: Final = 5_000
"""URLs whose types are read at once."""
_MAX_HELD_BACK: Final = 20
"""Domains that are returned because of their Retry-After."""
# Work that its workers release while it is paused is not ready: all of it may have to be checked.
_SET_STATE: Final = """
UPDATE crawl_jobs SET state = %(state)s::job_state, parked_after = CASE WHEN %(state)s = 'paused' THEN 0 ELSE parked_after END,
    resumed_at = CASE WHEN state = 'paused' THEN clock_timestamp() ELSE resumed_at END
WHERE id = %(job)s
"""
_END_CRAWL: Final = (
    "UPDATE crawls SET state = 'finished', ended_at = clock_timestamp() WHERE job_id = %(job)s AND state <> 'finished'"
)
# Its name is free for another job at once.
_DELETE: Final = """
UPDATE crawl_jobs SET state = 'cancelled', deleted_at = clock_timestamp(), fingerprint = NULL, name = left(name, 75) || ' #' || id
WHERE id = %(job)s
"""
_DENIED: Final = """
SELECT d.id, d.claimed_by IS NULL FROM domains d WHERE d.id IN (
    SELECT jd.domain_id FROM job_domains jd WHERE jd.job_id = %(job)s AND jd.denied > 0 AND jd.domain_id > %(after)s
    ORDER BY jd.domain_id LIMIT %(chunk)s)
ORDER BY d.id FOR NO KEY UPDATE
"""
_DEEPER: Final = """
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after, deeper)
SELECT domain_id, %(job)s, 0, ''::bytea, %(depth)s FROM unnest(%(ids)s::bigint[]) AS t(domain_id) ORDER BY domain_id
"""
_DOMAINS: Final = """
SELECT d.id FROM domains d WHERE d.id IN (
    SELECT jd.domain_id FROM job_domains jd WHERE jd.job_id = %(job)s AND jd.domain_id > %(after)s ORDER BY jd.domain_id LIMIT %(chunk)s)
ORDER BY d.id FOR NO KEY UPDATE
"""
_DUE_NOW: Final = """
UPDATE domains SET next_crawl_after = clock_timestamp()
WHERE id = ANY(%(ids)s) AND status = 'exhausted' AND next_crawl_after IS NULL AND claimed_by IS NULL
"""
# Domains of the job where something failed. Those that are held and new to the job are known by their wakes only.
_RETRIED: Final = """
SELECT d.id FROM domains d
JOIN (SELECT domain_id, failed, denied, not_before, pages = 0 AND denied > 0 AS in_vain FROM job_domains WHERE job_id = %(job)s
      UNION ALL SELECT DISTINCT domain_id, 0::bigint, 0::bigint, NULL::timestamptz, false FROM domain_wakes w
      WHERE job_id = %(job)s AND NOT EXISTS (SELECT FROM job_domains jd WHERE jd.domain_id = w.domain_id AND jd.job_id = w.job_id)) jd
    ON jd.domain_id = d.id
WHERE jd.failed > 0 OR jd.not_before > clock_timestamp() OR d.status = 'unreachable' OR d.circuit_open_until IS NOT NULL
   OR (%(no_robots)s AND (jd.denied > 0 OR (d.status = 'blocked' AND d.block_reason_code = 'robots_denied')))
   OR (%(logged_in)s AND d.status = 'blocked' AND d.block_reason_code = 'login_required')
   OR EXISTS (SELECT FROM domain_robots r WHERE r.domain_id = d.id AND NOT r.reachable AND r.expires_at > clock_timestamp())
   OR (jd.in_vain AND EXISTS (SELECT FROM url_frontier f WHERE f.domain_id = d.id AND f.job_id = %(job)s AND f.state = 'denied'
                             AND f.reason LIKE %(no_https)s))
ORDER BY d.id
"""
_LOCK_DOMAINS: Final = """
SELECT id, claimed_by IS NULL FROM domains WHERE id = ANY(%(ids)s) AND removed_at IS NULL ORDER BY id FOR NO KEY UPDATE
"""
# Other jobs on these domains only stop waiting: URLs that failed for them are not retried.
_RETRY: Final = """
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after, retry)
SELECT id, %(job)s, 0, ''::bytea, %(causes)s::text[] FROM unnest(%(ids)s::bigint[]) AS t(id)
UNION ALL
SELECT jd.domain_id, jd.job_id, 0, ''::bytea, '{}' FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id
WHERE jd.domain_id = ANY(%(ids)s) AND jd.job_id <> %(job)s AND jd.state = 'open' AND jd.waiting > 0
  AND j.state <> 'cancelled'
ORDER BY 1, 2
"""
_RETRY_URLS: Final = """
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_key, priority, hops)
SELECT f.domain_id, f.job_id, 0, f.url_key, f.priority, f.hops
FROM unnest(%(domains)s::bigint[], %(keys)s::bytea[]) AS t(domain_id, url_key)
JOIN url_frontier f ON f.domain_id = t.domain_id AND f.job_id = %(job)s AND f.url_key = t.url_key
WHERE f.state <> 'waiting' ORDER BY f.domain_id, f.url_key
"""
_HELD_BACK: Final = """
SELECT domain, back_off_until FROM domains WHERE id = ANY(%(ids)s) AND back_off_until > clock_timestamp() + %(pause)s
ORDER BY back_off_until DESC, domain LIMIT %(limit)s
"""

# Types with the domains that have URLs of them; which of these types a job takes is decided in Python.
_WRONG_TYPES: Final = """
SELECT f.domain_id, f.url_key, split_part(f.reason, ': ', 2)
FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id
WHERE jd.job_id = %(job)s AND jd.domain_id >= %(domain)s AND (f.domain_id, f.url_key) > (%(domain)s, %(key)s) AND f.state = 'done'
  AND f.reason LIKE %(reason)s
ORDER BY f.domain_id, f.url_key LIMIT %(chunk)s
"""

_WANTS_LOGIN: Final = """
SELECT EXISTS (SELECT FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
               WHERE jd.job_id = %(job)s AND d.status = 'blocked' AND d.block_reason_code = 'login_required')
    OR EXISTS (SELECT FROM job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id
               WHERE jd.job_id = %(job)s AND jd.failed > 0 AND f.state = 'failed' AND f.reason LIKE %(wall)s)
"""

# The job of all tasks is left out: it never ends, and its page is another one.
_MATCHING: Final = """
SELECT id, name FROM crawl_jobs WHERE deleted_at IS NULL AND kind = 'crawl' AND state::text = ANY(%(states)s)
  AND (%(prefix)s::text IS NULL OR starts_with(name, %(prefix)s)) AND (%(scheduled)s::boolean IS NULL OR schedule IS NOT NULL)
ORDER BY id LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A domain that is not tried yet, because its server asked for a pause."""

    domain: str
    until: datetime


def is_named(connection: psycopg.Connection, name: str) -> bool:
    """Whether there is a job of exactly this name."""
    row = connection.execute("SELECT EXISTS (SELECT FROM crawl_jobs WHERE name = %s)", (name,)).fetchone()
    return bool(row and row[0])


def matching(
    connection: psycopg.Connection, where: JobFilter, action: JobAction, *, limit: int
) -> list[tuple[int, str]]:
    """The jobs of a filter that an action would change, by id: ids and names."""
    given = where.given()
    states = [
        state for state in JobState if state_after(action, state) not in (None, state) and where.state in (None, state)
    ]
    values = {"states": states, "prefix": given.get("prefix"), "scheduled": given.get("scheduled"), "limit": limit}
    return connection.execute(_MATCHING, values).fetchall()


def was_paused(connection: psycopg.Connection, job_id: int, since: datetime) -> bool:
    """Whether a job is paused or cancelled, or was resumed since then. Raises NotFound if it was deleted."""
    row = connection.execute(
        "SELECT state IN ('paused', 'cancelled') OR COALESCE(resumed_at >= %s, false) FROM crawl_jobs WHERE id = %s AND deleted_at IS NULL",
        (since, job_id),
    ).fetchone()
    if row is None:
        raise NotFound(f"There is no job {job_id} any more.")
    return bool(row[0])


def act(connection: psycopg.Connection, job_id: int, action: JobAction) -> StateChange:
    """Pause, resume or cancel a job. Refused where its state forbids it.

    Before: nothing. After (with the commit): its workers are notified; a resumed job has parked work: `jobs.unpark`.
    """
    job, before = crawls.lock(connection, job_id)
    if action is JobAction.CANCEL and job.kind is JobKind.TASKS:
        raise Refused(
            f"Job {job.name} is the one of all tasks and cannot be cancelled; `holdfast jobs pause {job.name}` stops it."
        )
    after = state_after(action, before)
    if after is None:
        raise Refused(f"Job {job.name} is {before}; you cannot {action} it.")
    if after is not before:
        connection.execute(_SET_STATE, {"job": job_id, "state": after})
        if after is JobState.CANCELLED:
            connection.execute(_END_CRAWL, {"job": job_id})
    return StateChange(job_id, job.name, before, after)


def check_schedulable(connection: psycopg.Connection, job_id: int) -> None:
    """Lock a job. Refused for the job of the tasks, which have schedules of their own."""
    job, _ = crawls.lock(connection, job_id)
    if job.kind is JobKind.TASKS:
        raise Refused(f"Job {job.name} is the one of all tasks, and each of them has its own frequency.")


def delete(connection: psycopg.Connection, job_id: int) -> str:
    """Delete a job; returns its name. Refused for a standing job.

    Before: nothing. After (with the commit): it is not found and not crawled any more; its rows remain until `jobs.forget`.
    """
    job, _ = crawls.lock(connection, job_id)
    if job.name in jobs.STANDING:
        raise Refused(
            f"Job {job.name} is a standing one and cannot be deleted; `holdfast jobs pause {job.name}` stops it."
        )
    connection.execute(_DELETE, {"job": job_id})
    connection.execute("DELETE FROM job_seed_files WHERE job_id = %(job)s", {"job": job_id})
    request_secrets.forget_job(connection, job_id)
    connection.execute(_END_CRAWL, {"job": job_id})
    return job.name


def raise_depth_limit(connection: psycopg.Connection, job_id: int, depth: int) -> None:
    """Requeue a job's URLs that were too deep, down to `depth`.

    Before: no transaction is open. After: every domain of the job with denied URLs has a wake for it, folded already (or its first
    chunk) where no worker holds the domain. Idempotent.
    """
    after = 0
    while True:
        with connection.transaction():
            rows = connection.execute(_DENIED, {"job": job_id, "after": after, "chunk": CHUNK}).fetchall()
            ids = [row[0] for row in rows]
            connection.execute(_DEEPER, {"job": job_id, "ids": ids, "depth": depth})
            claimable.fold_wakes(connection, [domain_id for domain_id, is_free in rows if is_free])
            claimable.update_ready(connection, ids)
        if len(ids) < CHUNK:
            return
        after = ids[-1]


def make_refresh_due(connection: psycopg.Connection, job_id: int) -> None:
    """Make the domains of a job due whose refresh date passed before refresh was enabled. Before: no transaction is open."""
    after = 0
    while True:
        with connection.transaction():
            found = connection.execute(_DOMAINS, {"job": job_id, "after": after, "chunk": CHUNK})
            ids = [row[0] for row in found]
            connection.execute(_DUE_NOW, {"ids": ids})
        if len(ids) < CHUNK:
            return
        after = ids[-1]


def retried_reasons(spec: JobSpec, *, logged_in: bool = False) -> frozenset[str]:
    """The reasons of a job's URLs that are retried under this spec: those of the network, and those that an option removes.

    `logged_in`: a header, a cookie or a password was set for its sites.
    """
    removed = {str(Outcome.ADDRESS_REFUSED)} if spec.allow_private else set()
    removed |= {str(Outcome.LOGIN_WALL)} if logged_in else set()
    return claimable.NETWORK_REASONS | removed | (set() if spec.robots else {str(Outcome.ROBOTS_DENIED)})


def retry(connection: psycopg.Connection, job_id: int, spec: JobSpec, *, logged_in: bool = False) -> list[HeldBack]:
    """Retry the domains of a job where something failed; returns some of those whose server asked for a pause.

    Before: the job's new seeds are in the database. No transaction is open, or one (of a request with an idempotency key) that made the
    job: no other process knows its URLs, so it waits for domains, in the order of their ids, while none waits for it; it keeps them
    locked until it commits, and the 5 s count from when each was locked. After: each such domain has a wake for it, folded already
    where no worker holds the domain; a worker that holds one releases it within about a second.
    """
    reasons = retried_reasons(spec, logged_in=logged_in)
    parameters = {
        "job": job_id,
        "no_robots": not spec.robots,
        "logged_in": logged_in,
        "no_https": f"{Outcome.NO_HTTPS}:%",
    }
    ids = [row[0] for row in connection.execute(_RETRIED, parameters).fetchall()]
    for first in range(0, len(ids), CHUNK):
        with connection.transaction():
            wake_for_retry(connection, ids[first : first + CHUNK], job_id, reasons)
    if spec.types:
        _retry_types(connection, job_id, spec)
    found = connection.execute(_HELD_BACK, {"ids": ids, "pause": claimable.RETRY_PAUSE, "limit": _MAX_HELD_BACK})
    return [HeldBack(*row) for row in found]


def _retry_types(connection: psycopg.Connection, job_id: int, spec: JobSpec) -> None:
    """Retry the URLs of a job whose content was not read for its type, and would be now. Of a type that says nothing they are not: it is
    not known that their content is wanted. Before and after: as for `retry`."""
    taken = expand(spec.types)
    parameters = {"job": job_id, "domain": 0, "key": b"", "reason": f"{Outcome.WRONG_TYPE}:%", "chunk": TYPES_CHUNK}
    while rows := connection.execute(_WRONG_TYPES, parameters).fetchall():
        by_domain: dict[int, list[tuple[int, bytes]]] = {}
        for domain_id, key, name in rows:
            if is_wanted(name, taken):
                by_domain.setdefault(domain_id, []).append((domain_id, key))
        for domain_id, keys in by_domain.items():
            with connection.transaction():
                wake_for_retry(connection, [domain_id], job_id, (), keys=keys)
        parameters |= {"domain": rows[-1][0], "key": rows[-1][1]}


def wants_login(connection: psycopg.Connection, job_id: int) -> bool:
    """Whether a domain of the job is blocked because it requires a login, or a URL of it failed for that reason."""
    row = connection.execute(_WANTS_LOGIN, {"job": job_id, "wall": f"{Outcome.LOGIN_WALL}%"}).fetchone()
    return bool(row and row[0])


def wake_for_retry(
    connection: psycopg.Connection,
    domain_ids: Sequence[int],
    job_id: int,
    reasons: Collection[str],
    *,
    keys: Sequence[tuple[int, bytes]] = (),
    only_urls: bool = False,
) -> None:
    """Ask for a retry of a job's URLs on these domains: of those that ended for one of these reasons, and of single ones, by domain and
    key. `only_urls`: nothing else of the domains is tried again, and no pause counts; a worker that holds one goes on with it.

    Before: the caller's transaction has locked no domain with a higher id. After (with its commit): each of the domains that is not
    removed has a wake for it, folded already where no worker holds the domain.
    """
    rows = connection.execute(_LOCK_DOMAINS, {"ids": list(domain_ids)}).fetchall()
    ids = [row[0] for row in rows]
    free = [domain_id for domain_id, is_free in rows if is_free]
    if not only_urls:
        claimable.mark_retried(connection, ids)
        connection.execute(_RETRY, {"ids": ids, "job": job_id, "causes": sorted(reasons)})
    if keys:
        own = [key for key in keys if key[0] in ids]
        parameters = {"job": job_id, "domains": [key[0] for key in own], "keys": [key[1] for key in own]}
        connection.execute(_RETRY_URLS, parameters)
    claimable.fold_wakes(connection, free)
    claimable.update_ready(connection, free)
    if len(free) < len(ids):
        listen_notify.notify(connection, job_id)
