"""Requests about tasks and their batches."""

from collections.abc import Sequence
from datetime import datetime
from typing import Unpack

from holdfast.client.request_spec import ListSpec, RequestSpec, decode_list, decode_one, format_path
from holdfast.operations.records import Operation
from holdfast.tasks.records import (
    AskedTask,
    Batch,
    Bulk,
    FailedTasks,
    RestartedTasks,
    Task,
    TaskArguments,
    TaskCount,
    TaskCrawl,
    TaskRestart,
    TaskStory,
)


def tasks(
    *,
    status: str | None = None,
    domain: str | None = None,
    batch: str | None = None,
    parent_task_id: int | None = None,
    priority: int | None = None,
    order: str = "newest",
) -> ListSpec[Task]:
    """Tasks. The order is `newest` or `oldest`."""
    filters = {"status": status, "domain": domain, "batch": batch, "parent_task_id": parent_task_id}
    return ListSpec("/api/tasks", Task, {**filters, "priority": priority, "order": order})


def task(task: int) -> RequestSpec[TaskStory]:
    """A task: its state, the reason, and what comes next."""
    return RequestSpec("GET", format_path("/api/tasks/{}", task), decode_one(TaskStory))


def task_history(task: int) -> ListSpec[TaskCrawl]:
    """All crawls of a task's URL, the newest first."""
    return ListSpec(format_path("/api/tasks/{}/history", task), TaskCrawl, {})


def task_stats() -> RequestSpec[list[TaskCount]]:
    """Tasks by status, and the mean durations of the last day."""
    return RequestSpec("GET", "/api/stats/tasks", decode_list(TaskCount))


def create_task(url: str, **options: Unpack[TaskArguments]) -> RequestSpec[AskedTask]:
    """Create a task that crawls a URL, by default again and again. If the URL has a task that has not ended, that one
    is returned."""
    return RequestSpec("POST", "/api/admin/tasks", decode_one(AskedTask), body={"url": url, **options})


def create_tasks(urls: Sequence[str], **options: Unpack[TaskArguments]) -> RequestSpec[Bulk]:
    """Create many tasks with the same options; at most 10 000."""
    return RequestSpec("POST", "/api/admin/tasks/bulk", decode_one(Bulk), body={"urls": list(urls), **options})


def restart_task(
    task: int, *, reset_retry_count: bool = True, priority: int | None = None, scheduled_at: datetime | None = None
) -> RequestSpec[TaskRestart]:
    """Crawl a task again from the beginning."""
    body = {"reset_retry_count": reset_retry_count, "priority": priority, "scheduled_at": scheduled_at}
    return RequestSpec("POST", format_path("/api/admin/tasks/{}/restart", task), decode_one(TaskRestart), body=body)


def restart_parsing(task: int, *, reset_retry_count: bool = True) -> RequestSpec[TaskRestart]:
    """Parse a task's page again, from the archive."""
    path = format_path("/api/admin/tasks/{}/restart-parsing", task)
    return RequestSpec("POST", path, decode_one(TaskRestart), body={"reset_retry_count": reset_retry_count})


def count_failed(
    *, domain: str | None = None, batch: str | None = None, failed_after: datetime | None = None
) -> RequestSpec[FailedTasks]:
    """How many tasks `restart_failed` would restart with these filters."""
    filters = {"domain": domain, "batch": batch, "failed_after": failed_after}
    return RequestSpec("GET", "/api/tasks/failed/count", decode_one(FailedTasks), filters)


def restart_failed(
    *,
    domain: str | None = None,
    domain_id: int | None = None,
    batch: str | None = None,
    failed_after: datetime | None = None,
    limit: int = 1000,
) -> RequestSpec[RestartedTasks]:
    """Restart failed tasks, at most 10 000. Returns how many, and the first 1000 of them; if there are as many as
    `limit`, there may be more."""
    body = {"domain": domain, "domain_id": domain_id, "batch": batch, "failed_after": failed_after, "limit": limit}
    return RequestSpec("POST", "/api/admin/tasks/restart-failed", decode_one(RestartedTasks), body=body)


def pause_task(task: int) -> RequestSpec[Task]:
    """Pause a task."""
    return RequestSpec("POST", format_path("/api/admin/tasks/{}/pause", task), decode_one(Task))


def resume_task(task: int) -> RequestSpec[Task]:
    """Resume a paused task."""
    return RequestSpec("POST", format_path("/api/admin/tasks/{}/resume", task), decode_one(Task))


def cancel_task(task: int) -> RequestSpec[Task]:
    """Cancel a task, and the crawls that would follow it."""
    return RequestSpec("POST", format_path("/api/admin/tasks/{}/cancel", task), decode_one(Task))


def set_priority(task: int, priority: int) -> RequestSpec[Task]:
    """Set the priority of a task, from 1 (first) to 10 (last)."""
    return RequestSpec(
        "PATCH", format_path("/api/admin/tasks/{}/priority", task), decode_one(Task), body={"priority": priority}
    )


def batches(*, prefix: str | None = None, order: str = "newest") -> ListSpec[Batch]:
    """Batches; those whose names begin with `prefix`. The order is `newest` or `oldest`."""
    return ListSpec("/api/batches", Batch, {"prefix": prefix, "order": order})


def batch(name: str) -> RequestSpec[Batch]:
    """A batch, with how many of its tasks are in each status."""
    return RequestSpec("GET", format_path("/api/batches/{}", name), decode_one(Batch))


def create_batch(name: str) -> RequestSpec[Batch]:
    """Create a batch; tasks are added to it when they are created."""
    return RequestSpec("POST", "/api/admin/batches", decode_one(Batch), body={"name": name})


def restart_batch(name: str) -> RequestSpec[Operation]:
    """Restart all tasks of a batch that have ended or are paused, in the background; `wait` for the operation."""
    return RequestSpec("POST", format_path("/api/admin/batches/{}/restart", name), decode_one(Operation))
