"""Proxies: servers that ask the web for us. Passwords come in here; none ever goes out."""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, SecretStr

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, id_page, keyset_page
from holdfast.api.request_types import (
    INTEGER,
    Body,
    Filter,
    Id,
    IfMatch,
    ShortText,
    Text,
    View,
    parse_if_match,
    set_etag,
)
from holdfast.control.list_filters import ProxyFilter
from holdfast.errors import Refused, UsageError
from holdfast.model import proxy as model
from holdfast.model.cursor import decode_cursor
from holdfast.model.proxy import ParsedProxy, Protocol
from holdfast.model.url import checked_host, parse_url
from holdfast.proxies.queries.proxies import Facts, Proxy
from holdfast.proxies.tester import URL

router = APIRouter(route_class=AuthorizedRoute, tags=["proxies"])

Country = Annotated[str | None, Field(pattern="^[A-Z]{2}$", examples=["DE"])]
Note = Annotated[str | None, Field(min_length=1, max_length=100, examples=["acme"])]
Cost = Annotated[Decimal | None, Field(ge=0, max_digits=10, decimal_places=2, examples=["12.50"])]
PerHour = Annotated[int | None, Field(ge=1, le=INTEGER, examples=[1000])]


class ProxyView(View):
    """A proxy and what went through it, without its password."""

    id: int
    server: str
    """Where it is: PROTOCOL://HOST:PORT."""
    protocol: Protocol
    host: str
    port: int
    username: str | None
    has_password: bool
    is_active: bool
    disabled_by: str | None
    """`operator`, or `health`: it failed too often."""
    failure_count: int
    """In a row."""
    last_error: str | None
    last_failure_at: datetime | None
    next_try_at: datetime | None
    country_code: str | None
    city: str | None
    provider: str | None
    monthly_cost: Decimal | None
    max_requests_per_hour: int | None
    """null: without a limit."""
    allow_private: bool
    """It may have a private address."""
    created_at: datetime
    updated_at: datetime
    success_count: int
    total_failures: int
    """Sites that did not want it."""
    proxy_failures: int
    """Its own."""
    requests: int
    other_requests: int
    """Such as those for robots.txt."""
    bytes: int
    avg_response_time_ms: float | None
    last_used_at: datetime | None
    last_success_at: datetime | None
    domains: int
    """That have it in their pools, or have used it."""
    version: int


class NewProxy(Body):
    """A proxy to be made known: by its `url`, or by its parts."""

    url: Annotated[SecretStr | None, Field(max_length=5000, examples=["http://bob:s3cret@proxy.example:8080"])] = None
    """SCHEME://USER:PASSWORD@HOST:PORT; scheme, user and password may be left out; %40 is an @."""
    protocol: Protocol | None = None
    """null: http."""
    host: ShortText | None = None
    port: Annotated[int | None, Field(ge=1, le=65_535)] = None
    username: Annotated[str | None, Field(max_length=255)] = None
    password: Annotated[SecretStr | None, Field(max_length=1000)] = None
    country_code: Country = None
    city: Note = None
    provider: Note = None
    monthly_cost: Cost = None
    max_requests_per_hour: PerHour = 1000
    """null: without a limit."""
    allow_private: bool = False
    """It has a private address, and that is meant."""

    def written(self) -> ParsedProxy:
        """The proxy that is meant. Raises UsageError, with nothing of its password."""
        parts = (self.protocol, self.host, self.port, self.username, self.password)
        if self.url is not None:
            if any(part is not None for part in parts):
                raise UsageError("Say where the proxy is by `url` or by its parts, not by both.")
            return model.parse_proxy(self.url.get_secret_value())
        if self.host is None or self.port is None:
            raise UsageError("Say where the proxy is: by `url`, or by `host` and `port`.")
        password = "" if self.password is None else self.password.get_secret_value()
        return model.make_proxy(self.protocol or Protocol.HTTP, self.host, self.port, self.username or "", password)

    def facts(self) -> Facts:
        """What is said of it."""
        return Facts(
            self.country_code,
            self.city,
            self.provider,
            self.monthly_cost,
            self.max_requests_per_hour,
            self.allow_private,
        )


