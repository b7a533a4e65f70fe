"""Where a task is, why, and what comes next, in words.

The rule: only what the store holds, and a sentence for every status. Where nothing comes by itself, it says what a person can do.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from holdfast.control.explain import SILENCE
from holdfast.control.explain_text import Wait, waits
from holdfast.db import explain, jobs, tasks
from holdfast.db.connection import Connection
from holdfast.domains import queries as domains
from holdfast.errors import BadUrl
from holdfast.model.domain import Seed, Status
from holdfast.model.task import ENDED, Task, TaskStatus
from holdfast.tasks.queries import tasks as task_reports


@dataclass(frozen=True, slots=True)
class Next:
    """What comes next, in the middle of a sentence, and when, if that is known."""

    what: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that says why a task is where it is."""

    now: datetime
    """By the database's clock."""
    task: Task
    batch: str | None
    parent: Task | None
    moved_to: str | None
    """Where redirects have led it to so far."""
    next: Next
    waits: list[Wait]
    """What its URL waits for in the frontier."""


def tell(connection: Connection, task: Task, seed_of: Callable[[str], Seed]) -> Story:
    """The story of a task. `seed_of` says which domain a URL belongs to that redirects led it to."""
    around = task_reports.surroundings(connection, task.id)
    parent = None if task.parent_task_id is None else tasks.get(connection, task.parent_task_id)
    at_work = task.status in {TaskStatus.QUEUED, TaskStatus.CRAWLING}
    return Story(
        now=around.now,
        task=task,
        batch=around.batch,
        parent=parent,
        moved_to=around.moved_to,
        next=what_next(task, around.now, is_active=around.domain_is_active, parent=parent),
        waits=_in_frontier(connection, *_place(task, around.moved_to, seed_of)) if at_work else [],
    )


def what_next(task: Task, now: datetime, *, is_active: bool, parent: Task | None) -> Next:
    """What comes next for a task. `is_active`: whether its domain is; `parent`: the task that it waits for, if it has one."""
    if task.status is TaskStatus.PENDING:
        return _of_pending(task, now, is_active=is_active, parent=parent)
    if task.status is TaskStatus.COMPLETED:
        return _of_completed(task)
    if task.status is TaskStatus.QUEUED_PARSE and task.parse_after is not None and task.parse_after > now:
        return Next("it is parsed once more", task.parse_after)
    return Next(
        {
            TaskStatus.QUEUED: "its URL is fetched when a worker comes to it",
            TaskStatus.CRAWLING: "its page is parsed when it is there",
            TaskStatus.DOWNLOADED: "its page is parsed",
            TaskStatus.QUEUED_PARSE: "its page is parsed when its turn comes",
            TaskStatus.PARSING: "it is completed when it is parsed",
            TaskStatus.FAILED: f"nothing by itself; `holdfast tasks restart {task.id}` tries it again",
            TaskStatus.PAUSED: f"nothing until `holdfast tasks resume {task.id}`",
            TaskStatus.CANCELLED: f"nothing by itself; `holdfast tasks restart {task.id}` starts it again",
        }[task.status]
    )


def _of_pending(task: Task, now: datetime, *, is_active: bool, parent: Task | None) -> Next:
    if task.scheduled_at > now:
        return Next("it is tried once more" if task.retry_count else "its time comes", task.scheduled_at)
    if not is_active:
        return Next(f"it waits until its domain is switched on: `holdfast domains set {task.domain} active=yes`")
    if parent and parent.status is not TaskStatus.COMPLETED:
        stuck = parent.status in ENDED or parent.status is TaskStatus.PAUSED
        remedy = f"; see to that one, or `holdfast tasks cancel {task.id}`" if stuck else ""
        return Next(f"it waits until task {parent.id} is completed, which is {parent.status}{remedy}")
    return Next("it is due: the next tick of the schedule queues it")


def _of_completed(task: Task) -> Next:
    if task.next_crawl_at:
        return Next("its URL is crawled again, as a new task", task.next_crawl_at)
    if not task.is_recurring:
        return Next("nothing: it was to be crawled once")
    return Next(f"its URL has a newer task: `holdfast tasks history {task.id}`")


def _place(task: Task, moved_to: str | None, seed_of: Callable[[str], Seed]) -> tuple[str, bytes]:
    """The domain and the key under which the URL of a task is in the frontier."""
    if moved_to is not None:
        with suppress(BadUrl):  # then the schedule asks for the task's own URL
            seed = seed_of(moved_to)
            return seed.domain, seed.url_key
    return task.domain, task.url_hash


def _in_frontier(connection: Connection, name: str, url_key: bytes) -> list[Wait]:
    """What has to happen before the URL of a queued task is fetched."""
    domain = asdict(domains.get(connection, name))
    row = next((row for row in explain.of_url(connection, domain["id"], url_key) if row["job"] == jobs.TASKS), None)
    if row is None or row["state"] != "waiting" or row["work_state"] is None:
        return [Wait("the next sweep, which has news for this domain")]
    moment = explain.moment(connection, domain["id"], silence=SILENCE)
    return waits(_as_tasks_see_it(domain), row, explain.robots_of(connection, domain["id"]), moment, row)


def _as_tasks_see_it(domain: dict[str, Any]) -> dict[str, Any]:
    """That the jobs have nothing left to do on a domain holds no task up."""
    return domain | {"next_crawl_after": None} if domain["status"] == Status.EXHAUSTED else domain
