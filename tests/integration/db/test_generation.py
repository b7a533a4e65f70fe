"""A new generation of the store: claims are free, epochs are out of reach of the old ones, and what was under way has ended."""

import time

import psycopg
import pytest

from holdfast.db import generation, runs, workers
from holdfast.db.connection import Database
from holdfast.db.generation import GenerationGuard
from holdfast.errors import StoreRestored
from tests.support.factories import Store
from tests.support.invariants import assert_invariants


def begin(connection: psycopg.Connection) -> int:
    return generation.begin(connection, why="test", actor="somebody")


def test_claims_are_free_and_their_work_is_ready(store: Store) -> None:
    store.domains(3)
    held = store.claim(count=2)
    before = generation.current(store.connection)
    number = begin(store.connection)
    assert number > before.number
    assert generation.current(store.connection) == (before.store, number)
    assert store.value("SELECT count(*) FROM domains WHERE claimed_by IS NOT NULL") == 0
    assert store.value("SELECT count(*) FROM claim_log WHERE ended_at IS NULL") == 0
    assert store.value("SELECT min(claim_epoch) FROM domains") == generation.EPOCH_STEP * number
    assert {claim.domain for claim in store.claim("w2", count=5)} == {"d0.example", "d1.example", "d2.example"}
    assert store.value("SELECT min(claim_epoch) FROM domains") == generation.EPOCH_STEP * number + 1
    assert not any(store.flush(claim, outcomes=1, pages_crawled=1) for claim in held)
    assert store.value("SELECT object_id FROM audit_log WHERE object_kind = 'generation'") == str(number)
    assert_invariants(store.connection)


@pytest.mark.parametrize(("step", "written"), [(generation.EPOCH_STEP, False), (0, True)])
def test_an_epoch_that_the_restore_took_away_is_not_given_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: int, *, written: bool
) -> None:
    """A backup is restored twice; a worker of the first copy claimed there. If epochs did not go by the time, the second would give its
    epoch again, and its fence would hold."""
    monkeypatch.setattr(generation, "EPOCH_STEP", step)
    store.domains(1)
    with store.connection.transaction(force_rollback=True):
        begin(store.connection)
        lost = store.claim_one("frozen")
    time.sleep(1.1)
    begin(store.connection)
    assert store.claim_one("frozen").domain_id == lost.domain_id  # the twin that took its name
    assert store.flush(lost, "frozen", outcomes=1, pages_crawled=1) is written


def test_runs_and_workers_have_ended(database: Database, store: Store) -> None:
    with database.connect() as session:
        name = workers.acquire_name(session, "old").name
        run = runs.begin(session, worker=name)
        number = generation.current(session).number
        assert runs.heartbeat(session, run, in_window=1, generation=number)
        begin(store.connection)
        ended = "SELECT status::text, error_message FROM crawl_runs WHERE id = %s"
        assert store.connection.execute(ended, (run,)).fetchone() == ("failed", generation.ENDED)
        assert store.value("SELECT ended_at IS NOT NULL FROM workers WHERE name = 'old'")
        at = store.value("SELECT heartbeat_at FROM crawl_runs WHERE id = %s", run)
        assert not runs.heartbeat(session, run, in_window=7, generation=number)
        assert store.value("SELECT heartbeat_at FROM crawl_runs WHERE id = %s", run) == at


def test_a_guard_refuses_connections_to_another_generation(database: Database, store: Store) -> None:
    guarded = Database(database.url, guard=GenerationGuard())
    guarded.connect().close()
    guarded.connect().close()
    begin(store.connection)
    with pytest.raises(StoreRestored, match="generation 1, now "):
        guarded.connect()
    store.connection.execute("UPDATE store_identity SET id = gen_random_uuid(), generation = 1")
    with pytest.raises(StoreRestored, match="another store"):
        guarded.connect()
