"""SQL of proxies: add, list, show, edit, enable, disable, remove, and their sealed passwords. Pools are in `proxies/queries/pools`.

The rule: an operator's change and its line in the audit log are written in one transaction. Statistics are written by the holders of
domains (`db/proxy_usage`) into rows of their own, and only summed here. No transaction locks a domain's row after a proxy's: workers lock
them in the opposite order.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import psycopg
from psycopg import sql

from holdfast.db import array_params, audit
from holdfast.db.keyset_pagination import Key, Listing, Order, Page, SortColumn, only_id
from holdfast.db.rows import by_name
from holdfast.errors import Changed, NotFound, Refused
from holdfast.model.proxy import DisabledBy, Protocol, ProxyServer
from holdfast.proxies.records import Proxy, ProxyFilter, ProxyOptions

KIND: Final = "proxy"
CHANGEABLE: Final = frozenset(
    {"country_code", "city", "provider", "monthly_cost", "max_requests_per_hour", "allow_private", "proxy_password"}
)
"""Columns that an operator may change."""
ADDRESS: Final = "p.proxy_protocol || '://' || p.proxy_url || ':' || p.proxy_port AS server"
"""The address of the proxy `p`, as `ProxyServer` formats it."""

# A proxy that is listed twice is added once.
_ADD: Final = """
INSERT INTO proxies (proxy_protocol, proxy_url, proxy_port, proxy_username, proxy_password, country_code, city, provider, monthly_cost,
                     max_requests_per_hour, allow_private)
SELECT * FROM unnest(%(protocols)s::text[], %(hosts)s::text[], %(ports)s::int[], %(usernames)s::text[], %(tokens)s::text[],
                     %(countries)s::text[], %(cities)s::text[], %(providers)s::text[], %(costs)s::numeric[], %(limits)s::int[],
                     %(private)s::bool[])
ON CONFLICT ON CONSTRAINT proxy_known_once DO NOTHING RETURNING id
"""
# OFFSET 0, so that only the proxies that are read are summed.
_READ: Final = f"""
SELECT p.id, {ADDRESS}, p.proxy_protocol AS protocol, p.proxy_url AS host, p.proxy_port AS port, p.proxy_username AS username,
       p.proxy_password IS NOT NULL AS has_password, p.is_active, p.disabled_by, p.failure_count, p.last_error, p.last_failure_at,
       p.next_try_at, p.country_code, p.city, p.provider, p.monthly_cost, p.max_requests_per_hour, p.allow_private, p.version,
       p.created_at, p.updated_at, t.success_count, t.total_failures, t.proxy_failures, t.requests, t.other_requests, t.bytes,
       t.avg_response_time_ms, t.last_used_at, t.last_success_at, t.domains
FROM proxies p CROSS JOIN LATERAL (SELECT * FROM proxy_totals v WHERE v.id = p.id OFFSET 0) t
"""  # noqa: S608 — constants
PROXIES: Final = Listing(
    "proxies",
    "t.id",
    only_id,
    {
        "active": "t.is_active",
        "inactive": "NOT t.is_active",
        "provider": "t.provider = %(provider)s",
        "country": "t.country_code = %(country)s",
    },
    {"oldest": Order((SortColumn("t.id", int),)), "newest": Order((SortColumn("t.id", int, descending=True),))},
)
"""The list of proxies."""
_SWITCH: Final = """
UPDATE proxies SET is_active = %(by)s::text IS NULL, disabled_by = %(by)s, failure_count = 0, next_try_at = NULL, last_error = NULL,
    version = version + 1, updated_at = clock_timestamp()
WHERE id = %(id)s AND (disabled_by IS DISTINCT FROM %(by)s OR failure_count > 0)
"""
_RECOVER: Final = """
UPDATE proxies SET is_active = true, disabled_by = NULL, failure_count = 0, next_try_at = NULL, last_error = NULL,
    updated_at = clock_timestamp()
WHERE id = %s AND disabled_by IS DISTINCT FROM 'operator' AND failure_count > 0
"""
_MAX_ATTEMPTS: Final = 5
_REMOVE_MAPPINGS: Final = """
DELETE FROM domain_proxies m USING (
    SELECT id FROM domain_proxies WHERE proxy_id = %s ORDER BY domain_id FOR UPDATE) mine WHERE m.id = mine.id
