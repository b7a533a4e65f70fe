"""Runs and workers in pages.

The rule: what has to be summed is summed for the rows of a page, and for no others.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg

from holdfast.db.keyset_pagination import Equals, Listing, Order, SortColumn
from holdfast.db.workers import status_columns
from holdfast.errors import NotFound

_DOWN: Final = (SortColumn("t.id", int, descending=True),)


@dataclass(frozen=True, slots=True)
class RunRow:
    """A worker process at work."""

    id: int
    worker: str
    job_id: int | None
    job: str | None
    """None: it serves all jobs."""
    crawl_id: int | None
    status: str
    started_at: datetime
    heartbeat_at: datetime
    completed_at: datetime | None
    error_message: str | None
    pages_crawled: int
    errors: int
    bytes: int
    images_found: int
    images_downloaded: int
    in_window: int
    """URLs in its memory, as it said last."""


RUNS: Final = Listing(
    "crawl_runs",
    """
    t.id, t.worker, t.job_id, j.name AS job, t.crawl_id, t.status::text, t.started_at, t.heartbeat_at, t.completed_at, t.error_message,
    t.pages_crawled, t.errors, t.bytes, t.images_found, t.images_downloaded, t.in_window
    """,
    RunRow,
    {
        "running": "t.status = 'running'",
        "status": "t.status = %(status)s::run_status",
        "job": Equals("t.job_id", "%(job)s::bigint"),
        "worker": Equals("t.worker", "%(worker)s::text"),
        "crawl": "t.crawl_id = %(crawl)s",
        "id": Equals("t.id", "%(id)s::bigint"),
    },
    {
        "newest": Order(
            _DOWN,
            (("id",), ("running",), ("job",), ("worker",), ()),
        )
    },
    joins="LEFT JOIN crawl_jobs j ON j.id = t.job_id",
    selective=frozenset({"running", "job", "worker", "crawl"}),
)


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A name that worker processes bear, and who bears it."""

    name: str
    host: str
    pid: int
    boot_epoch: int
    """Which of its lives this is."""
    started_at: datetime
    heartbeat_at: datetime
    alive: bool
    """It was heard of lately, and one of its runs has not ended."""
    held: int
    """Domains."""
    expired: int
    """Of these: their leases have ended."""
    runs: int
    """That have not ended."""
    pages: int
    """Of these runs; likewise below."""
    errors: int
    bytes: int
    in_window: int
    status: str
    """active, idle (it runs and holds nothing), ended (in order), or silent (it died, or cannot reach the database)."""
    current_url: str | None
    """What it has been fetching for longest."""
    current_urls: list[str]
    """What it fetches at this moment, the oldest request first; a few of them."""
    ended_at: datetime | None
    """When it ended in order; None: it runs, or died."""
    activity: dict[str, Any] | None
    """What it does at this moment (model/activity.py); None: nothing, or it is not alive."""
    activity_at: datetime | None
    """When that was written; seconds in it count from then."""


_RUNNING: Final = """
SELECT worker, count(*) AS runs, sum(pages_crawled)::bigint AS pages, sum(errors)::bigint AS errors, sum(bytes)::bigint AS bytes,
       sum(in_window)::bigint AS in_window FROM crawl_runs WHERE status = 'running' GROUP BY worker
"""
_HEARD_OF: Final = "t.heartbeat_at > clock_timestamp() - %(silence)s::interval"
_IS_ALIVE: Final = (
    f"({_HEARD_OF} AND EXISTS (SELECT FROM crawl_runs r WHERE r.status = 'running' AND r.worker = t.name))"
)

WORKERS: Final = Listing(
    "workers",
    f"""
    t.name, t.host, t.pid, t.boot_epoch, t.started_at, t.heartbeat_at, r.worker IS NOT NULL AND {_HEARD_OF} AS alive, h.held, h.expired,
    COALESCE(r.runs, 0) AS runs, COALESCE(r.pages, 0) AS pages, COALESCE(r.errors, 0) AS errors, COALESCE(r.bytes, 0) AS bytes,
    COALESCE(r.in_window, 0) AS in_window,
    {status_columns(f"(r.worker IS NOT NULL AND {_HEARD_OF})", "h.held", "t")}, t.ended_at,
    CASE WHEN r.worker IS NOT NULL AND {_HEARD_OF} THEN t.activity END AS activity, t.activity_at
    """,
    WorkerRow,
    {
        "name": Equals("t.name", "%(name)s::text"),
        "alive": _IS_ALIVE,
        "silent": f"NOT {_IS_ALIVE}",
    },
    {"name": Order((SortColumn("t.name", str),), (("name",), ()))},
    joins=f"""
    LEFT JOIN ({_RUNNING}) r ON r.worker = t.name
    CROSS JOIN LATERAL (SELECT count(*) AS held, count(*) FILTER (WHERE d.claim_expires_at <= clock_timestamp()) AS expired
                        FROM domains d WHERE d.claimed_by = t.name) h
    """,  # noqa: S608 — constants
)


def run(connection: psycopg.Connection, run_id: int) -> RunRow:
    """One run. Raises NotFound."""
    found = RUNS.page(connection, {"id": run_id}, order="newest", limit=1).rows
    if not found:
        raise NotFound(f"There is no run {run_id}.")
    return found[0]
