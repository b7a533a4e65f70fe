"""Tasks and the frontier: the URLs of queued tasks are the frontier of a standing job, so that the same crawler fetches them.

The rule: the frontier row says which URL to fetch, the task says for which task. The tasks of a URL are looked up when it is taken,
and their outcome is recorded under the attempt of that moment; an operator's change meanwhile takes precedence: a task that was paused,
cancelled or restarted accepts no earlier result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, NamedTuple

import psycopg

from holdfast.db import frontier, job_queue
from holdfast.db.frontier import FrontierBatch
from holdfast.model.commit_batch import UrlOutcome, UrlRef, VisitPart
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.model.task import TaskStatus, clean_error, retry_delay

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

# A task that is crawling already belonged to a holder that was lost; this holder crawls it again.
_BEGIN: Final = """
WITH mine AS MATERIALIZED (
    SELECT t.id FROM crawl_tasks t JOIN unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS w(id, attempt) USING (id, attempt)
    WHERE t.status IN ('queued', 'crawling') ORDER BY t.id FOR NO KEY UPDATE OF t
)
UPDATE crawl_tasks t SET status = 'crawling', status_reason = 'fetching', claim_epoch = %(epoch)s
FROM mine WHERE t.id = mine.id RETURNING t.id
"""

_LOCK: Final = """
SELECT t.id, t.status::text, t.retry_count, t.max_retries
FROM crawl_tasks t JOIN unnest(%(ids)s::bigint[], %(attempts)s::int[]) AS w(id, attempt) USING (id, attempt)
WHERE t.status IN ('queued', 'crawling') ORDER BY t.id FOR NO KEY UPDATE OF t
"""
_LOCKED_FETCHING: Final = """
UPDATE crawl_tasks SET status = 'crawling', status_reason = 'fetching' WHERE id = ANY(%(ids)s) AND status = 'queued'
"""
_ANSWERED: Final = """
UPDATE crawl_tasks t SET http_status_code = w.http_status, response_time_ms = w.response_ms, proxy_id = w.proxy,
    archive_segment = w.segment, archive_offset = w.place, archive_length = w.length, archive_digest = w.digest,
    status = 'downloaded', status_reason = 'fetched', error_message = NULL, retry_count = 0
FROM unnest(%(ids)s::bigint[], %(statuses)s::smallint[], %(times)s::int[], %(proxies)s::bigint[], %(segments)s::text[],
            %(places)s::bigint[], %(lengths)s::bigint[], %(digests)s::bytea[])
     AS w(id, http_status, response_ms, proxy, segment, place, length, digest)
WHERE t.id = w.id
"""
_ASK_FOR_PARSING: Final = """
UPDATE crawl_tasks SET status = 'queued_parse', status_reason = 'to be parsed', parse_after = clock_timestamp()
WHERE id = ANY(%(ids)s)
"""
_NOT_ANSWERED: Final = """
UPDATE crawl_tasks t SET http_status_code = w.http_status, response_time_ms = w.response_ms, proxy_id = w.proxy, error_message = w.error,
    status = CASE WHEN w.wait IS NULL THEN 'failed' ELSE 'pending' END::task_status,
    status_reason = CASE WHEN w.wait IS NULL THEN 'failed: ' ELSE 'another try: ' END || w.error,
    retry_count = t.retry_count + CASE WHEN w.wait IS NULL THEN 0 ELSE 1 END,
    scheduled_at = COALESCE(clock_timestamp() + w.wait, t.scheduled_at)
FROM unnest(%(ids)s::bigint[], %(statuses)s::smallint[], %(times)s::int[], %(proxies)s::bigint[], %(errors)s::text[],
            %(waits)s::interval[])
     AS w(id, http_status, response_ms, proxy, error, wait)
