"""Jobs and their crawls: find, begin, continue, report status, stop. `db/job_ends` ends them.

A crawl is one invocation of a job; budgets count in it. The rules: only an operator or a schedule begins a new crawl, while the sweep
continues the last one under what is left of its limits; and nothing here changes many rows of a big job in one statement.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import psycopg

from holdfast.db import claimable, edits, jobs, rounds, transitions
from holdfast.errors import NotFound, Refused
from holdfast.model.domain import Event, Status, status_reason
from holdfast.model.job import Job, JobKind, JobSpec, JobState, Limit

CHUNK: Final = 500
HEARTBEAT_TIMEOUT: Final = timedelta(minutes=2)
"""A run without a heartbeat for this long is not counted as serving a job."""

_JOB: Final = """
SELECT j.id, j.name, j.spec, c.id, j.kind::text, j.settings_version, j.rules_version
FROM crawl_jobs j LEFT JOIN crawls c ON c.job_id = j.id AND c.state <> 'finished'
"""

_LOCK: Final = """
SELECT j.id, j.name, j.spec, c.id, j.kind::text, j.settings_version, j.rules_version, j.state::text
FROM crawl_jobs j LEFT JOIN crawls c ON c.job_id = j.id AND c.state <> 'finished'
WHERE j.id = %(job)s AND j.deleted_at IS NULL FOR NO KEY UPDATE OF j
"""
_BEGIN: Final = "SELECT state, spec, new_crawl FROM crawl_jobs WHERE id = %(job)s FOR NO KEY UPDATE"
_PROCESSING: Final = """
UPDATE crawl_jobs SET state = 'processing', completed_at = NULL, new_crawl = false
WHERE id = %(job)s AND (state <> 'processing' OR new_crawl)
"""
# The last crawl of the job, if it is open or may be reopened.
_OPEN: Final = """
SELECT id, state NOT IN ('stopped', 'finished'), (max_pages, max_pages_per_domain, max_rounds)
    IS NOT DISTINCT FROM (%(max_pages)s::bigint, %(per_domain)s::bigint, %(rounds)s::integer)
FROM crawls WHERE id = (SELECT max(id) FROM crawls WHERE job_id = %(job)s) AND (state <> 'finished' OR %(reopen)s)
FOR NO KEY UPDATE
"""
# Where a limit is new, pages used without one count as granted.
_NEW_LIMITS: Final = """
    max_pages = %(max_pages)s, max_pages_per_domain = %(per_domain)s, max_rounds = %(rounds)s,
    pages_granted = CASE
    WHEN %(max_pages)s::bigint IS NULL OR c.max_pages IS NOT NULL THEN c.pages_granted
    ELSE (SELECT COALESCE(sum(jd.granted), 0)::bigint FROM job_domains jd WHERE jd.job_id = c.job_id AND jd.crawl_id = c.id) END
"""
_GO_ON: Final = f"UPDATE crawls c SET state = 'running', ended_at = NULL, {_NEW_LIMITS} WHERE c.id = %(crawl)s"  # noqa: S608 — constants
# A batch that is being committed has read the limit of before, and is not in the sum yet: its domains are waited for.
_UNLIMITED: Final = """
SELECT %(max_pages)s::bigint IS NOT NULL AND EXISTS (
    SELECT FROM crawls WHERE job_id = %(job)s AND state <> 'finished' AND max_pages IS NULL)
"""
_HELD: Final = """
SELECT d.id FROM domains d WHERE d.claimed_by IS NOT NULL AND EXISTS (
    SELECT FROM job_domains jd WHERE jd.domain_id = d.id AND jd.job_id = %(job)s)
ORDER BY d.id FOR NO KEY UPDATE OF d
"""
_SET_LIMITS: Final = f"UPDATE crawls c SET {_NEW_LIMITS} WHERE c.job_id = %(job)s AND c.state <> 'finished'"  # noqa: S608 — constants
_NEW: Final = """
INSERT INTO crawls (job_id, max_pages, max_pages_per_domain, max_rounds)
VALUES (%(job)s, %(max_pages)s, %(per_domain)s, %(rounds)s) RETURNING id
"""

# Work that a crawl before this one left behind: out of its budget, or made while the job was not runnable.
_LEFT_BEHIND: Final = """
SELECT d.id FROM domains d WHERE d.id IN (
    SELECT jd.domain_id FROM job_domains jd
    WHERE jd.job_id = %(job)s AND jd.state IN ('open', 'spent') AND NOT jd.ready AND jd.domain_id > %(after)s
    ORDER BY jd.domain_id LIMIT %(chunk)s)
