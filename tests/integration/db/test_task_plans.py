"""What the server reads for the questions that are asked of tasks all the time: the index that was made for it, not the table."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast.db import parse_results, tasks
from holdfast.db.tasks import IS_LIVE
from holdfast.tasks import queries as task_queries
from tests.support.tasks import Tasks

FILL = """
INSERT INTO domains (domain, parent_domain, base_url) SELECT 'd' || n || '.example', 'example', 'https://d' FROM generate_series(1, 50) n;
INSERT INTO crawl_batches (name) SELECT 'b' || n FROM generate_series(1, 20) n;
INSERT INTO crawl_tasks (domain_id, url, url_hash, priority, scheduled_at, status, completed_at, next_crawl_at, batch_id)
SELECT d.first + n % 50, 'https://d/' || n, decode(md5(n::text), 'hex'), 1 + n / 7 % 10,
       CASE WHEN s.status = 'queued_parse' THEN now() - make_interval(mins => n) ELSE now() + make_interval(mins => n - 2000) END, s.status,
       CASE WHEN s.status IN ('completed', 'failed', 'cancelled') THEN now() - make_interval(mins => n) END,
       CASE WHEN s.status = 'completed' THEN now() + make_interval(mins => n) END,
       CASE WHEN n % 3 = 0 THEN b.first + n % 20 END
FROM generate_series(1, 20000) n, (SELECT min(id) AS first FROM domains) d, (SELECT min(id) AS first FROM crawl_batches) b,
     LATERAL (SELECT CASE WHEN n % 20 = 0 THEN 'pending' WHEN n % 20 = 1 THEN 'failed' WHEN n % 50 = 2 THEN 'queued_parse'
                          ELSE 'completed' END::task_status AS status) s;
"""


@pytest.fixture
def at(connection: psycopg.Connection) -> Tasks:
    connection.execute("ALTER TABLE crawl_tasks DISABLE TRIGGER USER")
    connection.execute(FILL)
    connection.execute("ALTER TABLE crawl_tasks ENABLE TRIGGER USER")
    connection.execute("VACUUM (ANALYZE) domains, crawl_tasks, crawl_batches")
    return Tasks(connection)


def _many(statuses: str, *filters: str) -> str:
    where = f"AND t.status IN ({statuses})" + "".join(task_queries._FILTERS[name] for name in filters)
    return task_queries._RESTART_MANY.format(where=where)


def _list(*filters: str) -> str:
    (statement,) = task_queries.TASKS.statements(dict.fromkeys(filters), order="newest")
    return statement


KEYS = {
    "priority": 5,
    "limit": 100,
    "chunk": 100,
    "after": 0,
    "before": 2**63 - 1,
    "why": "x",
    "status": "failed",
    "domain": 7,
    "domain_id": 7,
    "batch": 7,
    "batch_id": 7,
    "id": 77,
    "key": b"k" * 16,
}
QUESTIONS = {
    "due": (tasks._TAKE, {"crawl_tasks_due"}),
    "set aside, domain active": (tasks._ACTIVE_AGAIN, {"crawl_tasks_aside"}),
    "set aside, parent completed": (tasks._PARENT_COMPLETED, {"crawl_tasks_freeing"}),
    "all children freed": (tasks._ALL_FREED, {"crawl_tasks_freeing"}),
    "follow up": (tasks._SPAWN, {"crawl_tasks_recurring", "crawl_tasks_url"}),
    "parse": (parse_results._PARSE_DUE, {"crawl_tasks_parse_due"}),
    "restart failed": (_many("'failed'"), {"crawl_tasks_status", "crawl_tasks_url", "crawl_tasks_live"}),
    "restart failed of a domain": (_many("'failed'", "domain_id"), {"crawl_tasks_failed"}),
    "restart a batch": (_many("'completed', 'failed', 'cancelled', 'paused'", "batch_id"), {"crawl_tasks_batch"}),
    "list": (_list(), {"crawl_tasks_pkey"}),
    "list of a status": (_list("status"), {"crawl_tasks_status"}),
    "list of a domain": (_list("domain"), {"crawl_tasks_domain"}),
    "list of a batch": (_list("batch"), {"crawl_tasks_batch"}),
    "history": (task_queries._HISTORY, {"crawl_tasks_url", "task_events_pkey"}),
    "twin": (f"SELECT id FROM crawl_tasks WHERE url_hash = %(key)s AND {IS_LIVE}", {"crawl_tasks_live"}),
    "count by status": (task_queries._COUNTS, {"crawl_tasks_status"}),
}


def test_each_question_reads_its_index_and_never_the_whole_table(at: Tasks) -> None:
    for name, (query, wanted) in QUESTIONS.items():
        with at.connection.transaction(force_rollback=True):
            rows = at.connection.execute(f"EXPLAIN (COSTS OFF) {query}", KEYS).fetchall()
        plan = "\n".join(str(row[0]) for row in rows)
        used = set(re.findall(r"Index (?:Only )?Scan(?: Backward)? (?:on|using) (\w+)", plan))
        assert wanted <= used, f"{name}:\n{plan}"
        assert "Seq Scan on crawl_tasks" not in plan, f"{name}:\n{plan}"


def test_what_ended_lately_is_found_by_its_time(at: Tasks) -> None:
    rows = at.connection.execute(f"EXPLAIN (COSTS OFF) {task_queries._LATELY}", {"span": timedelta(hours=1)}).fetchall()
    assert "crawl_tasks_ended" in str(rows)


def test_the_schedule_looks_at_no_more_than_it_takes_and_at_nothing_of_later(at: Tasks) -> None:
    due = at.value(
        "SELECT count(*) FROM crawl_tasks WHERE status = 'pending' AND priority = 5 AND scheduled_at <= now()"
    )
    assert 3 < due < 1000
    for limit, taken in ((3, 3), (1000, due)):
        with at.connection.transaction(force_rollback=True):
            row = at.connection.execute(
                f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {tasks._TAKE}", KEYS | {"limit": limit}
            ).fetchone()
        assert row
        (scan,) = [node for node in _nodes(row[0][0]["Plan"]) if node.get("Index Name") == "crawl_tasks_due"]
        assert (round(scan["Actual Rows"]), scan.get("Rows Removed by Filter", 0)) == (taken, 0)
        assert "scheduled_at <=" in scan["Index Cond"]


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)
