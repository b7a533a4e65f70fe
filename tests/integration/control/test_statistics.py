"""Statistics as people ask for them: how things stand, series without gaps, answers, hosts."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast.alerts.queries import Finding, settle
from holdfast.control.maintenance import Maintenance
from holdfast.db import runs, stats
from holdfast.db.connection import Database
from holdfast.errors import UsageError
from holdfast.model.outcome import Outcome
from holdfast.model.task import TaskStatus
from holdfast.stats.service import StatsService
from tests.support.crawled import HOME, crawl_a_little
from tests.support.factories import Store
from tests.support.figures import log, within_a_minute
from tests.support.tasks import Tasks

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def desk(database: Database) -> StatsService:
    return StatsService(database, fresh_for=0)


def test_a_store_without_anything(desk: StatsService) -> None:
    found = desk.snapshot()
    assert (found.pages_total, found.pages_per_second, found.success_rate, found.frontier_size) == (0, 0.0, None, 0)
    assert found.domains == {"pending": 0, "active": 0, "exhausted": 0, "blocked": 0, "unreachable": 0}
    assert found.jobs["pending"] == 2, "the standing ones"
    assert (found.workers_active, found.workers_silent, found.runs, found.claims, found.alerts) == (0, 0, 0, 0, 0)
    assert set(found.tasks) == set(TaskStatus)


def test_how_things_stand(desk: StatsService, database: Database, store: Store, connection: psycopg.Connection) -> None:
    crawl = crawl_a_little(database, store)
    log(connection, Outcome.TIMEOUT, count=6, at="date_bin('10 seconds', now(), 'epoch') - interval '10 seconds'")
    log(connection, count=18, at="date_bin('10 seconds', now(), 'epoch') - interval '20 seconds'", size=100)
    connection.execute(
        "INSERT INTO workers (name, host, pid, heartbeat_at) VALUES ('w1', 'h', 1, now()), ('w2', 'h', 1, now() - interval '3 minutes')"
    )
    runs.begin(connection, worker="w2")
    store.domains(4)
    first, _ = store.claim("w2", 2)
    store.expire(first.domain_id)
    tasks = Tasks(connection)
    tasks.bring(tasks.one(), TaskStatus.CANCELLED)
    with connection.transaction():
        settle(connection, [Finding("backlog", "", 1.0)], kinds=["backlog"], webhook_url=None)
    found = desk.snapshot()
    assert (found.pages_total, found.requests_total, found.errors_total) == (21, 29, 7)
    assert found.bytes_total == 900 + 18 * 100 + 6 * 1000
    assert found.pages_per_second >= 18 / 60
    assert found.success_rate is not None
    assert 0.6 < found.success_rate < 0.8
    assert found.frontier_size == store.value("SELECT count(*) FROM url_frontier WHERE state = 'waiting'") == 6
    assert sum(found.domains.values()) == store.value("SELECT count(*) FROM domains")
    assert (found.workers_active, found.workers_silent, found.runs) == (1, 1, 2)
    assert (found.claims, found.claims_expired, found.alerts, found.tasks["cancelled"]) == (2, 1, 1, 1)
    assert crawl.run_id


def test_a_snapshot_serves_for_a_second(database: Database, connection: psycopg.Connection) -> None:
    desk = StatsService(database, fresh_for=3600)
    first = desk.snapshot()
    log(connection)
    assert desk.snapshot() is first
    assert StatsService(database).snapshot().requests_total == 1


# Series ---------------------------------------------------------------------------------------------------------------


def test_a_series_has_no_gaps(desk: StatsService, connection: psycopg.Connection) -> None:
    within_a_minute(connection)
    minute = datetime.now(UTC).replace(second=0, microsecond=0)
    log(connection, count=6, at=minute - timedelta(minutes=10), ms=20, size=50)
    log(connection, Outcome.SERVER_ERROR, count=2, at=minute - timedelta(minutes=10), status=503, ms=400, size=None)
    log(connection, count=3, at=minute)
    stats.fold(connection, every=timedelta(0))
    found = desk.timeseries(minute - timedelta(minutes=30))
    assert [point.at for point in found] == [minute - timedelta(minutes=ago) for ago in range(30, -1, -1)]
    busy, last, quiet = found[20], found[-1], found[0]
    assert (busy.pages, busy.requests, busy.errors, busy.bytes, busy.seconds) == (6, 8, 2, 300, 60.0)
    assert (busy.success_rate, busy.pages_per_second) == (0.75, 0.1)
    assert busy.statuses == {"1xx": 0, "2xx": 6, "3xx": 0, "4xx": 0, "5xx": 2}
    assert busy.latency_p50_ms == pytest.approx(10 + 15 * 4 / 6)
    assert busy.latency_p95_ms is not None
    assert 250 < busy.latency_p95_ms <= 500
    assert (last.pages, quiet.pages, quiet.success_rate, quiet.latency_p50_ms) == (3, 0, None, None)
    assert last.seconds < 60
    assert sum(quiet.statuses.values()) == 0
    by_five = desk.timeseries(minute - timedelta(minutes=30), minute, timedelta(minutes=5))
    assert sum(point.requests for point in by_five) == 8
    assert all(point.at.minute % 5 == 0 for point in by_five)


def test_a_series_shows_what_was_seen_at_the_end_of_minutes(
    desk: StatsService, connection: psycopg.Connection, store: Store
) -> None:
    within_a_minute(connection)
    store.domains(3)
    connection.execute("INSERT INTO workers (name, host, pid) VALUES ('w1', 'h', 1)")
    runs.begin(connection, worker="w1")
    assert Maintenance().sample(connection)
    assert not Maintenance().sample(connection), "once a minute"
    now = datetime.now(UTC)
    (point,) = [one for one in desk.timeseries(now - timedelta(minutes=3)) if one.frontier_size is not None]
    assert (point.frontier_size, point.active_workers) == (3, 1)
    assert point.at == now.replace(second=0, microsecond=0) - timedelta(minutes=1)
    hours = desk.timeseries(now - 3 * HOUR, step=HOUR)
    assert [one.frontier_size for one in hours if one.frontier_size is not None] == [3]


def test_days_are_kept_when_minutes_are_gone(desk: StatsService, connection: psycopg.Connection) -> None:
    now = datetime.now(UTC)
    log(connection, count=5, at=now - 20 * DAY)
    log(connection, count=2, at=now - HOUR)
    stats.fold(connection, every=timedelta(0))
    found = desk.timeseries(now - 30 * DAY, step=DAY)
    assert len(found) == 31
    assert sum(point.requests for point in found) == 7
    assert all((point.at.hour, point.at.minute) == (0, 0) for point in found)
    assert desk.status_codes(now - 30 * DAY) == {200: 7}
    assert desk.status_codes(now - 2 * HOUR) == {200: 2}
    weeks = desk.timeseries(now - 30 * DAY, step=7 * DAY)
    assert sum(point.requests for point in weeks) == 7


def test_series_that_cannot_be_meant(desk: StatsService) -> None:
    for ago, until, step, sentence in [
        (HOUR, None, timedelta(seconds=30), "A step is minute, hour, day"),
        (HOUR, None, timedelta(seconds=90), "A step is minute, hour, day"),
        (timedelta(0), HOUR, timedelta(minutes=1), "is not before the time to end at"),
        (-HOUR, None, timedelta(minutes=1), "is not before the time to end at"),
        (8 * DAY, None, HOUR, "Minutes are kept for 7 days: ask for what is older with a step of a day"),
        (3 * DAY, None, timedelta(minutes=1), "That would be more than 2000 points"),
        (40_000 * DAY, None, DAY, "That would be more than 2000 points"),
    ]:
        now = datetime.now(UTC)
        with pytest.raises(UsageError, match=sentence):
            desk.timeseries(now - ago, None if until is None else now - until, step)


def test_a_time_says_its_zone(desk: StatsService) -> None:
    with pytest.raises(UsageError, match="A time says its zone"):
        desk.timeseries(datetime(2026, 1, 1))  # noqa: DTZ001 — that is the point
    with pytest.raises(UsageError, match="is in the future"):
        desk.status_codes(datetime.now(UTC) + HOUR)


def test_the_whole_week_by_the_hour_and_two_thousand_minutes(desk: StatsService) -> None:
    now = datetime.now(UTC)
    assert len(desk.timeseries(now - 7 * DAY + timedelta(minutes=1), step=HOUR)) in {168, 169}
    assert len(desk.timeseries(now - timedelta(minutes=1999))) == 2000


def test_hosts(desk: StatsService, database: Database, store: Store) -> None:
    crawl_a_little(database, store)
    (host,) = desk.hosts()
    assert (host.domain, host.pages, host.requests) == ("example.com", 3, 5)
    for span, limit in ((timedelta(0), 5), (2 * DAY, 5), (HOUR, 0), (HOUR, 501)):
        with pytest.raises(UsageError):
            desk.hosts(span, limit=limit)


# Errors by cause --------------------------------------------------------------------------------------------------------


def test_recent_errors_are_counted_by_cause_with_the_last_url(
    desk: StatsService, database: Database, store: Store, connection: psycopg.Connection
) -> None:
    crawl_a_little(database, store)
    found = {one.outcome: one for one in desk.recent_errors()}
    assert set(found) == {"not_found", "timeout"}
    assert (found["timeout"].count, found["timeout"].domain) == (1, "example.com")
    assert found["timeout"].example_url == f"{HOME}slow"
    log(connection, Outcome.SERVER_ERROR, count=5, at="now() - interval '10 minutes'", status=500)
    log(connection, Outcome.SERVER_ERROR, count=9, at="now() - interval '20 minutes'", status=500)
    log(connection, Outcome.OK, count=50)
    fresh = StatsService(database)
    first, *others = fresh.recent_errors()
    assert (first.outcome, first.count) == ("server_error", 5)
    assert {one.outcome for one in others} == {"not_found", "timeout"}
    assert [one.count for one in fresh.recent_errors(timedelta(minutes=30)) if one.outcome == "server_error"] == [14]
    connection.execute("DELETE FROM crawl_log")
    assert fresh.recent_errors()[0] is first, "cached for a second"
    assert StatsService(database).recent_errors() == []


@pytest.mark.parametrize("span", [timedelta(0), timedelta(seconds=90), timedelta(minutes=61), timedelta(days=1)])
def test_errors_of_other_spans_are_refused(desk: StatsService, span: timedelta) -> None:
    with pytest.raises(UsageError, match="the last 1 to 60 whole minutes"):
        desk.recent_errors(span)
