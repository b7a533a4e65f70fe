"""Write the outcomes of URLs: frontier, log, pages and texts in one statement. A trigger stores the versions that it replaces.

The rule: a URL that does not wait any more is not settled again. Only outcomes whose frontier row really changed are logged, stored
and counted; the rest of a batch has no effect.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final, NamedTuple

import psycopg

from holdfast.db import page_versions
from holdfast.db.array_params import Row, RowType
from holdfast.model.commit_batch import PageRow, UrlOutcome, VisitPart
from holdfast.model.outcome import TREATMENT, Outcome, UrlState

_CONVERTED: Final = frozenset(
    {
        *("status", "content_type", "charset", "links_count", "images_count", "problem"),
        *("noindex", "nofollow", "archive", "text", "parsers"),
    }
)
"""Fields of a page that `_row` cuts or converts, or that many rows have in common."""
_TYPES: Final[dict[object, str]] = {str | None: "text", bytes | None: "bytea", int: "int8"}
_PLAIN: Final = {field.name: _TYPES[field.type] for field in fields(PageRow) if field.name not in _CONVERTED}
"""All other fields of a page, each written as it is into the column of its name."""
_plain_values: Final = attrgetter(*_PLAIN)

ROW: Final = RowType(
    "outcome_row",
    common={
        "domain_id": "int8",
        "job_id": "int8",
        "epoch": "int8",
        "depth": "int2",
        "attempts": "int2",
        "status": "int2",
        "fetched": "bool",
        "is_page": "bool",
        "is_error": "bool",
        "has_row": "bool",
        "proxy_id": "int8",
        "outcome": "text",
        "state": "text",
        "reason": "text",
        # of the page
        "page_status": "int2",
        "noindex": "bool",
        "nofollow": "bool",
        "content_type": "text",
        "charset": "text",
        "archive_segment": "text",
        "problem": "text",
        "parsers": "text",  # names, with a comma between them
    },
    own={
        "url_key": "bytea",
        "bytes": "int8",
        "age": "float8",
        "retry_in": "float8",
        "duration_ms": "int4",
        "images_found": "int4",
        "url": "text",
        # of the page
        "body": "bytea",
        "archive_offset": "int8",
        "archive_length": "int8",
        "payload_digest": "bytea",
        "links_count": "int4",
        "images_count": "int4",
        **_PLAIN,
    },
)

_LAST_ANSWER: Final = ("crawled_at", "duration_ms", "depth", "status", "outcome", "problem")
_VALIDATORS: Final = ("etag", "last_modified")
_CONTENT: Final = (
    *("archive_segment", "archive_offset", "archive_length", "payload_digest", "content_type", "charset"),
    *("links_count", "images_count", "noindex", "nofollow"),
    *(name for name in _PLAIN if name not in _VALIDATORS),
)
# A response "304 Not Modified" says nothing about the content; stored values stay.
_NEW_PAGE: Final = ", ".join(
    [
        *(f"{name} = excluded.{name}" for name in _LAST_ANSWER),
        *(
            f"{name} = CASE WHEN excluded.outcome = '{Outcome.NOT_MODIFIED}' THEN p.{name} ELSE excluded.{name} END"
            for name in _CONTENT
        ),
        *(
            f"{name} = CASE WHEN excluded.outcome = '{Outcome.NOT_MODIFIED}' THEN COALESCE(excluded.{name}, p.{name})"
            f" ELSE excluded.{name} END"
            for name in _VALIDATORS
        ),
        f"new_in_crawl = {page_versions.STILL_NEW_IN_CRAWL}",
    ]
)

# A log row lies inside the tenure of its epoch, whatever age its worker computed. Counted from the beginning of the transaction, as
# the ages are: attempts on a URL may be milliseconds apart, and stay in their order.
_CRAWLED_AT: Final = """
GREATEST(transaction_timestamp() - GREATEST(o.age, 0) * interval '1 second',
         (SELECT l.claimed_at FROM claim_log l WHERE l.domain_id = o.domain_id AND l.epoch = o.epoch)) AS crawled_at
