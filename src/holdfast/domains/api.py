"""Routes of domains: list, show, configure, reset, unblock, remove; maintenance windows."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, BackgroundTasks, Query, Request, Response
from pydantic import Field, model_validator

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import (
    INTEGER,
    Body,
    Filter,
    IfMatch,
    SecretFields,
    ShortText,
    Text,
    parse_if_match,
    set_etag,
)
from holdfast.api.request_types import Domain as DomainName
from holdfast.api.responses import accepted, log_failures
from holdfast.domains.records import (
    Domain,
    DomainAction,
    DomainFacts,
    DomainFilter,
    DomainReset,
    MaintenanceWindow,
    MatchingDomains,
    RobotsFile,
    Tenure,
    Transition,
    WindowFilter,
)
from holdfast.domains.service import ALIASES, KEYS, parse_assignments
from holdfast.errors import UsageError
from holdfast.model.domain import Status
from holdfast.operations.handlers import CHANGE_DOMAINS
from holdfast.operations.records import Operation

router = APIRouter(route_class=AuthorizedRoute, tags=["domains"])

_DAY = 86_400


class DomainChange(SecretFields):
    """Changes of a domain. A field that is left out stays as it is; null resets it to the settings. `headers`, `cookies` and `basic_auth`
    are sent to the domain itself, with and without `www.`, over https. Fields have the names under which they are read; `delay`,
    `concurrency`, `parser`, `active`, `budget`, `frequency`, `window` and `proxy` are short forms.
    It takes effect within two seconds, also in running crawls."""

    crawl_delay_seconds: Annotated[float, Field(ge=0, le=_DAY)] | None = None
    """Seconds between two requests."""
    max_concurrent_requests: Annotated[int, Field(ge=1, le=1000)] | None = None
    parser_name: Annotated[Text, Field(max_length=100)] | None = None
    user_agent: Annotated[Text, Field(max_length=255)] | None = None
    is_active: bool | None = None
    """False: it is not crawled."""
    max_pages_per_run: Annotated[int, Field(ge=1, le=INTEGER)] | None = None
    """Maximum of pages in a crawl; null: no limit."""
    default_crawl_frequency: timedelta | None = None
    """How often its pages are fetched again."""
    maintenance_window: Annotated[Text, Field(max_length=1000)] | None = None
    """When it is not crawled."""
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
    def _expand_short_forms(cls, body: Any) -> Any:
        """Replace short forms by the fields that they stand for. Both in one body must have the same value."""
        if not isinstance(body, Mapping):
            return body
        fields = {name: value for name, value in body.items() if name not in ALIASES}
        for short, name in ALIASES.items():
            if short in body:
                if name in fields and fields[name] != body[short]:
                    raise ValueError(
                        f"{short} and {name} are the same setting, with different values: give one of them"
                    )
                fields[name] = body[short]
        return fields


class NewDomain(DomainChange):
    """A domain to create."""

    domain: Annotated[Text, Field(min_length=1, max_length=255, examples=["example.com"])]


class Reset(Body):
    """The reason of a reset."""

    reason: Annotated[Text, Field(max_length=200, examples=["the site was moved"])] = "by the API"


class MatchingFilter(Body):
    """An action, and the filter of the domains that it changes."""

    action: DomainAction
    """`reset`: as one domain is reset; `unblock`: blocked and unreachable ones; `switch-off`, `switch-on`: whether they are crawled."""
    status: Status | None = None
    active: bool | None = None
    claimed: bool | None = None
    """Only those that a worker holds, or that none holds."""
    worker: ShortText | None = None
    """Only those that this worker holds."""
    name: ShortText | None = None
    """The beginning of the name."""
    parent: ShortText | None = None
    """Only sub-domains of this registrable domain."""
    all_domains: bool = False
    """All domains are meant. It must be said if there is no filter."""

    def where(self) -> DomainFilter:
        """The filter. Raises UsageError if there is none and `all_domains` is not set."""
        where = DomainFilter(self.status, self.active, self.claimed, self.worker, self.name, self.parent)
        if not (where.given() or self.all_domains):
            raise UsageError("Give a filter, such as `status`; `all_domains` applies it to all domains.")
        return where


class BulkAction(MatchingFilter):
    """An action on all domains that match a filter."""

    reason: Annotated[Text, Field(max_length=200)] = "by the API"

    def arguments(self) -> dict[str, Any]:
        """The arguments of the operation."""
        self.where()
        chosen = self.model_dump(
            include={"status", "active", "claimed", "worker", "name", "parent"}, exclude_none=True, mode="json"
        )
        return {"action": str(self.action), "reason": self.reason, "filter": chosen}


class Window(Body):
    """When a domain is not crawled."""

    window: Annotated[Text, Field(min_length=1, max_length=1000, examples=["mon-fri 08:00-18:00 Europe/Berlin"])]


_KNOWN: Final[dict[int | str, dict[str, Any]]] = {
    200: {"model": DomainFacts, "description": "It existed already, and is unchanged."}
}


@router.get("/api/domains", summary="Domains")
def domains(
    services: Services,
    request: Request,
    response: Response,
    status: Status | None = None,
    active: bool | None = None,
    claimed: Annotated[bool | None, Query(description="Only those that a worker holds, or that none holds.")] = None,
    worker: Annotated[Filter, Query(description="Only those that this worker holds.")] = None,
    name: Annotated[Filter, Query(description="The beginning of the name.")] = None,
    parent: Annotated[Filter, Query(description="Only sub-domains of this registrable domain.")] = None,
    order: Literal["name", "crawled", "priority", "newest", "oldest"] = "name",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Domain]:
    """All domains."""
    where = DomainFilter(status, active, claimed, worker or None, name or None, parent or None)
    found = services.domains.page(where, order=order, after=decode_list_cursor("domains", order, cursor), limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/domains/{domain}", summary="A domain", responses=documented(404))
def show(domain: DomainName, services: Services, response: Response) -> DomainFacts:
    """Everything about it."""
    return _facts(response, services.domains.info(domain))


@router.get("/api/domains/{domain}/robots", summary="The robots.txt of a domain", responses=documented(404))
def robots(domain: DomainName, services: Services) -> list[RobotsFile]:
    """Of each of its origins, as it was fetched last; empty: none was requested yet."""
    return services.domains.robots(domain)


@router.get("/api/domains/{domain}/transitions", summary="Changes of a domain's status", responses=documented(404))
def transitions(
    domain: DomainName,
    services: Services,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Transition]:
    """The newest first."""
    after = decode_list_cursor("transitions", "newest", cursor)
    found = services.domains.transitions(domain, after=after, limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/domains/{domain}/tenures", summary="Workers that held a domain", responses=documented(404))
def tenures(
    domain: DomainName,
    services: Services,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Tenure]:
    """The newest first."""
    found = services.domains.tenures(domain, after=decode_list_cursor("tenures", "newest", cursor), limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.post("/api/admin/domains", summary="Add a domain", status_code=201, responses=_KNOWN)
def add(body: NewDomain, services: Services, caller: Caller, response: Response) -> DomainFacts:
    """Without a seed nothing of it is crawled. One that exists already is unchanged (200)."""
    added = services.domains.add(
        body.domain,
        _changes(body, exclude={"domain"}),
        actor=caller.name,
        secrets=body.to_request_secrets(),
        plain_http=body.plain_http,
    )
    response.headers["Location"] = f"/api/domains/{added.domain}"
    response.status_code = 201 if added.created else 200
    return _facts(response, services.domains.info(added.domain))


@router.patch("/api/admin/domains/{domain}", summary="Configure a domain", responses=documented(404, 412))
def change(
    domain: DomainName,
    body: DomainChange,
    services: Services,
    caller: Caller,
    response: Response,
    if_match: IfMatch = None,
) -> DomainFacts:
    """As `holdfast domains set` does it."""
    changes, secrets = _changes(body), body.to_request_secrets()
    if not changes and secrets is None:
        raise UsageError("Say what to change.")
    version = parse_if_match(if_match)
    services.domains.configure(
        domain, changes, actor=caller.name, version=version, secrets=secrets, plain_http=body.plain_http
    )
    return _facts(response, services.domains.info(domain))


@router.delete("/api/admin/domains/{domain}", summary="Remove a domain", status_code=204, responses=documented(404))
def remove(domain: DomainName, services: Services, caller: Caller, after: BackgroundTasks) -> None:
    """With its URLs and pages; the log keeps what was fetched from it. One that is held, or has live tasks, is refused (409). Its rows are
    deleted in chunks after the response."""
    after.add_task(log_failures(services.domains.forget), services.domains.remove(domain, actor=caller.name).id)


@router.post("/api/admin/domains/{domain}/reset", summary="Reset a domain", responses=documented(404))
def reset(domain: DomainName, services: Services, caller: Caller, body: Reset | None = None) -> DomainReset:
    """From any status: blocks, errors and cool-downs are forgotten, all its pages are crawled again; a worker that holds it is fenced
    off."""
    return services.domains.reset(domain, (body or Reset()).reason, actor=caller.name)


@router.post("/api/admin/domains/{domain}/unblock", summary="Unblock a domain", responses=documented(404, 409))
def unblock(domain: DomainName, services: Services, caller: Caller, body: Reset | None = None) -> DomainReset:
    """From blocked or unreachable: the cool-down and the number of blocks are forgotten, and URLs that wait, were refused or could not be
    reached are crawled, not all pages. A domain that is neither is refused (409)."""
    return services.domains.unblock(domain, (body or Reset()).reason, actor=caller.name)


@router.post("/api/admin/domains/bulk/count", summary="Count the domains that a bulk action changes")
def count_matching(body: MatchingFilter, services: Services) -> MatchingDomains:
    """Those that match the filter and are not in the requested state already. Nothing is changed."""
    return services.domains.count_matching(body.action, body.where())


@router.post("/api/admin/domains/bulk", summary="Change all domains that match a filter", status_code=202)
def change_matching(body: BulkAction, services: Services, caller: Caller, response: Response) -> Operation:
    """In the background, one domain after the other; domains that are found meanwhile stay as they are."""
    arguments = body.arguments()
    return accepted(response, services.operations.ask(CHANGE_DOMAINS, arguments, actor=caller.name))


@router.post("/api/admin/priorities", summary="Recalculate the priorities of all domains", status_code=202)
def recalculate(services: Services, caller: Caller, response: Response) -> Operation:
    """In the background. The priority of a domain is also recalculated after each visit."""
    return accepted(response, services.operations.ask("recalculate-priorities", {}, actor=caller.name))


@router.get("/api/maintenance-windows", summary="Domains with maintenance windows")
def windows(
    services: Services,
    request: Request,
    response: Response,
    name: Annotated[Filter, Query(description="The beginning of the name.")] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[MaintenanceWindow]:
    """By name, with whether they are open now and when that changes."""
    after = decode_list_cursor("windows", "name", cursor)
    found = services.domains.windows(WindowFilter(name or None), after=after, limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.put(
    "/api/admin/domains/{domain}/maintenance-window",
    summary="Set the maintenance window of a domain",
    responses=documented(404, 412),
)
def set_window(
    domain: DomainName, body: Window, services: Services, caller: Caller, response: Response, if_match: IfMatch = None
) -> DomainFacts:
    """Written as in `holdfast domains set NAME window=…`."""
    changes = parse_assignments([f"window={body.window}"])
    services.domains.configure(domain, changes, actor=caller.name, version=parse_if_match(if_match))
    return _facts(response, services.domains.info(domain))


@router.delete(
    "/api/admin/domains/{domain}/maintenance-window",
    summary="Remove the maintenance window of a domain",
    responses=documented(404, 412),
)
def clear_window(
    domain: DomainName, services: Services, caller: Caller, response: Response, if_match: IfMatch = None
) -> DomainFacts:
    """It may be crawled at any time."""
    changes = parse_assignments(["window="])
    services.domains.configure(domain, changes, actor=caller.name, version=parse_if_match(if_match))
    return _facts(response, services.domains.info(domain))


def _changes(body: DomainChange, exclude: set[str] | None = None) -> dict[str, object]:
    """The changes of a body, parsed and checked as those of `domains set`."""
    fields = body.model_dump(exclude_unset=True, exclude=exclude)
    words = [f"{name}={_word(fields[name])}" for name in KEYS if name in fields]
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


def _facts(response: Response, found: DomainFacts) -> DomainFacts:
    set_etag(response, found.version)
    return found
