"""History: sums of a source by domain, and their merge into domains.

The rules: nothing touches `domains` before the source is read to its end, so an import that is given up leaves no trace. A domain's sums
are moved, not copied: the transaction that adds them to the domain and to its roll-up deletes them here, so they count once. Known
domains are locked by id first, new ones are inserted by name after that. A domain that a worker holds, or that another transaction has
locked, is left for a later pass: nothing here waits for a lock of a crawl, or updates a row that a worker holds.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from operator import attrgetter
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.types.json import Jsonb

from holdfast.backfill.queries import imports
from holdfast.backfill.records import Counts, DomainSums, Import, ImportState
from holdfast.db import claimable
from holdfast.db.domains import TREATMENT_COLUMNS, TREATMENT_VALUES, NewDomains
from holdfast.errors import StoreUnavailable

CHUNK: Final = 5_000
"""Domains that one transaction merges."""
_ATTEMPTS: Final = 10
NO_JOB: Final = 0
"""`crawl_log_rollups.job_id` of history."""

_SUMS: Final = ("requests", "pages", "errors", "login", "forbidden", "rate_limited", "server_errors", "images_found")
# Made once a session and emptied by each commit.
_TABLES: Final = """
CREATE TEMPORARY TABLE IF NOT EXISTS backfill_batch (LIKE public.backfill_domains INCLUDING DEFAULTS) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE IF NOT EXISTS backfill_seen (domain varchar(255) COLLATE "C", image_key bytea) ON COMMIT DELETE ROWS;
"""
# In front of the tables of the same names, which stay as they are.
_DRY_RUN: Final = """
CREATE TEMPORARY TABLE backfill_domains (LIKE public.backfill_domains INCLUDING ALL);
CREATE TEMPORARY TABLE backfill_images (LIKE public.backfill_images INCLUDING ALL);
"""
_sums_of: Final = attrgetter(*_SUMS)
_COLUMNS: Final = (
    *("import_id", "domain", "parent_domain", "base_url", "spelling", "merged", "first_at", "last_at"),
    *_SUMS,
)
_TYPES: Final = ("int8", *("text",) * 4, "bool", "timestamptz", "timestamptz", *("int8",) * len(_SUMS))
_COPY: Final = f"COPY backfill_batch ({', '.join(_COLUMNS)}) FROM STDIN (FORMAT BINARY)"
_STAGE: Final = f"""
INSERT INTO backfill_domains AS s ({", ".join(_COLUMNS)}) SELECT {", ".join(_COLUMNS)} FROM backfill_batch ORDER BY domain
ON CONFLICT (import_id, domain) DO UPDATE SET {", ".join(f"{name} = s.{name} + excluded.{name}" for name in _SUMS)},
    merged = s.merged OR excluded.merged OR s.spelling <> excluded.spelling,
    first_at = LEAST(s.first_at, excluded.first_at), last_at = GREATEST(s.last_at, excluded.last_at)
