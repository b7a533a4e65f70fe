"""Read-only reports for operators: activity, upcoming events, totals.

The rule: each is one statement that stays fast enough at a million domains and ten million URLs.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from holdfast.model.outcome import PAGES, TREATMENT

_ERRORS: Final = sorted(outcome for outcome, treatment in TREATMENT.items() if treatment.error)
# now(), not clock_timestamp(): it lets the planner leave out the partitions of other weeks.
_LATELY: Final = """
SELECT count(*) FILTER (WHERE outcome = ANY(%(pages)s)) AS pages, count(*) FILTER (WHERE outcome = ANY(%(errors)s)) AS errors,
       COALESCE(sum(bytes), 0)::bigint AS bytes
FROM crawl_log WHERE crawled_at > now() - %(span)s
"""
# Only what leads to a request: the sweep does not continue a job that is cancelled or whose pages are used up, no request goes to a domain
# that is switched off, and a cool-down comes before attempts.
_DUE: Final = """
WITH live AS MATERIALIZED (
    SELECT j.id, job_wants_refresh(j) AS refresh FROM crawl_jobs j
    WHERE j.state <> 'cancelled' AND j.deleted_at IS NULL AND NOT job_is_used_up(j)
)
SELECT what, at, domains FROM (
    SELECT 'cool-down ends' AS what, min(next_crawl_after) AS at, count(*) AS domains FROM domains d
    WHERE next_crawl_after < 'infinity' AND status IN ('blocked', 'unreachable') AND is_active
      AND EXISTS (SELECT FROM job_domains jd JOIN live ON live.id = jd.job_id WHERE jd.domain_id = d.id)
    UNION ALL SELECT 'pages are looked at again', min(next_crawl_after), count(*) FROM domains d
    WHERE next_crawl_after < 'infinity' AND status = 'exhausted' AND is_active
      AND d.id IN (SELECT jd.domain_id FROM job_domains jd WHERE jd.job_id IN (SELECT id FROM live WHERE refresh))
    UNION ALL SELECT 'another attempt', min(jd.not_before), count(DISTINCT d.id)
    FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
    WHERE jd.not_before IS NOT NULL AND jd.job_id IN (SELECT id FROM live) AND d.is_active
      AND (d.next_crawl_after IS NULL OR d.next_crawl_after <= jd.not_before)
    UNION ALL SELECT 'claim expires', min(claim_expires_at), count(*) FROM domains WHERE claimed_by IS NOT NULL
) due WHERE at IS NOT NULL ORDER BY at
"""
_TOTALS: Final = """
SELECT pg_database_size(current_database()) AS database_bytes, clock_timestamp() AS now,
       (SELECT count(*) FROM crawl_runs WHERE status = 'running') AS runs,
       (SELECT count(*) FROM domains WHERE next_crawl_after = 'infinity') AS stay_blocked,
       (SELECT count(*) FROM domain_wakes) AS wakes
"""
_NAMES: Final = "SELECT id, domain FROM domains WHERE id = ANY(%(ids)s)"


def recent_activity(connection: psycopg.Connection, span: timedelta) -> dict[str, Any]:
    """Pages, errors and bytes in the log of the last `span`."""
    (row,) = _rows(connection, _LATELY, {"span": span, "pages": sorted(PAGES), "errors": _ERRORS})
    return row


def upcoming(connection: psycopg.Connection) -> list[dict[str, Any]]:
    """Upcoming events of the sweep: what, when first, and for how many domains."""
    return _rows(connection, _DUE, {})


def totals(connection: psycopg.Connection) -> dict[str, Any]:
    """Figures of the whole store, and the database's time."""
    (row,) = _rows(connection, _TOTALS, {})
    return row


def domain_names(connection: psycopg.Connection, ids: Sequence[int]) -> dict[int, str]:
    """The names of domains by id."""
    return dict(connection.execute(_NAMES, {"ids": list(ids)}).fetchall())


def _rows(connection: psycopg.Connection, query: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, parameters).fetchall()
