"""The periodic sweep: expired leases and cool-downs, dead workers, due refreshes, wakes, delays, silent runs. Also revokes claims.

An ended cool-down reopens the completed and failed jobs that have URLs to retry on the domain, a due refresh those with refresh
enabled; neither gives a job more than is left of its limits.
The rule: one small statement each, on unlocked rows, a chunk at a time. A row that fails is skipped and reported; it does not stop
the rest. Any worker may sweep; an advisory lock lets one do it at a time, which is not needed for safety.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Final

import psycopg

from holdfast.db import (
    audit,
    budget,
    claimable,
    domain_removal,
    domains,
    job_ends,
    job_rules,
    jobs,
    periodic_locks,
    rounds,
    runs,
    transitions,
    workers,
)
from holdfast.db.connection import first_line, move_refusal
from holdfast.errors import StoreError
from holdfast.model.domain import Event, Status, status_reason
from holdfast.model.outcome import Outcome

CHUNK: Final = 500
JOB_STEPS: Final = 20
"""Steps of job maintenance per sweep, so that it does not delay the rest: each makes 500 domains ready or deletes 10 000 URLs."""
SCORE_EVERY: Final = timedelta(hours=1)
SCORE_CHUNKS: Final = 4
"""Chunks rescored per sweep, of 5 000 domains each."""
LOCKED_JOB_DELAY: Final = timedelta(seconds=5)
"""Delay of a domain's cool-down end while another transaction has locked one of its jobs."""
_SWEEP_LOCK: Final = 0x686F6C64  # "hold"

# All of these lock in the order of ids, as every statement does: see the heartbeat in `db/claims`.
_EXPIRED: Final = """
SELECT id FROM domains
WHERE claimed_by IS NOT NULL AND claim_expires_at <= clock_timestamp() AND id <> ALL(%(aside)s)
ORDER BY id LIMIT %(chunk)s FOR NO KEY UPDATE SKIP LOCKED
"""
# An operator's release waits for a commit in progress instead of skipping the row. Keyed by id, so that domains claimed again
# meanwhile do not make it run endlessly.
_FORCED: Final = """
SELECT id FROM domains
WHERE claimed_by IS NOT NULL AND (%(worker)s::text IS NULL OR claimed_by = %(worker)s)
  AND (%(domain)s::bigint IS NULL OR id = %(domain)s) AND id > %(after)s AND id <> ALL(%(aside)s)
ORDER BY id LIMIT %(chunk)s FOR NO KEY UPDATE
"""
_ABANDONED: Final = """
SELECT id FROM domains WHERE claimed_by = %(worker)s AND id <> ALL(%(aside)s) ORDER BY id LIMIT %(chunk)s FOR NO KEY UPDATE SKIP LOCKED
"""
_COOLED: Final = """
SELECT id FROM domains
WHERE id IN (SELECT id FROM domains WHERE next_crawl_after <= clock_timestamp() AND claimed_by IS NULL
             AND (%(refresh)s OR status <> 'exhausted') AND id <> ALL(%(aside)s) ORDER BY next_crawl_after LIMIT %(chunk)s)
  AND next_crawl_after <= clock_timestamp() AND claimed_by IS NULL
ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""
_FREE: Final = "SELECT id FROM domains WHERE id = ANY(%(ids)s) AND claimed_by IS NULL ORDER BY id FOR NO KEY UPDATE"
_WOKEN: Final = """
SELECT id FROM domains
WHERE id IN (SELECT DISTINCT w.domain_id FROM domain_wakes w JOIN domains d ON d.id = w.domain_id
             WHERE d.claimed_by IS NULL AND w.domain_id <> ALL(%(aside)s) ORDER BY w.domain_id LIMIT %(chunk)s) AND claimed_by IS NULL
ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""
_DELAYED: Final = """
SELECT id FROM domains
WHERE id IN (SELECT domain_id FROM job_domains WHERE not_before <= clock_timestamp() AND domain_id <> ALL(%(aside)s)
             GROUP BY domain_id ORDER BY min(not_before) LIMIT %(chunk)s)
ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""

_TAKE_AWAY: Final = """
WITH gone AS (
    UPDATE domains SET claimed_by = NULL, claim_expires_at = NULL, claim_epoch = claim_epoch + %(step)s WHERE id = ANY(%(ids)s)
    RETURNING id, claim_epoch - %(step)s AS epoch
)
UPDATE claim_log l SET ended_at = GREATEST(clock_timestamp(), l.claimed_at), why = %(why)s
FROM gone WHERE l.domain_id = gone.id AND l.epoch = gone.epoch
"""
# Jobs that have work on a domain whose cool-down or refresh is due: pages to refresh, or URLs to retry. Also running jobs: they must not
# end at this moment.
_CONCERNED: Final = """
SELECT jd.job_id, jd.domain_id, d.domain, d.status = 'exhausted'
FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id JOIN domains d ON d.id = jd.domain_id
WHERE jd.domain_id = ANY(%(ids)s) AND j.state NOT IN ('paused', 'cancelled') AND j.kind = 'crawl' AND j.deleted_at IS NULL
  AND NOT job_is_used_up(j) AND (jd.budget_limit IS NULL OR jd.budget_used < jd.budget_limit)
  AND NOT COALESCE(j.state IN ('completed', 'failed') AND j.aged_at > j.ended_at, false)
  AND CASE WHEN d.status = 'exhausted' THEN job_wants_refresh(j) AND jd.discovered > 0
           ELSE d.status IN ('blocked', 'unreachable') AND (jd.waiting > 0 OR EXISTS (
               SELECT FROM url_frontier f WHERE f.domain_id = jd.domain_id AND f.job_id = jd.job_id
               AND (f.state = 'failed' OR (f.state = 'denied' AND d.block_reason_code = 'robots_denied'))
               AND split_part(f.reason, ':', 1) = ANY(%(retried)s))) END