class ProxyChange(Body):
    """What is to be different. What is left out stays as it is; null takes away what was said."""

    country_code: Country = None
    city: Note = None
    provider: Note = None
    monthly_cost: Cost = None
    max_requests_per_hour: PerHour = None
    """null: without a limit."""
    allow_private: bool = False
    password: Annotated[SecretStr | None, Field(max_length=1000)] = None
    """null or empty: it has none."""

    def changes(self) -> Mapping[str, Any]:
        """What was said, but for the password."""
        return self.model_dump(exclude_unset=True, exclude={"password"})

    def new_password(self) -> str | None:
        """Empty: none; None: as it was."""
        if "password" not in self.model_fields_set:
            return None
        return "" if self.password is None else self.password.get_secret_value()


class Trial(Body):
    """What to ask for through a proxy."""

    url: Text = Field(default=URL, examples=[URL])


class TestedView(View):
    """What came of trying a proxy."""

    id: int
    server: str
    works: bool
    problem: str | None
    """Why it does not, or why nobody could tell."""
    fault: str | None
    """Whose it is: `proxy`, `unclear` (the proxy's or the site's) or `site`; null: it works, or was not asked."""
    status: int | None
    """What the site answered."""
    seconds: float | None
    recovered: bool
    """It had failed too often, and is active again."""


class HealthView(View):
    """The pool of a domain in numbers."""

    domain: str
    use: str
    """Which proxies it uses: `direct` (none), `pool` or `any`."""
    proxies: int
    """Assigned to it."""
    active: int
    """Of these: nobody switched them off, and they do not fail."""
    failing: int
    """Of these: they failed, or were refused, too often in a row."""
    requests: int
    other_requests: int
    success_count: int
    total_failures: int
    proxy_failures: int
    bytes: int
    avg_response_time_ms: float | None
    last_used_at: datetime | None
    failure_percent: float | None


class CostView(View):
    """What a proxy costs, and what for."""

    id: int
    server: str
    provider: str | None
    is_active: bool
    requests: int
    """With those for robots.txt."""
    bytes: int
    monthly_cost: Decimal | None
    cost_per_1000: Decimal | None
    """Requests: what it has cost since it was added, a month at least."""


class ProviderCostView(View):
    """What the proxies of a provider cost, and what for."""

    provider: str | None
    proxies: int
    active: int
    requests: int
    bytes: int
    monthly_cost: Decimal | None
    cost_per_1000: Decimal | None


class Costs(Page[CostView]):
    """What proxies cost, and on the first page what those of each provider do."""

    providers: list[ProviderCostView]


