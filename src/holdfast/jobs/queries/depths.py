"""SQL of the URLs of a job by depth and state.

The rule: the time is bounded. Up to EXACT URLs are counted; of more, a sample is, which is scaled to the counters of the job.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import psycopg
from psycopg.rows import dict_row

from holdfast.jobs.records import DepthCount, JobDepths

EXACT: Final = 100_000
"""The most URLs of a job that are counted one by one."""
SAMPLE: Final = 50_000
"""URLs of the job in a sample."""
READ: Final = 300_000
"""URLs of all jobs that a sample may read."""
K = TypeVar("K", int, str)
_STATES: Final = ("waiting", "done", "denied", "failed")

_TOTALS: Final = """
SELECT COALESCE(sum(waiting), 0)::bigint AS waiting, COALESCE(sum(done), 0)::bigint AS done, COALESCE(sum(denied), 0)::bigint AS denied,
       COALESCE(sum(failed), 0)::bigint AS failed, (SELECT reltuples FROM pg_class WHERE oid = 'url_frontier'::regclass) AS known
FROM job_domains WHERE job_id = %(job)s
"""
_COUNT: Final = """
SELECT f.depth, count(*) FILTER (WHERE f.state = 'waiting') AS waiting, count(*) FILTER (WHERE f.state = 'done') AS done,
       count(*) FILTER (WHERE f.state = 'done' AND f.reason IS NULL) AS pages, count(*) FILTER (WHERE f.state = 'denied') AS denied,
       count(*) FILTER (WHERE f.state = 'failed') AS failed
FROM {rows} GROUP BY f.depth ORDER BY f.depth
"""
_COUNT_ALL: Final = _COUNT.format(
    rows="job_domains jd JOIN url_frontier f ON f.domain_id = jd.domain_id AND f.job_id = jd.job_id WHERE jd.job_id = %(job)s"
)
_COUNT_SAMPLE: Final = _COUNT.format(rows="url_frontier f TABLESAMPLE SYSTEM (%(percent)s) WHERE f.job_id = %(job)s")


def depths(connection: psycopg.Connection, job_id: int, name: str) -> JobDepths:
    """Return the URLs of a job by depth and state: exactly, or estimated where there are many."""
    with connection.cursor(row_factory=dict_row) as cursor:
        totals: dict[str, Any] = cursor.execute(_TOTALS, {"job": job_id}).fetchone() or {}
        urls = sum(totals[state] for state in _STATES)
        estimated = urls > EXACT
        share = min(1.0, SAMPLE / max(1, urls), READ / max(1.0, totals["known"], urls))
        query = _COUNT_SAMPLE if estimated else _COUNT_ALL
        rows = cursor.execute(query, {"job": job_id, "percent": 100 * share}, prepare=False).fetchall()
    if estimated:
        columns = {state: scale({row["depth"]: row[state] for row in rows}, totals[state]) for state in _STATES}
        done = {row["depth"]: row["done"] for row in rows}
        for row in rows:
            depth = row["depth"]
            row |= {state: columns[state][depth] for state in _STATES}
            row["pages"] = round(row["pages"] * row["done"] / max(1, done[depth]))
    shown = [DepthCount(**row) for row in rows if any(row[state] for state in _STATES)]
    counts = {state: totals[state] for state in _STATES}
    return JobDepths(job_id=job_id, job=name, estimated=estimated, **counts, depths=shown)


def scale(sample: Mapping[K, int], total: int) -> dict[K, int]:
    """Scale the counts of a sample so that their sum is `total`; the largest remainders are rounded up. An empty sample stays empty."""
    seen = sum(sample.values())
    if not seen:
        return dict(sample)
    scaled = {key: count * total // seen for key, count in sample.items()}
    by_remainder = sorted(sample, key=lambda key: (-(sample[key] * total % seen), key))
    for key in by_remainder[: total - sum(scaled.values())]:
        scaled[key] += 1
    return scaled
