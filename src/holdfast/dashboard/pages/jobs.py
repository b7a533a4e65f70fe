"""The list of jobs, and actions on all jobs that match a filter."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from fastapi import BackgroundTasks, Query, Request, Response

from holdfast.api.app_services import AppServices
from holdfast.api.forms import Form, read_form
from holdfast.api.pagination import CursorText, decode_list_cursor
from holdfast.api.request_types import Filter
from holdfast.api.responses import log_failures
from holdfast.dashboard.live import Parameters, live_view
from holdfast.dashboard.rendering import Context, PageContext, query
from holdfast.dashboard.route import page_router
from holdfast.dashboard.text import plural
from holdfast.errors import UsageError
from holdfast.jobs.records import JobFilter
from holdfast.jobs.service import MAX_AT_ONCE
from holdfast.model.auth import LOCAL_ADMIN
from holdfast.model.job import JobAction, JobState

router = page_router()

ORDERS: Final = ("newest", "oldest")
_ROWS: Final = 50
_FILTERS: Final = ("state", "prefix", "scheduled")
_DONE: Final = {JobAction.PAUSE: "paused", JobAction.RESUME: "resumed", JobAction.CANCEL: "cancelled"}
_EFFECTS: Final = {
    JobAction.PAUSE: "Their requests stop within two seconds. “Resume” continues where they stopped.",
    JobAction.RESUME: "Workers continue where they were.",
    JobAction.CANCEL: "They end where they are. Their pages stay; “Crawl again” starts one anew.",
}


def read(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return one page of the list."""
    order = parameters.get("order", ORDERS[0])
    found = services.jobs(LOCAL_ADMIN).page(
        _filter(parameters),
        order=order,
        after=decode_list_cursor("jobs", order, parameters.get("cursor")),
        limit=_ROWS,
    )
    return {"jobs": found.rows, "next": found.next, "filtered": any(parameters.get(name) for name in _FILTERS)}


VIEW: Final = live_view("jobs", read, {"jobs-table": "jobs/_table.html"})


@router.get("/jobs")
def jobs(
    context: Context,
    state: JobState | Literal[""] | None = None,
    prefix: Filter = None,
    scheduled: Literal["", "yes"] | None = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    do: Annotated[JobAction | None, Query(description="The action to confirm.")] = None,
) -> Response:
    """The list of jobs; with `do`, the page that asks whether to do that to all jobs that match."""
    given = {"state": state, "prefix": prefix, "scheduled": scheduled}
    if do is not None and context.is_admin:
        return _confirm(context, do, given)
    parameters = {name: str(value) for name, value in {**given, "order": order, "cursor": cursor}.items() if value}
    found = read(context.services, parameters)
    return context.page(
        "jobs/list.html",
        **found,
        live=VIEW.address(parameters),
        states=list(JobState),
        orders=ORDERS,
        actions=list(JobAction),
        given={name: given[name] or "" for name in _FILTERS},
        order=order,
        next_page=context.next_page(found["next"]),
        first_page=context.with_query(cursor=None) if cursor else "",
    )


@router.post("/jobs/actions")
def act_on_all(context: Context, request: Request, after: BackgroundTasks) -> Response:
    """Pause, resume or cancel all jobs that match the filter."""
    form = read_form(request)
    action = _action(form)
    where = {name: form.text(name) or "" for name in _FILTERS}
    service = context.services.jobs(context.caller)
    changed, ids = service.act_on_all(_filter(where), action)
    if action is JobAction.RESUME:
        for job_id in ids:
            after.add_task(log_failures(service.finish_resume), job_id)
    more = f" Further jobs match; {MAX_AT_ONCE} are changed at once." if changed.more else ""
    shown = {name: value for name, value in where.items() if name != "state"}  # they are in another state now
    return context.redirect(query("/jobs", **shown), f"{plural(changed.jobs, 'job')} {_DONE[action]}.{more}")


def _confirm(context: PageContext, action: JobAction, given: Mapping[str, Any]) -> Response:
    matching = context.services.jobs(context.caller).matching(_filter(given), action)
    return context.page(
        "jobs/confirm_action.html",
        action=action,
        matching=matching,
        effect=_EFFECTS[action],
        limit=MAX_AT_ONCE,
        given={name: given[name] or "" for name in _FILTERS},
    )


def _filter(given: Mapping[str, Any]) -> JobFilter:
    state = given.get("state")
    if state and state not in set(JobState):
        raise UsageError(f"A job is {', '.join(JobState)}; not {state!r}.")
    return JobFilter(
        JobState(state) if state else None, given.get("prefix") or None, True if given.get("scheduled") else None
    )


def _action(form: Form) -> JobAction:
    action = form.text("action")
    if action not in set(JobAction):
        raise UsageError(f"Choose an action: {', '.join(JobAction)}.")
    return JobAction(action)
