"""SQL of pages: their list, all facts of one, its versions, and their purge. What a crawl fetches is written by `db/url_results`.

The rule: a purged page leaves its URL done and its row in the log, and the purge order is kept: it says why a page that is in the log is
not stored. The bytes of the page stay in the archive.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg

from holdfast.db.keyset_pagination import Equals, Listing, Order, Range, SortColumn
from holdfast.db.rows import by_name, select_list
from holdfast.pages.records import CrawledPage, PageCount, PageFacts, PageVersion, StoredVersion

CHUNK: Final = 5_000
"""Pages that are purged in one transaction."""
COUNTED: Final = 100_000
"""Pages up to which the extent of a purge is counted."""
_PROBLEM: Final = "COALESCE({page}.problem, CASE WHEN f.state = 'failed' THEN f.reason END)"

_UP: Final = (SortColumn("t.domain_id", int), SortColumn("t.job_id", int), SortColumn("t.url_key", bytes))
_DOWN: Final = tuple(SortColumn(by.column, by.type_, descending=True) for by in _UP)

PAGES: Final = Listing(
    "crawled_pages",
    select_list(
        CrawledPage,
        "t",
        url="f.url",
        domain="d.domain",
        job="j.name",
        content_hash="encode(t.content_hash, 'hex')",
        archived="t.archive_segment IS NOT NULL",
        problem=_PROBLEM.format(page="t"),
    ),
    CrawledPage,
    {
        "domain": Equals("t.domain_id", "%(domain)s::bigint"),
        "job": Equals("t.job_id", "%(job)s::bigint"),
        "status": "t.status = %(status)s",
        "status_class": "t.status >= %(status_class)s * 100 AND t.status < %(status_class)s * 100 + 100",
        "outcome": "t.outcome = %(outcome)s",
        "content_type": "starts_with(t.content_type, %(content_type)s)",
        "content_hash": "t.content_hash = %(content_hash)s::bytea",
        # A scalar subselect: for EXISTS the planner might read the whole frontier first.
        "url_prefix": """(SELECT u.url ^@ ANY(%(url_prefix)s::text[]) FROM url_frontier u
            WHERE u.domain_id = t.domain_id AND u.job_id = t.job_id AND u.url_key = t.url_key)""",
        "title": "to_tsvector('simple', t.title) @@ websearch_to_tsquery('simple', %(title)s)",
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

# What crawled_pages has by the same name is taken from it.
_FACTS: Final = f"""
SELECT {
    select_list(
        PageFacts,
        "c",
        url="f.url",
        url_key="encode(f.url_key, 'hex')",
        domain="d.domain",
        job="j.name",
        state="f.state::text",
        kind="f.kind::text",
        reason="f.reason",
        priority="f.priority",
        depth="f.depth",
        hops="f.hops",
        attempts="f.attempts",
        discovered_at="f.discovered_at",
        next_attempt_at="f.not_before",
        parent_url="(SELECT p.url FROM url_frontier p"
        " WHERE p.domain_id = f.domain_id AND p.job_id = f.job_id AND p.url_key = f.parent_key)",
        problem=_PROBLEM.format(page="c"),
        content_hash="encode(c.content_hash, 'hex')",
        payload_digest="encode(c.payload_digest, 'hex')",
        has_text="t.url_key IS NOT NULL",
        next_crawl_at="CASE WHEN f.state = 'done' AND job_wants_refresh(j) THEN NULLIF(d.next_crawl_after, 'infinity') END",
        error_count="CASE WHEN f.state IN ('waiting', 'failed') THEN f.attempts ELSE 0 END",
        domain_errors="d.consecutive_error_count",
    )
}
FROM url_frontier f JOIN domains d ON d.id = f.domain_id JOIN crawl_jobs j ON j.id = f.job_id
LEFT JOIN crawled_pages c ON c.domain_id = f.domain_id AND c.job_id = f.job_id AND c.url_key = f.url_key
LEFT JOIN page_texts t ON t.domain_id = f.domain_id AND t.job_id = f.job_id AND t.url_key = f.url_key
WHERE f.domain_id = %(domain)s AND f.url_key = %(key)s AND f.job_id = ANY(%(jobs)s)
ORDER BY c.crawled_at DESC NULLS LAST, f.job_id
"""  # noqa: S608 — composed of constants only
_JOBS: Final = (
    "SELECT job_id FROM job_domains WHERE domain_id = %(domain)s AND (%(job)s::bigint IS NULL OR job_id = %(job)s)"
)


def facts(connection: psycopg.Connection, domain_id: int, url_key: bytes, job_id: int | None = None) -> list[PageFacts]:
    """Return what each job, or one, knows of a URL of this domain, the newest response first."""
    key = {"domain": domain_id, "key": url_key, "job": job_id}
    jobs = [row[0] for row in connection.execute(_JOBS, key)]
    with connection.cursor(row_factory=by_name(PageFacts)) as cursor:
        return cursor.execute(_FACTS, key | {"jobs": jobs}).fetchall()


# Versions -------------------------------------------------------------------------------------------------------------

_VERSION: Final = {
    "job": "j.name",
    "content_hash": "encode(v.content_hash, 'hex')",
    "payload_digest": "encode(v.payload_digest, 'hex')",
    "archived": "v.archive_segment IS NOT NULL",
}
# The last answer of the job that has one and answered last, or of the job that is asked for, and the versions before it.
_VERSIONS: Final = f"""
WITH last AS MATERIALIZED (
    SELECT c.*, COALESCE((SELECT max(n.number) FROM page_versions n
                          WHERE n.domain_id = c.domain_id AND n.job_id = c.job_id AND n.url_key = c.url_key), 0) + 1 AS number
    FROM crawled_pages c WHERE c.domain_id = %(domain)s AND c.url_key = %(key)s AND c.job_id = ANY(%(jobs)s)
    ORDER BY c.crawled_at DESC, c.job_id LIMIT 1
)
SELECT {
    select_list(
        PageVersion,
        "v",
        **_VERSION,
        current="true",
        replaced_at="NULL::timestamptz",
        change="NULL",
        crawl="NULL::bigint",
    )
}, v.noindex, t.body, v.archive_segment, v.archive_offset, v.archive_length
FROM last v JOIN crawl_jobs j ON j.id = v.job_id
LEFT JOIN page_texts t ON t.domain_id = v.domain_id AND t.job_id = v.job_id AND t.url_key = v.url_key
UNION ALL
SELECT {select_list(PageVersion, "v", **_VERSION, current="false", crawl="v.crawl_id")},
       v.noindex, NULL, v.archive_segment, v.archive_offset, v.archive_length
