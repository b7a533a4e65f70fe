"""Pages of other tools: frontier, log, pages and counters of a chunk, in one transaction.

The rules: a domain is written under its lock and in a tenure of its own, which ends with the transaction, so that every log row lies in
the tenure of its epoch; a domain that a worker holds is left alone. A response that is not newer than the stored page of its URL changes
nothing. Locks are taken in the order of docs/architecture.md: known domains by id, new ones by name, then the frontier.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

import psycopg

from holdfast.backfill.queries import imports
from holdfast.backfill.records import Counts, ImportState
from holdfast.db import claimable, crawls, page_versions
from holdfast.db.domains import TREATMENT_COLUMNS, TREATMENT_VALUES, NewDomains
from holdfast.errors import Refused, StoreUnavailable
from holdfast.model.commit_batch import PageRow
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.job import JobSpec
from holdfast.model.outcome import TREATMENT, Outcome

_ATTEMPTS: Final = 10
NOT_NEWER: Final = "not newer than the stored page"

_PAGE_TYPES: Final[Mapping[object, str]] = {
    str | None: "text",
    bytes | None: "bytea",
    int: "int8",
    int | None: "int8",
    bool: "bool",
}
_PAGE: Final = {
    field.name: _PAGE_TYPES[field.type]
    for field in fields(PageRow)
    if field.name not in {"archive", "text", "parsers", "status"}
}
"""Fields of a page, which are columns of `crawled_pages`."""
_OWN: Final = {
    "domain": "text",
    "parent_domain": "text",
    "base_url": "text",
    "url": "text",
    "url_key": "bytea",
    "fetched_at": "timestamptz",
    "outcome": "text",
    "state": "text",
    "reason": "text",
    "status": "int8",
    "is_page": "bool",
    "is_error": "bool",
    "has_row": "bool",
    "images_found": "int8",
    "archive_segment": "text",
    "archive_offset": "int8",
    "archive_length": "int8",
    "payload_digest": "bytea",
}
_COPIED: Final = {**_OWN, **_PAGE}
# Made once a session and emptied by each commit.
_TABLE: Final = f"""
CREATE TEMPORARY TABLE IF NOT EXISTS backfill_pages (
    {", ".join(f"{name} {kind}" for name, kind in _COPIED.items())}, domain_id bigint, was text, newest timestamptz
) ON COMMIT DELETE ROWS
"""
_COPY: Final = f"COPY backfill_pages ({', '.join(_COPIED)}) FROM STDIN (FORMAT BINARY)"
_LOCK: Final = """
SELECT id, domain, claimed_by FROM domains WHERE domain IN (SELECT domain FROM backfill_pages) ORDER BY id FOR UPDATE
"""
_INSERT: Final = f"""
INSERT INTO domains (domain, parent_domain, base_url, source, status, status_reason, first_seen_at, {TREATMENT_COLUMNS})
SELECT domain, min(parent_domain), min(base_url), %(source)s, 'exhausted', 'backfill: pages of another tool', min(fetched_at),
       {TREATMENT_VALUES}
FROM backfill_pages WHERE domain <> ALL(%(known)s) GROUP BY domain ORDER BY domain
ON CONFLICT (domain) DO NOTHING RETURNING id
"""  # noqa: S608 — constants
_WORK: Final = """
INSERT INTO job_domains (domain_id, job_id, state) SELECT id, %(job)s, 'done' FROM unnest(%(ids)s::bigint[]) AS id ORDER BY id
ON CONFLICT DO NOTHING
"""
_FIND_DOMAINS: Final = """
UPDATE backfill_pages b SET domain_id = d.id FROM domains d WHERE d.id = ANY(%(ids)s) AND d.domain = b.domain
"""
_FIND_URLS: Final = """
UPDATE backfill_pages b SET was = f.state::text, newest = (
    SELECT p.crawled_at FROM crawled_pages p WHERE p.domain_id = f.domain_id AND p.job_id = f.job_id AND p.url_key = f.url_key)
