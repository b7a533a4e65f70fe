"""Statistics of the crawl: fresh counts are folded into minutes, days and totals, and read from all of these.

The rule: a trigger counts in `stats_fresh` what a transaction writes into the log; `fold` moves the counts on, in one transaction. So
everything counts once, and a figure is the sum of folded and fresh counts, read by one statement.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import psycopg
from psycopg.types.json import Jsonb

from holdfast.db import periodic_locks
from holdfast.db.planner_hints import fetch_with_settings
from holdfast.db.rows import by_name
from holdfast.errors import StoreError
from holdfast.model.histograms import FETCH_MS
from holdfast.model.outcome import PAGES, TREATMENT
from holdfast.stats.records import ErrorCause, Host

KEPT: Final = timedelta(days=7)
"""How long minutes are kept. Days are kept without limit."""
FRESH: Final = timedelta(seconds=75)
"""How long counts stay fresh: rates of the last minute are read from them."""
EVERY: Final = timedelta(seconds=9)
"""One fold for each tick of ten seconds, in any process."""
CHUNK: Final = 20_000
"""Fresh rows that one transaction folds."""

_KINDS: Final[dict[str, list[str]]] = {
    "pages": sorted(PAGES),
    "errors": sorted(outcome for outcome, treatment in TREATMENT.items() if treatment.error),
}
_SUMS: Final = ("requests", "pages", "errors", "bytes", "robots_denied", "latency_ms")
_ADDED: Final = ", ".join(f"{name} = t.{name} + excluded.{name}" for name in _SUMS if name != "robots_denied")
_MERGED: Final = ", ".join(
    f"{name} = stats_plus(t.{name}, excluded.{name})" for name in ("outcomes", "statuses", "latency")
)
_COLUMNS: Final = "at, requests, pages, errors, bytes, latency_ms, outcomes, statuses, latency"

# What is alike is put together first; the rest then deals with a few rows a minute.
_BY_MINUTE: Final = """
WITH alike AS MATERIALIZED (
    SELECT date_bin('1 minute', at, 'epoch') AS at, label, status, bucket, sum(n)::bigint AS n, sum(bytes) AS bytes, sum(ms) AS ms
    FROM {source} WHERE kind = 'fetch'{where} GROUP BY 1, label, status, bucket
)
SELECT at, requests, pages, errors, bytes, latency_ms, outcomes, COALESCE(statuses, '{{}}') AS statuses, latency FROM (
    SELECT at, sum(n)::bigint AS requests, COALESCE(sum(n) FILTER (WHERE label = ANY(%(pages)s)), 0)::bigint AS pages,
           COALESCE(sum(n) FILTER (WHERE label = ANY(%(errors)s)), 0)::bigint AS errors, sum(bytes)::bigint AS bytes,
           sum(ms)::bigint AS latency_ms, ARRAY[{buckets}] AS latency
    FROM alike GROUP BY at) sums
JOIN (SELECT at, jsonb_object_agg(label, n) AS outcomes FROM (SELECT at, label, sum(n) AS n FROM alike GROUP BY at, label) o
      GROUP BY at) outcomes USING (at)
LEFT JOIN (SELECT at, jsonb_object_agg(status, n) AS statuses
           FROM (SELECT at, status, sum(n) AS n FROM alike WHERE status IS NOT NULL GROUP BY at, status) o GROUP BY at) statuses USING (at)
"""
_BUCKETS: Final = ", ".join(
    f"COALESCE(sum(n) FILTER (WHERE bucket = {number}), 0)::bigint" for number in range(len(FETCH_MS) + 1)
)
_LATENCY: Final = ", ".join(f"COALESCE(sum(latency[{number}]), 0)::bigint" for number in range(1, len(FETCH_MS) + 2))
# `lately`: of whole pieces of ten seconds those of a minute.
_FRESH_FIGURES: Final = """
SELECT v.name, v.label, v.value, v.lately FROM (
    SELECT kind, label, status, bucket, sum(n)::bigint AS n, sum(bytes)::bigint AS bytes, sum(ms)::bigint AS ms,
           COALESCE(sum(n) FILTER (WHERE {lately}), 0)::bigint AS late_n,
           COALESCE(sum(bytes) FILTER (WHERE {lately}), 0)::bigint AS late_bytes
    FROM {source} GROUP BY kind, label, status, bucket) alike
