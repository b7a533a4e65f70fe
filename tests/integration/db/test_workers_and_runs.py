"""Names that workers bear, runs that fall silent, and what operators ask about both."""

import os
import time
from datetime import timedelta

import psycopg
import pytest

from holdfast.db import crawls, runs, workers
from holdfast.db.connection import Database
from holdfast.db.workers import Identity
from holdfast.domains import queries as domains
from holdfast.errors import NameInUse, Refused
from holdfast.model.activity import Activity, InFlightRequest
from holdfast.model.domain import Event
from holdfast.workers import queries as run_lists
from tests.support.factories import Store

HOUR = timedelta(hours=1)


def end(session: psycopg.Connection, watch: psycopg.Connection) -> None:
    """Close a session and wait for the server to have ended it, which is a moment later."""
    pid = session.info.backend_pid
    session.close()
    while watch.execute("SELECT FROM pg_stat_activity WHERE pid = %s", (pid,)).rowcount:
        time.sleep(0.002)


def test_a_name_is_held_by_one_living_session(database: Database) -> None:
    with database.connect() as first, database.connect() as second, database.connect() as third:
        assert workers.acquire_name(first, "w") == Identity("w", 1)
        assert workers.acquire_name(second, "w") == Identity("w-2", 1), "a twin gets another name and robs nobody"
        assert workers.acquire_name(third, "w") == Identity("w-3", 1)
        end(second, first)
        with database.connect() as fourth:
            assert workers.acquire_name(fourth, "w") == Identity("w-2", 2), "the first that is free, in its second life"


def test_a_restart_gets_its_name_back_in_a_new_life(database: Database) -> None:
    with database.connect() as watch:
        for life in (1, 2, 3):
            with database.connect() as session:
                assert workers.acquire_name(session, "w") == Identity("w", life)
                row = watch.execute("SELECT boot_epoch, pid FROM workers WHERE name = 'w'").fetchone()
                assert row == (life, os.getpid())
                end(session, watch)


def test_a_name_is_not_given_back_by_a_failed_transaction(database: Database) -> None:
    with database.connect() as first, database.connect() as second:
        workers.acquire_name(first, "w")
        with pytest.raises(psycopg.errors.DivisionByZero), first.transaction():
            first.execute("SELECT 1 / 0")
        assert workers.acquire_name(second, "w").name == "w-2"


