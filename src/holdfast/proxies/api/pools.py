"""Routes of the pools of domains: list, health, next proxy, assign, edit, unassign."""

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
from holdfast.api.request_types import BIGINT, Body, Domain, Id, IfMatch, parse_if_match, set_etag
from holdfast.errors import NotFound, UsageError
from holdfast.model.cursor import INVALID_CURSOR, Key, decode_cursor
from holdfast.proxies.records import FIRST_PRIORITY, LAST_PRIORITY, Assignment, NextProxy, PoolHealth, ProxyMapping

router = APIRouter(route_class=AuthorizedRoute, tags=["proxies"])

Priority = Annotated[int | None, Field(ge=FIRST_PRIORITY, le=LAST_PRIORITY, examples=[5])]


class AssignmentBody(Body):
    """Proxies to assign to a domain."""

    proxy_ids: Annotated[
        list[Annotated[int, Field(ge=1, le=BIGINT)]], Field(min_length=1, max_length=1000, examples=[[7, 8]])
    ]
    priority: Priority = None
    """null: 5 for proxies that are new to the pool, and unchanged for the others."""


class MappingChange(Body):
    """Changes of a mapping. A field that is left out, or null, stays as it is."""

    priority: Priority = None
    is_active: bool | None = None
    """true: the proxy is used for this domain, and its failures are reset; false: it is not used until it is enabled."""


@router.get("/api/domains/{domain}/proxies", summary="The pool of a domain", responses=documented(404))
def pool(
    domain: Domain,
    services: Services,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[ProxyMapping]:
    """In the order in which its proxies are used, followed by other proxies that it has used."""
    found = _after(services.proxies.pool(domain), cursor)
    rows = found[:limit]
    return keyset_page(request, response, rows, _key(rows[-1]) if len(found) > limit else None)


@router.get(
    "/api/domains/{domain}/proxies/health", summary="The pool of a domain in numbers", responses=documented(404)
)
def health(domain: Domain, services: Services) -> PoolHealth:
    """Zeros, if it has none."""
    return services.proxies.pool_health(domain)


@router.get("/api/domains/{domain}/proxies/next", summary="Which proxy comes next", responses=documented(404))
def next_proxy(domain: Domain, services: Services) -> NextProxy:
    """As far as the database knows; running visits have further state in memory."""
    return services.proxies.next(domain)


@router.post("/api/admin/domains/{domain}/proxies", summary="Assign proxies to a domain", responses=documented(404))
def assign(domain: Domain, body: AssignmentBody, services: Services, caller: Caller) -> Assignment:
    """A domain that used no proxies uses its pool from now on. An unknown domain or proxy is a 404."""
    return services.proxies.assign(domain, body.proxy_ids, actor=caller.name, priority=body.priority)


@router.patch(
    "/api/admin/domains/{domain}/proxies/{id}", summary="Edit a proxy of a pool", responses=documented(404, 412)
)
def change(
    domain: Domain,
    id: Id,  # noqa: A002 — the name of the parameter
    body: MappingChange,
    response: Response,
    services: Services,
    caller: Caller,
    if_match: IfMatch = None,
) -> ProxyMapping:
    """Its priority, or whether it is used for this domain."""
    if body.priority is None and body.is_active is None:
        raise UsageError("Name at least one field to change: priority, is_active.")
    changed = services.proxies.edit_mapping(
        domain,
        id,
        actor=caller.name,
        priority=body.priority,
        on=body.is_active,
        version=parse_if_match(if_match),
    )
    set_etag(response, changed.version)
    return changed


@router.delete(
    "/api/admin/domains/{domain}/proxies/{id}",
    summary="Remove a proxy from a pool",
    status_code=204,
    responses=documented(404),
)
def unassign(domain: Domain, id: Id, services: Services, caller: Caller) -> None:  # noqa: A002 — the name of the parameter
    """Its statistics for the domain are kept."""
    done = services.proxies.unassign(domain, [id], actor=caller.name)
    if done.unknown:
        raise NotFound(f"Proxy {id} is not in the pool of {done.domain}.")


def _after(mappings: Sequence[ProxyMapping], cursor: str | None) -> Sequence[ProxyMapping]:
    """Return the mappings after a cursor. A pool is short enough to be read as a whole, and its order changes with every use."""
    key = decode_cursor(cursor, int, int, datetime, int)
    if key is None:
        return mappings
    try:
        last = _rank(*key)
    except TypeError:
        raise UsageError(INVALID_CURSOR) from None
    return [mapping for mapping in mappings if _rank(*_key(mapping)) > last]


def _key(mapping: ProxyMapping) -> Key:
    return (int(not mapping.assigned), mapping.priority, mapping.last_used_at, mapping.proxy_id)


def _rank(group: object, priority: object, used: object, proxy_id: object) -> tuple[int, int, float, int]:
    """Return the sort key of a pool. Raises TypeError for an invalid key."""
    if not (isinstance(group, int) and isinstance(priority, int) and isinstance(proxy_id, int)):
        raise TypeError
    return (group, priority, used.timestamp() if isinstance(used, datetime) else -math.inf, proxy_id)