"""

# What a parser is for is due in the transaction that commits it. "Not modified" has a record in the archive, but no body: the answer from
# before is what there is to parse, and it is due only if that parser never had it.
# The subselect 'waiting' keeps the planner from the partial index of what waits, which it would search once for each priority and
# depth. IS TRUE makes it look earlier attempts up in a hash, not join them row by row; they all ended as waiting.
_SETTLE: Final = f"""
WITH changed AS (
    UPDATE url_frontier f SET state = o.state::frontier_state, reason = o.reason, attempts = o.attempts,
        not_before = clock_timestamp() + o.retry_in * interval '1 second',
        settled_at = CASE WHEN o.state <> 'waiting' THEN clock_timestamp() ELSE f.settled_at END
    FROM unnest(%(last)s::pg_temp.outcome_row[]) o
    WHERE f.domain_id = o.domain_id AND f.job_id = o.job_id AND f.url_key = o.url_key AND f.state = (SELECT 'waiting'::frontier_state)
    RETURNING o.*, {_CRAWLED_AT}
), earlier AS MATERIALIZED (
    SELECT o.*, {_CRAWLED_AT}
    FROM unnest(%(earlier)s::pg_temp.outcome_row[]) o
    WHERE ((o.domain_id, o.job_id, o.url_key) IN (SELECT domain_id, job_id, url_key FROM changed)) IS TRUE
), settled AS NOT MATERIALIZED (
    SELECT * FROM changed UNION ALL SELECT * FROM earlier
), logged AS (
    INSERT INTO crawl_log (domain_id, job_id, claim_epoch, crawl_run_id, crawled_at, duration_ms, bytes, images_found, status, url_key,
                           proxy_id, outcome, page_url)
    SELECT domain_id, job_id, epoch, %(run)s, crawled_at, duration_ms, bytes, images_found, status, url_key, proxy_id, outcome, url
    FROM settled WHERE fetched
), crawl_of AS MATERIALIZED (
    {page_versions.CRAWLS}
), kept AS (
    INSERT INTO crawled_pages AS p (domain_id, job_id, url_key, crawled_at, duration_ms, depth, status, outcome, problem, new_in_crawl,
                                    {", ".join(_VALIDATORS + _CONTENT)})
    SELECT domain_id, job_id, url_key, crawled_at, duration_ms, depth, page_status, outcome, problem, {page_versions.NEW_IN_CRAWL},
           {", ".join(_VALIDATORS + _CONTENT)}
    FROM changed JOIN crawl_of USING (job_id) WHERE has_row ORDER BY domain_id, job_id, url_key
    ON CONFLICT (domain_id, job_id, url_key) DO UPDATE SET {_NEW_PAGE}
), texts AS (
    INSERT INTO page_texts (domain_id, job_id, url_key, body)
    SELECT domain_id, job_id, url_key, body FROM changed WHERE has_row AND body IS NOT NULL ORDER BY domain_id, job_id, url_key
    ON CONFLICT (domain_id, job_id, url_key) DO UPDATE SET body = excluded.body
), no_texts AS (
    DELETE FROM page_texts t USING changed s
    WHERE s.has_row AND s.body IS NULL AND s.outcome <> '{Outcome.NOT_MODIFIED}'
      AND t.domain_id = s.domain_id AND t.job_id = s.job_id AND t.url_key = s.url_key
), gone AS MATERIALIZED (
    SELECT d.domain_id, d.job_id, d.url_key FROM changed s JOIN documents d USING (domain_id, job_id, url_key)
    WHERE s.outcome = '{Outcome.NOT_FOUND}' ORDER BY d.domain_id, d.job_id, d.url_key FOR UPDATE OF d
), no_documents AS (
    DELETE FROM documents d USING gone g
    WHERE d.domain_id = g.domain_id AND d.job_id = g.job_id AND d.url_key = g.url_key
), to_parse AS (
    INSERT INTO page_parses AS r (domain_id, job_id, url_key, parser, fetched_at, archive_segment, archive_offset, archive_length,
                                  payload_digest)
    SELECT s.domain_id, s.job_id, s.url_key, w.parser, a.*
    FROM changed s CROSS JOIN LATERAL unnest(string_to_array(s.parsers, ',')) AS w(parser) CROSS JOIN LATERAL (
        SELECT s.crawled_at, s.archive_segment, s.archive_offset, s.archive_length, s.payload_digest
        WHERE s.outcome <> '{Outcome.NOT_MODIFIED}'
        UNION ALL
        SELECT p.crawled_at, p.archive_segment, p.archive_offset, p.archive_length, p.payload_digest FROM crawled_pages p
        WHERE s.outcome = '{Outcome.NOT_MODIFIED}' AND p.domain_id = s.domain_id AND p.job_id = s.job_id AND p.url_key = s.url_key
    ) a
    WHERE s.has_row AND s.parsers IS NOT NULL AND a.archive_segment IS NOT NULL
    ORDER BY s.domain_id, s.job_id, s.url_key, w.parser
    ON CONFLICT (domain_id, job_id, url_key, parser) DO UPDATE SET due = true, attempts = 0, error = NULL, product_keys = '{{}}',
        fetched_at = excluded.fetched_at, archive_segment = excluded.archive_segment, archive_offset = excluded.archive_offset,
        archive_length = excluded.archive_length, payload_digest = excluded.payload_digest
    WHERE (r.archive_segment, r.archive_offset) IS DISTINCT FROM (excluded.archive_segment, excluded.archive_offset)
)
SELECT domain_id, job_id, proxy_id, CASE WHEN proxy_id IS NOT NULL THEN outcome END AS through,
       count(*) FILTER (WHERE fetched OR state <> 'waiting'),
       count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state = 'denied'),
       count(*) FILTER (WHERE state = 'failed'),
       count(*) FILTER (WHERE fetched AND is_page), count(*) FILTER (WHERE fetched AND is_error),
       COALESCE(sum(images_found) FILTER (WHERE fetched), 0)::bigint, COALESCE(sum(bytes) FILTER (WHERE fetched), 0)::bigint,
       COALESCE(max(depth) FILTER (WHERE fetched), 0)
