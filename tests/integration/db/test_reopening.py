"""What time reopens: jobs whose domains cooled down or are due for a refresh, under what is left of their crawls' limits."""

from datetime import timedelta

import pytest

from holdfast.db import crawls, explain, job_ends, jobs, operator_reports, sweeper
from holdfast.db.connection import Database
from holdfast.jobs.queries import actions
from holdfast.jobs.queries import jobs as job_queries
from holdfast.model.domain import Event, Status
from holdfast.model.job import JobAction, JobSpec, JobState
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

HOUR = timedelta(hours=1)


def sweep_now(store: Store) -> sweeper.SweepResult:
    return sweeper.sweep(store.connection, run_silence=HOUR)


def new_job(store: Store, *urls: str, **spec: object) -> int:
    job = crawls.create(store.connection, name="news", spec=JobSpec(**spec), fingerprint=None)  # type: ignore[arg-type]
    store.seed(*urls or ("a.example",), job=job.id)
    return job.id


def fail_urls(store: Store, job: int, reason: str, like: str = "%") -> None:
    """What a visit does to URLs that its server did not answer."""
    ids = store.connection.execute(
        "UPDATE url_frontier SET state = 'failed', reason = %s WHERE job_id = %s AND state = 'waiting' AND url LIKE %s RETURNING domain_id",
        (reason, job, like),
    ).fetchall()
    for (domain_id,) in ids:
        store.connection.execute(
            "UPDATE job_domains SET waiting = waiting - 1, failed = failed + 1 WHERE domain_id = %s AND job_id = %s",
            (domain_id, job),
        )
        store.connection.execute("UPDATE domains SET frontier_size = frontier_size - 1 WHERE id = %s", (domain_id,))


def unreachable(store: Store, job: int, reason: str = "connection_failed: refused") -> None:
    """A visit that found no server; its crawl is over."""
    crawls.runnable(store.connection)
    (claim,) = store.claim(job=job)
    fail_urls(store, job, reason)
    store.flush(claim, outcomes=1, errors=1)
    store.release(claim, event=Event.CONNECTION_FAILED)
    assert job_ends.finish_idle(store.connection) == 1


def exhausted(store: Store, job: int) -> None:
    """A visit that fetched everything; its crawl is over."""
    crawls.runnable(store.connection)
    (claim,) = store.claim(job=job)
    store.finish_urls(claim)
    store.flush(claim, outcomes=1, pages_crawled=1)
    store.connection.execute("UPDATE job_domains SET pages = 1 WHERE job_id = %s", (job,))
    store.release(claim)
    assert job_ends.finish_idle(store.connection) == 1


def state_of(store: Store, job: int) -> JobState:
    return jobs.state(store.connection, job)


def number_of_crawls(store: Store) -> object:
    return store.value("SELECT count(*) FROM crawls")


def test_the_end_of_a_cool_down_reopens_a_job_that_had_ended(store: Store) -> None:
    job = new_job(store, "a.example", "a.example/gone")
    unreachable(store, job)
    ended = state_of(store, job)
    assert ended in {JobState.COMPLETED, JobState.FAILED}
    store.end_cooldowns()
    sweep_now(store)
    assert (state_of(store, job), store.status("a.example")) == (JobState.PENDING, Status.PENDING)
    assert [found.id for found in crawls.runnable(store.connection)] == [job]
    assert [claim.domain for claim in store.claim(job=job)] == ["a.example"]
    assert number_of_crawls(store) == 1, "time begins no crawl"
    what = store.connection.execute(
        "SELECT data->>'what', data->>'from', data->>'reason' FROM events WHERE kind = 'job' AND data->>'what' = 'reopened'"
    ).fetchall()
    assert what == [("reopened", str(ended), "the cool-down of a.example ended")]
    assert_invariants(store.connection)


def test_a_retry_takes_waiting_and_refused_urls_and_no_pages(store: Store) -> None:
    job = new_job(store, "a.example", "a.example/refused", "a.example/gone", "a.example/later")
    crawls.runnable(store.connection)
    (claim,) = store.claim(job=job)
    fail_urls(store, job, "forbidden: HTTP 403", "%/refused")
    fail_urls(store, job, "too_large: 12 MB", "%/gone")
    store.connection.execute("UPDATE url_frontier SET state = 'done' WHERE url = 'https://a.example/'")
    store.connection.execute("UPDATE job_domains SET waiting = waiting - 1, done = done + 1")
    store.connection.execute("UPDATE domains SET frontier_size = frontier_size - 1")
    store.flush(claim, outcomes=3, pages_crawled=1, errors=2)
    store.release(claim, event=Event.FORBIDDEN)
    store.end_cooldowns()
    sweep_now(store)
    states: dict[str, str] = dict(store.connection.execute("SELECT url, state::text FROM url_frontier").fetchall())
    assert states == {
        "https://a.example/": "done",
        "https://a.example/refused": "waiting",
        "https://a.example/gone": "failed",
        "https://a.example/later": "waiting",
    }
    assert_invariants(store.connection)