ORDER BY d.id FOR NO KEY UPDATE
"""
_UNSPEND: Final = """
UPDATE job_domains SET state = 'open', limit_reached = NULL WHERE job_id = %(job)s AND domain_id = ANY(%(ids)s) AND state = 'spent'
"""

_ALL: Final = """
SELECT d.id, d.claimed_by IS NULL FROM domains d WHERE d.id IN (
    SELECT jd.domain_id FROM job_domains jd WHERE jd.job_id = %(job)s AND jd.domain_id > %(after)s ORDER BY jd.domain_id LIMIT %(chunk)s)
ORDER BY d.id FOR NO KEY UPDATE
"""
_AGAIN: Final = """
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after)
SELECT domain_id, %(job)s, 0, ''::bytea FROM unnest(%(ids)s::bigint[]) AS t(domain_id) ORDER BY domain_id
"""
_START_OVER: Final = """
UPDATE crawl_jobs SET state = 'pending', completed_at = NULL, state_reason = 'it was started again'
WHERE id = %(job)s AND state IN ('completed', 'failed', 'cancelled')
"""

_STANDING: Final = """
WITH mine AS (
    SELECT count(*) AS rows, count(*) FILTER (WHERE ready) AS ready, COALESCE(sum(waiting), 0)::bigint AS waiting,
           count(*) FILTER (WHERE state = 'open' AND not_before IS NOT NULL) AS delayed,
           count(*) FILTER (WHERE state = 'spent') AS spent, count(*) FILTER (WHERE state = 'done') AS done,
           min(not_before) FILTER (WHERE state = 'open') AS next_at,
           count(*) FILTER (WHERE state = 'open' AND yielded_until > clock_timestamp()) AS yielding
    FROM job_domains WHERE job_id = %(job)s
), held AS (
    SELECT count(*) AS held FROM domains d JOIN job_domains jd ON jd.domain_id = d.id AND jd.job_id = %(job)s
    WHERE d.claimed_by IS NOT NULL AND jd.state = 'open'
), cooling AS (
    SELECT count(*) AS cooling, min(d.next_crawl_after) FILTER (WHERE d.next_crawl_after < 'infinity') AS next_at
    FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
    WHERE jd.job_id = %(job)s AND jd.state = 'open' AND NOT jd.ready AND d.next_crawl_after IS NOT NULL AND d.claimed_by IS NULL
)
SELECT held, ready, waiting, delayed, extract(epoch FROM LEAST(mine.next_at, cooling.next_at) - clock_timestamp())::float8,
       cooling, spent, (SELECT count(*) FROM domain_wakes WHERE job_id = %(job)s), done, rows,
       (SELECT max_pages - pages_granted FROM crawls WHERE id = %(crawl)s), yielding
FROM mine, held, cooling
"""
# A domain that reached a limit of its own says which; the others that are spent wait for pages of the crawl, if it has none left.
_LIMITS: Final = """
SELECT COALESCE(jd.limit_reached, 'max_pages') AS name,
       CASE WHEN jd.limit_reached IS NULL THEN min(c.max_pages)
            WHEN jd.limit_reached = 'max_pages_per_domain' THEN min(c.max_pages_per_domain)
            WHEN jd.limit_reached = 'rounds' THEN min(c.max_rounds)
            WHEN min(jd.budget_limit) = max(jd.budget_limit) THEN min(jd.budget_limit) END,
       count(*), sum(jd.waiting)::bigint
FROM job_domains jd JOIN crawls c ON c.id = %(crawl)s
WHERE jd.job_id = %(job)s AND jd.state = 'spent' AND jd.crawl_id = c.id
  AND (jd.limit_reached IS NOT NULL OR c.max_pages <= c.pages_granted)
GROUP BY jd.limit_reached ORDER BY name
"""

_STOP: Final = """
WITH stopped AS (
    UPDATE crawls c SET state = 'stopped' WHERE c.id = %(crawl)s AND c.state = 'running'
      AND NOT EXISTS (SELECT FROM crawl_runs r WHERE r.crawl_id = c.id AND r.status = 'running')
    RETURNING c.job_id
)
UPDATE crawl_jobs j SET state = 'pending' FROM stopped s WHERE j.id = s.job_id AND j.state = 'processing'
"""
LOCK_JOB: Final = """
SELECT j.id, j.name FROM crawl_jobs j JOIN crawls c ON c.job_id = j.id WHERE c.id = %(crawl)s FOR NO KEY UPDATE OF j
"""
# A job whose last crawl has used up its pages waits for an operator or its schedule.
_RUNNABLE: Final = f"""
{_JOB} WHERE job_is_runnable(j) AND EXISTS (SELECT FROM job_domains jd WHERE jd.job_id = j.id AND jd.ready)
  AND (c.id IS NOT NULL OR NOT job_is_used_up(j)) ORDER BY j.id
