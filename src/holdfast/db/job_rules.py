"""The rules of jobs as versions: a new one for each edit, and the spreading of an edit to the job's domains.

The rule: the edit is one short transaction, which leaves a mark on the job (`rules_after`). Its URLs are judged again in chunks, a few
domains at a time, by the command that edited it, or by the sweep if that was killed. What a worker holds is left to it: its domain gets a
wake, which its release folds, or the sweep when the worker is dead.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg

from holdfast.db import claimable, crawls, job_ends, jobs
from holdfast.model.job import Job, JobSpec, JobState
from holdfast.model.scope import RuleSettings, rules_of_spec

CHUNK: Final = 500
ROWS: Final = 10_000
"""URLs that one transaction judges, unless a single domain has more: then as many of it."""

_FIRST: Final = """
INSERT INTO job_rules (job_id, version, rules, depth_limit, registrable, at)
SELECT id, 0, %(rules)s, %(depth)s, %(registrable)s, created_at FROM crawl_jobs WHERE id = %(job)s
ON CONFLICT (job_id, version) DO NOTHING
"""
_NEXT: Final = """
INSERT INTO job_rules (job_id, version, rules, depth_limit, registrable, actor, restores)
VALUES (%(job)s, %(version)s, %(rules)s, %(depth)s, %(registrable)s, %(actor)s, %(restores)s)
"""
_IN_FORCE: Final = "UPDATE crawl_jobs SET rules_version = %(version)s, rules_after = 0 WHERE id = %(job)s"
_HISTORY: Final = "SELECT version, rules, at, actor, restores FROM job_rules WHERE job_id = %(job)s ORDER BY version"

_EDITED_JOBS: Final = "SELECT id FROM crawl_jobs WHERE rules_after IS NOT NULL AND deleted_at IS NULL ORDER BY id"
# The job's row before those of its domains, in the order of transactions that add URLs.
_POSITION: Final = """
SELECT rules_after, state::text FROM crawl_jobs WHERE id = %(job)s AND rules_after IS NOT NULL AND deleted_at IS NULL FOR NO KEY UPDATE
"""
_POSITION_IF_FREE: Final = f"{_POSITION.rstrip()} SKIP LOCKED"
_MOVE: Final = "UPDATE crawl_jobs SET rules_after = %(after)s WHERE id = %(job)s"
# Only the last domain can have URLs left: one that has more than a chunk is alone in its transaction.
_UNFINISHED: Final = """
SELECT d.id FROM domains d WHERE d.id = %(after)s AND d.claimed_by IS NULL AND EXISTS (
    SELECT FROM domain_wakes w WHERE w.domain_id = d.id AND w.job_id = %(job)s AND w.by_rules) FOR NO KEY UPDATE
"""
_DOMAINS: Final = """
SELECT domain_id, waiting + denied FROM job_domains WHERE job_id = %(job)s AND domain_id > %(after)s ORDER BY domain_id LIMIT %(chunk)s
"""
_LOCK_DOMAINS: Final = (
    "SELECT id, claimed_by IS NULL FROM domains WHERE id = ANY(%(ids)s) ORDER BY id FOR NO KEY UPDATE"
)
# A new edit judges all URLs again: what an earlier one has left to do is not needed any more.
_REPLACED: Final = "DELETE FROM domain_wakes WHERE domain_id = ANY(%(ids)s) AND job_id = %(job)s AND by_rules"
_WAKE: Final = """
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after, by_rules)
SELECT domain_id, %(job)s, 0, ''::bytea, true FROM unnest(%(ids)s::bigint[]) AS t(domain_id) ORDER BY domain_id
"""
# Its work was not ready while it was at its end: `jobs.unpark`, or the sweep, makes it so.
_PARK: Final = "UPDATE crawl_jobs SET parked_after = 0 WHERE id = %(job)s"
_ENDED: Final = (JobState.COMPLETED, JobState.FAILED)


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One version of a job's rules."""

    version: int
    rules: dict[str, Any]
    at: datetime
    actor: str | None
    restores: int | None
    """Not None: an undo made it, and these are the rules of that version."""


