"""Metrics: every one is documented, shown on the dashboard where it can be, bounded, and equal to the log."""

import json
import math
import re
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from markdown_it import MarkdownIt

from holdfast.alerts.queries import Finding, settle
from holdfast.db import runs, stats
from holdfast.db.connection import Database
from holdfast.model.histograms import COMMIT_MS, FETCH_MS, RunCounts
from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.model.task import TaskStatus
from holdfast.stats.metrics import MAX_WORKERS, Family, collect
from holdfast.stats.service import StatsService
from tests.support.crawled import crawl_a_little
from tests.support.factories import Store
from tests.support.figures import log
from tests.support.tasks import Tasks

ROOT = Path(__file__).parents[3]
SEVEN = {
    *(
        "crawler_pages_fetched_total",
        "crawler_pages_per_second",
        "crawler_fetch_success_rate",
        "crawler_http_status_2xx",
    ),
    *("crawler_frontier_size", "crawler_robots_denials", "crawler_active_workers"),
}


def found(database: Database) -> dict[str, Family]:
    families = collect(database)
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families}


def value(family: Family, **labels: str) -> float:
    (sample,) = [sample for sample in family.samples if dict(sample.labels) == labels]
    return sample.value


def by_label(family: Family) -> dict[str, float]:
    return {label: sample.value for sample in family.samples for _, label in sample.labels}


def parts(family: Family) -> tuple[list[float], float, float]:
    """Of a histogram: its buckets, sum and count."""
    buckets = [sample.value for sample in family.samples if sample.suffix == "_bucket"]
    (total,) = [sample.value for sample in family.samples if sample.suffix == "_sum"]
    (count,) = [sample.value for sample in family.samples if sample.suffix == "_count"]
    return buckets, total, count


# What there is --------------------------------------------------------------------------------------------------------


def documented() -> list[tuple[str, ...]]:
    """The rows of docs/metrics.md: name, kind, labels, sentence."""
    page = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    cells = [inside.content for at, inside in pairwise(tokens) if at.type == "td_open"]
    first = [number for number, cell in enumerate(cells) if re.fullmatch(r"`(crawler|holdfast)_\w+`", cell)]
    return [(cells[n].strip("`"), cells[n + 1], cells[n + 2], cells[n + 3]) for n in first]


def test_every_metric_is_documented_as_it_is(database: Database, connection: psycopg.Connection, store: Store) -> None:
    connection.execute("INSERT INTO workers (name, host, pid) VALUES ('w1', 'h', 1)")
    runs.begin(connection, worker="w1")
    crawl_a_little(database, store)
    rows = [
        (
            family.name,
            family.kind,
            ", ".join(dict.fromkeys(name for sample in family.samples for name, _ in sample.labels)),
            family.help,
        )
        for family in collect(database)
    ]
    assert documented() == rows
    assert {row[0] for row in rows} > SEVEN


def test_names_and_labels_are_ones_that_prometheus_takes(database: Database) -> None:
    for family in collect(database):
        assert re.fullmatch(r"(crawler|holdfast)_[a-z0-9_]+", family.name)
        assert family.help.endswith(".")
        assert (family.kind == "counter") == (
            family.name.endswith("_total") or bool(re.search(r"_robots_denials$|_status_\dxx$", family.name))
        )
        for sample in family.samples:
            assert all(re.fullmatch(r"[a-z]+", name) for name, _ in sample.labels)
            assert sample.suffix in ({"_bucket", "_sum", "_count"} if family.kind == "histogram" else {""})


