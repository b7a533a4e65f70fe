"""How a task is told: as a row, as facts, as JSON.

The rule: nothing is decided here. What comes next is said by `control/task_story`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.cli import output
from holdfast.cli.output import counted
from holdfast.cli.status import until
from holdfast.control.reasons import describe_wait
from holdfast.control.task_story import Story
from holdfast.model.task import Task, TaskStatus
from holdfast.settings import render_duration
from holdfast.store.task_reports import Crawled

_NOTE: Final = 90
"""Letters of an error below a row; `tasks show` has all of them."""


def as_json(task: Task) -> dict[str, Any]:
    """A task for programs: hashes in hexadecimal."""
    told = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    told["url_hash"] = task.url_hash.hex()
    if task.archive:
        told["archive"] = dataclasses.asdict(task.archive) | {"payload_digest": task.archive.payload_digest.hex()}
    return told


def state(task: Task) -> str:
    """What became of a task, as the end of a sentence about it."""
    if task.status is not TaskStatus.PENDING:
        return str(task.status)
    due = task.scheduled_at <= datetime.now(UTC)
    after = f", after task {task.parent_task_id}" if task.parent_task_id else ""
    return f"{task.status}, due {'now' if due else f'{output.when(task.scheduled_at)} UTC'}{after}"


def rhythm(task: Task) -> str:
    """How often its URL is crawled."""
    return f"every {render_duration(task.crawl_frequency)}" if task.is_recurring else "once"


def print_tasks(tasks: Sequence[Task]) -> None:
    """A table of tasks; below each that failed, why."""
    rows = [
        (
            task.id,
            task.status,
            task.priority,
            render_duration(task.crawl_frequency) if task.is_recurring else "once",
            output.when(task.next_crawl_at or (task.scheduled_at if task.status is TaskStatus.PENDING else None)),
            task.url,
        )
        for task in tasks
    ]
    notes = {place: _cut(task.error_message) for place, task in enumerate(tasks) if task.error_message}
    output.print_table(["ID", "STATUS", "PRIORITY", "EVERY", "NEXT (UTC)", "URL"], rows, notes, right="ID PRIORITY")


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _NOTE else f"{line[:_NOTE]} …"


def facts(story: Story) -> Iterator[tuple[str, object]]:
    """All that a person wants to know of a task."""
    task = story.task
    yield "Task", task.id
    yield "URL", task.url
    if story.moved_to:
        yield "Led to", story.moved_to
    yield "Domain", task.domain
    reason = task.status_reason
    yield "Status", reason if reason.startswith(task.status) else f"{task.status}: {reason}"
    if task.error_message and task.error_message not in task.status_reason:
        yield "Error", task.error_message
    yield "Next", story.next.what + (f" {until(story.next.at, story.now)}" if story.next.at else "")
    for number, wait in enumerate(story.waits):
        yield "Waits for" if not number else "", describe_wait(wait, story.now)
    yield "Priority", task.priority
    yield "Crawled", rhythm(task)
    yield "Crawls before", f"{task.recrawl_count:,}"
    yield "Retries", f"{task.retry_count} of {task.max_retries} used"
    yield from _answer(task)
    yield from _belongs(story)
    yield "Made", f"{output.when(task.created_at)} UTC by {task.created_by}"
    yield "Changed", f"{output.when(task.updated_at)} UTC"


def _answer(task: Task) -> Iterator[tuple[str, object]]:
    """What was fetched and parsed."""
    if task.http_status_code is not None:
        took = f" in {task.response_time_ms:,} ms" if task.response_time_ms is not None else ""
        yield "Answer", f"status {task.http_status_code}{took}"
    if task.archive:
        place = task.archive
        yield "Archive", f"{place.segment}, {counted(place.length, 'byte')} at {place.offset:,}"
    if task.parsed_by:
        yield "Parsed by", f"{task.parsed_by} {task.parser_version or ''}".rstrip()
    elif task.parser_name:
        yield "Parser", task.parser_name
    if task.completed_at:
        yield "Ended", f"{output.when(task.completed_at)} UTC"


def _belongs(story: Story) -> Iterator[tuple[str, object]]:
    """What it has to do with others."""
    if story.parent:
        yield "After", f"task {story.parent.id}, which is {story.parent.status}"
    if story.task.previous_task_id is not None:
        yield "The last was", f"task {story.task.previous_task_id}"
    if story.batch is not None:
        yield "Batch", story.batch
    if story.task.webhook_url:
        yield "Webhook", story.task.webhook_url


def events(crawls: Iterable[Crawled]) -> Iterator[tuple[object, ...]]:
    """A row for each thing that happened, from the first crawl to the last."""
    for crawl in crawls:
        task = crawl.task
        yield task.id, _exactly(task.created_at), "made", f"by {task.created_by}"
        for event in crawl.events:
            yield task.id, _exactly(event.at), f"{event.from_status} → {event.to_status}", event.why


def _exactly(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
