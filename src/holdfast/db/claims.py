"""Ownership of domains: claim, renew, fence, reclaim. Release is in `db/release`, revocation in `db/sweeper`.

The rules: the database's clock decides about leases; the row lock on `domains` is the proof; every acquisition raises the epoch,
and a write that carries an old one changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final, NamedTuple

import psycopg

from holdfast import failpoints
from holdfast.db import array_params, transitions
from holdfast.db.connection import move_refusal
from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.domain import Claim, Event, Status, status_reason
from holdfast.model.visit_report import DomainProgress

_DEADLOCK_RETRIES: Final = 5
"""A claim locks in priority order, and SKIP LOCKED does not rule out a deadlock (see `_RENEW`). The victim took nothing."""

_DEFAULT_CLOCKS: Final = PolitenessClocks()

# MATERIALIZED, or the planner may run the locking select more than once and take more than was asked for.
# NO KEY UPDATE, because other workers' inserts hold KEY SHARE on the same rows.
# The condition on the job names no domain, so it is evaluated once: a paused job with a million domains is not scanned.
_TAKE: Final = """
WITH found AS MATERIALIZED (
    SELECT d.id, jd.priority
    FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
    WHERE jd.job_id = %(job)s AND jd.ready AND d.claimed_by IS NULL AND d.is_active
      AND EXISTS (SELECT FROM runnable_jobs WHERE id = %(job)s)
      AND (%(generation)s::int IS NULL OR %(generation)s = (SELECT generation FROM store_identity))
      AND (d.next_crawl_after IS NULL
           OR (d.status = 'exhausted' AND EXISTS (SELECT FROM crawl_jobs WHERE id = %(job)s AND kind = 'tasks')))
    ORDER BY jd.priority DESC, jd.domain_id
    LIMIT %(count)s
    FOR NO KEY UPDATE OF d SKIP LOCKED
), taken AS (
    UPDATE domains d SET claimed_by = %(worker)s, claim_epoch = d.claim_epoch + 1, claim_expires_at = clock_timestamp() + %(lease)s
    FROM found WHERE d.id = found.id
    RETURNING d.id, d.claim_epoch, d.domain, d.status, d.claim_expires_at, found.priority
)
SELECT id, claim_epoch, domain, status, claim_expires_at FROM taken ORDER BY priority DESC, id
"""
_TAKE_BY_ID: Final = _TAKE.replace("jd.priority DESC, ", "").replace("priority DESC, ", "")
"""`_TAKE` in the order of ids, which is the order of discovery."""

_READY: Final = """
SELECT count(*) FROM (SELECT FROM job_domains WHERE job_id = %(job)s AND ready ORDER BY priority DESC, domain_id LIMIT %(limit)s) found
"""

_TAKE_BACK: Final = """
WITH mine AS MATERIALIZED (
    SELECT id FROM domains
    WHERE claimed_by = %(worker)s AND (%(only)s::bigint IS NULL OR id = %(only)s) AND id <> ALL(%(besides)s::bigint[])
      AND (%(generation)s::int IS NULL OR %(generation)s = (SELECT generation FROM store_identity))
    ORDER BY id FOR NO KEY UPDATE
), taken AS (
    UPDATE domains d SET claim_epoch = d.claim_epoch + 1, claim_expires_at = clock_timestamp() + %(lease)s
    FROM mine WHERE d.id = mine.id RETURNING d.id, d.claim_epoch, d.domain, d.status, d.claim_expires_at
), ended AS (
    UPDATE claim_log l SET ended_at = GREATEST(clock_timestamp(), l.claimed_at), why = 'reclaimed'
    FROM taken t WHERE l.domain_id = t.id AND l.epoch = t.claim_epoch - 1
)
SELECT id, claim_epoch, domain, status, claim_expires_at FROM taken ORDER BY id
"""

# A statement of its own, because only one that begins after the rows are locked sees all earlier changes of the domains.
# The tenure before is not always epoch - 1 (a reset raises the epoch too); the new one begins after its end even if the clock went back.
_ENTER: Final = """
WITH mine AS MATERIALIZED (
    SELECT t.id, t.epoch, last.why, last.ended_at
    FROM unnest(%(ids)s::bigint[], %(epochs)s::bigint[]) AS t(id, epoch) LEFT JOIN LATERAL (
        SELECT l.why, l.ended_at FROM claim_log l WHERE l.domain_id = t.id AND l.epoch < t.epoch ORDER BY l.epoch DESC LIMIT 1
    ) last ON true
), quiet AS (
    UPDATE job_domains jd SET ready = false FROM mine WHERE jd.domain_id = mine.id AND jd.ready
), logged AS (
    INSERT INTO claim_log (domain_id, epoch, worker, claimed_at)
    SELECT id, epoch, %(worker)s, GREATEST(clock_timestamp(), ended_at) FROM mine
)
SELECT id, COALESCE(why = 'released', true) FROM mine
"""

# No join, for which the planner may read all domains in the order of their ids, to save a sort. So they are looked up in that order,
# and IS TRUE makes it find their epochs in a hash.
_HELD: Final = """
SELECT d.id FROM domains d
WHERE d.id = ANY(%(ids)s::bigint[]) AND d.claimed_by = %(worker)s AND d.claim_expires_at > clock_timestamp()
  AND ((d.id, d.claim_epoch) IN (SELECT * FROM unnest(%(ids)s::bigint[], %(epochs)s::bigint[]))) IS TRUE
