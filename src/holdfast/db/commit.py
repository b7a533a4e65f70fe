"""The one transaction: everything that a worker has learnt since the last one, or nothing of it.

The rules: the fence comes first, and a domain that fails it leaves the batch with all that was learnt on it. Counters come from what
the statements really changed, so that nothing counts twice. Locks are taken in the order of docs/architecture.md: own domains by id,
new ones by name, shared ones by id, then the frontier, and proxies last, by id; inserts before updates. (An insert waits for whoever
is updating a row with the same key; who updates rows of his own domains waits for nobody any more.)
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

import psycopg

from holdfast import failpoints
from holdfast.errors import RolledBack, StoreError
from holdfast.model.batch import Batch, VisitPart
from holdfast.model.proxy import Rests
from holdfast.model.work import Growth, Progress
from holdfast.store import arrays, claims, enqueue, jobs, outcomes, proxy_use, readiness, task_frontier
from holdfast.store.connect import first_line
from holdfast.store.domains import NewDomains
from holdfast.store.enqueue import Added, Enqueued
from holdfast.store.outcomes import Settled
from holdfast.store.proxy_use import STANDARD
from holdfast.store.transaction import Connect, GiveUp, never, settled

# Every join here is from a small batch into tables that may be huge and have the right index, but whose statistics may be of
# a time when they were small: a plan that scans one of them must not even be considered, nor a join that keeps what it has read.
# Hence one plan is good for every batch; the server would make one anew for each flush, as if arrays that it can see were shorter.
_PLAN: Final = (
    "SELECT "
    + ", ".join(f"set_config('enable_{way}', 'off', true)" for way in ("hashjoin", "mergejoin", "seqscan", "material"))
    + ", set_config('plan_cache_mode', 'force_generic_plan', true)"
)

# A budget belongs to the last crawl of the job, which a visit may outlast. What was used without a grant, where the crawl has a limit, is
# granted here.
_COUNT: Final = """
WITH news AS MATERIALIZED (
    SELECT n.*, c.id AS crawl, c.max_pages
    FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(discovered)s::bigint[], %(waiting)s::bigint[], %(done)s::bigint[],
                %(denied)s::bigint[], %(failed)s::bigint[], %(pages)s::bigint[], %(errors)s::bigint[], %(bytes)s::bigint[],
                %(depths)s::bigint[])
        AS n(domain_id, job_id, discovered, waiting, done, denied, failed, pages, errors, bytes, depth)
    JOIN crawl_jobs j ON j.id = n.job_id LEFT JOIN crawls c ON c.id = (SELECT max(id) FROM crawls WHERE job_id = n.job_id)
), beyond AS (
    SELECT n.crawl, sum(n.pages + COALESCE(jd.budget_used - jd.granted, 0))::bigint AS pages
    FROM news n LEFT JOIN job_domains jd ON jd.domain_id = n.domain_id AND jd.job_id = n.job_id AND jd.crawl_id = n.crawl
    WHERE n.max_pages IS NOT NULL AND n.pages + COALESCE(jd.budget_used - jd.granted, 0) > 0
    GROUP BY n.crawl
), locked AS MATERIALIZED (
    SELECT id FROM crawls WHERE id IN (SELECT crawl FROM beyond) ORDER BY id FOR NO KEY UPDATE
), granted AS (
    UPDATE crawls c SET pages_granted = c.pages_granted + b.pages FROM beyond b JOIN locked ON locked.id = b.crawl WHERE c.id = b.crawl
)
INSERT INTO job_domains AS jd (domain_id, job_id, discovered, waiting, done, denied, failed, pages, errors, bytes, crawl_id, budget_used,
                               granted, depth_reached)
