"""Jobs: their states and schedules, and the work that follows from a resume or a deletion.

The rule: no statement touches all work of a big job. Work that was parked while a job was paused is made ready in chunks, and the rows of
a deleted job are deleted in chunks: by the command that asked for it, or by the sweep if that was killed.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import psycopg

from holdfast.db import claimable, transitions
from holdfast.errors import NotFound
from holdfast.model.domain import Event, Status, status_reason
from holdfast.model.job import JobState

DEFAULT: Final = "default"
"""The standing job that seeds feed."""
TASKS: Final = "tasks"
"""The standing job whose frontier tasks are."""
STANDING: Final = frozenset({DEFAULT, TASKS})
CHUNK: Final = 500
LATECOMERS: Final = timedelta(minutes=2)
"""For this long after a resume parked work is searched again; longer than a statement may take."""
ROWS: Final = 10_000
"""Frontier rows that one transaction deletes."""
SEED_ROWS: Final = 10_000
"""Seeds that one transaction deletes."""
_DEADLOCK_RETRIES: Final = 5
GRAVE: Final = timedelta(minutes=10)
"""How long the row of a deleted job stays: a batch that began before may still write for it, and those rows are deleted, too."""

# The id first: links name jobs by it, and a job whose name is a number must not hide another one.
_NAMED: Final = """
SELECT id FROM crawl_jobs WHERE deleted_at IS NULL AND (name = %(text)s OR id::text = %(text)s) ORDER BY name = %(text)s LIMIT 1
"""
# Seeds, a reset and other requests belong to the open crawl, or to a new one if none is open.
_ASK_FOR_CRAWL: Final = """
UPDATE crawl_jobs j SET new_crawl = true WHERE j.id = ANY(%(jobs)s) AND NOT j.new_crawl
  AND NOT EXISTS (SELECT FROM crawls c WHERE c.job_id = j.id AND c.state <> 'finished')
"""
_ENDED: Final = ("completed", "failed")
_LOCK_ALL: Final = (
    "SELECT id FROM crawl_jobs WHERE id = ANY(%(jobs)s) AND deleted_at IS NULL ORDER BY id FOR NO KEY UPDATE"
)
_REOPEN: Final = """
UPDATE crawl_jobs SET state = 'pending', completed_at = NULL, state_reason = %(reason)s
WHERE id = %(job)s AND state::text = ANY(%(ended)s) AND deleted_at IS NULL
"""
_PARKED_JOBS: Final = """
SELECT id FROM runnable_jobs WHERE parked_after IS NOT NULL ORDER BY id
"""
# The job's row before those of its domains, in the order of transactions that add URLs.
_PARKED: Final = """
SELECT j.parked_after FROM crawl_jobs j WHERE j.id = %(job)s AND j.parked_after IS NOT NULL AND job_is_runnable(j)
FOR NO KEY UPDATE
"""
# Otherwise workers would wait here for each other, and an operator who pauses the job again for all of them.
_PARKED_IF_FREE: Final = f"{_PARKED.rstrip()} SKIP LOCKED"
_PARKED_WORK: Final = """
SELECT d.id FROM domains d WHERE d.id IN (
    SELECT domain_id FROM job_domains WHERE job_id = %(job)s AND state = 'open' AND NOT ready AND domain_id > %(after)s
    ORDER BY domain_id LIMIT %(chunk)s)
ORDER BY d.id FOR NO KEY UPDATE
"""
# Transactions that saw the job paused may still commit rows that are not ready: for a while it is searched repeatedly.
_UNPARKED: Final = """
UPDATE crawl_jobs j SET parked_after = COALESCE(%(next)s, CASE WHEN resumed_at > clock_timestamp() - %(while)s THEN 0 END)
WHERE j.id = %(job)s AND j.parked_after = %(after)s AND job_is_runnable(j)
"""

_GRAVES: Final = "SELECT id FROM crawl_jobs WHERE deleted_at IS NOT NULL ORDER BY id"
_ALIVE: Final = "SELECT id FROM crawl_jobs WHERE id = ANY(%(jobs)s) AND deleted_at IS NULL"
_BURY: Final = """
DELETE FROM crawl_jobs j WHERE j.id = %(job)s AND j.deleted_at < clock_timestamp() - %(grave)s
  AND NOT EXISTS (SELECT FROM job_domains WHERE job_id = j.id) AND NOT EXISTS (SELECT FROM domain_wakes WHERE job_id = j.id)
  AND NOT EXISTS (SELECT FROM job_seeds WHERE job_id = j.id)
