"""Jobs and crawls: begun once, gone on with, judged by proof."""

import threading
from datetime import timedelta

import psycopg
import pytest

from holdfast.db import claimable, crawls, job_ends, jobs, runs, sweeper
from holdfast.db.connection import Database
from holdfast.errors import NotFound, Refused
from holdfast.jobs.queries import actions
from holdfast.model.domain import Event, Status
from holdfast.model.job import JobSpec, Scope
from holdfast.model.outcome import Outcome, UrlState
from tests.support.batches import Worker, found, outcome
from tests.support.factories import LEASE, Store
from tests.support.invariants import assert_invariants

SPEC = JobSpec(scope=Scope.DOMAIN, max_pages=7, include=("a", "b"), text=True)


@pytest.fixture
def worker(store: Store, database: Database) -> Worker:
    return Worker(database, store)


def job_state(store: Store, job_id: int) -> object:
    return store.value("SELECT state FROM crawl_jobs WHERE id = %s", job_id)


def test_a_job_is_found_by_name_id_and_fingerprint_with_its_spec(store: Store) -> None:
    job = crawls.create(store.connection, name="mine", spec=SPEC, fingerprint=b"f")
    assert job.spec == SPEC
    assert crawls.find(store.connection, name="mine") == job
    assert crawls.by_fingerprint(store.connection, b"f") == job
    assert crawls.get(store.connection, job.id) == job
    assert crawls.find(store.connection, name="other") is None
    assert crawls.by_fingerprint(store.connection, b"g") is None
    with pytest.raises(NotFound):
        crawls.get(store.connection, 999)
    for name, fingerprint in (("mine", None), ("other", b"f")):
        with pytest.raises(Refused):
            crawls.create(store.connection, name=name, spec=SPEC, fingerprint=fingerprint)
    changed = JobSpec(max_pages=9)
    crawls.set_spec(store.connection, job.id, changed)
    assert crawls.get(store.connection, job.id).spec == changed
    standing = crawls.find(store.connection, name=jobs.DEFAULT)
    assert standing is not None
    assert standing.spec == JobSpec(refresh=True), "its domains are looked at again when their time comes"


def test_a_crawl_goes_on_until_it_is_finished(store: Store, worker: Worker) -> None:
    job = crawls.create(store.connection, name="mine", spec=SPEC, fingerprint=None)
    store.seed("a.example", job=job.id)
    first, goes_on = crawls.begin(store.connection, job.id)
    assert not goes_on
    assert job_state(store, job.id) == "processing"
    assert crawls.begin(store.connection, job.id) == (first, True)
    assert crawls.get(store.connection, job.id).crawl_id == first
    run = runs.begin(store.connection, worker="w1", job_id=job.id, crawl_id=first)
    crawls.stop(store.connection, first)
    assert store.value("SELECT state FROM crawls") == "running", "somebody runs in it"
    runs.end(store.connection, run, error=None)
    crawls.stop(store.connection, first)
    assert store.value("SELECT state FROM crawls") == "stopped"
    assert job_state(store, job.id) == "pending"
    assert crawls.begin(store.connection, job.id) == (first, True)
    assert not job_ends.finish(store.connection, first), "a URL waits"
    assert job_state(store, job.id) == "pending"
    second, goes_on = crawls.begin(store.connection, job.id)
    assert (second > first, goes_on) == (True, False)
    (claim,) = store.claim(job=job.id)
    assert not job_ends.finish(store.connection, second), "somebody is at it"
    third, _ = crawls.begin(store.connection, job.id)
    worker.crawl(claim, job=job.id)
    store.release(claim)
    assert job_ends.finish(store.connection, third)
    assert job_ends.finish(store.connection, third), "twice is as good as once"
    assert job_state(store, job.id) == "completed"
    assert store.value("SELECT completed_at IS NOT NULL FROM crawl_jobs WHERE id = %s", job.id)
    assert_invariants(store.connection)
    with pytest.raises(NotFound):
        job_ends.finish(store.connection, 999)
    with pytest.raises(NotFound):
        crawls.begin(store.connection, 999)


def test_news_on_its_way_keeps_a_job_from_being_completed(store: Store, worker: Worker) -> None:
    store.domains(1)
    crawl, _ = crawls.begin(store.connection, store.job)
    claim = store.claim_one()
    worker.crawl(claim)
    store.release(claim)
    with store.connection.transaction():
        store.insert_foreign(claim.domain_id, "https://d0.example/new")
    assert not job_ends.finish(store.connection, crawl)


def test_the_standing_job_is_proved_to_be_done_but_stays_runnable(store: Store, worker: Worker) -> None:
    store.domains(1)
    crawl, _ = crawls.begin(store.connection, store.job)
    claim = store.claim_one()
    worker.crawl(claim)
    store.release(claim)
    assert job_ends.finish(store.connection, crawl)
    assert job_state(store, store.job) == "pending"


