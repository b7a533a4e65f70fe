"""SQL of the pools of domains: assign, unassign, edit, list; which proxies a domain can use now, and which comes next.

The rule: a change of a pool locks the row of its domain first, then those of proxies, as workers do. The statistics of a proxy for a
domain are kept, in its pool or not. After a change the domain can be claimed at once, since the proxy that it waits for may be there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from holdfast.db import audit, domains, edits
from holdfast.db.rows import by_name
from holdfast.errors import Changed, NotFound
from holdfast.model.proxy import DisabledBy, ProxyMode, ProxyOverrides, ProxyRules
from holdfast.proxies.queries import proxies
from holdfast.proxies.queries.proxies import ADDRESS, as_protocol
from holdfast.proxies.records import DEFAULT_PRIORITY, Assignment, NextProxy, PoolState, ProxyMapping, Unassignment

KIND: Final = "pool"
MAX_LISTED: Final = 10_000
"""The number of proxies of one pool that are listed."""
CHUNK: Final = 1_000
"""The number of domains that one transaction wakes."""

_LOCK: Final = "SELECT id, proxy_use FROM domains WHERE domain = %s FOR NO KEY UPDATE"
_LOCK_PROXIES: Final = "SELECT id FROM proxies WHERE id = ANY(%(proxies)s) ORDER BY id FOR KEY SHARE"
_LOCK_MAPPINGS: Final = """
SELECT proxy_id, assigned, priority, requests + other_requests > 0 FROM domain_proxies
WHERE domain_id = %(domain)s AND (%(proxies)s::bigint[] IS NULL OR proxy_id = ANY(%(proxies)s)) ORDER BY proxy_id FOR NO KEY UPDATE
"""
# The failures of a proxy that was used before it was assigned are reset: the operator wants it to be used.
_ASSIGN: Final = """
INSERT INTO domain_proxies AS m (domain_id, proxy_id, priority)
SELECT %(domain)s, id, COALESCE(%(priority)s::int, %(default)s) FROM unnest(%(proxies)s::bigint[]) AS n(id) ORDER BY id
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
     WHEN b.taken >= p.max_requests_per_hour THEN 'used_up' END
"""
"""Why the proxy `p` cannot be used for the domain `d` with the mapping `m` now, with the join `LIMIT_USE`; null: it can."""
CAN_AGAIN: Final = """
CASE WHEN p.disabled_by = 'operator' OR m.disabled_by = 'operator'
          OR p.country_code IS DISTINCT FROM COALESCE(d.proxy_country, p.country_code) THEN NULL
     ELSE NULLIF(GREATEST(CASE WHEN p.failure_count >= 5 THEN p.next_try_at END, CASE WHEN m.failure_count >= 5 THEN m.next_try_at END,
                          CASE WHEN b.taken >= p.max_requests_per_hour THEN b.until END, now()), now()) END
"""
"""When it can be used again, if that depends on time only."""
LIMIT_USE: Final = """
LEFT JOIN LATERAL (
    SELECT sum(requests) AS taken, min(counts_until) AS until FROM proxy_blocks
    WHERE proxy_id = p.id AND counts_until > clock_timestamp()) b ON true
"""
_MAPPINGS: Final = f"""
SELECT d.domain, p.id AS proxy_id, {ADDRESS}, p.proxy_protocol AS protocol, p.proxy_url AS host, p.proxy_port AS port,
       p.proxy_username AS username, p.country_code, p.provider, p.is_active AS proxy_is_active, m.assigned, m.priority, m.is_active,
       m.disabled_by, m.failure_count, m.last_error, m.last_used_at, m.last_success_at, m.last_failure_at, m.next_try_at,
       m.success_count, m.total_failures, m.proxy_failures, m.requests, m.other_requests, m.bytes, m.avg_response_time_ms, m.version,
       round(100.0 * m.success_count / NULLIF(m.success_count + m.total_failures + m.proxy_failures, 0), 2)::float8 AS success_percent,
       {CAN_NOT} AS can_not, {CAN_AGAIN} AS can_again
