"""Rows of the log at any time, and what the log itself says of them: the measure of every figure."""

from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from holdfast.db import stats
from holdfast.model.histograms import FETCH_MS, bucket_index
from holdfast.model.outcome import Outcome

_LOG = """
INSERT INTO crawl_log (domain_id, job_id, claim_epoch, crawl_run_id, crawled_at, duration_ms, bytes, status, url_key, outcome, page_url)
SELECT 1, 1, 1, NULL, COALESCE(%(at)s, clock_timestamp()), %(ms)s, %(bytes)s, %(status)s, decode(md5(n::text), 'hex'), %(outcome)s, 'https://a.example/'
FROM generate_series(1, %(count)s) n
"""


def log(
    connection: psycopg.Connection,
    outcome: Outcome = Outcome.OK,
    *,
    count: int = 1,
    at: datetime | str | None = None,
    status: int | None = 200,
    ms: int | None = 40,
    size: int | None = 1000,
) -> None:
    """So many requests with this outcome, crawled at a time (now, if none is given; or as SQL writes it)."""
    if isinstance(at, str):
        row = connection.execute(f"SELECT {at}").fetchone()
        assert row is not None
        at = row[0]
    given = {"outcome": outcome, "count": count, "at": at, "status": status, "ms": ms, "bytes": size}
    connection.execute(_LOG, given)


def within_a_minute(connection: psycopg.Connection, *, settled: int = 0) -> None:
    """Go on only while the minute, counted from `settled` seconds after the clock's, has some seconds left: a test then stays within it."""
    connection.execute(
        "SELECT pg_sleep(CASE WHEN rest < 10 THEN rest + 0.1 ELSE 0 END) "
        "FROM (SELECT 60 - mod(extract(epoch FROM clock_timestamp()) - %s, 60) AS rest) minute",
        (settled,),
    )


def counted(connection: psycopg.Connection) -> dict[tuple[str, str], int]:
    """What counters of requests have to be, read from the log row by row."""
    found: dict[tuple[str, str], int] = {}

    def add(name: str, label: Any, value: int) -> None:
        found[name, str(label)] = found.get((name, str(label)), 0) + value

    for outcome, status, ms, size in connection.execute("SELECT outcome, status, duration_ms, bytes FROM crawl_log"):
        add("outcome", outcome, 1)
        add("bytes", "", size or 0)
        add("fetch_ms", "", ms or 0)
        if status is not None:
            add("status", status, 1)
        if ms is not None:
            add("fetch_bucket", bucket_index(FETCH_MS, ms), 1)
    return {key: value for key, value in found.items() if value}


def of_requests(counters: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Those of the counters that the log is the measure of."""
    names = {"outcome", "bytes", "fetch_ms", "status", "fetch_bucket"}
    return {key: value for key, value in counters.items() if key[0] in names}


def fold(connection: psycopg.Connection) -> int:
    """Add up everything, also what is fresh."""
    folded = stats.fold(connection, every=timedelta(0), fresh=-timedelta(minutes=1))
    assert folded.faults == []
    return folded.rows


def totals(connection: psycopg.Connection) -> dict[tuple[str, str], int]:
    """What counters show."""
    return {key: count.total for key, count in stats.counters(connection).items()}


def rows(connection: psycopg.Connection, table: str) -> list[dict[str, Any]]:
    """A table of minutes or days, the oldest first."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(f"SELECT * FROM {table} ORDER BY at").fetchall()