FROM last l JOIN page_versions v ON v.domain_id = l.domain_id AND v.job_id = l.job_id AND v.url_key = l.url_key
JOIN crawl_jobs j ON j.id = v.job_id
ORDER BY number DESC LIMIT %(limit)s
"""  # noqa: S608 — composed of constants only


def versions(
    connection: psycopg.Connection, domain_id: int, url_key: bytes, job_id: int | None = None, *, limit: int
) -> list[StoredVersion]:
    """Return the versions of a URL in a job, the newest first, with the current one; without a job, in the one that answered last."""
    key = {"domain": domain_id, "key": url_key, "job": job_id}
    jobs = [row[0] for row in connection.execute(_JOBS, key)]
    with connection.cursor(row_factory=by_name(StoredVersion, version=PageVersion)) as cursor:
        return cursor.execute(_VERSIONS, key | {"jobs": jobs, "limit": limit}).fetchall()


# Texts ----------------------------------------------------------------------------------------------------------------

_TEXT: Final = """
SELECT t.body FROM page_texts t JOIN crawl_jobs j ON j.id = t.job_id
WHERE t.domain_id = %(domain)s AND t.url_key = %(key)s AND j.name = %(job)s AND j.deleted_at IS NULL
"""


def stored_text(connection: psycopg.Connection, domain_id: int, url_key: bytes, job: str) -> bytes | None:
    """Return the stored text of a page, compressed by zstd; None: it is not stored."""
    row = connection.execute(_TEXT, {"domain": domain_id, "key": url_key, "job": job}).fetchone()
    return None if row is None else row[0]


# Purge ----------------------------------------------------------------------------------------------------------------

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
# A page that the domain's holder is about to fetch again stays: a response "not modified" would say nothing without it.
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
), versions AS (
    DELETE FROM page_versions v USING gone g WHERE v.domain_id = g.domain_id AND v.job_id = g.job_id AND v.url_key = g.url_key
)
SELECT count(*) FROM gone
"""


