"""Proxies, as people make, change and look at them. Whose pools they are in is in `proxies/queries/pools`.

The rule: what people say goes into the row in one transaction, with a line in the audit log. What passes through a proxy is written by
the holders of domains (`db/proxy_usage`), into rows of their own; here it is only summed. Nobody locks a domain's row while he has
locked a proxy's: workers do it the other way round.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from holdfast.db import array_params, audit
from holdfast.errors import Changed, NotFound, Refused
from holdfast.model.proxy import DisabledBy, Protocol, ProxyServer

KIND: Final = "proxy"
CHANGEABLE: Final = frozenset(
    {"country_code", "city", "provider", "monthly_cost", "max_requests_per_hour", "allow_private", "proxy_password"}
)
"""What people may say of a proxy afterwards."""

# A proxy that stands twice among them is added once.
_ADD: Final = """
INSERT INTO proxies (proxy_protocol, proxy_url, proxy_port, proxy_username, proxy_password, country_code, city, provider, monthly_cost,
                     max_requests_per_hour, allow_private)
SELECT * FROM unnest(%(protocols)s::text[], %(hosts)s::text[], %(ports)s::int[], %(usernames)s::text[], %(tokens)s::text[],
                     %(countries)s::text[], %(cities)s::text[], %(providers)s::text[], %(costs)s::numeric[], %(limits)s::int[],
                     %(private)s::bool[])
ON CONFLICT ON CONSTRAINT proxy_known_once DO NOTHING RETURNING id
"""
# OFFSET 0, so that only those are summed that are read.
_READ: Final = """
SELECT p.id, p.proxy_protocol AS protocol, p.proxy_url AS host, p.proxy_port AS port, p.proxy_username AS username,
       p.proxy_password IS NOT NULL AS has_password, p.is_active, p.disabled_by, p.failure_count, p.last_error, p.last_failure_at,
       p.next_try_at, p.country_code, p.city, p.provider, p.monthly_cost, p.max_requests_per_hour, p.allow_private, p.version,
       p.created_at, p.updated_at, t.success_count, t.total_failures, t.proxy_failures, t.requests, t.other_requests, t.bytes,
       t.avg_response_time_ms, t.last_used_at, t.last_success_at, t.domains
FROM proxies p CROSS JOIN LATERAL (SELECT * FROM proxy_totals v WHERE v.id = p.id OFFSET 0) t
"""
_FILTERS: Final = {
    "active": " AND p.is_active = %(active)s",
    "provider": " AND p.provider = %(provider)s",
    "country": " AND p.country_code = %(country)s",
}
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
_TRIES: Final = 5
_REMOVE_MAPPINGS: Final = """
DELETE FROM domain_proxies m USING (
    SELECT id FROM domain_proxies WHERE proxy_id = %s ORDER BY domain_id FOR UPDATE) mine WHERE m.id = mine.id
"""
_FIND: Final = """
SELECT id FROM proxies WHERE proxy_protocol = %(protocol)s AND proxy_url = %(host)s AND proxy_port = %(port)s
    AND (NOT %(exactly)s AND %(username)s::text IS NULL OR proxy_username IS NOT DISTINCT FROM %(username)s) ORDER BY id
"""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy and what went through it, without its password."""

    id: int
    protocol: str
    host: str
    port: int
    username: str | None
    has_password: bool
    is_active: bool
    disabled_by: str | None
    failure_count: int
    last_error: str | None
    last_failure_at: datetime | None
    next_try_at: datetime | None
    country_code: str | None
    city: str | None
    provider: str | None
    monthly_cost: Decimal | None
    max_requests_per_hour: int | None
    allow_private: bool
    version: int
    created_at: datetime
    updated_at: datetime
    success_count: int
    total_failures: int
    proxy_failures: int
    requests: int
    other_requests: int
    bytes: int
    avg_response_time_ms: float | None
    last_used_at: datetime | None
    last_success_at: datetime | None
    domains: int

    @property
    def server(self) -> ProxyServer:
        """Where it is."""
        return ProxyServer(Protocol(self.protocol), self.host, self.port, self.username)


