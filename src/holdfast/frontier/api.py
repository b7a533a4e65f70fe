"""Routes of the frontier: statistics, list, add, retry, recover, clear."""

from typing import Annotated, Literal

from fastapi import APIRouter, BackgroundTasks, Query, Request, Response
from pydantic import Field

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import Body, Confirm, Filter, JobName, ShortText, Text
from holdfast.api.responses import accepted, log_failures
from holdfast.frontier.records import AddedUrls, FrontierStats, FrontierUrl, Recovered, Retried, UrlFilter
from holdfast.frontier.service import MAX_RETRIED_URLS
from holdfast.model.outcome import UrlState
from holdfast.operations.records import Operation

router = APIRouter(route_class=AuthorizedRoute, tags=["frontier"])

_Job = Annotated[Filter, Query(description="Only of this job, by name or id.")]
_Domain = Annotated[Filter, Query(description="Only of this domain.")]


class Urls(Body):
    """URLs to add."""

    urls: Annotated[list[Text], Field(min_length=1, max_length=10_000, examples=[["https://example.com/"]])]
    job: Annotated[Text, Field(min_length=1, max_length=255)] | None = None
    """The job, by name; null: the job `default`."""


class MoreUrls(Urls):
    """URLs to add, with a priority."""

    priority: Literal["high", "medium", "low"] = "medium"


class Retry(Body):
    """URLs to retry: these, or all of a reason, a state, a domain. Without any: all that failed and can be retried."""

    urls: Annotated[list[Text], Field(max_length=MAX_RETRIED_URLS, examples=[["https://example.com/broken"]])] = Field(
        default=[]
    )
    reason: Annotated[ShortText, Field(examples=["server_error"])] | None = None
    """The code of a reason, as in the summary of the job (`not_crawled`)."""
    state: UrlState | None = None
    """`failed`, `denied` (by robots.txt) or `done` (not found, or of another type)."""
    domain: ShortText | None = None
    dry_run: bool = False
    """Only count them."""


@router.get("/api/frontier/stats", summary="Statistics of the frontier", responses=documented(404))
def stats(services: Services, job: _Job = None) -> FrontierStats:
    """From counters; by priority and kind from a count or a sample."""
    return services.frontier.stats(job)


@router.get("/api/frontier/urls", summary="URLs of the frontier", responses=documented(404))
def urls(
    services: Services,
    request: Request,
    response: Response,
    domain: _Domain = None,
    job: _Job = None,
    state: UrlState | None = None,
    kind: Literal["discovery", "refresh"] | None = None,
    priority: Annotated[int | None, Query(ge=1, le=12)] = None,
    due: Annotated[bool | None, Query(description="Of those that wait: could be asked for now, or only later.")] = None,
    reason: Annotated[
        Filter, Query(description="Of those that do not wait: the code of the reason, as in the summary of a job.")
    ] = None,
    resource: Annotated[
        Literal["page", "sitemap", "image", "check"] | None,
        Query(
            description="What it leads to; feeds are among the sitemaps. `check`: a link out of scope that is checked."
        ),
    ] = None,
    order: Annotated[
        Literal["key", "taken"], Query(description="`taken`: as a worker would; needs a domain and a job.")
    ] = "key",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[FrontierUrl]:
    """In any state."""
    where = UrlFilter(domain or None, job or None, state, kind, priority, due, reason or None, resource)
    found = services.frontier.page(where, order=order, after=decode_list_cursor("urls", order, cursor), limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.post("/api/frontier/add", summary="Add URLs", responses=documented(404))
def add(body: MoreUrls, services: Services, caller: Caller) -> AddedUrls:
    """URLs that the job knows already stay as they are."""
    return services.frontier.add(body.urls, body.job, priority=body.priority, actor=caller.name)


@router.post("/api/frontier/seed", summary="Add seeds", responses=documented(404))
def seed(body: Urls, services: Services, caller: Caller) -> AddedUrls:
    """URLs with high priority, from which a crawl begins. Domains keep what they have learnt."""
    return services.frontier.seed(body.urls, body.job, actor=caller.name)


@router.post("/api/jobs/{job}/retry", summary="Retry URLs that were not crawled", responses=documented(404))
def retry(job: JobName, body: Retry, services: Services, caller: Caller, after: BackgroundTasks) -> Retried:
    """They wait again with all their attempts, and a job that had ended is reopened. Robots.txt, delays, pauses that servers asked for and
    blocks still hold. More than 10 000 URLs follow in chunks after the answer (`finished`). A reason that is not retried, and a cancelled
    job, are refused (409) with what to do instead."""
    what = body.model_dump(exclude={"dry_run"})
    if body.dry_run:
        return services.frontier.count_retry(job, **what)
    return services.frontier.retry(
        job, actor=caller.name, later=lambda rest: after.add_task(log_failures(rest)), **what
    )


@router.post("/api/frontier/recover", summary="Release what dead workers hold")
def recover(services: Services, caller: Caller) -> Recovered:
    """Workers do this themselves every few seconds. No URL is ever in progress, so none has to be reset."""
    return services.frontier.recover(actor=caller.name)


@router.delete("/api/frontier", summary="Clear waiting URLs", status_code=202, responses=documented(404))
def clear(
    services: Services,
    caller: Caller,
    response: Response,
    domain: _Domain = None,
    job: _Job = None,
    confirm: Confirm = None,
    everything: Annotated[bool, Query(description="The same as `confirm=all`.", deprecated=True)] = False,
) -> Operation:
    """URLs that were never fetched are deleted; pages stay. A job that has nothing left to do is completed."""
    asked = services.frontier.check_clear(job or None, domain or None, everything=everything or confirm == "all")
    return accepted(response, services.operations.ask("clear-frontier", asked, actor=caller.name))
