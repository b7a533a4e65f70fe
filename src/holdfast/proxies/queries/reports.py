"""What pools and proxies look like from above: health, alerts, costs, and what a domain waits for that can use no proxy.

The rule: read only. Figures are those that the holders of domains wrote with their batches, since a mapping was made; long lists are read
in pages, by a key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final

import psycopg
from psycopg.rows import class_row

from holdfast.db import domains
from holdfast.errors import NotFound
from holdfast.model.proxy import ProxyMode, ProxyOverrides, ProxyRules
from holdfast.proxies.queries.pools import CAN_AGAIN, CAN_NOT, GIVEN

FEWEST: Final = 3
"""With fewer active proxies a domain is one to look after."""
MOST_FAILURES: Final = 10.0
"""Per cent of requests; a domain with more of them is."""
ENOUGH: Final = 20
"""Requests before that is judged: one failure of five says nothing."""

_ACTIVE: Final = """
m.assigned AND m.is_active AND p.is_active AND p.failure_count < 5 AND (d.proxy_country IS NULL OR p.country_code = d.proxy_country)
"""
_SUMS: Final = f"""
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE m.assigned) AS proxies, count(*) FILTER (WHERE {_ACTIVE}) AS active,
           count(*) FILTER (WHERE m.assigned AND (m.failure_count >= 5 OR p.failure_count >= 5)) AS failing,
           COALESCE(sum(m.requests), 0)::bigint AS requests, COALESCE(sum(m.other_requests), 0)::bigint AS other_requests,
           COALESCE(sum(m.success_count), 0)::bigint AS success_count, COALESCE(sum(m.total_failures), 0)::bigint AS total_failures,
           COALESCE(sum(m.proxy_failures), 0)::bigint AS proxy_failures, COALESCE(sum(m.bytes), 0)::bigint AS bytes,
           sum(m.avg_response_time_ms * m.success_count)
               / NULLIF(sum(m.success_count) FILTER (WHERE m.avg_response_time_ms IS NOT NULL), 0) AS avg_response_time_ms,
           max(m.last_used_at) AS last_used_at
    FROM domain_proxies m JOIN proxies p ON p.id = m.proxy_id WHERE m.domain_id = d.id AND (%(whole)s OR m.assigned OR {{use}} = 'any')
) s
"""  # noqa: S608 — constants
_COUNT: Final = f"""
SELECT count(*) FROM domains d JOIN domain_proxies m ON m.domain_id = d.id JOIN proxies p ON p.id = m.proxy_id
WHERE d.domain = %s AND {_ACTIVE}
"""  # noqa: S608 — constants
_USE: Final = "COALESCE(d.proxy_use, %(usual)s)"
_PERCENT: Final = "round(100.0 * (s.total_failures + s.proxy_failures) / NULLIF(s.requests, 0), 2)::float8"
_HEALTH: Final = f"""
WITH pooled AS MATERIALIZED (
    SELECT domain_id AS id FROM domain_proxies GROUP BY domain_id UNION SELECT id FROM domains WHERE proxy_use IN ('pool', 'any')
)
SELECT d.domain, {_USE} AS use, s.*, {_PERCENT} AS failure_percent
FROM pooled JOIN domains d USING (id) {_SUMS.format(use=_USE)}
WHERE d.domain > %(after)s ORDER BY d.domain LIMIT %(limit)s
"""  # noqa: S608 — constants
_HEALTH_OF: Final = f"""
SELECT d.domain, {_USE} AS use, s.*, {_PERCENT} AS failure_percent FROM domains d {_SUMS.format(use=_USE)} WHERE d.domain = %(domain)s
"""  # noqa: S608 — constants
_FEW: Final = f"""
SELECT d.domain, s.active, s.proxies FROM domains d {_SUMS.format(use=_USE)}
WHERE d.is_active AND {_USE} = 'pool' AND d.domain > %(after)s AND s.active < %(fewest)s {{only}} ORDER BY d.domain LIMIT %(limit)s
"""  # noqa: S608 — constants
_SAYS_SO: Final = "AND d.proxy_use IS NOT NULL"
"""Where a domain that says nothing does not use its pool: an index has the others."""
_FAILING: Final = f"""
SELECT d.domain, s.requests, s.success_count, s.total_failures, s.proxy_failures, {_PERCENT} AS failure_percent
FROM (SELECT domain_id AS id FROM domain_proxies GROUP BY domain_id) pooled JOIN domains d USING (id) {_SUMS.format(use=_USE)}
WHERE d.is_active AND {_USE} <> 'direct' AND d.domain > %(after)s AND s.requests >= %(enough)s
  AND 100.0 * (s.total_failures + s.proxy_failures) > %(most)s::numeric * s.requests
