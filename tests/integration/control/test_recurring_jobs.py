"""Recurring jobs: begun when they are due, once, whoever ticks."""

from collections.abc import Sequence
from datetime import timedelta

import psycopg
import pytest

from holdfast.control.scheduler import Scheduler
from holdfast.db import claimable, crawls, jobs, sweeper
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.jobs.queries import actions
from holdfast.model.domain import Claim
from holdfast.model.job import JobAction
from holdfast.model.url import DEFAULT_RULES
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

SCHEDULER = Scheduler(DEFAULT_RULES, NewDomains())


def scheduled(store: Store, state: str, domains: str = "a") -> int:
    """A job whose URLs, one a domain, are done, and that is due."""
    job = store.new_job("news")
    store.seed(*(f"https://{name}.example/" for name in domains), job=job)
    crawls.begin(store.connection, job)
    for claim in store.claim(job=job, count=len(domains)):
        visit(store, claim)
    store.connection.execute("UPDATE crawl_jobs SET state = %s::job_state WHERE id = %s", (state, job))
    late = jobs.now(store.connection) - timedelta(hours=5, minutes=30)
    jobs.set_schedule(store.connection, job, "1h", late)
    return job


def visit(store: Store, claim: Claim) -> None:
    store.finish_urls(claim)
    assert store.flush(claim, outcomes=1)
    store.release(claim)


def waiting(store: Store, job: int) -> int:
    return int(store.work("a.example", job)["waiting"])


def test_a_job_that_is_due_begins_once_and_missed_times_are_one(store: Store) -> None:
    job = scheduled(store, "completed")
    assert SCHEDULER.tick(store.connection).begun == 1
    assert waiting(store, job) == 1
    assert jobs.state(store.connection, job) == "pending"
    following = store.value("SELECT next_run_at FROM crawl_jobs WHERE id = %s", job)
    now = jobs.now(store.connection)
    assert now < following <= now + timedelta(hours=1)  # type: ignore[operator]
    assert SCHEDULER.tick(store.connection).begun == 0
    store.connection.execute("UPDATE crawl_jobs SET next_run_at = clock_timestamp() WHERE id = %s", (job,))
    assert SCHEDULER.tick(store.connection).begun == 0, "its last beginning is over, and what came of it is not"
    assert_invariants(store.connection)


@pytest.mark.parametrize("state", ["processing", "paused", "cancelled"])
def test_a_job_that_is_under_way_or_put_aside_is_left_alone_until_its_next_time(store: Store, state: str) -> None:
    job = scheduled(store, state)
    assert SCHEDULER.tick(store.connection).begun == 0
    assert waiting(store, job) == 0
    assert jobs.due(store.connection) == []


def test_two_do_not_begin_it_twice(store: Store, database: Database) -> None:
    scheduled(store, "completed")
    with database.connect() as other, jobs.alone(other) as alone:
        assert alone
        assert SCHEDULER.tick(store.connection).begun == 0
    assert SCHEDULER.tick(store.connection).begun == 1


def killed_while_it_begins(database: Database, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """A tick whose connection dies in the given transaction of those that make the pages of a job wait again."""
    fold = claimable.fold_wakes
    steps = 0

    def fold_or_die(connection: psycopg.Connection, domain_ids: Sequence[int]) -> int:
        nonlocal steps
        steps += 1
        if steps == step:
            with database.connect() as other:
                other.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
        return fold(connection, domain_ids)

    with monkeypatch.context() as patch, database.connect() as connection:
        patch.setattr(crawls, "CHUNK", 2)
        patch.setattr(claimable, "fold_wakes", fold_or_die)
        with pytest.raises(psycopg.OperationalError):
            SCHEDULER.tick(connection)


@pytest.mark.parametrize("worked", [False, True], ids=["nobody came", "a worker came"])
def test_what_a_killed_scheduler_began_in_part_the_next_one_begins_to_the_end(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch, worked: bool
) -> None:
    """The part that was begun makes the job look as if it were under way."""
    job = scheduled(store, "completed", "abcde")
    killed_while_it_begins(database, monkeypatch, step=2)
    assert store.value("SELECT sum(waiting) FROM job_domains") == 2
    assert jobs.state(store.connection, job) == "pending"
    assert_invariants(store.connection)
    if worked:
        assert [found.id for found in crawls.runnable(store.connection)] == [job]
        (claim,) = store.claim(job=job)
    assert SCHEDULER.tick(store.connection).begun == 1
    assert jobs.due(store.connection) == []
    if worked:
        visit(store, claim)  # its news are folded now: the page is wanted once more, by the beginning that counts
    assert store.value("SELECT sum(waiting) FROM job_domains") == 5
    assert store.value("SELECT count(*) FROM url_frontier") == 5
    assert_invariants(store.connection)
    rest = store.claim(job=job, count=9)
    assert len(rest) == 5
    for claim in rest:
        visit(store, claim)
    assert store.value("SELECT count(*) FROM url_frontier WHERE state = 'done'") == 5
    assert SCHEDULER.tick(store.connection).begun == 0
    assert sweeper.sweep(store.connection, run_silence=timedelta(hours=1)).faults == []
    assert store.claim(job=job) == []
    assert_invariants(store.connection)


def test_a_scheduler_killed_before_the_first_page_loses_nothing(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scheduled(store, "completed")
    killed_while_it_begins(database, monkeypatch, step=1)
    assert waiting(store, job) == 0
    assert SCHEDULER.tick(store.connection).begun == 1
    assert waiting(store, job) == 1
    assert_invariants(store.connection)


def test_a_job_that_is_cancelled_after_its_scheduler_was_killed_stays_cancelled(
    store: Store, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = scheduled(store, "completed", "abc")
    killed_while_it_begins(database, monkeypatch, step=2)
    actions.act(store.connection, job, JobAction.CANCEL)
    for _ in range(2):
        assert SCHEDULER.tick(store.connection).begun == 0
        assert jobs.state(store.connection, job) == "cancelled"
    assert_invariants(store.connection)
