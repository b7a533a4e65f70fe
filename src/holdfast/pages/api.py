"""Pages: what was fetched, why a URL is where it is, and everything as a file."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from holdfast.api import exports
from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import Confirm, Filter, Hex, Since, Until, View, to_json
from holdfast.api.responses import accepted
from holdfast.control.explain import UrlStory
from holdfast.control.list_filters import PageFilter
from holdfast.model.outcome import Outcome
from holdfast.operations.records import Operation

router = APIRouter(route_class=AuthorizedRoute, tags=["pages"])

_Url = Annotated[str, Query(min_length=1, max_length=4096, description="The URL.", examples=["https://example.com/"])]
_Job = Annotated[Filter, Query(description="Only of this job, by name or id.")]
_Domain = Annotated[Filter, Query(description="Only of this domain.")]


class PageView(View):
    """What was answered for a URL, the last time that it was asked for."""

    url: str | None
    domain: str | None
    job: str | None
    crawled_at: datetime
    status: int | None
    outcome: str
    content_type: str | None
    content_length: int
    content_hash: str | None
    """Of its text: pages with the same one say the same."""
    title: str | None
    description: str | None
    links_count: int
    """Different addresses that it leads to: links, frames, alternates and the canonical one, also those that are not followed."""
    images_count: int
    depth: int
    duration_ms: int | None
    archived: bool
    """Its bytes are in the archive."""
    problem: str | None
    """What was wrong with the answer, such as `not_found: HTTP 404`, or why less than all of the page could be read."""


class PageFactsView(View):
    """Everything that a job knows of a URL."""

    url: str
    url_key: Hex
    domain: str
    job: str
    state: str
    """`waiting`, `done`, `denied` or `failed`."""
    kind: str
    reason: str | None
    priority: int
    depth: int
    hops: int
    attempts: int
    discovered_at: datetime
    next_attempt_at: datetime | None
    parent_url: str | None
    """The page that led here."""
    crawled_at: datetime | None
    status: int | None
    outcome: str | None
    problem: str | None
    duration_ms: int | None
    content_type: str | None
    charset: str | None
    content_length: int | None
    content_hash: str | None
    payload_digest: str | None
    title: str | None
    description: str | None
    canonical: str | None
    links_count: int | None
    images_count: int | None
    noindex: bool | None
    nofollow: bool | None
    etag: str | None
    last_modified: str | None
    archive_segment: str | None
    archive_offset: int | None
    archive_length: int | None
    has_text: bool
    next_crawl_at: datetime | None
    """When it is fetched again, if it is done and its job asked for refresh."""
    error_count: int
    """Attempts in a row that failed; 0 once the URL is done."""
    domain_errors: int


@router.get("/api/pages", summary="Pages", responses=documented(404))
def pages(
    services: Services,
    request: Request,
    response: Response,
    domain: _Domain = None,
    job: _Job = None,
    status: Annotated[int | None, Query(ge=100, le=999, description="Only with this status.", examples=[404])] = None,
    status_class: Annotated[int | None, Query(ge=1, le=9, description="4 means 400 to 499.")] = None,
    outcome: Outcome | None = None,
    content_type: Annotated[Filter, Query(description="What it begins with.", examples=["text/html"])] = None,
    content_hash: Annotated[
        str | None, Query(pattern="^([0-9a-fA-F]{2}){1,64}$", description="Only pages that say the same.")
    ] = None,
    since: Since = None,
    until: Until = None,
    order: Literal["newest", "oldest", "key"] = "newest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[PageView]:
    """What was answered, the newest first unless you say otherwise."""
    query = PageFilter(domain, job, status, status_class, outcome, content_type or None, content_hash, since, until)
    found = services.listings.pages(query, order=order, after=decode_list_cursor("pages", order, cursor), limit=limit)
    return keyset_page(request, response, [PageView.of(row) for row in found.rows], found.next)


@router.get("/api/pages/page", summary="A page", responses=documented(404))
def page(url: _Url, services: Services, job: _Job = None) -> list[PageFactsView]:
    """Everything that each job knows of a URL, the newest answer first."""
    return [PageFactsView.of(row) for row in services.pages.facts(url, job)]


@router.delete(
    "/api/admin/pages",
    summary="Forget pages",
    status_code=202,
    responses=documented(404),
)
def purge(
    services: Services,
    caller: Caller,
    response: Response,
    domain: _Domain = None,
    job: _Job = None,
    before: Annotated[Until, Query(description="Only what was fetched before this time.")] = None,
    confirm: Confirm = None,
    everything: Annotated[bool, Query(description="The same as `confirm=all`.", deprecated=True)] = False,
) -> Operation:
    """Facts and texts of pages; that their URLs are done stays known, and the log and the archive stay as they are."""
    asked = services.pages.check_purge(job, domain, before, everything=everything or confirm == "all")
    return accepted(response, services.operations.ask("purge-pages", asked, actor=caller.name))


class Explanation(View):
    """Why something is where it is, in words."""

    kind: Literal["url", "domain"]
    subject: str
    told: dict[str, Any] = Field(description="Everything that is known about it.")


@router.get("/api/explain", summary="Why a URL or a domain is where it is", responses=documented(404))
def explain(
    subject: Annotated[str, Query(min_length=1, max_length=4096, description="A URL or a domain.")], services: Services
) -> Explanation:
    """What it waits for, who said no, what the last answer was."""
    is_url = "/" in subject
    story = services.explainer.url(subject) if is_url else services.explainer.domain(subject)
    named = story.url if isinstance(story, UrlStory) else story.domain
    return Explanation(kind="url" if is_url else "domain", subject=named, told=to_json(story))


@router.get(
    "/api/exports/{kind}",
    summary="Everything as a file",
    response_class=StreamingResponse,
    responses={200: exports.DESCRIPTION, **documented(404)},
)
def export(
    kind: Annotated[exports.Kind, Path(description="What: pages, URLs, or the log of all outcomes.")],
    services: Services,
    caller: Caller,
    format: exports.Format = exports.Format.JSONL,  # noqa: A002 — the name of the parameter
    job: _Job = None,
    domain: _Domain = None,
    text: Annotated[bool, Query(description="Pages with their text.")] = False,
) -> StreamingResponse:
    """A stream that reads a chunk at a time: what is committed meanwhile may be in it or not."""
    return exports.export_response(services, caller, kind, format, job=job, domain=domain, text=text)
