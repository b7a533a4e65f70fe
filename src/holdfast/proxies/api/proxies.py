"""Routes of proxies: list, show, add, edit, enable, disable, remove, test; health and cost. No response contains a password."""

from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, SecretStr

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import (
    DEFAULT_LIMIT,
    CursorText,
    Limit,
    Page,
    decode_id_cursor,
    decode_list_cursor,
    id_page,
    keyset_page,
)
from holdfast.api.request_types import (
    INTEGER,
    Body,
    Filter,
    Id,
    IfMatch,
    ShortText,
    Text,
    parse_if_match,
    set_etag,
)
from holdfast.errors import Refused, UsageError
from holdfast.model.cursor import decode_cursor
from holdfast.model.proxy import ParsedProxy, Protocol, make_proxy, parse_proxy
from holdfast.model.url import checked_host, parse_url
from holdfast.proxies.records import (
    PoolHealth,
    ProviderCost,
    Proxy,
    ProxyCost,
    ProxyFilter,
    ProxyMapping,
    ProxyOptions,
    ProxyTest,
)
from holdfast.proxies.tester import DEFAULT_URL

router = APIRouter(route_class=AuthorizedRoute, tags=["proxies"])

Country = Annotated[str | None, Field(pattern="^[A-Z]{2}$", examples=["DE"])]
Note = Annotated[str | None, Field(min_length=1, max_length=100, examples=["acme"])]
Cost = Annotated[Decimal | None, Field(ge=0, max_digits=10, decimal_places=2, examples=["12.50"])]
PerHour = Annotated[int | None, Field(ge=1, le=INTEGER, examples=[1000])]


class ProxyBody(Body):
    """A proxy to add: by its `url`, or by its parts."""

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
    """It may have a private address."""

    def parsed(self) -> ParsedProxy:
        """The proxy and its password. Raises UsageError, without quoting the password."""
        parts = (self.protocol, self.host, self.port, self.username, self.password)
        if self.url is not None:
            if any(part is not None for part in parts):
                raise UsageError("Say where the proxy is by `url` or by its parts, not by both.")
            return parse_proxy(self.url.get_secret_value())
        if self.host is None or self.port is None:
            raise UsageError("Say where the proxy is: by `url`, or by `host` and `port`.")
        password = "" if self.password is None else self.password.get_secret_value()
        return make_proxy(self.protocol or Protocol.HTTP, self.host, self.port, self.username or "", password)

    def options(self) -> ProxyOptions:
        """The options of the proxy."""
        return ProxyOptions(**self.model_dump(include={field.name for field in fields(ProxyOptions)}))


class ProxyChange(Body):
    """Changes of a proxy. A field that is left out stays as it is; null removes it."""

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
        """The fields that were sent, without the password."""
        return self.model_dump(exclude_unset=True, exclude={"password"})

    def new_password(self) -> str | None:
        """The new password; empty: none; None: unchanged."""
        if "password" not in self.model_fields_set:
            return None
        return "" if self.password is None else self.password.get_secret_value()


class TestBody(Body):
    """The URL to request through a proxy."""

    url: Text = Field(default=DEFAULT_URL, examples=[DEFAULT_URL])