"""  # noqa: S608 — constants
_STAGE_IMAGES: Final = """
INSERT INTO backfill_images (import_id, domain, image_key)
SELECT %(import)s, domain, image_key FROM backfill_seen ORDER BY domain, image_key
ON CONFLICT DO NOTHING
"""

_NAMES: Final = """
SELECT domain FROM backfill_domains WHERE import_id = %(import)s AND domain > %(after)s ORDER BY domain LIMIT %(chunk)s
"""
_KNOWN: Final = """
SELECT domain FROM domains WHERE domain = ANY(%(names)s)
"""
_LOCK: Final = """
SELECT id, domain FROM domains WHERE domain = ANY(%(known)s) AND claimed_by IS NULL ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""
_LEFT: Final = """
SELECT count(*) OVER (), s.domain, d.claimed_by FROM backfill_domains s LEFT JOIN domains d ON d.domain = s.domain
WHERE s.import_id = %(import)s ORDER BY d.claimed_by IS NULL, s.domain LIMIT 1
"""
# A domain whose rows were mostly errors is blocked. The reason is the one that most of these errors had.
_SOURCE: Final = """
SELECT s.*, s.errors * 2 > s.requests AS stopped, COALESCE(i.images, 0) AS images,
       CASE WHEN s.errors * 2 <= s.requests THEN NULL
            WHEN s.login * 2 > s.errors THEN 'login_required' WHEN s.forbidden * 2 > s.errors THEN 'forbidden'
            WHEN s.rate_limited * 2 > s.errors THEN 'rate_limited' WHEN s.server_errors * 2 > s.errors THEN 'unavailable'
            ELSE 'manual' END AS code
FROM backfill_domains s LEFT JOIN (
    SELECT domain, count(*) AS images FROM backfill_images WHERE import_id = %(import)s AND domain = ANY(%(names)s) GROUP BY domain
) i ON i.domain = s.domain
WHERE s.import_id = %(import)s AND s.domain = ANY(%(names)s)
"""
# `domain_score` of a new domain, without the rewrite of every row that a call of it would take: half the time of a merge.
_SCORE: Final = """
LEAST(round(COALESCE(images::float8 / NULLIF(pages, 0), 0) * 1000), 5000000) + LEAST(GREATEST(requests - pages, 0), 500) * 2
- LEAST(round(COALESCE(errors::float8 / NULLIF(pages, 0), 0) * 500), 5000000)
- staleness_points(COALESCE(last_at, COALESCE(first_at, now()) - interval '30 days'))
"""
_INSERT: Final = f"""
WITH source AS MATERIALIZED ({_SOURCE})
INSERT INTO domains (domain, parent_domain, base_url, source, status, status_reason, block_reason_code, block_reason, first_blocked_at,
                     next_crawl_after, pages_discovered, pages_crawled, images_found, images_stored, total_error_count, first_seen_at,
                     last_crawled_at, priority_score, priority_computed_at, {TREATMENT_COLUMNS})
SELECT domain, parent_domain, base_url, %(source)s, CASE WHEN stopped THEN 'blocked' ELSE 'exhausted' END::domain_status,
       'backfill: ' || errors || ' of ' || requests || ' requests failed',
       code, CASE WHEN stopped THEN 'of ' || requests || ' requests in the history ' || errors || ' had a status of 400 or more' END,
       CASE WHEN stopped THEN COALESCE(last_at, now()) END,
       CASE WHEN stopped THEN now() + (%(cooldowns)s::jsonb ->> code)::float8 * interval '1 second' END,
       requests, pages, images_found, images, errors, COALESCE(first_at, now()), last_at, {_SCORE}, now(), {TREATMENT_VALUES}
FROM source WHERE domain <> ALL(%(known)s) ORDER BY domain
ON CONFLICT (domain) DO NOTHING
RETURNING domain, status::text
"""  # noqa: S608 — constants
# Existing domains keep what they have learnt: status, settings, cool-down.
_UPDATE: Final = f"""
WITH source AS MATERIALIZED ({_SOURCE})
UPDATE domains d SET pages_discovered = d.pages_discovered + s.requests, pages_crawled = d.pages_crawled + s.pages,
    images_found = d.images_found + s.images_found, images_stored = d.images_stored + s.images,
    total_error_count = d.total_error_count + s.errors, first_seen_at = LEAST(d.first_seen_at, s.first_at),
    last_crawled_at = GREATEST(d.last_crawled_at, s.last_at)
FROM source s WHERE d.id = ANY(%(ids)s) AND d.domain = s.domain
"""  # noqa: S608 — constants
_ROLL_UP: Final = f"""
WITH source AS MATERIALIZED ({_SOURCE})
INSERT INTO crawl_log_rollups AS r (domain_id, job_id, requests, discovered, pages, errors, images_found, images_stored, first_at, last_at)
SELECT d.id, %(no_job)s, s.requests, s.requests, s.pages, s.errors, s.images_found, s.images, s.first_at, s.last_at
FROM source s JOIN domains d ON d.domain = s.domain ORDER BY d.id
ON CONFLICT (domain_id, job_id) DO UPDATE SET requests = r.requests + excluded.requests, discovered = r.discovered + excluded.discovered,
    pages = r.pages + excluded.pages, errors = r.errors + excluded.errors, images_found = r.images_found + excluded.images_found,
    images_stored = r.images_stored + excluded.images_stored, first_at = LEAST(r.first_at, excluded.first_at),
    last_at = GREATEST(r.last_at, excluded.last_at)
"""  # noqa: S608 — constants
_MOVED: Final = """
WITH images AS (
    DELETE FROM backfill_images WHERE import_id = %(import)s AND domain = ANY(%(names)s) RETURNING 1
), moved AS (
    DELETE FROM backfill_domains WHERE import_id = %(import)s AND domain = ANY(%(names)s) RETURNING merged
)
SELECT count(*) FILTER (WHERE merged), (SELECT count(*) FROM images) FROM moved
"""
_PREVIEW: Final = """
SELECT count(*) FILTER (WHERE d.id IS NULL), count(*) FILTER (WHERE d.id IS NOT NULL), count(*) FILTER (WHERE s.merged),
       count(*) FILTER (WHERE d.id IS NULL AND s.errors * 2 > s.requests),
       (SELECT count(*) FROM backfill_images WHERE import_id = %(import)s)
FROM backfill_domains s LEFT JOIN domains d ON d.domain = s.domain WHERE s.import_id = %(import)s
"""


class Merged(NamedTuple):
    """Counts of a chunk that was merged."""

    counts: Counts
    statuses: dict[str, int]
    """New domains by status."""
    last: str
    """The name of the last domain of the chunk."""


