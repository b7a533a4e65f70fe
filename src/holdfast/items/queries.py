"""SQL of items: their list, counts of parsed pages, and pages that are parsed again. What crawls read and write is in `db/items`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg

from holdfast.db.items import FIRST, HERE, PageKey, key_columns
from holdfast.db.keyset_pagination import Equals, Listing, Order, SortColumn
from holdfast.db.rows import by_name, select_list
from holdfast.items.records import Item, ParseCounts
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.job import MAIN_TEXT, MARKDOWN
from holdfast.model.outcome import TREATMENT

CHUNK: Final = 5_000
"""Pages that are looked at by one statement."""

# List -----------------------------------------------------------------------------------------------------------------

_NEXT_DOMAIN: Final = "SELECT min(domain_id) FROM items WHERE job_id = %(job)s AND domain_id > %(after)s"
_KEY: Final = (
    SortColumn("t.domain_id", int),
    SortColumn("t.url_key", bytes),
    SortColumn("t.job_id", int),
    SortColumn("t.parser", str),
    SortColumn("t.position", int),
)

ITEMS: Final = Listing(
    "items",
    select_list(Item, "t", url="f.url", domain="d.domain", job="j.name"),
    Item,
    {
        "domain": Equals("t.domain_id", "%(domain)s::bigint"),
        "url_key": Equals("t.url_key", "%(url_key)s::bytea"),
        "job": Equals("t.job_id", "%(job)s::bigint"),
        "parser": "t.parser = %(parser)s",
        "position": "t.position = %(position)s",
    },
    {"key": Order(_KEY, (("domain", "url_key"), ("domain",), ()))},
    joins="""
    LEFT JOIN url_frontier f ON f.domain_id = t.domain_id AND f.job_id = t.job_id AND f.url_key = t.url_key
    LEFT JOIN domains d ON d.id = t.domain_id LEFT JOIN crawl_jobs j ON j.id = t.job_id
    """,
    selective=frozenset({"job"}),
)


def chunks(
    connection: psycopg.Connection, *, job_id: int | None, domain_id: int | None, parser: str | None, size: int
) -> Iterator[list[Item]]:
    """Read all items, of a job, a domain or a parser, a chunk at a time, each in a short statement."""
    if job_id is not None and domain_id is None:
        # Domain by domain, which is the order of the index, without a scan of the items of other jobs.
        last = 0
        while (row := connection.execute(_NEXT_DOMAIN, {"job": job_id, "after": last}).fetchone()) and row[
            0
        ] is not None:
            last = row[0]
            yield from chunks(connection, job_id=job_id, domain_id=last, parser=parser, size=size)
        return
    filters: dict[str, object] = {"job": job_id, "domain": domain_id, "parser": parser}
    only = {name: value for name, value in filters.items() if value is not None}
    after: tuple[object, ...] | None = None
    while True:
        page = ITEMS.page(connection, only, order="key", after=after, limit=size)
        if page.rows:
            yield page.rows
        if page.next is None:
            return
        after = page.next


# Counts ---------------------------------------------------------------------------------------------------------------

_COUNT_DUE: Final = """
SELECT parser, {readable}, count(*) FROM page_parses
WHERE due AND (%(job)s::bigint IS NULL OR job_id = %(job)s) AND (%(domain)s::bigint IS NULL OR domain_id = %(domain)s)
GROUP BY 1, 2 ORDER BY 1, 2
"""
_PARSE_COUNTS: Final = """
SELECT count(*) FILTER (WHERE r.due), count(*) FILTER (WHERE NOT r.due AND r.error IS NOT NULL),
       count(*) FILTER (WHERE NOT r.due AND r.error IS NULL AND r.parser <> ALL(%(content)s::text[])), COALESCE(sum(r.items), 0)::bigint,
       max(r.error) FILTER (WHERE r.error IS NOT NULL),
       (SELECT count(*) FROM job_domains h JOIN documents d ON d.domain_id = h.domain_id AND d.job_id = h.job_id WHERE h.job_id = %(job)s)
