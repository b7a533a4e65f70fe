"""SQL of replays: which pages are selected, a chunk of their keys at a time, and what is changed of a chunk.

The rule: no statement looks at more than a chunk of pages, and what it changes belongs to the transaction that queues the same pages: so a
killed replay leaves whole chunks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg

from holdfast.model.job import JobKind, JobState

CHUNK: Final = 2_000
"""Pages that are looked at by one statement."""
FIRST: Final[tuple[int, int, bytes]] = (0, 0, b"")
"""Before all keys of pages."""

# Selected by key, then judged: so no statement scans far, whatever the filters are.
_PAGES: Final = """
WITH chunk AS MATERIALIZED (
    SELECT domain_id, job_id, url_key, crawled_at, archive_segment FROM crawled_pages c
    WHERE (c.domain_id, c.job_id, c.url_key) > (%(key0)s::bigint, %(key1)s::bigint, %(key2)s::bytea) {only}
    ORDER BY c.domain_id, c.job_id, c.url_key LIMIT %(limit)s
)
SELECT c.domain_id, c.job_id, c.url_key,
       c.crawled_at >= COALESCE(%(since)s, '-infinity'::timestamptz) AND c.crawled_at < COALESCE(%(until)s, 'infinity'::timestamptz)
           {selected} AS selected,
       {waits} AS waits
FROM chunk c ORDER BY c.domain_id, c.job_id, c.url_key
"""
_BY_PARSER: Final = """
AND EXISTS (SELECT FROM page_parses r WHERE r.domain_id = c.domain_id AND r.job_id = c.job_id AND r.url_key = c.url_key
            AND (%(parser)s::text IS NULL OR r.parser = %(parser)s))
"""
_LOST: Final = "AND EXISTS (SELECT FROM archive_segments s WHERE s.segment = c.archive_segment AND s.state = 'lost')"
_NOT_SINCE: Final = "AND c.crawled_at < %(as_of)s"
_WAITS: Final = """
EXISTS (SELECT FROM url_frontier f
        WHERE f.domain_id = c.domain_id AND f.job_id = c.job_id AND f.url_key = c.url_key AND f.state = 'waiting')
OR EXISTS (SELECT FROM domain_wakes w WHERE w.domain_id = c.domain_id AND w.job_id = c.job_id AND w.again_key = c.url_key)
"""
_PARSED: Final = """
NOT EXISTS (SELECT FROM page_parses r WHERE r.domain_id = c.domain_id AND r.job_id = c.job_id AND r.url_key = c.url_key AND NOT r.due
            AND (%(parser)s::text IS NULL OR r.parser = %(parser)s) AND (r.parsed_at IS NULL OR r.parsed_at < %(as_of)s))
"""
_JOBS: Final = "SELECT id, name, kind::text, state::text FROM crawl_jobs WHERE id = ANY(%s) AND deleted_at IS NULL"

# In the order in which commits and parsers lock these rows.
_MAKE_DUE: Final = """
WITH wanted AS MATERIALIZED (
    SELECT r.domain_id, r.job_id, r.url_key, r.parser
    FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[]) AS w(domain_id, job_id, url_key)
    JOIN page_parses r ON r.domain_id = w.domain_id AND r.job_id = w.job_id AND r.url_key = w.url_key
    WHERE NOT r.due AND (%(parser)s::text IS NULL OR r.parser = %(parser)s) AND (r.parsed_at IS NULL OR r.parsed_at < %(as_of)s)
    ORDER BY r.domain_id, r.job_id, r.url_key, r.parser FOR NO KEY UPDATE OF r
)
UPDATE page_parses r SET due = true, attempts = 0, error = NULL FROM wanted w
WHERE r.domain_id = w.domain_id AND r.job_id = w.job_id AND r.url_key = w.url_key AND r.parser = w.parser
"""
_LOCK_DOMAINS: Final = "SELECT id FROM domains WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"
# The digest stays: it says that there were bytes. Without validators the next request asks for the whole page, not whether it changed.
_FORGET_PAGES: Final = """
UPDATE crawled_pages c SET archive_segment = NULL, archive_offset = NULL, archive_length = NULL, etag = NULL, last_modified = NULL
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[]) AS w(domain_id, job_id, url_key)
WHERE c.domain_id = w.domain_id AND c.job_id = w.job_id AND c.url_key = w.url_key
  AND EXISTS (SELECT FROM archive_segments s WHERE s.segment = c.archive_segment AND s.state = 'lost')
"""
_LOST_VERSIONS: Final = """
WITH chunk AS MATERIALIZED (
    SELECT domain_id, job_id, url_key, number, archive_segment FROM page_versions v
    WHERE (v.domain_id, v.job_id, v.url_key, v.number) > (%(key0)s::bigint, %(key1)s::bigint, %(key2)s::bytea, %(key3)s::int) {only}
    ORDER BY v.domain_id, v.job_id, v.url_key, v.number LIMIT %(limit)s
)
SELECT c.domain_id, c.job_id, c.url_key, c.number,
       EXISTS (SELECT FROM archive_segments s WHERE s.segment = c.archive_segment AND s.state = 'lost')
