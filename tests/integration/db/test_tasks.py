"""Tasks made, and read as people read them."""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from holdfast.db import audit, tasks
from holdfast.db.connection import Database
from holdfast.db.domains import NewDomains
from holdfast.errors import NotFound, Refused
from holdfast.model.seed_lines import make_seed
from holdfast.model.task import TaskStatus
from holdfast.model.url import url_key
from holdfast.tasks import queries as task_queries
from holdfast.tasks.queries import NewTask
from holdfast.tasks.records import TaskCount, TaskOptions
from tests.support.factories import Store
from tests.support.invariants import assert_invariants
from tests.support.tasks import PLACE, Tasks

S = TaskStatus
DAY = timedelta(days=1)


@pytest.fixture
def at(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


def add(connection: psycopg.Connection, *wanted: NewTask) -> list[task_queries.Added]:
    return task_queries.add(
        connection, wanted, created_by="ann", defaults=NewDomains(crawl_frequency=timedelta(hours=6))
    )


def new(url: str, **how: Any) -> NewTask:
    batch_id = how.pop("batch_id", None)
    return NewTask(make_seed(url), TaskOptions(**how), batch_id)


# Making ---------------------------------------------------------------------------------------------------------------


def test_a_new_task_is_as_it_was_wanted(at: Tasks) -> None:
    batch = task_queries.create_batch(at.connection, "Black Friday", actor="ann")
    parent = at.one("a.example/parent")
    moment = datetime(2031, 5, 1, 12, tzinfo=UTC)
    (added,) = add(
        at.connection,
        new(
            "https://A.example/x?b=2&a=1#top",
            priority=2,
            scheduled_at=moment,
            crawl_frequency=timedelta(hours=1),
            is_recurring=False,
            max_retries=7,
            parent_task_id=parent,
            batch_id=batch,
            webhook_url="https://hooks.example/1",
            parser_name="product",
        ),
    )
    task = at.get(added.id)
    assert added.created
    assert (task.domain, task.url) == ("a.example", "https://a.example/x?a=1&b=2")
    assert at.value("SELECT url_hash FROM crawl_tasks WHERE id = %s", task.id) == task.url_hash == url_key(task.url)
    assert (task.status, task.status_reason, task.priority, task.scheduled_at) == (S.PENDING, "created", 2, moment)
    assert (task.crawl_frequency, task.is_recurring, task.max_retries) == (timedelta(hours=1), False, 7)
    assert (task.parent_task_id, task.batch_id, task.parser_name) == (parent, batch, "product")
    assert (task.webhook_url, task.created_by) == ("https://hooks.example/1", "ann")
    assert (task.retry_count, task.recrawl_count, task.attempt, task.previous_task_id, task.archive) == (
        0,
        0,
        0,
        None,
        None,
    )


def test_unknown_domains_become_known_and_have_nothing_to_do_yet(at: Tasks, store: Store) -> None:
    add(at.connection, new("b.example/1"), new("a.example:8080/1"), new("b.example/2"))
    rows = at.connection.execute(
        "SELECT domain, source, status::text, pages_discovered FROM domains ORDER BY 1"
    ).fetchall()
    assert rows == [("a.example:8080", "task", "pending", 0), ("b.example", "task", "pending", 0)]
    assert store.claim() == []
    assert_invariants(at.connection)


def test_what_a_domain_has_learnt_stays(at: Tasks, store: Store) -> None:
    store.seed("a.example")
    store.crawl_to_the_end()
    before = store.row("a.example")
    add(at.connection, new("a.example/x"))
    assert store.row("a.example") == before


def test_the_frequency_is_the_domains_unless_the_task_has_its_own(at: Tasks, store: Store) -> None:
    store.seed("a.example")
    at.connection.execute("UPDATE domains SET default_crawl_frequency = '12 hours'")
    answers = add(at.connection, new("a.example/1"), new("a.example/2", crawl_frequency=DAY), new("new.example/"))
    assert [at.get(added.id).crawl_frequency for added in answers] == [timedelta(hours=12), DAY, timedelta(hours=6)]
    at.connection.execute("UPDATE domains SET default_crawl_frequency = '0'")
    (never_pausing,) = add(at.connection, new("a.example/3"))
    assert at.get(never_pausing.id).crawl_frequency == timedelta(seconds=1)


def test_who_asks_for_a_url_that_has_a_live_task_is_given_that_one_unchanged(at: Tasks) -> None:
    task_id = at.one("a.example/x", priority=3)
    at.bring(task_id, S.QUEUED)
    before = at.get(task_id)
    answers = add(at.connection, new("a.example/x", priority=1), new("a.example/y"), new("a.example/y", priority=9))
    assert [added.created for added in answers] == [False, True, False]
    assert answers[0].id == task_id
    assert answers[1].id == answers[2].id
    assert at.get(task_id) == before
    assert at.get(answers[1].id).priority == 5, "of two that are wanted at once the first counts"


def test_after_the_end_of_a_task_its_url_can_have_another_which_knows_the_one_before(at: Tasks) -> None:
    first = at.completed()
    second = at.one()
    at.bring(second, S.CANCELLED)
    third = at.one()
    assert [at.get(task_id).previous_task_id for task_id in (first, second, third)] == [None, first, second]


@pytest.mark.parametrize(("how", "what"), [({"parent_task_id": 99}, "parent task"), ({"batch_id": 99}, "batch")])
def test_a_parent_or_batch_that_does_not_exist_is_not_found_and_nothing_is_made(
    at: Tasks, how: dict[str, int], what: str
) -> None:
    with pytest.raises(NotFound, match=f"A {what} of these tasks does not exist"):
        add(at.connection, new("a.example/1"), new("a.example/2", **how))
    assert at.value("SELECT (SELECT count(*) FROM crawl_tasks) + (SELECT count(*) FROM domains)") == 0


def test_nothing_wanted_is_nothing_made(at: Tasks) -> None:
    assert add(at.connection) == []


def test_of_many_who_ask_for_the_same_urls_at_once_all_get_the_same_tasks(at: Tasks, database: Database) -> None:
    urls = [f"{host}.example/{number}" for number in range(20) for host in "ab"]
    answers: list[list[task_queries.Added]] = []
    start = threading.Barrier(4)

    def ask(turn: int) -> None:
        with database.connect() as connection:
            start.wait()
            ordered = urls[turn:] + urls[:turn]
            found = add(connection, *(new(url) for url in ordered))
            answers.append([added for _, added in sorted(zip(ordered, found, strict=True), key=lambda pair: pair[0])])

    threads = [threading.Thread(target=ask, args=(turn * 7,)) for turn in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert len({tuple(added.id for added in answer) for answer in answers}) == 1
    assert sum(added.created for answer in answers for added in answer) == len(urls)


def test_inside_a_transaction_that_is_rolled_back_no_task_is_made(at: Tasks) -> None:
    with at.connection.transaction(force_rollback=True):
        at.one()
    assert at.value("SELECT count(*) FROM crawl_tasks") == 0


# Reading --------------------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_not_found(at: Tasks) -> None:
    for look in (tasks.get, task_queries.history):
        with pytest.raises(NotFound, match="There is no task 12"):
            look(at.connection, 12)
    with pytest.raises(NotFound, match="no batch called 'x'"):
        task_queries.batch(at.connection, "x")


def test_live_tasks_are_found_by_their_urls(at: Tasks) -> None:
    at.completed("a.example/1")
    second = at.one("a.example/2")
    at.bring(second, S.QUEUED)
    keys = [url_key(f"https://a.example/{number}") for number in (1, 2, 3)]
    assert task_queries.live(at.connection, keys) == {keys[1]: task_queries.LiveTask(second, 1, S.QUEUED)}
    assert task_queries.live(at.connection, []) == {}


def test_a_list_is_filtered_and_goes_on_behind_the_last_one(at: Tasks) -> None:
    batch = task_queries.create_batch(at.connection, "b", actor="ann")
    first = at.completed("a.example/1", priority=2)
    second = at.one("b.example/2", batch_id=batch)
    third = at.one("a.example/3", batch_id=batch, parent_task_id=first)

    def ids(*, before: int | None = None, limit: int = 100, **filters: object) -> list[int]:
        after = None if before is None else (before,)
        return [task.id for task in task_queries.page(at.connection, filters, after=after, limit=limit).rows]

    domain_id = at.get(first).domain_id

    assert ids() == [third, second, first]
    assert ids(limit=2) == [third, second]
    assert ids(before=second, limit=2) == [first]
    assert ids(status=S.PENDING) == [third, second]
    assert ids(domain=domain_id) == [third, first]
    assert ids(domain=domain_id, status=S.COMPLETED) == [first]
    assert ids(batch=batch) == [third, second]
    assert ids(priority=2) == [first]
    assert ids(parent_task_id=first) == [third]
    assert ids(domain=10**9) == []


def test_the_history_of_a_url_is_all_its_crawls_with_all_that_happened(at: Tasks) -> None:
    first = at.completed("a.example/x")
    other = at.one("a.example/y")
    at.recur(first)
    (second,) = at.spawn()
    at.bring(second, S.PAUSED)
    assert task_queries.resume(at.connection, second, actor="bob")
    for asked in (first, second):
        newest, oldest = task_queries.history(at.connection, asked)
        assert (newest.task, oldest.task) == (at.get(second), at.get(first))
    assert [(e.version, e.from_status, e.to_status, e.why, e.attempt) for e in newest.events] == [
        (1, S.PENDING, S.PAUSED, "paused by test", 0),
        (2, S.PAUSED, S.PENDING, "resumed by bob", 0),
    ]
    assert [(e.from_status, e.to_status, e.why, e.attempt) for e in oldest.events] == [
        (S.PENDING, S.QUEUED, "due", 1),
        (S.QUEUED, S.CRAWLING, "fetching", 1),
        (S.CRAWLING, S.DOWNLOADED, "fetched", 1),
        (S.DOWNLOADED, S.QUEUED_PARSE, "to be parsed", 1),
        (S.QUEUED_PARSE, S.PARSING, "parsing", 2),
        (S.PARSING, S.COMPLETED, "parsed", 2),
    ]
    moments = [event.at for crawled in (oldest, newest) for event in crawled.events]
    assert moments == sorted(moments)
    assert task_queries.history(at.connection, other)[0].events == []
    assert [crawled.task.id for crawled in task_queries.history(at.connection, first, limit=1)] == [second]


def test_statistics_name_every_status_and_how_long_it_took(at: Tasks) -> None:
    at.completed("a.example/1")
    old = at.completed("a.example/2")
    at.connection.execute("UPDATE crawl_tasks SET started_at = completed_at - interval '10 s' WHERE id <> %s", (old,))
    at.connection.execute("UPDATE crawl_tasks SET completed_at = now() - interval '3 days' WHERE id = %s", (old,))
    at.failed("a.example/3")
    at.one("a.example/4")
    stats = {count.status: count for count in task_queries.stats(at.connection, span=DAY)}
    assert set(stats) == set(TaskStatus)
    assert stats[S.COMPLETED] == TaskCount(S.COMPLETED, 2, 1, 10.0)
    assert (stats[S.FAILED].tasks, stats[S.FAILED].lately) == (1, 1)
    assert stats[S.PENDING] == TaskCount(S.PENDING, 1, 0, None)
    assert stats[S.PARSING] == TaskCount(S.PARSING, 0, 0, None)


def test_batches_are_made_once_and_say_how_their_tasks_stand(at: Tasks) -> None:
    first = task_queries.create_batch(at.connection, "one", actor="ann")
    second = task_queries.create_batch(at.connection, "two", actor="bob")
    with pytest.raises(Refused, match="There is a batch called 'one' already"):
        task_queries.create_batch(at.connection, "one", actor="bob")
    at.completed("a.example/1", batch_id=first)
    at.add("a.example/2", "a.example/3", batch_id=first)
    shown = task_queries.batch(at.connection, "one")
    assert (shown.id, shown.created_by, shown.tasks) == (first, "ann", {"completed": 1, "pending": 2})
    assert [batch.name for batch in task_queries.batches(at.connection, {}).rows] == ["two", "one"]
    assert [batch.name for batch in task_queries.batches(at.connection, {}, after=(second,)).rows] == ["one"]
    assert [(e.actor, e.action, e.object_id) for e in audit.listing(at.connection, kind="batch")] == [
        ("bob", "create", str(second)),
        ("ann", "create", str(first)),
    ]


def test_where_a_page_is_survives_the_way_through_the_store(at: Tasks) -> None:
    assert at.get(at.completed()).archive == PLACE


def test_the_audit_log_is_read_by_who_and_what_in_pages(at: Tasks) -> None:
    for number in range(3):
        audit.write(at.connection, actor="ann", action="edit", kind="domain", object_id=f"d{number}.example")
    audit.write(at.connection, actor="bob", action="edit", kind="domain", object_id="d1.example", details={"delay": 2})
    newest = audit.listing(at.connection, limit=1)[0]
    assert (newest.actor, newest.object_id, newest.details) == ("bob", "d1.example", {"delay": 2})
    assert [e.actor for e in audit.listing(at.connection, kind="domain", object_id="d1.example")] == ["bob", "ann"]
    assert len(audit.listing(at.connection, actor="ann", before=newest.id)) == 3
    assert audit.listing(at.connection, actor="eve") == []