FROM url_frontier f WHERE f.domain_id = b.domain_id AND f.job_id = %(job)s AND f.url_key = b.url_key
"""
# A redirect has no page that says when it was fetched: one that is settled stays.
_LEAVE_OUT: Final = "DELETE FROM backfill_pages WHERE newest >= fetched_at OR (NOT has_row AND was <> 'waiting')"
_ENTER: Final = """
WITH entered AS (
    UPDATE domains SET claim_epoch = claim_epoch + 1 WHERE id IN (SELECT domain_id FROM backfill_pages) RETURNING id, claim_epoch
)
INSERT INTO claim_log (domain_id, epoch, worker, claimed_at)
SELECT e.id, e.claim_epoch, %(worker)s, GREATEST(clock_timestamp(), (
    SELECT l.ended_at FROM claim_log l WHERE l.domain_id = e.id ORDER BY l.epoch DESC LIMIT 1))
FROM entered e ORDER BY e.id
"""
_FRONTIER: Final = """
WITH known AS (
    UPDATE url_frontier f SET state = b.state::frontier_state, reason = b.reason
    FROM backfill_pages b WHERE b.was IS NOT NULL AND f.domain_id = b.domain_id AND f.job_id = %(job)s AND f.url_key = b.url_key
)
INSERT INTO url_frontier (domain_id, job_id, url_key, url, state, reason, attempts, discovered_at)
SELECT domain_id, %(job)s, url_key, url, state::frontier_state, reason, 1, fetched_at FROM backfill_pages WHERE was IS NULL
ORDER BY domain_id, url_key
"""
# The log says what was written when: under this tenure. When the page was fetched is in crawled_pages.
_LOG: Final = """
INSERT INTO crawl_log (domain_id, job_id, claim_epoch, crawl_run_id, crawled_at, images_found, status, url_key, outcome, page_url)
SELECT b.domain_id, %(job)s, d.claim_epoch, %(run)s, l.claimed_at, b.images_found, b.status, b.url_key, b.outcome, b.url
FROM backfill_pages b JOIN domains d ON d.id = b.domain_id JOIN claim_log l ON l.domain_id = d.id AND l.epoch = d.claim_epoch
"""
_COLUMNS: Final = (
    *("status", "outcome", "archive_segment", "archive_offset", "archive_length", "payload_digest"),
    *_PAGE,
)
_PAGES: Final = f"""
INSERT INTO crawled_pages AS p (domain_id, job_id, url_key, crawled_at, {", ".join(_COLUMNS)})
SELECT domain_id, %(job)s, url_key, fetched_at, {", ".join(_COLUMNS)} FROM backfill_pages WHERE has_row ORDER BY domain_id, url_key
ON CONFLICT (domain_id, job_id, url_key) DO UPDATE SET crawled_at = excluded.crawled_at,
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS)}
"""  # noqa: S608 — constants
# What a URL counted as before is taken away.
_COUNT: Final = """
SELECT count(*) FROM (
    SELECT add_counts(domain_id, %(job)s, waiting::bigint, done::bigint, denied::bigint, failed::bigint) FROM (
        SELECT domain_id, -count(*) FILTER (WHERE was = 'waiting') AS waiting,
               count(*) FILTER (WHERE state = 'done') - count(*) FILTER (WHERE was = 'done') AS done,
               count(*) FILTER (WHERE state = 'denied') - count(*) FILTER (WHERE was = 'denied') AS denied,
               count(*) FILTER (WHERE state = 'failed') - count(*) FILTER (WHERE was = 'failed') AS failed
        FROM backfill_pages GROUP BY domain_id) n ORDER BY domain_id) counted
"""
_SUMS: Final = """
SELECT domain_id, count(*) FILTER (WHERE is_page) AS pages, count(*) FILTER (WHERE is_error) AS errors, sum(images_found) AS images,
       min(fetched_at) AS first_at, max(fetched_at) AS last_at
FROM backfill_pages GROUP BY domain_id
"""
_COUNT_WORK: Final = f"""
UPDATE job_domains jd SET pages = jd.pages + s.pages, errors = jd.errors + s.errors,
    state = CASE WHEN jd.waiting = 0 AND jd.state = 'open' THEN 'done' ELSE jd.state END, ready = jd.ready AND jd.waiting > 0