@router.get("/api/proxies", summary="Proxies")
def proxies(
    services: Services,
    request: Request,
    response: Response,
    active: bool | None = None,
    provider: Filter = None,
    country: Annotated[Filter, Query(description="A code of two letters.", examples=["DE"])] = None,
    order: Literal["oldest", "newest"] = "oldest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[ProxyView]:
    """What is said of them, and what went through them."""
    query = ProxyFilter(active, provider, country)
    found = services.listings.proxies(
        query, order=order, after=decode_list_cursor("proxies", order, cursor), limit=limit
    )
    return keyset_page(request, response, [_view(proxy) for proxy in found.rows], found.next)


@router.get("/api/proxies/health", summary="The pools of all domains in numbers")
def health(
    services: Services, request: Request, response: Response, cursor: CursorText = None, limit: Limit = DEFAULT_LIMIT
) -> Page[HealthView]:
    """Of domains that have or want proxies, by name."""
    key = decode_cursor(cursor, str)
    found = services.proxies.health(after="" if key is None else str(key[0]), limit=limit)
    more = (found[-1].domain,) if len(found) == limit else None
    return keyset_page(request, response, [HealthView.of(pool) for pool in found], more)


@router.get("/api/proxies/cost", summary="What proxies cost")
def cost(
    services: Services, request: Request, response: Response, cursor: CursorText = None, limit: Limit = DEFAULT_LIMIT
) -> Costs:
    """In the order of their ids; the first page also says what those of each provider cost."""
    key = decode_cursor(cursor, int) or (0,)
    if not isinstance(key[0], int):
        raise UsageError("This is no cursor of this list; take the `next` of a page of it, or leave it out to begin.")
    found = services.proxies.costs(after=key[0], limit=limit)
    page = id_page(request, response, [CostView.of(one) for one in found], limit)
    providers = services.proxies.provider_costs() if cursor is None else []
    return Costs(items=page.items, next=page.next, providers=[ProviderCostView.of(one) for one in providers])


@router.get("/api/proxies/{id}", summary="A proxy", responses=documented(404))
def proxy(id: Id, response: Response, services: Services) -> ProxyView:  # noqa: A002 — the name of the parameter
    """What is said of it, and what went through it."""
    return _answer(response, services.proxies.show(id))


@router.post("/api/admin/proxies", summary="Make a proxy known", status_code=201)
def add(given: NewProxy, response: Response, services: Services, caller: Caller) -> ProxyView:
    """Its password is stored sealed, and never shown. One that is known with the same user is a 409."""
    made = services.proxies.add(given.written(), given.facts(), actor=caller.name)
    if not made.created:
        raise Refused(f"{made.server} is known as proxy {made.id} already, and is as it was; change that one.")
    response.headers["Location"] = f"/api/proxies/{made.id}"
    return _answer(response, services.proxies.show(made.id))


@router.patch("/api/admin/proxies/{id}", summary="Change what is said of a proxy", responses=documented(404, 412))
def change(
    id: Id,  # noqa: A002 — the name of the parameter
    given: ProxyChange,
    response: Response,
    services: Services,
    caller: Caller,
    if_match: IfMatch = None,
) -> ProxyView:
    """Another password also forgets the failures of the one before."""
    if not given.model_fields_set:
        raise UsageError("Say what is to be different.")
    version = parse_if_match(if_match)
    changed = services.proxies.edit(
        id, given.changes(), actor=caller.name, password=given.new_password(), version=version
    )
    return _answer(response, changed)


@router.delete("/api/admin/proxies/{id}", summary="Forget a proxy", status_code=204, responses=documented(404))
def remove(id: Id, services: Services, caller: Caller) -> None:  # noqa: A002 — the name of the parameter
    """Also its place in pools, and what it did there."""
    services.proxies.remove(id, actor=caller.name)


@router.post("/api/admin/proxies/{id}/enable", summary="Let a proxy be used", responses=documented(404))
def enable(id: Id, response: Response, services: Services, caller: Caller) -> ProxyView:  # noqa: A002 — the name of the parameter
    """Its failures are forgotten. To enable it twice is no error."""
    services.proxies.switch(id, on=True, actor=caller.name)
    return _answer(response, services.proxies.show(id))


@router.post("/api/admin/proxies/{id}/disable", summary="Let a proxy be used by nobody", responses=documented(404))
def disable(id: Id, response: Response, services: Services, caller: Caller) -> ProxyView:  # noqa: A002 — the name of the parameter
    """Until somebody enables it. To disable it twice is no error."""
    services.proxies.switch(id, on=False, actor=caller.name)
    return _answer(response, services.proxies.show(id))


@router.post("/api/admin/proxies/{id}/test", summary="Try a proxy", responses=documented(404))
def try_out(id: Id, services: Services, caller: Caller, given: Trial | None = None) -> TestedView:  # noqa: A002 — the name of the parameter
    """Asks for a page through it, now, and waits for it. One that works is active again if it had failed too often; one that does not
    is as it was. It counts against the limit of the proxy."""
    url = parse_url((given or Trial()).url)
    checked_host(url)
    (tested,) = services.proxy_tester.test([id], url.href, actor=caller.name)
    return TestedView.of(tested)


def _answer(response: Response, proxy: Proxy) -> ProxyView:
    set_etag(response, proxy.version)
    return _view(proxy)


def _view(proxy: Proxy) -> ProxyView:
    return ProxyView.of(proxy, server=str(proxy.server))
