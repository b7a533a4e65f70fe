"""Current counts of domains, jobs, tasks, workers, claims, queues, proxies, webhook deliveries and the database size.

The rule: read only, few statements, each cheap enough for every few seconds at 100,000 domains; no cost grows with the number of pages.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import psycopg

from holdfast.alerts import queries as alerts
from holdfast.alerts.records import Alert
from holdfast.db import stats
from holdfast.db.combined_query import as_record, fetch_combined
from holdfast.db.planner_hints import fetch_with_settings
from holdfast.jobs.queries import jobs
from holdfast.jobs.records import Job
from holdfast.model.activity import WorkerProblem, problems_of
from holdfast.workers import queries as workers
from holdfast.workers.records import ActiveWorker

# The one scan over all domains, without parallel workers: to start them would take longer, and CPU time from crawls.
_NOT_PARALLEL: Final = "SELECT set_config('max_parallel_workers_per_gather', '0', true)"
_DOMAINS: Final = "SELECT status::text, count(*) FROM domains GROUP BY status"
# Only of jobs that workers may serve: URLs of jobs that ended, are paused or were cancelled do not wait.
_FRONTIER: Final = """
SELECT COALESCE(sum(jd.waiting), 0)::bigint AS waiting FROM job_domains jd JOIN runnable_jobs j ON j.id = jd.job_id
WHERE jd.waiting > 0
"""
_CLAIMS: Final = """
SELECT count(*) AS held, count(*) FILTER (WHERE claim_expires_at <= statement_timestamp()) AS expired,
       GREATEST(extract(epoch FROM statement_timestamp() - min(claim_expires_at)), 0)::float8 AS oldest
FROM domains WHERE claimed_by IS NOT NULL
"""
_WORKERS: Final = """
SELECT w.name, extract(epoch FROM statement_timestamp() - w.heartbeat_at)::float8 AS age,
       w.heartbeat_at > statement_timestamp() - %(silence)s::interval AS alive, r.worker IS NOT NULL AS running
FROM workers w LEFT JOIN (SELECT DISTINCT worker FROM crawl_runs WHERE status = 'running') r ON r.worker = w.name
WHERE r.worker IS NOT NULL OR EXISTS (SELECT FROM domains d WHERE d.claimed_by = w.name)
ORDER BY w.name
"""
_JOBS_RUNS_ALERTS: Final = """
SELECT 'job', state::text, count(*) FROM crawl_jobs WHERE deleted_at IS NULL GROUP BY state
UNION ALL SELECT 'run', '', count(*) FROM crawl_runs WHERE status = 'running'
UNION ALL SELECT 'alert', kind, count(*) FROM alerts WHERE resolved_at IS NULL GROUP BY kind
"""
_TASKS: Final = "SELECT status::text, count(*) FROM crawl_tasks GROUP BY status"
_MORE: Final = """
SELECT 'queue' AS what, queue_name AS label, status::text AS more, count(*) AS n
FROM procrastinate.procrastinate_jobs WHERE status IN ('todo', 'doing') GROUP BY queue_name, status
UNION ALL SELECT 'task_due', 'crawl', '', count(*) FROM crawl_tasks
    WHERE status = 'pending' AND waits_for IS NULL AND scheduled_at <= statement_timestamp()
UNION ALL SELECT 'task_due', 'parse', '', count(*) FROM crawl_tasks
    WHERE status = 'queued_parse' AND (parse_after <= statement_timestamp() OR parse_after IS NULL)
UNION ALL SELECT 'proxy', CASE WHEN disabled_by = 'operator' THEN 'disabled' WHEN NOT is_active THEN 'failed'
                               WHEN failure_count >= 5 THEN 'failing' ELSE 'active' END, '', count(*) FROM proxies GROUP BY 2
UNION ALL SELECT 'webhook', CASE WHEN next_attempt_at <= statement_timestamp() THEN 'due' ELSE 'waiting' END, '', count(*)
    FROM webhook_deliveries WHERE next_attempt_at IS NOT NULL GROUP BY 2
