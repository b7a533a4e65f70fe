"""Items: what parsers find on the pages of crawls, and which pages wait for their parser.

The rules: a page is due in the transaction that commits it. The items of a page and a parser are replaced as a whole, in the transaction
that says that the page is parsed, and only if the answer that was parsed (its place in the archive) is still the newest: a page that was
crawled again meanwhile is due again. So a process that is killed loses nothing, and two that parse one page double nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from holdfast.db import products
from holdfast.db.connection import first_line
from holdfast.db.keyset_pagination import Equals, Listing, Order, SortColumn
from holdfast.errors import RolledBack, StoreError
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import TREATMENT
from holdfast.model.parse_result import ParseDone, encode_products

# For one folder of an archive, in the order of the index of what is due. Only parsers that are known here.
_DUE: Final = """
SELECT domain_id, job_id, url_key, parser, archive_segment, archive_offset, archive_length, payload_digest
FROM page_parses
WHERE due AND split_part(archive_segment, '/', 1) = %(folder)s
  AND (domain_id, job_id, url_key, parser) > (%(key0)s::bigint, %(key1)s::bigint, %(key2)s::bytea, %(key3)s)
  AND parser = ANY(%(parsers)s::text[]) AND (%(job)s::bigint IS NULL OR job_id = %(job)s)
  AND (%(domain)s::bigint IS NULL OR domain_id = %(domain)s) AND fetched_at <= clock_timestamp() - %(age)s * interval '1 second'
ORDER BY domain_id, job_id, url_key, parser LIMIT %(limit)s
"""
_COUNT_DUE: Final = """
SELECT split_part(archive_segment, '/', 1), parser, count(*) FROM page_parses
WHERE due AND (%(job)s::bigint IS NULL OR job_id = %(job)s) AND (%(domain)s::bigint IS NULL OR domain_id = %(domain)s)
GROUP BY 1, 2 ORDER BY 1, 2
"""
# FOR NO KEY UPDATE in the order in which the commit of pages locks them. Looked at again when the lock is had: the page may be newer now.
_LOCK: Final = """
SELECT r.domain_id, r.job_id, r.url_key, r.parser, r.fetched_at, r.product_keys
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(parsers)s::text[], %(segments)s::text[],
            %(offsets)s::bigint[], %(again)s::boolean[]) AS w(domain_id, job_id, url_key, parser, segment, place, again)
JOIN page_parses r ON r.domain_id = w.domain_id AND r.job_id = w.job_id AND r.url_key = w.url_key AND r.parser = w.parser
WHERE r.archive_segment = w.segment AND r.archive_offset = w.place AND (r.due OR w.again)
ORDER BY r.domain_id, r.job_id, r.url_key, r.parser FOR NO KEY UPDATE OF r
"""
_DONE: Final = """
UPDATE page_parses r SET due = false, error = NULL, parsed_at = clock_timestamp(), parser_version = w.version, items = w.items
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(parsers)s::text[], %(versions)s::text[],
            %(counts)s::int[]) AS w(domain_id, job_id, url_key, parser, version, items)
WHERE r.domain_id = w.domain_id AND r.job_id = w.job_id AND r.url_key = w.url_key AND r.parser = w.parser
"""
_FAILED: Final = """
UPDATE page_parses SET error = %(error)s, attempts = LEAST(attempts + 1, 32767), due = due AND NOT %(final)s AND attempts + 1 < %(most)s
WHERE domain_id = %(domain)s AND job_id = %(job)s AND url_key = %(key)s AND parser = %(parser)s
  AND archive_segment = %(segment)s AND archive_offset = %(offset)s AND (due OR %(again)s)
"""
_CLEAR: Final = """
DELETE FROM items i USING unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(parsers)s::text[])
    AS w(domain_id, job_id, url_key, parser)