FROM job_domains jd JOIN page_parses r ON r.domain_id = jd.domain_id AND r.job_id = jd.job_id WHERE jd.job_id = %(job)s
"""


class DueCount(NamedTuple):
    """Pages that are due for a parser, and can be read on this machine, or cannot."""

    parser: str
    readable: bool
    pages: int


def count_due(
    connection: psycopg.Connection,
    *,
    job_id: int | None = None,
    domain_id: int | None = None,
    machine: str | None = None,
    folders: Sequence[str] | None = None,
) -> list[DueCount]:
    """Return how many pages are due. `folders`: the folders of the archive on this machine; with an object store `machine` is given
    instead, the identity of this machine."""
    readable = "split_part(archive_segment, '/', 1) = ANY(%(folders)s)" if folders is not None else f"TRUE {HERE}"
    values = {"job": job_id, "domain": domain_id, "machine": machine, "folders": list(folders or ())}
    rows = connection.execute(_COUNT_DUE.format(readable=readable), values, prepare=False)
    return [DueCount(*row) for row in rows]


def parse_counts(connection: psycopg.Connection, job_id: int) -> ParseCounts:
    """Return how many pages of a job are due, failed and parsed, and their items."""
    row = connection.execute(_PARSE_COUNTS, {"job": job_id, "content": [MARKDOWN, MAIN_TEXT]}).fetchone()
    assert row is not None  # noqa: S101 — an aggregate has a row
    return ParseCounts(*row)


# Parsing again --------------------------------------------------------------------------------------------------------

_NEW_ANSWER: Final = """
    attempts = 0, error = NULL, product_keys = '{}', fetched_at = excluded.fetched_at, archive_segment = excluded.archive_segment,
    archive_offset = excluded.archive_offset, archive_length = excluded.archive_length, payload_digest = excluded.payload_digest
    WHERE (r.archive_segment, r.archive_offset) IS DISTINCT FROM (excluded.archive_segment, excluded.archive_offset)
      AND r.fetched_at <= excluded.fetched_at  -- a commit that this statement has waited for may have stored a newer one
"""
# Pages that were never due for this parser, or that have another response by now.
_MAKE_DUE: Final = f"""
INSERT INTO page_parses AS r (domain_id, job_id, url_key, parser, fetched_at, archive_segment, archive_offset, archive_length,
                              payload_digest, due)
SELECT p.domain_id, p.job_id, p.url_key, w.parser, p.crawled_at, p.archive_segment, p.archive_offset, p.archive_length,
       p.payload_digest, false
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(parsers)s::text[]) AS w(domain_id, job_id, url_key, parser)
JOIN crawled_pages p USING (domain_id, job_id, url_key)
WHERE p.archive_segment IS NOT NULL AND p.payload_digest IS NOT NULL
ORDER BY p.domain_id, p.job_id, p.url_key, w.parser
ON CONFLICT (domain_id, job_id, url_key, parser) DO UPDATE SET {_NEW_ANSWER}
"""  # noqa: S608 — a constant
# Pages of a job that were crawled before it had this parser, a chunk at a time.
_MAKE_JOB_DUE: Final = f"""
WITH chunk AS MATERIALIZED (
    SELECT p.* FROM crawled_pages p
    WHERE p.domain_id = %(domain)s AND p.job_id = %(job)s AND p.url_key > %(key)s ORDER BY p.url_key LIMIT %(limit)s
), made AS (
    INSERT INTO page_parses AS r (domain_id, job_id, url_key, parser, fetched_at, archive_segment, archive_offset, archive_length,
                                  payload_digest)
    SELECT domain_id, job_id, url_key, %(parser)s, crawled_at, archive_segment, archive_offset, archive_length, payload_digest
    FROM chunk WHERE archive_segment IS NOT NULL AND payload_digest IS NOT NULL AND outcome = ANY(%(pages)s) ORDER BY url_key
    ON CONFLICT (domain_id, job_id, url_key, parser) DO UPDATE SET due = true, {_NEW_ANSWER} RETURNING 1
)
SELECT (SELECT url_key FROM chunk ORDER BY url_key DESC LIMIT 1), (SELECT count(*) FROM made)
"""  # noqa: S608 — a constant
# Pages of crawls that can be parsed again, by key. The caller filters them: so no statement scans far.
_ARCHIVED: Final = """
WITH chunk AS MATERIALIZED (
    SELECT * FROM crawled_pages c
    WHERE (c.domain_id, c.job_id, c.url_key) > (%(key0)s::bigint, %(key1)s::bigint, %(key2)s::bytea) {where}
    ORDER BY c.domain_id, c.job_id, c.url_key LIMIT %(limit)s
)
SELECT c.domain_id, c.job_id, c.url_key, c.crawled_at, c.outcome, c.archive_segment, c.archive_offset, c.archive_length,
       c.payload_digest, j.spec->>'parser' AS job_parser, CASE WHEN d.parser_chosen THEN d.parser_name END AS domain_parser, f.url,
       (SELECT jsonb_object_agg(r.parser, r.parser_version) FROM page_parses r
        WHERE r.domain_id = c.domain_id AND r.job_id = c.job_id AND r.url_key = c.url_key) AS parses
