"""Commits of several workers at once, and one whose answer never comes; with real connections."""

import random
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from holdfast.db import crawls, sweeper
from holdfast.db.connection import Database
from holdfast.errors import ClaimLost, RolledBack
from holdfast.model.commit_batch import PolitenessClocks
from holdfast.model.domain import Claim, Status
from holdfast.model.outcome import Outcome, UrlState
from tests.support.batches import Worker, links, outcome
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants
from tests.support.severing import Cut, SeveringProxy


def in_threads(*functions: object) -> None:
    """Run them at once; the first problem of any of them is the test's."""
    problems: list[BaseException] = []
    start = threading.Barrier(len(functions))

    def run(function: object) -> None:
        try:
            start.wait(30)
            assert callable(function)
            function()
        except BaseException as problem:  # noqa: BLE001 — handed to the test
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if problems:
        raise problems[0]


def test_attempts_of_two_batches_keep_their_order_whatever_their_commits_wait_for(
    store: Store, database: Database
) -> None:
    """The first one is on its way for long, and then waits for a lock; the second one is quick."""
    store.seed("d0.example/")
    claim = store.claim_one()
    store.connection.execute("UPDATE claim_log SET claimed_at = claimed_at - interval '1 hour'")
    worker = Worker(database, store)
    url = "https://d0.example/"
    failed = outcome(url, store.job, Outcome.TIMEOUT, state=UrlState.WAITING, retry_in=0.0)
    taken = time.perf_counter() - 1  # so long ago
    with database.connect() as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM domains WHERE id = %s FOR UPDATE", (claim.domain_id,))
        waiting = threading.Timer(0.5, other.execute, ("ROLLBACK",))
        waiting.start()
        worker.commit(worker.part(claim, [failed]), aged_at=taken)
        waiting.join()
    worker.commit(worker.part(claim, [replace(outcome(url, store.job), age=1.4)]), aged_at=time.perf_counter())
    assert store.value("SELECT string_agg(outcome, ' ' ORDER BY crawled_at) FROM crawl_log") == "timeout ok"


def test_workers_that_link_to_each_other_and_find_the_same_never_wait_in_a_circle(
    store: Store, database: Database
) -> None:
    """Each settles pages that the others link to at the same moment, and all find the same new domains, in any order.
    With updates before inserts this deadlocks within a few batches."""
    store.seed(*(f"d{i}.example/{n}" for i in range(4) for n in range(40)))
    job = store.job
    held = {f"w{number}": store.claim(f"w{number}", 1)[0] for number in range(4)}

    def work(name: str, claim: Claim) -> None:
        chance = random.Random(name)
        with database.connect() as connection:
            worker = Worker(database, Store(connection), name)
            for step in range(40):
                urls = [
                    link
                    for other in held.values()
                    for start, count in ((0, 40), (100 + step, 1))
                    for link in links(other.domain, count, job, start=start, foreign=other is not claim)
                ]
                urls += [
                    link
                    for i in range(3)
                    for link in links(f"new{step}-{i}.example", 2, job, start=chance.randint(0, 1), foreign=True)
                ]
                chance.shuffle(urls)
                page = outcome(f"https://{claim.domain}/{step}", job)
                assert worker.commit(worker.part(claim, [page], urls)).refused == set()

    in_threads(*(lambda name=name, claim=claim: work(name, claim) for name, claim in held.items()))
    assert store.value("SELECT count(*) FROM crawl_log") == 160
    assert store.value("SELECT count(*) FROM domains WHERE source = 'link'") == 120
    assert_invariants(store.connection)
    for name, claim in held.items():
        store.release(claim, name)
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert_invariants(store.connection)


