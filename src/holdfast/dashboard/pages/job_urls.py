"""The URLs of a job, by state, domain and reason."""

from typing import Final

from fastapi import Response

from holdfast.api.pagination import CursorText, decode_list_cursor
from holdfast.api.request_types import Filter, JobName
from holdfast.dashboard.pages.job import job_of, tab
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.errors import UsageError
from holdfast.frontier.records import UrlFilter
from holdfast.model.outcome import UrlState

router = page_router()

_ROWS: Final = 50


@router.get("/jobs/{job}/urls")
def urls(
    job: JobName, context: Context, state: Filter = None, domain: Filter = None, cursor: CursorText = None
) -> Response:
    """The URLs of a job that match."""
    found = job_of(context, job)
    page = context.services.frontier.page(
        UrlFilter(domain=domain or None, job=found.id, state=url_state(state)),
        after=decode_list_cursor("urls", "key", cursor),
        limit=_ROWS,
    )
    return context.page(
        "jobs/urls.html",
        **tab(found, "urls"),
        urls=page.rows,
        states=list(UrlState),
        state=state or "",
        domain=domain or "",
        next_page=context.next_page(page.next),
        first_page=context.with_query(cursor=None) if cursor else "",
    )


def url_state(state: str | None) -> UrlState | None:
    """Return the state of that name; None: any. Raises UsageError."""
    if state and state not in set(UrlState):
        raise UsageError(f"A URL is {', '.join(UrlState)}; not {state!r}.")
    return UrlState(state) if state else None