"""
_ITS_DOMAINS: Final = """
SELECT domain_id, sum(rows)::bigint FROM (
    (SELECT domain_id, discovered AS rows FROM job_domains WHERE job_id = %(job)s ORDER BY domain_id LIMIT %(chunk)s)
    UNION ALL (SELECT domain_id, inserted FROM domain_wakes WHERE job_id = %(job)s ORDER BY domain_id LIMIT %(chunk)s)) both_kinds
GROUP BY domain_id ORDER BY domain_id LIMIT %(chunk)s
"""
# FOR UPDATE: a transaction that inserts URLs for a domain without holding it shares the row, and is waited for.
_LOCK_DOMAINS: Final = "SELECT id FROM domains WHERE id = ANY(%(ids)s) ORDER BY id FOR UPDATE"
_IS_GUESSED_SEED: Final = "SELECT guessed FROM job_seeds WHERE job_id = %(job)s AND url_key = %(key)s"
_FORGET_SEEDS: Final = """
WITH chunk AS (SELECT url_key FROM job_seeds WHERE job_id = %(job)s ORDER BY url_key LIMIT %(rows)s)
DELETE FROM job_seeds s USING chunk WHERE s.job_id = %(job)s AND s.url_key = chunk.url_key
"""
_FORGET: Final = """
WITH chunk AS MATERIALIZED (
    SELECT domain_id, url_key FROM url_frontier WHERE domain_id = ANY(%(ids)s) AND job_id = %(job)s
    ORDER BY domain_id, url_key LIMIT %(rows)s
)
SELECT forget_urls(array_agg(domain_id), array_agg(%(job)s::bigint), array_agg(url_key)) FROM chunk
"""
_FORGET_WORK: Final = """
WITH wakes AS (
    DELETE FROM domain_wakes WHERE domain_id = ANY(%(ids)s) AND job_id = %(job)s
), templates AS (
    DELETE FROM url_templates WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM url_templates WHERE domain_id = ANY(%(ids)s) AND job_id = %(job)s LIMIT %(rows)s))
)
DELETE FROM job_domains jd WHERE jd.domain_id = ANY(%(ids)s) AND jd.job_id = %(job)s
  AND NOT EXISTS (SELECT FROM url_frontier f WHERE f.domain_id = jd.domain_id AND f.job_id = jd.job_id)
"""
# Where this job's URLs were the last, no further visit finds the end and sets the date of the refresh for the other jobs. By the same
# proof as at a release. Held or not: the holder may be dead, or there for tasks, which do not change the status.
_COME_TO_REST: Final = """
SELECT d.id FROM domains d
WHERE d.id = ANY(%(ids)s) AND d.status = 'active' AND NOT EXISTS (
    SELECT FROM (SELECT job_id FROM job_domains WHERE domain_id = d.id AND state <> 'done'
                 UNION ALL SELECT job_id FROM domain_wakes WHERE domain_id = d.id) work JOIN crawl_jobs j ON j.id = work.job_id
    WHERE j.state <> 'cancelled' AND j.kind = 'crawl')
"""


_SCHEDULE: Final = """
UPDATE crawl_jobs SET schedule = %(schedule)s, next_run_at = %(next)s, beginning = false WHERE id = %(job)s
"""
_DUE: Final = """
SELECT j.id, j.schedule, j.next_run_at, clock_timestamp(),
       (j.beginning AND j.state <> 'cancelled') OR j.state IN ('completed', 'failed') OR (j.state = 'pending' AND NOT EXISTS (
           SELECT FROM job_domains jd WHERE jd.job_id = j.id AND jd.state IN ('open', 'parked'))) AS idle
FROM crawl_jobs j WHERE j.next_run_at <= clock_timestamp() AND j.deleted_at IS NULL AND j.kind = 'crawl' ORDER BY j.next_run_at, j.id
"""
_ALONE: Final = "SELECT pg_try_advisory_lock(hashtextextended('holdfast recurring jobs', 0))"
_OTHERS_TOO: Final = "SELECT pg_advisory_unlock(hashtextextended('holdfast recurring jobs', 0))"


@dataclass(frozen=True, slots=True)
class DueJob:
    """A scheduled job that is due."""

    job_id: int
    schedule: str
    due: datetime
    now: datetime
    """By the database's clock."""
    idle: bool
    """False: it is still running, paused or cancelled; this run is skipped."""


