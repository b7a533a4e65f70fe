"""Routes of links: those of a URL, and reports."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, keyset_page
from holdfast.api.request_types import Filter
from holdfast.db import keyset_pagination
from holdfast.links.records import (
    BrokenLink,
    LinkDegree,
    LinkPlace,
    LinkSummary,
    MissingPlace,
    Orphan,
    PageLinkList,
    RedirectedLink,
    UncheckedTarget,
)
from holdfast.links.service import MAX_PLACES, SHOWN_PLACES
from holdfast.model.cursor import decode_cursor

router = APIRouter(route_class=AuthorizedRoute, tags=["links"])

_Url = Annotated[str, Query(min_length=1, max_length=4096, examples=["https://example.com/about"])]
_Job = Annotated[Filter, Query(description="By name or id; by default the newest job that has recorded links.")]
_External = Annotated[
    bool | None,
    Query(description="Only targets out of scope, which were checked for the links to them; or only the others."),
]
_Places = Annotated[int, Query(ge=1, le=MAX_PLACES, description="Pages that are listed of each target.")]


def _after(cursor: str | None) -> keyset_pagination.Key | None:
    return decode_cursor(cursor, int, bytes)


def _page(
    request: Request, response: Response, found: keyset_pagination.Page[keyset_pagination.Row]
) -> Page[keyset_pagination.Row]:
    return keyset_page(request, response, found.rows, found.next, found.scanned)


@router.get("/api/links/in", summary="Links to a URL", responses=documented(404))
def incoming(
    url: _Url,
    services: Services,
    request: Request,
    response: Response,
    job: _Job = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[LinkPlace]:
    """By page; `limit` counts pages, each of which may have several such links."""
    return _page(request, response, services.links.incoming(url, job, after=_after(cursor), limit=limit))


@router.get("/api/links/out", summary="Links of a page", responses=documented(404))
def outgoing(url: _Url, services: Services, job: _Job = None) -> PageLinkList:
    """In the order of the page, with what is known of their targets."""
    return services.links.outgoing(url, job)


@router.get("/api/links/broken", summary="Broken links", responses=documented(404))
def broken(
    services: Services,
    request: Request,
    response: Response,
    job: _Job = None,
    external: _External = None,
    places: _Places = SHOWN_PLACES,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[BrokenLink]:
    """Targets that are errors, at once or behind redirects, with pages that link to them."""
    found = services.links.broken(job, external=external, after=_after(cursor), limit=limit, places=places)
    return _page(request, response, found)


@router.get("/api/links/redirects", summary="Links to redirects", responses=documented(404))
def redirects(
    services: Services,
    request: Request,
    response: Response,
    job: _Job = None,
    min_hops: Annotated[int, Query(ge=1, le=100, description="Only chains of at least this many redirects.")] = 1,
    external: _External = None,
    places: _Places = SHOWN_PLACES,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[RedirectedLink]:
    """Targets that redirect, with where they end and pages that link to them."""
    after = _after(cursor)
    found = services.links.redirects(job, min_hops=min_hops, external=external, after=after, limit=limit, places=places)
    return _page(request, response, found)


@router.get("/api/links/orphans", summary="URLs that no page links to", responses=documented(404))
def orphans(
    services: Services,
    request: Request,
    response: Response,
    job: _Job = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Orphan]:
    """Of those that a sitemap lists or that are seeds."""
    return _page(request, response, services.links.orphans(job, after=_after(cursor), limit=limit))


@router.get("/api/links/fragments", summary="Links to places that are missing", responses=documented(404))
def fragments(
    services: Services,
    request: Request,
    response: Response,
    job: _Job = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[MissingPlace]:
    """Links with a fragment that names no id of their target. Those of a page stay together, so a page of the list may be longer."""
    return _page(request, response, services.links.missing_places(job, after=_after(cursor), limit=limit))


@router.get("/api/links/unchecked", summary="Targets that were not requested", responses=documented(404))
def unchecked(
    services: Services,
    request: Request,
    response: Response,
    job: _Job = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[UncheckedTarget]:
    """Each with the reason. They are no broken links."""
    return _page(request, response, services.links.unchecked(job, after=_after(cursor), limit=limit))


@router.get("/api/links/top", summary="URLs that most pages link to", responses=documented(404))
def top(services: Services, job: _Job = None, limit: Limit = DEFAULT_LIMIT) -> list[LinkDegree]:
    """Reads all pages of the job."""
    return services.links.top(job, limit=limit)


@router.get("/api/links/summary", summary="What a job has recorded of links", responses=documented(404))
def summary(services: Services, job: _Job = None) -> LinkSummary:
    """Reads all pages and URLs of the job."""
    return services.links.summary(job)
