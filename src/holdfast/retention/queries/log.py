"""SQL of the step of retention that drops weeks of the log of requests.

The rule: the transaction that drops a partition adds its sums to the roll-ups, so that every counter is roll-up + log at every moment. It
waits for its lock on the log only a moment at a time, since writers queue behind it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count as count_from
from typing import Any, Final, LiteralString, NamedTuple

import psycopg
from psycopg import sql

from holdfast.db.verify import parameters
from holdfast.errors import UnderWay
from holdfast.retention.queries import chunks
from holdfast.retention.queries.chunks import Column

STEP: Final = "log"
"""The kind of its archives."""
BLOCKS: Final = 2_048
"""Blocks of a partition in a file of its archive: 16 MB, about 100 000 rows."""
PART_WAIT: Final = timedelta(seconds=5)
"""For the lock of a week that nobody writes to. Nobody waits behind it, and it sends an autovacuum away."""
LOG_WAIT: Final = timedelta(milliseconds=400)
"""For the lock of the whole log, each time: workers wait behind it."""
_PAUSE: Final = 0.6
_TIMES: Final = 5
"""How often it is asked for."""

_PARTITIONS: Final = """
SELECT c.relname, GREATEST(c.reltuples, 0)::bigint FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = 'crawl_log'::regclass AND c.relname ~ '^crawl_log_[0-9]{8}$'
  AND (to_date(right(c.relname, 8), 'YYYYMMDD') + 7)::timestamp AT TIME ZONE 'UTC' <= clock_timestamp() - %(kept)s::interval
  AND NOT EXISTS (SELECT FROM archives a WHERE a.kind = 'log' AND split_part(a.source, '-', 1) = c.relname
                  AND a.kept_until > clock_timestamp())
ORDER BY c.relname
"""
_STARTED: Final = """
SELECT a.id, a.source, count(f.number), COALESCE(sum(f.rows), 0)::bigint, COALESCE(max(f.mark::bigint), 0), min(a.started_at)
FROM archives a LEFT JOIN archive_files f ON f.archive_id = a.id
WHERE a.kind = 'log' AND split_part(a.source, '-', 1) = %(part)s AND a.state = 'writing' AND a.place = %(place)s GROUP BY a.id
"""
_SOURCES: Final = "SELECT source FROM archives WHERE kind = 'log' AND split_part(source, '-', 1) = %(part)s"
_SUMS: Final = """
    SELECT domain_id, job_id, count(*) AS requests, count(*) FILTER (WHERE outcome = ANY(%(pages)s)) AS pages,
           count(*) FILTER (WHERE outcome = ANY(%(errors)s)) AS errors, COALESCE(sum(images_found), 0)::bigint AS images_found,
           min(crawled_at) AS first_at, max(crawled_at) AS last_at
    FROM {part} GROUP BY domain_id, job_id
"""
_PROXY_SUMS: Final = """
    SELECT domain_id, proxy_id, count(*) AS requests, count(*) FILTER (WHERE outcome = ANY(%(successes)s)) AS successes,
           count(*) FILTER (WHERE outcome = ANY(%(refusals)s)) AS refusals, count(*) FILTER (WHERE outcome = ANY(%(failures)s)) AS failures,
           COALESCE(sum(bytes), 0)::bigint AS bytes
    FROM {part} WHERE proxy_id IS NOT NULL GROUP BY domain_id, proxy_id
"""
_ROLL_UP: Final = """
INSERT INTO crawl_log_rollups AS r (domain_id, job_id, requests, pages, errors, images_found, first_at, last_at)
SELECT domain_id, job_id, requests, pages, errors, images_found, first_at, last_at FROM ({sums}) s ORDER BY domain_id, job_id
ON CONFLICT (domain_id, job_id) DO UPDATE SET requests = r.requests + excluded.requests, pages = r.pages + excluded.pages,
    errors = r.errors + excluded.errors, images_found = r.images_found + excluded.images_found,
    first_at = LEAST(r.first_at, excluded.first_at), last_at = GREATEST(r.last_at, excluded.last_at)
"""
_ROLL_UP_PROXIES: Final = """
INSERT INTO proxy_log_rollups AS r (domain_id, proxy_id, requests, successes, refusals, failures, bytes)
SELECT domain_id, proxy_id, requests, successes, refusals, failures, bytes FROM ({sums}) s ORDER BY domain_id, proxy_id
ON CONFLICT (domain_id, proxy_id) DO UPDATE SET requests = r.requests + excluded.requests, successes = r.successes + excluded.successes,
    refusals = r.refusals + excluded.refusals, failures = r.failures + excluded.failures, bytes = r.bytes + excluded.bytes
