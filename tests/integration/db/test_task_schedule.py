"""The schedule: what is due is queued once, what cannot run is set aside, what is completed is followed up once."""

import threading
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast.db import tasks
from holdfast.db.connection import Database
from holdfast.db.tasks import DueTask
from holdfast.model.task import TaskStatus
from holdfast.tasks import queries as task_queries
from tests.support.tasks import Tasks

S = TaskStatus
HOUR = timedelta(hours=1)


@pytest.fixture
def at(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


def waits_for(at: Tasks, task_id: int) -> str | None:
    return at.get(task_id).waits_for


def active(at: Tasks, domain: str, *, on: bool) -> None:
    at.connection.execute("UPDATE domains SET is_active = %s WHERE domain = %s", (on, domain))


# Due ------------------------------------------------------------------------------------------------------------------


def test_tasks_come_by_priority_then_time_then_id(at: Tasks) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    late = at.one("a.example/1", priority=5, scheduled_at=past + HOUR)
    early, twin = at.add("a.example/2", "a.example/3", priority=5, scheduled_at=past)
    last = at.one("a.example/4", priority=10, scheduled_at=past - HOUR)
    first = at.one("a.example/5", priority=1)
    future = at.one("a.example/6", priority=1, scheduled_at=datetime(2999, 1, 1, tzinfo=UTC))
    ordered = [first, *sorted([early, twin]), late, last]
    assert [at.due(2), at.due(2), at.due(2), at.due(2)] == [ordered[:2], ordered[2:4], ordered[4:], []]
    assert at.status(future) is S.PENDING


def test_what_is_due_is_queued_under_a_new_attempt_and_tells_all_that_the_frontier_needs(at: Tasks) -> None:
    task_id = at.one("a.example/x", priority=2)
    (found,) = tasks.due(at.connection, 10)
    task = at.get(task_id)
    assert found == DueTask(task_id, 1, task.domain_id, task.url, task.url_hash, 2)
    assert (task.status, task.attempt) == (S.QUEUED, 1)
    assert at.due() == []


def test_only_what_is_pending_is_due(at: Tasks) -> None:
    for status in reversed(TaskStatus):
        task_id = at.one(f"a.example/{status}")
        at.bring(task_id, status)
        at.now(task_id)
    assert [at.get(task_id).url for task_id in at.due()] == ["https://a.example/pending"]


def test_a_rolled_back_schedule_has_queued_nothing(at: Tasks) -> None:
    task_id = at.one()
    with at.connection.transaction(force_rollback=True):
        assert at.due() == [task_id]
    assert at.status(task_id) is S.PENDING
    assert at.due() == [task_id]


def test_while_one_schedules_another_finds_nothing_and_waits_for_nothing(at: Tasks, database: Database) -> None:
    first, second = at.add("a.example/1", "a.example/2")
    with database.connect() as other, other.transaction():
        (taken,) = tasks.due(other, 1)
        assert at.due() == []
    assert {taken.id, *at.due()} == {first, second}


def test_a_task_that_a_person_has_in_hand_is_left_for_the_next_time(at: Tasks, database: Database) -> None:
    first, second = at.add("a.example/1", "a.example/2")
    with database.connect() as other, other.transaction():
        task_queries.set_priority(other, first, 9, actor="ann")
        assert at.due() == [second]
    assert at.due() == [first]


def test_many_schedulers_at_once_take_each_task_once(at: Tasks, database: Database) -> None:
    wanted = at.add(*(f"{host}.example/{number}" for number in range(40) for host in "ab"))
    taken: list[int] = []
    start = threading.Barrier(4)

    def schedule() -> None:
        with database.connect() as connection:
            start.wait()
            while connection.execute("SELECT EXISTS (SELECT FROM crawl_tasks WHERE status = 'pending')").fetchone() == (
                True,
            ):
                taken.extend(task.id for task in tasks.due(connection, 7))

    threads = [threading.Thread(target=schedule) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == sorted(wanted)


# What cannot run ------------------------------------------------------------------------------------------------------


def test_tasks_of_an_inactive_domain_are_set_aside_until_it_is_active(at: Tasks) -> None:
    off = at.add(*(f"off.example/{number}" for number in range(5)), priority=1)
    on = at.one("on.example/", priority=9)
    active(at, "off.example", on=False)
    assert at.due(2) == [on], "however many stand before it"
    assert {waits_for(at, task_id) for task_id in off} == {"domain"}
    assert at.due() == []
    active(at, "off.example", on=True)
    assert at.due() == sorted(off)
    assert {waits_for(at, task_id) for task_id in off} == {None}


def test_of_two_inactive_domains_the_one_that_wakes_gets_its_tasks_back(at: Tasks) -> None:
    ids = {name: at.one(f"{name}.example/") for name in "abc"}
    at.connection.execute("UPDATE domains SET is_active = false")
    assert at.due() == []
    active(at, "b.example", on=True)
    assert at.due() == [ids["b"]]
    active(at, "a.example", on=True)
    active(at, "c.example", on=True)
    assert sorted(at.due()) == [ids["a"], ids["c"]]


def test_a_task_waits_until_its_parent_is_completed(at: Tasks) -> None:
    parent = at.one("a.example/parent")
    children = at.add("a.example/1", "a.example/2", parent_task_id=parent)
    assert at.due() == [parent]
    assert {waits_for(at, child) for child in children} == {"parent"}
    at.fetched(parent)
    assert at.due() == []
    at.parsed(parent)
    assert at.due() == sorted(children)
    assert at.due() == []
    assert at.value("SELECT count(*) FROM crawl_tasks WHERE frees_children OR waits_for IS NOT NULL") == 0


def test_a_parent_that_was_completed_before_holds_nothing_up(at: Tasks) -> None:
    parent = at.completed("a.example/parent")
    child = at.one("a.example/child", parent_task_id=parent)
    assert at.due() == [child]


@pytest.mark.parametrize("end", [S.FAILED, S.CANCELLED])
def test_a_child_of_one_that_failed_waits_until_a_person_made_up_for_it(at: Tasks, end: TaskStatus) -> None:
    parent = at.one("a.example/parent")
    at.bring(parent, end)
    child = at.one("a.example/child", parent_task_id=parent)
    assert at.due() == []
    assert task_queries.restart(at.connection, parent, actor="ann")
    at.bring(parent, S.COMPLETED)
    assert at.due() == [child]


def test_a_parent_completed_while_its_child_is_being_set_aside_frees_it_all_the_same(
    at: Tasks, database: Database
) -> None:
    parent = at.one("a.example/parent")
    at.bring(parent, S.PARSING)
    child = at.one("a.example/child", parent_task_id=parent)
    with database.connect() as other, other.transaction():
        assert tasks.due(other, 10) == []
        at.by_hand(parent, S.COMPLETED)  # does not see that the child is set aside
    assert waits_for(at, child) == "parent"
    assert at.due() == [child]


def test_what_was_set_aside_and_is_changed_by_a_person_is_looked_at_anew(at: Tasks) -> None:
    parent = at.one("a.example/parent")
    child = at.one("a.example/child", parent_task_id=parent)
    at.due()
    assert waits_for(at, child) == "parent"
    assert task_queries.pause(at.connection, child, actor="ann")
    at.fetched(parent)
    at.parsed(parent)
    assert at.due() == []
    assert task_queries.resume(at.connection, child, actor="ann")
    assert at.due() == [child]


# Again ----------------------------------------------------------------------------------------------------------------


def test_a_completed_task_is_followed_by_the_next_when_its_time_has_come(at: Tasks) -> None:
    batch = task_queries.create_batch(at.connection, "b", actor="ann")
    parent = at.completed("a.example/parent", is_recurring=False)
    how = {"priority": 3, "crawl_frequency": HOUR, "max_retries": 8, "batch_id": batch, "parent_task_id": parent}
    old = at.completed("a.example/x", webhook_url="https://h.example/", parser_name="product", **how)
    assert at.spawn() == [], "not yet"
    at.recur(old)
    (new,) = at.spawn()
    before, after = at.get(old), at.get(new)
    carried_on = (
        "url",
        "url_hash",
        "domain_id",
        "priority",
        "crawl_frequency",
        "max_retries",
        "batch_id",
        "webhook_url",
    )
    for name in (*carried_on, "parser_name", "is_recurring"):
        assert getattr(after, name) == getattr(before, name), name
    assert (after.recrawl_count, after.previous_task_id, after.parent_task_id) == (1, old, None)
    assert (after.status, after.created_by, after.retry_count, after.archive) == (S.PENDING, "schedule", 0, None)
    assert (before.status, before.next_crawl_at) == (S.COMPLETED, None)
    assert at.spawn() == []
    assert at.due() == [new]
    at.fetched(new)
    at.parsed(new)
    at.recur(new)
    assert [at.get(task_id).recrawl_count for task_id in at.spawn()] == [2]


@pytest.mark.parametrize("end", [S.FAILED, S.CANCELLED, S.PAUSED])
def test_only_completed_tasks_are_followed_up(at: Tasks, end: TaskStatus) -> None:
    task_id = at.one()
    at.bring(task_id, end)
    assert at.get(task_id).next_crawl_at is None
    assert at.spawn() == []


def test_to_cancel_a_completed_task_ends_the_row(at: Tasks) -> None:
    task_id = at.completed()
    at.recur(task_id)
    assert task_queries.cancel(at.connection, task_id, actor="ann")
    assert at.spawn() == []
    assert at.get(task_id).next_crawl_at is None


def test_only_the_newest_row_of_a_url_is_followed_up(at: Tasks) -> None:
    old = at.completed()
    new = at.completed()
    at.recur(old)
    assert at.spawn() == []
    assert at.get(old).next_crawl_at is None, "it is not met again"
    at.recur(new)
    assert len(at.spawn()) == 1


def test_while_an_older_row_is_live_the_next_crawl_is_put_off_and_not_lost(at: Tasks) -> None:
    old = at.completed(crawl_frequency=HOUR)
    new = at.completed(crawl_frequency=HOUR)
    assert task_queries.restart(at.connection, old, actor="ann")
    at.recur(new)
    assert at.spawn() == []
    put_off = at.get(new).next_crawl_at
    assert put_off
    assert put_off > at.value("SELECT clock_timestamp() + interval '59 minutes'")
    at.bring(old, S.COMPLETED)
    at.recur(old, new)
    (third,) = at.spawn()
    assert at.get(third).previous_task_id == new


def test_as_many_are_followed_up_as_asked_for_the_longest_due_first(at: Tasks) -> None:
    ids = [at.completed(f"a.example/{number}") for number in range(3)]
    for place, task_id in enumerate(ids):
        at.connection.execute(
            "UPDATE crawl_tasks SET next_crawl_at = now() - make_interval(mins => %s) WHERE id = %s",
            (9 - place, task_id),
        )
    assert [at.get(task_id).previous_task_id for task_id in at.spawn(2)] == ids[:2]
    assert [at.get(task_id).previous_task_id for task_id in at.spawn(2)] == ids[2:]


def test_what_another_is_following_up_is_neither_followed_up_nor_waited_for(at: Tasks, database: Database) -> None:
    first, second = at.completed("a.example/1"), at.completed("a.example/2")
    at.recur(first, second)
    with database.connect() as other, other.transaction():
        (taken,) = tasks.spawn_due(other, 1)
        at.connection.execute("SET lock_timeout = '10s'")
        (mine,) = at.spawn()
    assert {at.get(task_id).previous_task_id for task_id in (taken, mine)} == {first, second}
    assert [at.get(task_id).next_crawl_at for task_id in (first, second)] == [None, None]


def test_many_schedulers_at_once_follow_each_up_once(at: Tasks, database: Database) -> None:
    ids = [at.completed(f"a.example/{number}") for number in range(24)]
    at.recur(*ids)
    spawned: list[int] = []
    start = threading.Barrier(4)

    def schedule() -> None:
        with database.connect() as connection:
            start.wait()
            while connection.execute(
                "SELECT EXISTS (SELECT FROM crawl_tasks WHERE next_crawl_at <= now())"
            ).fetchone() == (True,):
                spawned.extend(tasks.spawn_due(connection, 5))

    threads = [threading.Thread(target=schedule) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(at.get(task_id).previous_task_id or 0 for task_id in spawned) == ids
    assert at.value("SELECT count(*) FROM crawl_tasks") == 2 * len(ids)
