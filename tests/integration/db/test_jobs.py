"""Jobs paused, resumed, cancelled and deleted, on a real store; by whoever said so, or by the sweep after that one died."""

from datetime import timedelta

import pytest

from holdfast.db import crawls, jobs, listen_notify, sweeper
from holdfast.db.connection import Database
from holdfast.errors import NotFound, Refused
from holdfast.jobs.queries import actions
from holdfast.model.domain import Claim, Status
from holdfast.model.job import JobAction, JobState
from tests.support.factories import Store
from tests.support.invariants import assert_invariants

SILENCE = timedelta(hours=1)


def state(store: Store, job: int) -> str:
    return str(store.value("SELECT state FROM crawl_jobs WHERE id = %s", job))


def rows(store: Store, table: str, job: int) -> int:
    return int(str(store.value(f"SELECT count(*) FROM {table} WHERE job_id = %s", job)))


def test_a_job_is_found_by_name_or_id_and_an_id_counts_for_more(store: Store) -> None:
    """No job is called so any more: the name of one from earlier times is not in the way of another one's id."""
    one = store.new_job("one")
    other = store.new_job(str(one))
    assert jobs.find(store.connection, "one") == one
    assert jobs.find(store.connection, str(one)) == one
    assert jobs.find(store.connection, str(other)) == other
    with pytest.raises(NotFound, match="no job called 'two'"):
        jobs.find(store.connection, "two")


def test_pausing_twice_is_pausing_once_and_an_ended_job_cannot_be_paused(store: Store) -> None:
    for _ in range(2):
        assert actions.act(store.connection, store.job, JobAction.PAUSE).after is JobState.PAUSED
    store.connection.execute("UPDATE crawl_jobs SET state = 'completed' WHERE id = %s", (store.job,))
    with pytest.raises(Refused, match="Job default is completed; you cannot pause it"):
        actions.act(store.connection, store.job, JobAction.PAUSE)
    assert state(store, store.job) == "completed"


def test_whoever_listens_hears_of_a_change_and_of_nothing_else(store: Store) -> None:
    listen_notify.listen(store.connection)
    actions.act(store.connection, store.job, JobAction.PAUSE)
    assert listen_notify.wait(store.connection, 5)
    actions.act(store.connection, store.job, JobAction.PAUSE)
    assert not listen_notify.wait(store.connection, 0.05)


def park(store: Store, domains: int) -> None:
    """Claim all domains of the standing job, pause it, and let go of them."""
    store.domains(domains)
    claims = store.claim(count=domains)
    assert len(claims) == domains
    actions.act(store.connection, store.job, JobAction.PAUSE)
    for claim in claims:
        store.release(claim)
    assert store.claim() == []


@pytest.mark.parametrize("by", ["command", "sweep"])
def test_what_was_put_aside_is_ready_again_after_a_resume(
    store: Store, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "CHUNK", 3)
    park(store, 10)
    assert jobs.parked(store.connection) == []
    actions.act(store.connection, store.job, JobAction.RESUME)
    assert jobs.parked(store.connection) == [store.job]
    assert store.claim() == []
    assert_invariants(store.connection)
    if by == "command":
        done = []
        while (made := jobs.unpark(store.connection, store.job)) is not None:
            done.append(made)
        assert done == [3, 3, 3]
    else:  # whoever resumed it has died
        assert sweeper.sweep(store.connection, run_silence=SILENCE).jobs == 3
    assert len(store.claim(count=20)) == 10
    assert_invariants(store.connection)


def test_who_saw_it_paused_and_commits_after_the_resume_is_found(store: Store) -> None:
    """For a while it is looked at again, and then no more."""
    park(store, 1)
    actions.act(store.connection, store.job, JobAction.RESUME)
    assert jobs.unpark(store.connection, store.job) is None
    store.connection.execute("UPDATE job_domains SET ready = false")
    sweeper.sweep(store.connection, run_silence=SILENCE)
    assert len(store.claim()) == 1
    assert jobs.parked(store.connection) == [store.job]
    store.connection.execute("UPDATE crawl_jobs SET resumed_at = resumed_at - interval '1 hour'")
    sweeper.sweep(store.connection, run_silence=SILENCE)
    assert jobs.parked(store.connection) == []