CROSS JOIN LATERAL (VALUES (CASE kind WHEN 'fetch' THEN 'outcome' ELSE 'claim' END, alike.label::text, n, late_n),
    ('bytes', '', bytes, late_bytes), ('status', status::text, n, 0), ('fetch_ms', '', ms, 0), ('fetch_bucket', bucket::text, n, 0)
) v(name, label, value, lately)
WHERE v.label IS NOT NULL AND (kind = 'fetch' OR v.name = 'claim')
"""
_LATELY: Final = """
at >= date_bin('10 seconds', statement_timestamp(), 'epoch') - interval '1 minute'
AND at < date_bin('10 seconds', statement_timestamp(), 'epoch')
"""
_FOLD: Final = f"""
WITH taken AS MATERIALIZED (
    DELETE FROM stats_fresh WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM stats_fresh WHERE at < clock_timestamp() - %(fresh)s::interval LIMIT %(chunk)s)) RETURNING *
), minutes AS MATERIALIZED ({_BY_MINUTE.format(source="taken", where="", buckets=_BUCKETS)}
), into_minutes AS (
    INSERT INTO stats_minute AS t ({_COLUMNS}) SELECT {_COLUMNS} FROM minutes WHERE at >= clock_timestamp() - %(kept)s::interval
    ON CONFLICT (at) DO UPDATE SET {_ADDED}, {_MERGED}
), into_days AS (
    INSERT INTO stats_day AS t ({_COLUMNS})
    SELECT date_bin('1 day', at, 'epoch'), sum(requests), sum(pages), sum(errors), sum(bytes), sum(latency_ms), stats_sum(outcomes),
           stats_sum(statuses), ARRAY[{_LATENCY}] FROM minutes GROUP BY 1
    ON CONFLICT (at) DO UPDATE SET {_ADDED}, {_MERGED}
), into_totals AS (
    INSERT INTO stats_total AS t (name, label, value)
    SELECT name, label, sum(value) FROM ({_FRESH_FIGURES.format(source="taken", lately="false")}) f GROUP BY name, label
    ON CONFLICT (name, label) DO UPDATE SET value = t.value + excluded.value
)
SELECT count(*) FROM taken
"""  # noqa: S608 — constants

_RUN_COUNTS: Final = "ARRAY[lease_renewals, fenced_writes, robots_denied, commits, commit_ms] || commit_latency"
_RUN_FIGURES: Final = """
SELECT CASE place WHEN 1 THEN 'lease_renewals' WHEN 2 THEN 'fenced_writes' WHEN 3 THEN 'robots_denied' WHEN 4 THEN 'commits'
                  WHEN 5 THEN 'commit_ms' ELSE 'commit_bucket' END AS name,
       CASE WHEN place > 5 THEN (place - 6)::text ELSE '' END AS label, sum(GREATEST(now - COALESCE(before, 0), 0))::bigint AS value
