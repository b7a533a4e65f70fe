"""Synthetic history: jobs that ended long ago, with as many pages, texts and rows of the log as are wanted.

The rule: it is made by SQL, and is whole: `verify` finds nothing wrong with it.
"""

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Final

import psycopg

_PAGES_OF_A_SITE: Final = 1_000
_NEW_SITES: Final = """
    INSERT INTO domains (domain, parent_domain, base_url, pages_discovered, pages_crawled, total_error_count, status)
    SELECT %(name)s || n || '.example', %(name)s || n || '.example', 'https://' || %(name)s || n || '.example/',
           %(pages)s + %(moved)s + %(denied)s + %(failed)s, %(pages)s, %(failed)s, 'pending'
    FROM generate_series(1, %(sites)s) n RETURNING id
"""
_KNOWN_SITE: Final = """
    UPDATE domains SET pages_discovered = pages_discovered + %(pages)s + %(moved)s + %(denied)s + %(failed)s,
        pages_crawled = pages_crawled + %(pages)s, total_error_count = total_error_count + %(failed)s
    WHERE domain = %(on)s RETURNING id
"""
_MAKE_URLS: Final = """
CREATE TEMP TABLE filled AS
WITH sites AS ({sites})
SELECT id AS domain_id, n, substr(sha256(convert_to(id || '/' || n, 'UTF8')), 1, 16) AS url_key,
       'https://' || %(name)s || '.example/' || n || '/a-path-as-long-as-most' AS url,
       %(ended)s - (%(lasted)s::interval * ((n * 7919) %% 1000) / 1000) AS at,
       CASE WHEN n <= %(pages)s THEN 'ok' WHEN n <= %(pages)s + %(moved)s THEN 'redirect'
            WHEN n <= %(pages)s + %(moved)s + %(denied)s THEN 'robots_denied' ELSE 'timeout' END AS outcome
FROM sites, generate_series(1, %(pages)s + %(moved)s + %(denied)s + %(failed)s) n
"""
_FILL: Final = (
    """
    INSERT INTO job_domains (domain_id, job_id, state, discovered, done, denied, failed, pages, errors, bytes)
    SELECT domain_id, %(job)s, 'done', count(*), count(*) FILTER (WHERE outcome IN ('ok', 'redirect')),
           count(*) FILTER (WHERE outcome = 'robots_denied'), count(*) FILTER (WHERE outcome = 'timeout'),
           count(*) FILTER (WHERE outcome = 'ok'), count(*) FILTER (WHERE outcome = 'timeout'), 1000 * count(*)
    FROM filled GROUP BY domain_id
    """,
    """
    INSERT INTO claim_log (domain_id, epoch, worker, claimed_at, ended_at, why)
    SELECT DISTINCT domain_id, 0, 'filled', %(ended)s - %(lasted)s::interval - interval '1 hour', %(ended)s + interval '1 minute',
           'released' FROM filled
    """,
    """
    INSERT INTO url_frontier (domain_id, job_id, url_key, url, state, settled_at, discovered_at, attempts, reason)
    SELECT domain_id, %(job)s, url_key, url,
           (CASE outcome WHEN 'robots_denied' THEN 'denied' WHEN 'timeout' THEN 'failed' ELSE 'done' END)::frontier_state, at, at,
           CASE WHEN outcome <> 'robots_denied' THEN 1 ELSE 0 END,
           CASE outcome WHEN 'robots_denied' THEN 'robots_denied: Disallow: /' WHEN 'timeout' THEN 'timeout: no answer' END
    FROM filled
    """,
    """
    INSERT INTO crawled_pages (domain_id, job_id, url_key, crawled_at, content_length, status, outcome, content_hash, title, content_type)
    SELECT domain_id, %(job)s, url_key, at, 1000, 200, 'ok', sha256(url_key), 'Title of page ' || n, 'text/html' FROM filled
    WHERE outcome = 'ok'
    """,
    """
    INSERT INTO page_texts (domain_id, job_id, url_key, body)
    SELECT domain_id, %(job)s, url_key, decode(repeat(md5(n::text), 30), 'hex') FROM filled WHERE outcome = 'ok'
    """,
)
_LOG: Final = """
INSERT INTO {part} (domain_id, job_id, claim_epoch, crawl_run_id, crawled_at, duration_ms, bytes, status, url_key, outcome, page_url)
SELECT domain_id, %(job)s, 0, %(run)s, at, 12, 1000, CASE outcome WHEN 'ok' THEN 200 WHEN 'redirect' THEN 301 END, url_key, outcome, url
FROM filled WHERE outcome <> 'robots_denied' AND date_trunc('week', at AT TIME ZONE 'UTC')::date = %(week)s
"""
_RUN: Final = """
INSERT INTO crawl_runs (worker, job_id, status, started_at, completed_at, pages_crawled, errors)
VALUES ('filled', %(job)s, 'completed', %(ended)s - %(lasted)s::interval - interval '1 hour', %(ended)s,
        (SELECT count(*) FROM filled WHERE outcome = 'ok'), (SELECT count(*) FROM filled WHERE outcome = 'timeout')) RETURNING id
"""