"""

# SKIP LOCKED: a locked row is being renewed by this worker's own commit at this moment, and waiting for it would deadlock.
# ORDER BY: SKIP LOCKED may still wait. Where a KEY SHARE lock of another transaction and a finished update are on the row, PostgreSQL
# follows the chain of its versions and waits there (seen: deadlocks with the fence within seconds). So, like every statement that
# locks more than one domain, the heartbeat locks in the order of ids.
_RENEW: Final = f"""
WITH mine AS MATERIALIZED ({_HELD} ORDER BY d.id FOR NO KEY UPDATE OF d SKIP LOCKED)
UPDATE domains d SET claim_expires_at = clock_timestamp() + %(lease)s FROM mine WHERE d.id = mine.id RETURNING d.id
"""  # noqa: S608 — composed of the constant above only

_FENCE: Final = f"{_HELD} ORDER BY d.id FOR NO KEY UPDATE OF d"

# No column here is in an index. Clocks are from now; a part without clocks leaves them.
# Not "d.id = p.id": a plan that was made for a handful of domains, and kept, would read all of them, each time, and join. In this form
# they can only be looked up, one by one.
_FLUSH: Final = """
UPDATE domains d SET
    pages_discovered = d.pages_discovered + p.discovered,
    frontier_size = d.frontier_size + p.waiting,
    frontier_updated_at = CASE WHEN p.discovered <> 0 OR p.waiting <> 0 THEN clock_timestamp() ELSE d.frontier_updated_at END,
    pages_crawled = d.pages_crawled + p.pages,
    images_found = d.images_found + p.found,
    images_stored = d.images_stored + p.stored,
    total_error_count = d.total_error_count + p.errors,
    consecutive_error_count = LEAST(COALESCE(p.in_a_row, d.consecutive_error_count), d.total_error_count + p.errors),
    refusal_streak = COALESCE(p.streak, d.refusal_streak),
    crawl_depth_reached = GREATEST(d.crawl_depth_reached, p.depth),
    claim_expires_at = clock_timestamp() + %(lease)s,
    last_crawled_at = CASE WHEN p.outcomes > 0 THEN clock_timestamp() ELSE d.last_crawled_at END,
    last_crawl_run_id = CASE WHEN p.outcomes > 0 THEN COALESCE(%(run)s, d.last_crawl_run_id) ELSE d.last_crawl_run_id END,
    next_request_at = CASE WHEN p.clocked THEN clock_timestamp() + p.next_request * interval '1 second' ELSE d.next_request_at END,
    back_off_until = CASE WHEN p.clocked THEN clock_timestamp() + NULLIF(p.back_off, 0) * interval '1 second' ELSE d.back_off_until END,
    back_off_level = CASE WHEN p.clocked THEN p.level ELSE d.back_off_level END,
    response_ms = CASE WHEN p.clocked THEN p.response ELSE d.response_ms END,
    best_response_ms = CASE WHEN p.clocked THEN p.best ELSE d.best_response_ms END,
    circuit_failures = CASE WHEN p.clocked THEN p.failures ELSE d.circuit_failures END,
    circuit_successes = CASE WHEN p.clocked THEN p.successes ELSE d.circuit_successes END,
    circuit_open_until = CASE WHEN p.clocked THEN clock_timestamp() + p.open * interval '1 second' ELSE d.circuit_open_until END,
    pace_delay_seconds = CASE WHEN p.clocked THEN p.delay ELSE d.pace_delay_seconds END,
    pace_delay_source = CASE WHEN p.clocked THEN p.delay_source ELSE d.pace_delay_source END
