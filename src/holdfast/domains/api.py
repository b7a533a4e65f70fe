"""Domains: looked at, configured, started over, forgotten; their maintenance windows."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, BackgroundTasks, Query, Request, Response
from pydantic import Field, model_validator

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.background_tasks import log_failures
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import (
    INTEGER,
    Body,
    Domain,
    Filter,
    IfMatch,
    SecretFields,
    Text,
    View,
    parse_if_match,
    set_etag,
    to_json,
)
from holdfast.api.responses import accepted
from holdfast.control.list_filters import DomainFilter, NameFilter
from holdfast.domains.service import ALIASES, KEYS, parse_assignments
from holdfast.errors import UsageError
from holdfast.model.domain import Status
from holdfast.operations.records import Operation

router = APIRouter(route_class=AuthorizedRoute, tags=["domains"])

_DAY = 86_400


class DomainView(View):
    """A domain at a glance."""

    id: int
    domain: str
    parent_domain: str
    status: Status
    status_reason: str | None
    block_reason_code: str | None
    block_reason: str | None
    is_active: bool
    claimed_by: str | None
    """The worker that holds it."""
    claim_expires_at: datetime | None
    claim_expired: bool
    pages_discovered: int
    pages_crawled: int
    pages_done: int
    """Of `pages_known`: of the job that knows most URLs there, so never more than that."""
    pages_known: int
    frontier_size: int
    images_found: int
    images_stored: int
    image_yield_rate: float | None
    total_error_count: int
    consecutive_error_count: int
    error_rate: float | None
    priority: int
    seed_rank: int | None
    first_seen_at: datetime
    last_crawled_at: datetime | None
    """When its last batch was written."""
    last_visit_ended_at: datetime | None
    next_crawl_after: datetime | None
    stays_blocked: bool
    """Until a person starts it over."""
    base_url: str
    parser_name: str
    crawl_delay_seconds: float
    max_concurrent_requests: int
    maintenance_window: str | None
    proxy_use: str | None
    version: int


class DomainFacts(View):
    """Everything about a domain."""

    domain: str
    version: int
    status: Status
    facts: dict[str, Any]
    """Every column, by its name."""
    work: list[dict[str, Any]]
    """What each job has to do there."""
    transitions: list[dict[str, Any]]
    """The last changes of its status."""
    tenures: list[dict[str, Any]]
    """Who held it lately."""


class DomainChange(SecretFields):
    """What is to be different. What is left out stays as it is; null means: as the settings say. `headers`, `cookies` and `basic_auth` are
    sent to the domain itself, with and without `www.`, over https. Fields have the names that they are read by; `delay`, `concurrency`,
    `parser`, `active`, `budget`, `frequency`, `window` and `proxy` are short forms.
    It acts within two seconds, also on crawls under way."""

    crawl_delay_seconds: Annotated[float, Field(ge=0, le=_DAY)] | None = None
    """Seconds between two requests."""
    max_concurrent_requests: Annotated[int, Field(ge=1, le=1000)] | None = None
    parser_name: Annotated[Text, Field(max_length=100)] | None = None
    user_agent: Annotated[Text, Field(max_length=255)] | None = None
    is_active: bool | None = None
    """False: it is left alone."""
    max_pages_per_run: Annotated[int, Field(ge=1, le=INTEGER)] | None = None
    """A crawl ends here after so many pages; null: no limit."""
    default_crawl_frequency: timedelta | None = None
    """How often its pages are looked at again."""
    maintenance_window: Annotated[Text, Field(max_length=1000)] | None = None
    """When it is left alone."""
    base_url: Annotated[Text, Field(max_length=1000, examples=["https://www.example.com"])] | None = None
    """Scheme, host and port of its home page; the host must be the domain's."""
    strip_params: Annotated[list[Annotated[Text, Field(max_length=100)]], Field(max_length=100)] | None = None
    """Parameters to drop from its URLs, besides those that the settings name; `x*` is a prefix."""
    proxy_use: Literal["direct", "pool", "any"] | None = None
    proxy_direct: bool | None = None
    proxy_resolves: bool | None = None
    proxy_country: Annotated[str, Field(pattern="^[A-Za-z]{2}$")] | None = None
    proxy_sticky: timedelta | None = None
    plain_http: bool = False
    """Send `headers`, `cookies` and `basic_auth` over http, too, where others can read them."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        """The fields that short forms stand for. One that is given twice must say the same."""
        if not isinstance(given, Mapping):
            return given
        said = {name: value for name, value in given.items() if name not in ALIASES}
        for short, name in ALIASES.items():
            if short in given:
                if name in said and said[name] != given[short]:
                    raise ValueError(
                        f"{short} and {name} are the same setting, with different values: give one of them"
                    )
                said[name] = given[short]
        return said


class NewDomain(DomainChange):
    """A domain to be made known."""

    domain: Annotated[Text, Field(min_length=1, max_length=255, examples=["example.com"])]


class Robots(View):
    """The robots.txt of an origin, as it was read the last time."""

    url: str
    origin: str
    status: int | None
    content: str | None
    """null: there is none, which allows everything; or it could never be had."""
    reachable: bool
    """False: it could not be had the last time."""
    problem: str | None
    fetched_at: datetime | None
    fresh_until: datetime | None
    fresh: bool


class Reset(Body):
    """Why a domain is started over."""

    reason: Annotated[Text, Field(max_length=200, examples=["the site was moved"])] = "by the API"


class ResetView(View):
    """What starting over did."""

    domain: str
    was: Status
    was_held_by: str | None
    """The worker that held it; its later writes are refused."""
    waiting: int
    """URLs that are to be crawled."""


class Transition(View):
    """A change of a domain's status."""

    version: int
    at: datetime
    from_status: str
    to_status: str
    reason: str
    worker: str | None
    epoch: int


