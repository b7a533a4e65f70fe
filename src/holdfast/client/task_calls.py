"""What a client can ask a server about tasks, batches and products: each call once, for both clients.

The rule: names and parameters are those of the API.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Unpack

from holdfast.client.call import Call, Listing, at, one, some
from holdfast.client.values import Operation
from holdfast.client.wanted import (
    AskedTask,
    Batch,
    Bulk,
    Price,
    Product,
    RestartedTasks,
    Task,
    TaskCount,
    TaskCrawl,
    TaskStory,
    TaskWish,
)


def tasks(
    *,
    status: str | None = None,
    domain: str | None = None,
    batch: str | None = None,
    parent_task_id: int | None = None,
    priority: int | None = None,
) -> Listing[Task]:
    """Tasks, the newest first."""
    given = {"status": status, "domain": domain, "batch": batch}
    return Listing("/api/tasks", Task, {**given, "parent_task_id": parent_task_id, "priority": priority})


def task(task: int) -> Call[TaskStory]:
    """A task: where it is, why, and what comes next."""
    return Call("GET", at("/api/tasks/{}", task), one(TaskStory))


def task_history(task: int) -> Listing[TaskCrawl]:
    """All crawls of a task's URL, the newest first."""
    return Listing(at("/api/tasks/{}/history", task), TaskCrawl, {})


def task_stats() -> Call[list[TaskCount]]:
    """How many tasks are in each status, and how it went in the last day."""
    return Call("GET", "/api/stats/tasks", some(TaskCount))


def create_task(url: str, **wish: Unpack[TaskWish]) -> Call[AskedTask]:
    """Ask for a URL to be crawled, usually again and again. One that has a task which has not ended keeps that one."""
    return Call("POST", "/api/admin/tasks", one(AskedTask), body={"url": url, **wish})


def create_tasks(urls: Sequence[str], **wish: Unpack[TaskWish]) -> Call[Bulk]:
    """Ask for many, all alike; 10 000 at the most."""
    return Call("POST", "/api/admin/tasks/bulk", one(Bulk), body={"urls": list(urls), **wish})


def restart_task(
    task: int, *, reset_retry_count: bool = True, priority: int | None = None, scheduled_at: datetime | None = None
) -> Call[Task]:
    """Crawl a task again from the beginning."""
    body = {"reset_retry_count": reset_retry_count, "priority": priority, "scheduled_at": scheduled_at}
    return Call("POST", at("/api/admin/tasks/{}/restart", task), one(Task), body=body)


def restart_parsing(task: int, *, reset_retry_count: bool = True) -> Call[Task]:
    """Parse a task's page again, from the archive."""
    body = {"reset_retry_count": reset_retry_count}
    return Call("POST", at("/api/admin/tasks/{}/restart-parsing", task), one(Task), body=body)


def restart_failed(
    *,
    domain: str | None = None,
    domain_id: int | None = None,
    batch: str | None = None,
    failed_after: datetime | None = None,
    limit: int = 1000,
) -> Call[RestartedTasks]:
    """Restart failed tasks, 10 000 at the most; how many, and the first 1000. As many as `limit`: there may be more."""
    chosen = {"domain": domain, "domain_id": domain_id, "batch": batch, "failed_after": failed_after, "limit": limit}
    return Call("POST", "/api/admin/tasks/restart-failed", one(RestartedTasks), body=chosen)


def pause_task(task: int) -> Call[Task]:
    """Let a task rest."""
    return Call("POST", at("/api/admin/tasks/{}/pause", task), one(Task))


def resume_task(task: int) -> Call[Task]:
    """Let a paused task go on."""
    return Call("POST", at("/api/admin/tasks/{}/resume", task), one(Task))


def cancel_task(task: int) -> Call[Task]:
    """Give a task up, and the crawls that would follow it."""
    return Call("POST", at("/api/admin/tasks/{}/cancel", task), one(Task))


def set_priority(task: int, priority: int) -> Call[Task]:
    """Let a task come sooner (1) or later (10)."""
    return Call("PATCH", at("/api/admin/tasks/{}/priority", task), one(Task), body={"priority": priority})


# Batches and products


def batches(*, prefix: str | None = None, order: str = "newest") -> Listing[Batch]:
    """Batches; those whose names begin with `prefix`. The order is `newest` or `oldest`."""
    return Listing("/api/batches", Batch, {"prefix": prefix, "order": order})


def batch(name: str) -> Call[Batch]:
    """A batch, with how many of its tasks are in each status."""
    return Call("GET", at("/api/batches/{}", name), one(Batch))


def create_batch(name: str) -> Call[Batch]:
    """Make a batch; tasks are put into it when they are asked for."""
    return Call("POST", "/api/admin/batches", one(Batch), body={"name": name})


def restart_batch(name: str) -> Call[Operation]:
    """Restart all tasks of a batch that rest, in the background; `wait` for it."""
    return Call("POST", at("/api/admin/batches/{}/restart", name), one(Operation))


def products(
    *,
    search: str | None = None,
    brand: str | None = None,
    min_price: Decimal | None = None,
    max_price: Decimal | None = None,
    currency: str | None = None,
    domain: str | None = None,
    available: bool | None = None,
) -> Listing[Product]:
    """Products that were found on pages, those that were met last first."""
    price = {"min_price": min_price, "max_price": max_price, "currency": currency}
    given = {"search": search, "brand": brand, **price, "domain": domain, "available": available}
    return Listing("/api/products", Product, given)


def product(product: int) -> Call[Product]:
    """A product, as it was seen last."""
    return Call("GET", at("/api/products/{}", product), one(Product))


def prices(product: int) -> Listing[Price]:
    """What a product cost, the newest first."""
    return Listing(at("/api/products/{}/history", product), Price, {})
