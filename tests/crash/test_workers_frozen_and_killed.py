"""Workers that are frozen, killed or twinned: real processes, real signals, and the store afterwards."""

import time
from datetime import timedelta

import pytest

from holdfast.db import sweeper
from holdfast.db.connection import Database
from tests.support.factories import Store
from tests.support.invariants import assert_invariants
from tests.support.processes import WorkerProcess

SHORT = 0.2
HOUR = timedelta(hours=1)


def _wake_after_the_lease(database: Database, store: Store, *flags: str) -> tuple[list[str], int]:
    """Freeze a worker past its lease, let another take its domain and crawl a page, thaw the first and let it write.

    What the first was allowed to write for, and the pages in the store."""
    store.domains(1)
    with WorkerProcess(database.url, "first", *flags) as first:
        assert first.ask("claim", count=1, lease=SHORT) == ["d0.example"]
        first.freeze()
        time.sleep(SHORT + 0.1)
        assert sweeper.sweep(store.connection, run_silence=HOUR).expired == 1
        with WorkerProcess(database.url, "second") as second:
            assert second.ask("claim", count=1, lease=1800) == ["d0.example"]
            assert second.ask("write") == ["d0.example"]
            first.thaw()
            written: list[str] = first.ask("write")
    return written, int(str(store.value("SELECT pages_crawled FROM domains")))


def test_a_worker_that_wakes_after_its_lease_cannot_write(database: Database, store: Store) -> None:
    assert _wake_after_the_lease(database, store) == ([], 1)
    assert_invariants(store.connection)


def test_without_the_fence_it_could(database: Database, store: Store) -> None:
    """The mutant of the test above: it proves that the test would notice."""
    with pytest.raises(AssertionError):
        assert _wake_after_the_lease(database, store, "--no-fence") == ([], 1)


def test_a_frozen_worker_whose_lease_still_runs_keeps_its_domain(database: Database, store: Store) -> None:
    store.domains(1)
    with WorkerProcess(database.url, "first") as first:
        assert first.ask("claim", count=1, lease=1800) == ["d0.example"]
        first.freeze()
        assert sweeper.sweep(store.connection, run_silence=HOUR).expired == 0
        assert store.claim("second") == []
        first.thaw()
        assert first.ask("write") == ["d0.example"]
    assert_invariants(store.connection)


def test_a_twin_of_a_frozen_worker_robs_it_of_nothing(database: Database, store: Store) -> None:
    """Two workers with one name: the second gets another name, and the first one's claims stay its own."""
    store.domains(3)
    with WorkerProcess(database.url, "crawler") as first:
        assert len(first.ask("claim", count=2, lease=1800)) == 2
        first.freeze()
        with WorkerProcess(database.url, "crawler") as twin:
            assert twin.name == "crawler-2"
            assert twin.ask("reclaim") == []
            assert twin.ask("claim", count=10, lease=1800) == ["d2.example"]
        first.thaw()
        assert first.ask("write") == ["d0.example", "d1.example"]
    assert_invariants(store.connection)


def test_a_killed_worker_takes_its_claims_back_at_once(database: Database, store: Store) -> None:
    store.domains(3)
    with WorkerProcess(database.url, "crawler") as first:
        taken = first.ask("claim", count=2, lease=1800)
    with _again(database, "crawler") as second:
        assert second.name == "crawler"
        assert sorted(second.ask("reclaim")) == sorted(taken)
        assert second.ask("write") == sorted(taken)
    assert store.value("SELECT count(*) FROM claim_log WHERE why = 'reclaimed'") == 2
    assert_invariants(store.connection)


def _again(database: Database, name: str) -> WorkerProcess:
    """The same worker after a kill. The server may need a moment to notice that the old session's socket is closed."""
    deadline = time.monotonic() + 10
    while True:
        process = WorkerProcess(database.url, name)
        if process.name == name or time.monotonic() > deadline:
            return process
        process.kill()
