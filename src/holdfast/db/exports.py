"""Rows for exports: pages, URLs, the log, a chunk at a time in the order of their keys.

The rule: each chunk is a short statement of its own that begins where the last one ended, so that an export of ten million rows keeps
no snapshot open and nothing in memory. What is committed meanwhile may be in it or not.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

CHUNK: Final = 5_000
TEXT_CHUNK: Final = 100
"""Texts are long, so fewer of them are in memory at once."""

# The rows of a chunk are found by their key before anything is joined to them, and none of them is lost by a join.
_PAGES: Final = """
WITH chunk AS MATERIALIZED (
    SELECT * FROM crawled_pages r WHERE (r.domain_id, r.job_id, r.url_key) > (%(domain_id)s, %(job_id)s, %(url_key)s) {wanted}
    ORDER BY r.domain_id, r.job_id, r.url_key LIMIT %(chunk)s
)
SELECT r.*, f.url, d.domain, j.name AS job, t.body
FROM chunk r LEFT JOIN domains d ON d.id = r.domain_id LEFT JOIN crawl_jobs j ON j.id = r.job_id
LEFT JOIN url_frontier f ON f.domain_id = r.domain_id AND f.job_id = r.job_id AND f.url_key = r.url_key
LEFT JOIN page_texts t ON %(text)s AND t.domain_id = r.domain_id AND t.job_id = r.job_id AND t.url_key = r.url_key
ORDER BY r.domain_id, r.job_id, r.url_key
"""
_URLS: Final = """
WITH chunk AS MATERIALIZED (
    SELECT * FROM url_frontier r WHERE (r.domain_id, r.job_id, r.url_key) > (%(domain_id)s, %(job_id)s, %(url_key)s) {wanted}
    ORDER BY r.domain_id, r.job_id, r.url_key LIMIT %(chunk)s
)
SELECT r.*, d.domain, j.name AS job FROM chunk r LEFT JOIN domains d ON d.id = r.domain_id LEFT JOIN crawl_jobs j ON j.id = r.job_id
ORDER BY r.domain_id, r.job_id, r.url_key
"""
# One fetch has one row, so these five name it.
_LOG: Final = """
WITH chunk AS MATERIALIZED (
    SELECT * FROM crawl_log r
    WHERE (r.domain_id, r.crawled_at, r.job_id, r.url_key, r.claim_epoch)
        > (%(domain_id)s, %(crawled_at)s::timestamptz, %(job_id)s, %(url_key)s, %(claim_epoch)s) {wanted}
    ORDER BY r.domain_id, r.crawled_at, r.job_id, r.url_key, r.claim_epoch LIMIT %(chunk)s
)
SELECT r.*, d.domain, j.name AS job FROM chunk r LEFT JOIN domains d ON d.id = r.domain_id LEFT JOIN crawl_jobs j ON j.id = r.job_id
ORDER BY r.domain_id, r.crawled_at, r.job_id, r.url_key, r.claim_epoch
"""
_EXPECTED: Final = """
SELECT COALESCE(sum(r.discovered), 0)::bigint AS urls, COALESCE(sum(r.done), 0)::bigint AS pages FROM job_domains r WHERE true {wanted}
"""
_ONLY: Final = {"job": " AND r.job_id = %(job)s", "domain": " AND r.domain_id = %(domain)s"}

_BEFORE_ALL: Final[Mapping[str, object]] = {
    "domain_id": 0,
    "job_id": 0,
    "url_key": b"",
    "crawled_at": "-infinity",
    "claim_epoch": 0,
}


@dataclass(frozen=True, slots=True)
class Only:
    """Which rows are wanted; None: of all jobs, of all domains."""

    job: int | None = None
    domain: int | None = None


def pages(connection: psycopg.Connection, only: Only, *, text: bool) -> Iterator[list[dict[str, Any]]]:
    """What was answered for each URL, the last time, with its address; `body` is its compressed text, if it is wanted and kept."""
    return _chunks(connection, _PAGES, only, TEXT_CHUNK if text else CHUNK, {"text": text})


def urls(connection: psycopg.Connection, only: Only) -> Iterator[list[dict[str, Any]]]:
    """Every URL of the frontier, whatever its state."""
    return _chunks(connection, _URLS, only, CHUNK, {})


def log(connection: psycopg.Connection, only: Only) -> Iterator[list[dict[str, Any]]]:
    """Every outcome, domain by domain, the oldest first."""
    return _chunks(connection, _LOG, only, CHUNK, {})


def expected(connection: psycopg.Connection, only: Only) -> dict[str, int]:
    """About how many `urls` and `pages` there will be; for a display of progress."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_restricted(_EXPECTED, only), asdict(only)).fetchone() or {}


def _chunks(
    connection: psycopg.Connection, query: str, only: Only, size: int, parameters: Mapping[str, object]
) -> Iterator[list[dict[str, Any]]]:
    query = _restricted(query, only)
    given = {**asdict(only), **parameters, "chunk": size}
    after = dict(_BEFORE_ALL)
    while True:
        with connection.cursor(row_factory=dict_row) as cursor:
            # Never prepared: a plan for any key knows nothing of where in the index this one is.
            rows = cursor.execute(query, {**given, **after}, prepare=False).fetchall()
        if rows:
            after = {name: rows[-1].get(name) for name in _BEFORE_ALL}  # now: who gets the rows may change them
            yield rows
        if len(rows) < size:
            return


def _restricted(query: str, only: Only) -> str:
    return query.format(wanted="".join(_ONLY[name] for name, value in asdict(only).items() if value is not None))