"""
# A crawl that was interrupted goes on, too: else no sweep would end it.
_TAKEN_UP: Final = """
WITH taken AS (UPDATE crawl_jobs SET state = 'processing' WHERE id = ANY(%(jobs)s) AND state = 'pending' RETURNING id)
UPDATE crawls SET state = 'running' WHERE job_id IN (SELECT id FROM taken) AND state = 'stopped'
"""
_URGENT: Final = """
SELECT j.id FROM crawl_jobs j WHERE j.kind = 'tasks' AND EXISTS (
    SELECT FROM job_domains jd WHERE jd.job_id = j.id AND jd.ready AND jd.priority > %(above)s)
"""
_ANOTHER: Final = """
SELECT EXISTS (
    SELECT FROM job_domains jd JOIN runnable_jobs j ON j.id = jd.job_id
    WHERE jd.domain_id = %(domain)s AND jd.job_id <> %(job)s AND jd.state = 'open' AND jd.waiting > 0
      AND (jd.not_before IS NULL OR jd.not_before <= GREATEST(clock_timestamp(), jd.yielded_until))
      AND EXISTS (SELECT FROM crawl_runs r WHERE r.status = 'running' AND (r.job_id IS NULL OR r.job_id = jd.job_id)
                  AND r.heartbeat_at > clock_timestamp() - %(silence)s))
"""


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A limit set by the operator that keeps URLs waiting."""

    limit: Limit
    value: int | None
    """The limit in pages or rounds. None: it differs between these domains."""
    domains: int
    waiting: int
    """URLs."""


@dataclass(frozen=True, slots=True)
class CrawlStatus:
    """Status of a job's crawl, in domains unless stated otherwise."""

    held: int
    ready: int
    waiting: int
    """URLs."""
    delayed: int
    next_in: float | None
    """Seconds until the first delayed or cooling domain can continue; None: none of them will by itself."""
    cooling: int
    spent: int
    wakes: int
    """Wakes that are not folded yet."""
    done: int
    rows: int
    """All domains on which the job has or had work."""
    budget_left: int | None
    """Pages of the crawl that are not granted; None: it has no limit."""
    yielding: int = 0
    """Domains on which it yielded to another job for a moment."""
    limits: tuple[LimitReached, ...] = ()
    """Limits set by the operator that keep URLs waiting."""


# Jobs ----------------------------------------------------------------------------------------------------------------


def find(connection: psycopg.Connection, *, name: str) -> Job | None:
    """The job called `name`, if there is one."""
    return _find_job(connection, f"{_JOB} WHERE j.name = %(key)s", name)


def named(connection: psycopg.Connection, name: str) -> Job:
    """The job of that name; NotFound if there is none."""
    found = find(connection, name=name)
    if found is None:
        raise NotFound(f"There is no job called {name!r}.")
    return found


def by_fingerprint(connection: psycopg.Connection, fingerprint: bytes) -> Job | None:
    """The job with these seeds and scope, if there is one."""
    return _find_job(connection, f"{_JOB} WHERE j.fingerprint = %(key)s", fingerprint)


def get(connection: psycopg.Connection, job_id: int) -> Job:
    """The job with this id; NotFound if there is none."""
    job = _find_job(connection, f"{_JOB} WHERE j.id = %(key)s AND j.deleted_at IS NULL", job_id)
    if job is None:
        raise NotFound(f"There is no job {job_id}.")
    return job


def create(connection: psycopg.Connection, *, name: str, spec: JobSpec, fingerprint: bytes | None) -> Job:
    """Create a job. Raises Refused if another job has its name or fingerprint."""
    try:
        row = connection.execute(
            "INSERT INTO crawl_jobs (name, spec, fingerprint) VALUES (%s, %s, %s) RETURNING id",
            (name, json.dumps(spec.as_json()), fingerprint),
        ).fetchone()
    except psycopg.errors.UniqueViolation as problem:
        raise Refused(f"There is a job called {name!r}, or one with the same seeds, already.") from problem
    assert row is not None  # noqa: S101 — INSERT … RETURNING answers with a row
    return Job(row[0], name, spec, None)


def set_spec(connection: psycopg.Connection, job_id: int, spec: JobSpec) -> None:
    """Change the spec of a job. After (with the commit): its running visits restart with it; `begin` applies its limits to the open
    crawl."""
    connection.execute("UPDATE crawl_jobs SET spec = %s WHERE id = %s", (json.dumps(spec.as_json()), job_id))


