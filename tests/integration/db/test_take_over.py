"""Domains of workers that died: taken over after two minutes of silence, and never from a worker that may still ask."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest

from holdfast.crawler.leases import Heartbeat, Leases, RunCounters
from holdfast.db import claims, runs, sweeper, workers
from holdfast.db.connection import Database
from holdfast.domains.queries import tenures_of
from holdfast.errors import NameInUse
from holdfast.model.domain import Claim
from holdfast.telemetry.clock import SystemClock
from holdfast.workers.service import WorkerService
from tests.support.crawls import wait_for
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the server had been running for a while."""
    monkeypatch.setattr(workers, "STARTUP_GRACE", timedelta(0))


def sweep_now(store: Store) -> sweeper.SweepResult:
    return sweeper.sweep(store.connection, run_silence=HOUR)


def silence(store: Store, worker: str, seconds: float = 125) -> None:
    store.connection.execute(
        "UPDATE workers SET heartbeat_at = clock_timestamp() - %s * interval '1 second' WHERE name = %s",
        (seconds, worker),
    )


@contextmanager
def named(database: Database, name: str) -> Iterator[psycopg.Connection]:
    with database.connect() as session:
        assert workers.acquire_name(session, name).name == name
        yield session
        session.execute("SELECT pg_advisory_unlock_all()")


def hold_and_die(store: Store, database: Database, count: int, name: str = "w1") -> list[Claim]:
    """A worker that claimed so many domains, and whose session is gone."""
    with named(database, name):
        return store.claim(name, count)


def test_a_dead_workers_domains_are_free_after_two_minutes_under_a_long_lease(store: Store, database: Database) -> None:
    store.domains(3)
    lost = hold_and_die(store, database, 2)
    silence(store, "w1", 115)
    assert sweep_now(store).abandoned == 0, "its last request may still be under way"
    silence(store, "w1")
    assert workers.dead(store.connection) == ["w1"]
    assert sweep_now(store).abandoned == 2
    assert workers.dead(store.connection) == []
    assert {row.why for claim in lost for row in tenures_of(store.connection, claim.domain_id)} == {"silent"}
    again = {claim.domain_id: claim for claim in store.claim("w2", 9)}
    assert [again[claim.domain_id].epoch for claim in lost] == [claim.epoch + 2 for claim in lost]
    assert [again[claim.domain_id].clean for claim in lost] == [False, False], (
        "a full delay passes before its first request"
    )
    held = [(claim.domain_id, claim.epoch) for claim in lost]
    assert claims.renew(store.connection, worker="w1", held=held, lease=LEASE).lost == {c.domain_id for c in lost}
    assert_invariants(store.connection)


def bear(store: Store, *, host: str, pid: int) -> None:
    store.connection.execute("UPDATE workers SET host = %s, pid = %s WHERE name = 'w1'", (host, pid))


def next_name(database: Database) -> str:
    with database.connect() as session:
        return workers.acquire_name(session, "w1", timeout=5.0).name


def test_a_name_is_not_taken_from_a_worker_that_may_be_cut_off(store: Store, database: Database) -> None:
    """The server has ended its session, but on another machine it may send requests until its heartbeat is too old."""
    store.domains(1)
    hold_and_die(store, database, 1)
    bear(store, host="another machine", pid=1)
    assert next_name(database) == "w1-2"
    with database.connect() as session, pytest.raises(NameInUse):
        workers.acquire_name(session, "w1", exact=True)
    silence(store, "w1")
    assert next_name(database) == "w1", "it asks for nothing any more"


def test_a_name_is_not_taken_from_a_process_that_lives_on_this_machine(store: Store, database: Database) -> None:
    store.domains(1)
    hold_and_die(store, database, 1)
    with subprocess.Popen(["sleep", "60"]) as other:
        bear(store, host=socket.gethostname(), pid=other.pid)
        assert next_name(database) == "w1-2"
        store.connection.execute("UPDATE workers SET started_at = started_at - interval '1 hour'")
        assert next_name(database) == "w1", "the process is younger than the worker was: it has its id since"
        other.kill()
        other.wait()
        bear(store, host=socket.gethostname(), pid=other.pid)
        assert next_name(database) == "w1"


def test_a_worker_that_held_nothing_leaves_its_name_at_once(store: Store, database: Database) -> None:
    with named(database, "w1"):
        bear(store, host="another machine", pid=1)
    assert next_name(database) == "w1"


def test_a_frozen_worker_keeps_its_name_and_its_domains(store: Store, database: Database) -> None:
    """Its session lives, so it may be anywhere in its code; its domains come free with their leases."""
    store.domains(1)
    with named(database, "w1"):
        (held,) = store.claim("w1", 1)
        silence(store, "w1", 1000)
        assert workers.dead(store.connection) == []
        assert sweep_now(store) == sweeper.SweepResult()
        store.expire(held.domain_id)
        assert sweep_now(store).expired == 1


