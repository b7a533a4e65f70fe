"""The parsing of tasks, and the results of parsers: what they found in the pages of tasks, the last time that they succeeded.

The rule: a result counts only under the attempt of its parse. It is written in the transaction that fences its task by that attempt,
together with its products, and a good one stays until another good one replaces it.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import RowMaker, class_row
from psycopg.types.json import Jsonb

from holdfast.db import products
from holdfast.db.connection import first_line
from holdfast.db.rows import by_name
from holdfast.db.tasks import COLUMNS, as_task
from holdfast.errors import StoreError
from holdfast.model.parse_result import ParseDone, encode
from holdfast.model.task import TaskStatus, clean_error, retry_delay
from holdfast.tasks.records import Task

# The fetch is the last change from crawling to downloaded: asking for another parse also makes a task downloaded, but not from there.
_SHOWN: Final = f"""
{COLUMNS}, COALESCE(t.parser_name, d.parser_name) AS parser, COALESCE((
    SELECT e.at FROM task_events e WHERE e.task_id = t.id AND e.from_status = 'crawling' AND e.to_status = 'downloaded'
    ORDER BY e.version DESC LIMIT 1), t.started_at, t.created_at) AS fetched_at
"""  # noqa: S608 — a constant
_OF_TASK: Final = f"SELECT {_SHOWN} FROM crawl_tasks t JOIN domains d ON d.id = t.domain_id WHERE t.id = %(id)s"  # noqa: S608 — a constant
# Further filters are applied to the rows afterwards: no statement walks far in search of the next match.
_COMPLETED: Final = f"""
WITH t AS MATERIALIZED (
    SELECT * FROM crawl_tasks c WHERE c.status = 'completed' AND c.id > %(after)s {{where}} ORDER BY c.id LIMIT %(limit)s
)
SELECT {_SHOWN} FROM t JOIN domains d ON d.id = t.domain_id ORDER BY t.id
"""  # noqa: S608 — a constant
_OF_DOMAIN: Final = " AND c.domain_id = %(domain_id)s"

_BEFORE: Final = "SELECT fetched_at, product_keys FROM parse_results WHERE task_id = %(task)s"
_SAVE: Final = """
INSERT INTO parse_results (task_id, fetched_at, attempt, parser, parser_version, product_keys, data, products)
VALUES (%(task)s, %(at)s, %(attempt)s, %(parser)s, %(version)s, %(keys)s::bytea[], %(data)s, %(products)s)
ON CONFLICT (task_id) DO UPDATE SET fetched_at = excluded.fetched_at, parsed_at = excluded.parsed_at, attempt = excluded.attempt,
    parser = excluded.parser, parser_version = excluded.parser_version, product_keys = excluded.product_keys, data = excluded.data,
    products = excluded.products
"""
_RESULT: Final = """
SELECT parser, parser_version, fetched_at, parsed_at, data, products, product_keys FROM parse_results WHERE task_id = %(task)s
"""
_REPLACES: Final = """
UPDATE crawl_tasks SET parsed_by = %(parser)s, parser_version = %(version)s
WHERE id = %(task)s AND status = 'completed' AND attempt = %(attempt)s
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
# Only SQL written by hand leaves a task `downloaded`: a fetch, and a restart of the parsing, queue the parse in the same transaction.
_LEFT: Final = """
WITH found AS MATERIALIZED (
    SELECT id FROM crawl_tasks WHERE status = 'downloaded' ORDER BY id LIMIT %(limit)s FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE crawl_tasks t SET status = 'queued_parse', status_reason = 'to be parsed', parse_after = clock_timestamp()
FROM found WHERE t.id = found.id RETURNING t.id
"""


@dataclass(frozen=True, slots=True)
class ToParse:
    """A task whose page is stored, its parser, and when the page was fetched, by the database's clock."""

    task: Task
    parser: str
    fetched_at: datetime


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a parser; `data` and `products` as JSON values."""

    parser: str
    parser_version: str
    fetched_at: datetime
    parsed_at: datetime
    data: dict[str, Any]
    products: list[dict[str, Any]]
    product_keys: list[bytes]
    """The identity of each product."""


# The status of tasks -------------------------------------------------------------------------------------------------


def parse_due(connection: psycopg.Connection, limit: int) -> list[int]:
    """Return tasks that wait to be parsed, in their order. It takes none of them: `take` does."""
    return [row[0] for row in connection.execute(_PARSE_DUE, {"limit": limit})]


def complete_parse(
    connection: psycopg.Connection, task_id: int, attempt: int, *, parser: str, parser_version: str
) -> bool:
    """Complete a task that was parsed; False if it was taken again meanwhile, and then nothing of the result may be written.

    Before: a transaction is open, in which the result is written too, after this. After (with its commit): the task is completed,
    and if it recurs its next time is set.
    """
    keys = {"id": task_id, "attempt": attempt, "parser": parser[:100], "parser_version": parser_version[:100]}
    return connection.execute(_COMPLETE_PARSE, keys).rowcount == 1


def fail_parse(
    connection: psycopg.Connection, task_id: int, attempt: int, *, error: str, permanent: bool = False
) -> TaskStatus | None:
    """Record that a task could not be parsed; returns its new status, or None if it was taken again meanwhile.

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
    """Queue the parse of tasks that no process parses: those that have been parsing for longer than `older_than`, so that their parser
    must be lost, and those that were set `downloaded` by hand. Returns their ids.

    A transaction may be open. After (with its commit): they wait to be parsed, and a late result of a lost parser is refused.
    """
    with connection.transaction():
        lost = connection.execute(_LOST, {"older_than": older_than, "limit": limit}).fetchall()
        left = connection.execute(_LEFT, {"limit": limit}).fetchall()
    return [row[0] for row in lost + left]