FROM chunk c ORDER BY c.domain_id, c.job_id, c.url_key, c.number
"""
_FORGET_VERSIONS: Final = """
UPDATE page_versions v SET archive_segment = NULL, archive_offset = NULL, archive_length = NULL
FROM unnest(%(domains)s::bigint[], %(jobs)s::bigint[], %(keys)s::bytea[], %(numbers)s::int[]) AS w(domain_id, job_id, url_key, number)
WHERE v.domain_id = w.domain_id AND v.job_id = w.job_id AND v.url_key = w.url_key AND v.number = w.number
  AND EXISTS (SELECT FROM archive_segments s WHERE s.segment = v.archive_segment AND s.state = 'lost')
"""


@dataclass(frozen=True, slots=True)
class PageSelection:
    """Which pages are replayed."""

    job_id: int | None
    domain_id: int | None
    since: datetime | None
    until: datetime | None
    parser: str | None
    as_of: datetime
    lost: bool = False
    parse: bool = False


@dataclass(frozen=True, slots=True)
class SelectedPage:
    """A page that was looked at."""

    domain_id: int
    job_id: int
    url_key: bytes
    selected: bool
    waits: bool
    """It waits to be fetched, or is due for its parsers, already."""

    @property
    def key(self) -> tuple[int, int, bytes]:
        """Its key in `crawled_pages`."""
        return self.domain_id, self.job_id, self.url_key


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """A job that pages are replayed of."""

    id: int
    name: str
    kind: JobKind
    state: JobState


def now(connection: psycopg.Connection) -> datetime:
    """Return the database's time."""
    row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None  # noqa: S101 — a SELECT without FROM
    found: datetime = row[0]
    return found


def pages(
    connection: psycopg.Connection, selection: PageSelection, after: tuple[int, int, bytes]
) -> list[SelectedPage]:
    """Look at the next pages after a key; empty: there are no more."""
    selected = (_LOST if selection.lost else _NOT_SINCE) if not selection.parse else "AND c.archive_segment IS NOT NULL"
    if selection.parse or selection.parser is not None:
        selected += _BY_PARSER
    query = _PAGES.format(only=_only(selection, "c"), selected=selected, waits=_PARSED if selection.parse else _WAITS)
    values = _values(selection) | {f"key{place}": value for place, value in enumerate(after)}
    return [SelectedPage(*row) for row in connection.execute(query, values, prepare=False)]


def jobs(connection: psycopg.Connection, job_ids: Sequence[int]) -> dict[int, ReplayJob]:
    """Return those of these jobs that are not deleted."""
    rows = connection.execute(_JOBS, (list(job_ids),))
    return {row[0]: ReplayJob(row[0], row[1], JobKind(row[2]), JobState(row[3])) for row in rows}


def make_due(connection: psycopg.Connection, selection: PageSelection, found: Sequence[SelectedPage]) -> None:
    """Make pages due for their parsers again. After (with the commit): a worker, a background process or `holdfast parse` parses them."""
    connection.execute(_MAKE_DUE, _keys(found) | {"parser": selection.parser, "as_of": selection.as_of})


def lock_domains(connection: psycopg.Connection, domain_ids: Sequence[int]) -> None:
    """Lock domains, in their order, so that no worker commits a page of them meanwhile."""
    connection.execute(_LOCK_DOMAINS, (list(domain_ids),))


def forget_lost(connection: psycopg.Connection, found: Sequence[SelectedPage]) -> int:
    """Forget where the lost bytes of these pages were, and what a conditional request would need. Returns how many pages had some.

    Before: their domains are locked by this transaction.
    """
    return connection.execute(_FORGET_PAGES, _keys(found)).rowcount


def forget_lost_versions(connection: psycopg.Connection, selection: PageSelection, *, dry_run: bool) -> int:
    """Forget where the lost bytes of earlier versions were, in chunks; they cannot be fetched again. Returns how many there are."""
    query = _LOST_VERSIONS.format(only=_only(selection, "v"))
    after: tuple[Any, ...] = (*FIRST, 0)
    count = 0
    while True:
        values = _values(selection) | {f"key{place}": value for place, value in enumerate(after)}
        rows = connection.execute(query, values, prepare=False).fetchall()
        if not rows:
            return count
        after = rows[-1][:4]
        lost = [row for row in rows if row[4]]
        count += len(lost)
        if lost and not dry_run:
            names = ("domains", "jobs", "keys", "numbers")
            keys = {name: [row[place] for row in lost] for place, name in enumerate(names)}
            with connection.transaction():
                lock_domains(connection, sorted(set(keys["domains"])))
                connection.execute(_FORGET_VERSIONS, keys)


def _only(selection: PageSelection, table: str) -> str:
    parts = [("job_id", selection.job_id, "job"), ("domain_id", selection.domain_id, "domain")]
    return " ".join(f"AND {table}.{column} = %({name})s" for column, value, name in parts if value is not None)


def _values(selection: PageSelection) -> dict[str, object]:
    return {
        "job": selection.job_id,
        "domain": selection.domain_id,
        "since": selection.since,
        "until": selection.until,
        "parser": selection.parser,
        "as_of": selection.as_of,
        "limit": CHUNK,
    }


def _keys(found: Sequence[SelectedPage]) -> dict[str, object]:
    return {
        "domains": [one.domain_id for one in found],
        "jobs": [one.job_id for one in found],
        "keys": [one.url_key for one in found],
    }
