"""SQL that compares the last crawl of a job with the one before: counts and lists of pages by kind of change.

The rule: no query reads more than a bounded number of rows, however large the job is. Changes are versions that the crawl replaced, new
pages bear the crawl's id, and both have an index that leads with it. A page that redirects now, or whose server did not answer, keeps
its last answer and is in no count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import psycopg

from holdfast.db.keyset_pagination import Equals, Listing, Order, Page, Range, SortColumn
from holdfast.db.page_versions import PAGE_OUTCOMES
from holdfast.db.planner_hints import fetch_with_settings
from holdfast.db.rows import select_list
from holdfast.jobs.records import ComparedPage, PageChange
from holdfast.model.cursor import decode_cursor
from holdfast.model.outcome import Outcome

COUNT_LIMIT: Final = 10_000
"""Pages of a kind that are counted; a count that reaches it is a lower bound."""

_PAGE: Final = "{0}.domain_id = t.domain_id AND {0}.job_id = t.job_id AND {0}.url_key = t.url_key"
_ADDRESS: Final = f"LEFT JOIN url_frontier f ON {_PAGE.format('f')} LEFT JOIN domains d ON d.id = t.domain_id"
_IS_PAGE: Final = f"t.outcome IN {PAGE_OUTCOMES}"

# Of several versions that a crawl replaced, the last one counts, and only if the URL still answers so.
_STILL: Final = f"""
NOT EXISTS (SELECT FROM page_versions n WHERE {_PAGE.format("n")} AND n.number = t.number + 1)
AND EXISTS (SELECT FROM crawled_pages c WHERE {_PAGE.format("c")} AND CASE t.change
    WHEN 'changed' THEN c.outcome IN {PAGE_OUTCOMES} WHEN 'gone' THEN c.outcome = '{Outcome.NOT_FOUND}'
    WHEN 'failed' THEN c.outcome NOT IN {PAGE_OUTCOMES} AND c.outcome <> '{Outcome.NOT_FOUND}' ELSE false END)
"""  # noqa: S608 — composed of constants only

CHANGES: Final = Listing(
    "page_versions",
    select_list(
        ComparedPage,
        "t",
        url="f.url",
        domain="d.domain",
        change="t.change::text",
        title="c.title",
        title_before="t.title",
        status="c.status",
        status_before="t.status",
        at="t.replaced_at",
        version="t.number",
    ),
    ComparedPage,
    {"crawl": Equals("t.crawl_id", "%(crawl)s::bigint"), "change": Equals("t.change", "%(change)s::text")},
    {
        "key": Order(
            (SortColumn("t.domain_id", int), SortColumn("t.url_key", bytes), SortColumn("t.number", int)),
            (("crawl", "change"),),
        )
    },
    joins=f"{_ADDRESS} LEFT JOIN crawled_pages c ON {_PAGE.format('c')}",
    condition=_STILL,
)
"""Pages that changed, are gone or failed in a crawl."""


def _unreplaced(change: str, *, before: bool) -> str:
    """The columns of a page of which no other version matters."""
    known = {"title_before": "t.title", "status_before": "t.status"} if before else {}
    none = {"title_before": "NULL::text", "status_before": "NULL::smallint"}
    columns = {"change": change, "at": "t.crawled_at", "version": "NULL::integer", **none, **known}
    return select_list(ComparedPage, "t", url="f.url", domain="d.domain", **columns)


NEW_PAGES: Final = Listing(
    "crawled_pages",
    _unreplaced("'new'::text", before=False),
    ComparedPage,
    {"crawl": Equals("t.new_in_crawl", "%(crawl)s::bigint")},
    {"key": Order((SortColumn("t.domain_id", int), SortColumn("t.url_key", bytes)), (("crawl",),))},
    joins=_ADDRESS,
    condition=f"t.new_in_crawl IS NOT NULL AND {_IS_PAGE}",
)
"""Pages that were new in a crawl after the first one."""

# OFFSET 0: the versions of a page are looked up, never those of the whole crawl put into a hash.
_UNCHANGED: Final = f"""
t.new_in_crawl IS DISTINCT FROM %(unchanged)s::bigint AND NOT EXISTS (
    SELECT FROM page_versions v WHERE v.crawl_id = %(unchanged)s::bigint AND v.change = 'changed' AND {_PAGE.format("v")} OFFSET 0)
