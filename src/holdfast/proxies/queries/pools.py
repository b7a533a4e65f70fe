"""The pools of domains, as people fill and change them: which proxies a domain uses, and with what priority.

The rule: whoever changes a pool locks the row of its domain first, then those of proxies, like the workers do. What a proxy did for a
domain stays countable, in its pool or not. After a change the domain may be claimed at once: what it waits for may be there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import psycopg
from psycopg.rows import class_row

from holdfast.db import audit, domains, edits
from holdfast.errors import Changed, NotFound
from holdfast.model.proxy import DisabledBy, Protocol, ProxyMode, ProxyServer

KIND: Final = "pool"
USUAL_PRIORITY: Final = 5
MOST: Final = 10_000
"""Proxies of one pool that are listed."""
CHUNK: Final = 1_000

_LOCK: Final = "SELECT id, proxy_use FROM domains WHERE domain = %s FOR NO KEY UPDATE"
_PROXIES: Final = "SELECT id FROM proxies WHERE id = ANY(%(proxies)s) ORDER BY id FOR KEY SHARE"
_THERE: Final = """
SELECT proxy_id, assigned, priority, requests + other_requests > 0 FROM domain_proxies
WHERE domain_id = %(domain)s AND (%(proxies)s::bigint[] IS NULL OR proxy_id = ANY(%(proxies)s)) ORDER BY proxy_id FOR NO KEY UPDATE
"""
# One that was used before, by nobody's order or an older one, starts afresh: who assigns it wants it to be used.
_ASSIGN: Final = """
INSERT INTO domain_proxies AS m (domain_id, proxy_id, priority)
SELECT %(domain)s, id, COALESCE(%(priority)s::int, %(usual)s) FROM unnest(%(proxies)s::bigint[]) AS n(id) ORDER BY id
ON CONFLICT (domain_id, proxy_id) DO UPDATE SET
    assigned = true, priority = COALESCE(%(priority)s::int, m.priority), version = m.version + 1, updated_at = clock_timestamp(),
    is_active = m.assigned AND m.is_active OR NOT m.assigned,
    disabled_by = CASE WHEN m.assigned THEN m.disabled_by END,
    failure_count = CASE WHEN m.assigned THEN m.failure_count ELSE 0 END,
    next_try_at = CASE WHEN m.assigned THEN m.next_try_at END
"""
_USE_POOL: Final = "UPDATE domains SET proxy_use = 'pool', version = version + 1 WHERE id = %s"
_FORGET: Final = "DELETE FROM domain_proxies WHERE domain_id = %(domain)s AND proxy_id = ANY(%(proxies)s)"
_UNASSIGN: Final = """
UPDATE domain_proxies SET assigned = false, version = version + 1, updated_at = clock_timestamp()
WHERE domain_id = %(domain)s AND proxy_id = ANY(%(proxies)s)
"""
_LEFT: Final = "SELECT count(*) FROM domain_proxies WHERE domain_id = %s AND assigned"
_EDIT: Final = """
UPDATE domain_proxies SET
    priority = COALESCE(%(priority)s, priority),
    is_active = COALESCE(%(on)s, is_active),
    disabled_by = CASE WHEN %(on)s THEN NULL WHEN NOT %(on)s THEN %(by)s ELSE disabled_by END,
    failure_count = CASE WHEN %(on)s THEN 0 ELSE failure_count END,
    next_try_at = CASE WHEN %(on)s IS NULL THEN next_try_at END,
    version = version + 1, updated_at = clock_timestamp()
WHERE domain_id = %(domain)s AND proxy_id = %(proxy)s
"""

CAN_NOT: Final = """
CASE WHEN p.disabled_by = 'operator' THEN 'off'
     WHEN m.disabled_by = 'operator' THEN 'off_here'
     WHEN p.country_code IS DISTINCT FROM COALESCE(d.proxy_country, p.country_code) THEN 'wrong_country'
     WHEN p.failure_count >= 5 AND p.next_try_at > clock_timestamp() THEN 'failed'
     WHEN m.failure_count >= 5 AND m.next_try_at > clock_timestamp() THEN 'refused'
     WHEN b.given >= p.max_requests_per_hour THEN 'used_up' END
"""
"""Why a proxy cannot be used for a domain now, of `d`, `p`, `m` and `GIVEN`; null: it can."""
CAN_AGAIN: Final = """
CASE WHEN p.disabled_by = 'operator' OR m.disabled_by = 'operator'
          OR p.country_code IS DISTINCT FROM COALESCE(d.proxy_country, p.country_code) THEN NULL
     ELSE NULLIF(GREATEST(CASE WHEN p.failure_count >= 5 THEN p.next_try_at END, CASE WHEN m.failure_count >= 5 THEN m.next_try_at END,
                          CASE WHEN b.given >= p.max_requests_per_hour THEN b.until END, now()), now()) END