_COUNT: Final = (
    "SELECT count(*) FROM (SELECT FROM crawled_pages WHERE crawled_at < %(before)s {wanted} LIMIT %(limit)s) few"
)


def count_purge(
    connection: psycopg.Connection, *, job_id: int | None, domain_id: int | None, before: datetime
) -> PageCount:
    """Count the pages that a purge would delete: exactly up to `COUNTED`."""
    wanted = " ".join(_ONLY[name] for name, value in (("job", job_id), ("domain", domain_id)) if value)
    values = {"before": before, "job": job_id, "domain": domain_id, "limit": COUNTED + 1}
    row = connection.execute(_COUNT.format(wanted=wanted), values, prepare=False).fetchone()
    count = 0 if row is None else row[0]
    return PageCount(min(count, COUNTED), count > COUNTED)


@dataclass(slots=True)
class Purge:
    """An order to purge pages, and its progress."""

    id: int
    before: datetime
    """By the database's clock."""
    job_id: int | None
    domain_id: int | None
    forgotten: int = 0
    """Pages that are deleted so far."""
    after: tuple[int, int, bytes] = (0, 0, b"")
    """The key of the last page that was looked at."""


def order_purge(
    connection: psycopg.Connection, *, job_id: int | None, domain_id: int | None, before: datetime | None
) -> Purge:
    """Order a purge: of a job, of a domain, of pages fetched before a time, or of all pages that there are now.

    After (with the commit): `verify` accepts that these pages are missing; `purge` deletes them.
    """
    row = connection.execute(_ORDER, {"before": before, "job": job_id, "domain": domain_id}).fetchone()
    assert row is not None  # noqa: S101 — INSERT … RETURNING answers with a row
    return Purge(row[0], row[1], job_id, domain_id)


def purge(connection: psycopg.Connection, order: Purge) -> bool:
    """Delete a chunk of pages with their versions and texts. Returns whether there may be more.

    Before: `order_purge` is committed; no transaction is open. After: they are deleted, except those that their domain's holder is
    about to fetch again; frontier, log, counters and archive are unchanged.
    """
    wanted = " ".join(_ONLY[name] for name, value in (("job", order.job_id), ("domain", order.domain_id)) if value)
    values: dict[str, Any] = {"before": order.before, "job": order.job_id, "domain": order.domain_id, "chunk": CHUNK}
    after = dict(zip(("key0", "key1", "key2"), order.after, strict=True))
    found = connection.execute(_FIND.format(wanted=wanted), values | after, prepare=False).fetchall()
    if found:
        with connection.transaction():
            connection.execute(_LOCK, {"domains": sorted({row[0] for row in found})})
            deleted = connection.execute(_PURGE, values | _columns(found)).fetchone()
        order.forgotten += deleted[0] if deleted else 0
        order.after = found[-1]
    return len(found) == CHUNK


def _columns(found: Sequence[tuple[int, int, bytes]]) -> dict[str, Any]:
    return {name: [row[place] for row in found] for place, name in enumerate(("domain_ids", "job_ids", "keys"))}