def test_commits_against_releases_resets_and_sweeps(store: Store, database: Database) -> None:
    """Workers that claim, crawl, link to everybody and let go, while claims are taken away under their hands."""
    store.domains(12)
    job = store.job
    over = threading.Event()

    def work(name: str) -> None:
        chance = random.Random(name)
        with database.connect() as connection:
            mine = Store(connection)
            worker = Worker(database, mine, name)
            for _ in range(30):
                taken = mine.claim(name, 3)
                parts = [
                    worker.part(
                        claim,
                        [outcome(url, job) for url in worker.waiting(claim, 3)],
                        links(f"d{chance.randrange(16)}.example", 3, job, start=chance.randrange(20), foreign=True),
                    )
                    for claim in taken
                ]
                refused = worker.commit(*parts).refused
                for claim in taken:
                    if claim.domain_id not in refused:
                        with suppress(ClaimLost):  # taken away in between
                            mine.release(claim, name)

    def disturb() -> None:
        with database.connect() as connection:
            while not over.is_set():
                sweeper.force_release(connection, worker="w1")
                sweeper.sweep(connection, run_silence=LEASE)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        in_threads(*(lambda name=name: work(name) for name in ("w0", "w1", "w2")))
    finally:
        over.set()
        disturber.join(60)
    assert_invariants(store.connection)
    assert int(str(store.value("SELECT count(*) FROM crawl_log"))) > 20


@pytest.mark.parametrize("cut", [Cut.BEFORE_COMMIT, Cut.BEFORE_COMMIT_UNNOTICED, Cut.AFTER_COMMIT])
def test_a_batch_whose_commit_is_not_answered_is_written_once(store: Store, database: Database, cut: Cut) -> None:
    store.domains(1)
    claim = store.claim_one()
    whole = Worker(database, store)
    part = whole.part(
        claim, [outcome("https://d0.example/", store.job)], links("new.example", 2, store.job, foreign=True)
    )
    with SeveringProxy(database.url, cut) as proxy, Database(proxy.url).connect() as connection:
        cutting = Worker(database, Store(connection), run_id=whole.run_id)
        if cut is Cut.AFTER_COMMIT:
            assert cutting.commit(part).refused == set()
        else:
            with pytest.raises(RolledBack):
                cutting.commit(part)
            assert store.value("SELECT count(*) FROM crawl_log") == 0
            assert whole.commit(part).refused == set()
        assert proxy.cuts == 1
    assert store.value("SELECT pages_crawled FROM domains WHERE domain = 'd0.example'") == 1
    assert store.value("SELECT count(*) FROM crawl_log") == 1
    assert store.work("new.example")["waiting"] == 2
    assert_invariants(store.connection)


def test_a_commit_updates_domains_and_their_work_in_place(store: Store, database: Database) -> None:
    """No index names a column that a commit changes; with one, each page crawled would rewrite every index of the row."""
    store.domains(5)
    crawls.begin(store.connection, store.job)
    worker = Worker(database, store)
    batch = store.claim("w1", 5)

    def commit(first: int) -> None:
        worker.commit(
            *(
                worker.part(
                    claim,
                    [outcome(url, store.job) for url in worker.waiting(claim, 1)],
                    links(claim.domain, 2, store.job, start=first),
                    PolitenessClocks(0.5, 1, 2, 3.0, 4.0, 5, 6, 7),
                    streak=first,
                )
                for claim in batch
            )
        )

    def updates(table: str) -> tuple[int, int]:
        store.connection.execute("SELECT pg_stat_force_next_flush()")
        row = store.connection.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = %s", (table,)
        ).fetchone()
        assert row
        return row[0], row[1]

    commit(0)
    before = {table: updates(table) for table in ("domains", "job_domains", "crawl_runs")}
    for step in range(1, 21):
        commit(step * 10)
    for table, (updated, in_place) in before.items():
        updated_then, in_place_then = updates(table)
        assert updated_then - updated == (20 if table == "crawl_runs" else 100)
        assert in_place_then - in_place == updated_then - updated, table


def test_a_url_that_comes_while_the_last_page_is_committed_is_not_lost(store: Store, database: Database) -> None:
    store.seed("d0.example", "d1.example")
    one, two = store.claim(count=2)
    worker = Worker(database, store)
    worker.commit(
        worker.part(one, [outcome(f"https://{one.domain}/", store.job)]),
        worker.part(two, [outcome(f"https://{two.domain}/", store.job)], []),
    )
    worker.commit(worker.part(two, [], links(one.domain, 1, store.job, foreign=True)))
    assert store.release(one) is Status.ACTIVE, "its wake was folded first"
    assert store.release(two) is Status.EXHAUSTED
    assert_invariants(store.connection)
