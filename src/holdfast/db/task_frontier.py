"""Tasks and the frontier: the URLs of queued tasks are the frontier of a standing job, so that the same crawler fetches them.

The rule: the frontier row says which URL to fetch, the task says for which task. The tasks of a URL are looked up when it is taken,
and their outcome is recorded under the attempt of that moment; an operator's change meanwhile takes precedence.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import psycopg

from holdfast.db import frontier, job_queue
from holdfast.db import task_results as task_work
from holdfast.db.frontier import FrontierBatch
from holdfast.model.commit_batch import UrlOutcome, UrlRef, VisitPart
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.model.task import CrawlResult, TaskStatus

_SHARE: Final = "SELECT id FROM domains WHERE id = ANY(%(domains)s) ORDER BY id FOR KEY SHARE"
# A URL that is new to the frontier is inserted; one that is known is wanted again, which only its domain's holder may write down.
_ENQUEUE: Final = """
WITH job AS (SELECT id FROM crawl_jobs WHERE kind = 'tasks'), wanted AS MATERIALIZED (
    SELECT DISTINCT ON (domain_id, url_key) domain_id, url_key, url, 13 - priority AS priority, hops
    FROM unnest(%(domains)s::bigint[], %(keys)s::bytea[], %(urls)s::text[], %(priorities)s::smallint[], %(hops)s::smallint[])
        AS w(domain_id, url_key, url, priority, hops)
    ORDER BY domain_id, url_key, w.priority
), added AS (
    INSERT INTO url_frontier (domain_id, job_id, url_key, url, priority, hops)
    SELECT w.domain_id, job.id, w.url_key, w.url, w.priority, w.hops FROM wanted w, job ORDER BY w.domain_id, w.url_key
    ON CONFLICT DO NOTHING
    RETURNING domain_id, url_key
), news AS (
    INSERT INTO domain_wakes (domain_id, job_id, inserted)
    SELECT a.domain_id, job.id, count(*) FROM added a, job GROUP BY a.domain_id, job.id ORDER BY a.domain_id
)
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_key, priority, hops)
SELECT w.domain_id, job.id, 0, w.url_key, w.priority, w.hops FROM wanted w, job
WHERE NOT EXISTS (SELECT FROM added a WHERE a.domain_id = w.domain_id AND a.url_key = w.url_key) ORDER BY w.domain_id, w.url_key
"""

_WENT: Final = (
    "SELECT id, fetch_url, fetch_key, hops FROM crawl_tasks WHERE id = ANY(%(ids)s) AND fetch_url IS NOT NULL"
)
_AT_WORK: Final = """
SELECT COALESCE(fetch_key, url_hash), id, attempt FROM crawl_tasks
WHERE COALESCE(fetch_key, url_hash) = ANY(%(keys)s::bytea[]) AND status IN ('queued', 'crawling')
"""
_WAITS: Final = """
SELECT EXISTS (SELECT FROM job_domains jd JOIN runnable_jobs j ON j.id = jd.job_id AND j.kind = 'tasks'
               WHERE jd.domain_id = %(domain)s AND jd.waiting > 0
                 AND (jd.not_before IS NULL OR jd.not_before <= clock_timestamp()))
    OR EXISTS (SELECT FROM domain_wakes w JOIN crawl_jobs j ON j.id = w.job_id AND j.kind = 'tasks' WHERE w.domain_id = %(domain)s)
"""
# The reference of a page that has not changed is the one of the time before.
_KEPT: Final = """
SELECT domain_id, url_key, archive_segment, archive_offset, archive_length, payload_digest FROM crawled_pages
WHERE (domain_id, job_id, url_key) IN (SELECT * FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[]))
  AND archive_segment IS NOT NULL