"""
FETCHED_PAGES: Final = Listing(
    "crawled_pages",
    _unreplaced("'unchanged'::text", before=True),
    ComparedPage,
    {
        "job": Equals("t.job_id", "%(job)s::bigint"),
        "since": Range("t.crawled_at", at_least="%(since)s::timestamptz"),
        "unchanged": _UNCHANGED,
    },
    {
        "newest": Order(
            (
                SortColumn("t.crawled_at", datetime, descending=True),
                SortColumn("t.domain_id", int, descending=True),
                SortColumn("t.url_key", bytes, descending=True),
            ),
            (("job",),),
            frozenset({"since"}),
            covered_by_index=False,
        )
    },
    joins=_ADDRESS,
    condition=_IS_PAGE,
)
"""Pages that a job fetched since a time; with `unchanged`, the id of a crawl, those that it did not change."""

_CRAWLS: Final = """
SELECT j.name, c.id, c.started_at, c.ended_at, b.started_at FROM crawls c JOIN crawl_jobs j ON j.id = c.job_id
LEFT JOIN crawls b ON b.id = (SELECT max(id) FROM crawls WHERE job_id = c.job_id AND id < c.id)
WHERE c.id = (SELECT max(id) FROM crawls WHERE job_id = %(job)s)
"""
_COUNT: Final = "SELECT count(*) FROM (SELECT t.* FROM {table} t WHERE {where} LIMIT %(limit)s) t WHERE {also}"
_COUNT_SETTINGS: Final = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "max_parallel_workers_per_gather": "0",
}


@dataclass(frozen=True, slots=True)
class ComparedCrawl:
    """The last crawl of a job, and when the one before it began."""

    job: str
    """The name of the job."""
    id: int
    started_at: datetime
    ended_at: datetime | None
    previous_started_at: datetime | None
    """None: it is the first one."""


def last_crawl(connection: psycopg.Connection, job_id: int) -> ComparedCrawl | None:
    """Return the last crawl of a job; None: it has none."""
    row = connection.execute(_CRAWLS, {"job": job_id}).fetchone()
    return ComparedCrawl(*row) if row else None


def counts(connection: psycopg.Connection, job_id: int, crawl: ComparedCrawl, limit: int) -> dict[PageChange, int]:
    """Return the pages of each kind, each at most `limit`, and of the unchanged those among as many that were fetched; of the first
    crawl all pages are new."""
    values = {"job": job_id, "crawl": crawl.id, "since": crawl.started_at, "unchanged": crawl.id, "limit": limit}

    def count(listing: Listing[Any], *filters: str, also: str = "true", **more: object) -> int:
        where = " AND ".join([listing.condition, *(f"({listing.filters[name]})" for name in filters)])
        query = _COUNT.format(table=listing.table, where=where, also=also)
        return int(fetch_with_settings(connection, _COUNT_SETTINGS, query, {**values, **more})[0][0])

    found = {
        change: count(CHANGES, "crawl", "change", change=str(change))
        for change in (PageChange.CHANGED, PageChange.GONE, PageChange.FAILED)
    }
    unchanged = count(FETCHED_PAGES, "job", "since", also=_UNCHANGED)
    if crawl.previous_started_at is None:
        return {PageChange.NEW: unchanged, **found, PageChange.UNCHANGED: 0}
    return {PageChange.NEW: count(NEW_PAGES, "crawl"), **found, PageChange.UNCHANGED: unchanged}


def page(
    connection: psycopg.Connection,
    job_id: int,
    crawl: ComparedCrawl,
    change: PageChange,
    *,
    cursor: str | None = None,
    limit: int,
) -> Page[ComparedPage]:
    """Return one page of the list of pages of a kind; `cursor` is the `next` of the page before, encoded. Raises UsageError."""
    first = crawl.previous_started_at is None
    if change is PageChange.UNCHANGED and first:
        return Page([], None)
    if change is PageChange.UNCHANGED or (change is PageChange.NEW and first):
        fetched = {"job": job_id, "since": crawl.started_at, "unchanged": crawl.id}
        found = _page(connection, FETCHED_PAGES, fetched, "newest", cursor, limit)
        return replace(found, rows=[_as_new(row) for row in found.rows]) if first else found
    if change is PageChange.NEW:
        return _page(connection, NEW_PAGES, {"crawl": crawl.id}, "key", cursor, limit)
    return _page(connection, CHANGES, {"crawl": crawl.id, "change": str(change)}, "key", cursor, limit)


def _page(
    connection: psycopg.Connection,
    listing: Listing[ComparedPage],
    given: Mapping[str, object],
    order: str,
    cursor: str | None,
    limit: int,
) -> Page[ComparedPage]:
    after = decode_cursor(cursor, *listing.order(order).key_types)
    return listing.page(connection, given, order=order, after=after, limit=limit)


def _as_new(row: ComparedPage) -> ComparedPage:
    return replace(row, change=PageChange.NEW, title_before=None, status_before=None)
