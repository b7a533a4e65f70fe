"""The task diagram in the database: all 100 pairs, by SQL written by hand, and what follows from a status."""

from itertools import product

import psycopg
import pytest

from holdfast.model.task import LIVE, TaskStatus, allowed_actors
from holdfast.tasks import queries as task_queries
from tests.support.tasks import Tasks

PAIRS = list(product(TaskStatus, TaskStatus))
S = TaskStatus


@pytest.fixture
def at(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


def whole(at: Tasks, task_id: int) -> str:
    return str(at.value("SELECT (to_jsonb(t) - 'updated_at')::text FROM crawl_tasks t WHERE id = %s", task_id))


def test_the_table_in_sql_is_the_one_in_python(at: Tasks) -> None:
    for old, new in PAIRS:
        allowed = at.value("SELECT task_transition_allowed(%s::task_status, %s::task_status)", old, new)
        assert allowed is bool(allowed_actors(old, new)), (old, new)


def test_an_update_by_hand_passes_if_and_only_if_the_diagram_allows_it(at: Tasks) -> None:
    for number, (old, new) in enumerate(PAIRS):
        task_id = at.one(f"a.example/{number}")
        at.bring(task_id, old)
        before, events = whole(at, task_id), at.reasons(task_id)
        if old is new:  # no change at all
            at.by_hand(task_id, new)
            assert (whole(at, task_id), at.reasons(task_id)) == (before, events)
        elif allowed_actors(old, new):
            at.by_hand(task_id, new)
            assert at.status(task_id) is new
            assert at.reasons(task_id) == [*events, (old, new, "manual: changed in SQL as holdfast")]
        else:
            with pytest.raises(psycopg.errors.CheckViolation, match=f"that is {old} cannot become {new}") as refusal:
                at.by_hand(task_id, new)
            hint = refusal.value.diag.message_hint or ""
            assert hint == f"Allowed from {old}: {', '.join(s for s in S if allowed_actors(old, s))}."
            assert (whole(at, task_id), at.reasons(task_id)) == (before, events)


def test_what_follows_from_a_status_follows_by_hand_too(at: Tasks) -> None:
    task_id = at.one("a.example/x", crawl_frequency=None)
    for status in (S.QUEUED, S.CRAWLING, S.DOWNLOADED, S.QUEUED_PARSE, S.PARSING, S.COMPLETED):
        at.by_hand(task_id, status)
    task = at.get(task_id)
    assert task.started_at
    assert task.completed_at
    assert task.started_at <= task.completed_at
    assert task.next_crawl_at == task.completed_at + task.crawl_frequency
    assert (task.attempt, task.version) == (2, 6)
    at.by_hand(task_id, S.PENDING)
    again = at.get(task_id)
    assert (again.started_at, again.completed_at, again.next_crawl_at) == (None, None, None)
    assert (again.attempt, again.version) == (2, 7), "the attempt never goes back"


def test_one_that_does_not_recur_has_no_next_time(at: Tasks) -> None:
    assert at.get(at.completed(is_recurring=False)).next_crawl_at is None


def test_the_epoch_is_shown_while_somebody_is_at_it_and_kept_in_the_history(at: Tasks) -> None:
    task_id = at.one()
    at.bring(task_id, S.CRAWLING)
    assert at.get(task_id).claim_epoch == 7
    at.fetched(task_id)
    assert at.get(task_id).claim_epoch is None
    (crawled,) = task_queries.history(at.connection, task_id)
    assert [event.claim_epoch for event in crawled.events] == [None, 7, 7, None]


@pytest.mark.parametrize("status", TaskStatus)
def test_a_url_has_one_live_task(at: Tasks, status: TaskStatus) -> None:
    task_id = at.one()
    at.bring(task_id, status)
    insert = "INSERT INTO crawl_tasks (domain_id, url, url_hash) SELECT domain_id, url, url_hash FROM crawl_tasks"
    if status in LIVE:
        with pytest.raises(psycopg.errors.UniqueViolation, match="crawl_tasks_live"):
            at.connection.execute(insert)
    else:
        assert at.connection.execute(insert).rowcount == 1


FORBIDDEN_ROWS = {
    "no priority before the first": ("task_priority_known", "priority = 0"),
    "no priority behind the last": ("task_priority_known", "priority = 11"),
    "half a key": ("task_key_is_whole", "url_hash = '\\x00'"),
    "tries without end": ("task_counts_sane", "max_retries = 21"),
    "fewer tries than none": ("task_counts_sane", "retry_count = -1"),
    "again at once": ("task_frequency_sane", "crawl_frequency = '0'"),
    "again in ages": ("task_frequency_sane", "crawl_frequency = '1000 years'"),
    "never": ("task_times_finite", "scheduled_at = 'infinity'"),
    "half a place in the archive": ("task_archive_is_whole", "archive_offset = 1"),
    "an end without an end": ("task_end_has_time", "completed_at = now()"),
    "a next time before the end": ("task_recurs_when_completed", "next_crawl_at = now()"),
    "waiting for godot": ("task_waits_while_pending", "waits_for = 'godot'"),
    "freeing children while pending": ("task_frees_when_completed", "frees_children = true"),
    "its own parent": ("task_is_not_its_parent", "parent_task_id = id"),
    "a webhook of no web": ("task_webhook_is_web", "webhook_url = 'file:///etc/passwd'"),
}


def test_the_database_refuses_rows_that_make_no_sense(at: Tasks) -> None:
    before = whole(at, at.one())
    for what, (constraint, change) in FORBIDDEN_ROWS.items():
        with pytest.raises(psycopg.errors.CheckViolation) as refusal:
            at.connection.execute(f"UPDATE crawl_tasks SET {change}")
        assert refusal.value.diag.constraint_name == constraint, what
    assert at.value("SELECT (to_jsonb(t) - 'updated_at')::text FROM crawl_tasks t") == before


def test_updated_at_moves_with_every_update(at: Tasks) -> None:
    task_id = at.one()
    moments = [at.get(task_id).updated_at]
    for change in ("priority = 2", "status = 'queued'", "status = status"):
        at.connection.execute(f"UPDATE crawl_tasks SET {change}, updated_at = '2000-01-01'")
        moments.append(at.get(task_id).updated_at)
    assert moments == sorted(set(moments))


def test_a_task_that_goes_takes_its_history_and_leaves_its_children(at: Tasks) -> None:
    parent = at.completed("a.example/parent")
    child = at.one("a.example/child", parent_task_id=parent)
    at.connection.execute("DELETE FROM crawl_tasks WHERE id = %s", (parent,))
    assert at.value("SELECT count(*) FROM task_events WHERE task_id = %s", parent) == 0
    assert at.get(child).parent_task_id is None


def test_a_domain_with_tasks_is_not_deleted_by_the_way(at: Tasks) -> None:
    task_id = at.one()
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        at.connection.execute("DELETE FROM domains")
    assert at.status(task_id) is S.PENDING
