"""Items as crawls write them: pages that are due for a parser, and the items that it found. Lists and counts are in `items/queries`.

The rules: a page is due in the transaction that commits it. The items of a page and a parser are replaced as a whole, in the transaction
that marks the page as parsed, and only if the response that was parsed (its place in the archive) is still the newest: a page that was
crawled again meanwhile is due again. So a killed process loses nothing, and two that parse the same page duplicate nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.types.json import Jsonb

from holdfast.db import documents, products
from holdfast.db.connection import first_line
from holdfast.db.documents import DocumentKey, DocumentRow
from holdfast.errors import RolledBack, StoreError
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.job import MAIN_TEXT, MARKDOWN
from holdfast.model.parse_result import ParseDone, encode_products

# For one folder of an archive, in the order of the index of what is due. Only parsers that are known here.
_DUE: Final = """
SELECT domain_id, job_id, url_key, parser, archive_segment, archive_offset, archive_length, payload_digest
FROM page_parses
WHERE due AND split_part(archive_segment, '/', 1) = %(folder)s
  AND (domain_id, job_id, url_key, parser) > (%(key0)s::bigint, %(key1)s::bigint, %(key2)s::bytea, %(key3)s)
  AND parser = ANY(%(parsers)s::text[]) AND (%(job)s::bigint IS NULL OR job_id = %(job)s)
  AND (%(domain)s::bigint IS NULL OR domain_id = %(domain)s) AND fetched_at <= clock_timestamp() - %(age)s * interval '1 second'
  {here}
ORDER BY domain_id, job_id, url_key, parser LIMIT %(limit)s
"""
# With an object store: not what only another machine has.
HERE: Final = """
AND NOT EXISTS (SELECT FROM archive_segments s JOIN archive_machines m ON m.id = s.machine_id
                WHERE s.segment = archive_segment AND s.state IN ('open', 'local') AND m.folder_id <> %(machine)s)