FROM ({_SUMS}) s WHERE jd.domain_id = s.domain_id AND jd.job_id = %(job)s
"""  # noqa: S608 — constants
_COUNT_DOMAINS: Final = f"""
UPDATE domains d SET pages_crawled = d.pages_crawled + s.pages, total_error_count = d.total_error_count + s.errors,
    images_found = d.images_found + s.images, first_seen_at = LEAST(d.first_seen_at, s.first_at),
    last_crawled_at = GREATEST(d.last_crawled_at, s.last_at), last_crawl_run_id = %(run)s
FROM ({_SUMS}) s WHERE d.id = s.domain_id
"""  # noqa: S608 — constants
_COUNT_RUN: Final = """
UPDATE crawl_runs SET pages_crawled = pages_crawled + %(pages)s, errors = errors + %(errors)s, images_found = images_found + %(images)s,
    heartbeat_at = clock_timestamp()
WHERE id = %(run)s
"""
_LEAVE: Final = """
UPDATE claim_log l SET ended_at = GREATEST(clock_timestamp(), l.claimed_at), why = 'released'
FROM domains d WHERE d.id = ANY(%(ids)s) AND l.domain_id = d.id AND l.epoch = d.claim_epoch AND l.ended_at IS NULL
"""
_TOTALS: Final = """
SELECT count(*) FILTER (WHERE is_page), count(*) FILTER (WHERE is_error), COALESCE(sum(images_found), 0)::bigint FROM backfill_pages
"""
_JOB: Final = """
SELECT j.id, EXISTS (SELECT FROM backfill_imports i WHERE i.job_id = j.id) FROM crawl_jobs j
WHERE j.name = %(name)s AND j.deleted_at IS NULL
"""
_NEW_JOB: Final = """
INSERT INTO crawl_jobs (name, spec, state, completed_at, state_reason) VALUES (%(name)s, %(spec)s, 'completed', now(), 'backfill')
RETURNING id
"""
_STORED: Final = """
SELECT p.archive_segment, p.archive_offset, p.archive_length, p.payload_digest FROM url_frontier f
JOIN domains d ON d.id = f.domain_id JOIN crawled_pages p ON p.domain_id = f.domain_id AND p.job_id = f.job_id AND p.url_key = f.url_key
WHERE d.domain = %(domain)s AND f.job_id = %(job)s AND f.url_key = %(key)s AND p.archive_segment IS NOT NULL
"""


class _Again(Exception):
    """Another transaction inserted one of the new domains."""


class Held(Exception):
    """A worker holds one of the domains: nothing was written."""

    def __init__(self, domain: str, worker: str) -> None:
        self.domain = domain
        self.worker = worker


@dataclass(frozen=True, slots=True)
class ImportedPage:
    """A response of another tool, as the store has it."""

    domain: str
    parent_domain: str
    base_url: str
    url: str
    url_key: bytes
    fetched_at: datetime
    outcome: Outcome
    status: int
    images_found: int = 0
    page: PageRow | None = None
    """None: a redirect, which has no row of its own."""


def job_of_its_own(connection: psycopg.Connection, name: str) -> int:
    """The id of the job for imported pages; creates it. Raises Refused if a crawl has that name. Before: a transaction is open."""
    row = connection.execute(_JOB, {"name": name}).fetchone()
    if row is not None:
        if not row[1]:
            raise Refused(f"There is a job called {name!r} that was not made by an import; --job gives another name.")
        return int(row[0])
    try:
        spec = json.dumps(JobSpec(follow=False).as_json())
        row = connection.execute(_NEW_JOB, {"name": name, "spec": spec}).fetchone()
    except psycopg.errors.UniqueViolation as problem:
        raise Refused(
            f"The name {name!r} belongs to a job that is being deleted; --job gives another name."
        ) from problem
    assert row is not None  # noqa: S101 — INSERT … RETURNING answers with a row
    return int(row[0])


def job_name(connection: psycopg.Connection, job_id: int) -> str:
    """The name of a job. Raises NotFound if it was deleted."""
    return crawls.get(connection, job_id).name


def stored(connection: psycopg.Connection, job_id: int, domain: str, url_key: bytes) -> ArchiveRef | None:
    """Where the bytes of a page of this job are; None: it has none."""
    row = connection.execute(_STORED, {"job": job_id, "domain": domain, "key": url_key}).fetchone()
    return ArchiveRef(*row) if row else None


def count_known(connection: psycopg.Connection, domains: Collection[str]) -> int:
    """Count the domains that the store has."""
    row = connection.execute("SELECT count(*) FROM domains WHERE domain = ANY(%s)", (list(domains),)).fetchone()
    return int(row[0]) if row else 0


def prepare(connection: psycopg.Connection) -> None:
    """Make the session's own table. Before: no transaction is open."""
    connection.execute(_TABLE)


