"""A job ends when nothing goes on without a person: also where the rest of its work is blocked for good."""

import threading
import time

import pytest

from holdfast.db import crawls, job_ends
from holdfast.db.connection import Database
from holdfast.domains import queries as domains
from holdfast.model.domain import Event, Status
from holdfast.model.job import JobSpec, JobState
from tests.integration.db.test_reopening import new_job, state_of, sweep_now
from tests.integration.db.test_unblock import unblock
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

REST = "2 URLs wait for a person to unblock a.example"


def stop_for_good(store: Store, job: int, *, pages: int, times: int = 3) -> None:
    """A visit to a site that refuses; it has been stopped so many times before."""
    crawls.runnable(store.connection)
    (claim,) = store.claim(job=job)
    store.connection.execute("UPDATE domains SET retry_count = %s", (times,))
    store.connection.execute("UPDATE url_frontier SET reason = 'forbidden: HTTP 403'")
    store.connection.execute("UPDATE job_domains SET pages = %s", (pages,))
    store.flush(claim, outcomes=1, pages_crawled=pages, errors=1)
    store.release(claim, event=Event.FORBIDDEN)
    assert store.status(claim.domain) is Status.BLOCKED


@pytest.mark.parametrize(
    ("pages", "ended", "why"),
    [
        (
            0,
            JobState.FAILED,
            f"no page was fetched: 2 URLs ended with forbidden, for example https://a.example/ (forbidden: HTTP 403); {REST}",
        ),
        (1, JobState.COMPLETED, REST),
    ],
)
def test_a_job_whose_rest_is_blocked_for_good_ends_and_an_unblock_reopens_it(
    store: Store, pages: int, ended: JobState, why: str
) -> None:
    job = new_job(store, "a.example", "a.example/later")
    stop_for_good(store, job, pages=pages)
    sweep_now(store)
    assert state_of(store, job) is ended
    assert store.value("SELECT state_reason FROM crawl_jobs WHERE name = 'news'") == why
    assert store.value("SELECT state::text FROM crawls") == "finished"
    unblock(store)
    assert state_of(store, job) is JobState.PENDING
    assert [found.id for found in crawls.runnable(store.connection)] == [job]
    assert len(store.claim(job=job)) == 1
    assert_invariants(store.connection)


def test_a_job_that_waits_for_a_cool_down_or_a_limit_does_not_end(store: Store) -> None:
    job = new_job(store, "a.example", "a.example/later")
    stop_for_good(store, job, pages=0, times=0)
    sweep_now(store)
    assert state_of(store, job) is JobState.PROCESSING
    store.connection.execute("UPDATE domains SET next_crawl_after = 'infinity'")
    store.connection.execute("UPDATE job_domains SET state = 'spent'")
    job_ends.finish(store.connection, int(str(store.value("SELECT max(id) FROM crawls"))))
    assert state_of(store, job) is JobState.PENDING


def test_a_new_job_on_a_domain_that_is_blocked_for_good_ends_with_the_cause(store: Store) -> None:
    first = new_job(store)
    stop_for_good(store, first, pages=1)
    second = crawls.create(store.connection, name="second", spec=JobSpec(), fingerprint=None)
    store.seed("a.example/second", job=second.id)
    sweep_now(store)
    assert state_of(store, second.id) is JobState.FAILED
    told = store.value("SELECT state_reason FROM crawl_jobs WHERE name = 'second'")
    assert told == "no page was fetched; 1 URL waits for a person to unblock a.example"
    unblock(store)
    assert state_of(store, second.id) is JobState.PENDING
    assert_invariants(store.connection)


def test_an_unblock_while_its_job_ends_loses_no_work(store: Store, database: Database) -> None:
    job = new_job(store)
    stop_for_good(store, job, pages=1)
    crawl = int(str(store.value("SELECT max(id) FROM crawls")))
    with database.session() as other, other.transaction():
        job_ends.finish(other, crawl)
        person = threading.Thread(target=_unblock_on, args=(database,))
        person.start()
        while not store.value("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)") and person.is_alive():
            time.sleep(0.01)
    person.join(10)
    sweep_now(store)
    assert state_of(store, job) is JobState.PENDING
    assert len(store.claim(job=job)) == 1


def _unblock_on(database: Database) -> None:
    with database.session() as connection:
        domains.unblock(connection, "a.example", why="a test")
