"""The frontier: URLs that wait, and those that wait no more."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import Body, Confirm, Filter, Text, View
from holdfast.api.responses import BadSeed, accepted, bad_seeds
from holdfast.control.list_filters import UrlFilter
from holdfast.jobs.seed_import import Loaded
from holdfast.model.outcome import UrlState
from holdfast.operations.records import Operation

router = APIRouter(route_class=AuthorizedRoute, tags=["frontier"])

_Job = Annotated[Filter, Query(description="Only of this job, by name or id.")]
_Domain = Annotated[Filter, Query(description="Only of this domain.")]


class JobFrontier(View):
    """The URLs of a job."""

    job_id: int
    job: str
    state: str
    domains: int
    discovered: int
    waiting: int
    done: int
    denied: int
    failed: int


class FrontierStats(View):
    """The frontier in figures."""

    discovered: int
    waiting: int
    done: int
    denied: int
    failed: int
    unfolded: int
    """That came from other domains and are not counted among the others yet."""
    in_memory: int
    """That workers have at hand."""
    domains: int
    ready: int
    """Domains that could be worked on now."""
    jobs: list[JobFrontier]
    estimated: bool
    """Whether the figures below are of a sample."""
    by_priority: dict[int, int]
    by_kind: dict[str, int]
    oldest_waiting_at: datetime | None


class UrlView(View):
    """A URL, as a job knows it."""

    url: str
    domain: str
    job: str
    state: str
    kind: str
    reason: str | None
    priority: int
    depth: int
    hops: int
    attempts: int
    discovered_at: datetime
    not_before: datetime | None


class Urls(Body):
    """URLs to be crawled."""

    urls: Annotated[list[Text], Field(min_length=1, max_length=10_000, examples=[["https://example.com/"]])]
    job: Annotated[Text, Field(min_length=1, max_length=255)] | None = None
    """Of which job, by name; null: the standing one, `default`."""


class MoreUrls(Urls):
    """URLs to be crawled, with how urgent they are."""

    priority: Literal["high", "medium", "low"] = "medium"


class Sown(View):
    """What became of URLs."""

    seen: int
    urls: int
    """That are new to the job."""
    domains: int
    """That are new."""
    bad: int
    bad_urls: list[BadSeed]
    """The first ones."""


class Recovered(View):
    """What was set free."""

    claims: int
    """Leases that had ended."""
    domains: int
    """That had news to be counted in."""
    cooled: int
    """Domains whose cool-down had ended."""
    delayed: int
    """Domains whose time to go on had come."""
    runs: int
    """Given up, since they were not heard of."""
    jobs: int
    """Pieces of work on jobs, such as to end one."""
    faults: list[str]
    """What could not be done."""


@router.get("/api/frontier/stats", summary="The frontier in figures", responses=documented(404))
def stats(services: Services, job: _Job = None) -> FrontierStats:
    """From counters; nothing is counted anew."""
    return FrontierStats.of(services.frontier.stats(job))


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
) -> Page[UrlView]:
    """Whatever their state."""
    query = UrlFilter(domain or None, job or None, state, kind, priority, due)
    found = services.listings.urls(query, order=order, after=decode_list_cursor("urls", order, cursor), limit=limit)
    return keyset_page(request, response, [UrlView.of(row) for row in found.rows], found.next)


@router.post("/api/frontier/add", summary="Add URLs", responses=documented(404))
def add(given: MoreUrls, services: Services, caller: Caller) -> Sown:
    """Those that the job knows already stay as they are."""
    return _sown(services.frontier.add(given.urls, given.job, priority=given.priority, actor=caller.name))


@router.post("/api/frontier/seed", summary="Add seeds", responses=documented(404))
def seed(given: Urls, services: Services, caller: Caller) -> Sown:
    """URLs with high priority, from which a crawl begins. Domains keep what they have learnt."""
    return _sown(services.frontier.seed(given.urls, given.job, actor=caller.name))


@router.post("/api/frontier/recover", summary="Set free what died workers hold")
def recover(services: Services, caller: Caller) -> Recovered:
    """Workers do this by themselves every few seconds. No URL is ever in progress, so none has to be set back."""
    return Recovered.of(services.frontier.recover(actor=caller.name))


@router.delete("/api/frontier", summary="Forget URLs that wait", status_code=202, responses=documented(404))
def clear(
    services: Services,
    caller: Caller,
    response: Response,
    domain: _Domain = None,
    job: _Job = None,
    confirm: Confirm = None,
    everything: Annotated[bool, Query(description="The same as `confirm=all`.", deprecated=True)] = False,
) -> Operation:
    """Those that were never fetched; pages stay. A job that has nothing left to do ends by itself."""
    asked = services.frontier.check_clear(job or None, domain or None, everything=everything or confirm == "all")
    return accepted(response, services.operations.ask("clear-frontier", asked, actor=caller.name))


def _sown(loaded: Loaded) -> Sown:
    return Sown(
        seen=loaded.lines,
        urls=loaded.urls,
        domains=loaded.domains,
        bad=loaded.bad,
        bad_urls=bad_seeds(loaded.bad_lines),
    )
