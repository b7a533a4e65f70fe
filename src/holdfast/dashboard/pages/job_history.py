"""What happened to a job: its log, and what its last crawl changed."""

from typing import Final

from fastapi import Response

from holdfast.api.pagination import CursorText
from holdfast.api.request_types import Filter, JobName
from holdfast.dashboard.pages.job import job_of, tab
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.errors import NotFound, UsageError
from holdfast.jobs.queries.log import KEY_TYPES
from holdfast.jobs.records import PageChange
from holdfast.model.cursor import decode_cursor

router = page_router()

_ROWS: Final = 50
_COUNTED: Final = 2_000
"""Pages of each kind of change that are counted; the page shows "2,000+" for more."""


@router.get("/jobs/{job}/compare")
def compare(job: JobName, context: Context, kind: Filter = None, cursor: CursorText = None) -> Response:
    """The last crawl of a job compared with the one before."""
    found = job_of(context, job)
    service = context.services.jobs(context.caller)
    if kind and kind not in set(PageChange):
        raise UsageError(f"A page is {', '.join(PageChange)}; not {kind!r}.")
    try:
        comparison = service.compare(found.id, _COUNTED)
    except NotFound:  # it was never crawled
        return context.page("jobs/compare.html", **tab(found, "compare"), comparison=None)
    chosen = PageChange(kind) if kind else _first(comparison)
    page = service.compared_pages(found.id, chosen, cursor=cursor, limit=_ROWS)
    return context.page(
        "jobs/compare.html",
        **tab(found, "compare"),
        comparison=comparison,
        counts={change: getattr(comparison, change) for change in PageChange},
        kind=chosen,
        rows=page.rows,
        next_page=context.next_page(page.next),
        first_page=context.with_query(cursor=None) if cursor else "",
    )


@router.get("/jobs/{job}/log")
def log(job: JobName, context: Context, cursor: CursorText = None) -> Response:
    """What happened to a job, the newest entry first."""
    found = job_of(context, job)
    page = context.services.jobs(context.caller).events(found.id, decode_cursor(cursor, *KEY_TYPES), _ROWS)
    return context.page(
        "jobs/log.html",
        **tab(found, "log"),
        events=page.rows,
        next_page=context.next_page(page.next),
        first_page=context.with_query(cursor=None) if cursor else "",
    )


def _first(comparison: object) -> PageChange:
    """The first kind that has pages, in the order of what a reader asks first."""
    order = (PageChange.CHANGED, PageChange.NEW, PageChange.GONE, PageChange.FAILED)
    return next((change for change in order if getattr(comparison, change)), PageChange.UNCHANGED)