FROM {source} CROSS JOIN LATERAL unnest(counts, counted) WITH ORDINALITY AS c(now, before, place) GROUP BY place
"""
# A run whose worker commits at this moment is left to the next tick.
_FOLD_RUNS: Final = f"""
WITH open AS MATERIALIZED (
    SELECT id, status <> 'running' AS ended, counted, {_RUN_COUNTS} AS counts FROM crawl_runs WHERE NOT settled
    ORDER BY id LIMIT %(chunk)s FOR NO KEY UPDATE SKIP LOCKED
), news AS MATERIALIZED ({_RUN_FIGURES.format(source="open")}
), settled AS (
    UPDATE crawl_runs r SET counted = o.counts, settled = o.ended FROM open o WHERE r.id = o.id AND (o.ended OR o.counts <> o.counted)
), into_totals AS (
    INSERT INTO stats_total AS t (name, label, value) SELECT name, label, value FROM news WHERE value > 0
    ON CONFLICT (name, label) DO UPDATE SET value = t.value + excluded.value
), into_minutes AS (
    INSERT INTO stats_minute AS t (at, robots_denied)
    SELECT date_bin('1 minute', clock_timestamp(), 'epoch'), value FROM news WHERE name = 'robots_denied' AND value > 0
    ON CONFLICT (at) DO UPDATE SET robots_denied = t.robots_denied + excluded.robots_denied
)
INSERT INTO stats_day AS t (at, robots_denied)
SELECT date_bin('1 day', clock_timestamp(), 'epoch'), value FROM news WHERE name = 'robots_denied' AND value > 0
ON CONFLICT (at) DO UPDATE SET robots_denied = t.robots_denied + excluded.robots_denied
"""  # noqa: S608 — constants

_OPEN_RUNS: Final = f"(SELECT counted, {_RUN_COUNTS} AS counts FROM crawl_runs WHERE NOT settled) open"  # noqa: S608 — constants
COUNTERS: Final = f"""
SELECT name, label, sum(value)::bigint AS total, sum(lately)::bigint AS lately FROM (
    SELECT name::text, label::text, value, 0 AS lately FROM stats_total
    UNION ALL {_FRESH_FIGURES.format(source="stats_fresh", lately=_LATELY)}
    UNION ALL SELECT r.*, 0 FROM ({_RUN_FIGURES.format(source=_OPEN_RUNS)}) r
) figures GROUP BY name, label HAVING sum(value) > 0
"""  # noqa: S608 — constants
"""All counts as of now, by name and label."""

_SAMPLE: Final = """
INSERT INTO {table} AS t (at, frontier_size, active_workers, domains)
SELECT at, %(frontier)s, %(workers)s, %(domains)s
FROM (SELECT date_bin('{step}', date_bin('1 minute', statement_timestamp(), 'epoch') - interval '1 minute', 'epoch') AS at) o
WHERE %(workers)s > 0 OR EXISTS (SELECT FROM {table} k WHERE k.at = o.at)
ON CONFLICT (at) DO UPDATE SET frontier_size = excluded.frontier_size, domains = excluded.domains, active_workers = {workers}
"""
_SAMPLES: Final = (
    _SAMPLE.format(table="stats_minute", step="1 minute", workers="excluded.active_workers"),
    _SAMPLE.format(table="stats_day", step="1 day", workers="GREATEST(t.active_workers, excluded.active_workers)"),
)
_TRIM: Final = """
DELETE FROM stats_minute WHERE at IN (
    SELECT at FROM stats_minute WHERE at < clock_timestamp() - %(kept)s::interval ORDER BY at LIMIT %(chunk)s)
"""

_FRESH_MINUTES: Final = _BY_MINUTE.format(
    source="stats_fresh",
    where=" AND date_bin('1 minute', at, 'epoch') >= %(since)s AND at < %(until)s",
    buckets=_BUCKETS,
)
_SPAN: Final = """
SELECT {columns}, robots_denied, frontier_size, active_workers FROM {table} WHERE at >= %(since)s AND at < %(until)s
UNION ALL SELECT {columns}, 0, NULL, NULL FROM ({fresh}) fresh
"""
# Answers by class: what is not of three digits has none.
_SERIES: Final = """
WITH span AS MATERIALIZED (SELECT *, date_bin(%(step)s::interval, at, 'epoch') AS start FROM ({span}) s)
SELECT * FROM (
    SELECT start, {sums}, ARRAY[{latency}] AS latency, max(active_workers) AS active_workers,
           (array_agg(frontier_size ORDER BY at DESC) FILTER (WHERE frontier_size IS NOT NULL))[1] AS frontier_size
    FROM span GROUP BY start) sums
