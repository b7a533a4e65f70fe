"""Pages: in lists, one with all that is known of it, and forgotten when people say so.

The rule: a page that is forgotten leaves its URL done and its line in the log, and the order to forget it stays, too: it says why a page
that is in the log is not kept. Its bytes stay in the archive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from holdfast.db.keyset_pagination import Equals, Listing, Order, Range, SortColumn

CHUNK: Final = 5_000
"""Pages that are forgotten in one transaction."""


@dataclass(frozen=True, slots=True)
class PageRow:
    """A page in a list: the last answer for a URL."""

    domain_id: int
    domain: str | None
    job_id: int
    job: str | None
    url_key: bytes
    url: str | None
    crawled_at: datetime
    status: int | None
    outcome: str
    content_type: str | None
    content_length: int
    content_hash: str | None
    """In hexadecimal digits."""
    title: str | None
    description: str | None
    links_count: int
    images_count: int
    depth: int
    duration_ms: int | None
    archived: bool
    """Its bytes are in an archive."""
    problem: str | None


_UP: Final = (SortColumn("t.domain_id", int), SortColumn("t.job_id", int), SortColumn("t.url_key", bytes))
_DOWN: Final = tuple(SortColumn(by.column, by.type_, descending=True) for by in _UP)

PAGES: Final = Listing(
    "crawled_pages",
    """
    t.domain_id, d.domain, t.job_id, j.name AS job, t.url_key, f.url, t.crawled_at, t.status, t.outcome, t.content_type, t.content_length,
    encode(t.content_hash, 'hex') AS content_hash, t.title, t.description, t.links_count, t.images_count, t.depth, t.duration_ms,
    t.archive_segment IS NOT NULL AS archived, COALESCE(t.problem, CASE WHEN f.state = 'failed' THEN f.reason END) AS problem
    """,
    PageRow,
    {
        "domain": Equals("t.domain_id", "%(domain)s::bigint"),
        "job": Equals("t.job_id", "%(job)s::bigint"),
        "status": "t.status = %(status)s",
        "status_class": "t.status >= %(status_class)s * 100 AND t.status < %(status_class)s * 100 + 100",
        "outcome": "t.outcome = %(outcome)s",
        "content_type": "starts_with(t.content_type, %(content_type)s)",
        "content_hash": "t.content_hash = %(content_hash)s::bytea",
        "since": Range("t.crawled_at", at_least="%(since)s::timestamptz"),
        "until": Range("t.crawled_at", below="%(until)s::timestamptz"),
    },
    {
        "newest": Order(
            (SortColumn("t.crawled_at", datetime, descending=True), *_DOWN),
            (("domain",), ("job",), ()),
            frozenset({"since", "until"}),
            covered_by_index=False,
        ),
        "oldest": Order(
            (SortColumn("t.crawled_at", datetime), *_UP),
            (("domain",), ("job",), ()),
            frozenset({"since", "until"}),
            covered_by_index=False,
        ),
        "key": Order(_UP, (("domain", "job"), ("domain",), ())),
    },
    joins="""
    LEFT JOIN url_frontier f ON f.domain_id = t.domain_id AND f.job_id = t.job_id AND f.url_key = t.url_key
    LEFT JOIN domains d ON d.id = t.domain_id LEFT JOIN crawl_jobs j ON j.id = t.job_id
    """,
    selective=frozenset({"domain", "job", "since", "until"}),
)

_ONE: Final = """
SELECT f.url, f.url_key, d.domain, f.domain_id, j.name AS job, f.job_id, f.state::text, f.kind::text, f.reason, f.priority, f.depth, f.hops,
       f.attempts, f.discovered_at, f.not_before AS next_attempt_at, f.parent_key,
       (SELECT p.url FROM url_frontier p
        WHERE p.domain_id = f.domain_id AND p.job_id = f.job_id AND p.url_key = f.parent_key) AS parent_url,
       c.crawled_at, c.status, c.outcome, COALESCE(c.problem, CASE WHEN f.state = 'failed' THEN f.reason END) AS problem,
       c.duration_ms, c.content_type, c.charset, c.content_length,
       encode(c.content_hash, 'hex') AS content_hash, encode(c.payload_digest, 'hex') AS payload_digest, c.title, c.description,
       c.canonical, c.links_count, c.images_count, c.noindex, c.nofollow, c.etag, c.last_modified,
       c.archive_segment, c.archive_offset, c.archive_length,
       t.url_key IS NOT NULL AS has_text,
       CASE WHEN f.state = 'done' AND job_wants_refresh(j) THEN NULLIF(d.next_crawl_after, 'infinity') END AS next_crawl_at,
       CASE WHEN f.state IN ('waiting', 'failed') THEN f.attempts ELSE 0 END AS error_count, d.consecutive_error_count AS domain_errors
