"""What tasks cost at a million: the schedule, follow-ups, lists, the restart of all that failed. Prints a table; never a gate.

    python benchmarks/tasks.py [--tasks 1000000] [--json FILE]

The bundled PostgreSQL runs in a folder of its own, which is removed at the end. Of the tasks 10 % have failed, 30 % are pending (a
third of them due), the rest are completed and recur. One domain in fifty is inactive, and one pending task in twenty waits for a
parent that failed: what the schedule must not walk past again and again.
"""

import argparse
import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from holdfast.db import embedded, migrate, task_frontier, tasks
from holdfast.db.connection import Database
from holdfast.db.task_frontier import CrawlResult
from holdfast.model.task import TaskStatus
from holdfast.tasks import queries as task_queries
from holdfast.tasks.queries import RestartFilter

PER_DOMAIN = 100
CHUNK = 100_000
LIMIT = 100
ROUNDS = 200

FILL = """
INSERT INTO crawl_tasks (domain_id, url, url_hash, priority, scheduled_at, status, completed_at, started_at, next_crawl_at, parent_task_id)
SELECT 1 + n / %(per_domain)s, 'https://d' || n / %(per_domain)s || '.example/p/' || n, decode(md5(n::text), 'hex'), 1 + n * 7 %% 10,
       now() + CASE WHEN n %% 10 = 1 THEN -1 ELSE 1 END * make_interval(secs => 1 + n %% 86400), s.status,
       CASE WHEN s.status <> 'pending' THEN now() - make_interval(secs => n %% 604800) END,
       CASE WHEN s.status <> 'pending' THEN now() - make_interval(secs => n %% 604800 + 5) END,
       CASE WHEN s.status = 'completed' THEN now() + make_interval(secs => n %% 86400 - 3600) END,
       CASE WHEN s.status = 'pending' AND n %% 60 = 1 AND n > 60 THEN (SELECT min(id) FROM crawl_tasks) END
FROM generate_series(%(first)s, %(last)s) n, LATERAL (
    SELECT CASE WHEN n %% 10 = 0 THEN 'failed' WHEN n %% 10 < 4 THEN 'pending' ELSE 'completed' END::task_status AS status) s
"""
DOMAINS = """
INSERT INTO domains (domain, parent_domain, base_url, is_active)
SELECT 'd' || n || '.example', 'example', 'https://d' || n || '.example', n %% 50 <> 0 FROM generate_series(0, %(count)s) n
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    folder.chmod(0o755)
    try:
        database = Database(embedded.ensure_running(folder / "data").url(), statement_timeout=0)
        migrate.upgrade(database)
        with database.session() as connection:
            figures = bench(connection, options.tasks)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=2))
    finally:
        embedded.stop(folder / "data")
        shutil.rmtree(folder)


def bench(connection: psycopg.Connection, count: int) -> dict[str, Any]:
    """All figures, in milliseconds where nothing else is said."""
    began = time.monotonic()
    fill(connection, count)
    print(
        f"{count:,} tasks made in {time.monotonic() - began:.0f} s\n\n{'':<36}{'p50 ms':>9}{'p99 ms':>9}{'most ms':>9}{'calls':>7}"
    )
    settle(connection)
    figures: dict[str, Any] = {"tasks": count}
    figures["query"] = timed(f"find {LIMIT} that are due (the query)", lambda turn: find(connection, turn))
    figures["due"] = timed(f"queue {LIMIT} that are due", lambda _: tasks.due(connection, LIMIT))
    figures["nothing due"] = quiet(connection)
    figures["follow up"] = timed(f"follow up {LIMIT}", lambda _: tasks.spawn_due(connection, LIMIT))
    figures["record"] = timed("record 100 results", lambda _: results(connection))
    figures["list"] = timed("list of a status, deep in it", lambda turn: page(connection, count, turn))
    figures["history"] = timed("history of a URL", lambda turn: task_queries.history(connection, 2 + turn))
    figures["counts"] = timed("statistics by status", lambda _: task_queries.stats(connection), rounds=5)
    figures["restart failed"] = restart(connection)
    return figures


def fill(connection: psycopg.Connection, count: int) -> None:
    connection.execute("ALTER TABLE crawl_tasks DISABLE TRIGGER USER")
    connection.execute(DOMAINS, {"count": count // PER_DOMAIN + 1})
    for first in range(0, count, CHUNK):
        last = min(first + CHUNK, count) - 1
        connection.execute(FILL, {"first": first, "last": last, "per_domain": PER_DOMAIN})
    connection.execute("ALTER TABLE crawl_tasks ENABLE TRIGGER USER")
    connection.execute("VACUUM (ANALYZE) domains, crawl_tasks")


def settle(connection: psycopg.Connection) -> None:
    """The first calls set aside what cannot run; how many, and how long the longest took."""
    times, more = [], True
    while more:
        began = time.monotonic()
        taken = tasks.due(connection, 1000)
        times.append((time.monotonic() - began) * 1000)
        more = bool(taken) and enough_left(connection)
    aside = connection.execute("SELECT count(*) FROM crawl_tasks WHERE waits_for IS NOT NULL").fetchone()
    print(
        f"{'queue 1000 that are due, at first':<36}{_quantile(times, 0.5):>9.1f}{_quantile(times, 0.99):>9.1f}"
        f"{max(times):>9.1f}{len(times):>7}   ({aside[0] if aside else 0:,} set aside)"
    )


def enough_left(connection: psycopg.Connection) -> bool:
    """Whether more is due than the next figures need."""
    row = connection.execute(
        "SELECT count(*) > %s FROM crawl_tasks WHERE status = 'pending' AND waits_for IS NULL AND scheduled_at <= now()",
        (LIMIT * (ROUNDS + 20),),
    ).fetchone()
    return bool(row and row[0])


def find(connection: psycopg.Connection, turn: int) -> None:
    """Find and lock, and let go: what it costs before anything is written."""
    with connection.transaction(force_rollback=True):
        connection.execute(tasks.DUE, {"priority": 1 + turn % 10, "limit": LIMIT}).fetchall()


def quiet(connection: psycopg.Connection) -> dict[str, float]:
    while tasks.due(connection, 1000):
        pass
    return timed("schedule, nothing due", lambda _: tasks.due(connection, LIMIT))


def results(connection: psycopg.Connection) -> dict[int, TaskStatus]:
    rows = connection.execute("SELECT id, attempt FROM crawl_tasks WHERE status = 'queued' LIMIT 100").fetchall()
    return task_frontier.record_results(
        connection, [CrawlResult(task_id, attempt, http_status=200) for task_id, attempt in rows]
    )


def page(connection: psycopg.Connection, count: int, turn: int) -> object:
    before = count - turn * count // (2 * ROUNDS)
    return task_queries.page(connection, {"status": TaskStatus.COMPLETED}, after=(before,), limit=100)


def restart(connection: psycopg.Connection) -> dict[str, float]:
    times: list[float] = [time.monotonic()]
    done = task_queries.restart_failed(
        connection, RestartFilter(), actor="bench", on_progress=lambda _: times.append(time.monotonic())
    )
    count = done.restarted
    steps = [(after - before) * 1000 for before, after in itertools.pairwise(times)]
    seconds = times[-1] - times[0]
    print(
        f"\nrestart of {count:,} that failed: {seconds:.1f} s, {count / seconds:,.0f} a second, "
        f"progress {len(steps)} times, the longest step {max(steps):.0f} ms"
    )
    return {"tasks": count, "seconds": seconds, "longest_step_ms": max(steps)}


def timed(what: str, call: Callable[[int], object], rounds: int = ROUNDS) -> dict[str, float]:
    times = []
    for turn in range(rounds):
        began = time.monotonic()
        call(turn)
        times.append((time.monotonic() - began) * 1000)
    figures = {"p50": _quantile(times, 0.5), "p99": _quantile(times, 0.99), "most": max(times)}
    print(f"{what:<36}{figures['p50']:>9.1f}{figures['p99']:>9.1f}{figures['most']:>9.1f}{rounds:>7}")
    return figures


def _quantile(times: list[float], part: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


if __name__ == "__main__":
    main()