"""
"""When it can, as far as that is a matter of time."""
GIVEN: Final = """
LEFT JOIN LATERAL (
    SELECT sum(requests) AS given, min(counts_until) AS until FROM proxy_blocks
    WHERE proxy_id = p.id AND counts_until > clock_timestamp()) b ON true
"""
_READ: Final = f"""
SELECT d.domain, p.id AS proxy_id, p.proxy_protocol AS protocol, p.proxy_url AS host, p.proxy_port AS port,
       p.proxy_username AS username, p.country_code, p.provider, p.is_active AS proxy_is_active, m.assigned, m.priority, m.is_active,
       m.disabled_by, m.failure_count, m.last_error, m.last_used_at, m.last_success_at, m.last_failure_at, m.next_try_at,
       m.success_count, m.total_failures, m.proxy_failures, m.requests, m.other_requests, m.bytes, m.avg_response_time_ms, m.version,
       round(100.0 * m.success_count / NULLIF(m.success_count + m.total_failures + m.proxy_failures, 0), 2)::float8 AS success_percent,
       {CAN_NOT} AS can_not, {CAN_AGAIN} AS can_again
FROM domain_proxies m JOIN domains d ON d.id = m.domain_id JOIN proxies p ON p.id = m.proxy_id {GIVEN}
WHERE d.domain = %(domain)s
"""  # noqa: S608 — constants

_OF_PROXY: Final = """
SELECT domain_id FROM domain_proxies WHERE proxy_id = %(proxy)s AND domain_id > %(after)s ORDER BY domain_id LIMIT %(chunk)s
"""
_LOCK_FREE: Final = "SELECT id FROM domains WHERE id = ANY(%s) AND claimed_by IS NULL ORDER BY id FOR NO KEY UPDATE"


@dataclass(frozen=True, slots=True)
class Mapping:
    """A proxy in the pool of a domain, and what it did there."""

    domain: str
    proxy_id: int
    protocol: str
    host: str
    port: int
    username: str | None
    country_code: str | None
    provider: str | None
    proxy_is_active: bool
    assigned: bool
    """False: it is not in the pool, but was used: from the global pool, or before it was taken out."""
    priority: int
    is_active: bool
    disabled_by: str | None
    failure_count: int
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
    version: int
    success_percent: float | None
    """Of the requests that say something of the proxy; the site's own errors do not."""
    can_not: str | None
    """Why it cannot be used now; None: it can."""
    can_again: datetime | None

    @property
    def server(self) -> ProxyServer:
        """Where the proxy is."""
        return ProxyServer(Protocol(self.protocol), self.host, self.port, self.username)


@dataclass(frozen=True, slots=True)
class Assigned:
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


@dataclass(frozen=True, slots=True)
class Unassigned:
    """What came of taking proxies out of a pool, by their ids."""

    domain: str
    removed: list[int] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    """They were not in it."""
    left: int = 0
    """Proxies that are still in it."""


def assign(
    connection: psycopg.Connection,
    domain: str,
    proxy_ids: Sequence[int],
    *,
    usual: ProxyMode,
    actor: str,
    priority: int | None = None,
) -> Assigned:
    """Put proxies into the pool of a domain. Without `priority` those that are in it keep theirs. Raises NotFound.

    After: they are in it; a domain that used none (it says nothing, and `usual` is to use none) uses its pool from now on, and
    may be claimed at once.
    """
    with connection.transaction():
        domain_id, use = _locked(connection, domain)
        known = {row[0] for row in connection.execute(_PROXIES, {"proxies": list(proxy_ids)})}
        missing = sorted(set(proxy_ids) - known)
        if missing:
            raise NotFound(f"There is no proxy {missing[0]}.")
        key = {"domain": domain_id, "proxies": sorted(known)}
        there = {row[0]: row[1:] for row in connection.execute(_THERE, key)}
        added = sorted(one for one in known if one not in there or not there[one][0])
        others = sorted(known.difference(added))
        changed = [one for one in others if priority is not None and there[one][1] != priority]
        connection.execute(_ASSIGN, key | {"proxies": added + changed, "priority": priority, "usual": USUAL_PRIORITY})
        now_uses_pool = use is None and usual is ProxyMode.DIRECT
        if now_uses_pool:
            connection.execute(_USE_POOL, (domain_id,))
        domains.end_waits(connection, [domain_id])
        if added or changed or now_uses_pool:
            edits.touch_domains(connection, [domain_id])
            details = {"added": added, "changed": changed, "priority": priority, "now_uses_pool": now_uses_pool}
            audit.write(connection, actor=actor, action="assign", kind=KIND, object_id=domain, details=details)
    unchanged = [one for one in others if one not in changed]
    return Assigned(domain, added, changed, unchanged, ProxyMode.POOL if now_uses_pool else use, now_uses_pool)


