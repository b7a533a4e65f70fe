"""Which proxy a domain's next request would go through, as far as the store knows it.

The rule: it says what `politeness/proxy_pool` would choose if a visit began now. What a visit that is under way has in memory (who was
used a moment ago, whose share of a limit is left) is not in the store, and may lead to another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from holdfast.model.proxy import ProxyMode, ProxyRules
from holdfast.proxies.queries import reports as proxy_reports
from holdfast.proxies.queries.pools import CAN_NOT, GIVEN

# Its own come first, then those of the global pool that it has never used, then those that it has. A domain begins with another one of
# the global pool than its neighbours.
_FIRST: Final = f"""
SELECT * FROM (
    SELECT p.id AS proxy_id, p.proxy_protocol || '://' || p.proxy_url || ':' || p.proxy_port AS server, p.country_code, p.provider,
           m.priority, m.last_used_at, m.avg_response_time_ms, COALESCE(m.assigned, false) AS assigned, m.id IS NULL AS is_new,
           COALESCE(m.last_used_at > clock_timestamp() - %(sticky)s::interval AND m.last_used_at = max(m.last_used_at) OVER (), false)
               AS is_kept,
           (p.place + p.others - d.id %% p.others) %% p.others AS turn, {CAN_NOT} AS can_not
    FROM domains d CROSS JOIN (
        SELECT o.*, row_number() OVER (ORDER BY o.id) - 1 AS place, count(*) OVER () AS others FROM proxies o
        WHERE o.disabled_by IS DISTINCT FROM 'operator') p
    LEFT JOIN domain_proxies m ON m.domain_id = d.id AND m.proxy_id = p.id {GIVEN}
    WHERE d.id = %(domain)s AND (%(any)s OR m.assigned)) candidates
WHERE can_not IS NULL
ORDER BY is_kept DESC, CASE WHEN assigned THEN 0 WHEN is_new THEN 1 ELSE 2 END, priority, CASE WHEN is_new THEN turn END,
         last_used_at NULLS FIRST, avg_response_time_ms NULLS LAST, proxy_id
LIMIT 1
"""  # noqa: S608 — constants


@dataclass(frozen=True, slots=True)
class NextProxy:
    """What the next request would go through, and why."""

    domain: str
    use: str
    """Which proxies the domain uses: direct, pool or any."""
    proxy_id: int | None
    """None: it would go without a proxy (`direct`), or has to wait."""
    server: str | None
    country_code: str | None
    provider: str | None
    priority: int | None
    last_used_at: datetime | None
    direct: bool
    """The request would go without a proxy."""
    why: str
    """One sentence."""
    usable: int
    """Proxies that could be used."""
    can_not: Mapping[str, int]
    """How many could not, by reason."""
    until: datetime | None
    """When one of those can, as far as that is a matter of time."""


def next_for(
    connection: psycopg.Connection, domain_id: int, domain: str, *, usual: ProxyMode, direct: bool
) -> NextProxy:
    """Which proxy comes next for a domain. `usual` and `direct`: where it says nothing."""
    state = proxy_reports.pool_state(connection, domain_id, usual=usual, direct=direct)
    rules = state.rules
    chosen: dict[str, Any] | None = None
    if rules.use is not ProxyMode.DIRECT:
        given = {"domain": domain_id, "any": rules.use is ProxyMode.ANY, "sticky": rules.sticky}
        with connection.cursor(row_factory=dict_row) as cursor:
            chosen = cursor.execute(_FIRST, given, prepare=False).fetchone()
    found = chosen or {}
    return NextProxy(
        domain=domain,
        use=str(rules.use),
        proxy_id=found.get("proxy_id"),
        server=found.get("server"),
        country_code=found.get("country_code"),
        provider=found.get("provider"),
        priority=found.get("priority"),
        last_used_at=found.get("last_used_at"),
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
            "Of those of its pool that can be used it has the first priority, and among equals was used least recently;"
            " of those that rested as long it is the faster."
        )
    if chosen["is_new"]:
        return "None of its pool can be used; of all others it is the next that the domain has not used yet."
    return "None of its pool can be used, and the domain has used all others; this one least recently."
