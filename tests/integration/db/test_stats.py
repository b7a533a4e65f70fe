"""Every request counts once: in its minute, its day and the totals, whenever its row came and whoever adds it up."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast.db import periodic_locks, stats
from holdfast.db.connection import Database
from holdfast.db.verify import CHECKS, verify
from holdfast.model.histograms import FETCH_MS, bucket_index
from holdfast.model.outcome import PAGES, TREATMENT, Outcome
from holdfast.stats.records import Host
from tests.support.crawled import Crawl, crawl_a_little
from tests.support.factories import Store
from tests.support.figures import counted, fold, log, of_requests, rows, totals, within_a_minute

AT_ONCE = timedelta(0)
ERRORS = {outcome for outcome, treatment in TREATMENT.items() if treatment.error}


@pytest.fixture
def crawl(database: Database, store: Store) -> Crawl:
    return crawl_a_little(database, store)


def test_counters_are_what_the_log_says_before_and_after_they_are_added_up(
    crawl: Crawl, connection: psycopg.Connection
) -> None:
    log(connection, Outcome.TIMEOUT, count=3, status=None, ms=30_001, size=None)
    log(connection, Outcome.OK, count=2, ms=None, status=203)
    expected = counted(connection)
    assert expected["outcome", "ok"] == 5
    assert of_requests(totals(connection)) == expected
    assert fold(connection) > 0
    assert connection.execute("SELECT count(*) FROM stats_fresh").fetchone() == (0,)
    assert of_requests(totals(connection)) == expected
    assert fold(connection) == 0
    log(connection, Outcome.NOT_FOUND, status=404)
    assert of_requests(totals(connection)) == counted(connection)


def test_what_verify_says_of_figures_holds_whatever_is_added_up(crawl: Crawl, connection: psycopg.Connection) -> None:
    figures = {name: query for name, query in CHECKS.items() if "figures" in name or "totals" in name}
    assert len(figures) == 2
    log(connection, at="now() - interval '30 days'", count=2)
    log(connection, Outcome.TIMEOUT, at="now() - interval '6 days'", count=3, status=None, size=None)
    for _ in range(3):
        assert [one for one in verify(connection, retries=3, checks=figures) if one.faults] == []
        fold(connection)
        log(connection, at="now() - interval '6 days'")
    connection.execute("UPDATE stats_minute SET pages = pages + 1")
    connection.execute("UPDATE stats_total SET value = value - 1 WHERE label = 'ok'")
    assert [one.faults > 0 for one in verify(connection, retries=3, checks=figures)] == [True, True]
    connection.execute("DELETE FROM crawl_log WHERE crawled_at > now() - interval '20 days'")
    (_, minutes) = sorted(verify(connection, retries=3, checks=figures), key=lambda one: "minute" in one.check)
    assert minutes.faults > 0, "what is missing in the middle of the log is missing"
    connection.execute("TRUNCATE crawl_log")
    (_, minutes) = sorted(verify(connection, retries=3, checks=figures), key=lambda one: "minute" in one.check)
    assert minutes.faults == 0, "a log that was dropped is no measure"


@pytest.mark.parametrize("ms", [*(b + d for b in FETCH_MS for d in (-1, 0, 1)), 0, 2**31 - 1])
def test_buckets_are_the_same_in_the_database(connection: psycopg.Connection, ms: int) -> None:
    assert connection.execute("SELECT fetch_bucket(%s)", (ms,)).fetchone() == (bucket_index(FETCH_MS, ms),)


def test_minutes_and_days_have_what_was_crawled_in_them(connection: psycopg.Connection) -> None:
    minute = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=10)
    log(connection, Outcome.OK, count=4, at=minute, ms=5, size=10)
    log(connection, Outcome.OK, count=1, at=minute + timedelta(seconds=59), ms=30_001, size=1)
    log(connection, Outcome.SERVER_ERROR, at=minute + timedelta(seconds=30), status=500, ms=6, size=None)
    log(connection, Outcome.TIMEOUT, at=minute + timedelta(minutes=1), status=None, ms=100, size=None)
    fold(connection)
    first, second = rows(connection, "stats_minute")
    assert (first["at"], second["at"]) == (minute, minute + timedelta(minutes=1))
    assert (first["requests"], first["pages"], first["errors"], first["bytes"]) == (6, 5, 1, 41)
    assert (first["outcomes"], first["statuses"]) == ({"ok": 5, "server_error": 1}, {"200": 5, "500": 1})
    assert first["latency"] == [4, 1, *([0] * 10), 1]
    assert first["latency_ms"] == 4 * 5 + 30_001 + 6
    assert (second["requests"], second["pages"], second["errors"], second["statuses"]) == (1, 0, 1, {})
    days = rows(connection, "stats_day")
    assert sum(day["requests"] for day in days) == 7
    assert minute.replace(hour=0, minute=0) in {day["at"] for day in days}
    assert (first["frontier_size"], first["active_workers"], first["domains"]) == (None, None, None)


def test_a_row_that_comes_late_is_added_to_its_minute(connection: psycopg.Connection) -> None:
    """A worker that could not commit for an hour says when it fetched."""
    then = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)
    log(connection, at=then, count=2)
    fold(connection)
    log(connection, Outcome.NOT_FOUND, at=then + timedelta(seconds=1), status=404, count=3)
    fold(connection)
    (minute,) = rows(connection, "stats_minute")
    assert (minute["requests"], minute["outcomes"]) == (5, {"ok": 2, "not_found": 3})
    assert of_requests(totals(connection)) == counted(connection)


def test_what_is_older_than_a_week_is_in_its_day_only(connection: psycopg.Connection) -> None:
    log(connection, at="now() - interval '8 days'", count=2)
    fold(connection)
    assert rows(connection, "stats_minute") == []
    (day,) = rows(connection, "stats_day")
    assert (day["requests"], day["at"].hour, day["at"].minute) == (2, 0, 0)
    assert of_requests(totals(connection)) == counted(connection)


def test_minutes_age_out_and_days_stay(connection: psycopg.Connection) -> None:
    log(connection, at="now() - interval '1 hour'", count=2)
    fold(connection)
    connection.execute("UPDATE stats_minute SET at = at - interval '7 days'")
    log(connection, at="now() - interval '1 hour'", count=3)
    fold(connection)
    assert stats.trim(connection) == 1
    assert [minute["requests"] for minute in rows(connection, "stats_minute")] == [3]
    assert sum(day["requests"] for day in rows(connection, "stats_day")) == 5


def test_what_is_fresh_waits_and_a_second_tick_does_nothing(connection: psycopg.Connection) -> None:
    log(connection)
    log(connection, at="now() - interval '10 minutes'")
    assert stats.fold(connection).rows == 1, "the other one is of this minute"
    log(connection, at="now() - interval '10 minutes'")
    assert stats.fold(connection).rows == 0, "somebody did it a moment ago"
    assert of_requests(totals(connection)) == counted(connection)


def test_one_at_a_time_adds_up_and_what_it_did_not_finish_is_as_it_was(
    connection: psycopg.Connection, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    log(connection, at="now() - interval '10 minutes'", count=2)
    with database.connect() as other, other.transaction():
        assert periodic_locks.try_lock(other, periodic_locks.STATS, every=AT_ONCE)
        assert fold(connection) == 0
    before = totals(connection)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(periodic_locks, "mark_done", die)
        with pytest.raises(KeyboardInterrupt):
            fold(connection)
    assert rows(connection, "stats_minute") == rows(connection, "stats_day") == []
    assert totals(connection) == before
    assert fold(connection) == 1
    assert totals(connection) == before


def test_after_a_standstill_it_catches_up_in_pieces(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minutes in range(25):
        log(connection, at=f"now() - interval '{minutes + 3} minutes'", count=2)
    monkeypatch.setattr(stats, "CHUNK", 7)
    assert fold(connection) == 25
    assert sum(minute["requests"] for minute in rows(connection, "stats_minute")) == 50
    assert of_requests(totals(connection)) == counted(connection)


def test_whoever_adds_up_while_others_crawl_counts_everything_once(database: Database) -> None:
    """Four crawl and three add up as fast as they can; a fourth reads, and never sees a counter go down."""
    crawling = threading.Barrier(4)
    over = threading.Event()
    problems: list[BaseException] = []
    seen: list[int] = []

    def crawl(number: int) -> None:
        with database.connect() as connection:
            crawling.wait()
            for step in range(40):
                with connection.transaction(force_rollback=step % 10 == 9):
                    log(connection, count=number + 1, at=f"now() - interval '{step % 5} minutes'")

    def add_up() -> None:
        with database.connect() as connection:
            while not over.is_set():
                fold(connection)

    def read() -> None:
        with database.connect() as connection:
            while not over.is_set():
                seen.append(totals(connection).get(("outcome", "ok"), 0))

    def guarded(work: Any, *arguments: object) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except BaseException as problem:  # noqa: BLE001 — handed to the test
                problems.append(problem)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    helpers = [guarded(add_up) for _ in range(3)] + [guarded(read)]
    for thread in [guarded(crawl, number) for number in range(4)]:
        thread.join()
    over.set()
    for thread in helpers:
        thread.join()
    assert problems == []
    assert seen == sorted(seen), "a counter went down"
    with database.connect() as connection:
        assert counted(connection)["outcome", "ok"] == 36 * (1 + 2 + 3 + 4)
        assert of_requests(totals(connection)) == counted(connection)
        fold(connection)
        assert of_requests(totals(connection)) == counted(connection)
        assert sum(minute["requests"] for minute in rows(connection, "stats_minute")) == 360


# Samples and series ---------------------------------------------------------------------------------------------------


def test_a_sample_is_of_the_minute_before_and_only_where_something_runs(connection: psycopg.Connection) -> None:
    stats.sample(connection, frontier_size=9, active_workers=0, domains={})
    assert rows(connection, "stats_minute") == rows(connection, "stats_day") == []
    within_a_minute(connection)
    log(connection, at="date_bin('1 minute', now(), 'epoch') - interval '1 second'")
    fold(connection)
    stats.sample(connection, frontier_size=7, active_workers=0, domains={"active": 1})
    (minute,) = rows(connection, "stats_minute")
    assert (minute["requests"], minute["frontier_size"], minute["domains"]) == (1, 7, {"active": 1})
    stats.sample(connection, frontier_size=5, active_workers=3, domains={})
    stats.sample(connection, frontier_size=4, active_workers=2, domains={})
    last = rows(connection, "stats_minute")[-1]
    assert (last["frontier_size"], last["active_workers"]) == (4, 2)
    assert [(day["frontier_size"], day["active_workers"]) for day in rows(connection, "stats_day")][-1] == (4, 3)


def test_the_pace_is_of_the_last_minute(connection: psycopg.Connection) -> None:
    log(connection, count=5, at="date_bin('10 seconds', now(), 'epoch') - interval '5 seconds'", size=7)
    log(
        connection,
        Outcome.TIMEOUT,
        count=2,
        at="date_bin('10 seconds', now(), 'epoch') - interval '35 seconds'",
        size=1,
    )
    log(connection, count=100, at="date_bin('10 seconds', now(), 'epoch') - interval '90 seconds'")

    def lately() -> dict[tuple[str, str], int]:
        return {key: count.lately for key, count in stats.counters(connection).items() if count.lately}

    expected = {("outcome", "ok"): 5, ("outcome", "timeout"): 2, ("bytes", ""): 37}
    assert lately() == expected
    assert stats.fold(connection, every=AT_ONCE).rows == 1
    assert lately() == expected, "what is fresh stays where it is"


@pytest.mark.parametrize("added_up", [False, True])
def test_a_series_has_what_is_added_up_and_what_is_fresh(connection: psycopg.Connection, added_up: bool) -> None:
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    log(connection, count=3, at=hour + timedelta(minutes=1), ms=7)
    fold(connection)
    log(connection, Outcome.SERVER_ERROR, count=2, at=hour + timedelta(minutes=1), status=500, ms=7)
    log(connection, count=1, at=hour + timedelta(minutes=59), status=304, ms=60_000)
    log(connection, count=8, at=hour + timedelta(hours=1))
    if added_up:
        fold(connection)
    span = {"since": hour, "until": hour + timedelta(hours=1)}
    first, last = stats.series(connection, **span, step=timedelta(minutes=5), days=False)
    assert (first.start, first.requests, first.pages, first.errors) == (hour, 5, 3, 2)
    assert (first.classes, first.latency) == ({"2": 3, "5": 2}, [0, 5, *([0] * 11)])
    assert (last.start, last.requests) == (hour + timedelta(minutes=55), 1)
    (whole,) = stats.series(connection, **span, step=timedelta(hours=1), days=False)
    assert (whole.requests, whole.classes) == (6, {"2": 3, "3": 1, "5": 2})
    assert stats.status_codes(connection, **span, days=False) == {200: 3, 304: 1, 500: 2}
    day = hour.replace(hour=0)
    by_day = stats.series(connection, since=day, until=day + timedelta(days=2), step=timedelta(days=1), days=True)
    assert sum(row.requests for row in by_day) == 14


def test_hosts_are_those_with_most_pages(crawl: Crawl, connection: psycopg.Connection) -> None:
    (host,) = stats.hosts(connection, span=timedelta(hours=1), limit=5)
    assert host == Host("example.com", pages=3, requests=5, errors=1, bytes=900)
    assert set(PAGES) == {"ok", "not_modified"}
    assert Outcome.TIMEOUT in ERRORS