def expressions(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [str(text) for key, text in node.items() if key in {"expr", "definition"}]
        return own + [text for inner in node.values() for text in expressions(inner)]
    return [text for inner in node for text in expressions(inner)] if isinstance(node, list) else []


def series(database: Database) -> set[str]:
    """The names that can be asked for."""
    return {family.name + sample.suffix for family in collect(database) for sample in family.samples} | {
        "holdfast_heartbeat_age_seconds",
        "crawler_http_status_total",
    }


def test_the_dashboard_shows_metrics_that_there_are(database: Database) -> None:
    board = json.loads((ROOT / "deploy" / "grafana" / "holdfast.json").read_text("utf-8"))
    asked = expressions(board)
    named = {name for text in asked for name in re.findall(r"\b(?:crawler|holdfast)_\w+", text)}
    assert len(asked) > 30
    assert named - series(database) == set()
    shown = {re.sub(r"_bucket$", "", name) for name in named}
    left_out = {family.name for family in collect(database)} - shown
    assert left_out == {"crawler_http_status_total", "crawler_http_status_1xx", "holdfast_build_info"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert all(panel["targets"] for panel in board["panels"] if panel["type"] != "row")


def test_the_rules_name_metrics_that_there_are(database: Database) -> None:
    text = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text("utf-8")
    named = set(re.findall(r"\b(?:crawler|holdfast)_\w+", text))
    assert len(named) >= 5
    assert named - series(database) == set()


# What they say --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("added_up", [False, True])
def test_counters_equal_the_log(
    database: Database, store: Store, connection: psycopg.Connection, added_up: bool
) -> None:
    crawl_a_little(database, store)
    log(connection, Outcome.SERVER_ERROR, count=4, at="now() - interval '1 hour'", status=503, ms=40_000)
    log(connection, Outcome.CLIENT_ERROR, at="now() - interval '1 hour'", status=999)
    if added_up:
        stats.fold(connection, every=stats.EVERY * 0, fresh=-stats.FRESH)
    now = found(database)
    logged: dict[str, int] = dict(
        connection.execute("SELECT outcome, count(*) FROM crawl_log GROUP BY outcome").fetchall()
    )
    outcomes = by_label(now["holdfast_outcomes_total"])
    assert {name: count for name, count in outcomes.items() if count} == logged
    assert set(outcomes) == {str(o) for o in Outcome if TREATMENT[o].state is not UrlState.DENIED}
    assert value(now["crawler_pages_fetched_total"]) == logged["ok"] == 3
    assert value(now["holdfast_requests_total"]) == sum(logged.values())
    assert value(now["holdfast_errors_total"]) == 6
    codes = by_label(now["crawler_http_status_total"])
    assert codes == {"200": 3, "404": 1, "503": 4, "other": 1}
    assert [value(now[f"crawler_http_status_{n}xx"]) for n in range(1, 6)] == [0, 3, 0, 1, 4]
    assert value(now["holdfast_bytes_total"]) == store.value("SELECT sum(bytes) FROM crawl_log")
    buckets, total, count = parts(now["holdfast_fetch_seconds"])
    assert (len(buckets), buckets[-1], count) == (len(FETCH_MS) + 1, 6, 6), "one had a time, and five of the log"
    assert buckets == sorted(buckets)
    assert buckets[-2] == 2
    assert total == pytest.approx(0.042 + 4 * 40 + 0.04)
    assert value(now["holdfast_claims_acquired_total"]) == 1
    assert by_label(now["holdfast_claims_ended_total"])["released"] == 1


def test_what_workers_report_is_there_at_once_and_stays(database: Database, connection: psycopg.Connection) -> None:
    run = runs.begin(connection, worker="w1")
    latency = [0] * (len(COMMIT_MS) + 1)
    latency[3], latency[-1] = 7, 1
    runs.heartbeat(connection, run, in_window=0, counts=RunCounts(5, 2, 3, 8, 20_500, tuple(latency)))
    for _ in range(2):
        now = found(database)
        assert value(now["holdfast_lease_renewals_total"]) == 5
        assert value(now["holdfast_fenced_writes_total"]) == 2
        assert value(now["crawler_robots_denials"]) == 3
        assert value(now["holdfast_commits_total"]) == 8
        buckets, total, count = parts(now["holdfast_commit_seconds"])
        assert (buckets[2:5], buckets[-2:], total, count) == ([0, 7, 7], [7, 8], 20.5, 8)
        runs.end(connection, run, error=None)
        stats.fold(connection, every=stats.EVERY * 0)
    ends = [sample.labels[0][1] for sample in found(database)["holdfast_commit_seconds"].samples[: len(COMMIT_MS) + 1]]
    assert (ends[0], ends[3], ends[-2], ends[-1]) == ("0.001", "0.01", "10", "+Inf")


def test_gauges_say_how_things_stand(database: Database, store: Store, connection: psycopg.Connection) -> None:
    store.domains(3)
    connection.execute(
        "INSERT INTO workers (name, host, pid, heartbeat_at) VALUES ('w1', 'h', 1, now() - interval '5 minutes')"
    )
    claim = store.claim_one()
    connection.execute(
        "UPDATE domains SET claim_expires_at = now() - interval '90 s' WHERE id = %s", (claim.domain_id,)
    )
    tasks = Tasks(connection)
    tasks.bring(tasks.one("a.example/x"), TaskStatus.CANCELLED)
    tasks.one("a.example/y")
    connection.execute(
        "INSERT INTO proxies (proxy_url, proxy_port, failure_count, is_active, disabled_by) VALUES ('a', 1, 0, true, NULL), "
        "('b', 1, 5, true, NULL), ('c', 1, 10, false, 'health'), ('d', 1, 0, false, 'operator')"
    )
    connection.execute(
        "INSERT INTO webhook_deliveries (task_id, task_version, event, url, body, next_attempt_at, gave_up_at) VALUES "
        "(1, 1, 'e', 'u', '{}', now(), NULL), (2, 1, 'e', 'u', '{}', now() + interval '1 h', NULL), (3, 1, 'e', 'u', '{}', NULL, now())"
    )
    connection.execute(
        "INSERT INTO procrastinate.procrastinate_jobs (queue_name, task_name, args) VALUES ('parse', 'parse', '{}')"
    )
    with connection.transaction():
        settle(connection, [Finding("worker_silent", "w1", 300)], kinds=["worker_silent"], webhook_url=None)
    now = found(database)
    assert value(now["crawler_frontier_size"]) == 3
    assert value(now["crawler_active_workers"]) == 0
    assert math.isnan(value(now["crawler_fetch_success_rate"]))
    assert by_label(now["holdfast_domains"]) == {
        "pending": 4,
        "active": 0,
        "exhausted": 0,
        "blocked": 0,
        "unreachable": 0,
    }
    assert (value(now["holdfast_claims_held"]), value(now["holdfast_claims_expired"])) == (1, 1)
    assert 90 <= value(now["holdfast_oldest_expired_claim_seconds"]) < 1000
    assert by_label(now["holdfast_tasks_due"]) == {"crawl": 1, "parse": 0}
    assert by_label(now["holdfast_tasks"])["cancelled"] == 1
    assert by_label(now["holdfast_jobs"])["pending"] == 2
    assert value(now["holdfast_queue_jobs"], queue="parse", state="todo") == 1
    assert len(now["holdfast_queue_jobs"].samples) == 6
    assert by_label(now["holdfast_proxies"]) == {"active": 1, "failing": 1, "failed": 1, "disabled": 1}
    assert by_label(now["holdfast_webhook_messages"]) == {"waiting": 1, "due": 1, "given_up": 1}
    assert by_label(now["holdfast_alerts"])["worker_silent"] == 1
    assert by_label(now["holdfast_workers"]) == {"active": 0, "silent": 1}
    assert 300 <= value(now["holdfast_heartbeat_age_max_seconds"]) < 2000
    assert set(by_label(now["holdfast_heartbeat_age_seconds"])) == {"w1"}
    assert value(now["holdfast_database_bytes"]) > 1_000_000
    assert value(now["holdfast_fresh_rows"]) == store.value("SELECT count(*) FROM stats_fresh")
    assert math.isnan(value(now["holdfast_tick_age_seconds"]))


def test_the_pace_is_the_same_in_metrics_and_statistics(database: Database, connection: psycopg.Connection) -> None:
    log(connection, count=90, at="date_bin('10 seconds', now(), 'epoch') - interval '20 seconds'")
    log(
        connection,
        Outcome.TIMEOUT,
        count=30,
        at="date_bin('10 seconds', now(), 'epoch') - interval '20 seconds'",
        status=None,
    )
    now, snapshot = found(database), StatsService(database).snapshot()
    assert value(now["crawler_pages_per_second"]) == snapshot.pages_per_second == 1.5
    assert value(now["crawler_fetch_success_rate"]) == snapshot.success_rate == 0.75


def test_with_too_many_workers_none_is_named(database: Database, connection: psycopg.Connection) -> None:
    connection.execute(
        "INSERT INTO workers (name, host, pid) SELECT 'w' || n, 'h', 1 FROM generate_series(1, %s) n", (MAX_WORKERS,)
    )
    connection.execute("INSERT INTO crawl_runs (worker) SELECT name FROM workers")
    assert len(found(database)["holdfast_heartbeat_age_seconds"].samples) == MAX_WORKERS
    connection.execute("INSERT INTO workers (name, host, pid) VALUES ('one more', 'h', 1)")
    connection.execute("INSERT INTO crawl_runs (worker) VALUES ('one more')")
    now = found(database)
    assert now["holdfast_heartbeat_age_seconds"].samples == ()
    assert value(now["crawler_active_workers"]) == MAX_WORKERS + 1
    assert value(now["holdfast_heartbeat_age_max_seconds"]) >= 0


def test_what_the_web_writes_is_in_no_label(database: Database, store: Store, connection: psycopg.Connection) -> None:
    crawl_a_little(database, store)
    connection.execute("INSERT INTO proxies (proxy_url, proxy_port) VALUES ('secret-proxy.example', 1)")
    labels = " ".join(label for family in collect(database) for sample in family.samples for _, label in sample.labels)
    assert "example" not in labels
    assert sum(len(family.samples) for family in collect(database)) < 200