def test_sweeps_do_not_queue_up_for_the_row_of_a_resumed_job(store: Store, database: Database) -> None:
    """A person who pauses it again would have to wait behind all of them."""
    park(store, 2)
    actions.act(store.connection, store.job, JobAction.RESUME)
    with database.connect() as other, other.transaction():
        other.execute("SELECT FROM crawl_jobs WHERE id = %s FOR NO KEY UPDATE", (store.job,))
        store.connection.execute("SET lock_timeout = '5s'")
        swept = sweeper.sweep(store.connection, run_silence=SILENCE)
        assert (swept.faults, store.claim()) == ([], [])
    sweeper.sweep(store.connection, run_silence=SILENCE)
    assert len(store.claim(count=5)) == 2


def test_a_pause_in_the_middle_of_a_resume_begins_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "CHUNK", 3)
    park(store, 7)
    actions.act(store.connection, store.job, JobAction.RESUME)
    assert jobs.unpark(store.connection, store.job) == 3
    first = store.claim(count=2)
    actions.act(store.connection, store.job, JobAction.PAUSE)
    for claim in first:
        store.release(claim)
    assert jobs.unpark(store.connection, store.job) is None
    actions.act(store.connection, store.job, JobAction.RESUME)
    while jobs.unpark(store.connection, store.job) is not None:
        pass
    assert len(store.claim(count=20)) == 7


def test_a_cancelled_job_has_no_open_crawl_and_is_not_begun(store: Store) -> None:
    store.seed("a.example")
    crawl, _ = crawls.begin(store.connection, store.job)
    actions.act(store.connection, store.job, JobAction.CANCEL)
    assert store.value("SELECT state FROM crawls WHERE id = %s", crawl) == "finished"
    with pytest.raises(Refused, match="cancelled"):
        crawls.begin(store.connection, store.job)
    assert_invariants(store.connection)


def forget_all(store: Store, job: int) -> int:
    total = 0
    while (gone := jobs.forget(store.connection, job)) is not None:
        total += gone
    return total