FROM url_frontier f JOIN domains d ON d.id = f.domain_id JOIN crawl_jobs j ON j.id = f.job_id
LEFT JOIN crawled_pages c ON c.domain_id = f.domain_id AND c.job_id = f.job_id AND c.url_key = f.url_key
LEFT JOIN page_texts t ON t.domain_id = f.domain_id AND t.job_id = f.job_id AND t.url_key = f.url_key
WHERE f.domain_id = %(domain)s AND f.url_key = %(key)s AND f.job_id = ANY(%(jobs)s)
ORDER BY c.crawled_at DESC NULLS LAST, f.job_id
"""
_JOBS: Final = (
    "SELECT job_id FROM job_domains WHERE domain_id = %(domain)s AND (%(job)s::bigint IS NULL OR job_id = %(job)s)"
)


@dataclass(frozen=True, slots=True)
class PageFacts:
    """All that is known of a URL in one job. What was never fetched has no answer: there `crawled_at` is None, and all after it."""

    url: str
    url_key: bytes
    domain: str
    domain_id: int
    job: str
    job_id: int
    state: str
    kind: str
    reason: str | None
    priority: int
    depth: int
    hops: int
    attempts: int
    discovered_at: datetime
    next_attempt_at: datetime | None
    parent_key: bytes | None
    parent_url: str | None
    """Where it was met, if that was on the same domain."""
    crawled_at: datetime | None
    status: int | None
    outcome: str | None
    problem: str | None
    duration_ms: int | None
    content_type: str | None
    charset: str | None
    content_length: int | None
    content_hash: str | None
    payload_digest: str | None
    title: str | None
    description: str | None
    canonical: str | None
    links_count: int | None
    images_count: int | None
    noindex: bool | None
    nofollow: bool | None
    etag: str | None
    last_modified: str | None
    archive_segment: str | None
    archive_offset: int | None
    archive_length: int | None
    has_text: bool
    next_crawl_at: datetime | None
    """When it is fetched again, if it is done and its job asked for refresh."""
    error_count: int
    """Attempts in a row that failed, of the URL."""
    domain_errors: int
    """In a row, of the domain."""


def facts(connection: psycopg.Connection, domain_id: int, url_key: bytes, job_id: int | None = None) -> list[PageFacts]:
    """What each job, or one, knows of a URL of this domain, the newest answer first."""
    key = {"domain": domain_id, "key": url_key, "job": job_id}
    jobs = [row[0] for row in connection.execute(_JOBS, key)]
    with connection.cursor(row_factory=dict_row) as cursor:
        return [PageFacts(**row) for row in cursor.execute(_ONE, key | {"jobs": jobs})]


# Forgetting -----------------------------------------------------------------------------------------------------------

# An order that another one covers is not needed any more.
_ORDER: Final = """
WITH wanted AS MATERIALIZED (
    SELECT LEAST(%(before)s::timestamptz, clock_timestamp()) AS before, %(job)s::bigint AS job_id, %(domain)s::bigint AS domain_id
), covered AS (
    DELETE FROM page_purges g USING wanted w WHERE g.before <= w.before AND (w.job_id IS NULL OR g.job_id = w.job_id)
    AND (w.domain_id IS NULL OR g.domain_id = w.domain_id)
)
INSERT INTO page_purges (before, job_id, domain_id) SELECT before, job_id, domain_id FROM wanted RETURNING id, before
"""
_FIND: Final = """
SELECT domain_id, job_id, url_key FROM crawled_pages
WHERE (domain_id, job_id, url_key) > (%(key0)s::bigint, %(key1)s::bigint, %(key2)s::bytea) AND crawled_at < %(before)s {wanted}
ORDER BY domain_id, job_id, url_key LIMIT %(chunk)s
"""
_ONLY: Final = {"job": "AND job_id = %(job)s", "domain": "AND domain_id = %(domain)s"}
_LOCK: Final = "SELECT id FROM domains WHERE id = ANY(%(domains)s) ORDER BY id FOR NO KEY UPDATE"
# What its holder is about to fetch once more may come back as "not modified", which says nothing without what it was: that page stays.
_PURGE: Final = """
WITH chunk AS MATERIALIZED (
    SELECT w.* FROM unnest(%(domain_ids)s::bigint[], %(job_ids)s::bigint[], %(keys)s::bytea[]) AS w(domain_id, job_id, url_key)
    WHERE NOT EXISTS (
        SELECT FROM url_frontier f JOIN domains d ON d.id = f.domain_id
        WHERE f.domain_id = w.domain_id AND f.job_id = w.job_id AND f.url_key = w.url_key AND f.state = 'waiting'
        AND d.claimed_by IS NOT NULL)
), gone AS (
    DELETE FROM crawled_pages p USING chunk c
    WHERE p.domain_id = c.domain_id AND p.job_id = c.job_id AND p.url_key = c.url_key AND p.crawled_at < %(before)s
    RETURNING p.domain_id, p.job_id, p.url_key
), texts AS (
    DELETE FROM page_texts t USING gone g WHERE t.domain_id = g.domain_id AND t.job_id = g.job_id AND t.url_key = g.url_key
)
SELECT count(*) FROM gone
"""


@dataclass(slots=True)
class Purge:
    """An order to forget pages, and how far it is."""

    id: int
    before: datetime
    """By the database's clock."""
    job_id: int | None
    domain_id: int | None
    looked_at: int = 0
    forgotten: int = 0
    behind: tuple[int, int, bytes] = (0, 0, b"")