WHERE t.id = w.id
"""


@dataclass(frozen=True, slots=True)
class CrawlResult:
    """The result of fetching a task's URL."""

    task_id: int
    attempt: int
    """The attempt as `due` returned it; a result with another attempt is refused."""
    error: str | None = None
    """None: the page is stored."""
    permanent: bool = False
    """The error would repeat, so there is no retry."""
    http_status: int | None = None
    response_ms: int | None = None
    proxy_id: int | None = None
    archive: ArchiveRef | None = None


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
    begun = set(begin_crawl(connection, [pair for pairs in at_work.values() for pair in pairs], epoch=epoch))
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
    new = record_results(
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


def begin_crawl(connection: psycopg.Connection, tasks: Sequence[tuple[int, int]], *, epoch: int) -> list[int]:
    """Mark tasks, each with its attempt, as being fetched under this claim; returns the ids of those that may be.

    A transaction may be open. After (with its commit): those in the answer are crawling. For display only: a new holder of the
    domain repeats it, and results may be recorded without it.
    """
    ids, attempts = [task_id for task_id, _ in tasks], [attempt for _, attempt in tasks]
    with connection.transaction():
        return [row[0] for row in connection.execute(_BEGIN, {"ids": ids, "attempts": attempts, "epoch": epoch})]


def record_results(connection: psycopg.Connection, results: Sequence[CrawlResult]) -> dict[int, TaskStatus]:
    """Record the results of fetching tasks; returns the new status of each task that accepted its result.

    A transaction may be open: a commit of a batch calls this last, since it locks rows of tasks. After (with its commit): a task
    whose page is there waits to be parsed; one that failed is pending again, after 1, 2, 4 … minutes, or failed with the error
    kept. A result under another attempt, or of a task that an operator paused, cancelled or restarted, changes nothing and is not in the
    answer.
    """
    by_id = {result.task_id: result for result in results}
    with connection.transaction():
        keys = {"ids": list(by_id), "attempts": [result.attempt for result in by_id.values()]}
        locked = connection.execute(_LOCK, keys).fetchall()
        if not locked:
            return {}
        fetched = [by_id[row[0]] for row in locked if by_id[row[0]].error is None]
        failed = [(by_id[row[0]], _wait(by_id[row[0]], *row[2:])) for row in locked if by_id[row[0]].error is not None]
        connection.execute(_LOCKED_FETCHING, {"ids": [row[0] for row in locked]})
        _record_fetched(connection, fetched)
        _record_failed(connection, failed)
    ends = {result.task_id: TaskStatus.FAILED if wait is None else TaskStatus.PENDING for result, wait in failed}
    return ends | {result.task_id: TaskStatus.QUEUED_PARSE for result in fetched}


def _record_fetched(connection: psycopg.Connection, results: Sequence[CrawlResult]) -> None:
    if results:
        refs = [result.archive for result in results]
        columns = _columns(results) | {
            "segments": [ref and ref.segment for ref in refs],
            "places": [ref and ref.offset for ref in refs],
            "lengths": [ref and ref.length for ref in refs],
            "digests": [ref and ref.payload_digest for ref in refs],
        }
        connection.execute(_ANSWERED, columns)
        connection.execute(_ASK_FOR_PARSING, {"ids": columns["ids"]})


def _record_failed(connection: psycopg.Connection, failed: Sequence[tuple[CrawlResult, timedelta | None]]) -> None:
    if failed:
        columns = _columns([result for result, _ in failed])
        errors = [clean_error(result.error or "") for result, _ in failed]
        connection.execute(_NOT_ANSWERED, columns | {"errors": errors, "waits": [wait for _, wait in failed]})


def _wait(result: CrawlResult, retry_count: int, max_retries: int) -> timedelta | None:
    return None if result.permanent else retry_delay(retry_count, max_retries)


def _columns(results: Sequence[CrawlResult]) -> dict[str, list[object]]:
    return {
        "ids": [result.task_id for result in results],
        "statuses": [result.http_status for result in results],
        "times": [result.response_ms for result in results],
        "proxies": [result.proxy_id for result in results],
    }