@dataclass(frozen=True, slots=True)
class Facts:
    """What people say of a proxy."""

    country_code: str | None = None
    city: str | None = None
    provider: str | None = None
    monthly_cost: Decimal | None = None
    max_requests_per_hour: int | None = 1000
    allow_private: bool = False


class NewProxy(NamedTuple):
    """A proxy that people want to be known."""

    server: ProxyServer
    token: str | None
    """Its password, sealed."""
    facts: Facts


def add(connection: psycopg.Connection, new: NewProxy, *, actor: str) -> int | None:
    """A new proxy; its id. None, with nothing changed, if it is known."""
    with connection.transaction():
        added = _insert(connection, [new])
        for proxy_id in added:
            details = {"server": str(new.server)}
            audit.write(connection, actor=actor, action="add", kind=KIND, object_id=proxy_id, details=details)
    return added[0] if added else None


def add_many(connection: psycopg.Connection, new: Sequence[NewProxy], *, actor: str) -> int:
    """New proxies, in one transaction; how many. Those that are known stay as they are."""
    with connection.transaction():
        added = _insert(connection, new)
        if added:
            details = {"proxies": len(added), "from_id": min(added), "to_id": max(added)}
            audit.write(connection, actor=actor, action="add", kind=KIND, object_id="*", details=details)
    return len(added)


def _insert(connection: psycopg.Connection, new: Sequence[NewProxy]) -> list[int]:
    columns = {
        "protocols": [one.server.protocol for one in new],
        "hosts": [one.server.host for one in new],
        "ports": array_params.numbers(one.server.port for one in new),
        "usernames": [one.server.username for one in new],
        "tokens": [one.token for one in new],
        "countries": [one.facts.country_code for one in new],
        "cities": [one.facts.city for one in new],
        "providers": [one.facts.provider for one in new],
        "costs": [one.facts.monthly_cost for one in new],
        "limits": array_params.numbers(one.facts.max_requests_per_hour for one in new),
        "private": array_params.numbers(one.facts.allow_private for one in new),
    }
    return [row[0] for row in connection.execute(_ADD, columns)]


def get(connection: psycopg.Connection, proxy_id: int) -> Proxy:
    """One proxy. Raises NotFound."""
    with connection.cursor(row_factory=class_row(Proxy)) as cursor:
        found = cursor.execute(f"{_READ} WHERE p.id = %s", (proxy_id,)).fetchone()
    if found is None:
        raise NotFound(f"There is no proxy {proxy_id}.")
    return found


def of_ids(connection: psycopg.Connection, ids: Sequence[int]) -> dict[int, Proxy]:
    """The proxies with these ids that there are."""
    with connection.cursor(row_factory=class_row(Proxy)) as cursor:
        return {proxy.id: proxy for proxy in cursor.execute(f"{_READ} WHERE p.id = ANY(%s)", (list(ids),))}


def find(connection: psycopg.Connection, server: ProxyServer, *, exactly: bool = False) -> list[int]:
    """The ids of those that are there; several, if they differ by their users and none is named, unless none is `exactly` meant."""
    values = {"protocol": server.protocol, "host": server.host, "port": server.port, "username": server.username}
    return [row[0] for row in connection.execute(_FIND, values | {"exactly": exactly})]


def ids(connection: psycopg.Connection, *, provider: str | None = None, country: str | None = None) -> list[int]:
    """The ids of all proxies of a provider, in a country."""
    given = {"provider": provider, "country": country}
    where = "".join(clause for name, clause in _FILTERS.items() if given.get(name) is not None)
    query = f"SELECT p.id FROM proxies p WHERE true{where} ORDER BY p.id"  # noqa: S608 — constants
    return [row[0] for row in connection.execute(query, given)]


