"""Tasks at work: what the engine and the parse phase say came of them.

The rule: a result counts only under the attempt that it was asked for. What a person did meanwhile stands: a task that was paused,
cancelled or started anew takes no result of before.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import psycopg

from holdfast.db.tasks import READ, as_task
from holdfast.model.task import CrawlResult, Task, TaskStatus, clean_error, retry_delay

# Under way for somebody else means: its holder was lost, and this one crawls it anew.
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
_FETCHING: Final = """
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

_PARSE_DUE: Final = """
SELECT id FROM crawl_tasks WHERE status = 'queued_parse' AND (parse_after <= statement_timestamp() OR parse_after IS NULL)
ORDER BY priority, parse_after NULLS FIRST, id LIMIT %(limit)s
"""
_BEGIN_PARSE: Final = """
UPDATE crawl_tasks SET status = 'parsing', status_reason = 'parsing'
WHERE id = %(id)s AND status = 'queued_parse' AND (parse_after <= statement_timestamp() OR parse_after IS NULL)
"""
_COMPLETE_PARSE: Final = """
UPDATE crawl_tasks SET status = 'completed', status_reason = 'parsed', error_message = NULL,
    parsed_by = %(parser)s, parser_version = %(parser_version)s
WHERE id = %(id)s AND status = 'parsing' AND attempt = %(attempt)s
"""
_PARSED_AT: Final = """
SELECT retry_count, max_retries FROM crawl_tasks WHERE id = %(id)s AND status = 'parsing' AND attempt = %(attempt)s FOR NO KEY UPDATE
"""
_PARSE_AGAIN: Final = """
UPDATE crawl_tasks SET status = 'queued_parse', status_reason = 'another try: ' || %(error)s, error_message = %(error)s,
    retry_count = retry_count + 1, parse_after = clock_timestamp() + %(wait)s
WHERE id = %(id)s
"""
_PARSE_FAILED: Final = """
UPDATE crawl_tasks SET status = 'failed', status_reason = 'failed: ' || %(error)s, error_message = %(error)s WHERE id = %(id)s
"""
_LOST: Final = """
WITH lost AS MATERIALIZED (
    SELECT t.id FROM crawl_tasks t WHERE t.status = 'parsing'
      AND (SELECT e.at FROM task_events e WHERE e.task_id = t.id AND e.version = t.version) <= clock_timestamp() - %(older_than)s
    ORDER BY t.id LIMIT %(limit)s FOR NO KEY UPDATE OF t SKIP LOCKED
)
UPDATE crawl_tasks t SET status = 'queued_parse', status_reason = 'another try: the parser was lost', parse_after = clock_timestamp()
FROM lost WHERE t.id = lost.id RETURNING t.id
"""
# Nobody leaves one there but a hand: who fetches it, or restarts its parsing, asks for the parsing in the same transaction.
_LEFT: Final = """
WITH found AS MATERIALIZED (
    SELECT id FROM crawl_tasks WHERE status = 'downloaded' ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE crawl_tasks t SET status = 'queued_parse', status_reason = 'to be parsed', parse_after = clock_timestamp()
FROM found WHERE t.id = found.id RETURNING t.id
"""


# Crawling ------------------------------------------------------------------------------------------------------------


def begin_crawl(connection: psycopg.Connection, tasks: Sequence[tuple[int, int]], *, epoch: int) -> list[int]:
    """Say that these, each with its attempt, are being fetched under this claim; the ids of those that may be.

    A transaction may be open. After (with its commit): those in the answer are crawling. For display only: a new holder of the
    domain says it again, and whoever does not say it at all may record results all the same.
    """
    ids, attempts = [task_id for task_id, _ in tasks], [attempt for _, attempt in tasks]
    with connection.transaction():
        return [row[0] for row in connection.execute(_BEGIN, {"ids": ids, "attempts": attempts, "epoch": epoch})]