class Left(NamedTuple):
    """Domains of an import that could not be merged."""

    domains: int
    domain: str
    """One of them."""
    worker: str | None
    """Who holds it; None: it was locked, or inserted, by another transaction."""


def prepare(connection: psycopg.Connection, *, dry_run: bool) -> None:
    """Make the session's own tables; with `dry_run` also those that are staged in, so that all of it ends with the session.

    Before: no transaction is open.
    """
    if dry_run:
        connection.execute(_DRY_RUN)
    connection.execute(_TABLES)


def stage(connection: psycopg.Connection, import_id: int, sums: Mapping[str, DomainSums]) -> None:
    """Add the sums of a chunk to those of its import. Before: `prepare` was called; the transaction of the chunk is open."""
    with connection.cursor().copy(_COPY) as copy:
        copy.set_types(_TYPES)
        for domain, one in sums.items():
            copy.write_row(
                (
                    *(import_id, domain, one.parent_domain, one.base_url, one.spelling, one.merged),
                    *(one.first_at, one.last_at, *_sums_of(one)),
                )
            )
    connection.execute(_STAGE)
    images = [(domain, key) for domain, one in sums.items() if one.images for key in one.images]
    if images:
        with connection.cursor().copy("COPY backfill_seen (domain, image_key) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["text", "bytea"])
            for row in images:
                copy.write_row(row)
        connection.execute(_STAGE_IMAGES, {"import": import_id})


def merge(
    connection: psycopg.Connection,
    known: Import,
    after: str,
    *,
    source: str,
    defaults: NewDomains,
    cooldowns: Mapping[str, timedelta],
) -> Merged | None:
    """Merge the chunk of the domains of an import that follows the name `after`; None: no domain follows.

    Before: no transaction is open; the import is read to its end. After: counters of the chunk's domains and their roll-ups have its
    sums, and new domains have the status that these say. Domains that a worker holds are left.
    """
    for _ in range(_ATTEMPTS):
        with suppress(psycopg.errors.DeadlockDetected), connection.transaction():
            return _merge(connection, known, after, source, defaults, cooldowns)
    raise StoreUnavailable("Other processes insert domains of this history at this moment; run the command again.")


def finish(connection: psycopg.Connection, known: Import) -> Left | None:
    """Finish an import if all of its domains are merged; else return what is left. Before: no transaction is open."""
    with connection.transaction():
        row = connection.execute(_LEFT, {"import": known.id}).fetchone()
        if row is not None:
            return Left(*row)
        imports.add(connection, known.id, Counts(), state=ImportState.FINISHED)
    return None


def preview(connection: psycopg.Connection, import_id: int) -> Merged:
    """Counts of what `merge` would do with all that is staged, each domain as it is now."""
    connection.execute("ANALYZE backfill_domains")
    new, updated, merged, stopped, images = connection.execute(_PREVIEW, {"import": import_id}).fetchone() or (0,) * 5
    found = Counts(domains_new=new, domains_updated=updated, domains_merged=merged, images_stored=images)
    return Merged(found, _statuses(new - stopped, stopped), "")


def _merge(
    connection: psycopg.Connection,
    imported: Import,
    after: str,
    source: str,
    defaults: NewDomains,
    cooldowns: Mapping[str, timedelta],
) -> Merged | None:
    values: dict[str, Any] = {"import": imported.id, "after": after, "chunk": CHUNK}
    values |= {"source": source[:100], "no_job": NO_JOB}
    names = [row[0] for row in connection.execute(_NAMES, values)]
    if not names:
        return None
    values["names"] = names
    values["known"] = [row[0] for row in connection.execute(_KNOWN, values)]
    locked = connection.execute(_LOCK, values).fetchall() if values["known"] else []
    values["ids"] = [row[0] for row in locked]
    values["cooldowns"] = Jsonb({code: time.total_seconds() for code, time in cooldowns.items()})
    if locked:
        connection.execute(_UPDATE, values)
    # Domains that others have inserted since they were looked for are left, like those that are held.
    inserted = connection.execute(_INSERT, values | defaults.columns()).fetchall()
    values["names"] = [row[1] for row in locked] + [row[0] for row in inserted]
    connection.execute(_ROLL_UP, values)
    if locked:
        claimable.rescore(connection, values["ids"])
        claimable.update_ready(connection, values["ids"])
    merged, images = connection.execute(_MOVED, values).fetchone() or (0, 0)
    counts = Counts(domains_new=len(inserted), domains_updated=len(locked), domains_merged=merged, images_stored=images)
    imports.add(connection, imported.id, counts, state=ImportState.MERGING)
    blocked = sum(status == "blocked" for _, status in inserted)
    return Merged(counts, _statuses(len(inserted) - blocked, blocked), names[-1])


def _statuses(exhausted: int, blocked: int) -> dict[str, int]:
    return {"exhausted": exhausted, "blocked": blocked}