def listing(
    connection: psycopg.Connection,
    *,
    active: bool | None = None,
    provider: str | None = None,
    country: str | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[Proxy]:
    """Proxies in the order of their ids; `after` is the last one seen."""
    given = {"active": active, "provider": provider, "country": country}
    where = "".join(clause for name, clause in _FILTERS.items() if given[name] is not None)
    query = f"{_READ} WHERE p.id > %(after)s{where} ORDER BY p.id LIMIT %(limit)s"
    with connection.cursor(row_factory=class_row(Proxy)) as cursor:
        return cursor.execute(query, {**given, "after": after, "limit": limit}).fetchall()


def edit(
    connection: psycopg.Connection,
    proxy_id: int,
    changes: Mapping[str, object],
    *,
    actor: str,
    version: int | None = None,
) -> Proxy:
    """Change what is said of a proxy; the proxy afterwards. With `version` only if nobody else changed it since."""
    unknown = set(changes) - CHANGEABLE
    assert not unknown, unknown  # noqa: S101 — names come from control, never from outside
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
            said = {name: "***" if name == "proxy_password" else str(value) for name, value in changes.items()}
            audit.write(connection, actor=actor, action="edit", kind=KIND, object_id=proxy_id, details=said)
        return get(connection, proxy_id)


def switch(connection: psycopg.Connection, proxy_id: int, *, on: bool, actor: str) -> bool:
    """Let a proxy be used, with its failures forgotten, or not any more; False if nothing changed. Raises NotFound."""
    with connection.transaction():
        changed = connection.execute(_SWITCH, {"id": proxy_id, "by": None if on else DisabledBy.OPERATOR}).rowcount > 0
        if changed:
            audit.write(connection, actor=actor, action="enable" if on else "disable", kind=KIND, object_id=proxy_id)
        else:
            get(connection, proxy_id)
    return changed


def recover(connection: psycopg.Connection, proxy_id: int, *, actor: str) -> bool:
    """Forget the failures of a proxy that was seen to work; False if there were none, or a person switched it off."""
    with connection.transaction():
        changed = connection.execute(_RECOVER, (proxy_id,)).rowcount > 0
        if changed:
            audit.write(connection, actor=actor, action="recover", kind=KIND, object_id=proxy_id)
    return changed


def remove(connection: psycopg.Connection, proxy_id: int, *, actor: str) -> None:
    """Forget a proxy, its place in pools and what it did there. Raises NotFound."""
    server = str(get(connection, proxy_id).server)
    for _ in range(_TRIES):
        # Mappings first, as workers lock them; one that inserts a mapping in this moment may still meet us halfway.
        with suppress(psycopg.errors.DeadlockDetected), connection.transaction():
            connection.execute(_REMOVE_MAPPINGS, (proxy_id,))
            connection.execute("DELETE FROM proxies WHERE id = %s", (proxy_id,))
            details = {"server": server}
            audit.write(connection, actor=actor, action="remove", kind=KIND, object_id=proxy_id, details=details)
            return
    raise Refused(f"Proxy {proxy_id} is too busy to be removed now: switch it off first, and try again.")


# Passwords ------------------------------------------------------------------------------------------------------------


def token(connection: psycopg.Connection, proxy_id: int) -> str | None:
    """The password of a proxy as it is sealed; None: it has none."""
    row = connection.execute("SELECT proxy_password FROM proxies WHERE id = %s", (proxy_id,)).fetchone()
    return row[0] if row else None


def tokens(connection: psycopg.Connection, *, after: int, limit: int) -> list[tuple[int, str]]:
    """Passwords as they are sealed, by the ids of their proxies, in that order; `after` is the last one seen."""
    query = "SELECT id, proxy_password FROM proxies WHERE proxy_password IS NOT NULL AND id > %s ORDER BY id LIMIT %s"
    return connection.execute(query, (after, limit)).fetchall()


def reseal(connection: psycopg.Connection, sealed: Sequence[tuple[int, str, str]], *, actor: str) -> int:
    """Replace sealed passwords, (proxy, old, new), by the same ones under another key; how many. One that was changed meanwhile stays."""
    query = "UPDATE proxies SET proxy_password = %s WHERE id = %s AND proxy_password = %s"
    with connection.transaction():
        count = sum(connection.execute(query, (new, proxy_id, old)).rowcount for proxy_id, old, new in sealed)
        if count:
            audit.write(connection, actor=actor, action="reseal", kind=KIND, object_id="*", details={"proxies": count})
    return count
