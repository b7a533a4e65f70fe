"""Budgets: a domain's own, and its share of the crawl's; never more than there is, whoever dies."""

import random
import threading
from collections import Counter

import pytest

from holdfast.db import budget, claims, crawls, job_ends, rounds, sweeper
from holdfast.db.connection import Database
from holdfast.domains import queries as domains
from holdfast.model.domain import Claim
from holdfast.model.job import DomainLimits, Job, JobSpec, Limit
from tests.support.batches import Worker, links, outcome
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants


@pytest.fixture
def worker(store: Store, database: Database) -> Worker:
    return Worker(database, store)


def job_with(
    store: Store, domains_: int, urls: int, *, max_pages: int | None = None, max_pages_per_domain: int | None = None
) -> Job:
    """A job with equal domains under way: so many pages each."""
    spec = JobSpec(max_pages=max_pages, max_pages_per_domain=max_pages_per_domain)
    job = crawls.create(store.connection, name="job", spec=spec, fingerprint=None)
    store.seed(*(f"s{i}.example/{n}" for i in range(domains_) for n in range(urls)), job=job.id)
    return begin(store, job)


def begin(store: Store, job: Job) -> Job:
    crawls.begin(store.connection, job.id)
    return crawls.get(store.connection, job.id)


def ask(
    store: Store,
    claim: Claim,
    job: Job,
    per_domain: int | None = None,
    worker: str = "w1",
    *,
    share: int | None = None,
) -> int | None:
    by = Limit.MAX_PAGES_PER_DOMAIN if per_domain is not None else None
    limits = DomainLimits(share, per_domain, by)
    return budget.grant(
        store.connection, worker=worker, domain_id=claim.domain_id, epoch=claim.epoch, job=job, limits=limits
    )


def serve(
    worker: Worker,
    job: Job,
    per_domain: int | None = None,
    *,
    share: int | None = None,
    chance: random.Random | None = None,
) -> bool:
    """One visit as the engine makes it; with chance it may be killed before or after a commit. False: nothing is ready."""
    store = worker.store
    taken = store.claim(worker.name, 1, job=job.id)
    if not taken:
        return False
    (claim,) = taken
    spent = False
    while allowed := ask(store, claim, job, per_domain, worker.name, share=share):
        if chance and chance.random() < 0.2:
            return True  # killed: it had been promised pages, and fetched some that nobody knows of
        if not worker.crawl(claim, min(allowed, chance.randint(1, 5) if chance else 1000), job.id):
            break
    else:
        spent = allowed == 0
    store.release(claim, worker.name, spent_jobs=frozenset({job.id} if spent else ()))
    return True


def pages(store: Store, job: Job) -> dict[int, int]:
    rows = store.connection.execute("SELECT domain_id, done FROM job_domains WHERE job_id = %s", (job.id,))
    return dict(rows.fetchall())


def crawl(store: Store, job: Job) -> dict[str, int]:
    row = store.connection.execute("SELECT to_jsonb(c) FROM crawls c WHERE id = %s", (job.crawl_id,)).fetchone()
    assert row
    return dict(row[0])


def test_without_limits_there_is_none(store: Store) -> None:
    job = job_with(store, 1, 3)
    (claim,) = store.claim(job=job.id)
    assert ask(store, claim, job) is None
    assert crawl(store, job)["pages_granted"] == 0


def test_a_domains_own_limit_counts_in_the_crawl_and_not_in_the_tenure(store: Store, worker: Worker) -> None:
    job = job_with(store, 1, 10)
    (claim,) = store.claim(job=job.id)
    assert ask(store, claim, job, 4) == 4
    worker.crawl(claim, 3, job.id)
    assert ask(store, claim, job, 4) == 1
    store.release(claim)
    (claim,) = store.claim(job=job.id)
    assert ask(store, claim, job, 4) == 1, "a restart does not multiply it"
    worker.crawl(claim, 1, job.id)
    assert ask(store, claim, job, 4) == 0
    store.release(claim, spent_jobs=frozenset({job.id}))
    assert store.work("s0.example", job.id)["state"] == "spent"
    assert store.row("s0.example")["status"] == "active", "its URLs wait: it is not exhausted"
    assert store.claim(job=job.id) == []
    assert not rounds.advance(store.connection, job.id, job.crawl_id or 0), "not for fairness but by its own limit"
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert store.claim(job=job.id) == []
    assert_invariants(store.connection)
    assert not job_ends.finish(store.connection, job.crawl_id or 0)
    job = begin(store, job)
    (claim,) = store.claim(job=job.id)
    assert ask(store, claim, job, 4) == 4, "another crawl, another budget"