FROM domain_proxies m JOIN domains d ON d.id = m.domain_id JOIN proxies p ON p.id = m.proxy_id {LIMIT_USE}
"""  # noqa: S608 — constants
_READ: Final = f"{_MAPPINGS} WHERE d.domain = %(domain)s"
_POOLS: Final = f"{_MAPPINGS} WHERE m.proxy_id = %(proxy)s AND m.assigned AND d.domain > %(after)s ORDER BY d.domain LIMIT %(limit)s"

_OF_PROXY: Final = """
SELECT domain_id FROM domain_proxies WHERE proxy_id = %(proxy)s AND domain_id > %(after)s ORDER BY domain_id LIMIT %(chunk)s
"""
_LOCK_FREE: Final = "SELECT id FROM domains WHERE id = ANY(%s) AND claimed_by IS NULL ORDER BY id FOR NO KEY UPDATE"

_WAITING: Final = """
SELECT d.id, d.domain FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
WHERE jd.job_id = %(job)s AND jd.state = 'open' AND jd.not_before IS NOT NULL ORDER BY d.id LIMIT %(limit)s
"""
_OVERRIDES: Final = (
    "SELECT proxy_use, proxy_direct, proxy_resolves, proxy_country, proxy_sticky FROM domains WHERE id = %(domain)s"
)
_USABILITY: Final = f"""
SELECT can_not, count(*), min(can_again) FROM (
    SELECT {CAN_NOT} AS can_not, {CAN_AGAIN} AS can_again
    FROM domains d CROSS JOIN proxies p LEFT JOIN domain_proxies m ON m.domain_id = d.id AND m.proxy_id = p.id {LIMIT_USE}
    WHERE d.id = %(domain)s AND (%(any)s OR m.assigned)
) candidates GROUP BY can_not
"""  # noqa: S608 — constants
# Assigned proxies come first, then those of the global pool that the domain has never used, then those that it has. Each domain starts at
# another position of the global pool.
_NEXT: Final = f"""
SELECT * FROM (
    SELECT p.id AS proxy_id, {ADDRESS}, p.country_code, p.provider,
           m.priority, m.last_used_at, m.avg_response_time_ms, COALESCE(m.assigned, false) AS assigned, m.id IS NULL AS is_new,
           COALESCE(m.last_used_at > clock_timestamp() - %(sticky)s::interval AND m.last_used_at = max(m.last_used_at) OVER (), false)
               AS is_kept,
           (p.place + p.others - d.id %% p.others) %% p.others AS turn, {CAN_NOT} AS can_not
    FROM domains d CROSS JOIN (
        SELECT o.*, row_number() OVER (ORDER BY o.id) - 1 AS place, count(*) OVER () AS others FROM proxies o
        WHERE o.disabled_by IS DISTINCT FROM 'operator') p
    LEFT JOIN domain_proxies m ON m.domain_id = d.id AND m.proxy_id = p.id {LIMIT_USE}
    WHERE d.id = %(domain)s AND (%(any)s OR m.assigned)) candidates
WHERE can_not IS NULL
ORDER BY is_kept DESC, CASE WHEN assigned THEN 0 WHEN is_new THEN 1 ELSE 2 END, priority, CASE WHEN is_new THEN turn END,
         last_used_at NULLS FIRST, avg_response_time_ms NULLS LAST, proxy_id