def lock(connection: psycopg.Connection, job_id: int) -> tuple[Job, JobState]:
    """Lock a job until the end of the transaction; returns it with its state. Raises NotFound if there is none."""
    row = connection.execute(_LOCK, {"job": job_id}).fetchone()
    if row is None:
        raise NotFound(f"There is no job {job_id}.")
    return _job_of_row(row[:-1]), JobState(row[-1])


def set_limits(connection: psycopg.Connection, job_id: int, spec: JobSpec) -> None:
    """Apply the limits of a spec to the open crawl, if there is one. Before: the job is locked, and has that spec."""
    key = {"job": job_id, **_limit_parameters(spec)}
    _wait_for_batches(connection, key)
    connection.execute(_SET_LIMITS, key)


def reopen_limited(connection: psycopg.Connection, job_id: int) -> None:
    """Reopen work that a limit kept waiting; a domain still over its limit is spent again at its next claim.

    Before: no transaction is open.
    """
    _reopen(connection, _LEFT_BEHIND, {"job": job_id})


def runnable(connection: psycopg.Connection) -> list[Job]:
    """Jobs that have something ready, each with an open crawl.

    Before: no transaction is open. After: those that had no open crawl have one: a new one if an operator or a schedule asked for it,
    else the last one, continued; all of them are processing. Crawls with only domains that waited for a round are in their next round.
    """
    rounds.advance_idle(connection)
    found = [_job_of_row(row) for row in connection.execute(_RUNNABLE).fetchall()]
    connection.execute(_TAKEN_UP, {"jobs": [job.id for job in found]})
    begun = []
    for job in found:
        with suppress(Refused):  # paused at this very moment
            begun.append(job if job.crawl_id else replace(job, crawl_id=begin(connection, job.id, reopen=True)[0]))
    return begun