def write(
    connection: psycopg.Connection,
    import_id: int,
    pages: Sequence[ImportedPage],
    counts: Counts,
    position: dict[str, Any] | None,
    *,
    job_id: int,
    run_id: int,
    worker: str,
    source: str,
    defaults: NewDomains,
    versions: int,
) -> Counts:
    """Write a chunk of pages, and the position after it (None: the source is read to its end); returns the counts of the chunk, `counts`
    included.

    Before: `prepare` was called; no transaction is open; no URL is twice in `pages`; the bytes that they refer to are on disk. After: each
    page that is newer than the stored one is in frontier, log and pages once, with the counters of domain, job and run. Raises Held.
    """
    parameters = {
        "job": job_id,
        "run": run_id,
        "worker": worker,
        "source": source[:100],
        "versions": str(versions),
        **defaults.columns(),
    }
    for _ in range(_ATTEMPTS):
        with suppress(_Again, psycopg.errors.DeadlockDetected), connection.transaction():
            written = _write(connection, pages, parameters) if pages else Counts()
            written.add(counts)
            state = ImportState.FINISHED if position is None else ImportState.READING
            imports.add(connection, import_id, written, state=state, position=position)
            return written
    raise StoreUnavailable("Domains of these pages are inserted by others at the same moment; run the command again.")


def _write(connection: psycopg.Connection, pages: Sequence[ImportedPage], parameters: dict[str, Any]) -> Counts:
    _copy(connection, pages)
    locked = connection.execute(_LOCK).fetchall()
    for _, domain, holder in locked:
        if holder is not None:
            raise Held(domain, holder)
    new = connection.execute(_INSERT, parameters | {"known": [row[1] for row in locked]}).fetchall()
    ids = sorted([row[0] for row in locked] + [row[0] for row in new])
    if len(ids) < len({page.domain for page in pages}):
        raise _Again
    values = parameters | {"ids": ids}
    connection.execute(_WORK, values)
    claimable.fold_counts(connection, ids)
    connection.execute(_FIND_DOMAINS, values)
    connection.execute(_FIND_URLS, values)
    older = connection.execute(_LEAVE_OUT).rowcount
    connection.execute(_ENTER, values)
    connection.execute(_FRONTIER, values)
    connection.execute(_LOG, values)
    connection.execute(f"SELECT set_config('{page_versions.SETTING}', %(versions)s, true)", values)
    connection.execute(_PAGES, values)
    connection.execute(_COUNT, values)
    connection.execute(_COUNT_WORK, values)
    connection.execute(_COUNT_DOMAINS, values)
    found, errors, images = connection.execute(_TOTALS).fetchone() or (0, 0, 0)
    connection.execute(_COUNT_RUN, values | {"pages": found, "errors": errors, "images": images})
    connection.execute(_LEAVE, values)
    claimable.rescore(connection, ids)
    claimable.update_ready(connection, ids)
    counts = Counts(
        pages=found,
        errors=errors,
        images_found=images,
        skipped=older,
        domains_new=len(new),
    )
    if older:
        counts.reasons[NOT_NEWER] = older
    return counts


def _copy(connection: psycopg.Connection, pages: Sequence[ImportedPage]) -> None:
    with connection.cursor().copy(_COPY) as copy:
        copy.set_types(list(_COPIED.values()))
        for one in pages:
            treatment, page = TREATMENT[one.outcome], one.page or PageRow(one.status)
            archive = page.archive
            copy.write_row(
                (
                    *(one.domain, one.parent_domain, one.base_url, one.url, one.url_key, one.fetched_at),
                    *(str(one.outcome), str(treatment.state), None if treatment.page else str(one.outcome)),
                    *(one.status, treatment.page, treatment.error, one.page is not None, one.images_found),
                    *((archive.segment, archive.offset, archive.length) if archive else (None,) * 3),
                    archive.payload_digest if archive else None,
                    *(getattr(page, name) for name in _PAGE),
                )
            )