WHERE i.domain_id = w.domain_id AND i.url_key = w.url_key AND i.job_id = w.job_id AND i.parser = w.parser
"""
_PUT: Final = """
INSERT INTO items (domain_id, job_id, url_key, parser, position, parser_version, fetched_at, data)
SELECT * FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(parsers)s::text[], %(positions)s::int[],
                     %(versions)s::text[], %(times)s::timestamptz[], %(data)s::jsonb[])
"""
_PRODUCT_KEYS: Final = """
UPDATE page_parses SET product_keys = %(product_keys)s::bytea[]
WHERE domain_id = %(domain)s AND job_id = %(job)s AND url_key = %(key)s AND parser = %(parser)s
"""
_NEW_ANSWER: Final = """
    attempts = 0, error = NULL, product_keys = '{}', fetched_at = excluded.fetched_at, archive_segment = excluded.archive_segment,
    archive_offset = excluded.archive_offset, archive_length = excluded.archive_length, payload_digest = excluded.payload_digest
    WHERE (r.archive_segment, r.archive_offset) IS DISTINCT FROM (excluded.archive_segment, excluded.archive_offset)
      AND r.fetched_at <= excluded.fetched_at  -- a commit that we have waited for has a newer one than we saw
"""
# A page that was never due for this parser, or whose answer is another one by now.
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
# Pages of crawls that can be parsed again, by key. What makes a page be left out is looked at afterwards: no statement walks far.
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
_STANDING: Final = """
SELECT count(*) FILTER (WHERE r.due), count(*) FILTER (WHERE NOT r.due AND r.error IS NOT NULL),
       count(*) FILTER (WHERE NOT r.due AND r.error IS NULL), COALESCE(sum(r.items), 0)::bigint,
       max(r.error) FILTER (WHERE r.error IS NOT NULL)
FROM job_domains jd JOIN page_parses r ON r.domain_id = jd.domain_id AND r.job_id = jd.job_id WHERE jd.job_id = %(job)s
"""

CHUNK: Final = 5_000
"""Pages that are looked at by one statement."""
_NEXT_DOMAIN: Final = "SELECT min(domain_id) FROM items WHERE job_id = %(job)s AND domain_id > %(after)s"
FIRST: Final = (0, 0, b"", "")
"""Before all keys."""


class PageKey(NamedTuple):
    """A page of a crawl and a parser for it."""

    domain_id: int
    job_id: int
    url_key: bytes
    parser: str


@dataclass(frozen=True, slots=True)
class Due:
    """A page that waits for its parser, and the answer that is parsed."""

    key: PageKey
    ref: ArchiveRef


@dataclass(frozen=True, slots=True)
class Parsed:
    """A page that was parsed: its items, or why there are none."""

    page: Due
    url: str
    done: ParseDone | None
    items: Sequence[dict[str, Any]] = ()
    error: str | None = None
    final: bool = False
    """Another attempt would fail, too."""
    again: bool = False
    """A person asked for it: the page need not be due."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How the parsing of a job's pages stands."""

    due: int
    failed: int
    parsed: int
    items: int
    error: str | None
    """One of the errors, as an example."""


def due(
    connection: psycopg.Connection,
    folder: str,
    *,
    parsers: Sequence[str],
    job_id: int | None = None,
    domain_id: int | None = None,
    age: float = 0.0,
    after: Sequence[object] = FIRST,
    limit: int = 100,
) -> list[Due]:
    """Pages behind `after` that wait for one of these parsers and lie in this folder of an archive; `age`: for so many seconds."""
    values = {
        "folder": folder,
        "parsers": list(parsers),
        "job": job_id,
        "domain": domain_id,
        "age": age,
        "limit": limit,
    }
    keys = {f"key{place}": value for place, value in enumerate(after)}
    rows = connection.execute(_DUE, values | keys, prepare=False)
    return [Due(PageKey(*row[:4]), ArchiveRef(*row[4:])) for row in rows]


