"""Routes of tasks and batches: ask for them, list, show, restart, pause, resume, cancel, change the priority."""

from datetime import timedelta
from typing import Annotated, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import (
    DEFAULT_LIMIT,
    CursorText,
    Limit,
    Page,
    decode_id_cursor,
    decode_list_cursor,
    keyset_page,
)
from holdfast.api.request_types import BIGINT, Body, Filter, Id, Moment, ShortText, Text
from holdfast.api.responses import accepted
from holdfast.model.task import (
    DEFAULT_PRIORITY,
    DEFAULT_RETRIES,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    MAX_RETRIES,
    TaskStatus,
)
from holdfast.operations.handlers import RESTART_BATCH
from holdfast.operations.records import Operation
from holdfast.tasks.records import (
    AskedTask,
    Batch,
    BatchFilter,
    Bulk,
    FailedTasks,
    RestartedTasks,
    Task,
    TaskCrawl,
    TaskFilter,
    TaskOptions,
    TaskRestart,
    TaskStory,
)

router = APIRouter(route_class=AuthorizedRoute, tags=["tasks"])

_MAX_URLS: Final = 10_000
_MAX_RESTARTED: Final = 10_000

Priority = Annotated[int, Field(ge=HIGHEST_PRIORITY, le=LOWEST_PRIORITY, examples=[2])]
BatchName = Annotated[str, Path(max_length=255, description="The batch's name.", examples=["black friday"])]


class OptionsBody(Body):
    """Options of new tasks."""

    priority: Priority = DEFAULT_PRIORITY
    scheduled_at: Moment | None = Field(default=None, examples=["2031-12-24T18:00:00Z"])
    """Not before then; null: now."""
    crawl_frequency: timedelta | None = Field(default=None, examples=["PT6H"])
    """How long after its end it is crawled again (ISO 8601, or seconds); null: as the domain says."""
    is_recurring: bool = True
    max_retries: Annotated[int, Field(ge=0, le=MAX_RETRIES)] = DEFAULT_RETRIES
    parent_task_id: Annotated[int | None, Field(ge=1, le=BIGINT)] = None
    """Not before this task is completed."""
    batch: ShortText | None = Field(default=None, examples=["black friday"])
    """By name; it must exist."""
    webhook_url: Text | None = Field(default=None, examples=["https://receiver.example/hook"])
    """The receiver of a message when it ends."""
    parser_name: Annotated[str | None, Field(min_length=1, max_length=100, examples=["product"])] = None
    """null: the domain's parser."""

    def options(self) -> TaskOptions:
        """The options without the URLs."""
        return TaskOptions(**self.model_dump(include=set(OptionsBody.model_fields)))


class NewTask(OptionsBody):
    """A task to create."""

    url: Text = Field(examples=["https://shop.example/offer"])
    """Or a domain."""


class NewTasks(OptionsBody):
    """Tasks to create, with the same options."""

    urls: Annotated[
        list[str], Field(min_length=1, max_length=_MAX_URLS, examples=[["https://shop.example/1", "shop.example/2"]])
    ]


class Restart(Body):
    """Options of a restart."""

    reset_retry_count: bool = True
    priority: Annotated[Priority | None, Field(examples=[1])] = None
    """null: as it was."""
    scheduled_at: Moment | None = Field(default=None, examples=["2031-12-24T18:00:00Z"])
    """null: now."""


class RestartParsing(Body):
    """Options of a restart of the parsing."""

    reset_retry_count: bool = True


class RestartFailed(Body):
    """Which failed tasks to restart; a field that is left out restricts nothing."""

    domain: ShortText | None = Field(default=None, examples=["shop.example"])
    domain_id: Annotated[int | None, Field(ge=1, le=BIGINT)] = None
    """The same by its id."""
    batch: ShortText | None = Field(default=None, examples=["black friday"])
    failed_after: Moment | None = Field(default=None, examples=["2031-12-24T18:00:00Z"])
    """Those that failed then or later."""
    limit: Annotated[int, Field(ge=1, le=_MAX_RESTARTED)] = 1000