def order_purge(
    connection: psycopg.Connection, *, job_id: int | None, domain_id: int | None, before: datetime | None
) -> Purge:
    """Pages are to be forgotten: of a job, of a domain, fetched before a time, or all that there are now.

    After (with the commit): nobody holds it against the store that pages of these are missing; `purge` takes them out.
    """
    row = connection.execute(_ORDER, {"before": before, "job": job_id, "domain": domain_id}).fetchone()
    assert row is not None  # noqa: S101 — INSERT … RETURNING answers with a row
    return Purge(row[0], row[1], job_id, domain_id)


def purge(connection: psycopg.Connection, order: Purge) -> bool:
    """Forget a chunk of pages and their texts; whether there may be more.

    Before: `order_purge` is committed; no transaction is open. After: they are gone, but for those that their domain's holder is
    about to fetch once more; frontier, log, counters and archive are as they were.
    """
    wanted = " ".join(_ONLY[name] for name, value in (("job", order.job_id), ("domain", order.domain_id)) if value)
    given: dict[str, Any] = {"before": order.before, "job": order.job_id, "domain": order.domain_id, "chunk": CHUNK}
    after = dict(zip(("key0", "key1", "key2"), order.behind, strict=True))
    found = connection.execute(_FIND.format(wanted=wanted), given | after, prepare=False).fetchall()
    if found:
        with connection.transaction():
            connection.execute(_LOCK, {"domains": sorted({row[0] for row in found})})
            gone = connection.execute(_PURGE, given | _columns(found)).fetchone()
        order.forgotten += gone[0] if gone else 0
        order.looked_at += len(found)
        order.behind = found[-1]
    return len(found) == CHUNK


def _columns(found: Sequence[tuple[int, int, bytes]]) -> dict[str, Any]:
    return {name: [row[place] for row in found] for place, name in enumerate(("domain_ids", "job_ids", "keys"))}
