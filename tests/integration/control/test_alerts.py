"""Alerts: each rule at its bound, raised once and resolved by itself, and told once."""

import socket
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast.alerts import queries as alerts
from holdfast.alerts.queries import Finding
from holdfast.alerts.records import Alert, Kind
from holdfast.alerts.rules import Rules
from holdfast.alerts.service import AlertService
from holdfast.control.maintenance import Maintenance
from holdfast.db import periodic_locks, runs, stats
from holdfast.db.connection import Database
from holdfast.errors import NotFound, Refused, UsageError
from holdfast.model.activity import Activity, ProblemKind, WorkerProblem
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import ProxyMode
from holdfast.settings import Settings, Webhook, Worker
from holdfast.stats.records import SILENCE
from holdfast.webhooks import queries
from holdfast.webhooks.records import DeliveryFilter
from tests.support.crawls import wait_for
from tests.support.factories import Store
from tests.support.figures import log, within_a_minute

HOOK = "https://alerts.example/in"
RULES = Rules(webhook_url=HOOK)


@pytest.fixture
def service(database: Database) -> AlertService:
    return AlertService(database)


def due_again(connection: psycopg.Connection) -> None:
    connection.execute("UPDATE duties SET done_at = '-infinity'")


def look(connection: psycopg.Connection, rules: Rules = RULES) -> tuple[int, int]:
    """How many were raised and resolved by a tick that comes ten seconds later."""
    due_again(connection)
    changes = [rules.look(connection), rules.look_at_proxies(connection)]
    return sum(len(one.raised) for one in changes), sum(len(one.resolved) for one in changes)


def firing(connection: psycopg.Connection) -> list[tuple[str, str]]:
    return [(one.kind, one.subject) for one in alerts.list_alerts(connection, active=True)]


def messages(connection: psycopg.Connection) -> list[tuple[str, int | None]]:
    return [(one.event, one.alert_id) for one in reversed(queries.page(connection, DeliveryFilter()).rows)]


def minutes(
    connection: psycopg.Connection, errors: list[int], requests: int = 100, outcome: Outcome = Outcome.SERVER_ERROR
) -> None:
    """The last whole minutes, the oldest first, with so many errors each."""
    within_a_minute(connection, settled=10)
    connection.execute("TRUNCATE stats_fresh, stats_minute, crawl_log")
    for ago, count in enumerate(reversed(errors), 1):
        # A minute is looked at ten seconds after its end.
        at = f"date_bin('1 minute', now() - interval '10 seconds', 'epoch') - interval '{ago} minutes'"
        log(connection, outcome, count=count, at=at, status=None)
        log(connection, count=requests - count, at=at)


# Rules ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("added_up", [False, True])
def test_errors_in_each_of_five_minutes(connection: psycopg.Connection, service: AlertService, added_up: bool) -> None:
    minutes(connection, [21, 30, 40, 30, 29])
    if added_up:
        stats.fold(connection, every=timedelta(0), fresh=-timedelta(minutes=1))
    assert look(connection) == (1, 0)
    (alert,) = service.list(active=True)
    assert (alert.kind, alert.subject, alert.state) == (Kind.ERROR_RATE, "", "firing")
    assert alert.value == pytest.approx(0.30)
    causes = [{"cause": "server_error", "requests": 150}]
    assert alert.details == {"requests": 500, "errors": 150, "minutes": 5, "causes": causes}
    assert look(connection) == (0, 0), "it is the same one"
    assert service.list(active=True)[0].last_seen_at > alert.last_seen_at
    minutes(connection, [30, 40, 30, 29, 20])
    assert look(connection) == (0, 1)
    (over,) = service.list(active=False)
    assert (over.id, over.state, over.since) == (alert.id, "resolved", alert.since)
    assert over.resolved_at is not None
    assert over.resolved_at > alert.since


@pytest.mark.parametrize("added_up", [False, True])
def test_five_minutes_of_404_of_a_polite_crawl(
    connection: psycopg.Connection, service: AlertService, added_up: bool
) -> None:
    """With 15 s between requests there are four a minute."""
    minutes(connection, [4, 4, 4, 4, 4], 4, Outcome.NOT_FOUND)
    if added_up:
        stats.fold(connection, every=timedelta(0), fresh=-timedelta(minutes=1))
    assert look(connection) == (1, 0)
    (alert,) = service.list(active=True)
    assert (alert.kind, alert.value) == (Kind.ERROR_RATE, 1.0)
    assert alert.details["causes"] == [{"cause": "not_found", "requests": 20}]