class NewPriority(Body):
    """The new priority of a task."""

    priority: Priority


class NewBatch(Body):
    """A batch to create."""

    name: ShortText = Field(examples=["black friday"])


# Tasks


@router.get("/api/tasks", summary="Tasks", responses=documented(404))
def tasks(
    services: Services,
    request: Request,
    response: Response,
    status: TaskStatus | None = None,
    domain: Filter = None,
    batch: Annotated[Filter, Query(description="By name.")] = None,
    parent_task_id: Annotated[int | None, Query(ge=1, le=BIGINT)] = None,
    priority: Annotated[int | None, Query(ge=HIGHEST_PRIORITY, le=LOWEST_PRIORITY)] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Task]:
    """A domain or a batch that is not known is a 404."""
    where = TaskFilter(status, domain, batch, parent_task_id, priority)
    found = services.tasks.page(where, order=order, after=decode_list_cursor("tasks", order, cursor), limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/tasks/{id}", summary="A task", responses=documented(404))
def task(id: Id, services: Services) -> TaskStory:  # noqa: A002 — the name of the parameter
    """Where it is, why, and what comes next."""
    return services.tasks.story(id)


@router.get("/api/tasks/{id}/history", summary="All crawls of a task's URL", responses=documented(404))
def history(
    id: Id,  # noqa: A002 — the name of the parameter
    services: Services,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[TaskCrawl]:
    """The newest first, each with all that happened to it."""
    found = services.tasks.history(id, before=decode_id_cursor(cursor), limit=limit)
    key = (found[-1].task.id,) if len(found) == limit else None
    return keyset_page(request, response, found, key)


@router.post(
    "/api/admin/tasks",
    summary="Ask for a task",
    status_code=201,
    responses={200: {"model": AskedTask, "description": "The URL has a task that has not ended"}, **documented(404)},
)
def add(body: NewTask, response: Response, services: Services, caller: Caller) -> AskedTask:
    """A URL that has a task which has not ended keeps that one, as it is (200). A batch or parent that is not known is a 404."""
    asked = services.tasks.add(body.url, body.options(), actor=caller.name)
    response.headers["Location"] = f"/api/tasks/{asked.id}"
    if not asked.created:
        response.status_code = 200
    return asked


@router.post("/api/admin/tasks/bulk", summary="Ask for many tasks", responses=documented(404))
def add_many(body: NewTasks, services: Services, caller: Caller) -> Bulk:
    """What is no URL is reported with its place, and the rest is made. Asking for the same again adds what is missing."""
    *_, bulk = services.tasks.add_many(body.urls, body.options(), actor=caller.name)
    return bulk


@router.post("/api/admin/tasks/restart-failed", summary="Restart failed tasks", responses=documented(404))
def restart_failed(services: Services, caller: Caller, body: RestartFailed | None = None) -> RestartedTasks:
    """Of each URL the newest task, if it failed. A domain or a batch that is not known is a 404."""
    body = body or RestartFailed()
    return services.tasks.restart_failed(
        actor=caller.name,
        domain=body.domain,
        domain_id=body.domain_id,
        batch=body.batch,
        since=body.failed_after,
        limit=body.limit,
    )


@router.get("/api/tasks/failed/count", summary="How many failed tasks can be restarted", responses=documented(404))
def count_failed(
    services: Services,
    domain: Filter = None,
    batch: Annotated[Filter, Query(description="By name.")] = None,
    failed_after: Annotated[Moment | None, Query(description="Those that failed then or later.")] = None,
) -> FailedTasks:
    """What a restart of failed tasks with the same filters would restart. Of many, the first are counted."""
    return services.tasks.count_failed(domain=domain, batch=batch, since=failed_after)


@router.post("/api/admin/tasks/{id}/restart", summary="Crawl a task again", responses=documented(404))
def restart(
    id: Id,  # noqa: A002 — the name of the parameter
    services: Services,
    caller: Caller,
    body: Restart | None = None,
) -> TaskRestart:
    """From the beginning. It is for tasks that are completed, failed, paused or cancelled; one that is pending stays as it is."""
    body = body or Restart()
    return services.tasks.restart(
        id,
        actor=caller.name,
        reset_retries=body.reset_retry_count,
        priority=body.priority,
        scheduled_at=body.scheduled_at,
    )


@router.post("/api/admin/tasks/{id}/restart-parsing", summary="Parse a task's page again", responses=documented(404))
def restart_parsing(
    id: Id,  # noqa: A002 — the name of the parameter
    services: Services,
    caller: Caller,
    body: RestartParsing | None = None,
) -> TaskRestart:
    """From the archive, without fetching it. A task without a page there is a 409."""
    body = body or RestartParsing()
    return services.tasks.restart_parsing(id, actor=caller.name, reset_retries=body.reset_retry_count)


@router.post("/api/admin/tasks/{id}/pause", summary="Pause a task", responses=documented(404))
def pause(id: Id, services: Services, caller: Caller) -> Task:  # noqa: A002 — the name of the parameter
    """The result of a crawl or a parse that is under way does not count. To pause it twice is no error."""
    return services.tasks.pause(id, actor=caller.name)


@router.post("/api/admin/tasks/{id}/resume", summary="Resume a paused task", responses=documented(404))
def resume(id: Id, services: Services, caller: Caller) -> Task:  # noqa: A002 — the name of the parameter
    """It is pending, and due at once. One that has not ended and is not paused stays as it is."""
    return services.tasks.resume(id, actor=caller.name)


@router.post("/api/admin/tasks/{id}/cancel", summary="Cancel a task", responses=documented(404))
def cancel(id: Id, services: Services, caller: Caller) -> Task:  # noqa: A002 — the name of the parameter
    """Its URL is not crawled again by itself, either. To cancel it twice is no error."""
    return services.tasks.cancel(id, actor=caller.name)


@router.patch("/api/admin/tasks/{id}/priority", summary="Set the priority of a task", responses=documented(404))
def set_priority(
    id: Id,  # noqa: A002 — the name of the parameter
    body: NewPriority,
    services: Services,
    caller: Caller,
) -> Task:
    """Also of those that follow it. What is being fetched already is not interrupted."""
    return services.tasks.set_priority(id, body.priority, actor=caller.name)


# Batches


@router.get("/api/batches", summary="Batches")
def batches(
    services: Services,
    request: Request,
    response: Response,
    prefix: Annotated[Filter, Query(description="Only those whose names begin so.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Batch]:
    """With how many of their tasks are in each status."""
    after = decode_list_cursor("batches", order, cursor)
    found = services.tasks.batches(BatchFilter(prefix), order=order, after=after, limit=limit)
    return keyset_page(request, response, found.rows, found.next)


# A name may have slashes in it.
@router.get("/api/batches/{name:path}", summary="A batch", responses=documented(404))
def batch(name: BatchName, services: Services) -> Batch:
    """How many of its tasks are in each status."""
    return services.tasks.batch(name)


@router.post("/api/admin/batches", summary="Make a batch", status_code=201)
def add_batch(body: NewBatch, response: Response, services: Services, caller: Caller) -> Batch:
    """Tasks are put into it when they are asked for. A name that another one has is a 409."""
    created = services.tasks.create_batch(body.name, actor=caller.name)
    response.headers["Location"] = f"/api/batches/{quote(created.name, safe='')}"
    return created


@router.post(
    "/api/admin/batches/{name:path}/restart",
    summary="Restart all tasks of a batch",
    status_code=202,
    responses=documented(404),
)
def restart_batch(name: BatchName, response: Response, services: Services, caller: Caller) -> Operation:
    """Those that are completed, failed, cancelled or paused. There may be many of them: the operation says how far it is."""
    arguments = {"name": services.tasks.batch(name).name}
    return accepted(response, services.operations.ask(RESTART_BATCH, arguments, actor=caller.name))