def any_due(connection: psycopg.Connection, folders: Sequence[str], job_id: int | None = None) -> bool:
    """Whether a page waits in one of these folders of an archive, whatever its parser."""
    query = "SELECT EXISTS (SELECT FROM page_parses WHERE due AND split_part(archive_segment, '/', 1) = ANY(%s) {})"
    only = "" if job_id is None else "AND job_id = %s"
    row = connection.execute(query.format(only), [list(folders), *([] if job_id is None else [job_id])]).fetchone()
    return bool(row and row[0])


def count_due(
    connection: psycopg.Connection, *, job_id: int | None = None, domain_id: int | None = None
) -> dict[tuple[str, str], int]:
    """How many pages wait, by folder of the archive and parser."""
    rows = connection.execute(_COUNT_DUE, {"job": job_id, "domain": domain_id})
    return {(folder, parser): count for folder, parser, count in rows}


def standing(connection: psycopg.Connection, job_id: int) -> Standing:
    """How many pages of a job are due, failed and parsed, and their items."""
    row = connection.execute(_STANDING, {"job": job_id}).fetchone()
    assert row is not None  # noqa: S101 — an aggregate has a row
    return Standing(*row)


# Writing --------------------------------------------------------------------------------------------------------------


def save(connection: psycopg.Connection, results: Sequence[Parsed], *, attempts: int) -> int:
    """Write down what parsers found; how many pages of these were still the newest. A page may fail `attempts` times.

    RolledBack: the same call may be made again.

    Before: no transaction is open; a page is in `results` once. After: each page has the items of its result and no others, or its
    error, or is as it was because it has been crawled again or deleted. What the database cannot hold is an error of its page. Nothing
    waits for the disk: after a crash of the server the page is due as before.
    """
    try:
        return _save_all(connection, results, attempts)
    except psycopg.OperationalError as problem:
        raise RolledBack(f"Items could not be written: {first_line(problem)}.") from problem


def _save_all(connection: psycopg.Connection, results: Sequence[Parsed], attempts: int) -> int:
    plain = [one for one in results if one.done is not None and not one.done.extracted.products]
    rest = [one for one in results if one.done is None or one.done.extracted.products]
    written = _save_or_split(connection, plain, attempts)
    for one in rest:  # products take a lock of their own for each page
        written += _save_or_split(connection, [one], attempts)
    return written


def _save_or_split(connection: psycopg.Connection, results: Sequence[Parsed], attempts: int) -> int:
    """Save them in one transaction; if the database refuses one, each in a transaction of its own."""
    if not results:
        return 0
    try:
        return _save(connection, results, attempts)
    except (psycopg.DataError, psycopg.IntegrityError) as problem:
        if len(results) > 1:
            return sum(_save_or_split(connection, [one], attempts) for one in results)
        one = results[0]
        if one.done is None:
            raise StoreError(f"The error of a parser cannot be written: {first_line(problem)}.") from problem
        error = f"The database cannot hold what the parser found: {first_line(problem)}."
        return _save(connection, [Parsed(one.page, one.url, None, (), error, final=True, again=one.again)], attempts)


def _save(connection: psycopg.Connection, results: Sequence[Parsed], attempts: int) -> int:
    by_key = {one.page.key: one for one in results}
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = off")
        written = sum(_fail(connection, one, attempts) for one in results if one.done is None)
        good = [one for one in results if one.done is not None]
        if not good:
            return written
        refs = {"segments": [one.page.ref.segment for one in good], "offsets": [one.page.ref.offset for one in good]}
        again = {"again": [one.again for one in good]}
        locked = connection.execute(_LOCK, _keys(one.page.key for one in good) | refs | again).fetchall()
        kept = [(by_key[PageKey(*row[:4])], row[4], row[5]) for row in locked]
        if kept:
            _replace(connection, [(one, at) for one, at, _ in kept])
            for one, at, before in kept:
                _observe(connection, one, at, before)
        return written + len(kept)