def find(connection: psycopg.Connection, text: str) -> int:
    """The id of the job with this name or, if none has it, with this id."""
    row = connection.execute(_NAMED, {"text": text}).fetchone()
    if row is None:
        raise NotFound(f"There is no job called {text!r}.")
    return int(row[0])


def id_of(connection: psycopg.Connection, named: str | int) -> int:
    """Return the id of a job that is named by its name or its id. Raises NotFound."""
    if isinstance(named, str):
        return find(connection, named)
    state(connection, named)
    return named


def is_runnable(connection: psycopg.Connection, job_id: int) -> bool:
    """Whether workers may crawl a job: it is not paused, ended, cancelled or deleted."""
    row = connection.execute("SELECT EXISTS (SELECT FROM runnable_jobs WHERE id = %s)", (job_id,)).fetchone()
    return bool(row and row[0])


def is_guessed_seed(connection: psycopg.Connection, job_id: int, url_key: bytes) -> bool:
    """Whether this URL is a seed of the job whose scheme was guessed."""
    row = connection.execute(_IS_GUESSED_SEED, {"job": job_id, "key": url_key}).fetchone()
    return bool(row and row[0])


def state(connection: psycopg.Connection, job_id: int) -> JobState:
    """The state of a job. Raises NotFound if it was deleted."""
    row = connection.execute(
        "SELECT state::text FROM crawl_jobs WHERE id = %s AND deleted_at IS NULL", (job_id,)
    ).fetchone()
    if row is None:
        raise NotFound(f"There is no job {job_id} any more.")
    return JobState(row[0])


def ask_for_crawl(connection: psycopg.Connection, job_ids: Sequence[int]) -> None:
    """Let the next worker begin a new crawl of these jobs, with new budgets, at the request of an operator or a schedule.

    After: a job with an open crawl is unchanged: new work belongs to that crawl.
    """
    connection.execute(_ASK_FOR_CRAWL, {"jobs": sorted(job_ids)})


def lock(connection: psycopg.Connection, job_ids: Collection[int], *, wait: bool = True) -> set[int]:
    """Lock these jobs, so that none of them ends meanwhile; returns their ids. Without `wait`, locked ones are left out."""
    query = _LOCK_ALL if wait else f"{_LOCK_ALL} SKIP LOCKED"
    return {row[0] for row in connection.execute(query, {"jobs": sorted(job_ids)})}


def reopen(connection: psycopg.Connection, job_id: int, why: str) -> None:
    """Make a completed or failed job pending again; a job in any other state stays as it is.

    After (with the commit): watchers see `reopened` with the reason. Whether its last crawl continues or a new one begins depends
    on `ask_for_crawl` alone.
    """
    connection.execute(_REOPEN, {"job": job_id, "reason": why, "ended": list(_ENDED)})


def set_schedule(
    connection: psycopg.Connection, job_id: int, schedule: str | None, next_run_at: datetime | None
) -> None:
    """Set the schedule of a job and its next run; None: none. After: it is not `beginning` any more."""
    connection.execute(_SCHEDULE, {"job": job_id, "schedule": schedule, "next": next_run_at})


def begins(connection: psycopg.Connection, job_id: int) -> None:
    """Note that a scheduled job is being begun; until `set_schedule`, the next scheduler begins it again."""
    connection.execute("UPDATE crawl_jobs SET beginning = true WHERE id = %s", (job_id,))