class Costs(Page[ProxyCost]):
    """The cost of proxies, and on the first page that of each provider."""

    providers: list[ProviderCost]


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
) -> Page[Proxy]:
    """With the statistics of their use."""
    where = ProxyFilter(active, provider, country)
    found = services.proxies.page(where, order=order, after=decode_list_cursor("proxies", order, cursor), limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/proxies/health", summary="The pools of all domains in numbers")
def health(
    services: Services, request: Request, response: Response, cursor: CursorText = None, limit: Limit = DEFAULT_LIMIT
) -> Page[PoolHealth]:
    """Of domains that have or use proxies, by name."""
    key = decode_cursor(cursor, str)
    found = services.proxies.health(after="" if key is None else str(key[0]), limit=limit)
    more = (found[-1].domain,) if len(found) == limit else None
    return keyset_page(request, response, found, more)


@router.get("/api/proxies/cost", summary="The cost of proxies")
def cost(
    services: Services, request: Request, response: Response, cursor: CursorText = None, limit: Limit = DEFAULT_LIMIT
) -> Costs:
    """By id; the first page also has the cost of the proxies of each provider."""
    page = id_page(request, response, services.proxies.costs(after=decode_id_cursor(cursor) or 0, limit=limit), limit)
    providers = services.proxies.provider_costs() if cursor is None else []
    return Costs(items=page.items, next=page.next, providers=providers)


@router.get("/api/proxies/{id}", summary="A proxy", responses=documented(404))
def proxy(id: Id, response: Response, services: Services) -> Proxy:  # noqa: A002 — the name of the parameter
    """With the statistics of its use."""
    return _with_etag(response, services.proxies.show(id))


@router.get("/api/proxies/{id}/domains", summary="The pools that a proxy is in", responses=documented(404))
def domains(
    id: Id,  # noqa: A002 — the name of the parameter
    services: Services,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[ProxyMapping]:
    """By domain. These domains lose it when it is deleted."""
    key = decode_cursor(cursor, str)
    found = services.proxies.pools_of(id, after="" if key is None else str(key[0]), limit=limit)
    return keyset_page(request, response, found, (found[-1].domain,) if len(found) == limit else None)


@router.post("/api/admin/proxies", summary="Add a proxy", status_code=201)
def add(body: ProxyBody, response: Response, services: Services, caller: Caller) -> Proxy:
    """The password is stored sealed, and never returned. A proxy that is known with the same user is a 409."""
    added = services.proxies.add(body.parsed(), body.options(), actor=caller.name)
    if not added.created:
        raise Refused(f"{added.server} is known as proxy {added.id} already, and is as it was; change that one.")
    response.headers["Location"] = f"/api/proxies/{added.id}"
    return _with_etag(response, services.proxies.show(added.id))


@router.patch("/api/admin/proxies/{id}", summary="Edit a proxy", responses=documented(404, 412))
def change(
    id: Id,  # noqa: A002 — the name of the parameter
    body: ProxyChange,
    response: Response,
    services: Services,
    caller: Caller,
    if_match: IfMatch = None,
) -> Proxy:
    """A new password also resets the failures of the proxy."""
    if not body.model_fields_set:
        raise UsageError("Name at least one field to change.")
    version = parse_if_match(if_match)
    changed = services.proxies.edit(
        id, body.changes(), actor=caller.name, password=body.new_password(), version=version
    )
    return _with_etag(response, changed)


@router.delete("/api/admin/proxies/{id}", summary="Remove a proxy", status_code=204, responses=documented(404))
def remove(id: Id, services: Services, caller: Caller) -> None:  # noqa: A002 — the name of the parameter
    """With its membership in pools and its statistics."""
    services.proxies.remove(id, actor=caller.name)


@router.post("/api/admin/proxies/{id}/enable", summary="Enable a proxy", responses=documented(404))
def enable(id: Id, response: Response, services: Services, caller: Caller) -> Proxy:  # noqa: A002 — the name of the parameter
    """Its failures are reset. To enable it twice is no error."""
    services.proxies.switch(id, on=True, actor=caller.name)
    return _with_etag(response, services.proxies.show(id))


@router.post("/api/admin/proxies/{id}/disable", summary="Disable a proxy", responses=documented(404))
def disable(id: Id, response: Response, services: Services, caller: Caller) -> Proxy:  # noqa: A002 — the name of the parameter
    """Until it is enabled again. To disable it twice is no error."""
    services.proxies.switch(id, on=False, actor=caller.name)
    return _with_etag(response, services.proxies.show(id))


@router.post("/api/admin/proxies/{id}/test", summary="Test a proxy", responses=documented(404))
def run_test(id: Id, services: Services, caller: Caller, body: TestBody | None = None) -> ProxyTest:  # noqa: A002 — the name of the parameter
    """Requests a page through the proxy and waits for the result. A proxy that works is active again if it had failed too often; one that
    does not is unchanged. The request counts against the limit of the proxy."""
    url = parse_url((body or TestBody()).url)
    checked_host(url)
    (tested,) = services.proxy_tester.test([id], url.href, actor=caller.name)
    return tested


def _with_etag(response: Response, proxy: Proxy) -> Proxy:
    set_etag(response, proxy.version)
    return proxy
