"""SQL of search: documents that an index has not seen yet, and the rows of those it found."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import psycopg

from holdfast.db import array_params

# Numbers of transactions mean something on one server only, and on one timeline of it.
_STORE: Final = (
    "concat_ws('/', s.id, s.generation, (pg_control_system()).system_identifier, (pg_control_checkpoint()).timeline_id)"
)
_NOW: Final = f"""
SELECT {_STORE}, pg_snapshot_xmin(pg_current_snapshot())::text::bigint, clock_timestamp() FROM store_identity s
"""  # noqa: S608 — composed of constants only
# No row that can be seen was written by a transaction that has not begun: a dump of another server brought it.
_ADOPT: Final = """
UPDATE documents d SET changed = pg_current_xact_id()
FROM (SELECT domain_id, job_id, url_key FROM documents WHERE changed >= pg_snapshot_xmax(pg_current_snapshot()) LIMIT %s) f
WHERE d.domain_id = f.domain_id AND d.job_id = f.job_id AND d.url_key = f.url_key
"""
_FORGET: Final = "DELETE FROM document_deletions WHERE changed >= pg_snapshot_xmax(pg_current_snapshot())"
# The chunk is cut first: joined with all that follows, each chunk would cost as much as the whole.
_CHANGED: Final = """
WITH chunk AS MATERIALIZED (
    SELECT changed, domain_id, job_id, url_key, title, language, kind, fetched_at, removed, body FROM documents
    WHERE (changed, domain_id, job_id, url_key) > (%(changed)s::text::xid8, %(domain)s, %(job)s, %(key)s) AND changed < %(end)s::text::xid8
    ORDER BY changed, domain_id, job_id, url_key LIMIT %(limit)s
)
SELECT d.changed::text::bigint, d.domain_id, d.job_id, d.url_key, f.url, n.domain, d.title, d.language, d.kind, d.fetched_at,
       d.removed, d.body
FROM chunk d
JOIN url_frontier f ON f.domain_id = d.domain_id AND f.job_id = d.job_id AND f.url_key = d.url_key
JOIN domains n ON n.id = d.domain_id
ORDER BY d.changed, d.domain_id, d.job_id, d.url_key
"""
_DELETED: Final = """
SELECT d.changed::text::bigint, d.domain_id, d.job_id, d.url_key FROM document_deletions d
WHERE (d.changed, d.domain_id, d.job_id, d.url_key) > (%(changed)s::text::xid8, %(domain)s, %(job)s, %(key)s)
  AND d.changed < %(end)s::text::xid8
ORDER BY d.changed, d.domain_id, d.job_id, d.url_key LIMIT %(limit)s
"""
_LAG: Final = f"""
SELECT {_STORE}, w.waiting,
       CASE WHEN w.waiting > 0 THEN GREATEST(extract(epoch FROM clock_timestamp() - w.oldest), 0)::double precision END
FROM store_identity s, (
    SELECT count(*) AS waiting, min(extracted_at) AS oldest FROM (
        SELECT extracted_at FROM documents WHERE changed >= %(begin)s::text::xid8 ORDER BY changed LIMIT %(limit)s
    ) d
) w
"""  # noqa: S608 — composed of constants only
_FOUND: Final = """
SELECT d.domain_id, d.job_id, d.url_key, f.url, n.domain, j.name, d.title, d.language, d.kind, d.fetched_at, d.removed, d.body
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[]) AS w(domain_id, job_id, url_key)
JOIN documents d USING (domain_id, job_id, url_key)
JOIN url_frontier f USING (domain_id, job_id, url_key)
JOIN domains n ON n.id = d.domain_id JOIN crawl_jobs j ON j.id = d.job_id
"""


class StoreNow(NamedTuple):
    """Which store it is, and how far it can be read without missing a transaction that is still open."""

    store: str
    """The store, its generation, and the server that it is on."""
    horizon: int
    now: datetime


class Lag(NamedTuple):
    """How far the index of a store is behind."""

    store: str
    waiting: int
    behind_seconds: float | None


class ChangedDocument(NamedTuple):
    """A document as an index reads it."""

    changed: int
    domain_id: int
    job_id: int
    url_key: bytes
    url: str
    domain: str
    title: str | None
    language: str | None
    kind: str
    fetched_at: datetime
    removed: Sequence[int]
    body: bytes


class FoundDocument(NamedTuple):
    """The row of a document that an index found."""

    domain_id: int
    job_id: int
    url_key: bytes
    url: str
    domain: str
    job: str
    title: str | None
    language: str | None
    kind: str
    fetched_at: datetime
    removed: Sequence[int]
    body: bytes


class DocumentId(NamedTuple):
    """The key of a document."""

    domain_id: int
    job_id: int
    url_key: bytes


def now(connection: psycopg.Connection) -> StoreNow:
    """Return which store this is, and its horizon."""
    row = connection.execute(_NOW).fetchone()
    assert row is not None  # noqa: S101 — the schema makes the row
    return StoreNow(*row)


def adopt(connection: psycopg.Connection, *, limit: int = 2_000) -> None:
    """Give documents that a dump of another server brought numbers of transactions of this one; with others, an index would never see them.

    Before: no transaction is open. After: all documents that are committed have numbers below those of future transactions.
    """
    connection.execute(_FORGET)
    while connection.execute(_ADOPT, (limit,), prepare=False).rowcount == limit:
        pass


def changed(connection: psycopg.Connection, begin: int, end: int, *, limit: int) -> Iterator[list[ChangedDocument]]:
    """Read documents that were changed by transactions from `begin` up to, but without, `end`, in that order, in chunks."""
    after: tuple[int, int, int, bytes] = (begin, 0, 0, b"")
    while True:
        names = ("changed", "domain", "job", "key")
        values = {**dict(zip(names, after, strict=True)), "end": end, "limit": limit}
        rows = [ChangedDocument(*row) for row in connection.execute(_CHANGED, values, prepare=False)]
        if rows:
            yield rows
            after = rows[-1][:4]
        if len(rows) < limit:
            return


def deleted(connection: psycopg.Connection, begin: int, end: int, *, limit: int = 5_000) -> Iterator[list[DocumentId]]:
    """Read documents that were deleted by these transactions, in chunks."""
    after: tuple[int, int, int, bytes] = (begin, 0, 0, b"")
    while True:
        names = ("changed", "domain", "job", "key")
        values = {**dict(zip(names, after, strict=True)), "end": end, "limit": limit}
        rows = connection.execute(_DELETED, values, prepare=False).fetchall()
        if rows:
            yield [DocumentId(*row[1:]) for row in rows]
            after = rows[-1]
        if len(rows) < limit:
            return


def lag(connection: psycopg.Connection, begin: int, *, limit: int) -> Lag:
    """Return which store it is, how many documents were changed since, up to `limit`, and how long the oldest of these has waited."""
    row = connection.execute(_LAG, {"begin": begin, "limit": limit}).fetchone()
    assert row is not None  # noqa: S101 — the schema makes the row
    return Lag(*row)


def found(connection: psycopg.Connection, ids: Sequence[DocumentId]) -> dict[DocumentId, FoundDocument]:
    """Return the rows of documents that are still there."""
    values = {
        "domains": array_params.numbers(one.domain_id for one in ids),
        "jobs": array_params.numbers(one.job_id for one in ids),
        "keys": array_params.keys(one.url_key for one in ids),
    }
    rows = (FoundDocument(*row) for row in connection.execute(_FOUND, values))
    return {DocumentId(*row[:3]): row for row in rows}
