"""Documents as crawls write them: the main content of pages, and on how many pages of a domain each block of text stands.

The rules: a document is written in the transaction that marks its page as parsed, so a killed process loses none. The counts of blocks
are derived from the documents and can be counted again at any time. What is removed from a document is decided from the counts and
stored with it, so that the same document reads the same until it is decided again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final, NamedTuple

import psycopg

from holdfast.db import array_params

_COUNT_LOCK: Final = 0x646F6373  # "docs"

_PUT: Final = """
INSERT INTO documents AS d (domain_id, job_id, url_key, fetched_at, published, words, extractor, kind, language, title, author,
                            site_name, block_hashes, block_words, heading_blocks, body)
VALUES (%(domain)s, %(job)s, %(key)s, %(fetched_at)s, %(published)s, %(words)s, %(extractor)s, %(kind)s, %(language)s, %(title)s,
        %(author)s, %(site_name)s, %(block_hashes)s, %(block_words)s, %(heading_blocks)s, %(body)s)
ON CONFLICT (domain_id, job_id, url_key) DO UPDATE SET changed = pg_current_xact_id(), fetched_at = excluded.fetched_at,
    extracted_at = clock_timestamp(), published = excluded.published, words = excluded.words, extractor = excluded.extractor,
    kind = excluded.kind, language = excluded.language, title = excluded.title, author = excluded.author,
    site_name = excluded.site_name, block_hashes = excluded.block_hashes, block_words = excluded.block_words,
    heading_blocks = excluded.heading_blocks, body = excluded.body, removed = '{}', counted_pages = NULL
"""
# A block that stands twice on a page counts once. Blocks of one page only say nothing and are not kept.
_COUNT: Final = """
WITH counted AS (
    SELECT b.block_hash, count(*)::integer AS pages
    FROM documents d CROSS JOIN LATERAL (SELECT DISTINCT unnest(d.block_hashes) AS block_hash) b
    WHERE d.domain_id = %(domain)s GROUP BY b.block_hash HAVING count(*) >= %(fewest)s
    ORDER BY pages DESC, b.block_hash LIMIT %(limit)s
), gone AS (
    DELETE FROM domain_blocks o WHERE o.domain_id = %(domain)s AND NOT EXISTS (SELECT FROM counted c WHERE c.block_hash = o.block_hash)
)
INSERT INTO domain_blocks AS o (domain_id, block_hash, pages) SELECT %(domain)s, block_hash, pages FROM counted ORDER BY block_hash
ON CONFLICT (domain_id, block_hash) DO UPDATE SET pages = excluded.pages WHERE o.pages <> excluded.pages
"""
_COUNTED: Final = """
INSERT INTO domain_block_counts (domain_id, documents) SELECT %(domain)s, count(*) FROM documents WHERE domain_id = %(domain)s
ON CONFLICT (domain_id) DO UPDATE SET documents = excluded.documents, counted_at = clock_timestamp()
RETURNING documents
"""
_UNDECIDED_DOMAINS: Final = """
WITH RECURSIVE next AS (
    (SELECT domain_id FROM documents WHERE counted_pages IS NULL AND domain_id > %(after)s ORDER BY domain_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.domain_id FROM documents d WHERE d.counted_pages IS NULL AND d.domain_id > n.domain_id ORDER BY d.domain_id LIMIT 1)
    FROM next n WHERE n.domain_id IS NOT NULL
)
SELECT domain_id FROM next WHERE domain_id IS NOT NULL LIMIT %(limit)s
"""
_BLOCKS_OF: Final = """
SELECT job_id, url_key, block_hashes, block_words, heading_blocks, removed, counted_pages FROM documents
WHERE domain_id = %(domain)s AND (job_id, url_key) > (%(job)s, %(key)s) AND (%(all)s OR counted_pages IS NULL)
ORDER BY job_id, url_key LIMIT %(limit)s
"""
# A document that was written again meanwhile keeps its place in the queue: its blocks are others.
_DECIDE: Final = """
UPDATE documents d SET counted_pages = %(pages)s, removed = w.removed::integer[],
    changed = CASE WHEN d.removed = w.removed::integer[] THEN d.changed ELSE pg_current_xact_id() END
