"""Tasks as the command line, the API and the dashboard handle them."""

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast.db import audit
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.errors import BadUrl, NotFound, Refused, UsageError
from holdfast.model.task import TaskStatus
from holdfast.model.url import UrlRules
from holdfast.tasks.records import Bulk, Task, TaskFilter, TaskOptions
from holdfast.tasks.service import BULK, TaskService
from tests.support.tasks import Tasks

S = TaskStatus
USUAL = TaskOptions()


@pytest.fixture
def desk(database: Database) -> TaskService:
    return TaskService(database, UrlRules(), NewDomains())


@pytest.fixture
def at(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


def deeds(at: Tasks) -> list[tuple[str, str, str]]:
    return [(entry.actor, entry.action, entry.object_id) for entry in audit.listing(at.connection)]


def last(bulks: Any) -> Bulk:
    *_, bulk = bulks
    assert isinstance(bulk, Bulk)
    return bulk


def as_task(found: Task) -> Task:
    """Without what a restart says beside the task."""
    return Task(**{field.name: getattr(found, field.name) for field in fields(Task)})


# Asking for tasks -----------------------------------------------------------------------------------------------------


def test_a_task_is_asked_for_by_what_a_person_writes(desk: TaskService, at: Tasks) -> None:
    desk.create_batch("Black Friday", actor="ann")
    options = TaskOptions(
        priority=1,
        scheduled_at=datetime(2031, 1, 1, tzinfo=UTC),
        crawl_frequency=timedelta(hours=2),
        is_recurring=False,
        max_retries=0,
        batch="Black Friday",
        webhook_url="https://Hooks.example/a b",
        parser_name="product",
    )
    task = desk.add("WWW.Shop.example/item?utm_source=x&b=1", options, actor="ann")
    assert task.created
    assert (task.domain, task.url) == ("shop.example", "https://www.shop.example/item?b=1")
    assert (task.priority, task.scheduled_at, task.crawl_frequency) == (
        1,
        options.scheduled_at,
        options.crawl_frequency,
    )
    assert (task.is_recurring, task.max_retries, task.parser_name, task.created_by) == (False, 0, "product", "ann")
    assert task.webhook_url == "https://hooks.example/a%20b"
    assert task.batch_id == desk.batch("Black Friday").id
    again = desk.add("https://www.shop.example/item?b=1", USUAL, actor="bob")
    assert again == replace(task, created=False)
    assert deeds(at) == [("ann", "create", str(task.id)), ("ann", "create", str(task.batch_id))]


def test_a_task_that_cannot_be_meant_is_refused(desk: TaskService, at: Tasks) -> None:
    for options, problem in [
        (TaskOptions(priority=0), "from 1 .first. to 10, not 0"),
        (TaskOptions(priority=11), "not 11"),
        (TaskOptions(max_retries=21), "0 to 20 times"),
        (TaskOptions(max_retries=-1), "0 to 20 times"),
        (TaskOptions(crawl_frequency=timedelta(0)), "from one second"),
        (TaskOptions(crawl_frequency=timedelta(days=36_501)), "to 36500 days"),
        (TaskOptions(scheduled_at=datetime(2031, 1, 1)), "with its time zone"),  # noqa: DTZ001 — the point of it
        (TaskOptions(scheduled_at=datetime.max.replace(tzinfo=UTC)), "before the year 9999"),
        (TaskOptions(parser_name="../x"), "one word"),
        (TaskOptions(parent_task_id=2**63), "is not the id of a task"),
        (TaskOptions(parent_task_id=0), "is not the id of a task"),
        (TaskOptions(webhook_url="file:///etc/passwd"), "neither an http|not an http|http"),
        (TaskOptions(webhook_url="https://h.example/" + "x" * 3000), "at most 2048 bytes"),
    ]:
        with pytest.raises(UsageError, match=problem):
            desk.add("a.example", options, actor="ann")
        with pytest.raises(UsageError, match=problem):
            last(desk.add_many(["a.example"], options, actor="ann"))
        assert at.value("SELECT (SELECT count(*) FROM crawl_tasks) + (SELECT count(*) FROM domains)") == 0


def test_the_longest_and_shortest_frequencies_are_what_the_store_takes(desk: TaskService) -> None:
    for number, frequency in enumerate((timedelta(seconds=1), timedelta(days=36_500))):
        task = desk.add(f"a.example/{number}", TaskOptions(crawl_frequency=frequency), actor="ann")
        assert task.crawl_frequency == frequency


def test_a_bad_url_an_unknown_batch_and_an_unknown_parent_are_said(desk: TaskService, at: Tasks) -> None:
    with pytest.raises(BadUrl):
        desk.add("mailto:ann@a.example", USUAL, actor="ann")
    with pytest.raises(NotFound, match="no batch called 'nowhere'"):
        desk.add("a.example", TaskOptions(batch="nowhere"), actor="ann")
    with pytest.raises(NotFound, match="parent task of these tasks does not exist"):
        desk.add("a.example", TaskOptions(parent_task_id=5), actor="ann")
    assert deeds(at) == []


def test_a_bulk_goes_in_by_transactions_and_counts_what_is_new_known_and_bad(desk: TaskService, at: Tasks) -> None:
    desk.add("a.example/7", USUAL, actor="bob")
    urls = [f"a.example/{number}" for number in range(BULK + 500)]
    urls[3] = "mailto:x"
    urls[5] = "a.example/6"
    seen = []
    for bulk in desk.add_many(iter(urls), TaskOptions(priority=2), actor="ann"):
        seen.append((bulk.seen, bulk.created, bulk.known, bulk.bad))
    assert seen == [(BULK + 1, BULK - 2, 2, 1), (BULK + 500, BULK + 497, 2, 1)]
    (bad,) = bulk.bad_urls
    assert (bad.place, "mailto" in bad.problem) == (4, True)
    assert at.value("SELECT count(*) FROM crawl_tasks WHERE priority = 2") == BULK + 497
    created = [entry for entry in audit.listing(at.connection, actor="ann") if entry.action == "create"]
    assert [entry.details["tasks"] for entry in created] == [499, BULK - 2]
    again = last(desk.add_many(urls, USUAL, actor="ann"))
    assert (again.created, again.known) == (0, BULK + 499)
    assert len(audit.listing(at.connection, actor="ann")) == 2, "what made nothing leaves no trace"


def test_an_empty_bulk_is_one(desk: TaskService) -> None:
    assert last(desk.add_many([], USUAL, actor="ann")) == Bulk(0, 0, 0, 0, [])


# Changing -------------------------------------------------------------------------------------------------------------


def test_each_operation_answers_with_the_task_and_is_written_down(desk: TaskService, at: Tasks) -> None:
    task_id = at.completed("a.example/x")
    moment = datetime(2031, 1, 1, tzinfo=UTC)
    steps: list[tuple[str, Callable[[], Task], TaskStatus]] = [
        ("restart_parsing", lambda: desk.restart_parsing(task_id, actor="ann"), S.QUEUED_PARSE),
        ("pause", lambda: desk.pause(task_id, actor="ann"), S.PAUSED),
        ("resume", lambda: desk.resume(task_id, actor="ann"), S.PENDING),
        ("cancel", lambda: desk.cancel(task_id, actor="ann"), S.CANCELLED),
        ("restart", lambda: desk.restart(task_id, actor="ann", priority=3, scheduled_at=moment), S.PENDING),
        ("priority", lambda: desk.set_priority(task_id, 1, actor="ann"), S.PENDING),
    ]
    for number, (action, deed, status) in enumerate(steps, 1):
        for _ in range(2):  # asking twice is no error
            assert as_task(deed()) == desk.show(task_id)
            assert desk.show(task_id).status is status
        assert (deeds(at)[0], len(deeds(at))) == (("ann", action, str(task_id)), number)
    assert (desk.show(task_id).priority, desk.show(task_id).scheduled_at) == (1, moment)


def test_what_is_not_allowed_is_refused_with_the_state(desk: TaskService, at: Tasks) -> None:
    task_id = at.one()
    at.bring(task_id, S.QUEUED)
    with pytest.raises(Refused, match=f"Task {task_id} is queued; restart is for tasks that are completed, failed"):
        desk.restart(task_id, actor="ann")
    with pytest.raises(NotFound):
        desk.pause(10**30, actor="ann")
    for priority in (0, 11):
        with pytest.raises(UsageError):
            desk.set_priority(task_id, priority, actor="ann")
        with pytest.raises(UsageError):
            desk.restart(task_id, priority=priority, actor="ann")
    assert (desk.show(task_id).status, deeds(at)) == (S.QUEUED, [])


def test_who_does_it_has_a_name(desk: TaskService, at: Tasks) -> None:
    task_id = at.one()
    deeds_of_nobody: list[Callable[[str], object]] = [
        lambda actor: desk.add("b.example", USUAL, actor=actor),
        lambda actor: last(desk.add_many(["b.example"], USUAL, actor=actor)),
        lambda actor: desk.restart(task_id, actor=actor),
        lambda actor: desk.restart_parsing(task_id, actor=actor),
        lambda actor: desk.pause(task_id, actor=actor),
        lambda actor: desk.resume(task_id, actor=actor),
        lambda actor: desk.cancel(task_id, actor=actor),
        lambda actor: desk.set_priority(task_id, 1, actor=actor),
        lambda actor: desk.restart_failed(actor=actor),
        lambda actor: desk.create_batch("b", actor=actor),
    ]
    for actor in ["", "x" * 101, "a\nb", "a\0", "\ud800"]:
        for deed in deeds_of_nobody:
            with pytest.raises(UsageError, match="The name of an actor"):
                deed(actor)
        assert at.value("SELECT count(*) FROM crawl_tasks") == 1
        assert at.status(task_id) is S.PENDING


def test_failed_tasks_are_restarted_by_domain_batch_time_and_limit(desk: TaskService, at: Tasks) -> None:
    batch = desk.create_batch("b", actor="ann")
    first, second = at.failed("a.example/1", batch_id=batch.id), at.failed("a.example/2")
    third = at.failed("b.example/1")
    heard: list[int] = []
    assert (
        desk.restart_failed(actor="ann", domain="https://www.a.example/", limit=1, on_progress=heard.append).restarted
        == 1
    )
    assert (at.status(first), heard) == (S.PENDING, [1])
    at.bring(first, S.FAILED)
    assert desk.restart_failed(actor="ann", batch="b").restarted == 1
    assert desk.restart_failed(actor="ann", since=datetime(2999, 1, 1, tzinfo=UTC)).restarted == 0
    assert desk.restart_failed(actor="ann").restarted == 2
    assert {at.status(task_id) for task_id in (first, second, third)} == {S.PENDING}
    with pytest.raises(UsageError):
        desk.restart_failed(actor="ann", limit=0)
    with pytest.raises(NotFound):
        desk.restart_failed(actor="ann", domain="nowhere.example")
    with pytest.raises(UsageError):
        desk.restart_failed(actor="ann", since=datetime(2031, 1, 1))  # noqa: DTZ001 — the point of it


def test_a_batch_is_restarted_by_its_name(desk: TaskService, at: Tasks) -> None:
    batch = desk.create_batch("Black Friday", actor="ann")
    at.completed("a.example/1", batch_id=batch.id)
    at.one("a.example/2", batch_id=batch.id)
    assert desk.restart_batch("Black Friday", actor="bob") == 1
    assert desk.batch("Black Friday").tasks == {"pending": 2}
    assert [found.name for found in desk.batches().rows] == ["Black Friday"]
    with pytest.raises(NotFound):
        desk.restart_batch("White Friday", actor="bob")
    for name in ("", " ", "x" * 256, "a\nb"):
        with pytest.raises(UsageError, match="A batch is called by"):
            desk.create_batch(name, actor="ann")


# Looking --------------------------------------------------------------------------------------------------------------


def test_tasks_are_listed_as_a_person_names_things(desk: TaskService, at: Tasks) -> None:
    batch = desk.create_batch("b", actor="ann")
    first = at.completed("a.example/1", batch_id=batch.id)
    second = at.one("b.example/1", parent_task_id=first, priority=2)

    def ids(*, before: int | None = None, limit: int = 100, **filters: Any) -> list[int]:
        after = None if before is None else (before,)
        return [task.id for task in desk.page(TaskFilter(**filters), after=after, limit=limit).rows]

    assert ids() == [second, first]
    assert ids(limit=1) == [second]
    assert ids(before=second) == [first]
    assert ids(domain="HTTPS://WWW.A.example") == [first]
    assert ids(batch="b", status=S.COMPLETED) == [first]
    assert ids(parent_task_id=first, priority=2) == [second]
    for limit in (0, 501):
        with pytest.raises(UsageError, match="1 to 500 at once"):
            desk.page(limit=limit)
        with pytest.raises(UsageError, match="1 to 500 at once"):
            desk.batches(limit=limit)
    with pytest.raises(NotFound, match=r"nowhere\.example"):
        desk.page(TaskFilter(domain="nowhere.example"))


def test_history_and_statistics_are_those_of_the_store(desk: TaskService, at: Tasks) -> None:
    task_id = at.completed()
    (crawled,) = desk.history(task_id)
    assert crawled.task == desk.show(task_id)
    assert [event.to_status for event in crawled.events][-1] is S.COMPLETED
    stats = {count.status: count for count in desk.stats()}
    assert (stats[S.COMPLETED].tasks, stats[S.COMPLETED].lately, stats[S.PENDING].tasks) == (1, 1, 0)
