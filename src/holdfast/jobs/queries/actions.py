"""Operators' changes of jobs: pause, resume, cancel, delete, a deeper limit, refreshes.

The rule: a change is one row, which workers read; no statement touches all work of a big job. The rest follows in chunks.
"""

from datetime import datetime
from typing import Final

import psycopg

from holdfast.db import claimable, crawls, jobs, request_secrets
from holdfast.errors import NotFound, Refused
from holdfast.jobs.records import StateChange
from holdfast.model.job import JobAction, JobKind, JobState, state_after

CHUNK: Final = 500
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


def is_named(connection: psycopg.Connection, name: str) -> bool:
    """Whether there is a job of exactly this name."""
    row = connection.execute("SELECT EXISTS (SELECT FROM crawl_jobs WHERE name = %s)", (name,)).fetchone()
    return bool(row and row[0])


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
