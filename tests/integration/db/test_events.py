"""Events are read in the order of transactions: none is lost, none comes twice, however slow whoever writes it."""

import random
import threading
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from holdfast.alerts.queries import Finding, settle
from holdfast.db import events, periodic_locks, runs
from holdfast.db.connection import Database
from holdfast.db.events import Cursor, Event, Kind
from holdfast.errors import UsageError
from holdfast.jobs.queries import actions
from holdfast.model.task import TaskStatus
from tests.support.factories import Store
from tests.support.tasks import Tasks

WRITE = "INSERT INTO events (kind, domain_id, data) VALUES ('domain', %s, '{}')"
RESTORED = "INSERT INTO events (xid, kind, data) VALUES ('1099511627776'::xid8, 'domain', '{}')"


def said(found: Sequence[Event]) -> list[dict[str, Any]]:
    """What events say, without their texts for people."""
    return [{name: value for name, value in event.data.items() if name not in {"reason", "run_id"}} for event in found]


def numbers(found: Sequence[Event]) -> list[int | None]:
    return [event.domain_id for event in found]


def test_what_happens_to_a_job_is_told(connection: psycopg.Connection, store: Store) -> None:
    start = events.latest_cursor(connection)
    job = int(str(store.value("INSERT INTO crawl_jobs (name) VALUES ('news') RETURNING id")))
    connection.execute("UPDATE crawl_jobs SET state = 'processing' WHERE id = %s", (job,))
    connection.execute("UPDATE crawl_jobs SET schedule = NULL, state = 'processing' WHERE id = %s", (job,))
    actions.delete(connection, job)
    found = events.read(connection, start)
    assert {event.kind for event in found} == {Kind.JOB}
    assert {event.job_id for event in found} == {job}
    assert said(found) == [
        {"what": "created", "name": "news", "to": "pending"},
        {"what": "changed", "name": "news", "from": "pending", "to": "processing"},
        {"what": "deleted", "name": "news", "from": "processing", "to": "cancelled"},
    ]


def test_what_happens_to_a_domain_is_told(connection: psycopg.Connection, store: Store) -> None:
    store.seed("a.example")
    start = events.latest_cursor(connection)
    store.crawl_to_the_end()
    found = events.read(connection, start)
    assert [(event.kind, event.domain, event.data["from"], event.data["to"]) for event in found] == [
        (Kind.DOMAIN, "a.example", "pending", "active"),
        (Kind.DOMAIN, "a.example", "active", "exhausted"),
    ]
    assert {event.domain_id for event in found} == {store.row("a.example")["id"]}
    assert found[0].data["worker"] == "w1"
    assert "first" in found[0].data["reason"]


def test_the_end_of_a_task_is_told_and_nothing_else_of_it(connection: psycopg.Connection) -> None:
    tasks = Tasks(connection)
    start = events.latest_cursor(connection)
    done, dropped = tasks.one("a.example/x"), tasks.one("a.example/y")
    tasks.bring(dropped, TaskStatus.CANCELLED)
    tasks.bring(done, TaskStatus.COMPLETED)
    found = events.read(connection, start, kinds=[Kind.TASK])
    assert said(found) == [
        {"task_id": dropped, "to": "cancelled", "batch_id": None},
        {"task_id": done, "to": "completed", "batch_id": None},
    ]
    assert {event.domain for event in found} == {"a.example"}


