"""The one transaction that commits a worker's batch: all of it or nothing.

The rules: the fence comes first, and a domain that fails it leaves the batch with all that was learnt on it. Counters come from what
the statements really changed, so that nothing counts twice. Locks are taken in the order of docs/architecture.md: own domains by id,
new ones by name, shared ones by id, then the frontier, and proxies last, by id; inserts before updates. (An insert waits for a
transaction that updates a row with the same key; an update of rows of own domains waits for no other worker.)
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

import psycopg

from holdfast import failpoints
from holdfast.db import (
    array_params,
    claimable,
    claims,
    enqueue,
    images,
    jobs,
    page_links,
    page_versions,
    proxy_usage,
    sitemaps,
    task_frontier,
    url_results,
)
from holdfast.db.commit_check import Connect, GiveUp, never, settled_transaction
from holdfast.db.connection import first_line, move_refusal
from holdfast.db.domains import NewDomains
from holdfast.db.enqueue import Added, Enqueued
from holdfast.db.proxy_usage import STANDARD
from holdfast.db.url_results import SettledCounts
from holdfast.errors import RolledBack, StoreError
from holdfast.model.commit_batch import CommitBatch, VisitPart
from holdfast.model.proxy import ProxyPauses
from holdfast.model.visit_report import DomainProgress, FrontierGrowth

# Every join here is from a small batch into tables that may be huge and have the right index, but whose statistics may be of
# a time when they were small: a plan that scans one of them must not even be considered, nor a join that keeps what it has read.
# Hence one plan is good for every batch; the server would make one anew for each flush, as if arrays that it can see were shorter.
_SETTINGS: Final = (
    "SELECT "
    + ", ".join(f"set_config('enable_{way}', 'off', true)" for way in ("hashjoin", "mergejoin", "seqscan", "material"))
    + ", set_config('plan_cache_mode', 'force_generic_plan', true)"
    + f", set_config('{page_versions.SETTING}', %(versions)s, true)"
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
    seeded = NULLIF(jd.seeded, false),
    crawl_id = COALESCE(excluded.crawl_id, jd.crawl_id),
    budget_used = excluded.budget_used + CASE WHEN excluded.crawl_id IS DISTINCT FROM jd.crawl_id THEN 0 ELSE jd.budget_used END,
    granted = CASE WHEN excluded.crawl_id IS DISTINCT FROM jd.crawl_id THEN excluded.budget_used
                   ELSE GREATEST(jd.granted, jd.budget_used + excluded.budget_used) END,
    round_start = CASE WHEN excluded.crawl_id IS DISTINCT FROM jd.crawl_id THEN 0 ELSE jd.round_start END,
    state = CASE WHEN jd.state = 'done' AND excluded.waiting > 0 THEN 'open' ELSE jd.state END
"""

_RUN: Final = """
UPDATE crawl_runs SET pages_crawled = pages_crawled + %(pages)s, errors = errors + %(errors)s, bytes = bytes + %(bytes)s,
    images_found = images_found + %(images)s, images_downloaded = images_downloaded + %(downloaded)s, heartbeat_at = clock_timestamp()
WHERE id = %(run)s
"""

_NONE_ADDED: Final = Added(0, 0)
_NONE_SETTLED: Final = SettledCounts()


@dataclass(slots=True)
class CommitResult:
    """Result of a commit."""

    refused: set[int] = field(default_factory=set)
    """Domains whose fence failed: nothing was written for them; another worker may hold them."""
    growth: dict[int, FrontierGrowth] = field(default_factory=dict)
    """By own domain: URLs that its pages added to the frontier, and the number that wait on it now."""


class _Changes(NamedTuple):
    """Changes of a batch for one job on one own domain."""

    added: Added
    settled: SettledCounts


