"""Tasks and batches: statistics, list, one task with its history, create, restart, pause, resume, cancel, priority."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from fastapi import Request, Response

from holdfast.api.app_services import AppServices, Services
from holdfast.api.forms import Form, read_form
from holdfast.api.pagination import decode_list_cursor
from holdfast.api.request_types import Id
from holdfast.dashboard.lists import ROWS, list_at, read_list
from holdfast.dashboard.live import Parameters, id_of, live_view
from holdfast.dashboard.rendering import Context, query
from holdfast.dashboard.route import page_router
from holdfast.dashboard.text import plural
from holdfast.db.keyset_pagination import Page
from holdfast.errors import UsageError
from holdfast.model.duration import parse_units
from holdfast.model.task import (
    DEFAULT_PRIORITY,
    DEFAULT_RETRIES,
    HIGHEST_PRIORITY,
    LOWEST_PRIORITY,
    OPERATIONS,
    OperationVerdict,
    TaskStatus,
)
from holdfast.operations.handlers import RESTART_BATCH
from holdfast.tasks.api import BatchName
from holdfast.tasks.records import Batch, BatchFilter, Task, TaskFilter, TaskOptions

router = page_router()

_MAX_URLS: Final = 10_000
"""Tasks that one form asks for."""
_MAX_RESTARTED: Final = 10_000
_PROBLEMS_SHOWN: Final = 5
_HISTORY: Final = 20
"""Crawls of a task's URL on its page."""
_PRIORITIES: Final = range(HIGHEST_PRIORITY, LOWEST_PRIORITY + 1)


