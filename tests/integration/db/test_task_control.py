"""What people do to tasks: every operation in every status, twice, with its trace in the audit log."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast.db import audit, parse_results, task_frontier
from holdfast.db.connection import Database
from holdfast.errors import NotFound, Refused
from holdfast.model.task import OPERATIONS, RESTARTABLE, TARGET_STATUS, Operation, OperationVerdict, TaskStatus
from holdfast.tasks import queries as task_queries
from holdfast.tasks.queries import RestartFilter
from tests.support.servers import wait_until
from tests.support.tasks import PAGE, Tasks

S = TaskStatus
DEEDS: dict[Operation, Callable[..., bool]] = {
    Operation.RESTART: task_queries.restart,
    Operation.RESTART_PARSING: task_queries.restart_parsing,
    Operation.PAUSE: task_queries.pause,
    Operation.RESUME: task_queries.resume,
    Operation.CANCEL: task_queries.cancel,
}
EVERY = RestartFilter()


@pytest.fixture
def at(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


def deeds(at: Tasks) -> list[tuple[str, str, str]]:
    return [(entry.actor, entry.action, entry.object_id) for entry in audit.listing(at.connection, kind="task")]


def with_page(at: Tasks, task_id: int) -> None:
    at.connection.execute(
        "UPDATE crawl_tasks SET archive_segment = %s, archive_offset = 1, archive_length = 2, archive_digest = 'd' WHERE id = %s",
        (PAGE.segment, task_id),
    )


# One task -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", TaskStatus)
def test_every_operation_in_every_status_does_what_the_table_says(at: Tasks, status: TaskStatus) -> None:
    for operation, deed in DEEDS.items():
        task_id = at.one(f"{operation}.example/x")
        at.bring(task_id, status)
        with_page(at, task_id)
        at.connection.execute("DELETE FROM audit_log")
        before, verdict = at.get(task_id), OPERATIONS[status][operation]
        if verdict is OperationVerdict.REFUSE:
            with pytest.raises(Refused, match=f"Task {task_id} is {status};"):
                deed(at.connection, task_id, actor="ann")
        else:
            assert deed(at.connection, task_id, actor="ann") is (verdict is OperationVerdict.ACT), operation
        if verdict is OperationVerdict.ACT:
            target = S.QUEUED_PARSE if operation is Operation.RESTART_PARSING else TARGET_STATUS[operation]
            assert at.status(task_id) is target, operation
            assert deeds(at) == [("ann", operation, str(task_id))]
            assert audit.listing(at.connection)[0].details["was"] == status
            after = at.get(task_id)
            assert deed(at.connection, task_id, actor="ann") is False, "asking twice is no error"
            assert (at.get(task_id), len(deeds(at))) == (after, 1), "and changes nothing"
        else:
            assert (at.get(task_id), deeds(at)) == (before, []), operation


@pytest.mark.parametrize("status", TaskStatus)
def test_a_priority_can_be_changed_in_every_status(at: Tasks, status: TaskStatus) -> None:
    task_id = at.one()
    at.bring(task_id, status)
    at.connection.execute("DELETE FROM audit_log")
    for changed in (True, False):
        assert task_queries.set_priority(at.connection, task_id, 2, actor="ann") is changed
        assert (at.get(task_id).priority, at.status(task_id)) == (2, status)
    (entry,) = audit.listing(at.connection)
    assert (entry.action, entry.details) == ("priority", {"was": 5, "priority": 2})


def test_a_task_that_does_not_exist_is_not_found(at: Tasks) -> None:
    for deed in DEEDS.values():
        with pytest.raises(NotFound, match="There is no task 5"):
            deed(at.connection, 5, actor="ann")
    with pytest.raises(NotFound, match="There is no task 5"):
        task_queries.set_priority(at.connection, 5, 1, actor="ann")
    assert deeds(at) == []


def test_a_restart_begins_anew_or_goes_on_counting_at_the_time_and_priority_given(at: Tasks) -> None:
    task_id = at.one(max_retries=1)
    for _ in range(2):
        at.now(task_id)
        at.due()
        task_frontier.record_results(at.connection, [at.result(task_id, error="no", http_status=500)])
    failed = at.get(task_id)
    assert (failed.status, failed.retry_count, failed.error_message) == (S.FAILED, 1, "no")
    moment = datetime(2031, 1, 1, tzinfo=UTC)
    task_queries.restart(at.connection, task_id, actor="ann", reset_retries=False, priority=1, scheduled_at=moment)
    task = at.get(task_id)
    assert (task.retry_count, task.priority, task.scheduled_at) == (1, 1, moment)
    assert (task.error_message, task.http_status_code, task.completed_at) == (None, None, None)
    assert task.status_reason == "restarted by ann"
    assert task_queries.pause(at.connection, task_id, actor="ann")
    assert task_queries.restart(at.connection, task_id, actor="ann")
    task = at.get(task_id)
    assert (task.retry_count, task.priority) == (0, 1)
    assert task.scheduled_at < moment


def test_a_restart_forgets_where_redirects_led(at: Tasks) -> None:
    one, many_at_once = at.failed("a.example/1"), at.failed("a.example/2")
    at.connection.execute("UPDATE crawl_tasks SET fetch_url = 'https://b.example/', fetch_key = 'k', hops = 3")
    assert task_queries.restart(at.connection, one, actor="ann")
    assert task_queries.restart_failed(at.connection, EVERY, actor="ann").restarted == 1
    rows = at.connection.execute("SELECT id, fetch_url, fetch_key, hops FROM crawl_tasks ORDER BY id").fetchall()
    assert rows == [(one, None, None, 0), (many_at_once, None, None, 0)]


def test_resuming_does_not_count_as_a_retry(at: Tasks) -> None:
    task_id = at.one()
    at.due()
    task_frontier.record_results(at.connection, [at.result(task_id, error="no")])
    assert task_queries.pause(at.connection, task_id, actor="ann")
    assert task_queries.resume(at.connection, task_id, actor="ann")
    assert at.get(task_id).retry_count == 1
    assert at.due() == [task_id], "and it is due now"


def test_a_restart_is_refused_while_a_twin_is_live_and_names_it(at: Tasks) -> None:
    old = at.completed()
    new = at.one()
    at.bring(new, S.QUEUED)
    before = at.get(old)
    for deed in (task_queries.restart, task_queries.restart_parsing):
        with pytest.raises(
            Refused, match=f"Task {new}, which is queued, is for the same URL as task {old}, which is completed"
        ):
            deed(at.connection, old, actor="ann")
    assert (at.get(old), deeds(at)) == (before, [])


def test_parsing_can_only_be_restarted_where_there_is_a_page(at: Tasks) -> None:
    task_id = at.failed()
    with pytest.raises(Refused, match=f"Task {task_id} has no page in the archive"):
        task_queries.restart_parsing(at.connection, task_id, actor="ann")
    assert at.status(task_id) is S.FAILED


def test_parsing_that_is_restarted_needs_no_crawl(at: Tasks) -> None:
    task_id = at.completed()
    assert task_queries.restart_parsing(at.connection, task_id, actor="ann")
    assert at.due() == []
    assert parse_results.parse_due(at.connection, 10) == [task_id]
    assert at.reasons(task_id)[-2:] == [
        ("completed", "downloaded", "parsing restarted by ann"),
        ("downloaded", "queued_parse", "to be parsed"),
    ]
    at.parsed(task_id)
    assert at.get(task_id).next_crawl_at, "it recurs as before"


def test_what_is_rolled_back_leaves_no_trace(at: Tasks) -> None:
    task_id = at.one()
    with at.connection.transaction(force_rollback=True):
        assert task_queries.cancel(at.connection, task_id, actor="ann")
    assert (at.status(task_id), deeds(at)) == (S.PENDING, [])


# Many tasks -----------------------------------------------------------------------------------------------------------


def many(at: Tasks, count: int, status: TaskStatus = S.FAILED, **columns: Any) -> list[int]:
    """So many tasks in a status, without their way to it."""
    at.one("many.example/")
    extra = "".join(f", {name}" for name in columns)
    at.connection.execute("ALTER TABLE crawl_tasks DISABLE TRIGGER USER")
    rows = at.connection.execute(
        f"""INSERT INTO crawl_tasks (domain_id, url, url_hash, status, completed_at{extra})
        SELECT d.id, 'https://many.example/' || n, decode(md5(n::text), 'hex'), %(status)s::task_status,
            CASE WHEN %(status)s::task_status IN ('failed', 'completed', 'cancelled') THEN now() END
            {"".join(f", %({name})s" for name in columns)}
        FROM domains d, generate_series(1, %(count)s) n WHERE d.domain = 'many.example' RETURNING id""",
        {"status": status, "count": count, **columns},
    ).fetchall()
    at.connection.execute("ALTER TABLE crawl_tasks ENABLE TRIGGER USER")
    return [row[0] for row in rows]


def test_all_that_failed_is_restarted_in_chunks_with_progress(at: Tasks) -> None:
    many(at, 2500, retry_count=3, error_message="no")
    heard: list[int] = []
    assert task_queries.restart_failed(at.connection, EVERY, actor="ann", on_progress=heard.append).restarted == 2500
    assert heard == [1000, 2000, 2500]
    assert at.value("SELECT count(*) FROM crawl_tasks WHERE status = 'failed'") == 0
    restarted = (
        "status = 'pending' AND retry_count = 0 AND error_message IS NULL AND status_reason = 'restarted by ann'"
    )
    assert at.value(f"SELECT count(*) FROM crawl_tasks WHERE {restarted}") == 2500
    assert at.value("SELECT count(*) FROM task_events WHERE why = 'restarted by ann'") == 2500
    entries = audit.listing(at.connection, actor="ann")
    assert [(entry.action, entry.details["tasks"]) for entry in entries] == [
        ("restart_failed", 500),
        ("restart_failed", 1000),
        ("restart_failed", 1000),
    ]
    assert task_queries.restart_failed(at.connection, EVERY, actor="ann").restarted == 0, "asking twice is no error"
    assert len(audit.listing(at.connection, actor="ann")) == 3


def test_only_those_that_are_meant_are_restarted(at: Tasks) -> None:
    batch = task_queries.create_batch(at.connection, "b", actor="ann")
    old = at.failed("a.example/old")
    at.connection.execute("UPDATE crawl_tasks SET completed_at = now() - interval '2 days'")
    mine, others = at.failed("a.example/1", batch_id=batch), at.failed("b.example/1")
    domain_id = at.get(mine).domain_id
    since = at.value("SELECT now() - interval '1 day'")

    def restarted(**chosen: Any) -> set[int]:
        with at.connection.transaction(force_rollback=True):
            count = task_queries.restart_failed(at.connection, RestartFilter(**chosen), actor="ann").restarted
            ids = {row[0] for row in at.connection.execute("SELECT id FROM crawl_tasks WHERE status = 'pending'")}
            assert count == len(ids)
            return ids

    assert restarted() == {old, mine, others}
    assert restarted(domain_id=domain_id) == {old, mine}
    assert restarted(since=since) == {mine, others}
    assert restarted(batch_id=batch) == {mine}
    assert restarted(domain_id=domain_id, since=since, batch_id=batch) == {mine}
    assert restarted(domain_id=domain_id, since=since + timedelta(days=9)) == set()


def test_a_limit_is_kept_and_the_same_call_goes_on(at: Tasks) -> None:
    many(at, 1300)
    for restarted, left in ((1100, 200), (200, 0)):
        assert task_queries.restart_failed(at.connection, EVERY, actor="ann", limit=1100).restarted == restarted
        assert at.value("SELECT count(*) FROM crawl_tasks WHERE status = 'failed'") == left


def test_what_was_made_up_for_since_is_not_restarted(at: Tasks) -> None:
    made_up_for = at.failed("a.example/1")
    at.completed("a.example/1")
    has_twin = at.failed("a.example/2")
    at.one("a.example/2")
    older = at.failed("a.example/3")
    newest = at.failed("a.example/3")
    revived = at.failed("a.example/4")
    behind = at.failed("a.example/4")
    assert task_queries.restart(at.connection, revived, actor="ann")
    assert task_queries.restart_failed(at.connection, EVERY, actor="ann").restarted == 1
    assert at.status(newest) is S.PENDING
    assert {at.status(task_id) for task_id in (made_up_for, has_twin, older, behind)} == {S.FAILED}


def test_a_twin_that_becomes_live_meanwhile_is_left_out_and_the_rest_goes_on(at: Tasks, database: Database) -> None:
    failed, other = at.failed("a.example/1"), at.failed("a.example/2")
    with database.connect() as rival:
        with rival.transaction():
            Tasks(rival).one("a.example/1")  # not seen until it is committed
            thread = threading.Thread(target=lambda: counts.append(restart_over_there(database)))
            counts: list[int] = []
            thread.start()
            wait_until(lambda: at.value("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == 1)
        thread.join()
    assert counts == [1]
    assert (at.status(failed), at.status(other)) == (S.FAILED, S.PENDING)


def restart_over_there(database: Database) -> int:
    with database.connect() as connection:
        return task_queries.restart_failed(connection, EVERY, actor="ann").restarted


def test_a_task_that_somebody_has_in_hand_is_left_out(at: Tasks, database: Database) -> None:
    first, second = at.failed("a.example/1"), at.failed("a.example/2")
    with database.connect() as other, other.transaction():
        other.execute("SELECT FROM crawl_tasks WHERE id = %s FOR UPDATE", (first,))
        assert task_queries.restart_failed(at.connection, EVERY, actor="ann").restarted == 1
    assert (at.status(first), at.status(second)) == (S.FAILED, S.PENDING)


def test_a_batch_is_restarted_as_far_as_it_rests(at: Tasks) -> None:
    batch = task_queries.create_batch(at.connection, "b", actor="ann")
    ids = {}
    for status in reversed(TaskStatus):
        ids[status] = at.one(f"a.example/{status}", batch_id=batch)
        at.bring(ids[status], status)
    outside = at.failed("a.example/outside")
    before = {status: at.get(task_id) for status, task_id in ids.items()}
    heard: list[int] = []
    assert task_queries.restart_batch(at.connection, batch, actor="ann", on_progress=heard.append) == len(RESTARTABLE)
    assert heard == [len(RESTARTABLE)]
    for status, task_id in ids.items():
        if status in RESTARTABLE:
            assert at.status(task_id) is S.PENDING
        else:
            assert at.get(task_id) == before[status]
    assert at.status(outside) is S.FAILED
    entry = audit.listing(at.connection, kind="batch", object_id=str(batch))[0]
    assert (entry.actor, entry.action, entry.details["tasks"]) == ("ann", "restart", len(RESTARTABLE))