LIMIT 1
"""  # noqa: S608 — constants
_NEXT_FIELDS: Final = ("proxy_id", "server", "country_code", "provider", "priority", "last_used_at")


def assign(
    connection: psycopg.Connection,
    domain: str,
    proxy_ids: Sequence[int],
    *,
    default: ProxyMode,
    actor: str,
    priority: int | None = None,
) -> Assignment:
    """Add proxies to the pool of a domain. Without `priority`, those that are in it keep theirs. Raises NotFound.

    After: they are in it, and the domain can be claimed at once. A domain without a mode of its own uses its pool if `default` is to use
    no proxies.
    """
    with connection.transaction():
        domain_id, use = _lock_domain(connection, domain)
        known = {row[0] for row in connection.execute(_LOCK_PROXIES, {"proxies": list(proxy_ids)})}
        missing = sorted(set(proxy_ids) - known)
        if missing:
            raise NotFound(f"There is no proxy {missing[0]}.")
        key = {"domain": domain_id, "proxies": sorted(known)}
        there = {row[0]: row[1:] for row in connection.execute(_LOCK_MAPPINGS, key)}
        added = sorted(one for one in known if one not in there or not there[one][0])
        others = sorted(known.difference(added))
        changed = [one for one in others if priority is not None and there[one][1] != priority]
        connection.execute(
            _ASSIGN, key | {"proxies": added + changed, "priority": priority, "default": DEFAULT_PRIORITY}
        )
        now_uses_pool = use is None and default is ProxyMode.DIRECT
        if now_uses_pool:
            connection.execute(_USE_POOL, (domain_id,))
        domains.end_waits(connection, [domain_id])
        if added or changed or now_uses_pool:
            edits.touch_domains(connection, [domain_id])
            details = {"added": added, "changed": changed, "priority": priority, "now_uses_pool": now_uses_pool}
            audit.write(connection, actor=actor, action="assign", kind=KIND, object_id=domain, details=details)
    unchanged = [one for one in others if one not in changed]
    return Assignment(domain, added, changed, unchanged, ProxyMode.POOL if now_uses_pool else use, now_uses_pool)


def unassign(
    connection: psycopg.Connection, domain: str, proxy_ids: Sequence[int] | None, *, actor: str
) -> Unassignment:
    """Remove proxies, or all of them (None), from the pool of a domain. Raises NotFound for an unknown domain.

    After: they are not in it. Those that were used keep a row with their statistics, which does not let the domain use them.
    """
    with connection.transaction():
        domain_id, _ = _lock_domain(connection, domain)
        key = {"domain": domain_id, "proxies": None if proxy_ids is None else list(proxy_ids)}
        there = {proxy: used for proxy, assigned, _, used in connection.execute(_LOCK_MAPPINGS, key) if assigned}
        if there:
            edits.touch_domains(connection, [domain_id])
            connection.execute(_FORGET, key | {"proxies": [proxy for proxy, used in there.items() if not used]})
            connection.execute(_UNASSIGN, key | {"proxies": [proxy for proxy, used in there.items() if used]})
            details = {"removed": sorted(there)}
            audit.write(connection, actor=actor, action="unassign", kind=KIND, object_id=domain, details=details)
        left = connection.execute(_LEFT, (domain_id,)).fetchone()
    return Unassignment(domain, sorted(there), sorted(set(proxy_ids or ()).difference(there)), left[0] if left else 0)


def edit(
    connection: psycopg.Connection,
    domain: str,
    proxy_id: int,
    *,
    actor: str,
    priority: int | None = None,
    on: bool | None = None,
    version: int | None = None,
) -> ProxyMapping:
    """Change a mapping; returns the changed mapping. With `version`: only if it has not been changed since, or raises Changed.

    After: it has that priority; disabled, it is not used until an operator enables it, which resets its failures.
    """
    with connection.transaction():
        domain_id, _ = _lock_domain(connection, domain)
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


def get(connection: psycopg.Connection, domain: str, proxy_id: int) -> ProxyMapping:
    """Return one mapping. Raises NotFound."""
    with connection.cursor(row_factory=_as_mapping) as cursor:
        found = cursor.execute(f"{_READ} AND p.id = %(proxy)s", {"domain": domain, "proxy": proxy_id}).fetchone()
    if found is None:
        raise NotFound(
            f"Proxy {proxy_id} is not in the pool of {domain}: `holdfast proxies assign {domain} {proxy_id}`."
        )
    return found


def listing(connection: psycopg.Connection, domain: str, *, limit: int = MAX_LISTED) -> list[ProxyMapping]:
    """Return the pool of a domain in the order of use, followed by other proxies that it has used. Raises NotFound."""
    query = f"{_READ} ORDER BY m.assigned DESC, m.priority, m.last_used_at NULLS FIRST, p.id LIMIT %(limit)s"
    with connection.cursor(row_factory=_as_mapping) as cursor:
        found = cursor.execute(query, {"domain": domain, "limit": limit}).fetchall()
    if not found:
        domains.id_of(connection, domain)
    return found


def pools_of(connection: psycopg.Connection, proxy_id: int, *, after: str, limit: int) -> list[ProxyMapping]:
    """Return the pools that a proxy is in, by the names of their domains after `after`. Raises NotFound for an unknown proxy."""
    with connection.cursor(row_factory=_as_mapping) as cursor:
        found = cursor.execute(_POOLS, {"proxy": proxy_id, "after": after, "limit": limit}).fetchall()
    if not found:
        proxies.get(connection, proxy_id)
    return found


def wake_domains(connection: psycopg.Connection, proxy_id: int) -> int:
    """End the waits of the domains that have used a proxy or have it in their pools, since it may be usable again; returns how many.

    Before: the change of the proxy is committed, and no transaction is open. After an interruption the remaining domains wait as before.
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