def now(connection: psycopg.Connection) -> datetime:
    """The time of the database's clock, which schedules use."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None  # noqa: S101 — a select without a table answers with a row
    moment: datetime = row[0]
    return moment


def any_scheduled(connection: psycopg.Connection) -> bool:
    """Whether any job has a schedule."""
    row = connection.execute("SELECT EXISTS (SELECT FROM crawl_jobs WHERE next_run_at IS NOT NULL)").fetchone()
    return bool(row and row[0])


def due(connection: psycopg.Connection) -> list[DueJob]:
    """Scheduled jobs that are due."""
    return [DueJob(*row) for row in connection.execute(_DUE)]


@contextmanager
def alone(connection: psycopg.Connection) -> Iterator[bool]:
    """A lock for the only process that begins scheduled jobs; yields whether this process has it."""
    row = connection.execute(_ALONE).fetchone()
    mine = bool(row and row[0])
    try:
        yield mine
    finally:
        if mine and not connection.broken:
            connection.execute(_OTHERS_TOO)


def parked(connection: psycopg.Connection) -> list[int]:
    """Jobs that workers may crawl and that have work which was parked while they were paused."""
    return [row[0] for row in connection.execute(_PARKED_JOBS)]


def unpark(connection: psycopg.Connection, job_id: int, *, wait: bool = True) -> int | None:
    """Make a chunk of parked work ready; returns the number of domains. None: that was the last chunk, or there is none; without
    `wait`, also if another process does it.

    Before: no transaction is open. After: when it was called until it returned None, also by several processes at once, all claimable
    work of the job is ready, except for rows that transactions which saw it paused have not committed yet; the sweep finds those.
    """
    with connection.transaction():
        row = connection.execute(_PARKED if wait else _PARKED_IF_FREE, {"job": job_id}).fetchone()
        if row is None:
            return None
        key = {"job": job_id, "after": row[0], "chunk": CHUNK}
        ids = [found[0] for found in connection.execute(_PARKED_WORK, key)]
        claimable.update_ready(connection, ids)
        more = len(ids) == CHUNK
        connection.execute(_UNPARKED, key | {"next": ids[-1] if more else None, "while": LATECOMERS})
    return len(ids) if more else None


def graves(connection: psycopg.Connection) -> list[int]:
    """Deleted jobs, of which rows may be left."""
    return [row[0] for row in connection.execute(_GRAVES)]


def dead(connection: psycopg.Connection, job_ids: Collection[int]) -> set[int]:
    """Which of these jobs were deleted. Nothing may be written for them."""
    return set(job_ids) - {row[0] for row in connection.execute(_ALIVE, {"jobs": sorted(job_ids)})}


def forget(connection: psycopg.Connection, job_id: int) -> int | None:
    """Delete up to ROWS URLs of a deleted job with their pages and texts; returns how many. None: there is nothing left.

    The log of requests stays. Before: the job is deleted; no transaction is open. After: counters are right at every moment; a domain
    that was active for this job alone is exhausted; the row of the job is deleted after GRAVE.
    """
    for _ in range(
        _DEADLOCK_RETRIES
    ):  # a batch fences its own domains before it shares others, in another order than ours
        with suppress(psycopg.errors.DeadlockDetected):
            return _forget(connection, job_id)
    return _forget(connection, job_id)


def _forget(connection: psycopg.Connection, job_id: int) -> int | None:
    with connection.transaction():
        found = connection.execute(_ITS_DOMAINS, {"job": job_id, "chunk": CHUNK}).fetchall()
        if not found:
            if connection.execute(_FORGET_SEEDS, {"job": job_id, "rows": SEED_ROWS}).rowcount:
                return 0
            connection.execute(_BURY, {"job": job_id, "grave": GRAVE})
            return None
        ids: list[int] = []
        room = ROWS
        for domain_id, rows in found:
            if ids and rows > room:
                break
            ids.append(domain_id)
            room -= rows
        key = {"job": job_id, "ids": ids, "rows": ROWS}
        connection.execute(_LOCK_DOMAINS, key)
        claimable.fold_counts(connection, ids)
        row = connection.execute(_FORGET, key).fetchone()
        connection.execute(_FORGET_WORK, key)
        come_to_rest(connection, ids, status_reason(Event.FRONTIER_EMPTY, "its job was deleted"))
        claimable.update_ready(connection, ids)  # wakes of other jobs were folded
    return int(row[0]) if row else 0


def come_to_rest(
    connection: psycopg.Connection, domain_ids: Sequence[int], why: str, *, rest: timedelta | None = None
) -> None:
    """Set those of these domains to exhausted that were active and have no work left, in any job.

    Their pages are refreshed after `rest`; None: after the domain's own interval. Never at once, however long ago they were crawled.

    Before: the domain rows are locked FOR UPDATE by this transaction, and their wakes are folded.
    """
    idle = [row[0] for row in connection.execute(_COME_TO_REST, {"ids": list(domain_ids)})]
    transitions.change(connection, idle, Status.EXHAUSTED, only_from=[Status.ACTIVE], reason=why, cooldown=rest)
