"""The URLs of a job, by state, domain and reason, and their retry."""

from typing import Any, Final

from fastapi import BackgroundTasks, Request, Response

from holdfast.api.forms import read_form
from holdfast.api.pagination import CursorText, decode_list_cursor
from holdfast.api.request_types import Filter, JobName
from holdfast.api.responses import log_failures
from holdfast.dashboard.job_fields import job_path
from holdfast.dashboard.pages.job import for_admins, job_of, tab
from holdfast.dashboard.rendering import Context, query
from holdfast.dashboard.route import page_router
from holdfast.dashboard.text import plural
from holdfast.errors import UsageError
from holdfast.frontier.records import RESOURCES, Retried, UrlFilter
from holdfast.frontier.retries import why_not_retried
from holdfast.model.outcome import UrlState
from holdfast.model.url_reason import CODES, NOT_LEFT_OUT, NOT_RETRIED, RETRIED

router = page_router()

REASONS: Final = sorted(CODES - NOT_LEFT_OUT)
_ROWS: Final = 50


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
    page = context.services.frontier.page(
        UrlFilter(
            domain=domain or None,
            job=found.id,
            state=url_state(state),
            reason=reason or None,
            resource=resource or None,
        ),
        after=decode_list_cursor("urls", "key", cursor),
        limit=_ROWS,
    )
    return context.page(
        "jobs/urls.html",
        **tab(found, "urls"),
        urls=page.rows,
        states=list(UrlState),
        reasons=REASONS,
        resources=RESOURCES,
        given={"state": state or "", "domain": domain or "", "reason": reason or "", "resource": resource or ""},
        retriable=RETRIED,
        can_retry=not resource and _can_retry(state, reason),
        instead=why_not_retried(reason, found.name) if reason and reason in NOT_RETRIED else "",
        next_page=context.next_page(page.next),
        first_page=context.with_query(cursor=None) if cursor else "",
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
        found.id, reason=reason or None, state=url_state(state), domain=domain or None
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
        found.id, actor=context.caller.name, later=lambda rest: after.add_task(log_failures(rest)), **what
    )
    shown = query(f"{job_path(found)}/urls", **given, resource=form.text("resource"))
    return context.redirect(shown, _told(done))


def _told(done: Retried) -> str:
    """What a retry did, in words."""
    more = "more than " if done.more else ""
    text = f"{more}{plural(done.urls, 'URL')} on {plural(done.domains, 'domain')} {'waits' if done.urls == 1 else 'wait'} again."
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