def commit(
    connection: psycopg.Connection,
    connect: Connect,
    *,
    worker: str,
    batch: CommitBatch,
    lease: timedelta,
    defaults: NewDomains,
    proxy_pauses: ProxyPauses = STANDARD,
    versions: int = page_versions.VERSIONS,
    near_distance: int = 0,
    give_up: GiveUp = never,
) -> CommitResult:
    """Commit a batch: every part whose domain passes the fence. `versions`: of a page that are kept beside its last answer.

    Before: `connection` is idle, and `worker` has no other such transaction; bytes that the batch points to are on disk. After: for
    every domain that is not refused, its outcomes, log, pages with their versions, found URLs, counters and clocks are in the store
    once, and its lease is a full one. Raises RolledBack: certainly nothing was written, and the same batch may be committed again.
    Raises Unsettled: the caller gave up before the server said whether it committed; it must not be committed again.
    """
    committed = CommitResult()
    try:
        enqueue.ROW.prepare(connection)
        url_results.ROW.prepare(connection)
        # As of the beginning of the transaction, which the log counts from: if what the archive, a lock or another attempt took counted for
        # some batches and not for others, attempts on a URL in two of them could change places.
        batch.update_ages(time.perf_counter())
        with settled_transaction(connection, connect, worker=worker, give_up=give_up):
            _write(connection, worker, batch, lease, defaults, proxy_pauses, versions, near_distance, committed)
            failpoints.reach("before_commit")
    # Lost connection, full disk, timeout, deadlock, a proxy that was removed meanwhile: a retry may succeed. Any other error is permanent.
    except (psycopg.OperationalError, psycopg.errors.ForeignKeyViolation) as problem:
        raise RolledBack(f"The batch was rolled back: {first_line(problem)}.") from problem
    except psycopg.Error as problem:
        if moved := move_refusal(problem):
            raise moved from problem
        raise StoreError(f"The batch cannot be written: {first_line(problem)}.") from problem
    failpoints.reach("after_commit")
    return committed


def _write(
    connection: psycopg.Connection,
    worker: str,
    batch: CommitBatch,
    lease: timedelta,
    defaults: NewDomains,
    proxy_pauses: ProxyPauses,
    versions: int,
    near_distance: int,
    committed: CommitResult,
) -> None:
    connection.execute(_SETTINGS, {"versions": str(versions)})
    newest = _newest(batch.parts)
    held = claims.fence(connection, worker=worker, held=[(part.domain_id, part.epoch) for part in newest.values()])
    committed.refused = newest.keys() - held
    parts = _without_deleted_jobs(connection, [newest[domain_id] for domain_id in sorted(held)])
    found = ((part.domain_id, url) for part in parts for url in part.found)
    enqueued = enqueue.add(connection, found, own=held, defaults=defaults)
    added = enqueued.own
    failpoints.reach("in_batch")
    changed = url_results.settle(connection, parts, run_id=batch.run_id)
    task_frontier.record(connection, parts)
    sitemaps.record(connection, parts)
    page_links.record(connection, parts)
    linked = [(part.domain_id, outcome) for part in parts for outcome in part.outcomes if outcome.maybe_image]
    stored = images.record(
        connection,
        links=(link for part in parts for outcome in part.outcomes for link in outcome.image_links),
        fetched=(outcome.image for part in parts for outcome in part.outcomes if outcome.image is not None),
        linked={outcome.url_key: outcome.url for _, outcome in linked},
        own=held,
        near_distance=near_distance,
    )
    seen_again = [(domain_id, outcome.job_id, outcome.url_key) for domain_id, outcome in linked]
    images.reopen(connection, enqueued.known_images + seen_again)
    # A URL that another worker inserted may be settled before its wake was folded: it is counted now. Links that are images wait again.
    claimable.fold_counts(connection, sorted(held))
    news = {
        key: _Changes(added.get(key, _NONE_ADDED), changed.by_job.get(key, _NONE_SETTLED))
        for key in added.keys() | changed.by_job.keys()
    }
    _count(connection, news)
    per_domain: dict[int, list[_Changes]] = defaultdict(list)
    for (domain_id, _), one in news.items():
        per_domain[domain_id].append(one)
    progress = [_progress(part, per_domain[part.domain_id], stored.images_stored[part.domain_id]) for part in parts]
    waiting = claims.flush(connection, progress=progress, lease=lease, worker=worker, run_id=batch.run_id)
    _count_run(connection, batch.run_id, news.values(), images=stored.new)
    proxy_usage.record(connection, parts, changed.by_proxy, proxy_pauses)
    committed.growth = _growth(enqueued, waiting)