SELECT domain_id, job_id, discovered, waiting, done, denied, failed, pages, errors, bytes, crawl, pages, pages, depth
FROM news ORDER BY domain_id, job_id
ON CONFLICT (domain_id, job_id) DO UPDATE SET
    discovered = jd.discovered + excluded.discovered,
    waiting = jd.waiting + excluded.waiting,
    done = jd.done + excluded.done,
    denied = jd.denied + excluded.denied,
    failed = jd.failed + excluded.failed,
    pages = jd.pages + excluded.pages,
    errors = jd.errors + excluded.errors,
    bytes = jd.bytes + excluded.bytes,
    depth_reached = GREATEST(jd.depth_reached, excluded.depth_reached),
    crawl_id = COALESCE(excluded.crawl_id, jd.crawl_id),
    budget_used = excluded.budget_used + CASE WHEN excluded.crawl_id IS DISTINCT FROM jd.crawl_id THEN 0 ELSE jd.budget_used END,
    granted = CASE WHEN excluded.crawl_id IS DISTINCT FROM jd.crawl_id THEN excluded.budget_used
                   ELSE GREATEST(jd.granted, jd.budget_used + excluded.budget_used) END,
    round_start = CASE WHEN excluded.crawl_id IS DISTINCT FROM jd.crawl_id THEN 0 ELSE jd.round_start END,
    state = CASE WHEN jd.state = 'done' AND excluded.waiting > 0 THEN 'open' ELSE jd.state END
"""

_RUN: Final = """
UPDATE crawl_runs SET pages_crawled = pages_crawled + %(pages)s, errors = errors + %(errors)s, bytes = bytes + %(bytes)s,
    images_found = images_found + %(images)s, heartbeat_at = clock_timestamp()
WHERE id = %(run)s
"""

_NONE_ADDED: Final = Added(0, 0)
_NOTHING: Final = Settled()


@dataclass(slots=True)
class Committed:
    """What became of a batch."""

    refused: set[int] = field(default_factory=set)
    """Domains whose fence failed: nothing was written for them, and they are somebody else's."""
    growth: dict[int, Growth] = field(default_factory=dict)
    """By own domain: what its pages added to the frontier, and how many URLs wait on it now."""


class _News(NamedTuple):
    """What a batch changed for one job on one own domain."""

    added: Added
    settled: Settled


def commit(
    connection: psycopg.Connection,
    connect: Connect,
    *,
    worker: str,
    batch: Batch,
    lease: timedelta,
    defaults: NewDomains,
    rests: Rests = STANDARD,
    give_up: GiveUp = never,
) -> Committed:
    """Write a batch down, all of it that the fence lets through.

    Before: `connection` is idle, and `worker` has no other such transaction; bytes that the batch points to are on disk. After: for
    every domain that is not refused, its outcomes, log, pages, found URLs, counters and clocks are in the store once, and its lease
    is a full one. RolledBack: certainly nothing was written, and the same batch may be committed again. Unsettled: we gave up asking
    whether it was; it must not be committed again.
    """
    committed = Committed()
    try:
        enqueue.ROW.prepare(connection)
        outcomes.ROW.prepare(connection)
        # As of the beginning of the transaction, which the log counts from: if what the archive, a lock or another attempt took counted for
        # some batches and not for others, attempts on a URL in two of them could change places.
        batch.grow_older(time.perf_counter())
        with settled(connection, connect, worker=worker, give_up=give_up):
            _write(connection, worker, batch, lease, defaults, rests, committed)
            failpoints.reach("before_commit")
    # A connection, a disk, a time limit, a deadlock, a proxy that was removed in this moment: another time it may succeed. Anything else
    # never will.
    except (psycopg.OperationalError, psycopg.errors.ForeignKeyViolation) as problem:
        raise RolledBack(f"The batch was rolled back: {first_line(problem)}.") from problem
    except psycopg.Error as problem:
        raise StoreError(f"The batch cannot be written: {first_line(problem)}.") from problem
    failpoints.reach("after_commit")
    return committed


def _write(
    connection: psycopg.Connection,
    worker: str,
    batch: Batch,
    lease: timedelta,
    defaults: NewDomains,
    rests: Rests,
    committed: Committed,
) -> None:
    connection.execute(_PLAN)
    newest = _newest(batch.parts)
    held = claims.fence(connection, worker=worker, held=[(part.domain_id, part.epoch) for part in newest.values()])
    committed.refused = newest.keys() - held
    parts = _of_living_jobs(connection, [newest[domain_id] for domain_id in sorted(held)])
    found = ((part.domain_id, url) for part in parts for url in part.found)
    enqueued = enqueue.add(connection, found, own=held, defaults=defaults)
    added = enqueued.own
    failpoints.reach("in_batch")
    changed = outcomes.settle(connection, parts, run_id=batch.run_id)
    task_frontier.record(connection, parts)
    # A URL that somebody else inserted may be settled before anybody counted it: it is counted now.
    readiness.fold_counts(connection, sorted(held))
    news = {
        key: _News(added.get(key, _NONE_ADDED), changed.by_job.get(key, _NOTHING))
        for key in added.keys() | changed.by_job.keys()
    }
    _count(connection, news)
    per_domain: dict[int, list[_News]] = defaultdict(list)
    for (domain_id, _), one in news.items():
        per_domain[domain_id].append(one)
    progress = [_progress(part, per_domain[part.domain_id]) for part in parts]
    waiting = claims.flush(connection, progress=progress, lease=lease, worker=worker, run_id=batch.run_id)
    _count_run(connection, batch.run_id, news.values())
    proxy_use.record(connection, parts, changed.by_proxy, rests)
    committed.growth = _growth(enqueued, waiting)


