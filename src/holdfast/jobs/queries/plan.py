"""SQL of the plan of a crawl: what is known of its domains, and how fast this installation was. Read only."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import psycopg

from holdfast.db.rows import by_name as rows_by_name

CHUNK: Final = 10_000
"""Domains that are looked up at once."""

_COLUMNS: Final = """
d.id AS domain_id, d.domain, d.status::text, d.is_active, d.crawl_delay_seconds, d.max_concurrent_requests, d.pace_delay_seconds,
d.pace_delay_source, d.response_ms, d.max_pages_per_run, d.max_pages_is_limit
"""
_BY_NAME: Final = f"""
WITH d AS MATERIALIZED (
    SELECT {_COLUMNS} FROM domains d WHERE d.domain = ANY(%(names)s) AND d.removed_at IS NULL
), k AS (
    SELECT jd.domain_id, max(jd.waiting + jd.done) AS known FROM job_domains jd
    WHERE jd.domain_id = ANY(ARRAY(SELECT domain_id FROM d)) AND jd.pages > 0 GROUP BY jd.domain_id
)
SELECT d.*, COALESCE(k.known, 0) AS known, 0::bigint AS waiting FROM d LEFT JOIN k USING (domain_id)
"""  # noqa: S608 — composed of the constant above only
_OF_JOB: Final = f"""
SELECT {_COLUMNS}, jd.waiting + jd.done AS known, jd.waiting FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
WHERE jd.job_id = %(job)s AND jd.domain_id > %(after)s ORDER BY jd.domain_id LIMIT %(chunk)s
"""  # noqa: S608 — likewise
_BEST_MINUTE: Final = (
    "SELECT max(pages) / 60.0::float8 FROM stats_minute WHERE pages > 0 AND at > clock_timestamp() - interval '7 days'"
)


class KnownDomain(NamedTuple):
    """What is known of a domain that a plan needs. A tuple, because there are thousands in a plan."""

    domain_id: int
    domain: str
    status: str
    is_active: bool
    crawl_delay_seconds: float
    max_concurrent_requests: int
    pace_delay_seconds: float | None
    pace_delay_source: str | None
    response_ms: float | None
    max_pages_per_run: int | None
    max_pages_is_limit: bool
    known: int
    """URLs that were fetched or wait: of the job, or of the job that knows most of them; 0: it was never crawled."""
    waiting: int
    """Of an existing job."""


_as_known_domain: Final = rows_by_name(KnownDomain)


def read_only(connection: psycopg.Connection) -> None:
    """Let nothing be written in this transaction."""
    connection.execute("SET TRANSACTION READ ONLY")


def by_name(connection: psycopg.Connection, names: Sequence[str]) -> dict[str, KnownDomain]:
    """Return those of these domains that are known."""
    found: dict[str, KnownDomain] = {}
    with connection.cursor(row_factory=_as_known_domain) as cursor:
        for first in range(0, len(names), CHUNK):
            rows = cursor.execute(_BY_NAME, {"names": list(names[first : first + CHUNK])}).fetchall()
            found |= {row.domain: row for row in rows}
    return found


def of_job(connection: psycopg.Connection, job_id: int) -> Iterator[KnownDomain]:
    """Yield the domains of a job, by id."""
    after = 0
    while True:
        with connection.cursor(row_factory=_as_known_domain) as cursor:
            rows = cursor.execute(_OF_JOB, {"job": job_id, "after": after, "chunk": CHUNK}).fetchall()
        yield from rows
        if len(rows) < CHUNK:
            return
        after = rows[-1].domain_id


def best_minute(connection: psycopg.Connection) -> float | None:
    """Return the pages a second of the best minute of the last 7 days; None: no page was fetched."""
    row = connection.execute(_BEST_MINUTE).fetchone()
    return None if row is None else row[0]
