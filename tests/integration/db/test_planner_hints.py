"""Settings of the planner: they hold for their statements and for no others, whatever happens."""

from datetime import timedelta

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from holdfast.db.connection import Database
from holdfast.db.planner_hints import fetch_with_settings, limited_to
from holdfast.jobs.queries import jobs
from holdfast.workers import queries as run_lists
from tests.support.factories import Store

SETTINGS = {"enable_sort": "off", "plan_cache_mode": "force_generic_plan"}


def settings(connection: psycopg.Connection) -> list[str]:
    rows = (connection.execute(f"SHOW {name}".encode()).fetchone() for name in SETTINGS)
    return [row[0] for row in rows if row]


def status(connection: psycopg.Connection) -> TransactionStatus:
    return connection.info.transaction_status


SHOW = "SELECT current_setting('enable_sort'), current_setting('plan_cache_mode'), %(more)s::int"


def test_they_end_with_the_statement(store: Store) -> None:
    usual = settings(store.connection)
    for number in range(7):  # more often than it takes until a statement is prepared
        rows = fetch_with_settings(store.connection, SETTINGS, SHOW, {"more": number})
        assert rows == [(*SETTINGS.values(), number)]
        assert settings(store.connection) == usual != list(SETTINGS.values())
        assert status(store.connection) is TransactionStatus.IDLE


def test_rows_are_made_as_somebody_wants_them(store: Store) -> None:
    assert fetch_with_settings(store.connection, SETTINGS, "SELECT 1 AS one", {}, row_factory=dict_row) == [{"one": 1}]


def test_what_goes_wrong_is_told_and_leaves_the_connection_as_it_was(store: Store) -> None:
    usual = settings(store.connection)
    for _ in range(7):
        with pytest.raises(psycopg.errors.DivisionByZero):
            fetch_with_settings(store.connection, SETTINGS, "SELECT 1 / %(zero)s::int", {"zero": 0})
        assert status(store.connection) is TransactionStatus.IDLE
    assert settings(store.connection) == usual


def test_a_connection_that_breaks_is_told_as_that(database: Database) -> None:
    with database.connect() as victim:
        with pytest.raises(psycopg.OperationalError, match="terminat"):
            fetch_with_settings(victim, SETTINGS, f"SELECT pg_terminate_backend({victim.info.backend_pid})", {})
        assert victim.broken


def test_a_transaction_around_it_goes_on(store: Store) -> None:
    usual = settings(store.connection)
    with store.connection.transaction():
        store.new_job("before")
        assert fetch_with_settings(store.connection, SETTINGS, SHOW, {"more": 1}) == [(*SETTINGS.values(), 1)]
        assert settings(store.connection) == usual
        with pytest.raises(psycopg.errors.DivisionByZero):
            fetch_with_settings(store.connection, SETTINGS, "SELECT 1 / 0", {})
        assert settings(store.connection) == usual
        assert status(store.connection) is TransactionStatus.INTRANS
    assert store.value("SELECT count(*) FROM crawl_jobs WHERE name = 'before'") == 1


def test_a_statement_that_takes_too_long_is_cancelled_and_the_transaction_goes_on(store: Store) -> None:
    with store.connection.transaction():
        limit = store.value("SHOW statement_timeout")
        store.new_job("before")
        with pytest.raises(psycopg.errors.QueryCanceled), limited_to(store.connection, timedelta(milliseconds=10)):
            store.connection.execute("SELECT pg_sleep(30)")
        with limited_to(store.connection, timedelta(minutes=1)):
            assert store.value("SHOW statement_timeout") == "1min"
        assert store.value("SHOW statement_timeout") == limit
    assert store.value("SELECT count(*) FROM crawl_jobs WHERE name = 'before'") == 1


def test_a_list_and_a_job_are_planned_once(store: Store) -> None:
    for _ in range(9):
        run_lists.RUNS.page(store.connection, {}, order="newest")
        jobs.get(store.connection, store.job)
    plans = store.connection.execute(
        "SELECT generic_plans > 0, custom_plans FROM pg_prepared_statements WHERE statement ~ 'FROM crawl_runs|out_of_budget'"
    ).fetchall()
    assert plans == [(True, 0), (True, 0)]