def unassign(connection: psycopg.Connection, domain: str, proxy_ids: Sequence[int] | None, *, actor: str) -> Unassigned:
    """Take proxies, or all of them (None), out of the pool of a domain. Raises NotFound for a domain that is not known.

    After: they are not in it. Those that were used have a row still, with what they did; nobody uses them because of it.
    """
    with connection.transaction():
        domain_id, _ = _locked(connection, domain)
        key = {"domain": domain_id, "proxies": None if proxy_ids is None else list(proxy_ids)}
        there = {proxy: used for proxy, assigned, _, used in connection.execute(_THERE, key) if assigned}
        if there:
            edits.touch_domains(connection, [domain_id])
            connection.execute(_FORGET, key | {"proxies": [proxy for proxy, used in there.items() if not used]})
            connection.execute(_UNASSIGN, key | {"proxies": [proxy for proxy, used in there.items() if used]})
            details = {"removed": sorted(there)}
            audit.write(connection, actor=actor, action="unassign", kind=KIND, object_id=domain, details=details)
        left = connection.execute(_LEFT, (domain_id,)).fetchone()
    return Unassigned(domain, sorted(there), sorted(set(proxy_ids or ()).difference(there)), left[0] if left else 0)


def edit(
    connection: psycopg.Connection,
    domain: str,
    proxy_id: int,
    *,
    actor: str,
    priority: int | None = None,
    on: bool | None = None,
    version: int | None = None,
) -> Mapping:
    """Change a proxy's place in the pool of a domain; the place afterwards. With `version` only if nobody else changed it since.

    After: it has that priority; switched off it is not used here until a person switches it on, which forgets its failures.
    """
    with connection.transaction():
        domain_id, _ = _locked(connection, domain)
        before = get(connection, domain, proxy_id)
        if version is not None and before.version != version:
            raise Changed(
                f"Proxy {proxy_id} of {domain} was changed meanwhile (version {before.version}, not {version}); look at it again."
            )
        changes = {} if priority in (None, before.priority) else {"priority": priority}
        by = None if on else DisabledBy.OPERATOR
        if on is not None and (before.disabled_by != by or (on and before.failure_count)):
            changes["on"] = on
        if changes:
            values = {"priority": None, "on": None} | changes
            connection.execute(_EDIT, values | {"by": by, "domain": domain_id, "proxy": proxy_id})
            edits.touch_domains(connection, [domain_id])
            domains.end_waits(connection, [domain_id])
            details = {"proxy": proxy_id, **changes}
            audit.write(connection, actor=actor, action="edit", kind=KIND, object_id=domain, details=details)
        return get(connection, domain, proxy_id)


def get(connection: psycopg.Connection, domain: str, proxy_id: int) -> Mapping:
    """One place in a pool. Raises NotFound."""
    with connection.cursor(row_factory=class_row(Mapping)) as cursor:
        found = cursor.execute(f"{_READ} AND p.id = %(proxy)s", {"domain": domain, "proxy": proxy_id}).fetchone()
    if found is None:
        raise NotFound(
            f"Proxy {proxy_id} is not in the pool of {domain}: `holdfast proxies assign {domain} {proxy_id}`."
        )
    return found


def listing(connection: psycopg.Connection, domain: str, *, limit: int = MOST) -> list[Mapping]:
    """The pool of a domain in the order in which it is used, and behind it what else was used. Raises NotFound."""
    query = f"{_READ} ORDER BY m.assigned DESC, m.priority, m.last_used_at NULLS FIRST, p.id LIMIT %(limit)s"
    with connection.cursor(row_factory=class_row(Mapping)) as cursor:
        found = cursor.execute(query, {"domain": domain, "limit": limit}).fetchall()
    if not found:
        domains.id_of(connection, domain)
    return found


def let_go_on(connection: psycopg.Connection, proxy_id: int) -> int:
    """Let the domains that use a proxy be claimed at once, for it may be of use to them again; how many.

    Before: no transaction is open: the change of the proxy is in the store. In chunks; killed in between, the rest wait as they did.
    """
    after, count = 0, 0
    while True:
        key = {"proxy": proxy_id, "after": after, "chunk": CHUNK}
        ids = [row[0] for row in connection.execute(_OF_PROXY, key)]
        if ids:
            with connection.transaction():
                free = [row[0] for row in connection.execute(_LOCK_FREE, (ids,))]
                domains.end_waits(connection, free)
            count, after = count + len(free), ids[-1]
        if len(ids) < CHUNK:
            return count


def _locked(connection: psycopg.Connection, domain: str) -> tuple[int, str | None]:
    """A domain's id and which proxies it says that it uses. After: its row is locked by this transaction."""
    row = connection.execute(_LOCK, (domain,)).fetchone()
    if row is None:
        domains.id_of(connection, domain)
        raise AssertionError(domain)  # id_of() has raised
    return row[0], row[1]
