"""Rows for exports: pages, URLs and the log, in the order of their keys.

The rule: rows are read in chunks, each by a short statement that begins after the key of the last row, so that an export of ten million
rows keeps no snapshot open and little in memory. Rows that are committed meanwhile may be in it or not.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import psycopg
from psycopg.rows import RowFactory, RowMaker, dict_row

from holdfast.db.rows import by_name, select_list
from holdfast.frontier.records import ExportedUrl
from holdfast.pages.records import ExportedPage, LoggedRequest, StoredPage

CHUNK: Final = 5_000
TEXT_CHUNK: Final = 100
"""Texts are long, so fewer of them are in memory at once."""

Record = TypeVar("Record")

_KEY: Final[Mapping[str, object]] = {"domain_id": 0, "job_id": 0, "url_key": b""}
"""The columns of a key, with values before all keys."""
_LOG_KEY: Final[Mapping[str, object]] = {
    "domain_id": 0,
    "crawled_at": "-infinity",
    "job_id": 0,
    "url_key": b"",
    "claim_epoch": 0,
}
_CASTS: Final = {"crawled_at": "::timestamptz"}
_ONLY: Final = {"job": " AND r.job_id = %(job)s", "domain": " AND r.domain_id = %(domain)s"}


def _statement(table: str, columns: str, key: Mapping[str, object], joins: str = "") -> str:
    """A statement for a chunk; the last columns are those of the key. No row of the chunk is lost by a join."""
    names = ", ".join(f"r.{name}" for name in key)
    values = ", ".join(f"%({name})s{_CASTS.get(name, '')}" for name in key)
    return f"""
        WITH chunk AS MATERIALIZED (
            SELECT * FROM {table} r WHERE ({names}) > ({values}) {{only}} ORDER BY {names} LIMIT %(chunk)s
        )
        SELECT {columns}, {names} FROM chunk r
        LEFT JOIN domains d ON d.id = r.domain_id LEFT JOIN crawl_jobs j ON j.id = r.job_id {joins} ORDER BY {names}
    """  # noqa: S608 — composed of constants only


_NAMES: Final = {"domain": "d.domain", "job": "j.name", "url_key": "encode(r.url_key, 'hex')"}
_PAGES: Final = _statement(
    "crawled_pages",
    select_list(ExportedPage, "r", **_NAMES, url="f.url", content_hash="encode(r.content_hash, 'hex')")
    + ", t.body, r.payload_digest",
    _KEY,
    """
    LEFT JOIN url_frontier f ON f.domain_id = r.domain_id AND f.job_id = r.job_id AND f.url_key = r.url_key
    LEFT JOIN page_texts t ON %(text)s AND t.domain_id = r.domain_id AND t.job_id = r.job_id AND t.url_key = r.url_key
    """,
)
_URLS: Final = _statement(
    "url_frontier",
    select_list(
        ExportedUrl,
        "r",
        **_NAMES,
        state="r.state::text",
        kind="r.kind::text",
        parent_key="encode(r.parent_key, 'hex')",
        resource="COALESCE(r.resource::text, 'page')",
        listed="COALESCE(r.listed, false)",
    ),
    _KEY,
)
# The key names one request: a fetch has one row.
_LOG: Final = _statement(
    "crawl_log", select_list(LoggedRequest, "r", **_NAMES, url="r.page_url", run="r.crawl_run_id"), _LOG_KEY
)
_EXPECTED: Final = """
SELECT COALESCE(sum(r.discovered), 0)::bigint AS urls, COALESCE(sum(r.done), 0)::bigint AS pages FROM job_domains r WHERE true {only}
"""


def pages(
    connection: psycopg.Connection, *, text: bool, job_id: int | None = None, domain_id: int | None = None
) -> Iterator[StoredPage]:
    """Read the last response for each URL, of a job or a domain; with `text` also the stored texts."""
    make = by_name(StoredPage, page=ExportedPage)
    return _read(connection, _PAGES, _KEY, make, job_id, domain_id, TEXT_CHUNK if text else CHUNK, {"text": text})


def urls(
    connection: psycopg.Connection, *, job_id: int | None = None, domain_id: int | None = None
) -> Iterator[ExportedUrl]:
    """Read every URL of the frontier, in any state."""
    return _read(connection, _URLS, _KEY, by_name(ExportedUrl), job_id, domain_id, CHUNK, {})


def log(
    connection: psycopg.Connection, *, job_id: int | None = None, domain_id: int | None = None
) -> Iterator[LoggedRequest]:
    """Read every outcome, by domain, the oldest first."""
    return _read(connection, _LOG, _LOG_KEY, by_name(LoggedRequest), job_id, domain_id, CHUNK, {})


def logged_by_epoch(connection: psycopg.Connection) -> Counter[tuple[int, int]]:
    """Count the rows of the log by domain and claim epoch."""
    rows = connection.execute("SELECT domain_id, claim_epoch, count(*) FROM crawl_log GROUP BY domain_id, claim_epoch")
    return Counter({(domain_id, epoch): count for domain_id, epoch, count in rows})


def expected(
    connection: psycopg.Connection, *, job_id: int | None = None, domain_id: int | None = None
) -> dict[str, int]:
    """Estimate the numbers of `urls` and `pages`, for a display of progress."""
    query, filters = _filtered(_EXPECTED, job_id, domain_id)
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, filters).fetchone() or {}


def _read(
    connection: psycopg.Connection,
    statement: str,
    key: Mapping[str, object],
    make: RowFactory[Record],
    job_id: int | None,
    domain_id: int | None,
    size: int,
    parameters: Mapping[str, object],
) -> Iterator[Record]:
    query, filters = _filtered(statement, job_id, domain_id)
    values = {**filters, **parameters, "chunk": size}
    after = dict(key)
    while True:
        with connection.cursor(row_factory=_with_key(make, len(key))) as cursor:
            # Never prepared: a generic plan does not know where in the index the key is.
            rows = cursor.execute(query, {**values, **after}, prepare=False).fetchall()
        if rows:
            after = dict(zip(key, rows[-1][0], strict=True))
            yield from (record for _, record in rows)
        if len(rows) < size:
            return


def _with_key(make: RowFactory[Record], size: int) -> RowFactory[tuple[Sequence[object], Record]]:
    """A row factory that returns the last `size` columns beside the record."""

    def factory(cursor: psycopg.Cursor[Any]) -> RowMaker[tuple[Sequence[object], Record]]:
        made = make(cursor)
        return lambda row: (row[-size:], made(row))

    return factory


def _filtered(statement: str, job_id: int | None, domain_id: int | None) -> tuple[str, dict[str, object]]:
    filters: dict[str, object] = {"job": job_id, "domain": domain_id}
    return statement.format(only="".join(_ONLY[name] for name, value in filters.items() if value is not None)), filters
