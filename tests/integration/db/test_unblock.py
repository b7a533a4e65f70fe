"""What a person says about a domain is done, also where its jobs have ended: reset and un-block."""

import pytest

from holdfast.db import crawls, job_ends, jobs, sweeper
from holdfast.domains import queries as domains
from holdfast.errors import Refused
from holdfast.model.domain import Event, Status
from holdfast.model.job import JobState
from tests.integration.db.test_reopening import (
    exhausted,
    fail_urls,
    new_job,
    number_of_crawls,
    state_of,
    unreachable,
)
from tests.support.factories import Store
from tests.support.invariants import assert_invariants


def reset(store: Store, domain: str = "a.example") -> None:
    sweeper.fold_wakes_now(store.connection, domains.reset(store.connection, domain, why="a test"))


def unblock(store: Store, domain: str = "a.example") -> None:
    sweeper.fold_wakes_now(store.connection, domains.unblock(store.connection, domain, why="a test"))


def test_a_reset_reopens_the_completed_jobs_of_its_domain(store: Store) -> None:
    job = new_job(store)
    exhausted(store, job)
    assert state_of(store, job) is JobState.COMPLETED
    reset(store)
    assert state_of(store, job) is JobState.PENDING
    (found,) = crawls.runnable(store.connection)
    assert (found.id, number_of_crawls(store)) == (job, 2), "a person begins a new crawl"
    assert [claim.domain for claim in store.claim(job=job)] == ["a.example"]
    reasons = store.connection.execute("SELECT data->>'reason' FROM events WHERE data->>'what' = 'reopened'").fetchall()
    assert reasons == [("a.example was reset",)]
    assert_invariants(store.connection)


def test_a_reset_leaves_cancelled_jobs_alone(store: Store) -> None:
    job = new_job(store)
    exhausted(store, job)
    store.connection.execute("UPDATE crawl_jobs SET state = 'cancelled' WHERE id = %s", (job,))
    reset(store)
    assert state_of(store, job) is JobState.CANCELLED
    assert store.value("SELECT count(*) FROM url_frontier WHERE state = 'waiting'") == 0


def blocked(store: Store, event: Event, reason: str) -> int:
    """A domain with one page, one URL that was refused and one that was not asked for; it was blocked three times."""
    job = new_job(store, "a.example", "a.example/refused", "a.example/later")
    crawls.runnable(store.connection)
    (claim,) = store.claim(job=job)
    fail_urls(store, job, reason, "%/refused")
    store.connection.execute("UPDATE url_frontier SET state = 'done' WHERE url = 'https://a.example/'")
    store.connection.execute("UPDATE job_domains SET waiting = waiting - 1, done = done + 1, pages = 1")
    store.connection.execute("UPDATE domains SET frontier_size = frontier_size - 1, retry_count = 3")
    store.flush(claim, outcomes=2, pages_crawled=1, errors=1)
    store.release(claim, event=event)
    job_ends.finish(store.connection, int(str(store.value("SELECT max(id) FROM crawls"))))
    return job


@pytest.mark.parametrize(
    ("event", "reason", "was"),
    [
        (Event.FORBIDDEN, "forbidden: HTTP 403", Status.BLOCKED),
        (Event.LOGIN_REQUIRED, "login_wall: a form", Status.BLOCKED),
        (Event.TIMEOUT, "timeout: 30 s", Status.UNREACHABLE),
    ],
)
def test_an_unblocked_domain_is_tried_again_without_its_pages(
    store: Store, event: Event, reason: str, was: Status
) -> None:
    job = blocked(store, event, reason)
    assert (store.status("a.example"), store.row("a.example")["next_crawl_after"]) == (was, "infinity")
    unblock(store)
    row = store.row("a.example")
    assert (row["status"], row["retry_count"], row["next_crawl_after"]) == (Status.PENDING, 0, None)
    assert row["status_reason"] == "unblocked: a test"
    states: dict[str, str] = dict(store.connection.execute("SELECT url, state::text FROM url_frontier").fetchall())
    assert states == {
        "https://a.example/": "done",
        "https://a.example/refused": "waiting",
        "https://a.example/later": "waiting",
    }
    assert [found.id for found in crawls.runnable(store.connection)] == [job]
    assert len(store.claim(job=job)) == 1
    assert_invariants(store.connection)


def test_a_domain_that_robots_denied_is_asked_for_its_robots_txt_again(store: Store) -> None:
    job = new_job(store)
    crawls.runnable(store.connection)
    (claim,) = store.claim(job=job)
    store.connection.execute("UPDATE url_frontier SET state = 'denied', reason = 'robots_denied: line 2'")
    store.connection.execute("UPDATE job_domains SET waiting = 0, denied = 1")
    store.connection.execute("UPDATE domains SET frontier_size = 0")
    store.connection.execute(
        "INSERT INTO domain_robots (domain_id, robots_txt_url, status, robots_txt_content, reachable, expires_at) "
        "VALUES (%s, 'https://a.example/robots.txt', 200, 'User-agent: *', true, now() + interval '1 hour')",
        (claim.domain_id,),
    )
    store.release(claim, event=Event.ROBOTS_DENIED)
    unblock(store)
    assert store.work("a.example", job)["waiting"] == 1
    assert store.value("SELECT expires_at <= clock_timestamp() FROM domain_robots") is True


def test_an_unblock_reopens_a_job_that_ended(store: Store) -> None:
    job = new_job(store)
    unreachable(store, job)
    assert state_of(store, job) in {JobState.COMPLETED, JobState.FAILED}
    unblock(store)
    assert state_of(store, job) is JobState.PENDING
    assert [found.id for found in crawls.runnable(store.connection)] == [job]
    assert_invariants(store.connection)


def test_only_what_is_blocked_can_be_unblocked(store: Store) -> None:
    job = new_job(store)
    exhausted(store, job)
    with pytest.raises(Refused, match=r"a\.example is exhausted, not blocked"):
        domains.unblock(store.connection, "a.example", why="a test")
    assert jobs.state(store.connection, job) is JobState.COMPLETED, "nothing was changed"