def test_workers_and_alerts_are_told(connection: psycopg.Connection, store: Store) -> None:
    start = events.latest_cursor(connection)
    run = runs.begin(connection, worker="w1", job_id=store.job)
    runs.heartbeat(connection, run, in_window=3)
    runs.end(connection, run, error="out of disk")
    with connection.transaction():
        settle(connection, [Finding("backlog", "", 0.5)], kinds=["backlog"], webhook_url=None)
        settle(connection, [Finding("backlog", "", 0.7)], kinds=["backlog"], webhook_url=None)
        settle(connection, [], kinds=["backlog"], webhook_url=None)
    number = store.value("SELECT id FROM alerts")
    found = events.read(connection, start)
    assert [event.kind for event in found] == [Kind.WORKER, Kind.WORKER, Kind.ALERT, Kind.ALERT]
    assert [event.job_id for event in found] == [store.job, store.job, None, None]
    assert said(found) == [
        {"what": "started", "worker": "w1", "status": "running", "error": None},
        {"what": "ended", "worker": "w1", "status": "failed", "error": "out of disk"},
        {"what": "firing", "alert_id": number, "alert": "backlog", "subject": "", "value": 0.5},
        {"what": "resolved", "alert_id": number, "alert": "backlog", "subject": "", "value": 0.7},
    ]


# Order ----------------------------------------------------------------------------------------------------------------


def test_the_event_of_a_slow_transaction_is_neither_lost_nor_passed_by(
    connection: psycopg.Connection, database: Database
) -> None:
    start = events.latest_cursor(connection)
    with database.connect() as slow, database.connect() as quick:
        with slow.transaction():
            slow.execute(WRITE, (1,))
            quick.execute(WRITE, (2,))
            assert events.read(connection, start) == [], "what came before it may still be undone"
            late = events.latest_cursor(connection)
        found = events.read(connection, start)
        assert numbers(found) == [1, 2]
        assert numbers(events.read(connection, late)) == [1, 2], "who began to listen meanwhile gets both, too"
        with slow.transaction(force_rollback=True):
            slow.execute(WRITE, (3,))
            quick.execute(WRITE, (4,))
        assert numbers(events.read(connection, found[-1].cursor)) == [4], "what was rolled back was never told"


def test_a_number_that_was_given_earlier_may_come_later(connection: psycopg.Connection, database: Database) -> None:
    """The one that began first writes last: by their numbers a reader that has seen the second would never see the first."""
    start = events.latest_cursor(connection)
    with database.connect() as first, database.connect() as second:
        with first.transaction():
            first.execute("SELECT pg_current_xact_id()")
            second.execute(WRITE, (2,))
            first.execute(WRITE, (1,))
        found = events.read(connection, start)
    assert numbers(found) == [1, 2]
    assert [event.cursor.id for event in found] != sorted(event.cursor.id for event in found)
    cursors = [event.cursor for event in found]
    assert cursors == sorted(cursors)


def test_a_reader_gets_everything_once_while_many_write(database: Database) -> None:
    """Eight write with pauses before their commits, and one in five changes its mind; one reads in small pieces all the while."""
    writers, each = 8, 40
    over = threading.Event()
    got: list[Event] = []
    kept: list[int] = []
    lock = threading.Lock()
    with database.connect() as connection:
        start = events.latest_cursor(connection)

    def write(number: int) -> None:
        chance = random.Random(number)
        with database.connect() as connection:
            for step in range(each):
                mine = number * 1000 + step
                with connection.transaction(force_rollback=(undone := chance.random() < 0.2)):
                    connection.execute(WRITE, (mine,))
                    connection.execute("SELECT pg_sleep(%s)", (chance.choice([0, 0, 0.001, 0.01]),))
                if not undone:
                    with lock:
                        kept.append(mine)

    def read() -> None:
        after = start
        with database.connect() as connection:
            last = False
            while True:
                found = events.read(connection, after, limit=7)
                got.extend(found)
                after = found[-1].cursor if found else after
                if last and not found:
                    return
                last = over.is_set()

    reader = threading.Thread(target=read)
    reader.start()
    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    reader.join()
    assert sorted(str(number) for number in numbers(got)) == sorted(map(str, kept))
    assert len({event.cursor for event in got}) == len(got)
    assert [event.cursor for event in got] == sorted(event.cursor for event in got)


# Places ---------------------------------------------------------------------------------------------------------------


