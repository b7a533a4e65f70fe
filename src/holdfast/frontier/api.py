"""Routes of the frontier: statistics, list, add, recover, clear."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import Body, Confirm, Filter, Text
from holdfast.api.responses import accepted
from holdfast.frontier.records import AddedUrls, FrontierStats, FrontierUrl, Recovered, UrlFilter
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
    order: Annotated[
        Literal["key", "taken"], Query(description="`taken`: as a worker would; needs a domain and a job.")
    ] = "key",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[FrontierUrl]:
    """In any state."""
    where = UrlFilter(domain or None, job or None, state, kind, priority, due)
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