FROM unnest(%(jobs)s::bigint[], %(keys)s::bytea[], %(removed)s::text[], %(hashes)s::text[]) AS w(job_id, url_key, removed, hashes)
WHERE d.domain_id = %(domain)s AND d.job_id = w.job_id AND d.url_key = w.url_key AND d.block_hashes = w.hashes::bigint[]
"""


class DocumentKey(NamedTuple):
    """A document: the page of a job on a domain."""

    domain_id: int
    job_id: int
    url_key: bytes


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """The columns of `documents` for one page; the content is compressed."""

    extractor: str
    kind: str
    words: int
    block_hashes: Sequence[int]
    block_words: Sequence[int]
    heading_blocks: Sequence[int]
    """Numbers of the blocks that are headings, from 0."""
    body: bytes
    language: str | None = None
    title: str | None = None
    author: str | None = None
    site_name: str | None = None
    published: date | None = None


class DocumentBlocks(NamedTuple):
    """The blocks of a document, and what is removed from it so far."""

    job_id: int
    url_key: bytes
    block_hashes: Sequence[int]
    block_words: Sequence[int]
    heading_blocks: Sequence[int]
    removed: Sequence[int]
    counted_pages: int | None


def put(connection: psycopg.Connection, key: DocumentKey, row: DocumentRow, fetched_at: datetime) -> None:
    """Write the document of a page. Before: a transaction is open and holds the lock on the row of the parse. After (with its commit): the
    document is there, undecided: what stands on many pages of its domain is still in it."""
    values = {
        "domain": key.domain_id,
        "job": key.job_id,
        "key": key.url_key,
        "fetched_at": fetched_at,
        "block_hashes": list(row.block_hashes),
        "block_words": list(row.block_words),
        "heading_blocks": list(row.heading_blocks),
        **{
            name: getattr(row, name)
            for name in ("published", "words", "extractor", "kind", "language", "title", "author", "site_name", "body")
        },
    }
    connection.execute(_PUT, values)


def remove(connection: psycopg.Connection, key: DocumentKey) -> None:
    """Delete the document of a page, if there is one."""
    connection.execute("DELETE FROM documents WHERE domain_id = %s AND job_id = %s AND url_key = %s", key)


def undecided_domains(connection: psycopg.Connection, *, after: int = 0, limit: int = 100) -> list[int]:
    """Return domains, with ids above `after`, that have documents for which it is not decided which blocks are removed."""
    return [row[0] for row in connection.execute(_UNDECIDED_DOMAINS, {"after": after, "limit": limit})]


def count_blocks(connection: psycopg.Connection, domain_id: int, *, fewest: int, limit: int) -> int | None:
    """Count on how many documents of a domain each block stands; keep the `limit` most frequent, of at least `fewest` documents.

    Before: no transaction is open. After: the counts are those of the documents now. Returns the number of documents; None: another
    process counts this domain at the moment.
    """
    with connection.transaction():
        row = connection.execute(
            "SELECT pg_try_advisory_xact_lock(%s, %s::int)", (_COUNT_LOCK, domain_id % 2**31)
        ).fetchone()
        if row is None or not row[0]:
            return None
        values = {"domain": domain_id, "fewest": fewest, "limit": limit}
        connection.execute(_COUNT, values)
        counted = connection.execute(_COUNTED, values).fetchone()
        return counted[0] if counted else 0


def counted_documents(connection: psycopg.Connection, domain_id: int) -> int:
    """Return in how many documents the blocks of a domain were counted last; 0: never."""
    row = connection.execute("SELECT documents FROM domain_block_counts WHERE domain_id = %s", (domain_id,)).fetchone()
    return row[0] if row else 0


def count_documents(connection: psycopg.Connection, domain_id: int) -> int:
    """Return how many documents a domain has."""
    row = connection.execute("SELECT count(*) FROM documents WHERE domain_id = %s", (domain_id,)).fetchone()
    return row[0] if row else 0


def block_counts(connection: psycopg.Connection, domain_id: int) -> Mapping[int, int]:
    """Return on how many documents each block of a domain stands, of those that are kept."""
    rows = connection.execute("SELECT block_hash, pages FROM domain_blocks WHERE domain_id = %s", (domain_id,))
    return dict(rows.fetchall())


def blocks_of(
    connection: psycopg.Connection, domain_id: int, *, all_documents: bool, chunk: int = 1_000
) -> Iterator[list[DocumentBlocks]]:
    """Read the blocks of the documents of a domain, in chunks: all of them, or those that are undecided."""
    after: tuple[int, bytes] = (0, b"")
    while True:
        values = {"domain": domain_id, "job": after[0], "key": after[1], "all": all_documents, "limit": chunk}
        rows = [DocumentBlocks(*row) for row in connection.execute(_BLOCKS_OF, values, prepare=False)]
        if rows:
            yield rows
            after = rows[-1].job_id, rows[-1].url_key
        if len(rows) < chunk:
            return


def decide(
    connection: psycopg.Connection, domain_id: int, pages: int, removed: Sequence[tuple[DocumentBlocks, Sequence[int]]]
) -> None:
    """Store which blocks are removed from documents, decided by counts over `pages` documents. After: a document that was written again
    meanwhile is undecided still; one whose text changes by the decision has a new `changed`."""
    values = {
        "domain": domain_id,
        "pages": pages,
        "jobs": array_params.numbers(one.job_id for one, _ in removed),
        "keys": array_params.keys(one.url_key for one, _ in removed),
        "removed": [array_params.numbers(blocks) for _, blocks in removed],
        "hashes": [array_params.numbers(one.block_hashes) for one, _ in removed],
    }
    connection.execute(_DECIDE, values)
