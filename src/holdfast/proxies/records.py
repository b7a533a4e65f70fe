"""Proxies, the pools of domains, their health and cost, and the filter of the list of proxies. No record has a password."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, TypedDict

from holdfast.model.list_filter import ListFilter, split_flag
from holdfast.model.proxy import Protocol, ProxyRules, ProxyServer
from holdfast.model.record import record

FIRST_PRIORITY: Final = 1
LAST_PRIORITY: Final = 10
DEFAULT_PRIORITY: Final = 5


# Proxies


@record
class Proxy:
    """A proxy and the statistics of its use, without its password."""

    id: int
    server: str
    """Its address: PROTOCOL://HOST:PORT."""
    protocol: Protocol
    host: str
    port: int
    username: str | None
    has_password: bool
    is_active: bool
    disabled_by: str | None
    """`operator`, or `health`: it failed too often."""
    failure_count: int
    """In a row."""
    last_error: str | None
    last_failure_at: datetime | None
    next_try_at: datetime | None
    country_code: str | None
    city: str | None
    provider: str | None
    monthly_cost: Decimal | None
    max_requests_per_hour: int | None
    """null: without a limit."""
    allow_private: bool
    """It may have a private address."""
    version: int
    created_at: datetime
    updated_at: datetime
    success_count: int
    total_failures: int
    """Requests that sites refused."""
    proxy_failures: int
    """Requests that failed at the proxy."""
    requests: int
    other_requests: int
    """Such as those for robots.txt."""
    bytes: int
    avg_response_time_ms: float | None
    last_used_at: datetime | None
    last_success_at: datetime | None
    domains: int
    """The number of domains that have it in their pools, or have used it."""

    @property
    def address(self) -> ProxyServer:
        """Its address and user, parsed."""
        return ProxyServer(self.protocol, self.host, self.port, self.username)


@record
class ProxyOptions:
    """What an operator states about a proxy."""

    country_code: str | None = None
    city: str | None = None
    provider: str | None = None
    monthly_cost: Decimal | None = None
    max_requests_per_hour: int | None = 1000
    allow_private: bool = False


@record
class AddedProxy:
    """The result of adding a proxy."""

    id: int
    server: str
    created: bool
    """False: it was known, and is unchanged."""


@record
class ProxyTest:
    """The result of a test request through a proxy."""

    id: int
    server: str
    works: bool
    problem: str | None
    """Why it does not work, or why that is unknown."""
    fault: str | None
    """Whose it is: `proxy`, `unclear` (the proxy's or the site's) or `site`; null: it works, or no request was sent."""
    status: int | None
    """The status of the site's response."""
    seconds: float | None
    recovered: bool
    """It had failed too often, and is active again."""


@dataclass(frozen=True, slots=True)
class ProxyFilter(ListFilter):
    """Which proxies to list; None: all."""

    active: bool | None = None
    provider: str | None = None
    country: str | None = None

    def given(self) -> dict[str, object]:
        given = ListFilter.given(self)
        split_flag(given, "active", "active", "inactive")
        return given


class ProxyChanges(TypedDict, total=False):
    """Changes of a proxy. A field that is left out stays as it is; None removes it."""

    country_code: str | None
    city: str | None
    provider: str | None
    monthly_cost: Decimal | None
    max_requests_per_hour: int | None
    """None: without a limit."""
    allow_private: bool
    """It may have a private address."""
    password: str | None


class NewProxy(ProxyChanges, total=False):
    """A proxy to add: by its `url`, or by `host`, `port` and the other parts."""

    url: str | None
    """SCHEME://USER:PASSWORD@HOST:PORT; scheme, user and password may be left out; %40 is an @."""
    protocol: str | None
    """None: http."""
    host: str | None
    port: int | None
    username: str | None


# Pools