@pytest.mark.parametrize("url", ["new.example", "a.example/new"])
def test_seeds_bring_a_completed_job_back(store: Store, worker: Worker, url: str) -> None:
    job = crawls.create(store.connection, name="mine", spec=JobSpec(), fingerprint=None)
    store.seed("a.example", job=job.id)
    crawl, _ = crawls.begin(store.connection, job.id)
    (claim,) = store.claim(job=job.id)
    worker.crawl(claim, job=job.id)
    store.release(claim)
    assert job_ends.finish(store.connection, crawl)
    store.seed("a.example", job=job.id)
    assert job_state(store, job.id) == "completed", "nothing new"
    store.seed(url, job=job.id)
    assert job_state(store, job.id) == "pending"
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert [claim.domain for claim in store.claim(job=job.id)] == [url.split("/")[0]]
    assert_invariants(store.connection)


def test_a_proof_and_seeds_at_the_same_moment_lose_no_work(store: Store, database: Database, worker: Worker) -> None:
    job = crawls.create(store.connection, name="mine", spec=JobSpec(), fingerprint=None)
    store.seed("a.example", job=job.id)
    crawl, _ = crawls.begin(store.connection, job.id)
    (claim,) = store.claim(job=job.id)
    worker.crawl(claim, job=job.id)
    store.release(claim)
    seeded = threading.Event()

    def seed() -> None:
        with database.connect() as connection:
            Store(connection).seed("b.example", job=job.id)
        seeded.set()

    with database.connect() as other, other.transaction():
        other.execute("SELECT FROM crawl_jobs WHERE id = %s FOR NO KEY UPDATE", (job.id,))
        other.execute("UPDATE crawl_jobs SET state = 'completed' WHERE id = %s", (job.id,))
        thread = threading.Thread(target=seed)
        thread.start()
        assert not seeded.wait(0.3), "it waits for what the proof finds"
    thread.join(30)
    assert job_state(store, job.id) == "pending"
    assert not job_ends.finish(store.connection, crawl)
    assert_invariants(store.connection)


@pytest.mark.parametrize("state", ["paused", "cancelled"])
def test_what_a_person_stopped_is_not_begun(store: Store, state: str) -> None:
    store.connection.execute("UPDATE crawl_jobs SET state = %s", (state,))
    with pytest.raises(Refused, match=state):
        crawls.begin(store.connection, store.job)
    assert crawls.runnable(store.connection) == []


def test_eight_workers_begin_one_crawl(store: Store, database: Database) -> None:
    begun: list[tuple[int, bool]] = []

    def begin() -> None:
        with database.connect() as connection:
            begun.append(crawls.begin(connection, store.job))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({crawl for crawl, _ in begun}) == 1
    assert sorted(goes_on for _, goes_on in begun) == [False] + [True] * 7


def test_starting_again_wants_every_page_once_more(store: Store, worker: Worker) -> None:
    store.seed("done.example", "held.example", "blocked.example")
    taken = {claim.domain: claim for claim in store.claim(count=3)}
    worker.crawl(taken["done.example"])
    worker.crawl(taken["blocked.example"])
    store.release(taken["done.example"])
    store.release(taken["blocked.example"], event=Event.FORBIDDEN)
    worker.crawl(taken["held.example"])
    crawls.restart(store.connection, store.job)
    assert store.status("done.example") is Status.PENDING
    assert store.work("done.example")["ready"]
    assert store.status("blocked.example") is Status.BLOCKED
    assert not store.work("blocked.example")["ready"]
    assert store.work("held.example")["waiting"] == 0, "its holder hears of it at its release"
    assert store.release(taken["held.example"]) is Status.ACTIVE
    assert store.work("held.example")["ready"]
    assert_invariants(store.connection)
    assert store.value("SELECT count(*) FROM url_frontier WHERE kind = 'refresh' AND state = 'waiting'") == 3


def test_how_a_crawl_stands(store: Store, worker: Worker) -> None:
    job = crawls.create(store.connection, name="mine", spec=JobSpec(max_pages=10), fingerprint=None)
    names = ("ready", "held", "done", "spent", "cooling", "delayed")
    store.seed(*(f"{name}.example" for name in names), "spent.example/2", "held.example/2", job=job.id)
    store.seed("elsewhere.example")
    crawl, _ = crawls.begin(store.connection, job.id)
    taken = {claim.domain.split(".")[0]: claim for claim in store.claim(count=6, job=job.id)}
    store.release(taken["ready"], crawled=False)
    worker.crawl(taken["done"], job=job.id)
    store.release(taken["done"])
    worker.crawl(taken["spent"], 1, job=job.id)
    store.release(taken["spent"], spent_jobs=frozenset({job.id}))
    store.release(taken["cooling"], event=Event.RATE_LIMITED, retry_after=timedelta(hours=90))
    store.release(taken["delayed"], wait=1000.0)
    with store.connection.transaction():
        store.insert_foreign(taken["held"].domain_id, "https://held.example/new", job.id)
    standing = crawls.status(store.connection, job.id, crawl)
    assert standing.next_in is not None
    assert 990 < standing.next_in <= 1000
    assert (standing.held, standing.ready, standing.done, standing.spent) == (1, 1, 1, 1)
    assert (standing.cooling, standing.delayed, standing.wakes, standing.rows) == (1, 1, 1, 6)
    assert standing.waiting == 1 + 2 + 1 + 1 + 1
    assert standing.budget_left == 8
    unlimited, _ = crawls.begin(store.connection, store.job)
    assert crawls.status(store.connection, store.job, unlimited).budget_left is None
    empty = crawls.status(store.connection, 999, 999)
    assert (empty.rows, empty.next_in, empty.budget_left) == (0, None, None)


