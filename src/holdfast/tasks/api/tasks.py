"""Tasks: asked for, looked at, restarted, paused, resumed, cancelled and hurried."""

from datetime import datetime, timedelta
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BeforeValidator, Field

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
from holdfast.api.request_types import BIGINT, Body, Filter, Id, Moment, ShortText, Text, View
from holdfast.control.list_filters import TaskFilter
from holdfast.model import task as model
from holdfast.model.task import TaskStatus
from holdfast.tasks.service import Wish

router = APIRouter(route_class=AuthorizedRoute, tags=["tasks"])

_MOST_URLS: Final = 10_000
_MOST_RESTARTED: Final = 10_000
_MOST_NAMED: Final = 1000
"""Restarted tasks that an answer lists."""

Priority = Annotated[int, Field(ge=model.HIGHEST_PRIORITY, le=model.LOWEST_PRIORITY, examples=[2])]
Hex = Annotated[str, BeforeValidator(lambda value: value.hex() if isinstance(value, bytes) else value)]


class ArchiveView(View):
    """Where the bytes of a page are."""

    segment: str
    """A file of the archive."""
    offset: int
    length: int
    payload_digest: Hex
    """SHA-256 of the body."""


class TaskView(View):
    """One crawl of one URL: it is fetched in one phase and parsed in another."""

    id: int
    url: str
    domain: str
    domain_id: int
    status: TaskStatus
    status_reason: str
    priority: int
    """From 1 (first) to 10."""
    scheduled_at: datetime
    """Not before then."""
    started_at: datetime | None
    completed_at: datetime | None
    """When it ended, well or not."""
    retry_count: int
    max_retries: int
    error_message: str | None
    crawl_frequency: timedelta
    """How long after its end it is crawled again."""
    next_crawl_at: datetime | None
    recrawl_count: int
    is_recurring: bool
    http_status_code: int | None
    response_time_ms: int | None
    proxy_id: int | None
    archive: ArchiveView | None
    """null: there is no page of it."""
    created_at: datetime
    updated_at: datetime
    created_by: str
    parent_task_id: int | None
    """It waits until that one is completed."""
    previous_task_id: int | None
    """The crawl of the same URL before it."""
    batch_id: int | None
    webhook_url: str | None
    waits_for: str | None
    """`domain` or `parent`, if the schedule has set it aside."""
    parser_name: str | None
    """Who is to parse it; null: the domain's parser."""
    parsed_by: str | None
    parser_version: str | None
    parse_after: datetime | None
    """While it waits to be parsed: not before then."""
    attempt: int
    version: int


class AskedView(TaskView):
    """A task that was asked for."""

    created: bool
    """False: its URL had a task that has not ended; it is this one, and stays as it was."""


class RestartedView(TaskView):
    """A task that was restarted."""

    task_id: int
    """The same as `id`."""
    restarted: bool
    """False: it was waiting for that already, and stays as it was."""
    message: str


class NextView(View):
    """What comes next."""

    what: str
    at: datetime | None
    """When, if that is known."""


class WaitView(View):
    """Something that has to happen first."""

    what: str
    until: datetime | None


class StoryView(TaskView):
    """A task, why it is where it is, and what comes next."""

    batch: str | None
    moved_to: str | None
    """Where redirects have led it to so far."""
    next: NextView
    waits: list[WaitView]
    """What its URL waits for in the frontier."""


class EventView(View):
    """One change of a task's status."""

    version: int
    at: datetime
    from_status: TaskStatus
    to_status: TaskStatus
    why: str
    attempt: int
    claim_epoch: int | None


class CrawlView(View):
    """One crawl of a URL."""

    task: TaskView
    events: list[EventView]
    """All that happened to it, the first first."""


class WishBody(Body):
    """How tasks are to be."""

    priority: Priority = model.DEFAULT_PRIORITY
    scheduled_at: Moment | None = Field(default=None, examples=["2031-12-24T18:00:00Z"])
    """Not before then; null: now."""
    crawl_frequency: timedelta | None = Field(default=None, examples=["PT6H"])
    """How long after its end it is crawled again (ISO 8601, or seconds); null: as the domain says."""
    is_recurring: bool = True
    max_retries: Annotated[int, Field(ge=0, le=model.MAX_RETRIES)] = model.DEFAULT_RETRIES
    parent_task_id: Annotated[int | None, Field(ge=1, le=BIGINT)] = None
    """Not before this task is completed."""
    batch: ShortText | None = Field(default=None, examples=["black friday"])
    """By name; it must exist."""
    webhook_url: Text | None = Field(default=None, examples=["https://receiver.example/hook"])
    """Who is told when it ends."""
    parser_name: Annotated[str | None, Field(min_length=1, max_length=100, examples=["product"])] = None
    """null: the domain's parser."""

    def wish(self) -> Wish:
        """As control takes it."""
        return Wish(
            priority=self.priority,
            scheduled_at=self.scheduled_at,
            frequency=self.crawl_frequency,
            recurring=self.is_recurring,
            max_retries=self.max_retries,
            parent_task_id=self.parent_task_id,
            batch=self.batch,
            webhook_url=self.webhook_url,
            parser=self.parser_name,
        )


