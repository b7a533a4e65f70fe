"""SQL of documents: one by its URL, and all of them for exports. They are written by `db/documents`."""

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, Final, NamedTuple

import psycopg

_COLUMNS: Final = """
    d.domain_id, d.job_id, d.url_key, f.url, n.domain, j.name AS job, d.title, d.author, d.site_name, d.language, d.kind, d.published,
    d.fetched_at, d.words, d.extractor, d.counted_pages, d.removed, d.body
"""
_JOINS: Final = """
JOIN url_frontier f ON f.domain_id = d.domain_id AND f.job_id = d.job_id AND f.url_key = d.url_key
JOIN domains n ON n.id = d.domain_id JOIN crawl_jobs j ON j.id = d.job_id
"""
_FIND: Final = f"""
SELECT {_COLUMNS} FROM documents d {_JOINS}
WHERE d.domain_id = %(domain)s AND d.url_key = %(key)s AND (%(job)s::bigint IS NULL OR d.job_id = %(job)s)
ORDER BY d.fetched_at DESC, d.job_id LIMIT 1
"""  # noqa: S608 — composed of constants only
_EXPORT: Final = f"""
WITH chunk AS MATERIALIZED (
    SELECT * FROM documents r
    WHERE (r.domain_id, r.job_id, r.url_key) > (%(domain_id)s, %(job_id)s, %(url_key)s)
      AND (%(job)s::bigint IS NULL OR r.job_id = %(job)s) AND (%(domain)s::bigint IS NULL OR r.domain_id = %(domain)s)
    ORDER BY r.domain_id, r.job_id, r.url_key LIMIT %(limit)s
)
SELECT {_COLUMNS} FROM chunk d {_JOINS} ORDER BY d.domain_id, d.job_id, d.url_key
"""  # noqa: S608 — composed of constants only
_COUNT: Final = """
SELECT count(*) FROM documents
WHERE (%(job)s::bigint IS NULL OR job_id = %(job)s) AND (%(domain)s::bigint IS NULL OR domain_id = %(domain)s)
"""
CHUNK: Final = 200
"""Documents in memory at once: each may be long."""


class DocumentBody(NamedTuple):
    """A document as it is stored, its content compressed."""

    domain_id: int
    job_id: int
    url_key: bytes
    url: str
    domain: str
    job: str
    title: str | None
    author: str | None
    site_name: str | None
    language: str | None
    kind: str
    published: date | None
    fetched_at: datetime
    words: int
    extractor: str
    counted_pages: int | None
    removed: list[int]
    body: bytes


def find(connection: psycopg.Connection, domain_id: int, url_key: bytes, job_id: int | None) -> DocumentBody | None:
    """Return the document of a URL in a job; without a job, the one that was fetched last."""
    row = connection.execute(_FIND, {"domain": domain_id, "key": url_key, "job": job_id}).fetchone()
    return None if row is None else DocumentBody(*row)


def export(
    connection: psycopg.Connection, *, job_id: int | None = None, domain_id: int | None = None
) -> Iterator[DocumentBody]:
    """Read all documents of a job or a domain, in the order of their keys."""
    after: dict[str, Any] = {"domain_id": 0, "job_id": 0, "url_key": b""}
    only = {"job": job_id, "domain": domain_id, "limit": CHUNK}
    while True:
        rows = [DocumentBody(*row) for row in connection.execute(_EXPORT, after | only, prepare=False)]
        yield from rows
        if len(rows) < CHUNK:
            return
        after = {"domain_id": rows[-1].domain_id, "job_id": rows[-1].job_id, "url_key": rows[-1].url_key}


def count(connection: psycopg.Connection, *, job_id: int | None = None, domain_id: int | None = None) -> int:
    """Return how many documents a job or a domain has."""
    row = connection.execute(_COUNT, {"job": job_id, "domain": domain_id}).fetchone()
    return row[0] if row else 0