@record
class ProxyMapping:
    """A proxy in the pool of a domain, and the statistics of its use there."""

    domain: str
    proxy_id: int
    server: str
    """The address of the proxy: PROTOCOL://HOST:PORT."""
    protocol: Protocol
    host: str
    port: int
    username: str | None
    country_code: str | None
    provider: str | None
    proxy_is_active: bool
    """Enabled globally, not only for this domain."""
    assigned: bool
    """False: it is not in the pool, but was used: from the global pool, or before it was removed from this one."""
    priority: int
    """From 1 (first) to 10."""
    is_active: bool
    """Enabled for this domain."""
    disabled_by: str | None
    """`operator`, or `health`: it was refused too often."""
    failure_count: int
    """In a row, for this domain."""
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
    """Of the requests that are evidence about the proxy; errors of the site itself are not."""
    can_not: str | None
    """Why it cannot be used now: `off`, `off_here`, `wrong_country`, `failed`, `refused` or `used_up`; null: it can."""
    can_again: datetime | None
    """When it can be used again, if that depends on time only."""


@record
class Assignment:
    """The result of assigning proxies to a domain, by their ids."""

    domain: str
    added: list[int]
    changed: list[int]
    """They were in the pool, with another priority."""
    unchanged: list[int]
    use: str | None
    """Which proxies the domain is configured to use; null: the setting decides."""
    now_uses_pool: bool
    """The domain was configured to use its pool by this request."""


@record
class Unassignment:
    """The result of removing proxies from a pool, by their ids."""

    domain: str
    removed: list[int]
    unknown: list[int]
    """They were not in the pool."""
    left: int
    """The number of proxies that are still in the pool."""


@record
class PoolHealth:
    """The pool of a domain in numbers."""

    domain: str
    use: str
    """Which proxies it uses: `direct` (none), `pool` or `any`."""
    proxies: int
    """Assigned to it."""
    active: int
    """Assigned proxies that are enabled and do not fail."""
    failing: int
    """Assigned proxies that failed, or were refused, too often in a row."""
    requests: int
    other_requests: int
    success_count: int
    total_failures: int
    proxy_failures: int
    bytes: int
    avg_response_time_ms: float | None
    last_used_at: datetime | None
    failure_percent: float | None


@record
class NextProxy:
    """The proxy of the next request to a domain, and the reason."""

    domain: str
    use: str
    """Which proxies it uses: `direct` (none), `pool` or `any`."""
    proxy_id: int | None
    """null: the request would go without a proxy (`direct`), or has to wait."""
    server: str | None
    country_code: str | None
    provider: str | None
    priority: int | None
    last_used_at: datetime | None
    direct: bool
    """The request would go without a proxy."""
    why: str
    usable: int
    """The number of proxies that could be used."""
    can_not: dict[str, int]
    """The number of proxies that could not, by reason."""
    until: datetime | None
    """When the first of those can be used again, if that depends on time only."""


@record
class PoolState:
    """Whether a domain can use a proxy now."""

    rules: ProxyRules
    usable: int
    can_not: dict[str, int]
    """The number of proxies that cannot be used, by reason; see `queries.pools.CAN_NOT`."""
    until: datetime | None
    """When the first of those can be used again, if that depends on time only."""


# Reports


@record
class FewActive:
    """A domain with too few active proxies."""

    domain: str
    active: int
    proxies: int


@record
class ManyFailures:
    """A domain whose proxies fail too often."""

    domain: str
    requests: int
    success_count: int
    total_failures: int
    proxy_failures: int
    failure_percent: float


@record
class PoolAlerts:
    """Domains whose pools need attention."""

    few_active: list[FewActive]
    many_failures: list[ManyFailures]


@record
class ProxyCost:
    """The cost of a proxy, and its use."""

    id: int
    server: str
    provider: str | None
    is_active: bool
    requests: int
    """Including those for robots.txt."""
    bytes: int
    monthly_cost: Decimal | None
    cost_per_1000: Decimal | None
    """The cost of 1000 requests: what the proxy has cost since it was added, for at least one month."""


@record
class ProviderCost:
    """The cost of all proxies of a provider, and their use."""

    provider: str | None
    proxies: int
    active: int
    requests: int
    bytes: int
    monthly_cost: Decimal | None
    cost_per_1000: Decimal | None


@record
class Advice:
    """The number of proxies that a domain needs."""

    urls_per_hour: float
    each_per_hour: float
    buffer: float
    needed: int
    domain: str | None = None
    active: int | None = None
    """The number of active proxies that the domain has."""