ORDER BY jd.job_id, jd.domain_id
"""
_POSTPONE: Final = "UPDATE domains SET next_crawl_after = clock_timestamp() + %(pause)s WHERE id = ANY(%(ids)s)"
# An exhausted domain for which no job asked for refresh stays exhausted, without a date. On a stopped one those URLs are tried that wait
# and that were refused, never all of its pages.
_THAW: Final = """
SELECT d.id, d.status::text, COALESCE(d.block_reason_code = 'robots_denied', false), EXISTS (
    SELECT FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id
    WHERE jd.domain_id = d.id AND j.state IN ('pending', 'processing', 'paused') AND j.kind = 'crawl' AND job_wants_refresh(j))
FROM domains d WHERE d.id = ANY(%(ids)s) ORDER BY d.id
"""
_NO_DATE: Final = "UPDATE domains SET next_crawl_after = NULL WHERE id = ANY(%(ids)s) AND next_crawl_after IS NOT NULL"
_TRY_AGAIN: Final = """
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after, retry)
SELECT t.id, jd.job_id, 0, ''::bytea, CASE WHEN t.robots THEN %(retried)s::text[] ELSE array_remove(%(retried)s::text[], %(robots)s) END
FROM unnest(%(ids)s::bigint[], %(no_robots)s::boolean[]) AS t(id, robots)
JOIN job_domains jd ON jd.domain_id = t.id JOIN crawl_jobs j ON j.id = jd.job_id
WHERE j.state IN ('pending', 'processing', 'paused') AND j.kind = 'crawl' ORDER BY t.id, jd.job_id
"""
_FETCH_AGAIN: Final = """
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after)
SELECT jd.domain_id, jd.job_id, 0, ''::bytea FROM job_domains jd JOIN crawl_jobs j ON j.id = jd.job_id
WHERE jd.domain_id = ANY(%(ids)s) AND j.state IN ('pending', 'processing', 'paused') AND j.kind = 'crawl' AND job_wants_refresh(j)
ORDER BY jd.domain_id, jd.job_id
"""


@dataclass(slots=True)
class SweepResult:
    """Counts of a sweep, in domains unless stated otherwise."""

    expired: int = 0
    abandoned: int = 0
    """Claims of workers that are dead."""
    cooled: int = 0
    woken: int = 0
    delayed: int = 0
    runs: int = 0
    jobs: int = 0
    """Unfinished steps of resumed, edited or deleted jobs and removed domains, domains and crawls that continue in a further round, and
    jobs that ended."""
    scored: int = 0
    """Domains whose priority changed in the hourly rescoring."""
    faults: list[str] = field(default_factory=list)


def sweep(connection: psycopg.Connection, *, run_silence: timedelta, refresh: bool = True) -> SweepResult:
    """Process everything that is due; returns the counts.

    Before: no transaction is open. After: every claim, cool-down, wake and delay that was due and not locked by another transaction
    is processed, unless another sweep was running.
    """
    swept = SweepResult()
    swept.expired = _in_chunks(connection, _EXPIRED, _revoke("expired"), swept.faults)
    swept.abandoned = _free_dead_workers(connection, swept.faults)
    swept.cooled = _in_chunks(connection, _COOLED, _end_cooldowns, swept.faults, {"refresh": refresh})
    swept.woken = _in_chunks(connection, _WOKEN, _fold_wakes, swept.faults)
    swept.delayed = _in_chunks(connection, _DELAYED, _end_delays, swept.faults)
    swept.jobs = _continue_jobs(connection, swept.faults)
    swept.runs = len(runs.fail_silent(connection, older_than=run_silence, message="No sign of life for a whole lease."))
    swept.scored = _rescore_domains(connection, swept.faults)
    _make_partitions(connection, swept.faults)
    return swept


def release_expired(connection: psycopg.Connection, *, actor: str | None = None) -> int:
    """Release expired claims and those of dead workers; returns how many. `actor`: the caller's name, for the audit log.

    After: none of them is held, their work is ready. Raises StoreError with those that could not be freed; the rest are.
    """
    faults: list[str] = []
    freed = _in_chunks(connection, _EXPIRED, _revoke("expired", actor), faults, wait=True)
    return _raise_faults(freed + _free_dead_workers(connection, faults, actor, wait=True), faults)


def force_release(
    connection: psycopg.Connection,
    *,
    worker: str | None,
    domain_id: int | None = None,
    subject: str | None = None,
    actor: str | None = None,
) -> int:
    """Revoke all claims of `worker` or on one domain, or with neither those of all workers, running or not; returns how many.
    `actor` and `subject`, what was named: for the audit log.

    After: none of them is held and their work is ready; late writes of the old holders are fenced off. Raises StoreError with those
    that could not be freed; the rest are.
    """
    faults: list[str] = []
    return _raise_faults(
        _in_chunks(
            connection,
            _FORCED,
            _revoke("forced", actor, subject or worker),
            faults,
            {"worker": worker, "domain": domain_id},
            wait=True,
        ),
        faults,
    )


def revoke_claims(connection: psycopg.Connection, domain_ids: Sequence[int], *, why: str) -> None:
    """Revoke the claims on these domains. Late writes of their holders are fenced off.

    Before: the domain rows are locked by this transaction. After (with its commit): none is held, and their work is ready.
    """
    if domain_ids:
        _revoke(why)(connection, domain_ids)


def fold_wakes_now(connection: psycopg.Connection, *domain_ids: int) -> None:
    """Fold the wakes of those of these domains that are not held, now instead of at the next sweep."""
    with connection.transaction():
        _fold_wakes(connection, [row[0] for row in connection.execute(_FREE, {"ids": list(domain_ids)})])


def _raise_faults(freed: int, faults: Sequence[str]) -> int:
    if faults:
        raise StoreError(f"{freed} claims were released, but these could not be: {'; '.join(faults)}.")
    return freed


_Apply = Callable[[psycopg.Connection, Sequence[int]], None]
_Guard = Callable[[psycopg.Connection], bool]


def _free_dead_workers(
    connection: psycopg.Connection, faults: list[str], actor: str | None = None, *, wait: bool = False
) -> int:
    """Free the claims of dead workers; returns how many. Each transaction checks again that the worker is dead, before its claims."""
    return sum(
        _in_chunks(
            connection,
            _ABANDONED,
            _revoke("silent", actor, worker),
            faults,
            {"worker": worker},
            wait=wait,
            guard=partial(workers.lock_if_dead, name=worker),
        )
        for worker in workers.silent(connection)
    )


def _always(_: psycopg.Connection) -> bool:
    return True


def _in_chunks(
    connection: psycopg.Connection,
    select: str,
    apply: _Apply,
    faults: list[str],
    parameters: Mapping[str, object] | None = None,
    *,
    wait: bool = False,
    guard: _Guard = _always,
) -> int:
    """Lock a chunk of domains, apply, commit, until none is left. A chunk that fails is retried row by row.

    `wait`: wait for another running sweep instead of returning. `guard` is called first in each transaction; False stops.
    """
    aside: list[int] = []
    after = total = 0
    while True:
        given = {"aside": aside, "after": after, "chunk": CHUNK, **(parameters or {})}
        ids: list[int] = []
        try:
            with connection.transaction():
                if not _lock_sweep(connection, wait=wait) or not guard(connection):
                    return total
                ids = [row[0] for row in connection.execute(select, given)]
                apply(connection, ids)
        except psycopg.Error as problem:
            if not ids or connection.broken or move_refusal(problem):
                raise
            total += _one_by_one(connection, select, apply, ids, given, aside, faults, guard)
            continue
        total += len(ids)
        after = ids[-1] if ids else after
        if len(ids) < CHUNK:
            return total


def _one_by_one(
    connection: psycopg.Connection,
    select: str,
    apply: _Apply,
    ids: Sequence[int],
    given: Mapping[str, object],
    aside: list[int],
    faults: list[str],
    guard: _Guard,
) -> int:
    done = 0
    for domain_id in ids:
        try:
            with connection.transaction():
                if not guard(connection):
                    return done
                others = [i for i in ids if i != domain_id] + aside
                locked = [row[0] for row in connection.execute(select, {**given, "aside": others, "chunk": 1})]
                if domain_id in locked:
                    apply(connection, [domain_id])
                    done += 1
        except psycopg.Error as problem:
            if connection.broken:
                raise
            aside.append(domain_id)
            faults.append(f"domain {domain_id}: {first_line(problem)}")
    return done


def _lock_sweep(connection: psycopg.Connection, *, wait: bool) -> bool:
    if wait:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SWEEP_LOCK,))
        return True
    row = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (_SWEEP_LOCK,)).fetchone()
    return bool(row and row[0])


def _make_partitions(connection: psycopg.Connection, faults: list[str]) -> None:
    try:
        with connection.transaction():
            if _lock_sweep(connection, wait=False):
                connection.execute("SELECT ensure_crawl_log_partitions(4)")
    except psycopg.Error as problem:
        if connection.broken:
            raise
        faults.append(f"partitions of crawl_log: {first_line(problem)}")


def _rescore_domains(connection: psycopg.Connection, faults: list[str]) -> int:
    """Recompute priorities every hour, a few chunks per sweep; returns how many changed."""
    changed = 0
    try:
        for _ in range(SCORE_CHUNKS):
            with periodic_locks.acquire(connection, periodic_locks.PRIORITIES, every=SCORE_EVERY) as turn:
                if not turn.due or not _lock_sweep(connection, wait=False):
                    turn.unfinished = True
                    return changed
                mark = periodic_locks.load_position(connection, periodic_locks.PRIORITIES)
                last, _, scores = domains.recalculate_chunk(connection, int(mark or 0))
                periodic_locks.save_position(connection, periodic_locks.PRIORITIES, str(last or 0))
                changed += scores
                turn.unfinished = last is not None
                if last is None:
                    break
    except StoreError as problem:
        faults.append(f"priorities: {problem}")
    return changed


def _continue_jobs(connection: psycopg.Connection, faults: list[str]) -> int:
    """Continue interrupted resumes, edits of rules and deletions of jobs, and removals of domains, some steps a sweep; returns how many."""
    done = 0
    for what, step, ids in (
        ("job", partial(jobs.unpark, wait=False), jobs.parked(connection)),
        ("job", partial(job_rules.judge_domains, wait=False), job_rules.edited_jobs(connection)),
        ("job", jobs.forget, jobs.graves(connection)),
        ("domain", domain_removal.delete_chunk, domain_removal.tombstones(connection)),
    ):
        for one in ids:
            try:
                while done < JOB_STEPS and step(connection, one) is not None:
                    done += 1
            except psycopg.Error as problem:
                if connection.broken:
                    raise
                faults.append(f"{what} {one}: {first_line(problem)}")
    done += rounds.reopen_leftovers(connection) + rounds.advance_idle(connection)
    return done + job_ends.finish_idle(connection)


def _revoke(why: str, actor: str | None = None, subject: str | None = None) -> _Apply:
    def apply(connection: psycopg.Connection, ids: Sequence[int]) -> None:
        # A dead worker has not released anything: its epoch ends at once, not with the next claim.
        connection.execute(_TAKE_AWAY, {"ids": list(ids), "why": why, "step": int(why == "silent")})
        budget.return_unused(connection, ids)
        claimable.rescore(connection, ids)  # no release will follow that would do it
        claimable.update_ready(connection, ids)
        if actor is not None and ids:
            details = {"why": why, "claims": len(ids), "from_domain": ids[0], "to_domain": ids[-1]}
            audit.write(
                connection, actor=actor, action="release", kind="claims", object_id=subject or "*", details=details
            )

    return apply


def _end_cooldowns(connection: psycopg.Connection, ids: Sequence[int]) -> None:
    robots = str(Outcome.ROBOTS_DENIED)
    given = {"retried": sorted(claimable.NETWORK_REASONS | claimable.REFUSAL_REASONS | {robots}), "robots": robots}
    free = _reopen_jobs(connection, ids, given)
    found = connection.execute(_THAW, {"ids": free}).fetchall()
    stopped = {at: denied for at, was, denied, _ in found if was in (Status.BLOCKED, Status.UNREACHABLE)}
    refreshed = [at for at, was, _, wanted in found if was == Status.EXHAUSTED and wanted]
    for due, event in ((list(stopped), Event.COOLDOWN_ENDED), (refreshed, Event.REFRESH_DUE)):
        transitions.change(connection, due, Status.PENDING, only_from=transitions.RESTING, reason=status_reason(event))
    connection.execute(_NO_DATE, {"ids": free})
    connection.execute(_TRY_AGAIN, {"ids": list(stopped), "no_robots": list(stopped.values()), **given})
    connection.execute(_FETCH_AGAIN, {"ids": refreshed})
    # Folded now: the release of a visit would take these wakes for an operator's retry and reset the stop counter.
    claimable.fold_wakes(connection, free)
    claimable.rescore(connection, free)
    claimable.update_ready(connection, free)


def _reopen_jobs(connection: psycopg.Connection, ids: Sequence[int], given: Mapping[str, object]) -> list[int]:
    """Reopen the ended jobs that have work on these domains; returns the domains whose cool-down can end now.

    A domain with a job that another transaction has locked is postponed: a sweep waits for no lock.
    """
    due: dict[int, list[tuple[int, str, bool]]] = {}
    for job_id, *domain in connection.execute(_CONCERNED, {"ids": list(ids), **given}).fetchall():
        due.setdefault(job_id, []).append((domain[0], domain[1], domain[2]))
    locked = jobs.lock(connection, due, wait=False)
    postponed = {domain_id for job_id in due.keys() - locked for domain_id, _, _ in due[job_id]}
    if postponed:
        connection.execute(_POSTPONE, {"ids": sorted(postponed), "pause": LOCKED_JOB_DELAY})
    for job_id in sorted(locked):
        if found := [domain for domain in due[job_id] if domain[0] not in postponed]:
            _, name, refresh = found[0]
            more = f", and {len(found) - 1} more" if len(found) > 1 else ""
            why = f"a refresh of {name} is due" if refresh else f"the cool-down of {name} ended"
            jobs.reopen(connection, job_id, f"{why}{more}")
    return [domain_id for domain_id in ids if domain_id not in postponed]


def _fold_wakes(connection: psycopg.Connection, ids: Sequence[int]) -> None:
    claimable.fold_wakes(connection, ids)
    claimable.update_ready(connection, ids)


def _end_delays(connection: psycopg.Connection, ids: Sequence[int]) -> None:
    connection.execute(
        "UPDATE job_domains SET not_before = NULL WHERE domain_id = ANY(%s) AND not_before <= clock_timestamp()",
        (list(ids),),
    )
    claimable.update_ready(connection, ids)