@pytest.mark.parametrize("how", ["cancelled", "paused", "deleted"])
def test_time_reopens_no_job_that_a_person_stopped(store: Store, how: str) -> None:
    job = new_job(store)
    unreachable(store, job)
    store.connection.execute("UPDATE crawl_jobs SET state = 'pending' WHERE id = %s", (job,))
    if how == "deleted":
        actions.delete(store.connection, job)
    else:
        actions.act(store.connection, job, JobAction.CANCEL if how == "cancelled" else JobAction.PAUSE)
    store.end_cooldowns()
    sweep_now(store)
    assert store.value("SELECT state::text FROM crawl_jobs WHERE id = %s", job) == (
        how if how == "paused" else "cancelled"
    )
    assert crawls.runnable(store.connection) == []
    if how == "paused":
        actions.act(store.connection, job, JobAction.RESUME)
        jobs.unpark(store.connection, job)
        assert [found.id for found in crawls.runnable(store.connection)] == [job], "it waited for the person"
    assert_invariants(store.connection)


def test_a_job_whose_pages_are_used_up_is_not_reopened_by_time(store: Store) -> None:
    job = new_job(store, max_pages=4)
    unreachable(store, job)
    store.connection.execute("UPDATE crawls SET pages_granted = 4")
    store.connection.execute(
        "UPDATE job_domains SET granted = 4, budget_used = 4, crawl_id = (SELECT max(id) FROM crawls)"
    )
    ended = state_of(store, job)
    store.end_cooldowns()
    sweep_now(store)
    assert state_of(store, job) is ended
    assert crawls.runnable(store.connection) == []


def test_a_delay_that_ends_after_the_crawl_goes_on_with_that_crawl(store: Store) -> None:
    job = new_job(store, max_pages=4)
    (found,) = crawls.runnable(store.connection)
    (claim,) = store.claim(job=job)
    store.connection.execute("UPDATE crawls SET pages_granted = 3")
    store.connection.execute("UPDATE job_domains SET granted = 3, budget_used = 3, crawl_id = %s", (found.crawl_id,))
    store.release(claim, wait=3600.0)
    assert not job_ends.finish(store.connection, found.crawl_id or 0)
    store.connection.execute("UPDATE job_domains SET not_before = clock_timestamp() - interval '1 s'")
    sweep_now(store)
    (again,) = crawls.runnable(store.connection)
    assert again.crawl_id == found.crawl_id
    assert number_of_crawls(store) == 1
    assert store.value("SELECT max_pages - pages_granted FROM crawls") == 1, "what was left"
    assert_invariants(store.connection)


def test_a_job_at_its_limit_is_not_gone_on_with_by_time(store: Store) -> None:
    job = new_job(store, max_pages=4)
    (found,) = crawls.runnable(store.connection)
    (claim,) = store.claim(job=job)
    store.connection.execute("UPDATE crawls SET pages_granted = 4")
    store.connection.execute("UPDATE job_domains SET granted = 4, budget_used = 4, crawl_id = %s", (found.crawl_id,))
    store.release(claim, wait=3600.0)
    assert not job_ends.finish(store.connection, found.crawl_id or 0)
    store.connection.execute("UPDATE job_domains SET not_before = clock_timestamp() - interval '1 s'")
    sweep_now(store)
    assert crawls.runnable(store.connection) == []
    store.seed("b.example", job=job)
    (anew,) = crawls.runnable(store.connection)
    assert anew.crawl_id != found.crawl_id, "new seeds are a person's word"


@pytest.mark.parametrize("wanted", [True, False])
def test_a_due_refresh_reopens_only_jobs_that_asked_for_it(store: Store, wanted: bool) -> None:
    job = new_job(store, refresh=wanted)
    exhausted(store, job)
    assert state_of(store, job) is JobState.COMPLETED
    store.end_cooldowns()
    sweep_now(store)
    after = (state_of(store, job), store.status("a.example"))
    assert after == ((JobState.PENDING, Status.PENDING) if wanted else (JobState.COMPLETED, Status.EXHAUSTED))
    assert len(crawls.runnable(store.connection)) == wanted
    assert number_of_crawls(store) == 1
    reasons = store.connection.execute("SELECT data->>'reason' FROM events WHERE data->>'what' = 'reopened'").fetchall()
    assert reasons == ([("a refresh of a.example is due",)] if wanted else [])
    assert_invariants(store.connection)


