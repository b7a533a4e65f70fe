"""Recurring jobs: begun when they are due, once, whoever ticks."""

from datetime import timedelta

import pytest

from holdfast.control.schedule import Scheduler
from holdfast.model.url import DEFAULT_RULES
from holdfast.store import crawls, jobs
from holdfast.store.connect import Database
from holdfast.store.domains import NewDomains
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

SCHEDULER = Scheduler(DEFAULT_RULES, NewDomains())


def scheduled(store: Store, state: str) -> int:
    """A job on one domain whose only URL is done, and that is due."""
    job = store.new_job("news")
    store.seed("https://a.example/", job=job)
    crawls.begin(store.connection, job)
    (claim,) = store.claim(job=job)
    store.finish_urls(claim)
    store.release(claim)
    store.connection.execute("UPDATE crawl_jobs SET state = %s::job_state WHERE id = %s", (state, job))
    late = jobs.now(store.connection) - timedelta(hours=5, minutes=30)
    jobs.set_schedule(store.connection, job, "1h", late)
    return job


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