# Results -------------------------------------------------------------------------------------------------------------


def take(connection: psycopg.Connection, task_id: int) -> ToParse | None:
    """Take a task to parse it, under a new attempt; None if it does not wait to be parsed, or not yet.

    A transaction may be open. After (with its commit): it is parsing, and no other process takes it.
    """
    with connection.transaction(), connection.cursor(row_factory=_as_to_parse) as cursor:
        if not connection.execute(_BEGIN_PARSE, {"id": task_id}).rowcount:
            return None
        return cursor.execute(_OF_TASK, {"id": task_id}).fetchone()


def completed(connection: psycopg.Connection, *, after: int, limit: int, domain_id: int | None = None) -> list[ToParse]:
    """Return completed tasks with ids above `after`, by id."""
    query = _COMPLETED.format(where="" if domain_id is None else _OF_DOMAIN)
    with connection.cursor(row_factory=_as_to_parse) as cursor:
        # Never prepared: a generic plan does not know where in the index this id is.
        keys = {"after": after, "limit": limit, "domain_id": domain_id}
        return cursor.execute(query, keys, prepare=False).fetchall()


def get(connection: psycopg.Connection, task_id: int) -> Result | None:
    """Return the result of a task's page; None: nothing yet."""
    with connection.cursor(row_factory=class_row(Result)) as cursor:
        return cursor.execute(_RESULT, {"task": task_id}).fetchone()


def finish(connection: psycopg.Connection, taken: ToParse, done: ParseDone) -> bool:
    """Complete a task and save its result; False if it was taken again meanwhile, and then nothing changed.

    A transaction may be open. After (with its commit): the task is completed, and its result is stored.
    """
    with connection.transaction():
        own = complete_parse(
            connection, taken.task.id, taken.task.attempt, parser=done.parser, parser_version=done.version
        )
        if own:
            save(connection, taken, done)
        return own


def replace(connection: psycopg.Connection, chosen: ToParse, done: ParseDone) -> bool:
    """Replace the result of a completed task; False if the task was restarted meanwhile, and then nothing changed.

    A transaction may be open. After (with its commit): the new result has replaced the one before.
    """
    with connection.transaction():
        keys = {"task": chosen.task.id, "attempt": chosen.task.attempt}
        own = connection.execute(_REPLACES, keys | _parser(done)).rowcount == 1
        if own:
            save(connection, chosen, done)
        return own


def save(connection: psycopg.Connection, parsed: ToParse, done: ParseDone) -> None:
    """Save a result. Raises StoreError if the database cannot store it, and then nothing may be committed.

    Before: a transaction is open that has the task's row, fenced by its attempt. After (with its commit): the task has this result
    and no other, and its products are known. To repeat it changes nothing but the time of the parse.
    """
    task, found = parsed.task, done.extracted.products
    written = json.loads(encode(done.extracted))
    keys = [products.identity_key(product) for product in found]
    try:
        before = connection.execute(_BEFORE, {"task": task.id}).fetchone()
        values = {
            "task": task.id,
            "at": parsed.fetched_at,
            "attempt": task.attempt,
            "keys": keys,
            "data": Jsonb(done.extracted.record),
            "products": Jsonb(written["products"]),
        }
        connection.execute(_SAVE, values | _parser(done))
        # Products of another fetch of this task are history, and stay.
        gone = set(before[1]) - set(keys) if before and before[0] == parsed.fetched_at else set()
        look = products.Look(task.domain_id, task.url_hash, task.url, task.id, parsed.fetched_at)
        products.observe(connection, look, found, written["products"], sorted(gone))
    except (psycopg.DataError, psycopg.IntegrityError) as problem:
        raise StoreError(f"The database cannot take what the parser found: {first_line(problem)}.") from problem


def _parser(done: ParseDone) -> dict[str, str]:
    return {"parser": done.parser[:100], "version": done.version[:100]}


def _as_to_parse(cursor: psycopg.Cursor[Any]) -> RowMaker[ToParse]:
    task, page = as_task(cursor), _as_page(cursor)
    return lambda row: ToParse(task(row), *page(row))


def _page(parser: str, fetched_at: datetime) -> tuple[str, datetime]:
    return parser, fetched_at


_as_page: Final = by_name(_page)
