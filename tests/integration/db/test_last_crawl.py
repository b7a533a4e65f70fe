"""What is known of a domain's last crawl while it is under way, and the order of domains an hour later."""

from datetime import timedelta

import pytest

from holdfast.db import crawls, jobs, sweeper
from holdfast.domains import queries as domains
from holdfast.model.job import JobState
from holdfast.stats import queries as current_counts
from tests.integration.db.test_reopening import exhausted, new_job, state_of, unreachable
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

HOUR = timedelta(hours=1)


def test_the_first_flush_says_when_a_domain_was_crawled(store: Store) -> None:
    store.seed("a.example")
    claim = store.claim_one()
    store.flush(claim, outcomes=0, discovered=0)
    assert store.row("a.example")["last_crawled_at"] is None, "nothing was fetched"
    store.flush(claim, outcomes=1, pages_crawled=1)
    row = store.row("a.example")
    assert row["last_crawled_at"] is not None
    assert row["last_visit_ended_at"] is None, "the visit goes on"
    store.release(claim)
    assert store.row("a.example")["last_visit_ended_at"] is not None


def test_a_claim_that_was_taken_away_leaves_a_score_of_what_was_crawled(store: Store) -> None:
    store.seed("a.example")
    before = store.row("a.example")["priority_score"]
    claim = store.claim_one()
    store.flush(claim, outcomes=1, pages_crawled=1)
    store.expire(claim.domain_id)
    sweeper.sweep(store.connection, run_silence=HOUR)
    assert store.row("a.example")["priority_score"] < before - 100, "it is not as stale as one that was never crawled"


def test_priorities_are_computed_anew_every_hour_in_chunks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.db.domains.PRIORITY_CHUNK", 2)
    monkeypatch.setattr(sweeper, "SCORE_CHUNKS", 1)
    store.domains(5)
    store.connection.execute("UPDATE domains SET pages_discovered = pages_discovered + 100")
    assert sweeper.sweep(store.connection, run_silence=HOUR).scored == 0, "an hour has not passed"
    store.connection.execute("UPDATE duties SET done_at = now() - interval '61 minutes' WHERE name = 'priorities'")
    assert [sweeper.sweep(store.connection, run_silence=HOUR).scored for _ in range(4)] == [2, 2, 1, 0]
    stale = store.value("SELECT count(*) FROM domains d WHERE d.priority_score <> domain_score(d)")
    work = store.value(
        "SELECT count(*) FROM job_domains jd JOIN domains d ON d.id = jd.domain_id WHERE jd.priority <> d.priority_score"
    )
    assert (stale, work) == (0, 0)


def test_the_size_of_the_frontier_is_that_of_jobs_that_may_be_worked_on(store: Store) -> None:
    store.seed("a.example", "a.example/x")
    job = new_job(store, "a.example", "b.example", "c.example")
    sweeper.sweep(store.connection, run_silence=HOUR)
    assert current_counts.store_counts(store.connection, silence=HOUR).frontier_size == 5
    for state in ("paused", "cancelled", "completed"):
        store.connection.execute("UPDATE crawl_jobs SET state = %s WHERE id = %s", (state, job))
        assert current_counts.store_counts(store.connection, silence=HOUR).frontier_size == 2


def test_a_job_without_a_single_page_ends_failed_with_the_cause(store: Store) -> None:
    job = new_job(store, "a.example", "a.example/x")
    unreachable(store, job)
    assert state_of(store, job) is JobState.FAILED
    cause = store.value("SELECT state_reason FROM crawl_jobs WHERE id = %s", job)
    assert cause == (
        "no page was fetched: 2 URLs ended with connection_failed, for example https://a.example/ (connection_failed: refused)"
    )
    told = store.value("SELECT data->>'reason' FROM events WHERE kind = 'job' AND data->>'to' = 'failed'")
    assert told == cause
    crawls.begin(store.connection, job)
    assert (state_of(store, job), store.value("SELECT state_reason FROM crawl_jobs WHERE id = %s", job)) == (
        JobState.PROCESSING,
        None,
    )


def test_a_job_with_a_page_is_completed(store: Store) -> None:
    job = new_job(store)
    exhausted(store, job)
    assert jobs.state(store.connection, job) is JobState.COMPLETED
    assert store.value("SELECT state_reason FROM crawl_jobs WHERE id = %s", job) is None


def done_of(store: Store) -> tuple[int, int]:
    row = domains.get(store.connection, "a.example")
    return row.pages_done, row.pages_known


def test_no_more_pages_are_done_than_known(store: Store) -> None:
    """Neither a second job on the same site nor a second crawl of it makes it larger."""
    store.seed("a.example", "a.example/x")
    store.crawl_to_the_end()
    assert done_of(store) == (2, 2)
    job = new_job(store, "a.example", "a.example/x")
    sweeper.sweep(store.connection, run_silence=HOUR)
    exhausted(store, job)
    assert done_of(store) == (2, 2), "a second job"
    crawls.restart(store.connection, store.job)
    store.crawl_to_the_end()
    assert store.value("SELECT pages FROM job_domains WHERE job_id = %s", store.job) == 4
    assert done_of(store) == (2, 2), "crawled again"
    assert_invariants(store.connection)
