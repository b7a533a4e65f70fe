"""The pools of domains: which proxies a domain uses, and how they do there."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import Field

from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, keyset_page
from holdfast.api.request_types import BIGINT, Body, Domain, Id, IfMatch, View, parse_if_match, set_etag
from holdfast.errors import NotFound, UsageError
from holdfast.model.cursor import decode_cursor
from holdfast.model.proxy import Protocol
from holdfast.proxies.api.proxies import HealthView
from holdfast.proxies.queries.pools import Mapping
from holdfast.proxies.service import FIRST_PRIORITY, LAST_PRIORITY

router = APIRouter(route_class=AuthorizedRoute, tags=["proxies"])

Priority = Annotated[int | None, Field(ge=FIRST_PRIORITY, le=LAST_PRIORITY, examples=[5])]


class MemberView(View):
    """A proxy in the pool of a domain, and what it did there."""

    domain: str
    proxy_id: int
    server: str
    """Where the proxy is: PROTOCOL://HOST:PORT."""
    protocol: Protocol
    host: str
    port: int
    username: str | None
    country_code: str | None
    provider: str | None
    proxy_is_active: bool
    """For anybody."""
    assigned: bool
    """False: it is not in the pool, but was used: from the global pool, or before it was taken out."""
    priority: int
    """From 1 (first) to 10."""
    is_active: bool
    """Here."""
    disabled_by: str | None
    """`operator`, or `health`: it was refused too often."""
    failure_count: int
    """In a row, here."""
    last_error: str | None
    last_used_at: datetime | None
    last_success_at: datetime | None
    last_failure_at: datetime | None
    next_try_at: datetime | None
    success_count: int
    total_failures: int
    proxy_failures: int
    requests: int
    other_requests: int
    bytes: int
    avg_response_time_ms: float | None
    success_percent: float | None
    """Of the requests that say something of the proxy; the site's own errors do not."""
    can_not: str | None
    """Why it cannot be used now: `off`, `off_here`, `wrong_country`, `failed`, `refused` or `used_up`; null: it can."""
    can_again: datetime | None
    """When it can, as far as that is a matter of time."""
    version: int


class Assignment(Body):
    """Proxies for a domain."""

    proxy_ids: Annotated[
        list[Annotated[int, Field(ge=1, le=BIGINT)]], Field(min_length=1, max_length=1000, examples=[[7, 8]])
    ]
    priority: Priority = None
    """null: 5 for those that are new to the pool, and what it was for the others."""


class AssignedView(View):
    """What came of assigning proxies to a domain, by their ids."""

    domain: str
    added: list[int]
    changed: list[int]
    """They were in the pool, with another priority."""
    unchanged: list[int]
    use: str | None
    """Which proxies the domain says that it uses."""
    now_uses_pool: bool
    """It had not said so before."""


class MemberChange(Body):
    """What is to be different. What is left out, or null, stays as it is."""

    priority: Priority = None
    is_active: bool | None = None
    """true: it is used here, its failures forgotten; false: not until somebody says so."""


class NextProxyView(View):
    """What the next request to a domain would go through, and why."""

    domain: str
    use: str
    """Which proxies it uses: `direct` (none), `pool` or `any`."""
    proxy_id: int | None
    """null: it would go without a proxy (`direct`), or has to wait."""
    server: str | None
    country_code: str | None
    provider: str | None
    priority: int | None
    last_used_at: datetime | None
    direct: bool
    why: str
    usable: int
    """Proxies that could be used."""
    can_not: dict[str, int]
    """How many could not, by reason."""
    until: datetime | None
    """When one of those can, as far as that is a matter of time."""


@router.get("/api/domains/{domain}/proxies", summary="The pool of a domain", responses=documented(404))
def pool(
    domain: Domain,
    services: Services,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[MemberView]:
    """In the order in which its proxies are used, and behind them what else it has used."""
    found = _behind(services.proxies.pool(domain), cursor)
    rows = found[:limit]
    key = _key(rows[-1]) if len(found) > limit else None
    return keyset_page(request, response, [_view(mapping) for mapping in rows], key)


@router.get(
    "/api/domains/{domain}/proxies/health", summary="The pool of a domain in numbers", responses=documented(404)
)
def health(domain: Domain, services: Services) -> HealthView:
    """Zeros, if it has none."""
    return HealthView.of(services.proxy_preview.health(domain))


@router.get("/api/domains/{domain}/proxies/next", summary="Which proxy comes next", responses=documented(404))
def following(domain: Domain, services: Services) -> NextProxyView:
    """As far as the store knows: workers have turns in memory that nobody else sees."""
    return NextProxyView.of(services.proxy_preview.next(domain))


@router.post("/api/admin/domains/{domain}/proxies", summary="Put proxies into a pool", responses=documented(404))
def assign(domain: Domain, given: Assignment, services: Services, caller: Caller) -> AssignedView:
    """A domain that used no proxies uses its pool from now on. A domain or proxy that is not known is a 404."""
    return AssignedView.of(services.proxies.assign(domain, given.proxy_ids, actor=caller.name, priority=given.priority))


@router.patch(
    "/api/admin/domains/{domain}/proxies/{id}", summary="Change a place in a pool", responses=documented(404, 412)
)
def change(
    domain: Domain,
    id: Id,  # noqa: A002 — the name of the parameter
    given: MemberChange,
    response: Response,
    services: Services,
    caller: Caller,
    if_match: IfMatch = None,
) -> MemberView:
    """Its priority, or whether it is used here."""
    if given.priority is None and given.is_active is None:
        raise UsageError("Say what is to be different: priority, is_active or both.")
    changed = services.proxies.edit_mapping(
        domain,
        id,
        actor=caller.name,
        priority=given.priority,
        on=given.is_active,
        version=parse_if_match(if_match),
    )
    set_etag(response, changed.version)
    return _view(changed)


@router.delete(
    "/api/admin/domains/{domain}/proxies/{id}",
    summary="Take a proxy out of a pool",
    status_code=204,
    responses=documented(404),
)
def unassign(domain: Domain, id: Id, services: Services, caller: Caller) -> None:  # noqa: A002 — the name of the parameter
    """What it did for the domain stays countable."""
    done = services.proxies.unassign(domain, [id], actor=caller.name)
    if done.unknown:
        raise NotFound(f"Proxy {id} is not in the pool of {done.domain}.")


def _behind(members: Sequence[Mapping], cursor: str | None) -> Sequence[Mapping]:
    """Those that come behind the one that a cursor stands for. A pool is short enough to be read at once, and its order is never the
    same for long."""
    key = decode_cursor(cursor, int, int, datetime, int)
    if key is None:
        return members
    try:
        last = _rank(*key)
    except TypeError:
        raise UsageError(
            "This is no cursor of this list; take the `next` of a page of it, or leave it out to begin."
        ) from None
    return [member for member in members if _rank(*_key(member)) > last]


def _key(member: Mapping) -> tuple[object, ...]:
    return (int(not member.assigned), member.priority, member.last_used_at, member.proxy_id)


def _rank(group: object, priority: object, used: object, proxy_id: object) -> tuple[int, int, float, int]:
    """What the store sorts a pool by. Raises TypeError for what is no key."""
    if not (isinstance(group, int) and isinstance(priority, int) and isinstance(proxy_id, int)):
        raise TypeError
    return (group, priority, used.timestamp() if isinstance(used, datetime) else -math.inf, proxy_id)


def _view(member: Mapping) -> MemberView:
    return MemberView.of(member, server=str(member.server))