def _growth(enqueued: Enqueued, waiting: Mapping[int, int]) -> dict[int, Growth]:
    """By own domain, what its pages and others added to the frontier. `waiting`: URLs that wait on own domains now."""
    templates: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
    for (domain_id, job_id, template), urls in enqueued.templates.items():
        templates[domain_id][job_id, template] = urls
    here, elsewhere = enqueued.here, enqueued.elsewhere
    return {
        domain_id: Growth(
            here[domain_id] + elsewhere[domain_id],
            elsewhere[domain_id],
            waiting.get(domain_id, 0),
            templates.get(domain_id, {}),
        )
        for domain_id in here.keys() | elsewhere.keys() | templates.keys()
    }


def _newest(parts: Iterable[VisitPart]) -> dict[int, VisitPart]:
    """By domain the part of its newest tenure; what an earlier one left would be refused."""
    newest: dict[int, VisitPart] = {}
    for part in parts:
        if part.domain_id not in newest or part.epoch > newest[part.domain_id].epoch:
            newest[part.domain_id] = part
    return newest


def _of_living_jobs(connection: psycopg.Connection, parts: list[VisitPart]) -> list[VisitPart]:
    """The parts without what belongs to a job that was deleted. Whoever deletes it waits for our fence, or we have waited for him."""
    dead = jobs.dead(connection, {job_id for part in parts for job_id in part.jobs})
    return [part.without(dead) for part in parts] if dead else parts


def _count(connection: psycopg.Connection, news: Mapping[tuple[int, int], _News]) -> None:
    """Raise the counters of the jobs' work. Before: the domains are own ones."""
    if not news:
        return
    rows = sorted(news.items())
    connection.execute(
        _COUNT,
        {
            "domains": arrays.numbers(domain_id for (domain_id, _), _ in rows),
            "jobs": arrays.numbers(job_id for (_, job_id), _ in rows),
            "discovered": arrays.numbers(one.added.waiting + one.added.denied for _, one in rows),
            "waiting": arrays.numbers(one.added.waiting - one.settled.left for _, one in rows),
            "done": arrays.numbers(one.settled.done for _, one in rows),
            "denied": arrays.numbers(one.added.denied + one.settled.denied for _, one in rows),
            "failed": arrays.numbers(one.settled.failed for _, one in rows),
            "pages": arrays.numbers(one.settled.pages for _, one in rows),
            "errors": arrays.numbers(one.settled.errors for _, one in rows),
            "bytes": arrays.numbers(one.settled.bytes for _, one in rows),
            "depths": arrays.numbers(one.settled.depth for _, one in rows),
        },
    )


def _progress(part: VisitPart, news: Iterable[_News]) -> Progress:
    news = list(news)
    return Progress(
        part.domain_id,
        outcomes=0 if part.keeps_status else sum(one.settled.outcomes for one in news),
        pages_crawled=sum(one.settled.pages for one in news),
        images_found=sum(one.settled.images for one in news),
        errors=sum(one.settled.errors for one in news),
        consecutive_errors=part.consecutive_errors,
        refusal_streak=part.refusal_streak,
        depth_reached=max((one.settled.depth for one in news), default=0),
        discovered=sum(one.added.waiting + one.added.denied for one in news),
        waiting=sum(one.added.waiting - one.settled.left for one in news),
        clocks=part.clocks,
    )


def _count_run(connection: psycopg.Connection, run_id: int, news: Iterable[_News]) -> None:
    news = list(news)
    connection.execute(
        _RUN,
        {
            "run": run_id,
            "pages": sum(one.settled.pages for one in news),
            "errors": sum(one.settled.errors for one in news),
            "bytes": sum(one.settled.bytes for one in news),
            "images": sum(one.settled.images for one in news),
        },
    )