"""
_FIND: Final = """
SELECT id FROM proxies WHERE proxy_protocol = %(protocol)s AND proxy_url = %(host)s AND proxy_port = %(port)s
    AND (NOT %(exactly)s AND %(username)s::text IS NULL OR proxy_username IS NOT DISTINCT FROM %(username)s) ORDER BY id
"""
_IDS: Final = """
SELECT id FROM proxies WHERE (%(provider)s::text IS NULL OR provider = %(provider)s)
    AND (%(country)s::text IS NULL OR country_code = %(country)s) ORDER BY id
"""


class SealedProxy(NamedTuple):
    """A proxy to insert."""

    server: ProxyServer
    token: str | None
    """Its password, sealed."""
    options: ProxyOptions


def add(connection: psycopg.Connection, new: SealedProxy, *, actor: str) -> int | None:
    """Insert a proxy; returns its id, or None, with nothing changed, if it is known."""
    with connection.transaction():
        added = _insert(connection, [new])
        for proxy_id in added:
            details = {"server": str(new.server)}
            audit.write(connection, actor=actor, action="add", kind=KIND, object_id=proxy_id, details=details)
    return added[0] if added else None


def add_many(connection: psycopg.Connection, new: Sequence[SealedProxy], *, actor: str) -> int:
    """Insert proxies in one transaction; returns how many were new. Known ones stay as they are."""
    with connection.transaction():
        added = _insert(connection, new)
        if added:
            details = {"proxies": len(added), "from_id": min(added), "to_id": max(added)}
            audit.write(connection, actor=actor, action="add", kind=KIND, object_id="*", details=details)
    return len(added)


def _insert(connection: psycopg.Connection, new: Sequence[SealedProxy]) -> list[int]:
    columns = {
        "protocols": [one.server.protocol for one in new],
        "hosts": [one.server.host for one in new],
        "ports": array_params.numbers(one.server.port for one in new),
        "usernames": [one.server.username for one in new],
        "tokens": [one.token for one in new],
        "countries": [one.options.country_code for one in new],
        "cities": [one.options.city for one in new],
        "providers": [one.options.provider for one in new],
        "costs": [one.options.monthly_cost for one in new],
        "limits": array_params.numbers(one.options.max_requests_per_hour for one in new),
        "private": array_params.numbers(one.options.allow_private for one in new),
    }
    return [row[0] for row in connection.execute(_ADD, columns)]


def page(
    connection: psycopg.Connection,
    where: ProxyFilter,
    *,
    order: str = "oldest",
    after: Key | None = None,
    limit: int = 100,
) -> Page[Proxy]:
    """Return one page of proxies."""
    return PROXIES.records(connection, _by_ids, where.given(), order=order, after=after, limit=limit)


def get(connection: psycopg.Connection, proxy_id: int) -> Proxy:
    """Return one proxy. Raises NotFound."""
    with connection.cursor(row_factory=_as_proxy) as cursor:
        found = cursor.execute(f"{_READ} WHERE p.id = %s", (proxy_id,)).fetchone()
    if found is None:
        raise NotFound(f"There is no proxy {proxy_id}.")
    return found


def find(connection: psycopg.Connection, server: ProxyServer, *, exactly: bool = False) -> list[int]:
    """Return the ids of the proxies with this address and user. Without a user: of all users, or, `exactly`, of the one without a user."""
    values = {"protocol": server.protocol, "host": server.host, "port": server.port, "username": server.username}
    return [row[0] for row in connection.execute(_FIND, values | {"exactly": exactly})]


def ids(connection: psycopg.Connection, *, provider: str | None = None, country: str | None = None) -> list[int]:
    """Return the ids of all proxies of a provider, in a country, or both."""
    return [row[0] for row in connection.execute(_IDS, {"provider": provider, "country": country})]


def edit(
    connection: psycopg.Connection,
    proxy_id: int,
    changes: Mapping[str, object],
    *,
    actor: str,
    version: int | None = None,
) -> Proxy:
    """Change columns of a proxy; returns the changed proxy. With `version`: only if it has not been changed since, or raises Changed."""
    unknown = set(changes) - CHANGEABLE
    assert not unknown, unknown  # noqa: S101 — names come from the service, never from a request
    with connection.transaction():
        row = connection.execute("SELECT version FROM proxies WHERE id = %s FOR NO KEY UPDATE", (proxy_id,)).fetchone()
        if row is not None and version is not None and row[0] != version:
            raise Changed(
                f"Proxy {proxy_id} was changed meanwhile (version {row[0]}, not {version}); look at it again."
            )
        if row is not None and changes:
            assignments = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in changes)
            query = sql.SQL(
                "UPDATE proxies SET {}, version = version + 1, updated_at = clock_timestamp() WHERE id = %s"
            ).format(assignments)
            connection.execute(query, [*changes.values(), proxy_id])
            details = {name: "***" if name == "proxy_password" else str(value) for name, value in changes.items()}
            audit.write(connection, actor=actor, action="edit", kind=KIND, object_id=proxy_id, details=details)
        return get(connection, proxy_id)


def switch(connection: psycopg.Connection, proxy_id: int, *, on: bool, actor: str) -> bool:
    """Enable a proxy and reset its failures, or disable it; returns whether anything changed. Raises NotFound."""
    with connection.transaction():
        changed = connection.execute(_SWITCH, {"id": proxy_id, "by": None if on else DisabledBy.OPERATOR}).rowcount > 0
        if changed:
            audit.write(connection, actor=actor, action="enable" if on else "disable", kind=KIND, object_id=proxy_id)
        else:
            get(connection, proxy_id)
    return changed


def recover(connection: psycopg.Connection, proxy_id: int, *, actor: str) -> bool:
    """Reset the failures of a proxy that works; returns False if it had none, or if an operator disabled it."""
    with connection.transaction():
        changed = connection.execute(_RECOVER, (proxy_id,)).rowcount > 0
        if changed:
            audit.write(connection, actor=actor, action="recover", kind=KIND, object_id=proxy_id)
    return changed


def remove(connection: psycopg.Connection, proxy_id: int, *, actor: str) -> None:
    """Delete a proxy with its mappings and their statistics. Raises NotFound."""
    server = get(connection, proxy_id).server
    for _ in range(_MAX_ATTEMPTS):
        # Mappings first, as workers lock them; a worker that inserts a mapping at this moment may still cause a deadlock.
        with suppress(psycopg.errors.DeadlockDetected), connection.transaction():
            connection.execute(_REMOVE_MAPPINGS, (proxy_id,))
            connection.execute("DELETE FROM proxies WHERE id = %s", (proxy_id,))
            details = {"server": server}
            audit.write(connection, actor=actor, action="remove", kind=KIND, object_id=proxy_id, details=details)
            return
    raise Refused(f"Proxy {proxy_id} is too busy to be removed now: switch it off first, and try again.")


# Passwords ------------------------------------------------------------------------------------------------------------


def token(connection: psycopg.Connection, proxy_id: int) -> str | None:
    """Return the sealed password of a proxy; None: it has none."""
    row = connection.execute("SELECT proxy_password FROM proxies WHERE id = %s", (proxy_id,)).fetchone()
    return row[0] if row else None


def tokens(connection: psycopg.Connection, *, after: int, limit: int) -> list[tuple[int, str]]:
    """Return ids of proxies and their sealed passwords, ordered by id; `after` is the last id of the previous page."""
    query = "SELECT id, proxy_password FROM proxies WHERE proxy_password IS NOT NULL AND id > %s ORDER BY id LIMIT %s"
    return connection.execute(query, (after, limit)).fetchall()


def reseal(connection: psycopg.Connection, sealed: Sequence[tuple[int, str, str]], *, actor: str) -> int:
    """Replace sealed passwords, (proxy, old, new), by those under another key; returns how many. Passwords that were changed since stay."""
    query = "UPDATE proxies SET proxy_password = %s WHERE id = %s AND proxy_password = %s"
    with connection.transaction():
        count = sum(connection.execute(query, (new, proxy_id, old)).rowcount for proxy_id, old, new in sealed)
        if count:
            audit.write(connection, actor=actor, action="reseal", kind=KIND, object_id="*", details={"proxies": count})
    return count


def _by_ids(connection: psycopg.Connection, ids: Sequence[int]) -> dict[int, Proxy]:
    with connection.cursor(row_factory=_as_proxy) as cursor:
        return {proxy.id: proxy for proxy in cursor.execute(f"{_READ} WHERE p.id = ANY(%s)", (list(ids),))}


def as_protocol(protocol: str) -> Protocol:
    """The part `protocol` of a record."""
    return Protocol(protocol)


_as_proxy: Final = by_name(Proxy, protocol=as_protocol)