"""
_ROLL_BACK: Final = """
UPDATE crawl_log_rollups r SET requests = r.requests - s.requests, pages = r.pages - s.pages, errors = r.errors - s.errors,
    images_found = r.images_found - s.images_found
FROM ({sums}) s WHERE r.domain_id = s.domain_id AND r.job_id = s.job_id
"""
_ROLL_BACK_PROXIES: Final = """
UPDATE proxy_log_rollups r SET requests = r.requests - s.requests, successes = r.successes - s.successes,
    refusals = r.refusals - s.refusals, failures = r.failures - s.failures, bytes = r.bytes - s.bytes
FROM ({sums}) s WHERE r.domain_id = s.domain_id AND r.proxy_id = s.proxy_id
"""
_BEGINS: Final = """
UPDATE retention_state SET log_begins_at = GREATEST(log_begins_at,
    (to_date(right(%(part)s, 8), 'YYYYMMDD') + 7)::timestamp AT TIME ZONE 'UTC')
"""
_SPAN: Final = """
SELECT d::timestamp AT TIME ZONE 'UTC', (d + 7)::timestamp AT TIME ZONE 'UTC' FROM to_date(right(%(part)s, 8), 'YYYYMMDD') d
"""


class LogPart(NamedTuple):
    """A week of the log that is old enough."""

    name: str
    rows: int
    """Estimated."""


class StartedArchive(NamedTuple):
    """An archive of a week that is being written."""

    id: int
    source: str
    files: int
    rows: int
    next_block: int
    started_at: datetime


@dataclass(frozen=True, slots=True)
class LogRows:
    """Some rows of a week, in the order in which they were written."""

    columns: tuple[Column, ...]
    rows: list[tuple[Any, ...]]
    next_block: int
    last: bool


def old_parts(connection: psycopg.Connection, kept: timedelta) -> list[LogPart]:
    """Return the weeks of the log that ended longer ago than `kept`, the oldest first, without those that were restored lately."""
    return [LogPart(*row) for row in connection.execute(_PARTITIONS, {"kept": kept})]


def started(connection: psycopg.Connection, part: str, place: str) -> StartedArchive | None:
    """Return the archive of a week that a run began in the store at `place`."""
    row = connection.execute(_STARTED, {"part": part, "place": place}).fetchone()
    return None if row is None else StartedArchive(*row)


def new_source(connection: psycopg.Connection, part: str) -> str:
    """Return the name by which the manifest knows another archive of a week: a week that was dropped may get rows again, by a backfill."""
    known = {row[0] for row in connection.execute(_SOURCES, {"part": part})}
    return next(name for number in count_from(1) if (name := part if number == 1 else f"{part}-{number}") not in known)


def week_of(source: str) -> str:
    """The week of the log of which an archive with this source is."""
    return source.partition("-")[0]


def read(connection: psycopg.Connection, part: str, first_block: int) -> LogRows:
    """Return the rows of a week from a block on. Nothing writes to it any more."""
    columns = chunks.columns_of(connection, part)
    beyond = first_block + BLOCKS
    with connection.transaction():
        size = connection.execute(
            "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::int", (part,)
        ).fetchone()
        query = sql.SQL(
            "SELECT {columns} FROM {part} t WHERE t.ctid >= %(first)s::tid AND t.ctid < %(beyond)s::tid"
        ).format(
            columns=sql.SQL(", ".join(map(chunks.expression, columns))),
            part=sql.Identifier(part),
        )
        rows = connection.execute(query, {"first": f"({first_block},0)", "beyond": f"({beyond},0)"}).fetchall()
    return LogRows(columns, rows, beyond, size is None or beyond >= size[0])


def count(connection: psycopg.Connection, part: str) -> int:
    """Count the rows of a week."""
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(part))).fetchone()
    return 0 if row is None else int(row[0])


def drop(connection: psycopg.Connection, part: str, archive_id: int, rows: int) -> bool:
    """Drop a week with `rows` rows, add its sums to the roll-ups, and complete its archive; False: it has other rows.

    Before: no transaction is open; all rows are in files of the archive. Raises UnderWay when another session reads the log for longer than
    a few seconds: nothing has happened.
    """
    name = sql.Identifier(part)
    with _lock_errors(part), connection.transaction():
        _wait_at_most(connection, PART_WAIT)
        connection.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(name))
        if count(connection, part) != rows:
            return False
        bounds = connection.execute(sql.SQL("SELECT min(crawled_at), max(crawled_at) FROM {}").format(name)).fetchone()
        _add(connection, part, _ROLL_UP, _ROLL_UP_PROXIES)
        connection.execute(_BEGINS, {"part": part})
        first, last = bounds or (None, None)
        chunks.complete(connection, archive_id, rows=rows, first=first, last=last)
        _when_free(connection, lambda: connection.execute(sql.SQL("DROP TABLE {}").format(name)))
    return True


def restore(connection: psycopg.Connection, part: str) -> None:
    """Make a filled table a week of the log, and subtract its sums from the roll-ups. Before: a transaction is open; see `make_table`."""
    name = sql.Identifier(part)
    row = connection.execute(_SPAN, {"part": part}).fetchone()
    assert row is not None  # noqa: S101 — a function without a condition
    first, beyond = map(sql.Literal, row)
    _add(connection, part, _ROLL_BACK, _ROLL_BACK_PROXIES)
    # So that its rows are not read again while the log is locked.
    connection.execute(
        sql.SQL("ALTER TABLE {} ADD CONSTRAINT of_this_week CHECK (crawled_at >= {} AND crawled_at < {})").format(
            name, first, beyond
        )
    )
    attach = sql.SQL("ALTER TABLE crawl_log ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
        name, first, beyond
    )
    with _lock_errors(part):
        _when_free(connection, lambda: connection.execute(attach))
    connection.execute(sql.SQL("ALTER TABLE {} DROP CONSTRAINT of_this_week").format(name))


def merge(connection: psycopg.Connection, part: str, source: str, columns: Sequence[str]) -> int:
    """Add the rows of a temporary table to a week that is there, and subtract their sums from the roll-ups; return how many. Before: a
    transaction is open."""
    _add(connection, source, _ROLL_BACK, _ROLL_BACK_PROXIES)
    query = sql.SQL("INSERT INTO {part} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {source}").format(
        part=sql.Identifier(part),
        source=sql.Identifier(source),
        columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
    )
    return connection.execute(query, prepare=False).rowcount


def _when_free(connection: psycopg.Connection, change: Callable[[], object]) -> None:
    """Make a change that locks the whole log, as soon as no other session reads it. Before: a transaction is open.

    Raises psycopg.errors.LockNotAvailable after a few attempts, each too short for workers to notice.
    """
    for attempt in range(_TIMES):
        try:
            with connection.transaction():
                _wait_at_most(connection, LOG_WAIT)
                change()
        except psycopg.errors.LockNotAvailable:
            if attempt + 1 == _TIMES:
                raise
        else:
            return
        time.sleep(_PAUSE)


def _wait_at_most(connection: psycopg.Connection, time_: timedelta) -> None:
    connection.execute(f"SET LOCAL lock_timeout = {int(time_.total_seconds() * 1000)}")


@contextmanager
def _lock_errors(part: str) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.LockNotAvailable as problem:
        raise UnderWay(
            f"The week {part} waits: the log is being read for longer than a few seconds, by an export, a backup or "
            "`holdfast verify`. Nothing was changed; run it again when that has ended."
        ) from problem


def make_table(connection: psycopg.Connection, part: str) -> bool:
    """Make the table of a week; False if it is there. Before: a transaction is open. After: it is no part of the log yet."""
    found = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (part,)).fetchone()
    if found and found[0]:
        return False
    connection.execute(
        sql.SQL("CREATE TABLE {} (LIKE crawl_log INCLUDING DEFAULTS INCLUDING INDEXES)").format(sql.Identifier(part))
    )
    return True


def _add(connection: psycopg.Connection, part: str, *queries: LiteralString) -> None:
    values = parameters(retries=0)
    for query, sums in zip(queries, (_SUMS, _PROXY_SUMS), strict=True):
        connection.execute(
            sql.SQL(query).format(sums=sql.SQL(sums).format(part=sql.Identifier(part))), values, prepare=False
        )


def waiting(connection: psycopg.Connection, kept: timedelta) -> Iterator[tuple[str, int]]:
    """Yield the weeks that are old enough with the number of their rows."""
    for part in old_parts(connection, kept):
        yield part.name, count(connection, part.name)