"""
# A task that was queued, or queued again, after its URL was taken: that outcome is not for this task, which still waits for its own.
_STILL_WANTED: Final = """
INSERT INTO domain_wakes (domain_id, job_id, inserted, again_key, priority, hops)
SELECT w.domain_id, w.job_id, 0, w.url_key, 13 - min(t.priority), min(t.hops)
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[]) AS w(domain_id, job_id, url_key)
JOIN crawl_tasks t ON COALESCE(t.fetch_key, t.url_hash) = w.url_key AND t.status IN ('queued', 'crawling')
GROUP BY w.domain_id, w.job_id, w.url_key ORDER BY w.domain_id, w.url_key
"""
_FETCHING: Final = """
UPDATE crawl_tasks t SET status = 'crawling', status_reason = 'fetching'
FROM unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS w(id, attempt) WHERE t.id = w.id AND t.attempt = w.attempt AND t.status = 'queued'
"""
_MOVED: Final = """
UPDATE crawl_tasks t SET status = 'pending', status_reason = 'moved: to ' || w.url, fetch_url = w.url, fetch_key = w.key, hops = t.hops + 1
FROM unnest(%(ids)s::bigint[], %(attempts)s::int[], %(urls)s::text[], %(keys)s::bytea[]) AS w(id, attempt, url, key)
WHERE t.id = w.id AND t.attempt = w.attempt AND t.status = 'crawling'
"""


class TaskUrl(NamedTuple):
    """A URL to fetch for a task."""

    domain_id: int
    url_key: bytes
    url: str
    priority: int
    hops: int = 0


def redirected_tasks(connection: psycopg.Connection, task_ids: Sequence[int]) -> dict[int, tuple[UrlRef, int]]:
    """Redirected tasks among these: by id the redirect target and the number of hops."""
    return {row[0]: (UrlRef(row[1], row[2]), row[3]) for row in connection.execute(_WENT, {"ids": list(task_ids)})}


def enqueue(connection: psycopg.Connection, wanted: Sequence[TaskUrl]) -> None:
    """Put the URLs of tasks into the frontier.

    Before: the transaction is open that has queued the tasks. After (with its commit): each URL waits, or will when the wake is folded.
    """
    if not wanted:
        return
    columns = {
        "domains": [one.domain_id for one in wanted],
        "keys": [one.url_key for one in wanted],
        "urls": [one.url for one in wanted],
        "priorities": [one.priority for one in wanted],
        "hops": [one.hops for one in wanted],
    }
    connection.execute(_SHARE, columns)
    connection.execute(_ENQUEUE, columns)


def take(
    connection: psycopg.Connection, *, domain_id: int, job_id: int, count: int, exclude: Sequence[bytes], epoch: int
) -> FrontierBatch:
    """The URLs of `frontier.take`, each with its tasks, whose status becomes crawling, for display.

    A URL without a task (paused, cancelled or ended) must not be fetched.
    """
    taken = frontier.take(connection, domain_id=domain_id, job_id=job_id, count=count, exclude=exclude)
    at_work: dict[bytes, list[tuple[int, int]]] = {}
    for key, task_id, attempt in connection.execute(_AT_WORK, {"keys": [item.url_key for item in taken.urls]}):
        at_work.setdefault(key, []).append((task_id, attempt))
    begun = set(task_work.begin_crawl(connection, [pair for pairs in at_work.values() for pair in pairs], epoch=epoch))
    return FrontierBatch(
        [item._replace(tasks=_begun_pairs(at_work.get(item.url_key, ()), begun)) for item in taken.urls], taken.next_in
    )


def has_waiting_task(connection: psycopg.Connection, domain_id: int) -> bool:
    """Whether a task waits for a URL of this domain now."""
    row = connection.execute(_WAITS, {"domain": domain_id}).fetchone()
    return bool(row and row[0])


def record(connection: psycopg.Connection, parts: Sequence[VisitPart]) -> None:
    """Record the outcomes of these parts in their tasks.

    Before: the outcomes are settled in the open transaction, and wakes are folded in it afterwards. After (with its commit): a task
    whose page is there waits to be parsed, one that was led elsewhere is pending there, one that failed is tried again later, or has
    failed; a URL that other tasks want by now waits again.
    """
    over = [
        (part, outcome)
        for part in parts
        if part.for_tasks
        for outcome in part.outcomes
        if outcome.state is not UrlState.WAITING
    ]
    if not over:
        return
    ended = [pair for pair in over if pair[1].tasks]
    _redirect_tasks(connection, [outcome for _, outcome in ended if outcome.moved_to is not None])
    kept = _archive_refs(connection, ended)
    new = task_work.record(
        connection,
        [
            _result(outcome, task_id, attempt, kept.get((part.domain_id, outcome.url_key)))
            for part, outcome in ended
            if outcome.moved_to is None
            for task_id, attempt in outcome.tasks
        ],
    )
    job_queue.defer_parse(connection, [task_id for task_id, status in new.items() if status is TaskStatus.QUEUED_PARSE])
    connection.execute(_STILL_WANTED, _keys(over))


def _keys(pairs: Sequence[tuple[VisitPart, UrlOutcome]]) -> dict[str, list[object]]:
    return {
        "domains": [part.domain_id for part, _ in pairs],
        "jobs": [outcome.job_id for _, outcome in pairs],
        "keys": [outcome.url_key for _, outcome in pairs],
    }


def _begun_pairs(pairs: Sequence[tuple[int, int]], begun: set[int]) -> tuple[tuple[int, int], ...]:
    return tuple(pair for pair in pairs if pair[0] in begun)


def _redirect_tasks(connection: psycopg.Connection, redirected: Sequence[UrlOutcome]) -> None:
    if not redirected:
        return
    rows = [
        (task_id, attempt, *outcome.moved_to)
        for outcome in redirected
        if outcome.moved_to is not None
        for task_id, attempt in outcome.tasks
    ]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(("ids", "attempts", "urls", "keys"))}
    connection.execute(_FETCHING, columns)
    connection.execute(_MOVED, columns)


def _archive_refs(
    connection: psycopg.Connection, ended: Sequence[tuple[VisitPart, UrlOutcome]]
) -> Mapping[tuple[int, bytes], ArchiveRef]:
    pages = [pair for pair in ended if TREATMENT[pair[1].outcome].page]
    if not pages:
        return {}
    return {(row[0], row[1]): ArchiveRef(*row[2:]) for row in connection.execute(_KEPT, _keys(pages))}


def _result(outcome: UrlOutcome, task_id: int, attempt: int, kept: ArchiveRef | None) -> CrawlResult:
    treatment = TREATMENT[outcome.outcome]
    error: str | None = None
    if not treatment.page:
        error = outcome.reason or str(outcome.outcome)
    elif kept is None:
        error = "The page is there, but its bytes are not in the archive."
    return CrawlResult(
        task_id,
        attempt,
        error,
        permanent=error is not None and not treatment.retry and outcome.outcome is not Outcome.OK,
        http_status=outcome.status,
        response_ms=outcome.duration_ms,
        proxy_id=None if outcome.proxy is None else outcome.proxy.proxy_id,
        archive=kept,
    )