class NewTask(WishBody):
    """A task to be made."""

    url: Text = Field(examples=["https://shop.example/offer"])
    """Or a domain."""


class NewTasks(WishBody):
    """Tasks to be made, all alike."""

    urls: Annotated[
        list[str], Field(min_length=1, max_length=_MOST_URLS, examples=[["https://shop.example/1", "shop.example/2"]])
    ]


class BadUrlView(View):
    """A URL that no task can be made of."""

    place: int
    """Among `urls`, from 1."""
    problem: str


class BulkView(View):
    """What came of asking for many tasks."""

    seen: int
    created: int
    known: int
    """Their URLs had tasks that have not ended; these stay as they were."""
    bad: int
    bad_urls: list[BadUrlView]
    """The first 1000 of them."""


class Restart(Body):
    """How a task is to be crawled again."""

    reset_retry_count: bool = True
    priority: Annotated[Priority | None, Field(examples=[1])] = None
    """null: as it was."""
    scheduled_at: Moment | None = Field(default=None, examples=["2031-12-24T18:00:00Z"])
    """null: now."""


class RestartParsing(Body):
    """How a page is to be parsed again."""

    reset_retry_count: bool = True


class RestartFailed(Body):
    """Which failed tasks are to be restarted; what is left out restricts nothing."""

    domain: ShortText | None = Field(default=None, examples=["shop.example"])
    domain_id: Annotated[int | None, Field(ge=1, le=BIGINT)] = None
    """The same by its id."""
    batch: ShortText | None = Field(default=None, examples=["black friday"])
    failed_after: Moment | None = Field(default=None, examples=["2031-12-24T18:00:00Z"])
    """Those that failed then or later."""
    limit: Annotated[int, Field(ge=1, le=_MOST_RESTARTED)] = 1000


class RestartedTask(View):
    """One of many that were restarted."""

    id: int
    url: str


class RestartedMany(View):
    """The tasks that were restarted."""

    restarted: int
    """How many. As many as `limit`: there may be more; ask again."""
    tasks: list[RestartedTask]
    """The first 1000 of them."""


class NewPriority(Body):
    """When a task comes."""

    priority: Priority