def add_version(
    connection: psycopg.Connection,
    job: Job,
    spec: JobSpec,
    *,
    actor: str | None,
    settings: RuleSettings,
    restores: int | None = None,
) -> None:
    """Give a job another spec, with other rules, as the next version of them. `restores`: the version whose rules they are, for an undo.

    Before: the job is locked by this transaction, and `job` is as it is stored. After (with the commit): visits
    that began before end within two seconds, each URL is judged by the new rules before it is fetched, and `judge_domains` has work.
    """
    key: dict[str, object] = {"job": job.id, "registrable": settings.registrable}

    def of(judged_by: JobSpec) -> dict[str, object]:
        depth = settings.max_depth if judged_by.max_depth is None else judged_by.max_depth
        return {"rules": json.dumps(rules_of_spec(judged_by)), "depth": depth}

    if not job.rules_version:
        connection.execute(_FIRST, key | of(job.spec))
    key |= of(spec) | {"version": job.rules_version + 1, "actor": actor, "restores": restores}
    crawls.set_spec(connection, job.id, spec)
    connection.execute(_NEXT, key)
    connection.execute(_IN_FORCE, key)


def history(connection: psycopg.Connection, job_id: int) -> list[StoredVersion]:
    """All versions of a job's rules, the oldest first; empty: they were never edited."""
    return [StoredVersion(*row) for row in connection.execute(_HISTORY, {"job": job_id})]


def undoes_to(versions: list[StoredVersion]) -> StoredVersion | None:
    """The version whose rules an undo of the last edit restores; None: every edit is undone, or there was none."""
    if not versions:
        return None
    undone = _base(versions, len(versions) - 1)
    return versions[_base(versions, undone - 1)] if undone else None


def _base(versions: list[StoredVersion], version: int) -> int:
    """The edit whose rules a version has: itself, or the one that it restores."""
    restores = versions[version].restores
    return version if restores is None else restores


def edited_jobs(connection: psycopg.Connection) -> list[int]:
    """Jobs whose rules were edited, and whose URLs are not judged by them yet."""
    return [row[0] for row in connection.execute(_EDITED_JOBS)]


def judge_domains(connection: psycopg.Connection, job_id: int, *, wait: bool = True) -> int | None:
    """Judge a chunk of an edited job's URLs by its present rules; returns the number of domains. None: that was the last chunk, or there
    is none; without `wait`, also if another process does it.

    Before: no transaction is open. After: when it was called until it returned None, also by several processes at once, every domain of
    the job is judged, or has a wake for it if a worker holds it; a job that had ended is reopened if it can continue, and
    has parked work: `jobs.unpark`.
    """
    with connection.transaction():
        row = connection.execute(_POSITION if wait else _POSITION_IF_FREE, {"job": job_id}).fetchone()
        if row is None:
            return None
        key = {"job": job_id, "after": row[0], "chunk": CHUNK}
        unfinished = [found[0] for found in connection.execute(_UNFINISHED, key)]
        if unfinished:
            _fold(connection, unfinished)
            return 0
        found = connection.execute(_DOMAINS, key).fetchall()
        if not found:
            connection.execute(_MOVE, key | {"after": None})
            if row[1] in _ENDED and job_ends.can_continue(connection, job_id):
                jobs.reopen(connection, job_id, f"it was edited: {', '.join(_last_change(connection, job_id))}")
                connection.execute(_PARK, key)
            return None
        key["ids"] = ids = _few(found)
        locked = connection.execute(_LOCK_DOMAINS, key).fetchall()
        connection.execute(_REPLACED, key)
        connection.execute(_WAKE, key | {"ids": [domain_id for domain_id, _ in locked]})
        connection.execute(_MOVE, key | {"after": ids[-1]})
        _fold(connection, [domain_id for domain_id, is_free in locked if is_free])
    return len(ids)


def _few(found: list[tuple[int, int]]) -> list[int]:
    """The first domains, with up to ROWS URLs together; at least one."""
    ids: list[int] = []
    room = ROWS
    for domain_id, urls in found:
        if ids and urls > room:
            break
        ids.append(domain_id)
        room -= urls
    return ids


def _fold(connection: psycopg.Connection, free: list[int]) -> None:
    claimable.fold_wakes(connection, free)
    claimable.update_ready(connection, free)


def _last_change(connection: psycopg.Connection, job_id: int) -> list[str]:
    """The names of the rules that the last edit changed."""
    versions = history(connection, job_id)
    before, after = versions[-2].rules, versions[-1].rules
    return [name for name, value in after.items() if before.get(name) != value]