FROM unnest(%(ids)s::bigint[], %(outcomes)s::int[], %(pages)s::int[], %(found)s::int[], %(stored)s::int[], %(errors)s::int[],
            %(in_a_row)s::int[], %(streaks)s::int[], %(depths)s::int[], %(discovered)s::int[], %(waiting)s::int[], %(clocked)s::boolean[],
            %(next_request)s::float8[], %(back_off)s::float8[], %(level)s::int[], %(response)s::float8[], %(best)s::float8[],
            %(failures)s::int[], %(successes)s::int[], %(open)s::float8[], %(delays)s::float8[], %(delay_sources)s::text[])
    AS p(id, outcomes, pages, found, stored, errors, in_a_row, streak, depth, discovered, waiting, clocked, next_request, back_off, level,
         response, best, failures, successes, open, delay, delay_source)
WHERE d.id = ANY(ARRAY[p.id])
RETURNING d.id, d.frontier_size, p.outcomes > 0 AND d.status = 'pending'
"""


def claim(
    connection: psycopg.Connection,
    *,
    worker: str,
    job_id: int,
    count: int,
    lease: timedelta,
    by_priority: bool = True,
    generation: int | None = None,
) -> list[Claim]:
    """Claim up to `count` ready domains of `job_id`, highest priority first; without `by_priority`, in the order of discovery. Nothing is
    claimed if the store is not of `generation` (None: of any).

    Before: `worker` holds its name (`db/workers`); no transaction is open. After: each returned domain is held by `worker` alone,
    under a new epoch, until its lease ends; none of its rows is ready; its tenure is in the claim log. Fewer than `count` means that
    no more were available at this moment: others may be locked.
    """
    parameters = {"worker": worker, "job": job_id, "count": count, "lease": lease, "generation": generation}
    take = _TAKE if by_priority else _TAKE_BY_ID
    for _ in range(_DEADLOCK_RETRIES):
        with suppress(psycopg.errors.DeadlockDetected):
            return _acquire(connection, take, parameters)
    return _acquire(connection, take, parameters)


def reclaim(
    connection: psycopg.Connection,
    *,
    worker: str,
    lease: timedelta,
    exclude: Sequence[int] = (),
    generation: int | None = None,
) -> list[Claim]:
    """Reclaim the domains of an earlier process of `worker`, or claims whose answer was lost; without those in `exclude`. None if the
    store is not of `generation` (None: of any).

    Before: `worker` holds its name, so the earlier process is dead. After: its claims belong to this process under new epochs, and
    the old tenures ended as reclaimed; late writes of the old process are fenced off.
    """
    given = {"worker": worker, "lease": lease, "besides": list(exclude), "generation": generation}
    try:
        return _acquire(connection, _TAKE_BACK, given | {"only": None})
    except psycopg.Error as problem:
        if connection.broken or move_refusal(problem):
            raise
    # One row that cannot be reclaimed does not block the rest; its lease will expire.
    taken: list[Claim] = []
    for (domain_id,) in connection.execute(
        "SELECT id FROM domains WHERE claimed_by = %s ORDER BY id", (worker,)
    ).fetchall():
        try:
            taken += _acquire(connection, _TAKE_BACK, given | {"only": domain_id})
        except psycopg.Error:
            if connection.broken:
                raise
    return taken


def count_ready(connection: psycopg.Connection, *, job_id: int, limit: int) -> int:
    """The number of domains of a job that are ready to be claimed, counted up to `limit`."""
    row = connection.execute(_READY, {"job": job_id, "limit": limit}).fetchone()
    return int(row[0]) if row else 0


class Renewal(NamedTuple):
    """Result of a heartbeat, as domain ids. A domain in neither set is locked by another transaction."""

    renewed: set[int]
    lost: set[int]
    """Held by another worker, or their leases expired: the worker drops their visits."""


def renew(connection: psycopg.Connection, *, worker: str, held: Iterable[tuple[int, int]], lease: timedelta) -> Renewal:
    """Renew the leases of `held` (domain id, epoch).

    Before: nothing. After: every held row that no other transaction had locked expires a full lease from now.
    """
    held = list(held)
    parameters = _tenure_parameters(worker, held) | {"lease": lease}
    renewed = {row[0] for row in connection.execute(_RENEW, parameters)}
    if len(renewed) == len(held):
        return Renewal(renewed, set())
    still_held = {row[0] for row in connection.execute(_HELD, parameters)}
    return Renewal(renewed, {domain_id for domain_id, _ in held} - renewed - still_held)


def fence(connection: psycopg.Connection, *, worker: str, held: Iterable[tuple[int, int]]) -> set[int]:
    """Lock the rows of `held` (domain id, epoch); returns the ids that `worker` may write for in this transaction.

    Before: a transaction is open and has locked no domain. After: the returned rows are locked in the order of their ids, so no other
    worker can take them until the transaction ends; for all others nothing may be written.
    """
    return {row[0] for row in connection.execute(_FENCE, _tenure_parameters(worker, list(held)))}


def flush(
    connection: psycopg.Connection,
    *,
    progress: Sequence[DomainProgress],
    lease: timedelta,
    worker: str | None = None,
    run_id: int | None = None,
) -> dict[int, int]:
    """Add a batch's progress to its domains and renew their leases; returns the number of waiting URLs by domain.

    Before: every domain in `progress` passed the fence of this transaction. After (with its commit): counters and signals are
    right, a pending domain with an outcome is active, one with an outcome was last crawled now, by `run_id`, and the lease is a full one
    again. Touches no indexed column otherwise.
    """
    clocks = [p.clocks or _DEFAULT_CLOCKS for p in progress]
    flushed = connection.execute(
        _FLUSH,
        {
            "lease": lease,
            "run": run_id,
            "ids": array_params.numbers(p.domain_id for p in progress),
            "outcomes": array_params.numbers(p.outcomes for p in progress),
            "pages": array_params.numbers(p.pages_crawled for p in progress),
            "found": array_params.numbers(p.images_found for p in progress),
            "stored": array_params.numbers(p.images_stored for p in progress),
            "errors": array_params.numbers(p.errors for p in progress),
            "in_a_row": array_params.numbers(p.consecutive_errors for p in progress),
            "streaks": array_params.numbers(p.refusal_streak for p in progress),
            "depths": array_params.numbers(p.depth_reached for p in progress),
            "discovered": array_params.numbers(p.discovered for p in progress),
            "waiting": array_params.numbers(p.waiting for p in progress),
            "clocked": array_params.numbers(p.clocks is not None for p in progress),
            "next_request": array_params.numbers(c.next_request_in for c in clocks),
            "back_off": array_params.numbers(max(c.back_off_in, 0.0) for c in clocks),
            "level": array_params.numbers(c.back_off_level for c in clocks),
            "response": array_params.numbers(c.response_ms for c in clocks),
            "best": array_params.numbers(c.best_response_ms for c in clocks),
            "failures": array_params.numbers(c.circuit_failures for c in clocks),
            "successes": array_params.numbers(c.circuit_successes for c in clocks),
            "open": array_params.numbers(c.circuit_open_in for c in clocks),
            "delays": array_params.numbers(c.delay for c in clocks),
            "delay_sources": [c.delay_source for c in clocks],
        },
    ).fetchall()
    begun = [domain_id for domain_id, _, begins in flushed if begins]
    first = status_reason(Event.OUTCOME, "the first result of a visit")
    transitions.change(connection, begun, Status.ACTIVE, only_from=[Status.PENDING], reason=first, worker=worker)
    return {domain_id: waiting for domain_id, waiting, _ in flushed}


def _tenure_parameters(worker: str, held: Sequence[tuple[int, int]]) -> dict[str, object]:
    return {
        "worker": worker,
        "ids": array_params.numbers(pair[0] for pair in held),
        "epochs": array_params.numbers(pair[1] for pair in held),
    }


def _acquire(connection: psycopg.Connection, take: str, parameters: Mapping[str, object]) -> list[Claim]:
    """Claim domains and log their tenures, in one transaction."""
    with connection.transaction():
        taken = connection.execute(take, parameters).fetchall()
        if not taken:
            return []
        failpoints.reach("in_claim")
        ids, epochs = [row[0] for row in taken], [row[1] for row in taken]
        entered = connection.execute(_ENTER, {"ids": ids, "epochs": epochs, "worker": parameters["worker"]})
        clean: dict[int, bool] = dict(entered.fetchall())
    return [Claim(i, epoch, name, Status(status), until, clean[i]) for i, epoch, name, status, until in taken]