def test_a_place_is_written_and_read(connection: psycopg.Connection) -> None:
    for cursor in (Cursor(), Cursor(1042, 17), Cursor(2**64 - 1, 2**63 - 1)):
        assert Cursor.parse(str(cursor)) == cursor
        assert events.read(connection, cursor, limit=1) is not None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "1",
            "-",
            "1-",
            "-1",
            "1-2-3",
            "1-2 ",
            " 1-2",
            "1--2",
            "01-2",
            "+1-2",
            "1e3-2",
            "\u0661-\u0662",
            "1-2\n",
            "a-b",
        ),
        *(f"{2**64}-1", f"1-{2**63}", "9" * 400 + "-1", "1-2; DROP TABLE events"),
    ],
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="A place among events is two numbers"):
        Cursor.parse(text)


def test_events_are_read_in_pieces_and_by_what_they_are_about(connection: psycopg.Connection, store: Store) -> None:
    start = events.latest_cursor(connection)
    for number in range(5):
        connection.execute(WRITE, (number % 2,))
    runs.begin(connection, worker="w1", job_id=store.job)
    first = events.read(connection, start, limit=2)
    assert numbers(first) == [0, 1]
    assert numbers(events.read(connection, first[-1].cursor, limit=2)) == [0, 1]
    assert numbers(events.read(connection, start, domain_id=1)) == [1, 1]
    assert [event.kind for event in events.read(connection, start, job_id=store.job)] == [Kind.WORKER]
    assert events.read(connection, start, kinds=[Kind.ALERT, Kind.TASK]) == []
    assert events.read(connection, start, kinds=[]) == []
    assert events.read(connection, events.latest_cursor(connection)) == []


def test_what_is_a_day_old_goes_and_a_listener_is_told_that_it_missed_it(
    connection: psycopg.Connection, database: Database
) -> None:
    start = events.latest_cursor(connection)
    assert events.oldest_cursor(connection) == Cursor()
    for number in range(7):
        connection.execute(WRITE, (number,))
    found = events.read(connection, start)
    connection.execute("UPDATE events SET at = at - interval '25 hours' WHERE domain_id < 4")
    assert not events.has_gap(connection, start)
    assert [events.trim(connection, chunk=3) for _ in range(3)] == [3, 1, 0]
    assert numbers(events.read(connection, Cursor())) == [4, 5, 6]
    assert events.oldest_cursor(connection) == found[3].cursor
    assert events.has_gap(connection, start)
    assert events.has_gap(connection, found[2].cursor)
    assert not events.has_gap(connection, found[3].cursor), "it had seen the last of those that are gone"
    assert not events.has_gap(connection, events.latest_cursor(connection))
    assert events.has_gap(connection, Cursor(2**50)), "no event of this database has said that"


def test_in_a_database_that_was_restored_events_go_on(connection: psycopg.Connection) -> None:
    """Its server counts transactions anew, and would not show old events for a long time, nor any place behind them."""
    start = events.latest_cursor(connection)
    connection.execute(RESTORED)
    periodic_locks.save_position(connection, periodic_locks.TRIM, str(Cursor(2**41, 3)))
    connection.execute(WRITE, (1,))
    assert events.has_gap(connection, start)
    events.trim(connection)
    assert numbers(events.read(connection, start)) == [1]
    assert connection.execute("SELECT count(*) FROM events WHERE xid >= '1099511627776'::xid8").fetchone() == (0,)
    now = events.latest_cursor(connection)
    assert not events.has_gap(connection, now)
    connection.execute(WRITE, (2,))
    assert numbers(events.read(connection, now)) == [2]


def test_a_listener_reads_by_index(connection: psycopg.Connection) -> None:
    connection.execute(
        "INSERT INTO events (kind, job_id, data) SELECT 'domain', NULLIF(n % 1000, 1), '{}' FROM generate_series(1, 20000) n"
    )
    connection.execute("ANALYZE events")
    for wanted, index in ((None, "events_pkey"), (7, "events_job")):
        values = {"xid": "0", "id": 0, "limit": 10, "job_id": wanted}
        clause = events._FILTERS["job_id"] if wanted else ""
        query = f"EXPLAIN {events._READ}{clause}{events._ORDER}"
        assert index in "\n".join(row[0] for row in connection.execute(query, values))
