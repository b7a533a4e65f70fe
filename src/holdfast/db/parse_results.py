"""What parsers found in the pages of tasks, the last time that they succeeded.

The rule: a result is written in the transaction that fences its task by the attempt, together with its products, and one that is good
stays until another good one takes its place.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import RowMaker, class_row
from psycopg.types.json import Jsonb

from holdfast.db import products
from holdfast.db import task_results as task_work
from holdfast.db.connection import first_line
from holdfast.db.rows import by_name
from holdfast.db.tasks import COLUMNS, as_task
from holdfast.errors import StoreError
from holdfast.model.parse_result import ParseDone, encode
from holdfast.model.task import Task

# The fetch is the last change from crawling to downloaded: asking for another parse also makes a task downloaded, but not from there.
_SHOWN: Final = f"""
{COLUMNS}, COALESCE(t.parser_name, d.parser_name) AS parser, COALESCE((
    SELECT e.at FROM task_events e WHERE e.task_id = t.id AND e.from_status = 'crawling' AND e.to_status = 'downloaded'
    ORDER BY e.version DESC LIMIT 1), t.started_at, t.created_at) AS fetched_at
"""  # noqa: S608 — a constant
_OF_TASK: Final = f"SELECT {_SHOWN} FROM crawl_tasks t JOIN domains d ON d.id = t.domain_id WHERE t.id = %(id)s"  # noqa: S608 — a constant
# What makes a task be left out is looked at afterwards: no statement walks far in search of the next that is wanted.
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
_READ: Final = """
SELECT parser, parser_version, fetched_at, parsed_at, data, products, product_keys FROM parse_results WHERE task_id = %(task)s
"""
_REPLACES: Final = """
UPDATE crawl_tasks SET parsed_by = %(parser)s, parser_version = %(version)s
WHERE id = %(task)s AND status = 'completed' AND attempt = %(attempt)s
"""


@dataclass(frozen=True, slots=True)
class ToParse:
    """A task whose page is there: which parser it is for, and when the page was fetched, by the database's clock."""

    task: Task
    parser: str
    fetched_at: datetime


@dataclass(frozen=True, slots=True)
class Result:
    """What was found; `data` and `products` as JSON says them."""

    parser: str
    parser_version: str
    fetched_at: datetime
    parsed_at: datetime
    data: dict[str, Any]
    products: list[dict[str, Any]]
    product_keys: list[bytes]
    """By which each product is known again."""


def take(connection: psycopg.Connection, task_id: int) -> ToParse | None:
    """Take a task to parse it, under a new attempt; None if it does not wait to be parsed, or not yet.

    A transaction may be open. After (with its commit): it is parsing, and nobody else is given it.
    """
    with connection.transaction(), connection.cursor(row_factory=_as_to_parse) as cursor:
        if task_work.begin_parse(connection, task_id) is None:
            return None
        return cursor.execute(_OF_TASK, {"id": task_id}).fetchone()


def completed(connection: psycopg.Connection, *, after: int, limit: int, domain_id: int | None = None) -> list[ToParse]:
    """Tasks that are completed, by id, behind the one called `after`."""
    query = _COMPLETED.format(where="" if domain_id is None else _OF_DOMAIN)
    with connection.cursor(row_factory=_as_to_parse) as cursor:
        # Never prepared: a plan for any id knows nothing of where in the index this one is.
        keys = {"after": after, "limit": limit, "domain_id": domain_id}
        return cursor.execute(query, keys, prepare=False).fetchall()


def get(connection: psycopg.Connection, task_id: int) -> Result | None:
    """What was found in a task's page; None: nothing yet."""
    with connection.cursor(row_factory=class_row(Result)) as cursor:
        return cursor.execute(_READ, {"task": task_id}).fetchone()


def finish(connection: psycopg.Connection, taken: ToParse, done: ParseDone) -> bool:
    """A task that was taken is parsed; False if it is another's by now, and then nothing changed.

    A transaction may be open. After (with its commit): the task is completed, and what was found in it is written down.
    """
    with connection.transaction():
        own = task_work.complete_parse(
            connection, taken.task.id, taken.task.attempt, parser=done.parser, parser_version=done.version
        )
        if own:
            save(connection, taken, done)
        return own


def replace(connection: psycopg.Connection, chosen: ToParse, done: ParseDone) -> bool:
    """A completed task was parsed again; False if it was given to somebody since, and then nothing changed.

    A transaction may be open. After (with its commit): what was found now stands in the place of what was found before.
    """
    with connection.transaction():
        keys = {"task": chosen.task.id, "attempt": chosen.task.attempt}
        own = connection.execute(_REPLACES, keys | _parser(done)).rowcount == 1
        if own:
            save(connection, chosen, done)
        return own


def save(connection: psycopg.Connection, parsed: ToParse, done: ParseDone) -> None:
    """Write down what was found. StoreError if the database cannot take it, and then nothing may be committed.

    Before: a transaction is open that has the task's row, fenced by its attempt. After (with its commit): the task has this result
    and no other, and its products are known. Doing it again changes nothing but when it was parsed.
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
        # What another fetch under this task showed is history, and stays.
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
