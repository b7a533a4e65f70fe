"""SQL of reports about pools and proxies: health, alerts, costs.

The rule: read only. The statistics are those that the holders of domains commit with their batches; long lists are read in pages, by a key.
"""

from typing import Final

import psycopg

from holdfast.db import domains
from holdfast.db.rows import by_name
from holdfast.errors import NotFound
from holdfast.model.proxy import ProxyMode
from holdfast.proxies.queries.proxies import ADDRESS
from holdfast.proxies.records import FewActive, ManyFailures, PoolHealth, ProviderCost, ProxyCost

MIN_ACTIVE: Final = 3
"""A domain with fewer active proxies is an alert."""
MAX_FAILURE_PERCENT: Final = 10.0
"""A domain with a higher share of failed requests is an alert."""
MIN_REQUESTS: Final = 20
"""The number of requests from which the share of failures is judged."""

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
_USE: Final = "COALESCE(d.proxy_use, %(default)s)"
_PERCENT: Final = "round(100.0 * (s.total_failures + s.proxy_failures) / NULLIF(s.requests, 0), 2)::float8"
# The limit comes first: only the domains of the page are summed.
_HEALTH: Final = f"""
WITH pooled AS MATERIALIZED (
    SELECT domain_id AS id FROM domain_proxies GROUP BY domain_id UNION SELECT id FROM domains WHERE proxy_use IN ('pool', 'any')
)
SELECT d.domain, {_USE} AS use, s.*, {_PERCENT} AS failure_percent
FROM (SELECT o.* FROM pooled JOIN domains o USING (id) WHERE o.domain > %(after)s ORDER BY o.domain LIMIT %(limit)s) d
{_SUMS.format(use=_USE)} ORDER BY d.domain
"""  # noqa: S608 — constants
_HEALTH_OF: Final = f"""
SELECT d.domain, {_USE} AS use, s.*, {_PERCENT} AS failure_percent FROM domains d {_SUMS.format(use=_USE)} WHERE d.domain = %(domain)s
"""  # noqa: S608 — constants
_FEW: Final = f"""
SELECT d.domain, s.active, s.proxies FROM domains d {_SUMS.format(use=_USE)}
WHERE d.is_active AND {_USE} = 'pool' AND d.domain > %(after)s AND s.active < %(min_active)s {{only}} ORDER BY d.domain LIMIT %(limit)s
"""  # noqa: S608 — constants
_HAS_MODE: Final = "AND d.proxy_use IS NOT NULL"
"""For a default that is not the pool: the partial index finds the domains with a mode of their own."""
_FAILING: Final = f"""
SELECT d.domain, s.requests, s.success_count, s.total_failures, s.proxy_failures, {_PERCENT} AS failure_percent
FROM (SELECT domain_id AS id FROM domain_proxies GROUP BY domain_id) pooled JOIN domains d USING (id) {_SUMS.format(use=_USE)}
WHERE d.is_active AND {_USE} <> 'direct' AND d.domain > %(after)s AND s.requests >= %(min_requests)s
  AND 100.0 * (s.total_failures + s.proxy_failures) > %(max_percent)s::numeric * s.requests
ORDER BY d.domain LIMIT %(limit)s
"""  # noqa: S608 — constants

# A proxy is paid by the month, for at least one month.
_SPENT: Final = "p.monthly_cost * GREATEST(extract(epoch FROM now() - p.created_at) / 2629746, 1)"
_COSTS: Final = f"""
SELECT p.id, {ADDRESS}, p.provider, p.is_active,
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


def health(
    connection: psycopg.Connection, *, default: ProxyMode, after: str = "", limit: int = 100
) -> list[PoolHealth]:
    """Return the pools of domains that have or use proxies, by name; `after` is the last name of the previous page, `default` the mode of
    domains without a mode of their own."""
    with connection.cursor(row_factory=by_name(PoolHealth)) as cursor:
        values = {"default": default.value, "whole": True, "after": after, "limit": limit}
        return cursor.execute(_HEALTH, values).fetchall()


def health_of(connection: psycopg.Connection, domain: str, *, default: ProxyMode) -> PoolHealth:
    """Return the pool of one domain in numbers. Raises NotFound."""
    domains.id_of(connection, domain)
    with connection.cursor(row_factory=by_name(PoolHealth)) as cursor:
        found = cursor.execute(_HEALTH_OF, {"default": default.value, "whole": True, "domain": domain}).fetchone()
    if found is None:
        raise NotFound(f"There is no domain {domain!r} any more.")
    return found


def few_active(
    connection: psycopg.Connection,
    *,
    default: ProxyMode,
    min_active: int = MIN_ACTIVE,
    after: str = "",
    limit: int = 100,
) -> list[FewActive]:
    """Return domains that use their pools and have fewer active proxies than `min_active` in them."""
    with connection.cursor(row_factory=by_name(FewActive)) as cursor:
        values = {"default": default.value, "whole": False, "min_active": min_active, "after": after, "limit": limit}
        return cursor.execute(_FEW.format(only="" if default is ProxyMode.POOL else _HAS_MODE), values).fetchall()


def many_failures(
    connection: psycopg.Connection,
    *,
    default: ProxyMode,
    max_percent: float = MAX_FAILURE_PERCENT,
    after: str = "",
    limit: int = 100,
) -> list[ManyFailures]:
    """Return domains whose proxies were refused or failed in more than `max_percent` per cent of at least `MIN_REQUESTS` requests.

    Proxies that were removed from a pool do not count, so that an operator resolves the alert by removing them.
    """
    with connection.cursor(row_factory=by_name(ManyFailures)) as cursor:
        values = {
            "default": default.value,
            "whole": False,
            "max_percent": max_percent,
            "min_requests": MIN_REQUESTS,
            "after": after,
            "limit": limit,
        }
        return cursor.execute(_FAILING, values).fetchall()


def costs(connection: psycopg.Connection, *, after: int = 0, limit: int = 100) -> list[ProxyCost]:
    """Return the cost of each proxy, by id; `after` is the last id of the previous page."""
    with connection.cursor(row_factory=by_name(ProxyCost)) as cursor:
        return cursor.execute(_COSTS, {"after": after, "limit": limit}).fetchall()


def provider_costs(connection: psycopg.Connection) -> list[ProviderCost]:
    """Return the cost of the proxies of each provider; proxies without a provider come last."""
    with connection.cursor(row_factory=by_name(ProviderCost)) as cursor:
        return cursor.execute(_PROVIDERS).fetchall()