ORDER BY d.domain LIMIT %(limit)s
"""  # noqa: S608 — constants

# A proxy is paid for by the month, and for one at least.
_SPENT: Final = "p.monthly_cost * GREATEST(extract(epoch FROM now() - p.created_at) / 2629746, 1)"
_COSTS: Final = f"""
SELECT p.id, p.proxy_protocol || '://' || p.proxy_url || ':' || p.proxy_port AS server, p.provider, p.is_active,
       t.requests + t.other_requests AS requests, t.bytes, p.monthly_cost,
       round({_SPENT} * 1000 / NULLIF(t.requests + t.other_requests, 0), 4) AS cost_per_1000
FROM proxies p CROSS JOIN LATERAL (SELECT * FROM proxy_totals v WHERE v.id = p.id OFFSET 0) t
WHERE p.id > %(after)s ORDER BY p.id LIMIT %(limit)s
"""  # noqa: S608 — constants
_PROVIDERS: Final = f"""
SELECT p.provider, count(*) AS proxies, count(*) FILTER (WHERE p.is_active) AS active,
       sum(t.requests + t.other_requests)::bigint AS requests, sum(t.bytes)::bigint AS bytes, sum(p.monthly_cost) AS monthly_cost,
       round(sum({_SPENT}) * 1000 / NULLIF(sum(t.requests + t.other_requests) FILTER (WHERE p.monthly_cost IS NOT NULL), 0), 4)
           AS cost_per_1000