class Tenure(View):
    """Somebody's time as the holder of a domain."""

    epoch: int
    worker: str
    claimed_at: datetime
    ended_at: datetime | None
    why: str | None
    """How it ended."""


class WindowView(View):
    """A domain that is left alone at times."""

    domain: str
    window: str
    """As it was written."""
    is_open: bool
    """It may be crawled now."""
    opens_at: datetime | None
    closes_at: datetime | None
    is_active: bool
    version: int


class Window(Body):
    """When a domain is left alone."""

    window: Annotated[Text, Field(min_length=1, max_length=1000, examples=["mon-fri 08:00-18:00 Europe/Berlin"])]


_KNOWN: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": DomainFacts, "description": "It was known, and is as it was."}
}


@router.get("/api/domains", summary="Domains")
def domains(
    services: Services,
    request: Request,
    response: Response,
    status: Status | None = None,
    active: bool | None = None,
    claimed: Annotated[bool | None, Query(description="Only those that are held, or that are not.")] = None,
    worker: Annotated[Filter, Query(description="Only those that this worker holds.")] = None,
    name: Annotated[Filter, Query(description="What the name begins with.")] = None,
    parent: Annotated[Filter, Query(description="Only sub-domains of this registrable domain.")] = None,
    order: Literal["name", "crawled", "priority", "newest", "oldest"] = "name",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[DomainView]:
    """All that are known."""
    query = DomainFilter(status, active, claimed, worker or None, name or None, parent or None)
    found = services.listings.domains(
        query, order=order, after=decode_list_cursor("domains", order, cursor), limit=limit
    )
    return keyset_page(request, response, [DomainView.of(row) for row in found.rows], found.next)


@router.get("/api/domains/{domain}", summary="A domain", responses=documented(404))
def show(domain: Domain, services: Services, response: Response) -> DomainFacts:
    """Everything about it."""
    return _facts(response, services.domains.info(domain))


@router.get("/api/domains/{domain}/robots", summary="The robots.txt of a domain", responses=documented(404))
def robots(domain: Domain, services: Services) -> list[Robots]:
    """Of each of its origins, as it was read the last time; empty: nobody has asked yet."""
    return [Robots.of(row) for row in services.domains.robots(domain)]


@router.get("/api/domains/{domain}/transitions", summary="How a domain's status changed", responses=documented(404))
def transitions(
    domain: Domain,
    services: Services,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Transition]:
    """The newest first."""
    after = decode_list_cursor("transitions", "newest", cursor)
    found = services.listings.transitions(domain, after=after, limit=limit)
    return keyset_page(request, response, [Transition.of(row) for row in found.rows], found.next)


@router.get("/api/domains/{domain}/tenures", summary="Who held a domain", responses=documented(404))
def tenures(
    domain: Domain,
    services: Services,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Tenure]:
    """The newest first."""
    found = services.listings.tenures(domain, after=decode_list_cursor("tenures", "newest", cursor), limit=limit)
    return keyset_page(request, response, [Tenure.of(row) for row in found.rows], found.next)


@router.post("/api/admin/domains", summary="Make a domain known", status_code=201, responses=_KNOWN)
def add(given: NewDomain, services: Services, caller: Caller, response: Response) -> DomainFacts:
    """Without a seed nothing is crawled of it. One that is known stays as it is (200)."""
    added = services.domains.add(
        given.domain,
        _changes(given, exclude={"domain"}),
        actor=caller.name,
        secrets=given.to_request_secrets(),
        plain_http=given.plain_http,
    )
    response.headers["Location"] = f"/api/domains/{added.domain}"
    response.status_code = 201 if added.created else 200
    return _facts(response, services.domains.info(added.domain))


@router.patch("/api/admin/domains/{domain}", summary="Configure a domain", responses=documented(404, 412))
def change(
    domain: Domain,
    given: DomainChange,
    services: Services,
    caller: Caller,
    response: Response,
    if_match: IfMatch = None,
) -> DomainFacts:
    """As `holdfast domains set` does it."""
    changes, secrets = _changes(given), given.to_request_secrets()
    if not changes and secrets is None:
        raise UsageError("Say what to change.")
    version = parse_if_match(if_match)
    services.domains.configure(
        domain, changes, actor=caller.name, version=version, secrets=secrets, plain_http=given.plain_http
    )
    return _facts(response, services.domains.info(domain))


@router.delete("/api/admin/domains/{domain}", summary="Forget a domain", status_code=204, responses=documented(404))
def remove(domain: Domain, services: Services, caller: Caller, after: BackgroundTasks) -> None:
    """With its URLs and pages; the log keeps what was asked of it. One that is held, or has live tasks, is refused (409). What is many
    goes bit by bit afterwards."""
    after.add_task(log_failures(services.domains.forget), services.domains.bury(domain, actor=caller.name).id)


@router.post("/api/admin/domains/{domain}/reset", summary="Start a domain over", responses=documented(404))
def reset(domain: Domain, services: Services, caller: Caller, given: Reset | None = None) -> ResetView:
    """From any status: blocks, errors and cool-downs are forgotten, all its pages are crawled again; who holds it is fenced off."""
    why = (given or Reset()).reason
    return ResetView.of(services.domains.reset(domain, why, actor=caller.name))


@router.post(
    "/api/admin/domains/{domain}/unblock", summary="Try a blocked domain again", responses=documented(404, 409)
)
def unblock(domain: Domain, services: Services, caller: Caller, given: Reset | None = None) -> ResetView:
    """From blocked or unreachable: the cool-down and the number of blocks are forgotten, and URLs that wait, were refused or could not be
    reached are crawled, not all pages. A domain that is neither is refused (409)."""
    why = (given or Reset()).reason
    return ResetView.of(services.domains.unblock(domain, why, actor=caller.name))


@router.post("/api/admin/priorities", summary="Rewrite the scores of all domains", status_code=202)
def recalculate(services: Services, caller: Caller, response: Response) -> Operation:
    """They are rewritten after each visit anyway."""
    return accepted(response, services.operations.ask("recalculate-priorities", {}, actor=caller.name))


@router.get("/api/maintenance-windows", summary="Domains that are left alone at times")
def windows(
    services: Services,
    request: Request,
    response: Response,
    name: Annotated[Filter, Query(description="What the name begins with.")] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[WindowView]:
    """By name, with whether they are open now and when that changes."""
    after = decode_list_cursor("windows", "name", cursor)
    found = services.listings.windows(NameFilter(name or None), after=after, limit=limit)
    return keyset_page(request, response, [WindowView.of(row) for row in found.rows], found.next)


@router.put(
    "/api/admin/domains/{domain}/maintenance-window",
    summary="Say when a domain is left alone",
    responses=documented(404, 412),
)
def set_window(
    domain: Domain, given: Window, services: Services, caller: Caller, response: Response, if_match: IfMatch = None
) -> DomainFacts:
    """In the words of `holdfast domains set NAME window=…`."""
    changes = parse_assignments([f"window={given.window}"])
    services.domains.configure(domain, changes, actor=caller.name, version=parse_if_match(if_match))
    return _facts(response, services.domains.info(domain))


@router.delete(
    "/api/admin/domains/{domain}/maintenance-window",
    summary="Leave a domain alone no more",
    responses=documented(404, 412),
)
def clear_window(
    domain: Domain, services: Services, caller: Caller, response: Response, if_match: IfMatch = None
) -> DomainFacts:
    """It may be crawled at any time."""
    changes = parse_assignments(["window="])
    services.domains.configure(domain, changes, actor=caller.name, version=parse_if_match(if_match))
    return _facts(response, services.domains.info(domain))


def _changes(given: DomainChange, exclude: set[str] | None = None) -> dict[str, object]:
    """What was said, in the words of `domains set`, which checks them."""
    said = given.model_dump(exclude_unset=True, exclude=exclude)
    words = [f"{name}={_word(said[name])}" for name in KEYS if name in said]
    return parse_assignments(words) if words else {}


def _word(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.6f}s"
    return f"{value:.6f}s" if isinstance(value, float) else str(value)


def _facts(response: Response, info: dict[str, Any]) -> DomainFacts:
    set_etag(response, info["version"])
    parts = {name: to_json(info[name]) for name in ("work", "transitions", "tenures")}
    facts = {name: to_json(value) for name, value in info.items() if name not in parts}
    return DomainFacts(
        domain=info["domain"], version=info["version"], status=Status(info["status"]), facts=facts, **parts
    )