def test_a_visit_that_is_told_to_wait_is_left_alone_until_then(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    store.release(claim, wait=1000.0)
    assert store.claim() == []
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert store.claim() == []
    store.connection.execute("UPDATE job_domains SET not_before = clock_timestamp() - interval '1 s'")
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert len(store.claim()) == 1
    assert_invariants(store.connection)


@pytest.mark.parametrize("asked", [True, False])
def test_new_urls_end_a_delay_but_not_one_that_the_server_asked_for(store: Store, *, asked: bool) -> None:
    store.domains(1)
    claim = store.claim_one()
    if asked:
        store.connection.execute("UPDATE domains SET back_off_until = clock_timestamp() + interval '900 s'")
    store.release(claim, wait=1000.0)
    with store.connection.transaction():
        store.insert_foreign(claim.domain_id, "https://d0.example/new")
    sweeper.sweep(store.connection, run_silence=LEASE)
    assert len(store.claim()) == (0 if asked else 1)
    assert_invariants(store.connection)


def test_a_worker_for_all_jobs_sees_those_with_something_ready(store: Store) -> None:
    one = crawls.create(store.connection, name="one", spec=SPEC, fingerprint=None)
    crawls.create(store.connection, name="idle", spec=SPEC, fingerprint=None)
    assert crawls.runnable(store.connection) == []
    store.seed("a.example", "b.example", job=one.id)
    store.seed("a.example")
    sweeper.sweep(store.connection, run_silence=LEASE)
    found = crawls.runnable(store.connection)
    assert [job.name for job in found] == [jobs.DEFAULT, "one"]
    assert [job.crawl_id for job in found] == [job.crawl_id for job in crawls.runnable(store.connection)]
    assert None not in [job.crawl_id for job in found]
    claim = store.claim(count=1)[0]
    runs.begin(store.connection, worker="w1")
    assert crawls.other_job_waits(store.connection, claim.domain_id, store.job)
    store.connection.execute("UPDATE crawl_jobs SET state = 'paused' WHERE name = 'one'")
    assert not crawls.other_job_waits(store.connection, claim.domain_id, store.job)


def test_how_a_job_stands_is_found_by_index(store: Store, connection: psycopg.Connection) -> None:
    """Few domains of one job among many of another must not cost a walk through all."""
    store.domains(3000)
    job = store.new_job("small")
    store.seed("small.example", job=job)
    connection.execute("ANALYZE job_domains")
    plan = "\n".join(row[0] for row in connection.execute("EXPLAIN " + crawls._STANDING, {"job": job, "crawl": 1}))
    assert "Seq Scan on job_domains" not in plan


def test_what_was_too_deep_waits_again_down_to_the_new_depth_a_chunk_at_a_time(
    store: Store, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claimable, "REOPEN_CHUNK", 3)
    store.domains(1)
    claim = store.claim_one()
    deep = [
        found(f"https://d0.example/{n}", store.job, depth=n, state=UrlState.DENIED, reason=f"{Outcome.TOO_DEEP}: {n}")
        for n in range(11, 21)
    ]
    trap = found("https://d0.example/trap", store.job, depth=12, state=UrlState.DENIED, reason="trap: x")
    worker.commit(worker.part(claim, [outcome("https://d0.example/", store.job)], [*deep, trap]))
    store.release(claim)
    assert store.row("d0.example")["status"] == "exhausted"
    actions.raise_depth_limit(store.connection, store.job, 18)
    work = store.work("d0.example")
    assert (work["waiting"], work["denied"], work["ready"], work["state"]) == (3, 8, True, "open")
    assert store.row("d0.example")["status"] == "pending"
    assert_invariants(store.connection)
    for _ in range(3):
        sweeper.sweep(store.connection, run_silence=LEASE)
    work = store.work("d0.example")
    assert (work["waiting"], work["denied"]) == (8, 3)
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert store.value("SELECT max(depth) FROM url_frontier WHERE state = 'waiting'") == 18
    actions.raise_depth_limit(store.connection, store.job, 18)
    assert store.work("d0.example")["waiting"] == 8
    assert_invariants(store.connection)


def test_a_held_domain_hears_of_the_new_depth_when_it_is_released(store: Store, worker: Worker) -> None:
    store.domains(1)
    claim = store.claim_one()
    deep = found("https://d0.example/x", store.job, depth=11, state=UrlState.DENIED, reason=f"{Outcome.TOO_DEEP}: 11")
    worker.commit(worker.part(claim, [outcome("https://d0.example/", store.job)], [deep]))
    actions.raise_depth_limit(store.connection, store.job, 20)
    assert store.work("d0.example")["waiting"] == 0
    store.release(claim)
    assert store.work("d0.example")["waiting"] == 1
    assert store.work("d0.example")["ready"]
    assert_invariants(store.connection)
