"""What comes next for a task: a sentence for every status, with the time where there is one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.model.task import TaskStatus
from holdfast.tasks.explain import next_step
from holdfast.tasks.records import NextStep, Task

S = TaskStatus
NOW = datetime(2026, 2, 5, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
TASK = Task(
    id=7,
    domain_id=1,
    domain="a.example",
    url="https://a.example/",
    status=S.PENDING,
    status_reason="created",
    priority=5,
    scheduled_at=NOW,
    started_at=None,
    completed_at=None,
    retry_count=0,
    max_retries=3,
    error_message=None,
    crawl_frequency=timedelta(days=1),
    next_crawl_at=None,
    recrawl_count=0,
    is_recurring=True,
    archive=None,
    http_status_code=None,
    response_time_ms=None,
    proxy_id=None,
    created_at=NOW,
    updated_at=NOW,
    created_by="test",
    parent_task_id=None,
    previous_task_id=None,
    batch_id=None,
    webhook_url=None,
    claim_epoch=None,
    attempt=0,
    version=0,
    waits_for=None,
    parser_name=None,
    parsed_by=None,
    parser_version=None,
    parse_after=None,
)


def following(*, is_active: bool = True, parent: TaskStatus | None = None, **changes: Any) -> NextStep:
    other = None if parent is None else replace(TASK, id=3, status=parent)
    return next_step(replace(TASK, **changes), NOW, is_active=is_active, parent=other)


@pytest.mark.parametrize("status", TaskStatus)
def test_every_status_has_a_sentence(status: TaskStatus) -> None:
    found = following(status=status)
    assert found.what
    assert not found.what.endswith(".")
    by_a_person = {S.FAILED: "restart 7", S.PAUSED: "resume 7", S.CANCELLED: "restart 7"}
    assert (f"`holdfast tasks {by_a_person.get(status)}`" in found.what) == (status in by_a_person)


def test_what_is_pending_waits_for_its_time_then_its_domain_then_its_parent() -> None:
    assert following() == NextStep("it is due: the next tick of the schedule queues it")
    assert following(scheduled_at=LATER, is_active=False) == NextStep("its time comes", LATER)
    assert following(scheduled_at=LATER, retry_count=1) == NextStep("it is tried once more", LATER)
    assert following(is_active=False, parent=S.FAILED).what.endswith("`holdfast domains set a.example active=yes`")
    assert following(parent=S.COMPLETED) == following()


@pytest.mark.parametrize("status", [status for status in TaskStatus if status is not S.COMPLETED])
def test_a_parent_that_goes_nowhere_needs_a_person(status: TaskStatus) -> None:
    found = following(parent=status).what
    assert found.startswith(f"it waits until task 3 is completed, which is {status}")
    assert ("`holdfast tasks cancel 7`" in found) == (status in {S.FAILED, S.PAUSED, S.CANCELLED})


def test_what_is_completed_is_crawled_again_or_not() -> None:
    assert following(status=S.COMPLETED, next_crawl_at=LATER) == NextStep(
        "its URL is crawled again, as a new task", LATER
    )
    assert following(status=S.COMPLETED, is_recurring=False) == NextStep("nothing: it was to be crawled once")
    assert "`holdfast tasks history 7`" in following(status=S.COMPLETED).what


def test_a_failed_parse_has_its_time() -> None:
    assert following(status=S.QUEUED_PARSE, parse_after=LATER) == NextStep("it is parsed once more", LATER)
    assert following(status=S.QUEUED_PARSE).at is None
