"""Explanation of a task's state in words: the reason, what comes next, and what its URL waits for.

The rule: only facts of the database, and a sentence for every status. Where nothing happens by itself, it says what an operator can do.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import Any

from holdfast.control.explain import SILENCE
from holdfast.control.explain_text import waits
from holdfast.db import explain, jobs, tasks
from holdfast.db.connection import Connection
from holdfast.domains import queries as domains
from holdfast.errors import BadUrl
from holdfast.model.activity import WaitCondition
from holdfast.model.domain import Seed, Status
from holdfast.model.task import ENDED, TaskStatus
from holdfast.tasks import queries
from holdfast.tasks.records import NextStep, Task, TaskStory


def story(connection: Connection, task: Task, seed_of: Callable[[str], Seed]) -> TaskStory:
    """Explain the state of a task. `seed_of` returns the seed of a URL that redirects led it to."""
    around = queries.surroundings(connection, task.id)
    parent = None if task.parent_task_id is None else tasks.get(connection, task.parent_task_id)
    in_frontier = task.status in {TaskStatus.QUEUED, TaskStatus.CRAWLING}
    return TaskStory.extend(
        task,
        now=around.now,
        batch=around.batch,
        parent_status=None if parent is None else parent.status,
        moved_to=around.moved_to,
        next=next_step(task, around.now, is_active=around.domain_is_active, parent=parent),
        waits=_frontier_waits(connection, *_frontier_key(task, around.moved_to, seed_of)) if in_frontier else [],
    )


def next_step(task: Task, now: datetime, *, is_active: bool, parent: Task | None) -> NextStep:
    """Return the next step of a task. `is_active`: whether its domain is; `parent`: the task that it waits for, if it has one."""
    if task.status is TaskStatus.PENDING:
        return _after_pending(task, now, is_active=is_active, parent=parent)
    if task.status is TaskStatus.COMPLETED:
        return _after_completed(task)
    if task.status is TaskStatus.QUEUED_PARSE and task.parse_after is not None and task.parse_after > now:
        return NextStep("it is parsed once more", task.parse_after)
    return NextStep(
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


def _after_pending(task: Task, now: datetime, *, is_active: bool, parent: Task | None) -> NextStep:
    if task.scheduled_at > now:
        return NextStep("it is tried once more" if task.retry_count else "its time comes", task.scheduled_at)
    if not is_active:
        return NextStep(f"it waits until its domain is switched on: `holdfast domains set {task.domain} active=yes`")
    if parent and parent.status is not TaskStatus.COMPLETED:
        stuck = parent.status in ENDED or parent.status is TaskStatus.PAUSED
        remedy = f"; see to that one, or `holdfast tasks cancel {task.id}`" if stuck else ""
        return NextStep(f"it waits until task {parent.id} is completed, which is {parent.status}{remedy}")
    return NextStep("it is due: the next tick of the schedule queues it")


def _after_completed(task: Task) -> NextStep:
    if task.next_crawl_at:
        return NextStep("its URL is crawled again, as a new task", task.next_crawl_at)
    if not task.is_recurring:
        return NextStep("nothing: it was to be crawled once")
    return NextStep(f"its URL has a newer task: `holdfast tasks history {task.id}`")


def _frontier_key(task: Task, moved_to: str | None, seed_of: Callable[[str], Seed]) -> tuple[str, bytes]:
    """The domain and the key under which the URL of a task is in the frontier."""
    if moved_to is not None:
        with suppress(BadUrl):  # then the scheduler queues the task's own URL
            seed = seed_of(moved_to)
            return seed.domain, seed.url_key
    return task.domain, task.url_hash


def _frontier_waits(connection: Connection, name: str, url_key: bytes) -> list[WaitCondition]:
    """Return what has to happen before the URL of a queued task is fetched."""
    domain = asdict(domains.get(connection, name))
    row = next((row for row in explain.of_url(connection, domain["id"], url_key) if row["job"] == jobs.TASKS), None)
    if row is None or row["state"] != "waiting" or row["work_state"] is None:
        return [WaitCondition("the next sweep, which has news for this domain")]
    moment = explain.moment(connection, domain["id"], silence=SILENCE)
    return waits(_without_exhaustion(domain), row, explain.robots_of(connection, domain["id"]), moment, row)


def _without_exhaustion(domain: dict[str, Any]) -> dict[str, Any]:
    """A domain on which jobs have nothing left to do delays no task."""
    return domain | {"next_crawl_after": None} if domain["status"] == Status.EXHAUSTED else domain
