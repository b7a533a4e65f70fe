"""The outbox: filled with the end of a task, taken by one at a time, and nothing lost whoever dies."""

import re
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast.db import audit
from holdfast.db.connection import Database
from holdfast.errors import NotFound, Refused
from holdfast.model.task import TaskStatus
from holdfast.model.webhook import NextStep
from holdfast.tasks import queries as task_queries
from holdfast.webhooks import queries
from holdfast.webhooks.queries import Attempt, Taken
from holdfast.webhooks.records import DeliveryFilter, DeliveryState
from tests.support.tasks import Tasks

S = TaskStatus
HOOK = "https://hooks.example/in?token=1"
OTHER = "https://other.example/in"
LEASE = timedelta(minutes=1)
DELIVERED = Attempt(NextStep.DELIVERED, status=200)
GONE = Attempt(NextStep.SWITCH_OFF, status=410, error="HTTP 410: go away")


@pytest.fixture
def at(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


def take(at: Tasks, count: int = 100, most: int = 10) -> list[Taken]:
    return queries.take(at.connection, count=count, lease=LEASE, max_attempts=most)


def one(at: Tasks) -> Taken:
    (taken,) = take(at)
    return taken


def later(at: Tasks) -> None:
    """Let the next time of everything that waits come."""
    at.connection.execute(
        "UPDATE webhook_deliveries SET next_attempt_at = clock_timestamp() WHERE next_attempt_at IS NOT NULL"
    )


def row(at: Tasks, delivery_id: int) -> dict[str, Any]:
    return dict(at.value("SELECT to_jsonb(d) FROM webhook_deliveries d WHERE id = %s", delivery_id))


def ended(at: Tasks, count: int, url: str = HOOK) -> list[int]:
    """Tasks with a webhook that have failed."""
    return [at.failed(f"a.example/{url[8]}{number}", webhook_url=url) for number in range(count)]


@pytest.mark.parametrize("status", [S.COMPLETED, S.FAILED])
def test_the_end_of_a_task_is_a_message_with_what_came_of_it(at: Tasks, status: TaskStatus) -> None:
    task_id = at.one(webhook_url=HOOK)
    assert at.value("SELECT count(*) FROM webhook_deliveries") == 0
    at.bring(task_id, status)
    taken = one(at)
    task = at.get(task_id)
    assert (taken.url, taken.attempt, taken.number, taken.message.event) == (HOOK, 1, 1, f"task.{status}")
    data = taken.message.data
    assert (data["task_id"], data["url"], data["domain"], data["status"]) == (task_id, task.url, "a.example", status)
    assert (data["error"], data["http_status"]) == (task.error_message, task.http_status_code)
    assert data["completed_at"] is not None
    assert taken.message.body()  # it can be written out


@pytest.mark.parametrize("status", sorted(set(S) - {S.COMPLETED, S.FAILED}))
def test_nothing_else_is_told(at: Tasks, status: TaskStatus) -> None:
    at.bring(at.one(webhook_url=HOOK), status)
    at.completed("a.example/silent")
    assert at.value("SELECT count(*) FROM webhook_deliveries") == 0


def test_each_end_is_told_once_and_a_second_end_is_another_message(at: Tasks) -> None:
    (task_id,) = ended(at, 1)
    task_queries.restart(at.connection, task_id, actor="ann")
    at.now(task_id)
    at.bring(task_id, S.COMPLETED)
    first, second = take(at)
    assert [taken.message.event for taken in (first, second)] == ["task.failed", "task.completed"]
    assert first.message.id != second.message.id
    with pytest.raises(psycopg.errors.UniqueViolation):
        at.connection.execute(
            "INSERT INTO webhook_deliveries (task_id, task_version, event, url, body) "
            "SELECT task_id, task_version, event, url, body FROM webhook_deliveries LIMIT 1"
        )


def test_a_message_is_in_the_store_exactly_if_the_end_of_its_task_is(at: Tasks) -> None:
    task_id = at.one(webhook_url=HOOK)
    at.bring(task_id, S.PARSING)
    with at.connection.transaction(force_rollback=True):
        at.by_hand(task_id, S.FAILED)
        assert at.value("SELECT count(*) FROM webhook_deliveries") == 1
    assert (at.status(task_id), at.value("SELECT count(*) FROM webhook_deliveries")) == (S.PARSING, 0)
    at.by_hand(task_id, S.FAILED)  # also by SQL
    assert at.value("SELECT count(*) FROM webhook_deliveries") == 1


def test_what_is_taken_is_nobody_else_s_until_its_lease_is_over(at: Tasks) -> None:
    ended(at, 3)
    assert len(take(at, 2)) == 2
    assert len(take(at)) == 1
    assert take(at) == []
    assert not queries.any_due(at.connection)
    later(at)
    assert [taken.attempt for taken in take(at)] == [2, 2, 2]


def test_two_takers_at_once_share(at: Tasks, database: Database) -> None:
    ended(at, 4)
    with database.connect() as other, at.connection.transaction(), other.transaction():
        mine, others = take(at, 2), queries.take(other, count=9, lease=LEASE, max_attempts=10)
    assert (len(mine), len(others)) == (2, 2)
    assert not {taken.id for taken in mine} & {taken.id for taken in others}


def test_what_came_of_it(at: Tasks) -> None:
    for number in range(3):
        at.failed(f"a.example/{number}", webhook_url=f"https://hooks.example/{number}")
    good, bad, worse = take(at)
    assert queries.record(at.connection, good, DELIVERED)
    assert queries.record(at.connection, bad, Attempt(NextStep.AGAIN, timedelta(minutes=5), 500, "HTTP 500: no"))
    assert queries.record(at.connection, worse, Attempt(NextStep.GIVE_UP, status=404, error="HTTP 404"))
    assert [queries.get(at.connection, taken.id).state for taken in (good, bad, worse)] == [
        "delivered",
        "waiting",
        "given_up",
    ]
    waits = at.value("SELECT next_attempt_at - clock_timestamp() FROM webhook_deliveries WHERE id = %s", bad.id)
    assert timedelta(minutes=4) < waits <= timedelta(minutes=5)
    assert (row(at, bad.id)["last_status"], row(at, bad.id)["last_error"]) == (500, "HTTP 500: no")
    found = queries.stats(at.connection)
    assert (found.waiting, found.delivered, found.given_up, found.endpoints_off) == (1, 1, 1, 0)
    assert found.oldest_waiting == queries.get(at.connection, bad.id).created_at


def test_the_end_of_an_attempt_that_is_not_the_last_changes_nothing(at: Tasks) -> None:
    ended(at, 1)
    first = one(at)
    later(at)
    second = one(at)
    before = row(at, first.id)
    assert not queries.record(at.connection, first, GONE)
    assert (row(at, first.id), at.value("SELECT count(*) FROM webhook_endpoints")) == (before, 0)
    assert queries.record(at.connection, second, DELIVERED)
    assert not queries.record(at.connection, second, GONE), "nor one that has ended"


def test_who_never_says_what_came_of_it_is_not_asked_for_ever(at: Tasks) -> None:
    ended(at, 1)
    for _ in range(3):
        assert len(take(at, most=3)) == 1
        later(at)
    assert take(at, most=3) == []
    (given_up,) = queries.page(at.connection, DeliveryFilter()).rows
    assert (given_up.state, given_up.last_error) == ("given_up", queries.NEVER_ENDED)


def test_a_receiver_that_wants_no_more_gets_none(at: Tasks) -> None:
    ended(at, 3)
    ended(at, 1, OTHER)
    gone, *under_way = take(at, 2)
    assert queries.record(at.connection, gone, GONE)
    late = at.failed("a.example/late", webhook_url=HOOK)
    assert [taken.url for taken in take(at)] == [OTHER]
    states = {found.id: (found.state, found.last_error) for found in queries.page(at.connection, DeliveryFilter()).rows}
    refused = ("given_up", "HTTP 410: go away")
    (of_late,) = queries.page(at.connection, DeliveryFilter(task=late)).rows
    assert states[gone.id] == states[of_late.id] == refused
    assert states[under_way[0].id] == ("sending", None), "what is on its way may still come"
    assert queries.stats(at.connection).endpoints_off == 1


def test_a_receiver_that_rests_keeps_nobody_else_waiting(at: Tasks) -> None:
    ended(at, 3)
    ended(at, 1, OTHER)
    silent, *_ = take(at, 1)
    rest = timedelta(minutes=30)
    assert queries.record(
        at.connection, silent, Attempt(NextStep.AGAIN, timedelta(hours=1), error="timeout", rest=rest)
    )
    (other,) = take(at)
    assert other.url == OTHER
    waiting = [
        found
        for found in queries.page(at.connection, DeliveryFilter(state=DeliveryState.WAITING)).rows
        if found.url == HOOK
    ]
    assert [found.attempts for found in waiting] == [0, 0, 1], "those that were put off lost no attempt"
    at.connection.execute("UPDATE webhook_endpoints SET rest_until = clock_timestamp() - interval '1 s'")
    later(at)
    again = [taken for taken in take(at) if taken.url == HOOK]
    assert len(again) == 3
    assert queries.record(at.connection, again[0], DELIVERED)
    assert at.value("SELECT count(*) FROM webhook_endpoints") == 0, "it answers again"


def test_sent_again_by_hand(at: Tasks) -> None:
    ended(at, 1)
    taken = one(at)
    with pytest.raises(Refused, match=r"^Message \d+ is being sent at this moment"):
        queries.retry(at.connection, taken.id, actor="ann")
    queries.record(at.connection, taken, GONE)
    assert queries.retry(at.connection, taken.id, actor="ann")
    assert not queries.retry(at.connection, taken.id, actor="ann"), "it is due already"
    again = one(at)
    assert (again.attempt, again.number, again.message) == (2, 1, taken.message)
    queries.record(at.connection, again, DELIVERED)
    assert queries.retry(at.connection, taken.id, actor="bob"), "also what was delivered"
    deeds = audit.listing(at.connection, kind=queries.KIND)
    assert [(deed.actor, deed.action, deed.object_id, deed.details) for deed in deeds] == [
        ("bob", "retry", str(taken.id), {"was": "delivered", "switched_on": False}),
        ("ann", "retry", str(taken.id), {"was": "given_up", "switched_on": True}),
    ]
    with pytest.raises(NotFound, match=r"^There is no message 815\.$"):
        queries.retry(at.connection, 815, actor="ann")


def test_all_of_a_receiver_sent_again(at: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "CHUNK", 2)
    ended(at, 5)
    ended(at, 1, OTHER)
    for taken in take(at):
        queries.record(at.connection, taken, GONE)
    seen: list[int] = []
    assert queries.retry_all(at.connection, HOOK, actor="ann", progress=seen.append) == 5
    assert seen == [2, 4, 5]
    assert {taken.url for taken in take(at)} == {HOOK}
    assert queries.retry_all(at.connection, HOOK, actor="ann") == 0
    deeds = audit.listing(at.connection, kind=queries.KIND)
    assert [deed.details["messages"] for deed in deeds] == [1, 2, 2], "what changed nothing leaves no trace"


def test_lists_go_on_behind_the_last_one_seen(at: Tasks) -> None:
    tasks = ended(at, 5)
    first = queries.page(at.connection, DeliveryFilter(), limit=3).rows
    rest = queries.page(at.connection, DeliveryFilter(), after=(first[-1].id,)).rows
    assert [found.task_id for found in first + rest] == tasks[::-1]
    (mine,) = queries.page(at.connection, DeliveryFilter(task=tasks[2])).rows
    assert mine == queries.get(at.connection, mine.id)
    queries.record(at.connection, take(at, 1)[0], DELIVERED)
    counts = {state: len(queries.page(at.connection, DeliveryFilter(state=state)).rows) for state in DeliveryState}
    assert counts == {DeliveryState.WAITING: 4, DeliveryState.DELIVERED: 1, DeliveryState.GIVEN_UP: 0}
    with pytest.raises(NotFound):
        queries.get(at.connection, 815)


def test_what_ended_long_ago_is_forgotten_and_what_waits_is_not(at: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "CHUNK", 2)
    ended(at, 8)
    *taken, new = take(at, 7)
    for number, delivery in enumerate(taken):
        queries.record(at.connection, delivery, Attempt(NextStep.GIVE_UP) if number % 2 else DELIVERED)
    at.connection.execute(
        "UPDATE webhook_deliveries SET created_at = created_at - interval '9 days', delivered_at = delivered_at - interval '9 days', "
        "gave_up_at = gave_up_at - interval '9 days'"
    )
    queries.record(at.connection, new, DELIVERED)
    assert queries.purge(at.connection, older_than=timedelta(days=8)) == 6
    assert [found.state for found in queries.page(at.connection, DeliveryFilter()).rows] == ["waiting", "delivered"]


def test_the_message_outlives_its_task(at: Tasks) -> None:
    (task_id,) = ended(at, 1)
    at.connection.execute("DELETE FROM crawl_tasks WHERE id = %s", (task_id,))
    assert one(at).message.data["task_id"] == task_id


@pytest.mark.parametrize("way", ["rest_until", "disabled_at"])
def test_a_pile_for_one_receiver_is_put_out_of_the_way_at_once(
    at: Tasks, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(queries, "LOOK", 2)
    ended(at, 7)
    ended(at, 1, OTHER)
    at.connection.execute(
        f"INSERT INTO webhook_endpoints (url, {way}, reason) VALUES (%s, clock_timestamp() + interval '1 h', 'off')",
        (HOOK,),
    )
    assert one(at).url == OTHER
    assert not queries.any_due(at.connection)
    left = {found.state for found in queries.page(at.connection, DeliveryFilter()).rows if found.url == HOOK}
    assert left == {"waiting" if way == "rest_until" else "given_up"}


def test_what_is_due_is_found_by_an_index_however_much_waits(at: Tasks) -> None:
    at.connection.execute(
        "INSERT INTO webhook_deliveries (task_id, task_version, event, url, body, next_attempt_at) "
        "SELECT n, 1, 'task.failed', %s, '{}', now() + interval '1 h' FROM generate_series(1, 5000) n",
        (HOOK,),
    )
    at.connection.execute("ANALYZE webhook_deliveries")
    values = {"count": 1, "lease": LEASE, "max_attempts": 10, "look": 10, "never": ""}
    for statement in (queries._ANY_DUE, queries._CLEAR, queries._TAKE):
        plan = "\n".join(row[0] for row in at.connection.execute(f"EXPLAIN {statement}", values))
        assert re.search(r"webhook_deliveries_due on .*\n +Index Cond: \(next_attempt_at <=", plan), plan