def without_a_proxy(
    connection: psycopg.Connection, job_id: int, *, default: ProxyMode, direct: bool, limit: int = 20
) -> list[str]:
    """Return domains of a job that wait because they can use no proxy; at most `limit` waiting domains are checked."""
    waiting = connection.execute(_WAITING, {"job": job_id, "limit": limit}).fetchall()
    states = [
        (domain, pool_state(connection, domain_id, default=default, direct=direct)) for domain_id, domain in waiting
    ]
    return [
        domain
        for domain, state in states
        if state.rules.use is not ProxyMode.DIRECT and not state.rules.direct and not state.usable
    ]


def pool_state(connection: psycopg.Connection, domain_id: int, *, default: ProxyMode, direct: bool) -> PoolState:
    """Return how a domain uses proxies, and whether it can use one now. `default` and `direct` apply where it has no value of its own."""
    row = connection.execute(_OVERRIDES, {"domain": domain_id}).fetchone()
    rules = ProxyOverrides(*(row or ())).rules(use=default, direct=direct)
    if rules.use is ProxyMode.DIRECT:
        return PoolState(rules, 0, {}, None)
    found = connection.execute(_USABILITY, {"domain": domain_id, "any": rules.use is ProxyMode.ANY}).fetchall()
    times = [until for _, _, until in found if until is not None]
    counts = {why: count for why, count, _ in found}
    return PoolState(rules, counts.pop(None, 0), counts, min(times, default=None))


def next_for(
    connection: psycopg.Connection, domain_id: int, domain: str, *, default: ProxyMode, direct: bool
) -> NextProxy:
    """Return the proxy that `politeness/proxy_pool` would choose if a visit of the domain began now; parameters as of `pool_state`.

    A visit that is running may choose another one: its last uses and its shares of limits are in memory only.
    """
    state = pool_state(connection, domain_id, default=default, direct=direct)
    rules = state.rules
    chosen: dict[str, Any] | None = None
    if rules.use is not ProxyMode.DIRECT:
        values = {"domain": domain_id, "any": rules.use is ProxyMode.ANY, "sticky": rules.sticky}
        with connection.cursor(row_factory=dict_row) as cursor:
            chosen = cursor.execute(_NEXT, values, prepare=False).fetchone()
    found = chosen or {}
    return NextProxy(
        domain=domain,
        use=str(rules.use),
        **{name: found.get(name) for name in _NEXT_FIELDS},
        direct=rules.use is ProxyMode.DIRECT or (chosen is None and rules.direct),
        why=_why(rules, chosen),
        usable=state.usable,
        can_not=state.can_not,
        until=state.until,
    )


def _why(rules: ProxyRules, chosen: Mapping[str, Any] | None) -> str:
    if rules.use is ProxyMode.DIRECT:
        return "The domain uses no proxy."
    if chosen is None:
        return (
            "No proxy can be used now, and the domain may be asked without one."
            if rules.direct
            else "No proxy can be used now, and the domain may not be asked without one: it waits."
        )
    if chosen["is_kept"]:
        return "It was used last, and the domain keeps the same one for a while."
    if chosen["assigned"]:
        return (
            "Of the usable proxies of the pool it comes first by priority; at the same priority the one that was used least"
            " recently comes first, and then the faster one."
        )
    if chosen["is_new"]:
        return "None of its pool can be used; of all others it is the next that the domain has not used yet."
    return "None of its pool can be used, and the domain has used all others; this one least recently."


def _lock_domain(connection: psycopg.Connection, domain: str) -> tuple[int, str | None]:
    """Return the id of a domain and its proxy mode. After: its row is locked by this transaction."""
    row = connection.execute(_LOCK, (domain,)).fetchone()
    if row is None:
        domains.id_of(connection, domain)
        raise AssertionError(domain)  # id_of() has raised
    return row[0], row[1]


_as_mapping: Final = by_name(ProxyMapping, protocol=as_protocol)