FROM chunk c JOIN crawl_jobs j ON j.id = c.job_id JOIN domains d ON d.id = c.domain_id
LEFT JOIN url_frontier f ON f.domain_id = c.domain_id AND f.job_id = c.job_id AND f.url_key = c.url_key
WHERE j.kind = 'crawl' ORDER BY c.domain_id, c.job_id, c.url_key
"""


@dataclass(frozen=True, slots=True)
class Archived:
    """A page of a crawl in an archive, with its parsers."""

    domain_id: int
    job_id: int
    url_key: bytes
    crawled_at: datetime
    ref: ArchiveRef | None
    job_parser: str | None
    domain_parser: str | None
    """That the operator set."""
    url: str | None
    parses: dict[str, str | None]
    """The parsers that it was due for, each with the version that parsed it."""


def archived(
    connection: psycopg.Connection,
    *,
    after: Sequence[object] = FIRST[:3],
    limit: int,
    job_id: int | None = None,
    domain_id: int | None = None,
) -> list[Archived]:
    """Return pages of crawls after a key, in the order of their keys."""
    only = {"job": "AND c.job_id = %(job)s", "domain": "AND c.domain_id = %(domain)s"}
    filters = {name: value for name, value in (("job", job_id), ("domain", domain_id)) if value is not None}
    values = filters | {"limit": limit} | {f"key{place}": value for place, value in enumerate(after)}
    query = _ARCHIVED.format(where=" ".join(only[name] for name in filters))
    with connection.cursor(row_factory=_as_archived) as cursor:
        return cursor.execute(query, values, prepare=False).fetchall()


def _ref(
    archive_segment: str | None, archive_offset: int, archive_length: int, payload_digest: bytes | None
) -> ArchiveRef | None:
    if archive_segment is None or payload_digest is None:
        return None
    return ArchiveRef(archive_segment, archive_offset, archive_length, payload_digest)


_as_archived: Final = by_name(Archived, ref=_ref, parses=lambda parses: parses or {})


def make_known(connection: psycopg.Connection, pages: Iterable[PageKey]) -> None:
    """Register parsers for pages. After (with the commit): `db/items.save` with `again` accepts their results."""
    connection.execute(_MAKE_DUE, key_columns(sorted(pages)))


def make_job_due(connection: psycopg.Connection, job_id: int, parser: str) -> int:
    """Make all pages due for a parser that a job crawled before it had this parser. Returns how many.

    Before: no transaction is open. After: every archived page of the job is or was due for the parser.
    """
    made = 0
    domain_ids = connection.execute("SELECT domain_id FROM job_domains WHERE job_id = %s ORDER BY domain_id", (job_id,))
    pages = [outcome for outcome, treatment in TREATMENT.items() if treatment.page]
    for (domain_id,) in domain_ids.fetchall():
        key: bytes | None = b""
        while key is not None:
            values = {"domain": domain_id, "job": job_id, "key": key, "parser": parser, "limit": CHUNK, "pages": pages}
            key, count = connection.execute(_MAKE_JOB_DUE, values, prepare=False).fetchone() or (None, 0)
            made += count
    return made


def is_parsed(connection: psycopg.Connection, key: PageKey) -> bool:
    """Return whether this parser has parsed the page before."""
    query = """
        SELECT parsed_at IS NOT NULL FROM page_parses WHERE domain_id = %s AND job_id = %s AND url_key = %s AND parser = %s
    """
    row = connection.execute(query, key).fetchone()
    return bool(row and row[0])


def of_page(connection: psycopg.Connection, key: PageKey) -> list[dict[str, Any]]:
    """Return the items that a parser found on a page, in their order."""
    query = """
        SELECT data FROM items WHERE domain_id = %s AND url_key = %s AND job_id = %s AND parser = %s ORDER BY position
    """
    return [row[0] for row in connection.execute(query, (key.domain_id, key.url_key, key.job_id, key.parser))]