def record(connection: psycopg.Connection, results: Sequence[CrawlResult]) -> dict[int, TaskStatus]:
    """Write down what came of fetching tasks; the new status of each that it counted for.

    A transaction may be open: a commit of a batch calls this last, since it locks rows of tasks. After (with its commit): a task
    whose page is there waits to be parsed; one that failed is pending again, after 1, 2, 4 … minutes, or failed with the error
    kept. A result under another attempt, or of a task that a person took away, changes nothing and is not in the answer.
    """
    by_id = {result.task_id: result for result in results}
    with connection.transaction():
        keys = {"ids": list(by_id), "attempts": [result.attempt for result in by_id.values()]}
        locked = connection.execute(_LOCK, keys).fetchall()
        if not locked:
            return {}
        fetched = [by_id[row[0]] for row in locked if by_id[row[0]].error is None]
        failed = [(by_id[row[0]], _wait(by_id[row[0]], *row[2:])) for row in locked if by_id[row[0]].error is not None]
        connection.execute(_FETCHING, {"ids": [row[0] for row in locked]})
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


# Parsing -------------------------------------------------------------------------------------------------------------


def parse_due(connection: psycopg.Connection, limit: int) -> list[int]:
    """Tasks that wait to be parsed, in their order. It takes none of them: `begin_parse` does."""
    return [row[0] for row in connection.execute(_PARSE_DUE, {"limit": limit})]


def begin_parse(connection: psycopg.Connection, task_id: int) -> Task | None:
    """Take a task to parse it, under a new attempt; None if it does not wait to be parsed, or not yet.

    A transaction may be open. After (with its commit): it is parsing, and nobody else is given it.
    """
    with connection.transaction(), connection.cursor(row_factory=as_task) as cursor:
        if not connection.execute(_BEGIN_PARSE, {"id": task_id}).rowcount:
            return None
        return cursor.execute(f"{READ} WHERE t.id = %s", (task_id,)).fetchone()


def complete_parse(
    connection: psycopg.Connection, task_id: int, attempt: int, *, parser: str, parser_version: str
) -> bool:
    """A task was parsed; False if it is another's by now, and then nothing of the result may be written.

    Before: a transaction is open, in which the result is written too, after this. After (with its commit): the task is completed,
    and if it recurs its next time is set.
    """
    keys = {"id": task_id, "attempt": attempt, "parser": parser[:100], "parser_version": parser_version[:100]}
    return connection.execute(_COMPLETE_PARSE, keys).rowcount == 1


def fail_parse(
    connection: psycopg.Connection, task_id: int, attempt: int, *, error: str, permanent: bool = False
) -> TaskStatus | None:
    """A task could not be parsed; its new status, or None if it is another's by now.

    A transaction may be open. After (with its commit): it waits to be parsed again, after 1, 2, 4 … minutes, or has failed with the
    error kept. It is not fetched again for that.
    """
    keys: dict[str, object] = {"id": task_id, "attempt": attempt, "error": clean_error(error)}
    with connection.transaction():
        row = connection.execute(_PARSED_AT, keys).fetchone()
        if row is None:
            return None
        wait = None if permanent else retry_delay(*row)
        if wait is None:
            connection.execute(_PARSE_FAILED, keys)
            return TaskStatus.FAILED
        connection.execute(_PARSE_AGAIN, keys | {"wait": wait})
        return TaskStatus.QUEUED_PARSE


def reclaim_parses(connection: psycopg.Connection, *, older_than: timedelta, limit: int) -> list[int]:
    """Let tasks be parsed that nobody is at: those that have been parsing for so long that their parser must be lost, and those that
    somebody made `downloaded` by hand; their ids.

    A transaction may be open. After (with its commit): they wait to be parsed, and what a lost parser may still say is refused.
    """
    with connection.transaction():
        lost = connection.execute(_LOST, {"older_than": older_than, "limit": limit}).fetchall()
        left = connection.execute(_LEFT, {"limit": limit}).fetchall()
    return [row[0] for row in lost + left]