def test_a_sweep_waits_for_no_job_that_is_locked(store: Store, database: Database) -> None:
    job = new_job(store)
    unreachable(store, job)
    store.end_cooldowns()
    with database.connect() as other, other.transaction():
        other.execute("SELECT FROM crawl_jobs WHERE id = %s FOR UPDATE", (job,))
        store.connection.execute("SET statement_timeout = '5s'")
        sweep_now(store)
        assert store.status("a.example") is Status.UNREACHABLE, "it comes a moment later"
    store.end_cooldowns()
    sweep_now(store)
    assert (state_of(store, job), store.status("a.example")) == (JobState.PENDING, Status.PENDING)


def test_a_job_that_asks_for_refresh_later_gets_the_one_that_passed(store: Store) -> None:
    job = new_job(store)
    exhausted(store, job)
    store.end_cooldowns()
    sweep_now(store)
    assert store.row("a.example")["next_crawl_after"] is None
    crawls.set_spec(store.connection, job, JobSpec(refresh=True))
    actions.make_refresh_due(store.connection, job)
    sweep_now(store)
    assert (state_of(store, job), store.status("a.example")) == (JobState.PENDING, Status.PENDING)


def test_the_standing_job_asks_for_refresh(store: Store) -> None:
    standing = crawls.find(store.connection, name=jobs.DEFAULT)
    assert standing is not None
    assert standing.spec.refresh


def test_refreshes_that_are_due_are_claimed_by_the_yield_of_their_domains(store: Store) -> None:
    store.seed("poor.example", "rich.example")
    for _ in range(2):
        store.crawl_to_the_end()
    store.connection.execute("UPDATE domains SET images_stored = 5 WHERE domain = 'rich.example'")
    store.end_cooldowns()
    sweep_now(store)
    assert [claim.domain for claim in store.claim(count=1)] == ["rich.example"], (
        "scores are computed anew when it is due"
    )


def due(store: Store) -> set[str]:
    return {row["what"] for row in operator_reports.upcoming(store.connection)}


def test_what_is_promised_is_what_will_happen(store: Store) -> None:
    job = new_job(store)
    exhausted(store, job)
    assert due(store) == set(), "it did not ask for refresh"
    crawls.set_spec(store.connection, job, JobSpec(refresh=True))
    assert due(store) == {"pages are looked at again"}
    crawls.set_spec(store.connection, job, JobSpec(refresh=True, max_pages=1))
    store.connection.execute("UPDATE crawls SET pages_granted = 1")
    assert due(store) == set(), "its pages are used up"


def test_a_cool_down_is_promised_only_where_a_job_goes_on(store: Store) -> None:
    job = new_job(store)
    unreachable(store, job)
    assert due(store) == {"cool-down ends"}
    store.connection.execute("UPDATE job_domains SET not_before = now() + interval '1 hour'")
    assert due(store) == {"cool-down ends"}, "no attempt is made before the cool-down ends"
    store.connection.execute("UPDATE domains SET is_active = false")
    assert due(store) == set(), "it is switched off"
    store.connection.execute("UPDATE domains SET is_active = true")
    store.connection.execute("UPDATE crawl_jobs SET state = 'cancelled' WHERE id = %s", (job,))
    assert due(store) == set()


def test_a_job_whose_pages_are_used_up_is_shown_as_stopped_at_a_limit(store: Store) -> None:
    job = new_job(store, max_pages=4)
    (found,) = crawls.runnable(store.connection)
    (claim,) = store.claim(job=job)
    store.connection.execute("UPDATE crawls SET pages_granted = 4")
    store.release(claim, wait=3600.0)
    job_ends.finish(store.connection, found.crawl_id or 0)
    row = job_queries.get(store.connection, job)
    assert (row.state, row.out_of_budget) == ("pending", True)
    (work,) = explain.of_domain(store.connection, claim.domain_id)
    assert work["used_up"] is True


def test_a_claim_right_after_a_cool_down_does_not_forgive_the_stops(store: Store) -> None:
    """The sweep's wake must not be taken at the release for a person's word."""
    job = new_job(store)
    crawls.runnable(store.connection)
    (claim,) = store.claim(job=job)
    store.release(claim, event=Event.CONNECTION_FAILED)
    store.connection.execute("UPDATE domains SET next_crawl_after = clock_timestamp()")
    sweeper._in_chunks(store.connection, sweeper._COOLED, sweeper._end_cooldowns, [], {"refresh": True})
    (claim,) = store.claim(job=job)
    store.flush(claim, outcomes=1, errors=1)
    store.release(claim, event=Event.CONNECTION_FAILED)
    row = store.row("a.example")
    assert (row["status"], row["retry_count"]) == (Status.UNREACHABLE, 2)
    assert_invariants(store.connection)