def test_names_do_not_run_on_for_ever(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_MAX_NAMES", 2)
    with database.connect() as first, database.connect() as second, database.connect() as third:
        workers.acquire_name(first, "w")
        workers.acquire_name(second, "w")
        with pytest.raises(NameInUse, match="2 workers called 'w' are alive"):
            workers.acquire_name(third, "w")


def test_a_worker_without_claims_is_alone_or_not_at_all(database: Database) -> None:
    with database.connect() as first, database.connect() as second, database.connect() as third:
        workers.acquire_worker_lock(first, exclusive=False)
        workers.acquire_worker_lock(second, exclusive=False)
        with pytest.raises(Refused, match="only one worker may run"):
            workers.acquire_worker_lock(third, exclusive=True)
        end(first, third)
        end(second, third)
        workers.acquire_worker_lock(third, exclusive=True)
        with database.connect() as fourth:
            for alone in (True, False):
                with pytest.raises(Refused):
                    workers.acquire_worker_lock(fourth, exclusive=alone)


def test_a_run_lives_and_ends(store: Store, database: Database) -> None:
    with database.connect() as session:
        name = workers.acquire_name(session, "w").name
        crawl, _ = crawls.begin(store.connection, store.job)
        run = runs.begin(store.connection, worker=name, job_id=store.job, crawl_id=crawl)
        store.connection.execute("UPDATE crawl_runs SET heartbeat_at = now() - interval '2 h'")
        store.connection.execute("UPDATE workers SET heartbeat_at = now() - interval '2 h'")
        runs.heartbeat(store.connection, run, in_window=42)
        assert run_lists.silent_runs(store.connection, older_than=HOUR) == []
        assert store.value("SELECT in_window FROM crawl_runs") == 42
        assert store.value("SELECT heartbeat_at > now() - interval '1 h' FROM workers") is True
        runs.end(store.connection, run, error=None)
        assert (
            store.value("SELECT status || ' ' || in_window || ' ' || crawl_id FROM crawl_runs")
            == f"completed 0 {crawl}"
        )
        failed = runs.begin(store.connection, worker=name)
        runs.end(store.connection, failed, error="out of disk")
        runs.end(store.connection, failed, error=None)
        query = "SELECT status || ' ' || error_message FROM crawl_runs WHERE id = %s"
        assert store.value(query, failed) == "failed out of disk", "the first word stands"


def test_runs_without_a_sign_of_life(store: Store) -> None:
    ids = [runs.begin(store.connection, worker=f"w{number}", job_id=store.job) for number in range(4)]
    ages = dict(zip(ids, ("59 min", "61 min", "1 day", "1 day"), strict=True))
    for run, age in ages.items():
        store.connection.execute("UPDATE crawl_runs SET heartbeat_at = now() - %s::interval WHERE id = %s", (age, run))
    store.connection.execute(
        "UPDATE crawl_runs SET status = 'completed', completed_at = now() WHERE id = %s", (ids[3],)
    )
    found = run_lists.silent_runs(store.connection, older_than=HOUR)
    assert [(run.id, run.worker, run.pages_crawled) for run in found] == [(ids[1], "w1", 0), (ids[2], "w2", 0)]
    assert [run.id for run in run_lists.silent_runs(store.connection, older_than=12 * HOUR)] == [ids[2]]
    assert sorted(runs.fail_silent(store.connection, older_than=HOUR, message="gone")) == ids[1:3]
    assert runs.fail_silent(store.connection, older_than=HOUR, message="again") == []
    rows = store.connection.execute(
        "SELECT id, status::text, completed_at IS NOT NULL, error_message FROM crawl_runs ORDER BY id"
    ).fetchall()
    assert rows == [
        (ids[0], "running", False, None),
        (ids[1], "failed", True, "gone"),
        (ids[2], "failed", True, "gone"),
        (ids[3], "completed", True, None),
    ], "a terminal status is never overwritten"


def test_a_run_has_an_end_if_and_only_if_it_is_over(store: Store) -> None:
    run = runs.begin(store.connection, worker="w1")
    for change in ("status = 'failed'", "completed_at = now()"):
        with pytest.raises(psycopg.errors.CheckViolation):
            store.connection.execute(f"UPDATE crawl_runs SET {change} WHERE id = %s", (run,))


def test_what_operators_see_of_claims(store: Store) -> None:
    """claims by worker, expired claims, domains waiting."""
    store.domains(8)
    mine = store.claim("w1", 3)
    (theirs,) = store.claim("w2", 1)
    store.expire(mine[0].domain_id)
    (stopped,) = store.claim("w3", 1)
    store.release(stopped, "w3", event=Event.TIMEOUT)
    (begun,) = store.claim("w3", 1)
    store.flush(begun, "w3", outcomes=1)
    store.release(begun, "w3")
    by_worker = run_lists.claims_by_worker(store.connection)
    assert [(row.worker, row.claims, row.expired) for row in by_worker] == [("w1", 3, 1), ("w2", 1, 0)]
    assert by_worker[1].earliest_expiry == theirs.expires_at
    assert [row.claims for row in run_lists.claims_by_worker(store.connection, "w2")] == [1]
    assert run_lists.claims_by_worker(store.connection, "w9") == []
    (expired,) = run_lists.expired_claims(store.connection, limit=5)
    assert (expired.domain, expired.worker, expired.epoch) == (mine[0].domain, "w1", 1)
    assert run_lists.waiting_domains(store.connection) == {"pending": 2, "active": 1}
    assert run_lists.cooling_domains(store.connection) == 1
    (work,) = domains.work_of(store.connection, begun.domain_id)
    assert (work.job, work.job_state, work.state, work.ready, work.waiting) == (
        "default",
        "pending",
        "open",
        True,
        1,
    )


BUSY = Activity({1: 2}, (InFlightRequest("https://a.example/x", 1, 0.5),), 0, ())


def test_what_a_worker_does_is_seen_while_it_runs(database: Database, connection: psycopg.Connection) -> None:
    with database.connect() as session:
        workers.acquire_name(session, "w")
        assert workers.save_activity(session, "w", BUSY)
        assert workers.activities(connection, silence=HOUR) == {}, "it has no run"
        run = runs.begin(connection, worker="w")
        (seen,) = workers.activities(connection, silence=HOUR).values()
        assert (seen.requests, seen.fetching[0].url) == ({1: 2}, "https://a.example/x")
        assert workers.save_activity(session, "w", Activity())
        assert workers.activities(connection, silence=HOUR) == {"w": Activity()}
        assert workers.save_activity(session, "w", BUSY)
        runs.end(connection, run, error=None)
        assert workers.activities(connection, silence=HOUR) == {}
        end(session, connection)
    with database.connect() as session:
        workers.acquire_name(session, "w")
        runs.begin(connection, worker="w")
        assert workers.activities(connection, silence=HOUR) == {"w": Activity()}, (
            "a new life begins without the old activity"
        )


def test_to_tell_waits_for_no_lock_and_for_no_disk(database: Database, connection: psycopg.Connection) -> None:
    workers.acquire_name(connection, "w")
    with database.connect() as other, other.transaction():
        other.execute("SELECT FROM workers WHERE name = 'w' FOR UPDATE")
        assert not workers.save_activity(connection, "w", BUSY)
    assert workers.save_activity(connection, "w", BUSY)
    assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",), "only that one transaction"


def test_to_tell_again_and_again_leaves_the_table_as_small_as_it_was(connection: psycopg.Connection) -> None:
    workers.acquire_name(connection, "w")
    for number in range(200):
        assert workers.save_activity(connection, "w", Activity({1: number}))
    (pages,) = connection.execute("SELECT pg_relation_size('workers') / 8192").fetchone() or (None,)
    assert pages <= 2, "HOT updates reuse the room of the row before"


def test_a_list_of_workers_says_what_each_does_and_fetches(store: Store) -> None:
    """The seed's heartbeat: status and current URL."""
    connection = store.connection
    store.domains(2)
    for name in ("at-work", "idle", "ended", "dead"):
        connection.execute("INSERT INTO workers (name, host, pid) VALUES (%s, 'here', 1)", (name,))
    for name in ("at-work", "idle", "dead"):
        runs.begin(connection, worker=name)
    store.claim("at-work", 1)
    store.claim("dead", 1)
    busy = Activity(
        {1: 2}, (InFlightRequest("https://a.example/x", 1, 0.5), InFlightRequest("https://a.example/y", 1, 0.1)), 0, ()
    )
    for name in ("at-work", "dead"):
        assert workers.save_activity(connection, name, busy)
    workers.deregister(connection, "ended")
    connection.execute("UPDATE workers SET heartbeat_at = now() - interval '2 h' WHERE name = 'dead'")
    page = run_lists.WORKERS.page(connection, {}, order="name", limit=9, extra={"silence": HOUR})
    urls = ["https://a.example/x", "https://a.example/y"]
    assert [(row.name, row.status, row.current_url, row.current_urls) for row in page.rows] == [
        ("at-work", "active", urls[0], urls),
        ("dead", "silent", None, []),
        ("ended", "ended", None, []),
        ("idle", "idle", None, []),
    ]
    assert [(row.name, row.status, row.current_urls) for row in run_lists.at_work(connection, silence=HOUR)] == [
        ("at-work", "active", urls),
        ("idle", "idle", []),
        ("dead", "silent", []),
    ]
