"""Validation of what was imported: one query for each check; a row is a fault.

The rule: read only. The queries scan and join whole tables, with the planner's settings of `holdfast verify`.
"""

from collections.abc import Iterator
from typing import Final

import psycopg

from holdfast.backfill.records import HISTORY, StatusFigures
from holdfast.db.rows import by_name
from holdfast.db.verify import LOG, STRUCTURE, verify

_SUMS: Final = ", ".join(f"COALESCE(sum({name}), 0)" for name in ("pages", "errors", "images_found", "images_stored"))
_HISTORY: Final = "'{" + ",".join(sorted(HISTORY)) + "}'"
_OWN: Final = {
    "every import has finished": """
        SELECT id, source, state::text FROM backfill_imports WHERE state <> 'finished'
    """,
    "nothing of a finished import is left to merge": """
        SELECT s.domain FROM backfill_domains s WHERE NOT EXISTS (
            SELECT FROM backfill_imports i WHERE i.id = s.import_id AND i.state <> 'finished')
    """,
    "every backfilled domain has a history or pages": """
        SELECT d.domain FROM domains d WHERE d.source LIKE 'backfill%%' AND d.removed_at IS NULL
        AND NOT EXISTS (SELECT FROM crawl_log_rollups r WHERE r.domain_id = d.id)
        AND NOT EXISTS (SELECT FROM job_domains jd WHERE jd.domain_id = d.id)
    """,
    "the sums of the domains are those of the imports": f"""
        SELECT i AS imports, r AS domains
        FROM (SELECT ({_SUMS})::text AS i FROM backfill_imports WHERE format = ANY({_HISTORY})) i,
             (SELECT ({_SUMS})::text AS r FROM crawl_log_rollups WHERE job_id = 0) r
        WHERE i <> r AND NOT EXISTS (SELECT FROM backfill_imports WHERE state <> 'finished')
    """,  # noqa: S608 — a constant
    "images of the history are counted by their domains": """
        SELECT d.domain FROM domains d JOIN crawl_log_rollups r ON r.domain_id = d.id AND r.job_id = 0
        WHERE d.images_found < r.images_found OR d.images_stored < r.images_stored
    """,
    # Only of domains that nothing has happened to since: their reason is still that of the import.
    "a domain is blocked if more than half of its history failed, else exhausted": """
        SELECT domain, status::text, status_reason FROM domains
        WHERE source LIKE 'backfill%%' AND status_reason LIKE 'backfill: %% requests failed'
        AND (status = 'blocked') <> CASE WHEN status_reason LIKE 'backfill: %% requests failed'
            THEN split_part(status_reason, ' ', 2)::bigint * 2 > split_part(status_reason, ' ', 4)::bigint ELSE status = 'blocked' END
    """,
}
_OF_VERIFY: Final = (
    "I1 a domain discovered what its jobs and the roll-up discovered, and waits for what waits in them",
    "I7 a domain's pages and errors are those of the log and its roll-up",
    "I7 a job's pages and errors on a domain are those of the log and its roll-up",
)
CHECKS: Final = {**_OWN, **{name.partition(" ")[2]: (STRUCTURE | LOG)[name] for name in _OF_VERIFY}}
"""All of them but that of the names, which is not one of the database."""

_NAMES: Final = """
SELECT d.id, d.domain FROM domains d WHERE d.id > %(after)s AND d.removed_at IS NULL
  AND (d.source LIKE 'backfill%%' OR EXISTS (SELECT FROM crawl_log_rollups r WHERE r.domain_id = d.id))
ORDER BY d.id LIMIT 20000
"""
_COVERAGE: Final = """
SELECT (SELECT count(DISTINCT domain_id) FROM crawl_log_rollups WHERE job_id = 0),
       (SELECT count(*) FROM domains WHERE source LIKE 'backfill%' AND removed_at IS NULL),
       (SELECT count(*) FROM domains WHERE removed_at IS NULL)
"""
_STATUSES: Final = """
SELECT status::text AS status, count(*) AS domains, avg(image_yield_rate) AS avg_yield, avg(pages_crawled)::float8 AS avg_pages
FROM domains WHERE source LIKE 'backfill%' AND removed_at IS NULL GROUP BY status ORDER BY status
"""

_as_status: Final = by_name(StatusFigures)


def faults(connection: psycopg.Connection) -> Iterator[tuple[str, int, list[str]]]:
    """Run the checks, on one snapshot; yields the name of each, the number of faults, and the first of them. Before: no transaction is
    open."""
    for found in verify(connection, retries=0, checks=CHECKS):
        yield (
            found.check,
            found.faults,
            [" ".join(f"{name}={value}" for name, value in row.items()) for row in found.rows],
        )


def names(connection: psycopg.Connection) -> Iterator[str]:
    """The names of all domains that have a history or were created by an import."""
    after = 0
    while rows := connection.execute(_NAMES, {"after": after}).fetchall():
        after = rows[-1][0]
        yield from (name for _, name in rows)


def coverage(connection: psycopg.Connection) -> tuple[int, int, int]:
    """Domains of the history, domains that imports created, and all domains."""
    history, backfilled, total = connection.execute(_COVERAGE).fetchone() or (0, 0, 0)
    return history, backfilled, total


def statuses(connection: psycopg.Connection) -> list[StatusFigures]:
    """Figures of the domains that imports created, by status."""
    with connection.cursor(row_factory=_as_status) as cursor:
        return cursor.execute(_STATUSES).fetchall()
