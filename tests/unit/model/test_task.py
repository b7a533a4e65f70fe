"""What may happen to a task: both tables are total, and agree with each other."""

from datetime import timedelta
from itertools import product
from typing import get_type_hints

import pytest

from holdfast.model.task import (
    ENDED,
    LIVE,
    OPERATIONS,
    RESTARTABLE,
    TARGET_STATUS,
    TRANSITIONS,
    Operation,
    OperationVerdict,
    TaskStatus,
    TransitionActor,
    allowed_actors,
    clean_error,
    retry_delay,
)
from holdfast.tasks.records import TaskArguments, TaskOptions

PAIRS = list(product(TaskStatus, TaskStatus))
S = TaskStatus


def reachable(*who: TransitionActor) -> set[TaskStatus]:
    """Where a new task can get to by these alone."""
    found, new = set[TaskStatus](), {S.PENDING}
    while new:
        found |= new
        new = {b for a, b in PAIRS if a in found and allowed_actors(a, b) & set(who)} - found
    return found


def test_the_diagram_is_this_one() -> None:
    """Written out a second time, by who moves it: a slip in the table shows here."""
    drawn = {
        TransitionActor.SCHEDULE: {(S.PENDING, S.QUEUED)},
        TransitionActor.ENGINE: {
            (S.QUEUED, S.CRAWLING),
            (S.CRAWLING, S.DOWNLOADED),
            (S.CRAWLING, S.PENDING),
            (S.CRAWLING, S.FAILED),
            (S.DOWNLOADED, S.QUEUED_PARSE),
        },
        TransitionActor.PARSE: {
            (S.DOWNLOADED, S.QUEUED_PARSE),
            (S.QUEUED_PARSE, S.PARSING),
            (S.PARSING, S.COMPLETED),
            (S.PARSING, S.QUEUED_PARSE),
            (S.PARSING, S.FAILED),
        },
        TransitionActor.PERSON: {
            *((status, S.PAUSED) for status in LIVE - {S.PAUSED}),
            *((status, S.CANCELLED) for status in set(TaskStatus) - {S.CANCELLED}),
            *((status, S.PENDING) for status in (S.COMPLETED, S.FAILED, S.CANCELLED, S.PAUSED)),
            *((status, S.DOWNLOADED) for status in (S.COMPLETED, S.FAILED, S.CANCELLED, S.PAUSED)),
        },
    }
    assert set(TRANSITIONS) == set(TransitionActor)
    for mover in TransitionActor:
        assert {(a, b) for a, b in PAIRS if mover in allowed_actors(a, b)} == drawn[mover], mover


def test_nothing_becomes_what_it_is() -> None:
    assert [status for status in TaskStatus if allowed_actors(status, status)] == []


def test_without_people_a_task_comes_to_every_status_but_those_of_people() -> None:
    assert reachable(TransitionActor.SCHEDULE, TransitionActor.ENGINE, TransitionActor.PARSE) == set(TaskStatus) - {
        S.PAUSED,
        S.CANCELLED,
    }


def test_only_a_person_leaves_an_end_or_a_pause() -> None:
    assert {mover for a, b in PAIRS if a in ENDED | {S.PAUSED} for mover in allowed_actors(a, b)} == {
        TransitionActor.PERSON
    }


def test_live_and_ended_are_all() -> None:
    assert set(TaskStatus) == LIVE | ENDED
    assert not LIVE & ENDED


@pytest.mark.parametrize(("status", "operation"), list(product(TaskStatus, Operation)))
def test_every_operation_meets_every_status_and_does_what_a_person_may(
    status: TaskStatus, operation: Operation
) -> None:
    verdict = OPERATIONS[status][operation]
    target = TARGET_STATUS.get(operation)
    if target is None:
        assert (operation, verdict) == (Operation.PRIORITY, OperationVerdict.ACT)
    elif verdict is OperationVerdict.ACT:
        assert TransitionActor.PERSON in allowed_actors(status, target)
    elif status is target:
        assert verdict is OperationVerdict.UNCHANGED, "asking twice is no error"


def test_the_table_of_operations_is_total() -> None:
    assert set(OPERATIONS) == set(TaskStatus)
    assert all(set(row) == set(Operation) for row in OPERATIONS.values())


def test_restart_is_for_what_rests() -> None:
    assert {S.COMPLETED, S.FAILED, S.CANCELLED, S.PAUSED} == RESTARTABLE
    refused = {status for status in TaskStatus if OPERATIONS[status][Operation.RESTART] is OperationVerdict.REFUSE}
    assert refused == LIVE - {S.PENDING, S.PAUSED}


@pytest.mark.parametrize(
    ("retries", "most", "minutes"),
    [
        (0, 3, 1),
        (1, 3, 2),
        (2, 3, 4),
        (3, 3, None),
        (4, 3, None),
        (0, 0, None),
        (3, 4, 8),
        (7, 20, 128),
        (15, 20, 1440),
    ],
)
def test_another_try_comes_later_each_time_until_there_is_none(retries: int, most: int, minutes: int | None) -> None:
    assert retry_delay(retries, most) == (None if minutes is None else timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("text", "kept"),
    [("plain", "plain"), ("a\0b", "a\ufffdb"), ("a\ud800b", "a?b"), ("x" * 5000, "x" * 2000), ("ü…", "ü…")],
)
def test_an_error_from_outside_can_be_stored(text: str, kept: str) -> None:
    assert clean_error(text) == kept


def test_the_keywords_of_the_client_are_the_options_of_new_tasks() -> None:
    assert get_type_hints(TaskArguments) == get_type_hints(TaskOptions)