@pytest.mark.parametrize("by", ["command", "sweep"])
def test_a_deleted_job_takes_its_urls_and_pages_with_it_and_nobody_elses(
    store: Store, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ROWS", 4)
    monkeypatch.setattr(jobs, "CHUNK", 2)
    other = store.new_job("other")
    for job in (store.job, other):
        store.seed(*(f"https://{d}.example/{n}" for d in "abcde" for n in range(6)), job=job)
    sweeper.sweep(store.connection, run_silence=SILENCE)
    kept = rows(store, "url_frontier", store.job)
    assert actions.delete(store.connection, other) == "other"
    with pytest.raises(NotFound):
        jobs.find(store.connection, "other")
    with pytest.raises(NotFound):
        crawls.get(store.connection, other)
    again = store.new_job("other")  # the name is free
    assert_invariants(store.connection)
    if by == "command":
        assert forget_all(store, other) == 30
    else:
        assert sweeper.sweep(store.connection, run_silence=SILENCE).jobs > 3
    for table in ("url_frontier", "job_domains", "domain_wakes", "crawled_pages"):
        assert rows(store, table, other) == 0, table
    assert rows(store, "url_frontier", store.job) == kept == 30
    assert store.row("a.example")["pages_discovered"] == 6
    assert_invariants(store.connection)
    store.connection.execute(
        "UPDATE crawl_jobs SET deleted_at = deleted_at - interval '1 hour' WHERE id = %s", (other,)
    )
    sweeper.sweep(store.connection, run_silence=SILENCE)
    assert store.value("SELECT array_agg(id ORDER BY id) FROM crawl_jobs WHERE kind = 'crawl'") == [store.job, again]


def test_counters_are_right_in_the_middle_of_a_deletion(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "ROWS", 4)
    other = store.new_job("other")
    store.seed(*(f"https://a.example/{n}" for n in range(10)), job=other)
    actions.delete(store.connection, other)
    steps = 0
    while jobs.forget(store.connection, other) is not None:
        steps += 1
        assert_invariants(store.connection)
    assert steps == 4  # three of URLs, one of its seeds
    assert store.value("SELECT count(*) FROM job_seeds") == 0


def test_what_others_had_on_their_way_to_a_domain_is_ready_after_a_deletion(store: Store) -> None:
    """Deleting folds their wakes, too."""
    other = store.new_job("other")
    store.seed("https://a.example/1", job=other)
    store.seed("https://a.example/2")  # a wake, since the domain is known
    actions.delete(store.connection, other)
    forget_all(store, other)
    assert store.value("SELECT count(*) FROM domain_wakes") == 0
    assert len(store.claim()) == 1
    assert_invariants(store.connection)


def half_crawled(store: Store, job: int) -> Claim:
    """A domain that the standing job has crawled to its end, under way again for another job that has a URL waiting."""
    store.seed("https://a.example/")
    store.crawl_to_the_end()
    store.seed("https://a.example/1", job=job)
    sweeper.sweep(store.connection, run_silence=SILENCE)
    (claim,) = store.claim(job=job)
    assert store.flush(claim, outcomes=1, pages_crawled=1)
    return claim


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("by", ["command", "sweep"])
def test_a_domain_that_was_under_way_for_a_deleted_job_alone_comes_to_rest(store: Store, by: str, held: bool) -> None:
    """Else nobody would ever come to find that nothing is left, and the other jobs' refresh would have no date."""
    other = store.new_job("other")
    claim = half_crawled(store, other)
    if not held:
        assert store.release(claim) is Status.ACTIVE
    actions.delete(store.connection, other)
    if by == "command":
        forget_all(store, other)
    else:
        sweeper.sweep(store.connection, run_silence=SILENCE)
    assert store.status("a.example") is Status.EXHAUSTED
    assert_invariants(store.connection)
    if held:  # a visit for tasks, say, which leaves the status as it is
        assert store.release(claim, keeps_status=True) is Status.EXHAUSTED
    assert store.row("a.example")["status_reason"] == "frontier_empty: its job was deleted"
    assert store.claim() == []
    store.end_cooldowns()
    sweeper.sweep(store.connection, run_silence=SILENCE)
    assert [claim.domain for claim in store.claim()] == ["a.example"]
    assert_invariants(store.connection)


@pytest.mark.parametrize("work", ["waiting", "paused", "spent", "wanted again"])
def test_a_domain_where_another_job_has_work_stays_under_way_after_a_deletion(store: Store, work: str) -> None:
    other, third = store.new_job("other"), store.new_job("third")
    claim = half_crawled(store, other)
    if work != "wanted again":
        store.seed("https://a.example/3", job=third)
    spent = frozenset({third}) if work == "spent" else frozenset()
    assert store.release(claim, spent_jobs=spent) is Status.ACTIVE
    if work == "paused":
        actions.act(store.connection, third, JobAction.PAUSE)
    elif work == "wanted again":  # by a wake that a deletion does not fold, since a long one takes its time
        store.connection.execute(
            "INSERT INTO domain_wakes (domain_id, job_id, inserted, again_after) VALUES (%s, %s, 0, '')",
            (claim.domain_id, store.job),
        )
    actions.delete(store.connection, other)
    forget_all(store, other)
    assert store.status("a.example") is Status.ACTIVE
    assert_invariants(store.connection)


def test_urls_of_a_deleted_job_wake_nobody(store: Store) -> None:
    """A domain that became pending by them would have nothing to do, and no date for the refresh any more."""
    other = store.new_job("other")
    store.seed("https://a.example/")
    store.crawl_to_the_end()
    refresh = store.row("a.example")["next_crawl_after"]
    store.seed("https://a.example/1", job=other)  # a wake, since the domain is known
    actions.delete(store.connection, other)
    forget_all(store, other)
    assert store.status("a.example") is Status.EXHAUSTED
    assert store.row("a.example")["next_crawl_after"] == refresh
    assert_invariants(store.connection)


def test_a_job_that_is_buried_is_as_dead_as_one_that_is_not(store: Store) -> None:
    other = store.new_job("x" * 100)
    actions.delete(store.connection, other)
    assert jobs.dead(store.connection, {store.job, other, 4711}) == {other, 4711}


def test_the_job_of_the_tasks_is_not_ended(store: Store) -> None:
    with pytest.raises(Refused, match="the one of all tasks"):
        actions.act(store.connection, jobs.find(store.connection, "tasks"), JobAction.CANCEL)


def test_seeds_for_a_job_that_is_deleted_meanwhile_are_refused(store: Store) -> None:
    other = store.new_job("other")
    actions.delete(store.connection, other)
    with pytest.raises(Refused, match="deleted meanwhile"):
        store.seed("b.example", job=other)
    assert store.value("SELECT count(*) FROM domains") == 0


def test_the_standing_job_stays(store: Store) -> None:
    with pytest.raises(Refused, match="standing one"):
        actions.delete(store.connection, store.job)
