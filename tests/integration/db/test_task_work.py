"""Tasks at work: results count under their attempt only, failures are tried again, and what a person did stands."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast.db import parse_results, task_frontier
from holdfast.db.connection import Database
from holdfast.db.task_frontier import CrawlResult
from holdfast.model.task import TaskStatus
from holdfast.tasks import queries as task_queries
from tests.support.tasks import PAGE, PLACE, Tasks

S = TaskStatus
MINUTE = timedelta(minutes=1)


@pytest.fixture
def at(connection: psycopg.Connection) -> Tasks:
    return Tasks(connection)


def about(wait: timedelta, minutes: int) -> bool:
    return (minutes - 1) * MINUTE < wait <= minutes * MINUTE


# Crawling -------------------------------------------------------------------------------------------------------------


def test_a_page_that_is_there_waits_to_be_parsed_with_all_that_is_known_of_it(at: Tasks) -> None:
    task_id = at.one()
    at.bring(task_id, S.CRAWLING)
    result = at.result(task_id, http_status=200, response_ms=120, proxy_id=4, archive=PAGE)
    assert task_frontier.record_results(at.connection, [result]) == {task_id: S.QUEUED_PARSE}
    task = at.get(task_id)
    assert (task.http_status_code, task.response_time_ms, task.proxy_id, task.archive) == (200, 120, 4, PLACE)
    assert (task.error_message, task.retry_count) == (None, 0)
    assert parse_results.parse_due(at.connection, 10) == [task_id]


def test_results_may_come_for_many_at_once_and_without_a_word_before(at: Tasks) -> None:
    one, two, three = at.add("a.example/1", "a.example/2", "b.example/3")
    at.due()
    results = [
        at.result(two, error="timeout"),
        at.result(three, error="404", permanent=True, http_status=404),
        at.result(one, http_status=304),
    ]
    assert task_frontier.record_results(at.connection, results) == {
        one: S.QUEUED_PARSE,
        two: S.PENDING,
        three: S.FAILED,
    }
    assert [at.status(task_id) for task_id in (one, two, three)] == [S.QUEUED_PARSE, S.PENDING, S.FAILED]
    assert at.get(one).archive is None
    assert at.reasons(two)[1:] == [("queued", "crawling", "fetching"), ("crawling", "pending", "another try: timeout")]


def test_a_failure_is_tried_again_after_1_2_and_4_minutes_and_then_it_has_failed_with_its_error(at: Tasks) -> None:
    task_id = at.one(max_retries=3)
    for retries, minutes in ((1, 1), (2, 2), (3, 4)):
        assert at.due() == [task_id]
        assert task_frontier.record_results(at.connection, [at.result(task_id, error=f"no {retries}")]) == {
            task_id: S.PENDING
        }
        task = at.get(task_id)
        assert (task.retry_count, task.error_message) == (retries, f"no {retries}")
        assert about(at.waits(task_id), minutes)
        assert at.due() == []
        at.now(task_id)
    at.due()
    assert task_frontier.record_results(at.connection, [at.result(task_id, error="no, never", http_status=503)]) == {
        task_id: S.FAILED
    }
    task = at.get(task_id)
    assert (task.error_message, task.http_status_code, task.retry_count) == ("no, never", 503, 3)
    assert task.status_reason == "failed: no, never"
    assert task.completed_at


def test_a_result_under_an_old_attempt_changes_nothing(at: Tasks) -> None:
    task_id = at.one()
    at.due()
    old = at.result(task_id, archive=PAGE)
    assert task_queries.pause(at.connection, task_id, actor="ann")
    assert task_queries.resume(at.connection, task_id, actor="ann")
    assert at.due() == [task_id]
    before = at.get(task_id)
    assert task_frontier.record_results(at.connection, [old]) == {}
    assert at.get(task_id) == before
    assert task_frontier.record_results(at.connection, [at.result(task_id, archive=PAGE)]) == {task_id: S.QUEUED_PARSE}


@pytest.mark.parametrize("status", sorted(set(TaskStatus) - {S.QUEUED, S.CRAWLING}))
def test_a_result_counts_only_while_it_is_waited_for(at: Tasks, status: TaskStatus) -> None:
    task_id = at.one()
    at.bring(task_id, status)
    before = at.get(task_id)
    for result in (at.result(task_id, archive=PAGE), at.result(task_id, error="no")):
        assert task_frontier.record_results(at.connection, [result]) == {}
    assert at.get(task_id) == before


def test_a_result_of_a_task_that_nobody_knows_is_passed_over(at: Tasks) -> None:
    assert task_frontier.record_results(at.connection, [CrawlResult(99, 1)]) == {}
    assert task_frontier.record_results(at.connection, []) == {}


def test_what_a_person_did_while_the_result_came_in_stands(at: Tasks, database: Database) -> None:
    task_id = at.one()
    at.due()
    result = at.result(task_id, archive=PAGE)
    with database.connect() as person:
        with person.transaction():
            assert task_queries.cancel(person, task_id, actor="ann")
        assert task_frontier.record_results(at.connection, [result]) == {}
    assert at.status(task_id) is S.CANCELLED


def test_a_new_holder_says_again_that_it_is_crawling(at: Tasks) -> None:
    task_id = at.one()
    at.due()
    attempt = at.get(task_id).attempt
    assert task_frontier.begin_crawl(at.connection, [(task_id, attempt)], epoch=3) == [task_id]
    events = at.reasons(task_id)
    assert task_frontier.begin_crawl(at.connection, [(task_id, attempt)], epoch=4) == [task_id]
    assert (at.get(task_id).claim_epoch, at.reasons(task_id)) == (4, events)
    assert task_frontier.begin_crawl(at.connection, [(task_id, attempt - 1)], epoch=5) == []
    assert task_frontier.begin_crawl(at.connection, [], epoch=5) == []


@pytest.mark.parametrize("error", ["a\0b", "half \ud800", "x" * 100_000, "'; DROP TABLE crawl_tasks; --"])
def test_an_error_may_be_any_text(at: Tasks, error: str) -> None:
    crawled, parsed = at.add("a.example/1", "a.example/2")
    at.due()
    assert task_frontier.record_results(at.connection, [at.result(crawled, error=error)]) == {crawled: S.PENDING}
    at.fetched(parsed)
    assert parse_results.fail_parse(at.connection, parsed, at.parse(parsed).attempt, error=error) is S.QUEUED_PARSE
    kept = at.get(crawled).error_message
    assert kept == at.get(parsed).error_message
    assert kept
    assert kept[:2] == error[:1] + kept[1]


def test_a_retry_that_is_rolled_back_was_none(at: Tasks) -> None:
    task_id = at.one()
    at.due()
    with at.connection.transaction(force_rollback=True):
        task_frontier.record_results(at.connection, [at.result(task_id, error="no")])
    assert (at.status(task_id), at.get(task_id).retry_count) == (S.QUEUED, 0)


# Parsing --------------------------------------------------------------------------------------------------------------


def test_a_parsed_task_is_completed_and_knows_by_what(at: Tasks) -> None:
    task_id = at.one(parser_name="product")
    at.bring(task_id, S.PARSING)
    attempt = at.get(task_id).attempt
    assert parse_results.complete_parse(at.connection, task_id, attempt, parser="product", parser_version="2.1")
    task = at.get(task_id)
    assert (task.status, task.parser_name, task.parsed_by, task.parser_version) == (
        S.COMPLETED,
        "product",
        "product",
        "2.1",
    )
    assert task.next_crawl_at


def test_tasks_are_parsed_by_priority_and_only_once_at_a_time(at: Tasks) -> None:
    later, sooner = at.one("a.example/1", priority=7), at.one("a.example/2", priority=1)
    at.due()
    at.fetched(later)
    at.fetched(sooner)
    assert parse_results.parse_due(at.connection, 10) == [sooner, later]
    assert parse_results.parse_due(at.connection, 1) == [sooner]
    assert parse_results.take(at.connection, sooner)
    assert parse_results.take(at.connection, sooner) is None
    assert parse_results.parse_due(at.connection, 10) == [later]


@pytest.mark.parametrize("status", sorted(set(TaskStatus) - {S.QUEUED_PARSE}))
def test_only_what_waits_to_be_parsed_is_given_to_a_parser(at: Tasks, status: TaskStatus) -> None:
    task_id = at.one()
    at.bring(task_id, status)
    before = at.get(task_id)
    assert parse_results.take(at.connection, task_id) is None
    assert at.get(task_id) == before


def test_a_parse_that_fails_is_tried_again_without_fetching_and_then_has_failed(at: Tasks) -> None:
    task_id = at.one(max_retries=2)
    at.bring(task_id, S.QUEUED_PARSE)
    for retries, minutes in ((1, 1), (2, 2)):
        attempt = at.parse(task_id).attempt
        assert parse_results.fail_parse(at.connection, task_id, attempt, error="odd page") is S.QUEUED_PARSE
        assert about(at.waits(task_id), minutes)
        assert at.get(task_id).retry_count == retries
        assert parse_results.parse_due(at.connection, 10) == []
        assert parse_results.take(at.connection, task_id) is None, "not yet"
        at.now(task_id)
    assert parse_results.fail_parse(at.connection, task_id, at.parse(task_id).attempt, error="odd page") is S.FAILED
    task = at.get(task_id)
    assert (task.error_message, task.archive) == ("odd page", PLACE)


def test_the_time_that_a_task_was_scheduled_for_stays_through_its_phases(at: Tasks) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    task_id = at.one(scheduled_at=moment, max_retries=1)
    at.bring(task_id, S.CRAWLING)
    assert task_frontier.record_results(at.connection, [at.result(task_id, http_status=200, archive=PAGE)]) == {
        task_id: S.QUEUED_PARSE
    }
    times = [at.get(task_id).scheduled_at]
    assert (
        parse_results.fail_parse(at.connection, task_id, at.parse(task_id).attempt, error="odd page") is S.QUEUED_PARSE
    )
    times.append(at.get(task_id).scheduled_at)
    at.connection.execute("UPDATE crawl_tasks SET parse_after = NULL")
    lost = at.parse(task_id).attempt
    assert parse_results.reclaim_parses(at.connection, older_than=timedelta(0), limit=10) == [task_id]
    times.append(at.get(task_id).scheduled_at)
    assert not parse_results.complete_parse(at.connection, task_id, lost, parser="p", parser_version="1")
    attempt = at.parse(task_id).attempt
    assert parse_results.complete_parse(at.connection, task_id, attempt, parser="p", parser_version="1")
    task = at.get(task_id)
    assert [*times, task.scheduled_at] == [moment] * 4
    assert task.started_at is not None
    assert task.scheduled_at <= task.started_at


def test_a_time_ahead_does_not_keep_a_page_from_being_parsed(at: Tasks) -> None:
    task_id = at.completed()
    at.connection.execute("UPDATE crawl_tasks SET scheduled_at = now() + interval '1 day'")
    task_queries.restart_parsing(at.connection, task_id, actor="ann")
    assert parse_results.parse_due(at.connection, 10) == [task_id]


def test_a_hopeless_parse_is_not_tried_again(at: Tasks) -> None:
    task_id = at.one()
    at.bring(task_id, S.PARSING)
    attempt = at.get(task_id).attempt
    assert parse_results.fail_parse(at.connection, task_id, attempt, error="no such parser", permanent=True) is S.FAILED


def test_retries_count_anew_in_the_second_phase(at: Tasks) -> None:
    task_id = at.one()
    at.due()
    task_frontier.record_results(at.connection, [at.result(task_id, error="no")])
    at.now(task_id)
    at.due()
    at.fetched(task_id)
    assert (at.get(task_id).retry_count, at.get(task_id).error_message) == (0, None)


def test_a_lost_parser_is_replaced_and_its_late_result_refused(at: Tasks) -> None:
    task_id = at.one()
    at.bring(task_id, S.PARSING)
    lost = at.get(task_id).attempt
    assert parse_results.reclaim_parses(at.connection, older_than=timedelta(hours=1), limit=10) == []
    assert parse_results.reclaim_parses(at.connection, older_than=timedelta(0), limit=10) == [task_id]
    for _ in range(2):  # while it waits, and while another is at it
        assert not parse_results.complete_parse(at.connection, task_id, lost, parser="p", parser_version="1")
        assert parse_results.fail_parse(at.connection, task_id, lost, error="late") is None
        parse_results.take(at.connection, task_id)
    task = at.get(task_id)
    assert (task.status, task.attempt, task.parsed_by, task.error_message) == (S.PARSING, lost + 1, None, None)
    assert parse_results.complete_parse(at.connection, task_id, task.attempt, parser="p", parser_version="1")


def test_a_page_that_a_hand_wants_parsed_is_parsed(at: Tasks) -> None:
    task_id = at.completed()
    at.by_hand(task_id, S.DOWNLOADED)
    assert parse_results.parse_due(at.connection, 10) == []
    assert parse_results.reclaim_parses(at.connection, older_than=timedelta(hours=1), limit=10) == [task_id]
    assert parse_results.parse_due(at.connection, 10) == [task_id]


def test_a_result_of_a_parser_after_a_pause_is_refused(at: Tasks) -> None:
    task_id = at.one()
    at.bring(task_id, S.PARSING)
    attempt = at.get(task_id).attempt
    assert task_queries.pause(at.connection, task_id, actor="ann")
    assert not parse_results.complete_parse(at.connection, task_id, attempt, parser="p", parser_version="1")
    assert at.status(task_id) is S.PAUSED