def _growth(enqueued: Enqueued, waiting: Mapping[int, int]) -> dict[int, FrontierGrowth]:
    """By own domain, the URLs added to the frontier. `waiting`: URLs that wait on own domains now."""
    templates: dict[int, dict[tuple[int, int], int]] = defaultdict(dict)
    for (domain_id, job_id, template), urls in enqueued.templates.items():
        templates[domain_id][job_id, template] = urls
    here, elsewhere = enqueued.same_domain, enqueued.other_domains
    return {
        domain_id: FrontierGrowth(
            here[domain_id] + elsewhere[domain_id],
            elsewhere[domain_id],
            waiting.get(domain_id, 0),
            templates.get(domain_id, {}),
        )
        for domain_id in here.keys() | elsewhere.keys() | templates.keys()
    }


def _newest(parts: Iterable[VisitPart]) -> dict[int, VisitPart]:
    """By domain the part of its newest tenure; the fence would reject parts of earlier ones."""
    newest: dict[int, VisitPart] = {}
    for part in parts:
        if part.domain_id not in newest or part.epoch > newest[part.domain_id].epoch:
            newest[part.domain_id] = part
    return newest


def _without_deleted_jobs(connection: psycopg.Connection, parts: list[VisitPart]) -> list[VisitPart]:
    """The parts without rows of deleted jobs. Deletion and commit serialise on the domain row."""
    dead = jobs.dead(connection, {job_id for part in parts for job_id in part.jobs})
    return [part.without(dead) for part in parts] if dead else parts


def _count(connection: psycopg.Connection, news: Mapping[tuple[int, int], _Changes]) -> None:
    """Raise the counters of the jobs' work. Before: the domains are own ones."""
    if not news:
        return
    rows = sorted(news.items())
    connection.execute(
        _COUNT,
        {
            "domains": array_params.numbers(domain_id for (domain_id, _), _ in rows),
            "jobs": array_params.numbers(job_id for (_, job_id), _ in rows),
            "discovered": array_params.numbers(one.added.waiting + one.added.denied for _, one in rows),
            "waiting": array_params.numbers(one.added.waiting - one.settled.no_longer_waiting for _, one in rows),
            "done": array_params.numbers(one.settled.done for _, one in rows),
            "denied": array_params.numbers(one.added.denied + one.settled.denied for _, one in rows),
            "failed": array_params.numbers(one.settled.failed for _, one in rows),
            "pages": array_params.numbers(one.settled.pages for _, one in rows),
            "errors": array_params.numbers(one.settled.errors for _, one in rows),
            "bytes": array_params.numbers(one.settled.bytes for _, one in rows),
            "depths": array_params.numbers(one.settled.depth for _, one in rows),
        },
    )


def _progress(part: VisitPart, news: Iterable[_Changes], images_stored: int) -> DomainProgress:
    news = list(news)
    return DomainProgress(
        part.domain_id,
        outcomes=0 if part.keeps_status else sum(one.settled.outcomes for one in news),
        pages_crawled=sum(one.settled.pages for one in news),
        images_found=sum(one.settled.images for one in news),
        images_stored=images_stored,
        errors=sum(one.settled.errors for one in news),
        consecutive_errors=part.consecutive_errors,
        refusal_streak=part.refusal_streak,
        depth_reached=max((one.settled.depth for one in news), default=0),
        discovered=sum(one.added.waiting + one.added.denied for one in news),
        waiting=sum(one.added.waiting - one.settled.no_longer_waiting for one in news),
        clocks=part.clocks,
    )


def _count_run(connection: psycopg.Connection, run_id: int, news: Iterable[_Changes], *, images: int) -> None:
    news = list(news)
    connection.execute(
        _RUN,
        {
            "run": run_id,
            "pages": sum(one.settled.pages for one in news),
            "errors": sum(one.settled.errors for one in news),
            "bytes": sum(one.settled.bytes for one in news),
            "images": sum(one.settled.images for one in news),
            "downloaded": images,
        },
    )
