"""Output of tasks: as a row, as fields, as JSON.

The rule: nothing is decided here. What comes next is decided by `tasks/explain`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.cli import output
from holdfast.cli.output import pluralize
from holdfast.control.explain_text import describe_wait
from holdfast.model.task import Task, TaskStatus
from holdfast.settings import render_duration
from holdfast.stats.cli import format_until
from holdfast.tasks.explain import Story
from holdfast.tasks.queries.tasks import Crawled

_MAX_NOTE: Final = 90
"""Characters of an error below a row; `tasks show` prints all of it."""


def task_json(task: Task) -> dict[str, Any]:
    """The task as JSON values: hashes in hexadecimal."""
    fields = {field.name: getattr(task, field.name) for field in dataclasses.fields(task)}
    fields["url_hash"] = task.url_hash.hex()
    if task.archive:
        fields["archive"] = dataclasses.asdict(task.archive) | {"payload_digest": task.archive.payload_digest.hex()}
    return fields


def describe_state(task: Task) -> str:
    """The status of a task and when it is due, as the end of a sentence."""
    if task.status is not TaskStatus.PENDING:
        return str(task.status)
    due = task.scheduled_at <= datetime.now(UTC)
    after = f", after task {task.parent_task_id}" if task.parent_task_id else ""
    return f"{task.status}, due {'now' if due else f'{output.format_time(task.scheduled_at)} UTC'}{after}"


def frequency(task: Task) -> str:
    """How often the URL is crawled: `once`, `every 6h`."""
    return f"every {render_duration(task.crawl_frequency)}" if task.is_recurring else "once"


def print_tasks(tasks: Sequence[Task]) -> None:
    """Print a table of tasks, with errors below their rows."""
    rows = [
        (
            task.id,
            task.status,
            task.priority,
            render_duration(task.crawl_frequency) if task.is_recurring else "once",
            output.format_time(
                task.next_crawl_at or (task.scheduled_at if task.status is TaskStatus.PENDING else None)
            ),
            task.url,
        )
        for task in tasks
    ]
    notes = {place: _shorten(task.error_message) for place, task in enumerate(tasks) if task.error_message}
    output.print_table(["ID", "STATUS", "PRIORITY", "EVERY", "NEXT (UTC)", "URL"], rows, notes, right="ID PRIORITY")


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_NOTE else f"{line[:_MAX_NOTE]} …"


def task_fields(story: Story) -> Iterator[tuple[str, object]]:
    """The fields of a task, for `print_fields`."""
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
    yield "Next", story.next.what + (f" {format_until(story.next.at, story.now)}" if story.next.at else "")
    for number, wait in enumerate(story.waits):
        yield "Waits for" if not number else "", describe_wait(wait, story.now)
    yield "Priority", task.priority
    yield "Crawled", frequency(task)
    yield "Crawls before", f"{task.recrawl_count:,}"
    yield "Retries", f"{task.retry_count} of {task.max_retries} used"
    yield from _results(task)
    yield from _relations(story)
    yield "Made", f"{output.format_time(task.created_at)} UTC by {task.created_by}"
    yield "Changed", f"{output.format_time(task.updated_at)} UTC"


def _results(task: Task) -> Iterator[tuple[str, object]]:
    """The response, its place in the archive, and the parser."""
    if task.http_status_code is not None:
        took = f" in {task.response_time_ms:,} ms" if task.response_time_ms is not None else ""
        yield "Answer", f"status {task.http_status_code}{took}"
    if task.archive:
        place = task.archive
        yield "Archive", f"{place.segment}, {pluralize(place.length, 'byte')} at {place.offset:,}"
    if task.parsed_by:
        yield "Parsed by", f"{task.parsed_by} {task.parser_version or ''}".rstrip()
    elif task.parser_name:
        yield "Parser", task.parser_name
    if task.completed_at:
        yield "Ended", f"{output.format_time(task.completed_at)} UTC"


def _relations(story: Story) -> Iterator[tuple[str, object]]:
    """Parent task, previous task, batch and webhook."""
    if story.parent:
        yield "After", f"task {story.parent.id}, which is {story.parent.status}"
    if story.task.previous_task_id is not None:
        yield "The last was", f"task {story.task.previous_task_id}"
    if story.batch is not None:
        yield "Batch", story.batch
    if story.task.webhook_url:
        yield "Webhook", story.task.webhook_url


def event_rows(crawls: Iterable[Crawled]) -> Iterator[tuple[object, ...]]:
    """A row per event, from the first crawl to the last."""
    for crawl in crawls:
        task = crawl.task
        yield task.id, _format_seconds(task.created_at), "made", f"by {task.created_by}"
        for event in crawl.events:
            yield task.id, _format_seconds(event.at), f"{event.from_status} → {event.to_status}", event.why


def _format_seconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
