"""The URLs of a job, by state, domain and reason, and their retry."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from fastapi import BackgroundTasks, Request, Response

from holdfast.api.app_services import AppServices
from holdfast.api.forms import read_form
from holdfast.api.pagination import CursorText, decode_list_cursor
from holdfast.api.request_types import Filter, JobName
from holdfast.api.responses import log_failures
from holdfast.dashboard.job_fields import job_path
from holdfast.dashboard.lists import filled, pager
from holdfast.dashboard.live import Parameters, id_of, live_view
from holdfast.dashboard.pages.job import for_admins, job_of, tab
from holdfast.dashboard.rendering import Context, query
from holdfast.dashboard.route import page_router
from holdfast.dashboard.text import plural
from holdfast.errors import UsageError
from holdfast.frontier.records import RESOURCES, Retried, UrlFilter
from holdfast.frontier.retries import why_not_retried
from holdfast.jobs.records import Job
from holdfast.model.auth import LOCAL_ADMIN
from holdfast.model.outcome import UrlState
from holdfast.model.url_reason import CODES, NOT_LEFT_OUT, NOT_RETRIED, RETRIED

router = page_router()

REASONS: Final = sorted(CODES - NOT_LEFT_OUT)
_ROWS: Final = 50
_AT_ONCE: Final = 20_000
"""Of a job with more URLs, those to retry are estimated if they cannot be counted soon."""
_WITHIN: Final = timedelta(seconds=0.05)
"""How long they are counted."""


def read_urls(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return what the region of the list shows. Raises NotFound, UsageError."""
    job = services.jobs(LOCAL_ADMIN).show(id_of(parameters))
    shown = {name: value for name, value in parameters.items() if name != "id"}
    state, domain, reason, resource = (shown.get(name) or None for name in ("state", "domain", "reason", "resource"))
    found = services.frontier.page(
        UrlFilter(domain=domain, job=job.id, state=url_state(state), reason=reason, resource=resource),
        after=decode_list_cursor("urls", "key", shown.get("cursor")),
        limit=_ROWS,
    )
    address = job_path(job)
    return {
        "job": job,
        "address": address,
        "urls": found.rows,
        "given": {"state": state or "", "domain": domain or "", "reason": reason or "", "resource": resource or ""},
        "retriable": RETRIED,
        **pager(f"{address}/urls", shown, found.next),
    }


LIST: Final = live_view("job-urls", read_urls, {"job-urls": "jobs/_urls.html"})


@router.get("/jobs/{job}/urls")
def urls(
    job: JobName,
    context: Context,
    state: Filter = None,
    domain: Filter = None,
    reason: Filter = None,
    resource: Filter = None,
    cursor: CursorText = None,
) -> Response:
    """The URLs of a job that match."""
    found = job_of(context, job)
    parameters = filled(id=str(found.id), state=state, domain=domain, reason=reason, resource=resource, cursor=cursor)
    return context.page(
        "jobs/urls.html",
        **{**read_urls(context.services, parameters), **tab(found, "urls")},
        states=list(UrlState),
        reasons=REASONS,
        resources=RESOURCES,
        can_retry=not resource and _can_retry(state, reason),
        instead=why_not_retried(reason, found.name) if reason and reason in NOT_RETRIED else "",
        live="" if cursor else LIST.address(parameters),
    )


@router.get("/jobs/{job}/retry")
def retry_page(
    job: JobName, context: Context, state: Filter = None, domain: Filter = None, reason: Filter = None
) -> Response:
    """The page that says how many URLs a retry takes, and asks."""
    found = job_of(context, job)
    if (refused := for_admins(context, found)) is not None:
        return refused
    counted = context.services.frontier.count_retry(
        found.id, reason=reason or None, state=url_state(state), domain=domain or None, within=_within(found)
    )
    given = {"state": state or "", "domain": domain or "", "reason": reason or ""}
    return context.page("jobs/retry.html", **tab(found, "urls"), counted=counted, given=given)


@router.post("/jobs/{job}/retry")
def retry(job: JobName, context: Context, request: Request, after: BackgroundTasks) -> Response:
    """Retry one URL, or all that match."""
    form = read_form(request)
    found = job_of(context, job)
    url = form.text("url")
    given = {name: form.text(name) for name in ("state", "domain", "reason")}
    what: dict[str, Any] = {"urls": [url]} if url is not None else {**given, "state": url_state(given["state"])}
    done = context.services.frontier.retry(
        found.id,
        actor=context.caller.name,
        within=_within(found),
        later=lambda rest: after.add_task(log_failures(rest)),
        **what,
    )
    shown = query(f"{job_path(found)}/urls", **given, resource=form.text("resource"))
    return context.redirect(shown, _told(done))


def _within(job: Job) -> timedelta | None:
    """How long the URLs to retry are counted; None: as long as it takes."""
    return _WITHIN if job.discovered > _AT_ONCE else None


def _told(done: Retried) -> str:
    """What a retry did, in words."""
    more = "more than " if done.more else "about " if done.estimated and done.urls else ""
    where = "" if done.estimated else f" on {plural(done.domains, 'domain')}"
    urls = plural(done.urls, "URL") if done.urls or not done.estimated else "few URLs, which were not counted,"
    text = f"{more}{urls}{where} {'waits' if done.urls == 1 else 'wait'} again."
    if not done.finished:
        text += " They follow in chunks."
    if done.reopened:
        text += " The job is reopened."
    return " ".join([text, *(f"{one.example}: {one.why}." for one in done.left_out), *done.notes])


def _can_retry(state: str | None, reason: str | None) -> bool:
    """Whether a retry of all that match makes sense: a reason that can be retried, or a state of URLs that ended."""
    return reason in RETRIED if reason else state in {UrlState.FAILED, UrlState.DENIED}


def url_state(state: str | None) -> UrlState | None:
    """Return the state of that name; None: any. Raises UsageError."""
    if state and state not in set(UrlState):
        raise UsageError(f"A URL is {', '.join(UrlState)}; not {state!r}.")
    return UrlState(state) if state else None
