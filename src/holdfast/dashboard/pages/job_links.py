"""Broken links of a job, with the pages that hold them."""

from typing import Final

from fastapi import Response

from holdfast.api.pagination import CursorText
from holdfast.api.request_types import Filter, JobName
from holdfast.dashboard.pages.job import job_of, tab
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.db.keyset_pagination import Page
from holdfast.errors import NotFound, UsageError
from holdfast.links.report import why
from holdfast.model.cursor import decode_cursor
from holdfast.model.job import JobSpec

router = page_router()

_ROWS: Final = 50
_PLACES: Final = 5
"""Pages that are shown of each target."""
_WHICH: Final = {"internal": False, "external": True}


@router.get("/jobs/{job}/links")
def links(job: JobName, context: Context, which: Filter = None, cursor: CursorText = None) -> Response:
    """The report of broken links."""
    found = job_of(context, job)
    if which and which not in _WHICH:
        raise UsageError(f"Links are {' or '.join(_WHICH)}; not {which!r}.")
    after = decode_cursor(cursor, int, bytes)
    external = None if not which else _WHICH[which]
    try:
        page = context.services.links.broken(found.id, external=external, after=after, limit=_ROWS, places=_PLACES)
    except NotFound:  # it has recorded none
        page = Page([], None)
    return context.page(
        "jobs/links.html",
        **tab(found, "links"),
        records=JobSpec.from_json(found.spec).records_links,
        rows=[(row, why(row)) for row in page.rows],
        which=which or "",
        choices=tuple(_WHICH),
        next_page=context.next_page(page.next),
        first_page=context.with_query(cursor=None) if cursor else "",
    )