def test_a_raised_limit_lets_spent_domains_go_on(store: Store, worker: Worker) -> None:
    job = job_with(store, 1, 10, max_pages_per_domain=2)
    assert serve(worker, job, 2)
    assert store.claim(job=job.id) == []
    assert crawls.begin(store.connection, job.id) == (job.crawl_id, True)
    assert store.claim(job=job.id) == [], "nothing has changed"
    crawls.set_spec(store.connection, job.id, JobSpec(max_pages_per_domain=5))
    assert crawls.begin(store.connection, job.id) == (job.crawl_id, True)
    assert serve(worker, job, 5)
    assert pages(store, job) == {1: 5}
    assert_invariants(store.connection)


def test_a_limit_that_comes_later_counts_what_was_crawled_before(store: Store, worker: Worker) -> None:
    job = job_with(store, 2, 10)
    (claim,) = store.claim(job=job.id)
    worker.crawl(claim, 4, job.id)
    store.release(claim)
    crawls.set_spec(store.connection, job.id, JobSpec(max_pages=6))
    assert crawls.begin(store.connection, job.id) == (job.crawl_id, True)
    run_out(worker, job)
    assert sum(pages(store, job).values()) == 6
    assert_invariants(store.connection)


def test_unused_pages_come_back_however_the_claim_ends(store: Store, worker: Worker) -> None:
    job = job_with(store, 1, 20, max_pages=10)
    for end in ("release", "expire", "force", "reset"):
        (claim,) = store.claim(job=job.id)
        assert ask(store, claim, job) == 10 - sum(pages(store, job).values())
        worker.crawl(claim, 1, job.id)
        match end:
            case "release":
                store.release(claim)
            case "expire":
                store.expire(claim.domain_id)
                assert sweeper.release_expired(store.connection) == 1
            case "force":
                assert sweeper.force_release(store.connection, worker="w1") == 1
            case _:
                domains.reset(store.connection, "s0.example", why="test")
        used = sum(pages(store, job).values())
        assert crawl(store, job)["pages_granted"] == used, end
        assert store.work("s0.example", job.id)["granted"] == used
        assert_invariants(store.connection)
    sweeper.sweep(store.connection, run_silence=LEASE)
    (claim,) = store.claim(job=job.id)
    assert ask(store, claim, job) == 6, "what was fetched before the reset stays fetched"


def test_a_worker_that_comes_back_has_what_its_earlier_life_was_promised(store: Store, worker: Worker) -> None:
    job = job_with(store, 1, 20, max_pages=10)
    (claim,) = store.claim(job=job.id)
    assert ask(store, claim, job) == 10
    worker.crawl(claim, 3, job.id)
    (claim,) = claims.reclaim(store.connection, worker="w1", lease=LEASE)
    assert ask(store, claim, job) == 7
    old = Claim(claim.domain_id, claim.epoch - 1, claim.domain, claim.status, claim.expires_at, clean=True)
    assert ask(store, old, job) == 0, "the earlier life gets nothing"
    assert_invariants(store.connection)


def test_what_was_used_without_asking_counts_all_the_same(store: Store, worker: Worker) -> None:
    job = job_with(store, 2, 20, max_pages=10)
    first, second = store.claim(count=2, job=job.id)
    worker.crawl(first, 8, job.id)
    assert crawl(store, job)["pages_granted"] == 8
    assert ask(store, second, job) == 2, "who has less gets what is left"
    assert ask(store, first, job) == 0
    assert_invariants(store.connection)


def test_a_share_is_no_more_than_the_domains_own_limit_nor_than_a_block(store: Store) -> None:
    job = job_with(store, 2, 3, max_pages=1_000_000)
    first, second = store.claim(count=2, job=job.id)
    assert ask(store, first, job) == budget.MAX_GRANT
    assert ask(store, second, job, 7) == 7