def make_week(connection: psycopg.Connection, week: date) -> str:
    """Make the partition of the log for the week that begins on that Monday if there is none; return its name."""
    name = f"crawl_log_{week:%Y%m%d}"
    if connection.execute("SELECT to_regclass(%s)", (name,)).fetchone() == (None,):
        connection.execute(
            f"CREATE TABLE {name} PARTITION OF crawl_log FOR VALUES FROM ('{week} 00:00+00') "
            f"TO ('{week + timedelta(days=7)} 00:00+00')"
        )
    return name


def fill(
    connection: psycopg.Connection,
    name: str,
    pages: int,
    age: timedelta,
    *,
    lasted: timedelta = timedelta(0),
    without_page: float = 0.0,
    on: str | None = None,
) -> int:
    """Make a job that ended `age` ago and whose pages were fetched in the time `lasted` before; return its id.

    Besides its pages, with texts and log, it has `without_page` times as many URLs that led to none: redirects, denied and failed ones.
    `on`: all are of this domain, which is there and was first claimed later; else it has domains of its own.
    """
    row = connection.execute("INSERT INTO crawl_jobs (name) VALUES (%s) RETURNING id, now()", (name,)).fetchone()
    assert row
    job, now = row
    sites = 1 if on else max(1, pages // _PAGES_OF_A_SITE)
    others = round(without_page * pages / sites)
    values = {
        "name": name,
        "job": job,
        "sites": sites,
        "ended": now - age,
        "lasted": lasted,
        "pages": pages // sites,
        "on": on,
    }
    values |= {"moved": others - 2 * (others // 3), "denied": others // 3, "failed": others // 3}
    connection.execute(_MAKE_URLS.format(sites=_KNOWN_SITE if on else _NEW_SITES).encode(), values)
    connection.execute("CREATE INDEX ON filled (outcome)")
    connection.execute("ANALYZE filled")
    for query in _FILL:
        connection.execute(query.encode(), values)
    run = connection.execute(_RUN, values).fetchone()
    assert run
    for week in _weeks(
        connection.execute("SELECT DISTINCT date_trunc('week', at AT TIME ZONE 'UTC')::date FROM filled")
    ):
        # Into the partition: triggers of the log count what a crawl writes, and not what it wrote long ago.
        part = make_week(connection, week)
        connection.execute(_LOG.format(part=part).encode(), values | {"run": run[0], "week": week})
    connection.execute("DROP TABLE filled")
    connection.execute("UPDATE crawl_jobs SET state = 'completed', completed_at = %s WHERE id = %s", (now - age, job))
    connection.execute("UPDATE crawl_jobs SET ended_at = %s WHERE id = %s", (now - age, job))
    return int(job)


def _weeks(rows: Iterable[tuple[date]]) -> list[date]:
    return sorted(row[0] for row in rows)
