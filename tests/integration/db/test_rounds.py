"""Rounds: shares that are used wait for the others, never for those that cannot be served; no kill loses a domain of a round."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast.db import budget, crawls, job_ends, rounds, runs, sweeper
from holdfast.db.connection import Database
from holdfast.domains import queries as domains
from holdfast.model.domain import Claim, Event
from holdfast.model.job import DomainLimits, Job, JobSpec, Limit
from tests.support.batches import Worker
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants

SHARE = 3


@pytest.fixture
def worker(store: Store, database: Database) -> Worker:
    return Worker(database, store)


def job_with(store: Store, urls: int = 10, *names: str, **limits: int) -> Job:
    """A job with so many URLs on each of these domains, and a crawl of it that has begun."""
    job = crawls.create(store.connection, name="job", spec=JobSpec(**limits), fingerprint=None)  # type: ignore[arg-type]
    store.seed(*(f"{name}.example/{n}" for name in names for n in range(urls)), job=job.id)
    return begin(store, job)


def begin(store: Store, job: Job) -> Job:
    crawls.begin(store.connection, job.id)
    return crawls.get(store.connection, job.id)


def limits_of(job: Job, domain_budget: int | None = None) -> DomainLimits:
    return DomainLimits.of(
        share=SHARE,
        max_pages_per_domain=job.spec.max_pages_per_domain,
        rounds=job.spec.rounds,
        domain_budget=domain_budget,
    )


def ask(worker: Worker, claim: Claim, job: Job, domain_budget: int | None = None) -> int | None:
    return budget.grant(
        worker.store.connection,
        worker=worker.name,
        domain_id=claim.domain_id,
        epoch=claim.epoch,
        job=job,
        limits=limits_of(job, domain_budget),
    )


def visit(worker: Worker, claim: Claim, job: Job, domain_budget: int | None = None) -> list[int]:
    """Crawl a claimed domain until its budget or its URLs end, and release it; the pages that it was allowed at each asking."""
    allowed = []
    while pages := ask(worker, claim, job, domain_budget):
        if not worker.crawl(claim, pages, job.id):
            break
        allowed.append(pages)
    spent = frozenset({job.id} if pages == 0 else ())
    worker.store.release(claim, worker.name, spent_jobs=spent)
    return allowed


def run_out(worker: Worker, job: Job, between: Callable[[], object] = lambda: None) -> None:
    """Serve until nothing is ready and no round is left."""
    for _ in range(500):
        between()
        taken = worker.store.claim(worker.name, 1, job=job.id)
        for claim in taken:
            visit(worker, claim, job)
        if not taken and not rounds.advance(worker.store.connection, job.id, job.crawl_id or 0):
            return
    raise AssertionError("it does not end")


def standing(store: Store, job: Job) -> crawls.CrawlStatus:
    return crawls.status(store.connection, job.id, job.crawl_id or 0)


def round_of(store: Store, job: Job) -> int:
    return int(str(store.value("SELECT round FROM crawls WHERE id = %s", job.crawl_id)))


def used(store: Store, job: Job) -> list[int]:
    rows = store.connection.execute(
        "SELECT budget_used FROM job_domains WHERE job_id = %s ORDER BY domain_id", (job.id,)
    )
    return [row[0] for row in rows]


def spend(worker: Worker, job: Job, *names: str) -> None:
    """Use up the share of each of these domains while others are ready, or claimed to be."""
    store = worker.store
    keep = store.claim("keeper", 100, job=job.id)
    mine = {claim.domain_id for claim in keep if claim.domain.split(".")[0] in names}
    for claim in keep:
        if claim.domain_id not in mine:
            store.release(claim, "keeper", crawled=False)
    for claim in keep:
        if claim.domain_id in mine:
            worker.name, name = "keeper", worker.name
            assert visit(worker, claim, job) == [SHARE]
            worker.name = name


def test_a_share_is_no_limit_one_domain_goes_on_to_its_end(store: Store, worker: Worker) -> None:
    job = job_with(store, 10, "a")
    (claim,) = store.claim(job=job.id)
    assert visit(worker, claim, job) == [SHARE, SHARE, SHARE, SHARE]
    assert store.work("a.example", job.id)["state"] == "done"
    assert job_ends.finish(store.connection, job.crawl_id or 0)
    assert_invariants(store.connection)


def test_a_used_share_gives_way_to_a_domain_that_is_ready(store: Store, worker: Worker) -> None:
    job = job_with(store, 10, "a", "b")
    (claim,) = store.claim(job=job.id)
    assert visit(worker, claim, job) == [SHARE]
    assert store.work("a.example", job.id)["state"] == "spent"
    (claim,) = store.claim(job=job.id)
    assert claim.domain == "b.example"
    assert ask(worker, claim, job) == SHARE
    worker.crawl(claim, SHARE, job.id)
    assert ask(worker, claim, job) == SHARE, "nothing is ready: a round begins, and it goes on in it"
    assert round_of(store, job) == 2
    assert store.work("a.example", job.id)["ready"], "with the other one"
    worker.crawl(claim, SHARE, job.id)
    assert ask(worker, claim, job) == 0, "which has its turn now"
    store.release(claim, spent_jobs=frozenset({job.id}))
    assert [claim.domain for claim in store.claim(count=9, job=job.id)] == ["a.example"]
    assert_invariants(store.connection)


@pytest.mark.parametrize("how", ["held", "cooling", "delayed", "switched off"])
def test_a_domain_that_cannot_be_served_holds_up_no_other(store: Store, worker: Worker, how: str) -> None:
    job = job_with(store, 10, "fast", "slow")
    taken = {claim.domain: claim for claim in store.claim(count=2, job=job.id)}
    match how:
        case "cooling":
            store.release(taken["slow.example"], event=Event.FORBIDDEN)
        case "delayed":
            store.release(taken["slow.example"], wait=1000.0)
        case "switched off":
            store.release(taken["slow.example"], crawled=False)
            domains.edit(store.connection, "slow.example", {"is_active": False})
    assert visit(worker, taken["fast.example"], job) == [SHARE] * 4
    assert store.work("fast.example", job.id)["state"] == "done"
    assert_invariants(store.connection)


def test_rounds_go_on_until_nothing_waits_and_no_domain_is_a_share_ahead(store: Store, worker: Worker) -> None:
    job = job_with(store, 11, "a", "b", "c", "d")
    apart = []

    def look() -> None:
        left = [row for row in used(store, job) if row < 11]
        apart.append(max(left, default=0) - min(left, default=0))

    run_out(worker, job, look)
    assert used(store, job) == [11] * 4
    assert max(apart) <= 2 * SHARE
    assert round_of(store, job) >= 3
    assert job_ends.finish(store.connection, job.crawl_id or 0)
    assert_invariants(store.connection)


def test_what_a_kill_left_between_raising_and_reopening_is_reopened_by_the_sweep(store: Store, worker: Worker) -> None:
    job = job_with(store, 10, "a", "b", "c")
    spend(worker, job, "a", "b")
    (claim,) = store.claim(job=job.id)
    assert rounds.raise_round(store.connection, job.id, job.crawl_id or 0)
    assert [store.work(f"{name}.example", job.id)["state"] for name in "ab"] == ["spent", "spent"], "as after a kill"
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert [store.work(f"{name}.example", job.id)["ready"] for name in "ab"] == [True, True]
    store.release(claim, crawled=False)
    run_out(worker, job)
    assert used(store, job) == [10, 10, 10]
    assert_invariants(store.connection)


def test_no_further_round_begins_before_all_of_the_older_ones_are_reopened(
    store: Store, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "CHUNK", 1)
    monkeypatch.setattr(rounds, "CHUNKS", 1)
    job = job_with(store, 10, "a", "b", "c", "d")
    spend(worker, job, "a", "b", "c")
    (last,) = store.claim(job=job.id)
    for seen in ("a", "b", "c"):
        assert rounds.advance(store.connection, job.id, job.crawl_id or 0)
        assert round_of(store, job) == 2
        (claim,) = store.claim(job=job.id)
        assert claim.domain == f"{seen}.example"
        store.release(claim, wait=1000.0)
    assert not rounds.advance(store.connection, job.id, job.crawl_id or 0)
    assert round_of(store, job) == 2, "nothing waits for another one"
    store.release(last, crawled=False)
    assert_invariants(store.connection)


def test_of_many_that_raise_a_round_at_once_one_succeeds(store: Store, database: Database, worker: Worker) -> None:
    job = job_with(store, 10, "a", "b", "c")
    spend(worker, job, "a", "b")
    (claim,) = store.claim(job=job.id)
    with database.connect() as first, database.connect() as second:
        # Both have looked before either of them wrote.
        key = {"job": job.id, "crawl": job.crawl_id, "seen": 1, "below": None}
        with first.transaction():
            assert first.execute(rounds._RAISE, key).rowcount == 1
            raised: list[int] = []
            thread = threading.Thread(target=lambda: raised.append(second.execute(rounds._RAISE, key).rowcount))
            thread.start()
            thread.join(0.3)
            assert thread.is_alive(), "it waits for the first"
        thread.join(30)
    assert raised == [0]
    assert round_of(store, job) == 2
    store.release(claim, crawled=False)


def test_eight_workers_with_rounds_lose_no_url_and_end_together(store: Store, database: Database) -> None:
    job = job_with(store, 13, *(f"s{number}" for number in range(12)))
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with database.connect() as connection:
                worker = Worker(database, Store(connection), f"w{number}")
                for _ in range(500):
                    taken = worker.store.claim(worker.name, 1, job=job.id)
                    for claim in taken:
                        visit(worker, claim, job)
                    if taken or rounds.advance(connection, job.id, job.crawl_id or 0):
                        continue
                    if not crawls.status(connection, job.id, job.crawl_id or 0).held:
                        return
        except BaseException as problem:  # noqa: BLE001 — shown by the test
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == []
    run_out(Worker(database, store, "last"), job)
    assert used(store, job) == [13] * 12
    assert job_ends.finish(store.connection, job.crawl_id or 0)
    assert_invariants(store.connection)


@pytest.mark.parametrize(
    ("given", "limit", "value", "pages"),
    [
        ({"max_pages": 7}, Limit.MAX_PAGES, 7, 7),
        ({"max_pages_per_domain": 4}, Limit.MAX_PAGES_PER_DOMAIN, 4, 8),
        ({"rounds": 2}, Limit.ROUNDS, 2, 2 * 2 * SHARE),
    ],
)
def test_a_limit_of_a_person_ends_a_crawl_and_is_named(
    store: Store, worker: Worker, given: dict[str, int], limit: Limit, value: int, pages: int
) -> None:
    job = job_with(store, 10, "a", "b", **given)
    assert standing(store, job).limits == ()
    run_out(worker, job)
    assert sum(used(store, job)) == pages
    assert standing(store, job).limits == (crawls.LimitReached(limit, value, 2, 20 - pages),)
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert store.claim(job=job.id) == [], "time gives no new budget"
    assert not job_ends.finish(store.connection, job.crawl_id or 0)
    job = begin(store, job)
    assert standing(store, job).limits == ()
    run_out(worker, job)
    assert sum(used(store, job)) == min(pages, 20 - pages), "another crawl, another budget"
    assert_invariants(store.connection)


def test_a_limit_of_the_domain_is_named_and_the_smallest_limit_holds(store: Store, worker: Worker) -> None:
    job = job_with(store, 10, "a", max_pages_per_domain=8)
    (claim,) = store.claim(job=job.id)
    assert visit(worker, claim, job, domain_budget=5) == [3, 2]
    assert standing(store, job).limits == (crawls.LimitReached(Limit.DOMAIN_BUDGET, 5, 1, 5),)
    assert not rounds.advance(store.connection, job.id, job.crawl_id or 0)
    domains.edit(store.connection, "a.example", {"max_pages_per_run": 7})
    (claim,) = store.claim(job=job.id)
    assert visit(worker, claim, job, domain_budget=7) == [1, 1], (
        "a person raised it: the rest of a share, and one of the next"
    )


def test_exactly_as_many_pages_as_a_person_said_on_one_domain(store: Store, worker: Worker) -> None:
    job = job_with(store, 30, "a", max_pages=20)
    (claim,) = store.claim(job=job.id)
    assert visit(worker, claim, job) == [3, 3, 3, 3, 3, 3, 2]


def test_time_gives_no_new_budget_but_a_reset_does(store: Store, worker: Worker) -> None:
    job = job_with(store, 10, "a", max_pages_per_domain=4)
    (claim,) = store.claim(job=job.id)
    worker.crawl(claim, 4, job.id)
    assert ask(worker, claim, job) == 0
    store.release(claim, event=Event.FORBIDDEN)
    store.connection.execute("UPDATE domains SET next_crawl_after = now() - interval '1 s'")
    sweeper.sweep(store.connection, run_silence=LEASE)
    (claim,) = store.claim(job=job.id)
    assert visit(worker, claim, job) == []
    domains.reset(store.connection, "a.example", why="test")
    sweeper.fold_wakes_now(store.connection, claim.domain_id)
    (claim,) = store.claim(job=job.id)
    assert visit(worker, claim, job) == [3, 1]
    assert_invariants(store.connection)


def test_what_an_earlier_crawl_left_is_reopened_by_whoever_works_if_its_beginning_was_killed(
    store: Store, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_with(store, 10, "a", "b", max_pages_per_domain=2)
    run_out(worker, job)
    assert not job_ends.finish(store.connection, job.crawl_id or 0)

    def killed(*_: object) -> int:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(crawls, "_reopen", killed)
        with pytest.raises(InterruptedError):
            crawls.begin(store.connection, job.id)
    job = begin(store, job)
    run_out(worker, job)
    assert store.value("SELECT sum(pages) FROM job_domains WHERE job_id = %s", job.id) == 8


def test_a_standing_worker_finds_the_next_round_by_itself(store: Store, worker: Worker) -> None:
    job = job_with(store, 10, "a", "b")
    spend(worker, job, "a")
    (claim,) = store.claim(job=job.id)
    store.release(claim, wait=1000.0)
    assert [found.name for found in crawls.runnable(store.connection)] == ["job"]
    assert [claim.domain for claim in store.claim(count=9, job=job.id)] == ["a.example"]


def test_a_job_that_gives_way_does_not_take_the_domain_before_the_other(store: Store, worker: Worker) -> None:
    one, two = (store.new_job(name) for name in ("one", "two"))
    store.seed("a.example/1", "a.example/2", job=one)
    store.seed("a.example/1", "a.example/2", job=two)
    sweeper.sweep(store.connection, run_silence=LEASE)
    crawl, _ = crawls.begin(store.connection, one)
    (claim,) = store.claim(job=one)
    assert crawls.other_job_waits(store.connection, claim.domain_id, one)
    store.release(claim, yielding_jobs=frozenset({one}))
    assert store.claim(job=one) == [], "it leaves the domain to the other"
    now = crawls.status(store.connection, one, crawl)
    assert (now.yielding, now.ready) == (1, 0), "and is not at its end"
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert store.claim(job=one) == []
    (claim,) = store.claim("w2", job=two)
    assert crawls.other_job_waits(store.connection, claim.domain_id, two), "at the end of a slice, however short"
    store.release(claim, "w2", yielding_jobs=frozenset({two}))
    assert store.claim(job=two) == []
    (claim,) = store.claim(job=one)
    store.release(claim, yielding_jobs=frozenset({one}))
    store.connection.execute(
        "UPDATE job_domains SET not_before = not_before - interval '5 s', yielded_until = yielded_until - interval '5 s'"
    )
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert len(store.claim(job=one)) == 1, "the other one did not come"
    assert_invariants(store.connection)


def test_a_job_that_no_worker_serves_takes_no_turns(store: Store) -> None:
    one, two = (store.new_job(name) for name in ("one", "two"))
    for job in (one, two):
        store.seed("a.example", job=job)
    sweeper.sweep(store.connection, run_silence=LEASE)
    crawl, _ = crawls.begin(store.connection, one)
    runs.begin(store.connection, worker="w1", job_id=one, crawl_id=crawl)
    (claim,) = store.claim(job=one)
    assert not crawls.other_job_waits(store.connection, claim.domain_id, one)
    run = runs.begin(store.connection, worker="w2")
    assert crawls.other_job_waits(store.connection, claim.domain_id, one), "a worker for all jobs does"
    store.connection.execute(
        "UPDATE crawl_runs SET heartbeat_at = clock_timestamp() - %s WHERE id = %s",
        (crawls.HEARTBEAT_TIMEOUT + timedelta(seconds=1), run),
    )
    assert not crawls.other_job_waits(store.connection, claim.domain_id, one), "but not one that was not heard of"