FROM proxies p JOIN proxy_totals t ON t.id = p.id GROUP BY p.provider ORDER BY p.provider NULLS LAST
"""  # noqa: S608 — constants

_WAITING: Final = """
SELECT d.id, d.domain FROM job_domains jd JOIN domains d ON d.id = jd.domain_id
WHERE jd.job_id = %(job)s AND jd.state = 'open' AND jd.not_before IS NOT NULL ORDER BY d.id LIMIT %(limit)s
"""
_WISHES: Final = (
    "SELECT proxy_use, proxy_direct, proxy_resolves, proxy_country, proxy_sticky FROM domains WHERE id = %(domain)s"
)
_WAITS: Final = f"""
SELECT can_not, count(*), min(can_again) FROM (
    SELECT {CAN_NOT} AS can_not, {CAN_AGAIN} AS can_again
    FROM domains d CROSS JOIN proxies p LEFT JOIN domain_proxies m ON m.domain_id = d.id AND m.proxy_id = p.id {GIVEN}
    WHERE d.id = %(domain)s AND (%(any)s OR m.assigned)
) candidates GROUP BY can_not
"""  # noqa: S608 — constants


@dataclass(frozen=True, slots=True)
class Health:
    """The pool of a domain in numbers."""

    domain: str
    use: str
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


@dataclass(frozen=True, slots=True)
class FewActive:
    """A domain that has too few proxies."""

    domain: str
    active: int
    proxies: int


@dataclass(frozen=True, slots=True)
class ManyFailures:
    """A domain that its proxies fail too often."""

    domain: str
    requests: int
    success_count: int
    total_failures: int
    proxy_failures: int
    failure_percent: float


@dataclass(frozen=True, slots=True)
class Cost:
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


@dataclass(frozen=True, slots=True)
class ProviderCost:
    """What the proxies of a provider cost, and what for."""

    provider: str | None
    proxies: int
    active: int
    requests: int
    bytes: int
    monthly_cost: Decimal | None
    cost_per_1000: Decimal | None


@dataclass(frozen=True, slots=True)
class PoolState:
    """Whether a domain can use a proxy now."""

    rules: ProxyRules
    usable: int
    can_not: Mapping[str, int]
    """How many cannot be used, by reason; see `proxy_pools.CAN_NOT`."""
    until: datetime | None
    """When one of those can, as far as that is a matter of time."""


def health(connection: psycopg.Connection, *, usual: ProxyMode, after: str = "", limit: int = 100) -> list[Health]:
    """Domains that have or want proxies, by name; `after` is the last one seen, `usual` what is used where a domain says nothing."""
    with connection.cursor(row_factory=class_row(Health)) as cursor:
        values = {"usual": usual.value, "whole": True, "after": after, "limit": limit}
        return cursor.execute(_HEALTH, values).fetchall()


def health_of(connection: psycopg.Connection, domain: str, *, usual: ProxyMode) -> Health:
    """The pool of one domain in numbers. Raises NotFound."""
    domains.id_of(connection, domain)
    with connection.cursor(row_factory=class_row(Health)) as cursor:
        found = cursor.execute(_HEALTH_OF, {"usual": usual.value, "whole": True, "domain": domain}).fetchone()
    if found is None:
        raise NotFound(f"There is no domain {domain!r} any more.")
    return found


def active(connection: psycopg.Connection, domain: str) -> int:
    """How many active proxies the pool of a domain has. Raises NotFound."""
    domains.id_of(connection, domain)
    row = connection.execute(_COUNT, (domain,)).fetchone()
    return int(row[0]) if row else 0


def few_active(
    connection: psycopg.Connection, *, usual: ProxyMode, fewest: int = FEWEST, after: str = "", limit: int = 100
) -> list[FewActive]:
    """The first alert: domains that use their pools, and have fewer active proxies there than `fewest`."""
    with connection.cursor(row_factory=class_row(FewActive)) as cursor:
        values = {"usual": usual.value, "whole": False, "fewest": fewest, "after": after, "limit": limit}
        return cursor.execute(_FEW.format(only="" if usual is ProxyMode.POOL else _SAYS_SO), values).fetchall()


def many_failures(
    connection: psycopg.Connection, *, usual: ProxyMode, most: float = MOST_FAILURES, after: str = "", limit: int = 100
) -> list[ManyFailures]:
    """The second alert: domains whose proxies were refused or failed in more than `most` per cent of at least `ENOUGH` requests.

    Proxies that were taken out of a pool do not count: that is how one puts it right.
    """
    with connection.cursor(row_factory=class_row(ManyFailures)) as cursor:
        values = {"usual": usual.value, "whole": False, "most": most, "enough": ENOUGH, "after": after, "limit": limit}
        return cursor.execute(_FAILING, values).fetchall()


def costs(connection: psycopg.Connection, *, after: int = 0, limit: int = 100) -> list[Cost]:
    """What each proxy costs, in the order of their ids; `after` is the last one seen."""
    with connection.cursor(row_factory=class_row(Cost)) as cursor:
        return cursor.execute(_COSTS, {"after": after, "limit": limit}).fetchall()


def provider_costs(connection: psycopg.Connection) -> list[ProviderCost]:
    """What the proxies of each provider cost; those of none come last."""
    with connection.cursor(row_factory=class_row(ProviderCost)) as cursor:
        return cursor.execute(_PROVIDERS).fetchall()


def without_a_proxy(
    connection: psycopg.Connection, job_id: int, *, usual: ProxyMode, direct: bool, limit: int = 20
) -> list[str]:
    """Domains on which a job waits and no proxy can be used that they may use; so many of those that wait are looked at."""
    waiting = connection.execute(_WAITING, {"job": job_id, "limit": limit}).fetchall()
    states = [(domain, pool_state(connection, domain_id, usual=usual, direct=direct)) for domain_id, domain in waiting]
    return [
        domain
        for domain, state in states
        if state.rules.use is not ProxyMode.DIRECT and not state.rules.direct and not state.usable
    ]


def pool_state(connection: psycopg.Connection, domain_id: int, *, usual: ProxyMode, direct: bool) -> PoolState:
    """How a domain uses proxies, and whether it can use one now. `usual` and `direct`: where it says nothing."""
    row = connection.execute(_WISHES, {"domain": domain_id}).fetchone()
    rules = ProxyOverrides(*(row or ())).rules(use=usual, direct=direct)
    if rules.use is ProxyMode.DIRECT:
        return PoolState(rules, 0, {}, None)
    found = connection.execute(_WAITS, {"domain": domain_id, "any": rules.use is ProxyMode.ANY}).fetchall()
    times = [until for _, _, until in found if until is not None]
    counts = {why: count for why, count, _ in found}
    return PoolState(rules, counts.pop(None, 0), counts, min(times, default=None))