def run_out(worker: Worker, job: Job, per_domain: int | None = None, *, share: int | None = None) -> None:
    """Serve until nothing is ready and no round is left."""
    for _ in range(1000):
        if not serve(worker, job, per_domain, share=share) and not rounds.advance(
            worker.store.connection, job.id, job.crawl_id or 0
        ):
            return
    raise AssertionError("it does not end")


@pytest.mark.parametrize(("count", "limit"), [(2, 7), (5, 50), (7, 20), (10, 15), (10, 10), (12, 5)])
def test_equal_domains_get_equal_shares(store: Store, worker: Worker, count: int, limit: int) -> None:
    job = job_with(store, count, 30, max_pages=limit)
    run_out(worker, job)
    got = pages(store, job)
    assert sum(got.values()) == limit
    served = [pages_ for pages_ in got.values() if pages_]
    assert len(served) == min(count, limit)
    assert max(served) <= 2 * min(served)
    assert crawls.status(store.connection, job.id, job.crawl_id or 0).budget_left == 0
    assert_invariants(store.connection)


def test_what_small_domains_leave_is_shared_in_another_round(store: Store, worker: Worker) -> None:
    job = crawls.create(store.connection, name="job", spec=JobSpec(max_pages=60), fingerprint=None)
    sizes = {"a": 2, "b": 2, "c": 40, "d": 40, "e": 40}
    store.seed(*(f"{name}.example/{n}" for name, size in sizes.items() for n in range(size)), job=job.id)
    job = begin(store, job)
    run_out(worker, job)
    got = sorted(pages(store, job).values())
    assert sum(got) == 60
    assert got[:2] == [2, 2]
    assert got[4] <= 2 * got[2]
    assert_invariants(store.connection)


@pytest.mark.parametrize("kills", [False, True])
def test_eight_workers_never_get_more_than_there_is(store: Store, database: Database, *, kills: bool) -> None:
    """Real connections; with kills a visit may vanish with a promise in its hand, and the sweep takes it back."""
    job = job_with(store, 20, 30, max_pages=200)
    share = 3 if kills else None
    problems: list[BaseException] = []

    def work(number: int) -> None:
        chance = random.Random(number)
        try:
            with database.connect() as connection:
                worker = Worker(database, Store(connection), f"w{number}")
                for _ in range(200):
                    if serve(worker, job, share=share, chance=chance if kills else None):
                        continue
                    if kills:
                        sweeper.force_release(connection, worker=worker.name)
                    if not rounds.advance(connection, job.id, job.crawl_id or 0):
                        standing = crawls.status(connection, job.id, job.crawl_id or 0)
                        if not (standing.ready or standing.held):
                            return
        except BaseException as problem:  # noqa: BLE001 — shown by the test
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == []
    assert_invariants(store.connection)
    assert sum(pages(store, job).values()) <= 200
    assert store.value("SELECT count(*) FROM crawl_log WHERE outcome = 'ok'") == sum(pages(store, job).values())
    last = Worker(database, store, "last")
    sweeper.force_release(store.connection, worker=None)
    run_out(last, job, share=share)
    got = pages(store, job)
    assert sum(got.values()) == 200, "what the dead had been promised was not lost"
    assert max(got.values()) <= 2 * min(got.values()), Counter(got)
    assert_invariants(store.connection)


def test_work_for_another_job_on_the_domain_has_its_own_budget(store: Store, worker: Worker) -> None:
    job = job_with(store, 1, 5, max_pages=3)
    other = crawls.create(store.connection, name="other", spec=JobSpec(max_pages=2), fingerprint=b"f")
    store.seed("s0.example", job=other.id)
    sweeper.sweep(store.connection, run_silence=LEASE)
    other = begin(store, other)
    (claim,) = store.claim(job=other.id)
    assert crawls.other_job_waits(store.connection, claim.domain_id, other.id)
    worker.commit(
        worker.part(
            claim,
            [outcome("https://s0.example/", other.id), outcome("https://s0.example/1", job.id)],
            links("s0.example", 2, other.id, start=50),
        )
    )
    assert store.work("s0.example", other.id)["budget_used"] == 1
    assert store.work("s0.example", job.id)["budget_used"] == 1
    assert (crawl(store, job)["pages_granted"], crawl(store, other)["pages_granted"]) == (1, 1)
    assert_invariants(store.connection)
