"""Routes of pages: list and search, facts, versions and archived source of a URL, purge; and of several nouns: explain, export."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from holdfast.api import exports
from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import INTEGER, Confirm, Filter, Since, Until, to_json
from holdfast.api.responses import accepted
from holdfast.control.explain import UrlStory
from holdfast.model.outcome import Outcome
from holdfast.operations.records import Operation
from holdfast.pages.records import (
    ArchivedPage,
    CrawledPage,
    Explanation,
    PageCount,
    PageDiff,
    PageFacts,
    PageFilter,
    PageVersion,
)

router = APIRouter(route_class=AuthorizedRoute, tags=["pages"])

_Url = Annotated[str, Query(min_length=1, max_length=4096, description="The URL.", examples=["https://example.com/"])]
_Job = Annotated[Filter, Query(description="Only of this job, by name or id.")]
_Number = Annotated[int, Field(ge=1, le=INTEGER)]
_Domain = Annotated[Filter, Query(description="Only of this domain.")]


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
    url_prefix: Annotated[
        Filter,
        Query(
            description="What the URL begins with: a host, and perhaps the beginning of a path. Without a scheme both "
            "http and https are meant.",
            examples=["https://example.com/news/"],
        ),
    ] = None,
    title: Annotated[
        Filter,
        Query(
            description='Words of the title, in any order; `"two words"` in quotes next to each other, `-word` absent.',
            examples=["annual report -draft"],
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    order: Literal["newest", "oldest", "key"] = "newest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[CrawledPage]:
    """The last response for each URL, by default the newest first. A search by title or URL prefix looks at no more than 10,000
    pages at once: `scanned` says so, and `next` goes on."""
    where = PageFilter(
        domain=domain,
        job=job,
        status=status,
        status_class=status_class,
        outcome=outcome,
        content_type=content_type or None,
        content_hash=content_hash,
        url_prefix=url_prefix or None,
        title=title or None,
        since=since,
        until=until,
    )
    found = services.pages.page(where, order=order, after=decode_list_cursor("pages", order, cursor), limit=limit)
    return keyset_page(request, response, found.rows, found.next, found.scanned)


@router.get("/api/pages/page", summary="A page", responses=documented(404))
def page(url: _Url, services: Services, job: _Job = None) -> list[PageFacts]:
    """Everything that each job knows of a URL, the newest response first."""
    return services.pages.facts(url, job)


@router.get("/api/pages/versions", summary="Versions of a page", responses=documented(404))
def versions(url: _Url, services: Services, job: _Job = None) -> list[PageVersion]:
    """The last answer for a URL and those that it replaced because the content changed, the newest first. Without `job`: in the job that
    answered last."""
    return services.pages.versions(url, job)


@router.get("/api/pages/diff", summary="What changed on a page", responses=documented(404))
def diff(
    url: _Url,
    services: Services,
    job: _Job = None,
    older: Annotated[_Number | None, Query(description="The version before `newer`, if left out.")] = None,
    newer: Annotated[_Number | None, Query(description="The current version, if left out.")] = None,
) -> PageDiff:
    """The differences between two versions, by their numbers: facts, and the unified diff of their texts, which are read from the
    archive on the server's machine."""
    return services.pages.diff(url, job, older, newer)


@router.get("/api/pages/source", summary="The archived source of a page", responses=documented(404))
def source(
    url: _Url,
    services: Services,
    job: _Job = None,
    version: Annotated[
        _Number | None, Query(description="A number of the list of versions; the newest, if left out.")
    ] = None,
) -> ArchivedPage:
    """The archived response for a URL, the newest or that of a version: status line, headers, body as text, visible text and links.
    Always JSON: no page of the web is ever sent as HTML. If the response is not archived on this machine, `missing` says why."""
    return services.pages.source(url, job, version=version)


@router.get("/api/pages/count", summary="How many pages a purge would delete", responses=documented(404))
def count(
    services: Services,
    job: _Job = None,
    domain: _Domain = None,
    before: Annotated[Until, Query(description="Only what was fetched before this time.")] = None,
) -> PageCount:
    """Exactly up to 100,000."""
    return services.pages.count_purge(job, domain, before)


@router.delete(
    "/api/admin/pages",
    summary="Purge pages",
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
    """Facts and texts of pages are deleted; their URLs stay done, and log and archive stay as they are."""
    asked = services.pages.check_purge(job, domain, before, everything=everything or confirm == "all")
    return accepted(response, services.operations.ask("purge-pages", asked, actor=caller.name))


@router.get("/api/explain", summary="Explain a URL or a domain", responses=documented(404))
def explain(
    subject: Annotated[str, Query(min_length=1, max_length=4096, description="A URL or a domain.")], services: Services
) -> Explanation:
    """Where it came from, how its requests ended, and what it waits for."""
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