def _fail(connection: psycopg.Connection, one: Parsed, attempts: int) -> int:
    key, ref = one.page.key, one.page.ref
    values = {"domain": key.domain_id, "job": key.job_id, "key": key.url_key, "parser": key.parser, "again": one.again}
    place = {"segment": ref.segment, "offset": ref.offset}
    error = {"error": (one.error or "")[:2000], "final": one.final, "most": attempts}
    return connection.execute(_FAILED, values | place | error).rowcount


def _replace(connection: psycopg.Connection, kept: Sequence[tuple[Parsed, datetime]]) -> None:
    """Before: their rows are locked. After (with the commit): their items are these."""
    pages = _keys(one.page.key for one, _ in kept)
    versions = [one.done.version[:100] for one, _ in kept if one.done is not None]
    connection.execute(_DONE, pages | {"versions": versions, "counts": [len(one.items) for one, _ in kept]})
    connection.execute(_CLEAR, pages)
    rows = [(one, at, place, data) for one, at in kept for place, data in enumerate(one.items)]
    if rows:
        columns = {
            "positions": [place for _, _, place, _ in rows],
            "versions": [one.done.version[:100] for one, _, _, _ in rows if one.done is not None],
            "times": [at for _, at, _, _ in rows],
            "data": [Jsonb(data) for _, _, _, data in rows],
        }
        connection.execute(_PUT, _keys(one.page.key for one, _, _, _ in rows) | columns)


def _observe(connection: psycopg.Connection, one: Parsed, at: datetime, before: Sequence[bytes]) -> None:
    """Its products are known with their price at the time of the fetch; those that this answer was wrongly said to show are not."""
    found = one.done.extracted.products if one.done is not None else ()
    if not found and not before:
        return
    key = one.page.key
    now = [products.identity_key(product) for product in found]
    keys = {"domain": key.domain_id, "job": key.job_id, "key": key.url_key, "parser": key.parser}
    connection.execute(_PRODUCT_KEYS, keys | {"product_keys": now})
    look = products.Look(key.domain_id, key.url_key, one.url, None, at)
    products.observe(connection, look, found, encode_products(found), sorted(set(before) - set(now)))


def _keys(keys: Iterable[PageKey]) -> dict[str, list[Any]]:
    rows = list(keys)
    return {name: [row[place] for row in rows] for place, name in enumerate(("domains", "jobs", "keys", "parsers"))}


# Parsing again --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Archived:
    """A page of a crawl as it lies in an archive, with the parsers that are for it."""

    domain_id: int
    job_id: int
    url_key: bytes
    crawled_at: datetime
    ref: ArchiveRef | None
    job_parser: str | None
    domain_parser: str | None
    """That a person set."""
    url: str | None
    parses: dict[str, str | None]
    """The parsers that it was due for, and the version that parsed it."""


def archived(
    connection: psycopg.Connection,
    *,
    after: Sequence[object] = FIRST[:3],
    limit: int,
    job_id: int | None = None,
    domain_id: int | None = None,
) -> list[Archived]:
    """Pages of crawls behind a key, in the order of their keys."""
    only = {"job": "AND c.job_id = %(job)s", "domain": "AND c.domain_id = %(domain)s"}
    given = {name: value for name, value in (("job", job_id), ("domain", domain_id)) if value is not None}
    values = given | {"limit": limit} | {f"key{place}": value for place, value in enumerate(after)}
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(_ARCHIVED.format(where=" ".join(only[name] for name in given)), values, prepare=False)
        return [_archived(row) for row in rows]


def _archived(row: dict[str, Any]) -> Archived:
    place = (row["archive_segment"], row["archive_offset"], row["archive_length"], row["payload_digest"])
    return Archived(
        row["domain_id"],
        row["job_id"],
        row["url_key"],
        row["crawled_at"],
        None if row["payload_digest"] is None or row["archive_segment"] is None else ArchiveRef(*place),
        row["job_parser"],
        row["domain_parser"],
        row["url"],
        row["parses"] or {},
    )