LEFT JOIN (SELECT start, jsonb_object_agg(class, n) AS classes FROM (
    SELECT start, CASE WHEN length(code) = 3 THEN left(code, 1) ELSE '' END AS class, sum(n::bigint) AS n
    FROM span CROSS JOIN LATERAL jsonb_each_text(statuses) AS c(code, n) GROUP BY 1, 2) c GROUP BY start) classes USING (start)
ORDER BY start
"""
_CODES: Final = """
SELECT code, sum(n::bigint)::bigint FROM ({span}) s CROSS JOIN LATERAL jsonb_each_text(statuses) AS c(code, n) GROUP BY code
"""
_SPANS: Final = {
    days: _SPAN.format(columns=_COLUMNS, table="stats_day" if days else "stats_minute", fresh=_FRESH_MINUTES)
    for days in (False, True)
}
# now() lets the planner leave out the partitions of other weeks.
_HOSTS: Final = """
SELECT d.domain, l.pages, l.requests, l.errors, l.bytes FROM (
    SELECT domain_id, count(*) FILTER (WHERE outcome = ANY(%(pages)s)) AS pages, count(*) AS requests,
           count(*) FILTER (WHERE outcome = ANY(%(errors)s)) AS errors, COALESCE(sum(bytes), 0)::bigint AS bytes
    FROM crawl_log WHERE crawled_at >= now() - %(span)s::interval GROUP BY domain_id
    ORDER BY pages DESC, requests DESC, domain_id LIMIT %(limit)s) l JOIN domains d ON d.id = l.domain_id
ORDER BY l.pages DESC, l.requests DESC, d.domain
"""


# The counts say when each cause was last met, within ten seconds or a minute: only that much of the log is read for its URL.
_ERRORS: Final = """
WITH counted AS MATERIALIZED (
    SELECT outcome, sum(n)::bigint AS count, COALESCE(max(at) FILTER (WHERE fresh), max(at)) AS first,
           CASE WHEN bool_or(fresh) THEN interval '10 seconds' ELSE interval '1 minute' END AS width
    FROM (
        SELECT at, o.outcome, o.n::bigint AS n, false AS fresh
        FROM stats_minute CROSS JOIN LATERAL jsonb_each_text(outcomes) AS o(outcome, n)
        WHERE at > now() - %(span)s::interval - interval '1 minute'
        UNION ALL
        SELECT at, label, n, true FROM stats_fresh
        WHERE kind = 'fetch' AND at > now() - %(span)s::interval - interval '10 seconds'
    ) s WHERE outcome = ANY(%(causes)s) GROUP BY outcome
)
SELECT c.outcome, c.count, l.crawled_at AS last_at, l.page_url AS example_url, d.domain FROM counted c
CROSS JOIN LATERAL (
    SELECT crawled_at, page_url, domain_id FROM crawl_log
    WHERE crawled_at >= c.first AND crawled_at < c.first + c.width AND outcome = c.outcome ORDER BY crawled_at DESC LIMIT 1) l
LEFT JOIN domains d ON d.id = l.domain_id ORDER BY c.count DESC, c.outcome
"""


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of a fold."""

    rows: int = 0
    faults: list[str] = field(default_factory=list)


def fold(connection: psycopg.Connection, *, every: timedelta = EVERY, fresh: timedelta = FRESH) -> Folded:
    """Fold counts that are no longer fresh, and those of runs, if that is due and no other process does it.

    Before: no transaction is open. After: they are in minutes, days and totals, and nowhere else. After a standstill it takes several
    transactions, each of which is complete. A fault is returned, not raised.
    """
    rows, more = 0, True
    values = {**_KINDS, "fresh": fresh, "kept": KEPT, "chunk": CHUNK}
    try:
        while more:
            with periodic_locks.acquire(connection, periodic_locks.STATS, every=every) as turn:
                moved = sum(count for (count,) in connection.execute(_FOLD, values)) if turn.due else 0
                more = turn.unfinished = moved == CHUNK
                if turn.due and not more:
                    connection.execute(_FOLD_RUNS, values)
            rows += moved
    except StoreError as problem:
        return Folded(rows, [str(problem)])
    return Folded(rows)