def read_tasks(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return how many tasks are in each status, and the list."""

    def read(form: Form) -> Page[Task]:
        order = form.text("order") or "newest"
        where = TaskFilter(
            form.choice("status", "Status", TaskStatus),
            form.text("domain"),
            form.text("batch"),
            form.integer("parent", "Parent"),
            form.integer("priority", "Priority"),
        )
        after = decode_list_cursor("tasks", order, form.text("cursor"))
        return services.tasks.page(where, order=order, after=after, limit=ROWS)

    return {"counts": services.task_counts.get(), "shown": list_at("/tasks", parameters, read)}


def read_task(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return one task with its history. Raises NotFound."""
    task = services.tasks.story(id_of(parameters))
    verdicts = OPERATIONS[task.status]
    return {
        "task": task,
        "can": {operation.value for operation, verdict in verdicts.items() if verdict is OperationVerdict.ACT},
        "history": services.tasks.history(task.id, limit=_HISTORY),
    }


LIST: Final = live_view("tasks", read_tasks, {"task-counts": "tasks/_counts.html", "tasks-list": "tasks/_list.html"})
TASK: Final = live_view("task", read_task, {"task-now": "tasks/_now.html", "task-history": "tasks/_history.html"})


@router.get("/tasks")
def tasks(context: Context, services: Services) -> Response:
    """Tasks by status, and the list."""
    parameters = context.request.query_params
    values = read_tasks(services, parameters)
    shown = values["shown"]
    return context.page(
        "tasks/list.html",
        **values,
        notice=shown.notice,
        statuses=list(TaskStatus),
        priorities=_PRIORITIES,
        live=LIST.address(parameters) if shown.moves else "",
    )


@router.get("/tasks/new")
def new(context: Context) -> Response:
    """A form for one or many new tasks."""
    return context.page(
        "tasks/new.html", priorities=_PRIORITIES, default_priority=DEFAULT_PRIORITY, default_retries=DEFAULT_RETRIES
    )


@router.post("/tasks")
def add(context: Context, request: Request, services: Services) -> Response:
    """Ask for a task for each URL of a form."""
    form = read_form(request)
    urls = form.lines("urls")
    if not urls:
        raise UsageError("Fill in “URLs”: one on each line.")
    if len(urls) > _MAX_URLS:
        raise UsageError(
            f"A form takes {_MAX_URLS:,} URLs, not {len(urls):,}; `holdfast tasks add --file` takes any number."
        )
    options = _options(form)
    if len(urls) == 1:
        asked = services.tasks.add(urls[0], options, actor=context.caller.name)
        said = "is created" if asked.created else "exists and has not ended; it stays as it is"
        return context.redirect(f"/tasks/{asked.id}", f"Task {asked.id} {said}.")
    *_, bulk = services.tasks.add_many(urls, options, actor=context.caller.name)
    said = f"Created {plural(bulk.created, 'task')}."
    if bulk.known:
        said += f" {plural(bulk.known, 'URL has', 'URLs have')} a task that has not ended, which stays as it is."
    if bulk.bad:
        lines = " ".join(f"Line {one.place}: {one.problem}" for one in bulk.bad_urls[:_PROBLEMS_SHOWN])
        form.replace("urls", "\n".join(urls[one.place - 1] for one in bulk.bad_urls))
        return new(context.refused(form, f"{said} {plural(bulk.bad, 'line')} refused. {lines}"))
    return context.redirect(query("/tasks", batch=options.batch), said)


@router.get("/tasks/restart-failed")
def confirm_restart_failed(context: Context, services: Services, request: Request) -> Response:
    """How many failed tasks the filters match, and a button that restarts them."""
    form = Form(list(request.query_params.multi_items()))
    domain, batch = form.text("domain"), form.text("batch")
    count = services.tasks.count_failed(domain=domain, batch=batch, since=form.moment("since", "Failed since"))
    return context.page(
        "tasks/restart_failed.html",
        count=count,
        domain=domain,
        batch=batch,
        since=form.text("since"),
        most=_MAX_RESTARTED,
    )


@router.post("/tasks/restart-failed")
def restart_failed(context: Context, request: Request, services: Services) -> Response:
    """Restart failed tasks."""
    form = read_form(request)
    domain, batch = form.text("domain"), form.text("batch")
    since = form.moment("since", "Failed since")
    done = services.tasks.restart_failed(
        actor=context.caller.name, domain=domain, batch=batch, since=since, limit=_MAX_RESTARTED
    )
    more = " There may be more: do it again." if done.restarted == _MAX_RESTARTED else ""
    said = f"Restarted {plural(done.restarted, 'task')}.{more}"
    return context.redirect(query("/tasks", domain=domain, batch=batch), said)


# One task


@router.get("/tasks/{id}")
def task(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """One task: where it is, why, what comes next, and the crawls of its URL."""
    parameters = {"id": str(id)}
    return context.page(
        "tasks/task.html", **read_task(services, parameters), live=TASK.address(parameters), priorities=_PRIORITIES
    )


@router.post("/tasks/{id}/restart")
def restart(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Crawl a task again from the beginning."""
    done = services.tasks.restart(id, actor=context.caller.name)
    return context.redirect(f"/tasks/{id}", f"{done.message}.")


@router.post("/tasks/{id}/restart-parsing")
def restart_parsing(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Parse a task's page again, from the archive."""
    done = services.tasks.restart_parsing(id, actor=context.caller.name)
    return context.redirect(f"/tasks/{id}", f"{done.message}.")


@router.post("/tasks/{id}/pause")
def pause(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Pause a task."""
    services.tasks.pause(id, actor=context.caller.name)
    return context.redirect(f"/tasks/{id}", f"Task {id} is paused until it is resumed.")


@router.post("/tasks/{id}/resume")
def resume(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Resume a paused task."""
    services.tasks.resume(id, actor=context.caller.name)
    return context.redirect(f"/tasks/{id}", f"Task {id} is resumed, and due at once.")


@router.post("/tasks/{id}/cancel")
def cancel(id: Id, context: Context, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Cancel a task, and the crawls that would follow it. A restart starts it again."""
    services.tasks.cancel(id, actor=context.caller.name)
    return context.redirect(f"/tasks/{id}", f"Task {id} is cancelled; its URL is not crawled again by itself.")


@router.post("/tasks/{id}/priority")
def set_priority(id: Id, context: Context, request: Request, services: Services) -> Response:  # noqa: A002 — the name of the parameter
    """Set the priority of a task."""
    priority = read_form(request).integer("priority", "Priority")
    if priority is None:
        raise UsageError("Choose a priority.")
    done = services.tasks.set_priority(id, priority, actor=context.caller.name)
    return context.redirect(f"/tasks/{id}", f"Task {id} has priority {done.priority}.")


# Batches


@router.get("/batches")
def batches(context: Context, services: Services) -> Response:
    """Batches with how many of their tasks are in each status, and a form for a new one."""

    def read(form: Form) -> Page[Batch]:
        after = decode_list_cursor("batches", "newest", form.text("cursor"))
        return services.tasks.batches(BatchFilter(form.text("prefix")), after=after, limit=ROWS)

    shown = read_list(context, read)
    return context.page("tasks/batches.html", notice=shown.notice, shown=shown)


@router.post("/batches")
def add_batch(context: Context, request: Request, services: Services) -> Response:
    """Make a batch."""
    created = services.tasks.create_batch(read_form(request).required("name", "Name"), actor=context.caller.name)
    return context.redirect(
        _batch_path(created.name), f"The batch {created.name} is made. Name it when you create tasks."
    )


# A name may have slashes in it.
@router.get("/batches/{name:path}")
def batch(name: BatchName, context: Context, services: Services) -> Response:
    """One batch: its tasks by status, and what restarting it would do."""
    found = services.tasks.batch(name)
    restartable = sum(
        count
        for status, count in found.tasks.items()
        if status in {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.PAUSED}
    )
    return context.page("tasks/batch.html", batch=found, restartable=restartable, statuses=list(TaskStatus))


@router.post("/batches/{name:path}/restart")
def restart_batch(name: BatchName, context: Context, services: Services) -> Response:
    """Restart all tasks of a batch that are not under way, as an operation."""
    arguments = {"name": services.tasks.batch(name).name}
    asked = services.operations.ask(RESTART_BATCH, arguments, actor=context.caller.name)
    return context.redirect(f"/operations/{asked.id}", f"The restart of the batch is operation {asked.id}.")


def _options(form: Form) -> TaskOptions:
    priority, retries = form.integer("priority", "Priority"), form.integer("max_retries", "Retries")
    frequency = form.text("crawl_frequency")
    every = None if frequency is None else parse_units(frequency)
    if frequency is not None and every is None:
        raise UsageError("“Again every” must be a duration with its unit, such as 6h or 30d.")
    return TaskOptions(
        priority=DEFAULT_PRIORITY if priority is None else priority,
        scheduled_at=form.moment("scheduled_at", "Not before"),
        crawl_frequency=every,
        is_recurring=form.flag("is_recurring"),
        max_retries=DEFAULT_RETRIES if retries is None else retries,
        parent_task_id=form.integer("parent", "After task"),
        batch=form.text("batch"),
        webhook_url=form.text("webhook_url"),
        parser_name=form.text("parser_name"),
    )


def _batch_path(name: str) -> str:
    return f"/batches/{quote(name, safe='')}"
