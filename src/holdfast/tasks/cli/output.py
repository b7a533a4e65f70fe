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
from holdfast.db.keyset_pagination import Page
from holdfast.model.task import TaskStatus
from holdfast.settings import render_duration
from holdfast.stats.cli import format_until
from holdfast.tasks.records import Batch, Task, TaskCrawl, TaskStory

_MAX_NOTE: Final = 90
"""Characters of an error below a row; `tasks show` prints all of it."""


def last_id(page: Page[Task] | Page[Batch], limit: int) -> object:
    """The id that --before continues after; None: the page was the last one."""
    if page.next is not None:  # also of a short page: filters without an index read a limited number of rows at once
        return page.next[0]
    return page.rows[-1].id if len(page.rows) == limit else None


def task_json(task: Task) -> dict[str, Any]:
    """The fields of a task, and the hash of its URL."""
    fields = {field.name: getattr(task, field.name) for field in dataclasses.fields(Task)}
    return fields | {"url_hash": task.url_hash}


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


def task_fields(task: TaskStory) -> Iterator[tuple[str, object]]:
    """The fields of a task, for `print_fields`."""
    yield "Task", task.id
    yield "URL", task.url
    if task.moved_to:
        yield "Led to", task.moved_to
    yield "Domain", task.domain
    reason = task.status_reason
    yield "Status", reason if reason.startswith(task.status) else f"{task.status}: {reason}"
    if task.error_message and task.error_message not in task.status_reason:
        yield "Error", task.error_message
    yield "Next", task.next.what + (f" {format_until(task.next.at, task.now)}" if task.next.at else "")
    for number, wait in enumerate(task.waits):
        yield "Waits for" if not number else "", describe_wait(wait, task.now)
    yield "Priority", task.priority
    yield "Crawled", frequency(task)
    yield "Crawls before", f"{task.recrawl_count:,}"
    yield "Retries", f"{task.retry_count} of {task.max_retries} used"
    yield from _results(task)
    yield from _relations(task)
    yield "Created", f"{output.format_time(task.created_at)} UTC by {task.created_by}"
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


def _relations(task: TaskStory) -> Iterator[tuple[str, object]]:
    """Parent task, previous task, batch and webhook."""
    if task.parent_task_id is not None:
        yield "After", f"task {task.parent_task_id}, which is {task.parent_status}"
    if task.previous_task_id is not None:
        yield "The last was", f"task {task.previous_task_id}"
    if task.batch is not None:
        yield "Batch", task.batch
    if task.webhook_url:
        yield "Webhook", task.webhook_url


def event_rows(crawls: Iterable[TaskCrawl]) -> Iterator[tuple[object, ...]]:
    """A row per event, from the first crawl to the last."""
    for crawl in crawls:
        task = crawl.task
        yield task.id, _format_seconds(task.created_at), "made", f"by {task.created_by}"
        for event in crawl.events:
            yield task.id, _format_seconds(event.at), f"{event.from_status} → {event.to_status}", event.why


def _format_seconds(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
