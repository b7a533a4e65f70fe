"""What runs and claims count, what was crawled before there were figures, and the log by time."""

from datetime import timedelta

import psycopg
import pytest

from holdfast.db import claims, runs, stats, sweeper
from holdfast.db.connection import Database
from holdfast.model.histograms import RunCounts
from tests.support.factories import LEASE, Store
from tests.support.figures import fold, log, rows, totals


def test_what_a_run_counts_by_itself_is_counted_once(connection: psycopg.Connection, store: Store) -> None:
    first, second = (runs.begin(connection, worker=name) for name in ("w1", "w2"))
    runs.heartbeat(connection, first, in_window=0, counts=RunCounts(5, 1, 2, 10, 70, (4, 6)))
    runs.heartbeat(
        connection, first, in_window=0, counts=RunCounts(5, 1, 2, 10, 70, (4, 6))
    )  # its answer had been lost
    runs.heartbeat(connection, second, in_window=0, counts=RunCounts(1, 0, 0, 1, 3, (0, 0, 1)))
    expected = {
        ("lease_renewals", ""): 6,
        ("fenced_writes", ""): 1,
        ("robots_denied", ""): 2,
        ("commits", ""): 11,
        ("commit_ms", ""): 73,
        ("commit_bucket", "0"): 4,
        ("commit_bucket", "1"): 6,
        ("commit_bucket", "2"): 1,
    }
    assert totals(connection).items() >= expected.items()
    fold(connection)
    assert totals(connection).items() >= expected.items()
    runs.end(connection, first, error=None, counts=RunCounts(7, 1, 3, 12, 80, (5, 7)))
    fold(connection)
    fold(connection)
    after = totals(connection)
    assert (after["lease_renewals", ""], after["commits", ""], after["commit_bucket", "0"]) == (8, 13, 5)
    assert store.value("SELECT count(*) FROM crawl_runs WHERE NOT settled") == 1
    assert sum(row["robots_denied"] for row in rows(connection, "stats_minute")) == 3
    assert sum(row["robots_denied"] for row in rows(connection, "stats_day")) == 3


def test_a_run_that_was_given_up_and_lives_after_all_is_counted_on(
    connection: psycopg.Connection, store: Store
) -> None:
    run = runs.begin(connection, worker="w1")
    runs.heartbeat(connection, run, in_window=0, counts=RunCounts(commits=5))
    runs.fail_silent(connection, older_than=timedelta(0), message="silent")
    fold(connection)
    assert store.value("SELECT settled FROM crawl_runs") is True
    runs.heartbeat(connection, run, in_window=0, counts=RunCounts(commits=8))
    assert totals(connection)["commits", ""] == 8
    fold(connection)
    assert totals(connection)["commits", ""] == 8
    assert store.value("SELECT settled FROM crawl_runs") is True


def test_claims_are_counted_by_how_they_ended(store: Store, connection: psycopg.Connection) -> None:
    store.domains(5)
    taken = store.claim(count=5)
    store.release(taken[0], crawled=False)
    store.expire(taken[1].domain_id)
    assert sweeper.release_expired(connection) == 1
    claims.reclaim(connection, worker="w1", lease=LEASE, exclude=[claim.domain_id for claim in taken[3:]])
    assert sweeper.force_release(connection, worker="w1") == 3

    def of_claims() -> dict[str, int]:
        return {label: value for (name, label), value in totals(connection).items() if name == "claim"}

    expected = {"acquired": 6, "released": 1, "expired": 1, "reclaimed": 1, "forced": 3}
    assert of_claims() == expected
    assert store.value("SELECT count(*) FROM claim_log") == 6
    fold(connection)
    assert of_claims() == expected


# The schema -----------------------------------------------------------------------------------------------------------


def test_every_partition_of_the_log_can_be_read_by_time(connection: psycopg.Connection) -> None:
    connection.execute("SELECT ensure_crawl_log_partitions(7)")
    partitions = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'crawl_log'::regclass"
    )
    indexed = connection.execute(
        "SELECT i.indrelid::regclass::text FROM pg_index i JOIN pg_inherits h ON h.inhrelid = i.indexrelid "
        "WHERE h.inhparent = 'crawl_log_time'::regclass"
    )
    assert sorted(partitions) == sorted(indexed)
    log(connection, count=500)
    with connection.transaction():
        connection.execute("SET LOCAL enable_seqscan = off")
        query = "EXPLAIN SELECT count(*) FROM crawl_log WHERE crawled_at > now() - interval '1 minute'"
        plan = "\n".join(row[0] for row in connection.execute(query))
    assert "Bitmap Index Scan" in plan
    assert "crawled_at_idx" in plan


def test_a_partition_that_is_made_late_takes_its_rows_and_none_is_counted_again(connection: psycopg.Connection) -> None:
    """Rows of a week that had no partition lie in the default one, and move."""
    log(connection, at="now() + interval '70 days'", count=3)
    before = totals(connection)
    connection.execute("SELECT ensure_crawl_log_partitions(12)")
    assert connection.execute("SELECT count(*) FROM crawl_log_default").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM crawl_log").fetchone() == (3,)
    assert totals(connection) == before


def test_a_statement_that_takes_too_long_is_a_fault_and_not_waited_for(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever calls it would take a time limit for a database that is away, and ask forever."""
    log(connection, at="now() - interval '1 hour'")
    connection.execute("SET statement_timeout = '200ms'")
    with monkeypatch.context() as patch:
        patch.setattr(stats, "_FOLD_RUNS", "SELECT pg_sleep(30)")
        (fault,) = stats.fold(connection, every=timedelta(0)).faults
    connection.execute("RESET statement_timeout")
    assert fault == "Periodic work 'figures' failed: canceling statement due to statement timeout."
    assert rows(connection, "stats_minute") == []
    assert fold(connection) == 1


def test_a_database_that_is_away_is_no_fault(database: Database) -> None:
    with database.connect() as connection, database.connect() as other:
        other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
        with pytest.raises(psycopg.OperationalError):
            stats.fold(connection, every=timedelta(0))