"""
# One look at the index for each folder, however many pages are due.
_DUE_FOLDERS: Final = """
WITH RECURSIVE folders AS (
    (SELECT split_part(archive_segment, '/', 1) AS folder FROM page_parses WHERE due ORDER BY split_part(archive_segment, '/', 1) LIMIT 1)
    UNION ALL
    SELECT (SELECT split_part(archive_segment, '/', 1) FROM page_parses
            WHERE due AND split_part(archive_segment, '/', 1) > folders.folder ORDER BY split_part(archive_segment, '/', 1) LIMIT 1)
    FROM folders WHERE folders.folder IS NOT NULL
)
SELECT folder FROM folders WHERE folder IS NOT NULL
"""
# FOR NO KEY UPDATE in the order in which the commit of pages locks them. Checked again under the lock: the page may be newer.
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
UPDATE page_parses SET error = %(error)s, attempts = LEAST(attempts + 1, 32767),
    due = due AND NOT %(final)s AND attempts + 1 < %(max_attempts)s
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
# Before the rows of the parses, as in the commit of pages.
_LOCK_TEXTS: Final = """
SELECT FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[]) AS w(domain_id, job_id, url_key)
JOIN page_texts t ON t.domain_id = w.domain_id AND t.job_id = w.job_id AND t.url_key = w.url_key
ORDER BY t.domain_id, t.job_id, t.url_key FOR NO KEY UPDATE OF t
"""
_TEXTS: Final = """
UPDATE page_texts t SET body = w.body
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(bodies)s::bytea[]) AS w(domain_id, job_id, url_key, body)
WHERE t.domain_id = w.domain_id AND t.job_id = w.job_id AND t.url_key = w.url_key
"""
_PRODUCT_KEYS: Final = """
UPDATE page_parses SET product_keys = %(product_keys)s::bytea[]
WHERE domain_id = %(domain)s AND job_id = %(job)s AND url_key = %(key)s AND parser = %(parser)s
"""
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
    """A page that is due for its parser, and the response that is parsed."""

    key: PageKey
    ref: ArchiveRef


@dataclass(frozen=True, slots=True)
class Parsed:
    """A page that was parsed: its items, or why there are none."""

    page: Due
    url: str
    done: ParseDone | None
    items: Sequence[dict[str, Any]] = ()
    document: DocumentRow | None = None
    """Its main content, which the parser `markdown` finds in place of items."""
    text: bytes | None = None
    """Its main text, compressed, which `markdown` and `main-text` find: it replaces the visible text, if that is stored."""
    error: str | None = None
    final: bool = False
    """Another attempt would fail as well."""
    again: bool = False
    """It is parsed by order of the operator: the page need not be due."""


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
    machine: str | None = None,
) -> list[Due]:
    """Return pages after the key `after` that are due for one of these parsers, since `age` seconds, in this folder of an archive.

    `machine`: the identity of this machine if there is an object store; pages that are only on another one are left out.
    """
    values = {
        "folder": folder,
        "parsers": list(parsers),
        "job": job_id,
        "domain": domain_id,
        "age": age,
        "limit": limit,
        "machine": machine,
    }
    keys = {f"key{place}": value for place, value in enumerate(after)}
    query = _DUE.format(here="" if machine is None else HERE)
    rows = connection.execute(query, values | keys, prepare=False)
    return [Due(PageKey(*row[:4]), ArchiveRef(*row[4:])) for row in rows]


def due_folders(connection: psycopg.Connection) -> list[str]:
    """Return the folders of archives, of all machines, in which pages are due."""
    return [row[0] for row in connection.execute(_DUE_FOLDERS)]


def any_due(connection: psycopg.Connection, folders: Sequence[str], job_id: int | None = None) -> bool:
    """Return whether a page is due in one of these folders of an archive, for any parser."""
    query = "SELECT EXISTS (SELECT FROM page_parses WHERE due AND split_part(archive_segment, '/', 1) = ANY(%s) {})"
    only = "" if job_id is None else "AND job_id = %s"
    row = connection.execute(query.format(only), [list(folders), *([] if job_id is None else [job_id])]).fetchone()
    return bool(row and row[0])


# Writing --------------------------------------------------------------------------------------------------------------


def save(connection: psycopg.Connection, results: Sequence[Parsed], *, attempts: int) -> int:
    """Write the results of parsers. Returns how many of the pages were still the newest. A page may fail `attempts` times.

    Raises RolledBack: the same call may be made again.

    Before: no transaction is open; a page is in `results` once. After: each page has the items of its result and no others, or its
    error, or is unchanged because it has been crawled again or deleted. A value that the database refuses is an error of its page.
    Nothing waits for the disk: after a crash of the server the page is due as before.
    """
    try:
        return _save_all(connection, results, attempts)
    except psycopg.OperationalError as problem:
        raise RolledBack(f"Items could not be written: {first_line(problem)}.") from problem


def _save_all(connection: psycopg.Connection, results: Sequence[Parsed], attempts: int) -> int:
    plain = [one for one in results if one.done is not None and not one.done.extracted.products]
    rest = [one for one in results if one.done is None or one.done.extracted.products]
    written = _save_or_split(connection, plain, attempts)
    for one in rest:  # products take another lock for each page
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
        return _save(connection, [Parsed(one.page, one.url, None, error=error, final=True, again=one.again)], attempts)


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
        if texts := [one.page.key for one in good if one.text is not None]:
            connection.execute(_LOCK_TEXTS, key_columns(texts))
        locked = connection.execute(_LOCK, key_columns(one.page.key for one in good) | refs | again).fetchall()
        kept = [(by_key[PageKey(*row[:4])], row[4], row[5]) for row in locked]
        if kept:
            _replace(connection, [(one, at) for one, at, _ in kept])
            _put_texts(connection, [one for one, _, _ in kept])
            for one, at, before in kept:
                if one.page.key.parser == MARKDOWN:
                    _put_document(connection, one, at)
                elif one.page.key.parser != MAIN_TEXT:
                    _observe(connection, one, at, before)
        return written + len(kept)


def _fail(connection: psycopg.Connection, one: Parsed, attempts: int) -> int:
    key, ref = one.page.key, one.page.ref
    values = {"domain": key.domain_id, "job": key.job_id, "key": key.url_key, "parser": key.parser, "again": one.again}
    place = {"segment": ref.segment, "offset": ref.offset}
    error = {"error": (one.error or "")[:2000], "final": one.final, "max_attempts": attempts}
    return connection.execute(_FAILED, values | place | error).rowcount


def _replace(connection: psycopg.Connection, kept: Sequence[tuple[Parsed, datetime]]) -> None:
    """Replace the items of pages. Before: their rows are locked. After (with the commit): they have these items."""
    pages = key_columns(one.page.key for one, _ in kept)
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
        connection.execute(_PUT, key_columns(one.page.key for one, _, _, _ in rows) | columns)


def _put_texts(connection: psycopg.Connection, kept: Sequence[Parsed]) -> None:
    """Replace the visible texts of pages, where they are stored, by the main texts that were found."""
    found = [one for one in kept if one.text is not None]
    if found:
        connection.execute(_TEXTS, key_columns(one.page.key for one in found) | {"bodies": [one.text for one in found]})


def _put_document(connection: psycopg.Connection, one: Parsed, at: datetime) -> None:
    """Replace the document of a page; one without content has none."""
    key = DocumentKey(*one.page.key[:3])
    if one.document is None:
        documents.remove(connection, key)
    else:
        documents.put(connection, key, one.document, at)


def _observe(connection: psycopg.Connection, one: Parsed, at: datetime, before: Sequence[bytes]) -> None:
    """Record the products of a page, with their prices at the time of the fetch; remove those that an earlier parse had wrongly found."""
    found = one.done.extracted.products if one.done is not None else ()
    if not found and not before:
        return
    key = one.page.key
    now = [products.identity_key(product) for product in found]
    keys = {"domain": key.domain_id, "job": key.job_id, "key": key.url_key, "parser": key.parser}
    connection.execute(_PRODUCT_KEYS, keys | {"product_keys": now})
    look = products.Look(key.domain_id, key.url_key, one.url, None, at)
    products.observe(connection, look, found, encode_products(found), sorted(set(before) - set(now)))


def key_columns(keys: Iterable[PageKey]) -> dict[str, list[Any]]:
    """Return the columns of keys, as the statements take them."""
    rows = list(keys)
    return {name: [row[place] for row in rows] for place, name in enumerate(("domains", "jobs", "keys", "parsers"))}
