"""Races that were lost by others, with real connections: each is forced to happen, not hoped for."""

import itertools
import random
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from holdfast.db import claims, commit_check, release
from holdfast.db.connection import Database
from holdfast.errors import RolledBack, StoreUnavailable, Unsettled
from holdfast.model.domain import Status
from holdfast.model.visit_report import DomainProgress
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants
from tests.support.races import beside, wait_until_blocked
from tests.support.severing import Cut, SeveringProxy


def _race_against_exhausted(database: Database, store: Store) -> tuple[bool, Status]:
    """A foreign worker's insert is open while the last URL's visit ends: (did the release wait, the status it left)."""
    store.seed("https://a.example/")
    claim = store.claim_one()
    store.finish_urls(claim)
    assert store.flush(claim, outcomes=1, pages_crawled=1)
    with beside(database) as (other, thread), database.connect() as watch:
        with store.connection.transaction():
            store.insert_foreign(claim.domain_id, "https://a.example/late")
            ending: Future[object] = thread.submit(other.release, claim)
            waited = wait_until_blocked(watch, other.connection, ending)
        return waited, Status(str(ending.result()))


def test_a_domain_with_a_url_on_its_way_is_not_exhausted(database: Database, store: Store) -> None:
    assert _race_against_exhausted(database, store) == (True, Status.ACTIVE)
    assert store.value("SELECT waiting FROM job_domains") == 1
    assert store.value("SELECT ready FROM job_domains") is True
    assert_invariants(store.connection)


