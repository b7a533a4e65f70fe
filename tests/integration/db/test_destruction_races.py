"""Domains removed, frontiers cleared and pages purged under workers that commit, release and find links to each other's domains."""

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psycopg
import pytest

from holdfast.db import sweeper
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.domains.service import DomainService
from holdfast.errors import ClaimLost, HoldfastError, NotFound, Refused, RolledBack
from holdfast.frontier import queries as frontier_queries
from holdfast.frontier.queries import ClearScope
from holdfast.frontier.service import FrontierService
from holdfast.jobs.seed_import import SeedImporter
from holdfast.model.url import DEFAULT_RULES
from holdfast.pages.service import PageService
from tests.support.batches import Worker, links, outcome
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants
from tests.support.races import beside, wait_until_blocked

DOMAINS = 12
ROUNDS = 25


def work(database: Database, name: str, seed: int) -> int:
    """Claim, fetch, find links to other domains, commit, release; how often something was committed."""
    chance, committed = random.Random(seed), 0
    with database.connect() as connection:
        mine = Store(connection)
        worker, job = Worker(database, mine, name), mine.job
        for _ in range(ROUNDS):
            taken = mine.claim(name, 3)
            parts = [
                worker.part(
                    claim,
                    [outcome(url, job) for url in worker.waiting(claim, 3)],
                    links(f"d{chance.randrange(DOMAINS)}.example", 3, job, start=chance.randrange(20), foreign=True),
                )
                for claim in taken
            ]
            refused = {claim.domain_id for claim in taken}
            with suppress(RolledBack):  # a deadlock lost: the engine would try again
                refused = worker.commit(*parts).refused
                committed += 1
            for claim in taken:
                if claim.domain_id not in refused:
                    with suppress(ClaimLost):
                        mine.release(claim, name)
    return committed


def remove(database: Database, chance: random.Random) -> int:
    desk = DomainService(database)
    with suppress(NotFound, Refused):
        desk.forget(desk.remove(f"d{chance.randrange(DOMAINS)}.example", actor="ann").id)
        return 1
    return 0


def clear(database: Database, chance: random.Random) -> int:
    desk = FrontierService(database, SeedImporter(database, DEFAULT_RULES, NewDomains()))
    with suppress(NotFound):
        return desk.clear(actor="ann", domain=f"d{chance.randrange(DOMAINS)}.example").cleared.urls
    return 0


def purge(database: Database, chance: random.Random) -> int:
    with suppress(NotFound):
        return PageService(database).purge(actor="ann", domain=f"d{chance.randrange(DOMAINS)}.example").forgotten
    return 0


@pytest.mark.parametrize("deed", [remove, clear, purge])
def test_nothing_breaks_whoever_works_meanwhile(
    store: Store, database: Database, deed: Callable[[Database, random.Random], int]
) -> None:
    store.domains(DOMAINS)
    over, chance = threading.Event(), random.Random(5)
    done: list[int] = []
    problems: list[Exception] = []

    def disturb() -> None:
        try:
            with database.connect() as connection:
                while not over.is_set():
                    done.append(deed(database, chance))
                    sweeper.sweep(connection, run_silence=LEASE)
                    assert_invariants(connection)
        except (HoldfastError, psycopg.Error, AssertionError) as problem:
            problems.append(problem)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        with ThreadPoolExecutor(3) as threads:
            committed = sum(threads.map(lambda seed: work(database, f"w{seed}", seed), range(3)))
    finally:
        over.set()
        disturber.join(60)
    assert problems == []
    assert committed > 20
    assert sum(done) > 0, "it was never really done"
    sweeper.force_release(store.connection, worker=None)
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert_invariants(store.connection)


def test_a_removal_waits_for_links_that_are_on_their_way(store: Store, database: Database) -> None:
    store.domains(1)
    domain_id = store.row("d0.example")["id"]
    with beside(database) as (other, thread):
        with store.connection.transaction():
            store.insert_foreign(domain_id, "https://d0.example/late")
            desk = DomainService(database)
            future = thread.submit(lambda: desk.forget(desk.remove("d0.example", actor="ann").id))
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while not other.value(blocked):
                assert not future.done(), "it did not wait"
        future.result(30)
    assert store.value("SELECT count(*) FROM url_frontier") == 0
    assert_invariants(store.connection)


def test_clearing_waits_for_links_that_are_on_their_way_and_takes_them_along(store: Store, database: Database) -> None:
    store.domains(1)
    domain_id = store.row("d0.example")["id"]
    with beside(database) as (other, thread):
        with store.connection.transaction():
            store.insert_foreign(domain_id, "https://d0.example/late")
            future = thread.submit(
                lambda: frontier_queries.clear(other.connection, [domain_id], ClearScope([other.job]))
            )
            assert wait_until_blocked(store.connection, other.connection, future)
        assert future.result(30).forgotten == 2
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert_invariants(store.connection)