@router.get("/api/tasks", summary="Tasks", responses=documented(404))
def tasks(
    services: Services,
    request: Request,
    response: Response,
    status: TaskStatus | None = None,
    domain: Filter = None,
    batch: Annotated[Filter, Query(description="By name.")] = None,
    parent_task_id: Annotated[int | None, Query(ge=1, le=BIGINT)] = None,
    priority: Annotated[int | None, Query(ge=model.HIGHEST_PRIORITY, le=model.LOWEST_PRIORITY)] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[TaskView]:
    """A domain or a batch that is not known is a 404."""
    query = TaskFilter(status, domain, batch, parent_task_id, priority)
    found = services.listings.tasks(query, order=order, after=decode_list_cursor("tasks", order, cursor), limit=limit)
    return keyset_page(request, response, [TaskView.of(task) for task in found.rows], found.next)


@router.get("/api/tasks/{id}", summary="A task", responses=documented(404))
def task(id: Id, services: Services) -> StoryView:  # noqa: A002 — the name of the parameter
    """Where it is, why, and what comes next."""
    story = services.tasks.story(id)
    return StoryView.of(story.task, batch=story.batch, moved_to=story.moved_to, next=story.next, waits=story.waits)


@router.get("/api/tasks/{id}/history", summary="All crawls of a task's URL", responses=documented(404))
def history(
    id: Id,  # noqa: A002 — the name of the parameter
    services: Services,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[CrawlView]:
    """The newest first, each with all that happened to it."""
    found = services.tasks.history(id, before=decode_id_cursor(cursor), limit=limit)
    key = (found[-1].task.id,) if len(found) == limit else None
    return keyset_page(request, response, [CrawlView.of(crawled) for crawled in found], key)


@router.post(
    "/api/admin/tasks",
    summary="Ask for a task",
    status_code=201,
    responses={200: {"model": AskedView, "description": "The URL has a task that has not ended"}, **documented(404)},
)
def add(given: NewTask, response: Response, services: Services, caller: Caller) -> AskedView:
    """A URL that has a task which has not ended keeps that one, as it is (200). A batch or parent that is not known is a 404."""
    asked = services.tasks.add(given.url, given.wish(), actor=caller.name)
    response.headers["Location"] = f"/api/tasks/{asked.task.id}"
    if not asked.created:
        response.status_code = 200
    return AskedView.of(asked.task, created=asked.created)


@router.post("/api/admin/tasks/bulk", summary="Ask for many tasks", responses=documented(404))
def add_many(given: NewTasks, services: Services, caller: Caller) -> BulkView:
    """What is no URL is reported with its place, and the rest is made. Asking for the same again adds what is missing."""
    *_, bulk = services.tasks.add_many(given.urls, given.wish(), actor=caller.name)
    bad = [BadUrlView(place=place, problem=problem) for place, problem in bulk.bad_urls]
    return BulkView.of(bulk, bad_urls=bad)


@router.post("/api/admin/tasks/restart-failed", summary="Restart failed tasks", responses=documented(404))
def restart_failed(services: Services, caller: Caller, given: RestartFailed | None = None) -> RestartedMany:
    """Of each URL the newest task, if it failed. A domain or a batch that is not known is a 404."""
    chosen = given or RestartFailed()
    started: list[RestartedTask] = []
    count = services.tasks.restart_failed(
        actor=caller.name,
        domain=chosen.domain,
        domain_id=chosen.domain_id,
        batch=chosen.batch,
        since=chosen.failed_after,
        limit=chosen.limit,
        tell=lambda some: started.extend(RestartedTask.of(one) for one in some[: _MOST_NAMED - len(started)]),
    )
    return RestartedMany(restarted=count, tasks=started)


@router.post("/api/admin/tasks/{id}/restart", summary="Crawl a task again", responses=documented(404))
def restart(
    id: Id,  # noqa: A002 — the name of the parameter
    services: Services,
    caller: Caller,
    given: Restart | None = None,
) -> RestartedView:
    """From the beginning. It is for tasks that are completed, failed, paused or cancelled; one that is pending stays as it is."""
    how = given or Restart()
    changed: list[bool] = []
    found = services.tasks.restart(
        id,
        actor=caller.name,
        reset_retries=how.reset_retry_count,
        priority=how.priority,
        scheduled_at=how.scheduled_at,
        tell=changed.append,
    )
    return _restarted(found, changed, "Task restarted successfully")


@router.post("/api/admin/tasks/{id}/restart-parsing", summary="Parse a task's page again", responses=documented(404))
def restart_parsing(
    id: Id,  # noqa: A002 — the name of the parameter
    services: Services,
    caller: Caller,
    given: RestartParsing | None = None,
) -> RestartedView:
    """From the archive, without fetching it. A task without a page there is a 409."""
    how = given or RestartParsing()
    changed: list[bool] = []
    found = services.tasks.restart_parsing(
        id, actor=caller.name, reset_retries=how.reset_retry_count, tell=changed.append
    )
    return _restarted(found, changed, "Parsing restarted successfully")


@router.post("/api/admin/tasks/{id}/pause", summary="Let a task rest", responses=documented(404))
def pause(id: Id, services: Services, caller: Caller) -> TaskView:  # noqa: A002 — the name of the parameter
    """What comes of it, if it is being crawled or parsed, does not count. To pause it twice is no error."""
    return TaskView.of(services.tasks.pause(id, actor=caller.name))


@router.post("/api/admin/tasks/{id}/resume", summary="Let a paused task go on", responses=documented(404))
def resume(id: Id, services: Services, caller: Caller) -> TaskView:  # noqa: A002 — the name of the parameter
    """It is pending, and due at once. One that has not ended and is not paused stays as it is."""
    return TaskView.of(services.tasks.resume(id, actor=caller.name))


@router.post("/api/admin/tasks/{id}/cancel", summary="Give a task up", responses=documented(404))
def cancel(id: Id, services: Services, caller: Caller) -> TaskView:  # noqa: A002 — the name of the parameter
    """Its URL is not crawled again by itself, either. To cancel it twice is no error."""
    return TaskView.of(services.tasks.cancel(id, actor=caller.name))


@router.patch("/api/admin/tasks/{id}/priority", summary="Let a task come sooner or later", responses=documented(404))
def set_priority(
    id: Id,  # noqa: A002 — the name of the parameter
    given: NewPriority,
    services: Services,
    caller: Caller,
) -> TaskView:
    """Also those that follow it. What is being fetched already is not interrupted."""
    return TaskView.of(services.tasks.set_priority(id, given.priority, actor=caller.name))


def _restarted(found: model.Task, changed: list[bool], message: str) -> RestartedView:
    """The answer to a restart; `changed` says whether there was anything to do."""
    restarted = any(changed)
    said = message if restarted else f"Nothing was changed: the task is {found.status} already"
    return RestartedView.of(found, task_id=found.id, restarted=restarted, message=said)