def make_known(connection: psycopg.Connection, pages: Iterable[PageKey]) -> None:
    """These pages can be parsed by these parsers. After (with the commit): `save` with `again` takes their results."""
    connection.execute(_MAKE_DUE, _keys(sorted(pages)))


def make_job_due(connection: psycopg.Connection, job_id: int, parser: str) -> int:
    """Pages that a job crawled before this parser was asked for are due for it now; how many.

    Before: no transaction is open. After: every page of the job that lies in an archive was due for the parser once.
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
    """Whether this parser has parsed the page before, whatever it found."""
    query = """
        SELECT parsed_at IS NOT NULL FROM page_parses WHERE domain_id = %s AND job_id = %s AND url_key = %s AND parser = %s
    """
    row = connection.execute(query, key).fetchone()
    return bool(row and row[0])


def of_page(connection: psycopg.Connection, key: PageKey) -> list[dict[str, Any]]:
    """The items of a page and a parser, in their order."""
    query = """
        SELECT data FROM items WHERE domain_id = %s AND url_key = %s AND job_id = %s AND parser = %s ORDER BY position
    """
    return [row[0] for row in connection.execute(query, (key.domain_id, key.url_key, key.job_id, key.parser))]


# Reading --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item in a list."""

    domain_id: int
    domain: str | None
    job_id: int
    job: str | None
    url_key: bytes
    url: str | None
    parser: str
    parser_version: str
    position: int
    fetched_at: datetime
    extracted_at: datetime
    data: dict[str, Any]


_ORDER: Final = (
    SortColumn("t.domain_id", int),
    SortColumn("t.url_key", bytes),
    SortColumn("t.job_id", int),
    SortColumn("t.parser", str),
    SortColumn("t.position", int),
)

ITEMS: Final = Listing(
    "items",
    """
    t.domain_id, d.domain, t.job_id, j.name AS job, t.url_key, f.url, t.parser, t.parser_version, t.position, t.fetched_at, t.extracted_at,
    t.data
    """,
    ItemRow,
    {
        "domain": Equals("t.domain_id", "%(domain)s::bigint"),
        "url_key": Equals("t.url_key", "%(url_key)s::bytea"),
        "job": Equals("t.job_id", "%(job)s::bigint"),
        "parser": "t.parser = %(parser)s",
    },
    {"key": Order(_ORDER, (("domain", "url_key"), ("domain",), ()))},
    joins="""
    LEFT JOIN url_frontier f ON f.domain_id = t.domain_id AND f.job_id = t.job_id AND f.url_key = t.url_key
    LEFT JOIN domains d ON d.id = t.domain_id LEFT JOIN crawl_jobs j ON j.id = t.job_id
    """,
    selective=frozenset({"job"}),
)


def chunks(
    connection: psycopg.Connection, *, job_id: int | None, domain_id: int | None, parser: str | None, size: int
) -> Iterator[list[ItemRow]]:
    """All items of these, a chunk at a time, each a short statement of its own."""
    if job_id is not None and domain_id is None:
        # Domain by domain, which is the order of the index, without a walk through the items of other jobs.
        last = 0
        while (row := connection.execute(_NEXT_DOMAIN, {"job": job_id, "after": last}).fetchone()) and row[
            0
        ] is not None:
            last = row[0]
            yield from chunks(connection, job_id=job_id, domain_id=last, parser=parser, size=size)
        return
    given = {"job": job_id, "domain": domain_id, "parser": parser}
    only = {name: value for name, value in given.items() if value is not None}
    after: tuple[object, ...] | None = None
    while True:
        page = ITEMS.page(connection, only, order="key", after=after, limit=size)
        if page.rows:
            yield page.rows
        if page.next is None:
            return
        after = page.next
