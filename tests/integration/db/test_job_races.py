"""What a person says about a job at the very moment when workers are at it, with real connections: each race is forced to happen."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future

import psycopg
import pytest

from holdfast.db import claims, crawls, embedded, jobs
from holdfast.db.connection import Database
from holdfast.jobs.queries import actions
from holdfast.model.job import Job, JobAction
from tests.support.batches import Worker, found, outcome
from tests.support.factories import Store
from tests.support.invariants import assert_invariants
from tests.support.races import beside, wait_until_blocked


@pytest.fixture
def look_for_circles(server: embedded.Server) -> Callable[[Store, str], None]:
    """Says after how long a connection that waits looks whether it waits in a circle; who finds that it does, loses."""
    with psycopg.connect(server.admin_url(), autocommit=True) as admin:
        admin.execute("GRANT SET ON PARAMETER deadlock_timeout TO holdfast")

    def after(store: Store, time: str) -> None:
        store.connection.execute("SELECT set_config('deadlock_timeout', %s, false)", (time,))

    return after


def test_a_deletion_that_meets_a_commit_in_a_circle_goes_on(
    store: Store, database: Database, look_for_circles: Callable[[Store, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch fences its own domain, c, and then shares those that it links to, a. The deletion locks a, b and c, in this order; that
    somebody has b for a while makes it come to c when the batch waits for a already."""
    other = store.new_job("other")
    for job in (store.job, other):
        store.seed(*(f"https://{name}.example/" for name in "abc"), job=job)
    (claim,) = [claim for claim in store.claim(count=3) if claim.domain == "c.example"]
    actions.delete(store.connection, other)
    lost: set[type[psycopg.Error]] = set()
    forget, fence = jobs._forget, claims.fence

    def watched(connection: psycopg.Connection, job_id: int) -> int | None:
        try:
            return forget(connection, job_id)
        except psycopg.Error as problem:
            lost.add(type(problem))
            raise

    monkeypatch.setattr(jobs, "_forget", watched)
    with (
        beside(database) as (deleter, deleting),
        beside(database) as (third, leaving),
        database.connect() as watch,
    ):
        look_for_circles(store, "1 min")
        look_for_circles(deleter, "10 ms")
        third.connection.execute("BEGIN")
        third.connection.execute("SELECT FROM domains WHERE domain = 'b.example' FOR UPDATE")
        begun: list[Future[int | None]] = []
        left: list[Future[bool]] = []

        def leave() -> bool:
            in_time = wait_until_blocked(watch, store.connection, begun[0])
            third.connection.execute("COMMIT")
            return in_time

        def fence_and_be_met(
            connection: psycopg.Connection, *, worker: str, held: Iterable[tuple[int, int]]
        ) -> set[int]:
            fenced = fence(connection, worker=worker, held=held)
            begun.append(deleting.submit(jobs.forget, deleter.connection, other))
            assert wait_until_blocked(watch, deleter.connection, begun[0])
            left.append(leaving.submit(leave))
            return fenced

        monkeypatch.setattr(claims, "fence", fence_and_be_met)
        worker = Worker(database, store)
        link = found("https://a.example/new", store.job, domain="a.example")
        committed = worker.commit(worker.part(claim, [outcome("https://c.example/", store.job)], [link]))
        assert committed.refused == set()
        assert left[0].result(30)
        assert begun[0].result(30) == 3
    assert lost == {psycopg.errors.DeadlockDetected}, "without a circle nothing is shown"
    assert store.value("SELECT array_agg(DISTINCT job_id) FROM url_frontier") == [store.job]
    assert store.value("SELECT count(*) FROM url_frontier WHERE url = 'https://a.example/new'") == 1
    assert_invariants(store.connection)


@pytest.mark.parametrize("opened", [False, True], ids=["no crawl yet", "a crawl is open"])
def test_a_pause_that_commits_while_a_worker_takes_the_job_up_stands(
    store: Store, database: Database, opened: bool
) -> None:
    """The worker has read that the job is pending, and waits for its row."""
    store.domains(2)
    if opened:
        crawls.stop(store.connection, crawls.begin(store.connection, store.job)[0])
    with beside(database) as (worker, thread), database.connect() as watch:
        with store.connection.transaction():
            actions.act(store.connection, store.job, JobAction.PAUSE)
            looking: Future[list[Job]] = thread.submit(crawls.runnable, worker.connection)
            assert wait_until_blocked(watch, worker.connection, looking)
        taken = looking.result(30)
        assert opened or taken == []
        assert jobs.state(store.connection, store.job) == "paused"
        assert worker.claim() == []
    assert store.value("SELECT count(*) FROM crawls WHERE state = 'running'") == 0
    assert_invariants(store.connection)


def test_a_pause_between_taking_a_job_up_and_beginning_its_crawl_stands_and_the_others_are_begun(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = store.new_job("last")
    store.seed("a.example")
    store.seed("b.example", job=last)
    begin = crawls.begin

    def begin_a_paused_one(connection: psycopg.Connection, job_id: int, *, reopen: bool) -> tuple[int, bool]:
        if job_id == store.job:
            assert jobs.state(connection, job_id) == "processing"
            with database.connect() as person:
                actions.act(person, job_id, JobAction.PAUSE)
        return begin(connection, job_id, reopen=reopen)

    monkeypatch.setattr(crawls, "begin", begin_a_paused_one)
    assert [job.id for job in crawls.runnable(store.connection)] == [last]
    assert jobs.state(store.connection, store.job) == "paused"
    assert jobs.state(store.connection, last) == "processing"
    assert store.value("SELECT array_agg(job_id) FROM crawls") == [last]
    assert store.claim() == []
    actions.act(store.connection, store.job, JobAction.RESUME)
    monkeypatch.undo()
    assert store.job in [job.id for job in crawls.runnable(store.connection)]
    assert len(store.claim()) == 1
    assert_invariants(store.connection)


def test_a_crawl_is_stopped_while_somebody_ends_its_job(store: Store, database: Database) -> None:
    """Whoever ends a job locks it before its crawl. Who came the other way round would meet him in a circle."""
    crawl_id, _ = crawls.begin(store.connection, store.job)
    with beside(database) as (stopper, stopping):
        with store.connection.transaction():
            store.connection.execute("SELECT FROM crawl_jobs WHERE id = %s FOR NO KEY UPDATE", (store.job,))
            future = stopping.submit(crawls.stop, stopper.connection, crawl_id)
            with database.connect() as watch:
                assert wait_until_blocked(watch, stopper.connection, future)
            store.connection.execute("SELECT FROM crawls WHERE id = %s FOR NO KEY UPDATE NOWAIT", (crawl_id,))
        future.result(30)
    assert store.value("SELECT state::text FROM crawls WHERE id = %s", crawl_id) == "stopped"