def urgent_job(connection: psycopg.Connection) -> int | None:
    """The id of the tasks job if an urgent task is ready, else None."""
    row = connection.execute(_URGENT, {"above": claimable.STARTED_BONUS * 3 // 2}).fetchone()
    return int(row[0]) if row else None


def other_job_waits(connection: psycopg.Connection, domain_id: int, job_id: int) -> bool:
    """Whether another job has URLs waiting on this domain, and a worker that would crawl them."""
    row = connection.execute(_ANOTHER, {"domain": domain_id, "job": job_id, "silence": HEARTBEAT_TIMEOUT}).fetchone()
    return bool(row and row[0])


# Crawls --------------------------------------------------------------------------------------------------------------


def begin(connection: psycopg.Connection, job_id: int, *, reopen: bool = False) -> tuple[int, bool]:
    """Continue the open crawl or begin a new one; returns its id, and whether it continues an earlier one.

    `reopen`: no operator asks now, so the last crawl continues under what is left of its limits, unless a new one was requested before.
    Before: no transaction is open. After: the job is processing, the crawl has the limits of the job's present spec, and work left
    under other limits, or by a crawl before, can be claimed. Raises Refused if the job is paused or cancelled.
    """
    key: dict[str, object] = {"job": job_id}
    with connection.transaction():
        row = connection.execute(_BEGIN, key).fetchone()
        if row is None:
            raise NotFound(f"There is no job {job_id}.")
        state, spec, new_crawl = row
        if state in {"paused", "cancelled"}:
            way = "`holdfast jobs resume` resumes it" if state == "paused" else "--again starts it again"
            raise Refused(f"Job {job_id} is {state}; {way}.")
        key |= _limit_parameters(JobSpec.from_json(spec))
        key["reopen"] = reopen and not new_crawl
        _wait_for_batches(connection, key)
        connection.execute(_PROCESSING, key)
        opened = connection.execute(_OPEN, key).fetchone()
        if opened is None:
            opened, continued, as_before = connection.execute(_NEW, key).fetchone(), False, False
        else:
            _, running, same_limits = opened
            connection.execute(_GO_ON, key | {"crawl": opened[0]})
            continued, as_before = True, running and same_limits and state in {"pending", "processing"}
            if not same_limits:  # running visits were granted pages under the old limits
                edits.touch_job(connection, job_id)
    assert opened is not None  # noqa: S101 — INSERT … RETURNING answers with a row
    if not as_before:
        _reopen(connection, _LEFT_BEHIND, key)
    return int(opened[0]), continued


def restart(connection: psycopg.Connection, job_id: int) -> None:
    """Restart a job: all its known pages are fetched again.

    Before: no transaction is open. After: every domain of the job has a wake for it, folded already (or its first chunk) where the
    domain is not held; exhausted domains are pending; so is the job, if it had ended. Its next crawl is a new one.
    """
    connection.execute(_START_OVER, {"job": job_id})
    jobs.ask_for_crawl(connection, [job_id])
    after = 0
    while True:
        with connection.transaction():
            rows = connection.execute(_ALL, {"job": job_id, "after": after, "chunk": CHUNK}).fetchall()
            ids = [row[0] for row in rows]
            connection.execute(_AGAIN, {"job": job_id, "ids": ids})
            claimable.reset_budgets(connection, ids, job_id=job_id)
            words = status_reason(Event.REFRESH_DUE, "the job was started again")
            transitions.change(connection, ids, Status.PENDING, only_from=[Status.EXHAUSTED], reason=words)
            free = [domain_id for domain_id, is_free in rows if is_free]
            claimable.fold_wakes(connection, free)
            claimable.update_ready(connection, ids)
        if len(ids) < CHUNK:
            return
        after = ids[-1]


def status(connection: psycopg.Connection, job_id: int, crawl_id: int) -> CrawlStatus:
    """The present status of a crawl. Reads all work of the job: too expensive for every second of a big one."""
    row = connection.execute(_STANDING, {"job": job_id, "crawl": crawl_id}).fetchone()
    assert row is not None  # noqa: S101 — an aggregate answers with a row
    status = CrawlStatus(*row)
    if not status.spent:
        return status
    return replace(status, limits=limits_reached(connection, job_id, crawl_id))


def limits_reached(
    connection: psycopg.Connection, job_id: int, crawl_id: int | None = None
) -> tuple[LimitReached, ...]:
    """Limits set by the operator that keep URLs of a crawl waiting. `crawl_id` None: of the job's newest crawl."""
    if crawl_id is None:
        row = connection.execute("SELECT max(id) FROM crawls WHERE job_id = %s", (job_id,)).fetchone()
        crawl_id = row[0] if row else None
    found = connection.execute(_LIMITS, {"job": job_id, "crawl": crawl_id}).fetchall()
    return tuple(LimitReached(Limit(name), *counts) for name, *counts in found)


def stop(connection: psycopg.Connection, crawl_id: int) -> None:
    """Stop a crawl; it can continue later. Before: the caller's own run has ended. After: stopped, unless other runs serve it."""
    with connection.transaction():
        connection.execute(LOCK_JOB, {"crawl": crawl_id})  # before its crawl, the order of all locks
        connection.execute(_STOP, {"crawl": crawl_id})


def _reopen(connection: psycopg.Connection, select: str, key: dict[str, object]) -> int:
    """Make spent work open and open work ready, a chunk of locked domains at a time; returns the number of domains."""
    after = total = 0
    while True:
        with connection.transaction():
            parameters = {**key, "after": after, "chunk": CHUNK}
            ids = [row[0] for row in connection.execute(select, parameters)]
            connection.execute(_UNSPEND, {"job": key["job"], "ids": ids})
            claimable.update_ready(connection, ids)
        total += len(ids)
        if len(ids) < CHUNK:
            return total
        after = ids[-1]


def _wait_for_batches(connection: psycopg.Connection, key: Mapping[str, object]) -> None:
    """If the open crawl of a job gets its first limit: lock the domains that are held for it, before the crawl's row."""
    row = connection.execute(_UNLIMITED, key).fetchone()
    if row and row[0]:
        connection.execute(_HELD, key)


def _limit_parameters(spec: JobSpec) -> dict[str, object]:
    return {"max_pages": spec.max_pages, "per_domain": spec.max_pages_per_domain, "rounds": spec.rounds}


def _find_job(connection: psycopg.Connection, query: str, key: object) -> Job | None:
    row = connection.execute(query, {"key": key}).fetchone()
    return _job_of_row(row) if row else None


def _job_of_row(row: tuple[int, str, dict[str, object], int | None, str, int, int]) -> Job:
    job_id, name, spec, crawl_id, kind, *versions = row
    return Job(job_id, name, JobSpec.from_json(spec), crawl_id, JobKind(kind), *versions)


def forgotten_at(connection: psycopg.Connection, job_id: int) -> datetime | None:
    """Return when retention archived URLs of a job that has ended since; None: it did not, or the job was begun anew."""
    row = connection.execute(
        "SELECT aged_at FROM crawl_jobs WHERE id = %s AND state IN ('completed', 'failed', 'cancelled') AND aged_at > ended_at",
        (job_id,),
    ).fetchone()
    return row[0] if row else None