def test_nobody_is_dead_within_a_minute_of_the_servers_start(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sessions are gone then, and workers that live have not come back yet."""
    store.domains(1)
    hold_and_die(store, database, 1)
    silence(store, "w1")
    monkeypatch.setattr(workers, "STARTUP_GRACE", timedelta(days=10_000))
    assert sweep_now(store).abandoned == 0
    monkeypatch.setattr(workers, "STARTUP_GRACE", timedelta(0))
    assert sweep_now(store).abandoned == 1


def test_a_sweep_waits_for_no_lock(store: Store, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "CHUNK", 2)
    store.domains(5)
    lost = hold_and_die(store, database, 5)
    silence(store, "w1")
    store.connection.execute("SET lock_timeout = '2s'")
    with database.connect() as other:
        with other.transaction():
            other.execute("SELECT FROM workers WHERE name = 'w1' FOR UPDATE")
            assert sweep_now(store).abandoned == 0, "it has just come back, or another sweep is at it"
        with other.transaction():
            other.execute("SELECT FROM domains WHERE id = %s FOR NO KEY UPDATE", (lost[4].domain_id,))
            assert sweep_now(store).abandoned == 4, "the last one is in a transaction that has not ended"
        assert sweep_now(store).abandoned == 1


def test_a_worker_that_comes_back_is_heard_of_or_has_lost_everything(store: Store, database: Database) -> None:
    store.domains(2)
    hold_and_die(store, database, 2)
    silence(store, "w1")
    with named(database, "w1"):
        assert sweep_now(store).abandoned == 0, "it is heard of as soon as it has its name"
        assert len(claims.reclaim(store.connection, worker="w1", lease=LEASE)) == 2


def test_a_starting_worker_tries_its_name_for_a_while(store: Store, database: Database) -> None:
    """A sweep holds the name of a dead worker until its transaction ends."""
    store.domains(1)
    hold_and_die(store, database, 1)
    silence(store, "w1")
    with database.connect() as session:
        with store.connection.transaction():
            assert workers.lock_if_dead(store.connection, "w1")
            assert workers.acquire_name(session, "w1", timeout=0.1).name == "w1-2"
            session.execute("SELECT pg_advisory_unlock_all()")
            store.connection.execute("SELECT pg_sleep(0)")
        assert workers.acquire_name(session, "w1", timeout=2.0).name == "w1"


def test_a_command_frees_what_dead_workers_hold_and_says_so_before(store: Store, database: Database) -> None:
    store.domains(3)
    hold_and_die(store, database, 2)
    store.claim("w2", 1)
    service = WorkerService(database)
    assert service.releasable(force=False, worker=None) == []
    silence(store, "w1")
    assert [(row.worker, row.claims, row.expired) for row in service.releasable(force=False, worker=None)] == [
        ("w1", 2, 2)
    ]
    assert service.release(force=False, worker=None, actor="ann") == 2
    assert service.release(force=False, worker=None, actor="ann") == 0
    assert store.value("SELECT details ->> 'why' FROM audit_log WHERE action = 'release'") == "silent"


def test_every_session_is_ended_soon_by_a_server_that_misses_its_client(database: Database) -> None:
    """On a Unix socket the server takes these settings, and has no use for them: it answers 0."""
    with database.connect() as session:
        options = session.info.get_parameters()["options"]
        for setting in ("idle=15", "interval=5", "count=3"):
            assert f"tcp_keepalives_{setting}" in options
        assert "tcp_user_timeout=30000" in options
        row = session.execute("SELECT count(*) FROM pg_settings WHERE name ~ '^tcp_' AND source = 'client'").fetchone()
        assert row == (4,)


def test_a_worker_whose_session_was_cut_asks_for_nothing_until_it_has_its_name_again(
    store: Store, database: Database
) -> None:
    """The session that bears its name meanwhile may be a twin's, which has taken its claims back."""
    store.domains(1)
    leases = Leases(SystemClock(), LEASE)
    doomed: list[str] = []
    heartbeat = Heartbeat(
        database,
        leases,
        SystemClock(),
        wanted_name="w1",
        lease=LEASE,
        interval=timedelta(seconds=0.2),
        on_lost=lambda _: None,
        on_failure=doomed.append,
        on_notification=lambda: None,
        buffered_urls=lambda: 0,
        counters=RunCounters(),
    )
    heartbeat.take_name(alone=False)
    heartbeat.start(runs.begin(store.connection, worker="w1"))
    try:
        (claim,) = store.claim("w1", 1)
        tenure = (claim.domain_id, claim.epoch)
        leases.add([tenure], SystemClock().now())
        assert 90 < leases.seconds_left(tenure) <= 100
        with database.connect() as twin:
            while not workers._is_true(twin, workers._HOLD, "w1"):
                store.connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid() "
                    "AND pid <> %s AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                    (twin.info.backend_pid,),
                )
            wait_for(lambda: leases.seconds_left(tenure) < 0, "the worker to fall silent")
        wait_for(lambda: leases.seconds_left(tenure) > 90, "the worker to have its name again")
        assert store.value("SELECT string_agg(name, ' ') FROM workers") == "w1", "and no other"
        assert doomed == []
    finally:
        heartbeat.stop()
    assert store.value("SELECT ended_at IS NOT NULL FROM workers") is True