UNION ALL SELECT 'webhook', 'given_up', '', count(*) FROM webhook_deliveries WHERE gave_up_at IS NOT NULL
UNION ALL SELECT 'fresh', '', '', count(*) FROM stats_fresh
UNION ALL SELECT 'database_bytes', '', '', pg_database_size(current_database())
UNION ALL SELECT 'duty', name, '', extract(epoch FROM statement_timestamp() - done_at)::bigint FROM duties WHERE isfinite(done_at)
"""
_PROBLEMS: Final = """
SELECT p FROM workers w CROSS JOIN LATERAL jsonb_array_elements(w.activity -> 'problems') p
WHERE w.heartbeat_at > statement_timestamp() - %(silence)s::interval AND w.ended_at IS NULL
"""
_NOW: Final = {
    "clock": "SELECT clock_timestamp() AS at",
    "counters": stats.COUNTERS,
    "frontier": _FRONTIER,
    "claims": _CLAIMS,
    "health": _WORKERS,
    "jobs": jobs.UNDER_WAY,
    "workers": workers.AT_WORK,
    "alerts": alerts.FIRING,
    "firing": "SELECT count(*) AS alerts FROM alerts WHERE resolved_at IS NULL",
}
"""All of `MovingFigures`, as one statement."""


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """Health of a worker that has a running run or holds domains."""

    name: str
    age: float
    """Seconds since its last heartbeat."""
    alive: bool
    running: bool


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """Current counts of the store."""

    domains: dict[str, int] = field(default_factory=dict)
    """By status; those without any are left out, here and below."""
    frontier_size: int = 0
    """URLs that wait in jobs that may be worked on."""
    held: int = 0
    expired: int = 0
    """Domains that are held and whose lease has ended."""
    oldest_expired: float = 0.0
    """Seconds since the first of them expired."""
    jobs: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    alerts: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    workers: list[WorkerHealth] = field(default_factory=list)

    @property
    def active_workers(self) -> int:
        """The number of running workers with a recent heartbeat."""
        return sum(worker.alive and worker.running for worker in self.workers)

    @property
    def silent_workers(self) -> int:
        """The number of workers without a recent heartbeat."""
        return sum(not worker.alive for worker in self.workers)


def store_counts(connection: psycopg.Connection, *, silence: timedelta) -> StoreCounts:
    """Count domains, frontier, claims, jobs, tasks and workers. `silence`: a worker without a heartbeat for this long counts as dead."""
    with connection.transaction():
        connection.execute(_NOT_PARALLEL)
        by_status = connection.execute(_DOMAINS).fetchall()
        ((frontier,),) = connection.execute(_FRONTIER).fetchall()
        tasks = connection.execute(_TASKS).fetchall()
    ((held, expired, oldest),) = connection.execute(_CLAIMS).fetchall()
    counts: dict[str, dict[str, int]] = {"job": {}, "run": {}, "alert": {}}
    for what, label, count in connection.execute(_JOBS_RUNS_ALERTS):
        counts[what][label] = count
    heard = connection.execute(_WORKERS, {"silence": silence}).fetchall()
    return StoreCounts(
        domains=dict(by_status),
        frontier_size=frontier,
        held=held,
        expired=expired,
        oldest_expired=oldest or 0.0,
        jobs=counts["job"],
        tasks=dict(tasks),
        alerts=counts["alert"],
        runs=counts["run"].get("", 0),
        workers=[WorkerHealth(*row) for row in heard],
    )


def worker_problems(connection: psycopg.Connection, *, silence: timedelta) -> list[WorkerProblem]:
    """Return the problems that running workers report, each once, those that pause a crawl first."""
    return problems_of([{"problems": [one]} for (one,) in connection.execute(_PROBLEMS, {"silence": silence})])


@dataclass(frozen=True, slots=True)
class MovingFigures:
    """What moves while the crawl runs."""

    at: datetime
    counters: dict[tuple[str, str], stats.Count]
    frontier_size: int
    held: int
    active_workers: int
    alerts_firing: int
    jobs: list[Job]
    """Those under way, the first ones; likewise `workers` and `alerts`."""
    workers: list[ActiveWorker]
    alerts: list[Alert]


def moving_figures(connection: psycopg.Connection, *, silence: timedelta, limit: int) -> MovingFigures:
    """Read what moves while the crawl runs, in one statement. `limit`: of each list."""
    found = fetch_combined(connection, _NOW, {"silence": silence, "limit": limit})
    (clock,), (frontier,), (claims,), (firing,) = found["clock"], found["frontier"], found["claims"], found["firing"]
    return MovingFigures(
        datetime.fromisoformat(clock["at"]),
        {(row["name"], row["label"]): stats.Count(row["total"], row["lately"]) for row in found["counters"]},
        frontier["waiting"],
        claims["held"],
        sum(row["alive"] and row["running"] for row in found["health"]),
        firing["alerts"],
        jobs.sort_under_way((as_record(Job, row) for row in found["jobs"]), limit),
        [as_record(ActiveWorker, row) for row in found["workers"] if row["alive"]],
        [as_record(Alert, row) for row in found["alerts"]],
    )


def domains_by_status(connection: psycopg.Connection) -> dict[str, int]:
    """Count domains by status; those without any are left out. Reads all domains."""
    return dict(fetch_with_settings(connection, {"max_parallel_workers_per_gather": "0"}, _DOMAINS, {}))


def queue_sizes(connection: psycopg.Connection) -> dict[tuple[str, str, str], int]:
    """Further counts by (what, label, detail): queues, due tasks, proxies, webhook deliveries, the size of the database."""
    return {(what, label, more): count for what, label, more, count in connection.execute(_MORE)}