FROM settled GROUP BY domain_id, job_id, proxy_id, through
"""  # noqa: S608 — composed of the constants above only

_INT2_MAX: Final = 32_767
_INT4_MAX: Final = 2_147_483_647


@dataclass(frozen=True, slots=True)
class SettledCounts:
    """Counts of settled outcomes for one job on one domain."""

    outcomes: int = 0
    done: int = 0
    denied: int = 0
    failed: int = 0
    pages: int = 0
    errors: int = 0
    images: int = 0
    bytes: int = 0
    depth: int = 0

    @property
    def no_longer_waiting(self) -> int:
        """URLs that wait no more."""
        return self.done + self.denied + self.failed

    def with_(self, other: "SettledCounts") -> "SettledCounts":
        """Both together."""
        return SettledCounts(
            self.outcomes + other.outcomes,
            self.done + other.done,
            self.denied + other.denied,
            self.failed + other.failed,
            self.pages + other.pages,
            self.errors + other.errors,
            self.images + other.images,
            self.bytes + other.bytes,
            max(self.depth, other.depth),
        )


class Changes(NamedTuple):
    """Counts of what a batch of outcomes really changed."""

    by_job: dict[tuple[int, int], SettledCounts]
    """By domain and job."""
    by_proxy: dict[tuple[int, int], list[tuple[Outcome, SettledCounts]]]
    """By domain and proxy, of requests that went through one."""


def settle(connection: psycopg.Connection, parts: Sequence[VisitPart], *, run_id: int) -> Changes:
    """Write the outcomes of these parts; returns the counts of what changed.

    Before: every part's domain passed the fence of this transaction; `ROW` is prepared. After (with its commit): each URL that
    waited is settled or waits for another attempt, and log, pages, versions and texts have what belongs to it; URLs that did not wait
    are untouched. The caller raises the counters.
    """
    changes = Changes({}, defaultdict(list))
    if not any(part.outcomes for part in parts):
        return changes
    last: list[Row] = []
    earlier: list[Row] = []
    for part in parts:
        _add_rows(part, last, earlier)
    parameters = {"last": ROW.array(connection, last), "earlier": ROW.array(connection, earlier), "run": run_id}
    for domain_id, job_id, proxy_id, outcome, *counts in connection.execute(_SETTLE, parameters):
        settled, before = SettledCounts(*counts), changes.by_job.get((domain_id, job_id))
        changes.by_job[domain_id, job_id] = settled if before is None else before.with_(settled)
        if proxy_id is not None:
            changes.by_proxy[domain_id, proxy_id].append((Outcome(outcome), settled))
    return changes


def _add_rows(part: VisitPart, last: list[Row], earlier: list[Row]) -> None:
    """Append the outcomes of a part as rows: the last one of each URL to `last`, those before it to `earlier`.

    Several outcomes of one URL are successive attempts; outcomes after a final one are dropped.
    """
    by_url: dict[tuple[int, bytes], list[UrlOutcome]] = {}
    for outcome in part.outcomes:
        attempts = by_url.setdefault((outcome.job_id, outcome.url_key), [])
        if not attempts or attempts[-1].state is UrlState.WAITING:
            attempts.append(outcome)
    for attempts in by_url.values():
        earlier += [_row(part, outcome, None) for outcome in attempts[:-1]]
        end = attempts[-1]
        is_page = TREATMENT[end.outcome].page and end.fetched
        last.append(_row(part, end, end.page or (PageRow(end.status) if is_page else None)))


def _row(part: VisitPart, outcome: UrlOutcome, page: PageRow | None) -> Row:
    """A row in the column order of ROW. Values from servers are cut to column limits: one absurd header must not fail the batch."""
    treatment = TREATMENT[outcome.outcome]
    common = (
        part.domain_id,
        outcome.job_id,
        part.epoch,
        min(outcome.depth, _INT2_MAX),
        min(outcome.attempts, _INT2_MAX),
        _capped(outcome.status, _INT2_MAX),
        outcome.fetched,
        treatment.page,
        treatment.error,
        page is not None,
        None if outcome.proxy is None else outcome.proxy.proxy_id,
        outcome.outcome,
        outcome.state,
        outcome.reason,
    )
    own = (
        outcome.url_key,
        outcome.bytes,
        outcome.age,
        outcome.retry_in,
        _capped(outcome.duration_ms, _INT4_MAX),
        min(outcome.images_found, _INT4_MAX),
        outcome.url,
    )
    if page is None:
        return (*common, *_NO_PAGE_COMMON), (*own, *_NO_PAGE)
    archive = page.archive
    return (
        *common,
        _capped(page.status, _INT2_MAX),
        page.noindex,
        page.nofollow,
        page.content_type[:255] if page.content_type else None,
        page.charset[:50] if page.charset else None,
        archive.segment if archive else None,
        page.problem or (None if treatment.page else outcome.reason),
        ",".join(page.parsers) or None,
    ), (
        *own,
        page.text,
        archive.offset if archive else None,
        archive.length if archive else None,
        archive.payload_digest if archive else None,
        min(page.links_count, _INT4_MAX),
        min(page.images_count, _INT4_MAX),
        *_plain_values(page),
    )


def _capped(value: int | None, maximum: int) -> int | None:
    return None if value is None else min(value, maximum)


_NO_PAGE_COMMON: Final = (None,) * 8
_NO_PAGE: Final = (None,) * (6 + len(_PLAIN))