def test_a_weaker_lock_would_call_it_exhausted(
    database: Database, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant of the test above."""
    monkeypatch.setattr(release, "_LOCK", release._LOCK.replace("FOR UPDATE", "FOR NO KEY UPDATE"))
    assert _race_against_exhausted(database, store) == (False, Status.EXHAUSTED)


def _commit_and_renew(database: Database, store: Store, seconds: float) -> tuple[int, int, int]:
    """Two workers commit and insert for each other while their heartbeats renew: (commits, renewals, deadlocks)."""
    store.domains(40)
    done = threading.Event()
    held = {worker: store.claim(worker, 20) for worker in ("w1", "w2")}
    counts = {"commits": 0, "renewals": 0, "deadlocks": 0}

    def repeat(what: str, step: Callable[[psycopg.Connection], None]) -> None:
        with database.connect() as connection:
            while not done.is_set():
                try:
                    step(connection)
                    counts[what] += 1
                except psycopg.errors.DeadlockDetected:
                    counts["deadlocks"] += 1

    def committer(worker: str) -> Callable[[psycopg.Connection], None]:
        chance = random.Random(worker)
        foreign = held["w2" if worker == "w1" else "w1"]

        def step(connection: psycopg.Connection) -> None:
            mine = chance.sample(held[worker], 10)
            with connection.transaction():
                passed = claims.fence(connection, worker=worker, held=[(c.domain_id, c.epoch) for c in mine])
                assert len(passed) == 10
                for claim in sorted(chance.sample(foreign, 5), key=lambda c: c.domain_id):
                    Store(connection).insert_foreign(claim.domain_id, f"https://{claim.domain}/{chance.random()}")
                progress = [DomainProgress(c.domain_id, outcomes=1, pages_crawled=1) for c in mine]
                claims.flush(connection, progress=progress, lease=LEASE)

        return step

    def heartbeat(worker: str) -> Callable[[psycopg.Connection], None]:
        pairs = [(c.domain_id, c.epoch) for c in held[worker]]

        def step(connection: psycopg.Connection) -> None:
            assert (
                claims.renew(connection, worker=worker, held=random.sample(pairs, len(pairs)), lease=LEASE).lost
                == set()
            )

        return step

    with ThreadPoolExecutor(4) as threads:
        for worker in held:
            threads.submit(repeat, "commits", committer(worker))
            threads.submit(repeat, "renewals", heartbeat(worker))
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not counts["deadlocks"]:
            time.sleep(0.05)
        done.set()
    return counts["commits"], counts["renewals"], counts["deadlocks"]


def test_heartbeat_and_commit_never_deadlock(database: Database, store: Store, figure: Callable[[str], None]) -> None:
    commits, renewals, deadlocks = _commit_and_renew(database, store, 4)
    figure(f"4 s of commits against heartbeats: {commits} commits, {renewals} renewals, {deadlocks} deadlocks")
    assert deadlocks == 0
    assert commits > 20
    assert renewals > 20
    assert store.value("SELECT sum(pages_crawled) FROM domains") == commits * 10
    assert_invariants(store.connection)


def test_a_heartbeat_that_waits_for_locks_would_deadlock(
    database: Database, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant of the test above. Two of its locks in the wrong order are enough; it is given a minute to meet them."""
    plain = """
        UPDATE domains d SET claim_expires_at = clock_timestamp() + %(lease)s
        FROM unnest(%(ids)s::bigint[], %(epochs)s::bigint[]) AS h(id, epoch)
        WHERE d.id = h.id AND d.claimed_by = %(worker)s AND d.claim_epoch = h.epoch RETURNING d.id
    """
    monkeypatch.setattr(claims, "_RENEW", plain)
    *_, deadlocks = _commit_and_renew(database, store, 60)
    assert deadlocks > 0


@pytest.mark.parametrize("cut", [Cut.BEFORE_COMMIT, Cut.BEFORE_COMMIT_UNNOTICED, Cut.AFTER_COMMIT])
def test_an_unknown_commit_is_settled(database: Database, store: Store, cut: Cut) -> None:
    """The connection breaks at COMMIT: the writer learns what really happened, and counts once when it tries again."""
    store.domains(1)
    claim = store.claim_one()

    def write(connection: psycopg.Connection) -> None:
        with commit_check.settled_transaction(connection, database.connect, worker="w1"):
            assert claims.fence(connection, worker="w1", held=[(claim.domain_id, claim.epoch)])
            progress = DomainProgress(claim.domain_id, outcomes=1, pages_crawled=1)
            claims.flush(connection, progress=[progress], lease=LEASE)

    with SeveringProxy(database.url, cut) as proxy:
        broken = Database(proxy.url).connect()
        if cut is Cut.AFTER_COMMIT:
            write(broken)
        else:
            with pytest.raises(RolledBack):
                write(broken)
            with database.connect() as another:
                write(another)
        assert proxy.cuts == 1
        assert broken.broken
        broken.close()
    assert store.value("SELECT pages_crawled FROM domains") == 1
    assert_invariants(store.connection)


def test_looking_for_the_rows_would_be_wrong(database: Database, store: Store) -> None:
    """While the old backend still sits on its transaction, the rows are not there, and yet nothing is decided: only the
    transaction's own status says so."""
    store.domains(1)
    with database.connect() as slow:
        slow.execute("BEGIN")
        token = uuid.uuid4()
        xid = str(slow.execute(commit_check._MARK, {"worker": "w1", "token": token}).fetchone()[0])  # type: ignore[index]
        slow.execute("UPDATE domains SET pages_crawled = 1")
        assert store.value("SELECT pages_crawled FROM domains") == 0
        assert store.value("SELECT pg_xact_status(%s::xid8)", xid) == "in progress"
        with ThreadPoolExecutor(1) as thread:
            verdict = thread.submit(commit_check.settle, database.connect, xid=xid, worker="w1", token=token)
            time.sleep(0.1)
            assert not verdict.done()
            slow.execute("COMMIT")
            assert verdict.result() is True
    assert store.value("SELECT pages_crawled FROM domains") == 1


def test_an_id_that_a_crash_gave_to_another_transaction_proves_nothing(database: Database, store: Store) -> None:
    """What a server forgets in a crash it may number again: the id is committed, but what we wrote is not there."""
    others = store.value("INSERT INTO crawl_runs (worker) VALUES ('another') RETURNING pg_current_xact_id()::text")
    assert store.value("SELECT pg_xact_status(%s::xid8)", others) == "committed"
    for xid in (str(others), "123456789012"):  # the second is one that the server has not come to again yet
        assert commit_check.settle(database.connect, xid=xid, worker="w1", token=uuid.uuid4()) is False


def test_settling_waits_for_a_server_that_is_away(database: Database) -> None:
    failures = iter([StoreUnavailable("away"), psycopg.OperationalError("gone again")])

    def connect() -> psycopg.Connection:
        if failure := next(failures, None):
            raise failure
        return database.connect()

    assert commit_check.settle(connect, xid="123456789012", worker="w1", token=uuid.uuid4()) is False
    nowhere = Database("postgresql://nobody@localhost:1/x").connect
    asked = itertools.count()
    with pytest.raises(Unsettled):
        commit_check.settle(nowhere, xid="1", worker="w1", token=uuid.uuid4(), give_up=lambda: next(asked) == 3)


def test_an_error_swallowed_inside_is_no_commit(database: Database, store: Store) -> None:
    def swallow() -> None:
        with commit_check.settled_transaction(store.connection, database.connect, worker="w1"):
            store.connection.execute("INSERT INTO crawl_jobs (name) VALUES ('lost')")
            with suppress(psycopg.Error):
                store.connection.execute("SELECT 1 / 0")

    with pytest.raises(RolledBack):
        swallow()
    assert store.value("SELECT count(*) FROM crawl_jobs WHERE name = 'lost'") == 0


def test_many_claimers_never_share_a_domain(database: Database, store: Store) -> None:
    """Eight connections race for 400 domains in batches: each domain is granted once."""
    store.domains(400)
    start = threading.Barrier(8)

    def take_all(worker: str) -> list[int]:
        mine: list[int] = []
        with database.connect() as connection:
            start.wait()
            while batch := Store(connection).claim(worker, 10):
                mine += [claim.domain_id for claim in batch]
        return mine

    with ThreadPoolExecutor(8) as threads:
        taken = [i for result in threads.map(take_all, [f"w{n}" for n in range(8)]) for i in result]
    assert sorted(taken) == sorted(set(taken))
    left = store.claim("last", 400)
    assert len(taken) + len(left) == 400
    assert store.value("SELECT count(*) FROM claim_log") == 400
    assert_invariants(store.connection)
