"""Runs of worker processes. Their heartbeat shows that they are alive; nothing else depends on it."""

from dataclasses import asdict
from datetime import timedelta
from typing import Final

import psycopg

from holdfast.model.histograms import RunCounts

SILENT: Final = "status = 'running' AND heartbeat_at < clock_timestamp() - %(older_than)s"
"""The condition of a run that says it runs and has had no heartbeat for `older_than`."""

# Totals that never go down. A run that was marked as failed, and counted, has something to count again.
_COUNTS: Final = (
    "settled = false, commit_latency = GREATEST(commit_latency, %(commit_latency)s::bigint[]), "
    + ", ".join(
        f"{name} = GREATEST({name}, %({name})s)"
        for name in ("lease_renewals", "fenced_writes", "robots_denied", "commits", "commit_ms")
    )
)
_BEAT: Final = f"""
WITH beat AS (
    UPDATE crawl_runs SET heartbeat_at = clock_timestamp(), in_window = %(in_window)s, {_COUNTS}
    WHERE id = %(run)s AND (%(generation)s::int IS NULL OR %(generation)s = (SELECT generation FROM store_identity)) RETURNING worker
)
UPDATE workers w SET heartbeat_at = clock_timestamp() FROM beat WHERE w.name = beat.worker
"""  # noqa: S608 — a constant
_END: Final = f"""
UPDATE crawl_runs SET status = CASE WHEN %(error)s::text IS NULL THEN 'completed' ELSE 'failed' END::run_status, error_message = %(error)s,
    completed_at = clock_timestamp(), in_window = 0, {_COUNTS}
WHERE id = %(run)s AND status = 'running'
"""  # noqa: S608 — a constant

_NOTHING_COUNTED: Final = RunCounts()


def fail_silent(connection: psycopg.Connection, *, older_than: timedelta, message: str) -> list[int]:
    """Mark silent runs as failed; returns their ids. After: each of them has an end and an error message."""
    query = f"""
        UPDATE crawl_runs SET status = 'failed', completed_at = clock_timestamp(), error_message = %(message)s
        WHERE {SILENT} RETURNING id
    """  # noqa: S608 — a constant
    return [row[0] for row in connection.execute(query, {"older_than": older_than, "message": message})]


def begin(
    connection: psycopg.Connection, *, worker: str, job_id: int | None = None, crawl_id: int | None = None
) -> int:
    """Insert a run of `worker`, optionally for the crawl of one job; returns its id."""
    row = connection.execute(
        "INSERT INTO crawl_runs (worker, job_id, crawl_id) VALUES (%s, %s, %s) RETURNING id", (worker, job_id, crawl_id)
    ).fetchone()
    assert row is not None  # noqa: S101 — INSERT … RETURNING answers with a row
    return int(row[0])


def heartbeat(
    connection: psycopg.Connection,
    run_id: int,
    *,
    in_window: int,
    counts: RunCounts = _NOTHING_COUNTED,
    generation: int | None = None,
) -> bool:
    """Record a heartbeat of a run and its worker, with the number of URLs in memory and its counters; False: the run or worker does not
    exist any more, or the store is not of this generation (None: of any)."""
    values = {"run": run_id, "in_window": in_window, "generation": generation, **_count_parameters(counts)}
    return connection.execute(_BEAT, values).rowcount > 0


def end(
    connection: psycopg.Connection, run_id: int, *, error: str | None, counts: RunCounts = _NOTHING_COUNTED
) -> None:
    """End a run, with or without an error. After: it has an end; one that was marked as failed keeps that message."""
    connection.execute(_END, {"run": run_id, "error": error, **_count_parameters(counts)})


def _count_parameters(counts: RunCounts) -> dict[str, object]:
    return {**asdict(counts), "commit_latency": list(counts.commit_latency)}