def test_the_most_frequent_causes_are_named(connection: psycopg.Connection, service: AlertService) -> None:
    minutes(connection, [30, 30, 30, 30, 30])
    at = "date_bin('1 minute', now() - interval '10 seconds', 'epoch') - interval '2 minutes'"
    others = (
        (Outcome.NOT_FOUND, 200),
        (Outcome.TIMEOUT, 20),
        (Outcome.FORBIDDEN, 10),
        (Outcome.CLIENT_ERROR, 5),
        (Outcome.DNS_FAILURE, 1),
    )
    for outcome, count in others:
        log(connection, outcome, count=count, at=at, status=None)
    assert look(connection) == (1, 0)
    (alert,) = service.list(active=True)
    assert alert.details["errors"] == 386
    assert [(one["cause"], one["requests"]) for one in alert.details["causes"]] == [
        ("not_found", 200), ("server_error", 150), ("timeout", 20), ("forbidden", 10), ("client_error", 5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("errors", "requests"),
    [
        ([20, 30, 30, 30, 30], 100),  # one minute was not worse than a fifth
        ([100, 100, 100, 100], 100),  # four minutes; before them nothing was asked for
        ([4, 4, 4, 4, 3], 4),  # too few to tell
        ([100, 100, 100, 100, 0], 100),
    ],
)
def test_errors_that_are_no_alert(connection: psycopg.Connection, errors: list[int], requests: int) -> None:
    minutes(connection, errors, requests)
    assert look(connection) == (0, 0)


def frontier(connection: psycopg.Connection, sizes: list[int]) -> None:
    """The frontier at the end of the last minutes."""
    within_a_minute(connection)
    connection.execute("DELETE FROM stats_minute")
    for ago, size in enumerate(reversed(sizes), 1):
        connection.execute(
            "INSERT INTO stats_minute (at, frontier_size) VALUES (date_bin('1 minute', now(), 'epoch') - %s * interval '1 minute', %s)",
            (ago, size),
        )


def test_a_frontier_that_grows_too_fast(connection: psycopg.Connection, service: AlertService) -> None:
    frontier(connection, [1000, 1150, 1300, 1500, 1750, 2000])
    assert look(connection) == (1, 0)
    (alert,) = service.list()
    assert (alert.kind, alert.details) == (Kind.BACKLOG, {"from": 1000, "to": 2000, "minutes": 5})
    assert alert.value == pytest.approx(2 ** (1 / 5) - 1)
    frontier(connection, [1610, 1610, 1610, 1610, 1610, 1610])
    assert look(connection) == (0, 1)


@pytest.mark.parametrize(
    "sizes",
    [
        [1000, 1100, 1210, 1331, 1464, 1610],  # ten per cent a minute is the bound
        [999, 2000, 4000, 8000, 16_000, 32_000],  # a crawl that begins
        [2000, 4000, 8000, 16_000, 32_000],  # nobody looked six times
        [],
        [5000, 4000, 3000, 2000, 1000, 500],
    ],
)
def test_a_frontier_that_is_no_alert(connection: psycopg.Connection, sizes: list[int]) -> None:
    frontier(connection, sizes)
    assert look(connection) == (0, 0)


def silent(connection: psycopg.Connection, name: str, seconds: int = 121) -> None:
    connection.execute(
        "INSERT INTO workers (name, host, pid, heartbeat_at) VALUES (%s, 'h1', 1, clock_timestamp() - %s * interval '1 s')",
        (name, seconds),
    )


def test_a_worker_that_is_silent(connection: psycopg.Connection, store: Store, service: AlertService) -> None:
    store.domains(3)
    for name, seconds in {"holds": 130, "runs": 300, "idle": 999, "alive": 100}.items():
        silent(connection, name, seconds)
    store.claim("holds", 2)
    store.claim("alive", 1)
    run = runs.begin(connection, worker="runs")
    runs.end(connection, runs.begin(connection, worker="idle"), error=None)
    assert look(connection) == (2, 0)
    found = {one.subject: one for one in service.list(active=True)}
    assert found.keys() == {"holds", "runs"}
    assert found["runs"].value == pytest.approx(300, abs=60)
    assert (found["holds"].kind, found["holds"].details["domains"]) == (Kind.WORKER_SILENT, 2)
    runs.heartbeat(connection, run, in_window=0)
    assert look(connection) == (0, 1)
    connection.execute("UPDATE domains SET claimed_by = NULL, claim_expires_at = NULL")
    assert look(connection) == (0, 1)
    assert firing(connection) == []


def test_proxies_that_are_few_and_that_fail(
    connection: psycopg.Connection, store: Store, service: AlertService
) -> None:
    store.seed("few.example", "bad.example", "fine.example")
    connection.execute(
        "UPDATE domains SET proxy_use = CASE domain WHEN 'few.example' THEN 'pool' WHEN 'bad.example' THEN 'any' END"
    )
    connection.execute("INSERT INTO proxies (proxy_url, proxy_port) VALUES ('p.example', 8080)")
    connection.execute(
        "INSERT INTO domain_proxies (domain_id, proxy_id, requests, total_failures) "
        "SELECT d.id, p.id, 40, CASE domain WHEN 'bad.example' THEN 10 ELSE 0 END FROM domains d, proxies p WHERE proxy_use IS NOT NULL"
    )
    assert look(connection) == (2, 0)
    found = {one.kind: one for one in service.list(active=True)}
    assert (found[Kind.FEW_PROXIES].subject, found[Kind.FEW_PROXIES].value) == ("few.example", 1)
    assert (found[Kind.PROXIES_FAIL].subject, found[Kind.PROXIES_FAIL].value) == ("bad.example", 0.25)
    connection.execute("UPDATE domains SET proxy_use = NULL")
    assert look(connection) == (0, 2)
    assert look(connection, Rules(default_mode=ProxyMode.POOL)) == (4, 0), (
        "where the settings say that all use their pools"
    )


def reports(connection: psycopg.Connection, name: str, *problems: WorkerProblem, host: str = "h1") -> None:
    """A worker that says this with its last heartbeat."""
    connection.execute(
        "INSERT INTO workers (name, host, pid, heartbeat_at, activity) VALUES (%s, %s, 1, clock_timestamp(), %s) "
        "ON CONFLICT (name) DO UPDATE SET activity = excluded.activity, heartbeat_at = excluded.heartbeat_at",
        (name, host, Jsonb(Activity(problems=problems).to_json())),
    )


def problem(kind: ProblemKind, value: float = 1.0, about: str = "") -> WorkerProblem:
    return WorkerProblem(kind, f"{kind} it is", datetime(2031, 12, 24, tzinfo=UTC), value, about)


def test_what_workers_report_is_an_alert_of_their_machine(
    connection: psycopg.Connection, service: AlertService
) -> None:
    disk = problem(ProblemKind.DISK_FULL, 90, "archive, logs")
    reports(connection, "a1", disk, problem(ProblemKind.IMAGES, 10))
    reports(connection, "a2", replace(disk, value=80.0), problem(ProblemKind.IMAGES, 20))
    reports(connection, "b1", disk, problem(ProblemKind.ARCHIVE), problem(ProblemKind.DATABASE_SLOW, 3), host="h2")
    silent(connection, "gone")
    assert look(connection) == (5, 0)
    found = {(one.kind, one.subject): one for one in service.list(active=True)}
    assert found.keys() == {
        (Kind.DISK_FULL, "h1 (archive, logs)"),
        (Kind.DISK_FULL, "h2 (archive, logs)"),
        (Kind.ARCHIVE_UNAVAILABLE, "h2"),
        (Kind.IMAGES_UNAVAILABLE, ""),
        (Kind.DATABASE_SLOW, ""),
    }
    assert found[Kind.DISK_FULL, "h1 (archive, logs)"].value == 80, "the least room"
    images = found[Kind.IMAGES_UNAVAILABLE, ""]
    assert (images.value, images.details["workers"], images.details["first_workers"]) == (20, 2, ["a1", "a2"])
    assert images.details["text"] == "images it is"


@pytest.mark.parametrize(
    ("kind", "hold"),
    [
        (ProblemKind.DISK_LOW, 30),
        (ProblemKind.ARCHIVE, 30),
        (ProblemKind.DATABASE_SLOW, 120),
        (ProblemKind.DATABASE_AWAY, 120),
    ],
)
def test_what_comes_and_goes_is_one_alert(connection: psycopg.Connection, kind: ProblemKind, hold: int) -> None:
    for _ in range(3):
        reports(connection, "w1", problem(kind))
        look(connection)
        reports(connection, "w1")
        assert look(connection) == (0, 0)
    assert len(messages(connection)) == 1
    connection.execute("UPDATE alerts SET last_seen_at = now() - %s * interval '1 second'", (hold - 5,))
    assert look(connection) == (0, 0)
    connection.execute("UPDATE alerts SET last_seen_at = now() - %s * interval '1 second'", (hold + 1,))
    assert look(connection) == (0, 1)
    assert [event for event, _ in messages(connection)] == ["alert.firing", "alert.resolved"]


def test_a_background_reports_its_own_machine(connection: psycopg.Connection, service: AlertService) -> None:
    own = Rules(own=lambda: [problem(ProblemKind.DISK_LOW, 7, "logs")])
    assert look(connection, own) == (1, 0)
    (alert,) = service.list(active=True)
    assert (alert.kind, alert.subject, alert.value) == (Kind.DISK_LOW, f"{socket.gethostname()} (logs)", 7)


def no_background(connection: psycopg.Connection, silence: str) -> None:
    connection.execute("UPDATE duties SET done_at = %s WHERE name = 'alerts'", (silence,))


@pytest.mark.parametrize(
    ("due", "what"),
    [
        (
            "UPDATE crawl_jobs SET schedule = '1h', next_run_at = now() - interval '3 minutes' WHERE name = 'default'",
            "jobs",
        ),
        (
            "INSERT INTO operations (kind, asked_by, asked_at) VALUES ('verify', 'ann', now() - interval '3 minutes')",
            "operations",
        ),
        (
            (
                "WITH a AS (INSERT INTO alerts (kind, subject, value, details, resolved_at) VALUES ('backlog', '', 1, '{}', now()) "
                "RETURNING id) INSERT INTO webhook_deliveries (alert_id, event, url, body, next_attempt_at) "
                "SELECT id, 'alert.firing', 'https://a.example/', '{}', now() - interval '3 minutes' FROM a"
            ),
            "webhooks",
        ),
    ],
)
def test_work_that_no_background_does(
    connection: psycopg.Connection, service: AlertService, due: LiteralString, what: str
) -> None:
    """Raised by workers, resolved by the background that comes."""

    def check() -> bool:
        return alerts.check_background(connection, webhook_url=None, silence=timedelta(seconds=2))

    wait_for(lambda: server_is_older(connection, 2), "the server to be two seconds old")
    no_background(connection, "-infinity")
    assert not check(), "nothing is due"
    connection.execute(due)
    no_background(connection, "now")
    assert not check(), "one has just looked"
    no_background(connection, "-infinity")
    assert (check(), check()) == (True, True)
    (alert,) = service.list(active=True)
    assert (alert.kind, alert.value, alert.details) == (Kind.BACKGROUND_SILENT, 0, {"due": {what: 1}})
    no_background(connection, "2001-01-01")
    assert check()
    assert service.list(active=True)[0].value > 1e8
    assert look(connection) == (0, 1)


def server_is_older(connection: psycopg.Connection, seconds: int) -> bool:
    query = "SELECT pg_postmaster_start_time() < now() - %s * interval '1 second'"
    row = connection.execute(query, (seconds,)).fetchone()
    return bool(row and row[0])


def test_many_workers_that_look_raise_it_once(database: Database, connection: psycopg.Connection) -> None:
    wait_for(lambda: server_is_older(connection, 2), "the server to be two seconds old")
    connection.execute(
        "INSERT INTO operations (kind, asked_by, asked_at) VALUES ('verify', 'ann', now() - interval '1 hour')"
    )
    start = threading.Barrier(4)

    def check() -> None:
        with database.connect() as mine:
            start.wait()
            for _ in range(5):
                alerts.check_background(mine, webhook_url=HOOK, silence=timedelta(seconds=2))

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert firing(connection) == [(Kind.BACKGROUND_SILENT, "")]
    assert len(messages(connection)) == 1


def test_rules_are_as_the_settings_say() -> None:
    rules = Rules.of(Settings())
    assert (rules.silence, rules.default_mode, rules.webhook_url) == (SILENCE, ProxyMode.DIRECT, None)
    rare = Settings(worker=Worker(heartbeat=timedelta(minutes=1)), webhook=Webhook(alerts_url=HOOK))
    assert (Rules.of(rare).silence, Rules.of(rare).webhook_url) == (timedelta(minutes=4), HOOK)


@pytest.mark.parametrize(
    "url", ["ftp://a.example/", "https://", "https://a b/", "alerts", f"https://a.example/{'x' * 2048}"]
)
def test_a_receiver_is_a_web_address(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be a URL such as https://example\.com/alerts"):
        Webhook(alerts_url=url)


# Once -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _wrong(connection: psycopg.Connection) -> None:
    """Something that is wrong until it is set right: a run whose worker is silent."""
    silent(connection, "w1")
    runs.begin(connection, worker="w1")


def right(connection: psycopg.Connection) -> None:
    connection.execute("UPDATE workers SET heartbeat_at = clock_timestamp()")


@pytest.mark.usefixtures("_wrong")
def test_the_beginning_and_the_end_are_told_once(connection: psycopg.Connection, service: AlertService) -> None:
    for _ in range(3):
        look(connection)
    (alert,) = service.list()
    assert messages(connection) == [("alert.firing", alert.id)]
    right(connection)
    for _ in range(3):
        look(connection)
    assert messages(connection) == [("alert.firing", alert.id), ("alert.resolved", alert.id)]
    taken = queries.take(connection, count=9, lease=timedelta(minutes=1), max_attempts=10)
    assert {one.url for one in taken} == {HOOK}
    first, second = (one.message for one in taken)
    assert (
        first.data.items()
        >= {"alert_id": alert.id, "kind": "worker_silent", "subject": "w1", "resolved_at": None}.items()
    )
    assert second.data["resolved_at"] is not None
    assert b'"event":"alert.resolved"' in second.body()
    rung = connection.execute(
        "SELECT count(*) FROM procrastinate.procrastinate_jobs WHERE queue_name = 'notify'"
    ).fetchone()
    assert rung == (1,)
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute(
            "INSERT INTO webhook_deliveries (alert_id, event, url, body) SELECT alert_id, event, url, body FROM webhook_deliveries"
        )


@pytest.mark.usefixtures("_wrong")
def test_it_begins_again_as_another_alert(connection: psycopg.Connection, service: AlertService) -> None:
    look(connection)
    right(connection)
    look(connection)
    connection.execute("UPDATE workers SET heartbeat_at = now() - interval '1 hour'")
    assert look(connection) == (1, 0)
    assert [one.state for one in service.list()] == ["firing", "resolved"]
    assert len(messages(connection)) == 3


@pytest.mark.usefixtures("_wrong")
def test_without_a_receiver_nothing_is_told(connection: psycopg.Connection) -> None:
    assert look(connection, Rules()) == (1, 0)
    assert messages(connection) == []
    queue = connection.execute("SELECT count(*) FROM procrastinate.procrastinate_jobs").fetchone()
    assert queue == (0,)


@pytest.mark.usefixtures("_wrong")
def test_a_receiver_that_wants_no_more_has_messages_that_can_be_asked_for(connection: psycopg.Connection) -> None:
    connection.execute(
        "INSERT INTO webhook_endpoints (url, disabled_at, reason) VALUES (%s, now(), 'HTTP 410')", (HOOK,)
    )
    look(connection)
    (one,) = queries.page(connection, DeliveryFilter()).rows
    assert (one.state, one.last_error) == ("given_up", "HTTP 410")


@pytest.mark.usefixtures("_wrong")
def test_many_backgrounds_that_tick_at_once_raise_it_once(database: Database, connection: psycopg.Connection) -> None:
    start = threading.Barrier(6)
    raised: list[int] = []

    def tick() -> None:
        with database.connect() as mine:
            start.wait()
            for _ in range(5):
                raised.extend(RULES.look(mine).raised)

    threads = [threading.Thread(target=tick) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(raised) == 1
    assert len(messages(connection)) == 1


@pytest.mark.usefixtures("_wrong")
def test_one_that_is_killed_before_its_commit_has_told_nobody(
    connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(periodic_locks, "mark_done", die)
        with pytest.raises(KeyboardInterrupt):
            RULES.look(connection)
    assert (firing(connection), messages(connection)) == ([], [])
    assert look(connection) == (1, 0)
    assert len(messages(connection)) == 1


def test_no_more_than_fifty_of_a_kind_are_firing(connection: psycopg.Connection) -> None:
    def settle(count: int) -> alerts.Changed:
        found = [Finding("worker_silent", f"w{number:03}", 1.0) for number in range(count)]
        with connection.transaction():
            return alerts.settle(connection, found, kinds=["worker_silent"], webhook_url=None)

    assert len(settle(40).raised) == 40
    assert len(settle(90).raised) == 10
    assert settle(90) == alerts.Changed()
    changed = settle(20)
    assert (len(changed.raised), len(changed.resolved)) == (0, 30)


# Looking --------------------------------------------------------------------------------------------------------------


def test_alerts_are_listed_the_newest_first_in_pages(connection: psycopg.Connection, service: AlertService) -> None:
    with connection.transaction():
        alerts.settle(
            connection, [Finding("backlog", str(n), n) for n in range(5)], kinds=["backlog"], webhook_url=None
        )
        alerts.settle(
            connection, [Finding("backlog", str(n), n) for n in range(2)], kinds=["backlog"], webhook_url=None
        )

    def subjects(found: list[Alert]) -> list[str]:
        return [one.subject for one in found]

    first = service.list(limit=3)
    assert subjects(first) == ["4", "3", "2"]
    assert subjects(service.list(before=first[-1].id)) == ["1", "0"]
    assert subjects(service.list(active=True)) == ["1", "0"]
    assert subjects(service.list(active=False, limit=1)) == ["4"]
    for limit in (0, 501):
        with pytest.raises(UsageError, match="A list gives 1 to 500 at once"):
            service.list(limit=limit)


def test_alerts_that_are_over_age_out(connection: psycopg.Connection, service: AlertService) -> None:
    with connection.transaction():
        alerts.settle(
            connection, [Finding("backlog", s, 1) for s in ("old", "new", "on")], kinds=["backlog"], webhook_url=None
        )
        alerts.settle(connection, [Finding("backlog", "on", 1)], kinds=["backlog"], webhook_url=None)
    connection.execute("UPDATE alerts SET resolved_at = now() - interval '91 days' WHERE subject = 'old'")
    connection.execute("UPDATE alerts SET since = now() - interval '91 days'")
    assert Maintenance().trim(connection) == 1
    assert {one.subject for one in service.list()} == {"new", "on"}
    assert Maintenance().trim(connection) == 0, "somebody did it a moment ago"


# Acknowledged -----------------------------------------------------------------------------------------------------------


def raised(connection: psycopg.Connection, *findings: Finding) -> None:
    with connection.transaction():
        alerts.settle(connection, findings, kinds=[Kind.BACKLOG], webhook_url=None)


def test_an_acknowledged_alert_still_fires_and_a_new_one_is_not_acknowledged(
    service: AlertService, connection: psycopg.Connection
) -> None:
    raised(connection, Finding(Kind.BACKLOG, "", 0.2))
    (first,) = service.list(active=True)
    assert (first.acknowledged_at, first.acknowledged_by) == (None, None)
    known = service.acknowledge(first.id, actor="ann")
    assert (known.state, known.acknowledged_by) == ("firing", "ann")
    assert known.acknowledged_at is not None
    assert service.list(active=True) == [known]
    assert service.acknowledge(first.id, actor="bob") == known, "the first operator stays"
    rows = connection.execute("SELECT actor, action, object_kind, object_id, details FROM audit_log").fetchall()
    assert rows == [("ann", "acknowledge", "alert", str(first.id), {"kind": "backlog", "subject": ""})]
    raised(connection, Finding(Kind.BACKLOG, "", 0.3))
    (same,) = service.list(active=True)
    assert (same.id, same.value, same.acknowledged_by) == (first.id, 0.3, "ann")
    raised(connection)
    (over,) = service.list(active=False)
    assert (over.state, over.acknowledged_by) == ("resolved", "ann")
    raised(connection, Finding(Kind.BACKLOG, "", 0.4))
    (again,) = service.list(active=True)
    assert (again.id != first.id, again.acknowledged_at) == (True, None)


def test_only_an_alert_that_fires_is_acknowledged(service: AlertService, connection: psycopg.Connection) -> None:
    with pytest.raises(NotFound, match="There is no alert 7; resolved ones are kept for 90 days"):
        service.acknowledge(7, actor="ann")
    raised(connection, Finding(Kind.BACKLOG, "", 0.2))
    (first,) = service.list()
    raised(connection)
    with pytest.raises(Refused, match=f"Alert {first.id} is resolved"):
        service.acknowledge(first.id, actor="ann")
    assert connection.execute("SELECT count(*) FROM audit_log").fetchone() == (0,)