def sample(
    connection: psycopg.Connection, *, frontier_size: int, active_workers: int, domains: Mapping[str, int]
) -> None:
    """Store counts as of the end of the last minute. A minute without workers and requests gets no row."""
    values = {"frontier": frontier_size, "workers": active_workers, "domains": Jsonb(dict(domains))}
    for statement in _SAMPLES:
        connection.execute(statement, values)


def trim(connection: psycopg.Connection, *, chunk: int = CHUNK) -> int:
    """Delete a chunk of minutes that are too old; return how many. Their counts are in the days."""
    return connection.execute(_TRIM, {"kept": KEPT, "chunk": chunk}).rowcount


# Reading --------------------------------------------------------------------------------------------------------------


def now(connection: psycopg.Connection) -> datetime:
    """Return the time of the database."""
    at: list[datetime] = [row[0] for row in connection.execute("SELECT clock_timestamp()")]
    return at[0]


@dataclass(frozen=True, slots=True)
class Count:
    """A count since the beginning, and of the last minute (of outcomes and bytes; 0 for all others)."""

    total: int = 0
    lately: int = 0


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of one step of a time series."""

    start: datetime
    requests: int = 0
    pages: int = 0
    errors: int = 0
    bytes: int = 0
    robots_denied: int = 0
    latency: Sequence[int] = ()
    """Requests by duration, in the buckets of `FETCH_MS`."""
    active_workers: int | None = None
    frontier_size: int | None = None
    classes: Mapping[str, int] | None = None
    """Responses by the first digit of their HTTP status; none: the status is invalid."""


def counters(connection: psycopg.Connection) -> dict[tuple[str, str], Count]:
    """Return all counts as of now, by name and label; zeros are left out."""
    return {(name, label): Count(total, lately) for name, label, total, lately in connection.execute(COUNTERS)}


def series(
    connection: psycopg.Connection, *, since: datetime, until: datetime, step: timedelta, days: bool
) -> list[Sums]:
    """Return the sums of each step that has requests or counts, from minutes or from days."""
    sums = ", ".join(f"sum({name})::bigint AS {name}" for name in _SUMS)
    query = _SERIES.format(span=_SPANS[days], sums=sums, latency=_LATENCY)
    with connection.cursor(row_factory=by_name(Sums)) as cursor:
        return cursor.execute(query, {**_KINDS, "since": since, "until": until, "step": step}).fetchall()


def status_codes(connection: psycopg.Connection, *, since: datetime, until: datetime, days: bool) -> dict[int, int]:
    """Count responses by HTTP status."""
    rows = connection.execute(_CODES.format(span=_SPANS[days]), {**_KINDS, "since": since, "until": until})
    return {int(code): count for code, count in sorted(rows, key=lambda row: int(row[0]))}


def hosts(connection: psycopg.Connection, *, span: timedelta, limit: int) -> list[Host]:
    """Return the domains with the greatest numbers of pages in the last `span`. Reads the log of that time."""
    with connection.cursor(row_factory=by_name(Host)) as cursor:
        return cursor.execute(_HOSTS, {**_KINDS, "span": span, "limit": limit}).fetchall()


def recent_errors(connection: psycopg.Connection, *, span: timedelta, causes: Collection[str]) -> list[ErrorCause]:
    """Count the requests of the last `span`, in whole minutes, that ended with one of `causes`, the most frequent first. Of the log only
    the last moments of each cause are read."""
    values = {"span": span, "causes": sorted(causes)}
    settings = {"max_parallel_workers_per_gather": "0"}
    return fetch_with_settings(connection, settings, _ERRORS, values, row_factory=by_name(ErrorCause))
