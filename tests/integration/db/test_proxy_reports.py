"""Pools and proxies from above: health by domain, both alerts, and what proxies cost."""

from decimal import Decimal

import pytest

from holdfast.domains import queries as domains
from holdfast.errors import NotFound
from holdfast.model.proxy import ProxyMode
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.queries import proxies
from holdfast.proxies.queries import reports as proxy_reports
from tests.support.factories import Store
from tests.support.pools import WHO, Pools


@pytest.fixture
def pools(store: Store) -> Pools:
    """d0.example to d4.example, without proxies."""
    store.domains(5)
    return Pools(store)


def few(pools: Pools, default: ProxyMode = ProxyMode.DIRECT, **how: object) -> list[tuple[str, int, int]]:
    found = proxy_reports.few_active(pools.connection, default=default, **how)  # type: ignore[arg-type]
    return [(one.domain, one.active, one.proxies) for one in found]


def active(pools: Pools, domain: str) -> int:
    return proxy_reports.health_of(pools.connection, domain, default=ProxyMode.DIRECT).active


def many(pools: Pools, default: ProxyMode = ProxyMode.DIRECT, **how: object) -> list[tuple[str, float]]:
    found = proxy_reports.many_failures(pools.connection, default=default, **how)  # type: ignore[arg-type]
    return [(one.domain, one.failure_percent) for one in found]


def test_health_by_domain(pools: Pools) -> None:
    a, b, c, d = pools.add(4)
    pools.assign("d1.example", a, b, c)
    pools.used("d1.example", a, requests=10, success_count=6, total_failures=1, bytes=500, avg_response_time_ms=100)
    pools.used(
        "d1.example", d, requests=5, other_requests=1, success_count=2, proxy_failures=3, avg_response_time_ms=500
    )
    pools.fails(b, 5)
    proxies.switch(pools.connection, c, on=False, actor=WHO)
    domains.edit(pools.connection, "d3.example", {"proxy_use": "any"})
    one, other = proxy_reports.health(pools.connection, default=ProxyMode.DIRECT)
    assert (one.domain, one.use, one.proxies, one.active, one.failing) == ("d1.example", "pool", 3, 1, 1)
    assert (one.requests, one.other_requests, one.success_count, one.bytes) == (15, 1, 8, 500)
    assert (one.total_failures, one.proxy_failures, one.failure_percent) == (1, 3, 26.67)
    assert one.avg_response_time_ms == 200, "weighed by what got through"
    assert (other.domain, other.use, other.proxies, other.requests) == ("d3.example", "any", 0, 0)
    assert (other.failure_percent, other.avg_response_time_ms, other.last_used_at) == (None, None, None)


def test_health_in_pages(pools: Pools) -> None:
    (proxy,) = pools.add()
    for number in range(5):
        pools.assign(f"d{number}.example", proxy)
    names = [one.domain for one in proxy_reports.health(pools.connection, default=ProxyMode.DIRECT, limit=2)]
    assert names == ["d0.example", "d1.example"]
    rest = proxy_reports.health(pools.connection, default=ProxyMode.DIRECT, after=names[-1])
    assert [one.domain for one in rest] == ["d2.example", "d3.example", "d4.example"]


def test_domains_with_too_few_active_proxies(pools: Pools) -> None:
    ids = pools.add(4, country_code="DE")
    pools.assign("d0.example", *ids)
    pools.assign("d1.example", *ids[:3])
    pools.assign("d2.example", *ids[:2])
    pools.assign("d3.example", ids[0])
    domains.edit(pools.connection, "d3.example", {"is_active": False})
    domains.edit(pools.connection, "d4.example", {"proxy_use": "pool"})
    assert few(pools) == [("d2.example", 2, 2), ("d4.example", 0, 0)]
    assert few(pools, min_active=4, limit=1) == [("d1.example", 3, 3)]
    assert few(pools, min_active=4, after="d1.example") == [("d2.example", 2, 2), ("d4.example", 0, 0)]
    pools.fails(ids[3], 5)
    proxies.switch(pools.connection, ids[2], on=False, actor=WHO)
    proxy_pools.edit(pools.connection, "d0.example", ids[1], actor=WHO, on=False)
    assert few(pools)[0] == ("d0.example", 1, 4)
    domains.edit(pools.connection, "d0.example", {"proxy_country": "FR"})
    assert few(pools)[0] == ("d0.example", 0, 4), "those elsewhere are of no use to it"
    domains.edit(pools.connection, "d0.example", {"proxy_use": "any"})
    assert "d0.example" not in [domain for domain, _, _ in few(pools)], "it may use any other"


def test_where_pools_are_the_default_every_domain_should_have_one(pools: Pools) -> None:
    pools.assign("d0.example", *pools.add(3), default=ProxyMode.POOL)
    assert few(pools, ProxyMode.POOL) == [(f"d{number}.example", 0, 0) for number in range(1, 5)]
    assert few(pools) == []


def test_domains_whose_proxies_fail_too_often(pools: Pools) -> None:
    a, b = pools.add(2)
    figures = {
        "d0.example": {"requests": 30, "success_count": 27, "total_failures": 3},
        "d1.example": {"requests": 30, "success_count": 20, "total_failures": 2, "proxy_failures": 2},
        "d2.example": {"requests": 19, "success_count": 0, "proxy_failures": 19},
        "d3.example": {"requests": 100, "success_count": 70},
    }
    for domain, columns in figures.items():
        pools.assign(domain, a, b)
        pools.used(domain, a, **columns)
    assert many(pools) == [("d1.example", 13.33)], (
        "10 % is not more, 19 requests are too few, errors of the site are none of it"
    )
    assert many(pools, max_percent=5.0) == [("d0.example", 10.0), ("d1.example", 13.33)]
    assert many(pools, max_percent=5.0, limit=1) == [("d0.example", 10.0)]
    assert many(pools, max_percent=5.0, after="d0.example") == [("d1.example", 13.33)]
    proxy_pools.unassign(pools.connection, "d1.example", [a], actor=WHO)
    assert many(pools) == [], "the bad one was taken out"
    domains.edit(pools.connection, "d1.example", {"proxy_use": "any"})
    assert many(pools) == [("d1.example", 13.33)], "it may be used again"
    domains.edit(pools.connection, "d1.example", {"proxy_use": "direct"})
    assert many(pools) == []


def test_how_many_active_ones_a_domain_has(pools: Pools) -> None:
    ids = pools.add(3)
    pools.assign("d0.example", *ids)
    pools.fails(ids[0], 10)
    pools.used_up(ids[1])
    assert active(pools, "d0.example") == 2, "one that is used up for now is one all the same"
    assert active(pools, "d1.example") == 0
    with pytest.raises(NotFound):
        active(pools, "nowhere.example")


def test_what_proxies_cost(pools: Pools) -> None:
    dear, cheap, idle = [
        *pools.add(provider="acme", monthly_cost=Decimal("30.00")),
        *pools.add(provider="acme", monthly_cost=Decimal("5.00")),
        *pools.add(provider="acme"),
    ]
    (nobodys,) = pools.add()
    for domain in ("d0.example", "d1.example"):
        pools.used(domain, dear, requests=900, other_requests=100, bytes=5_000)
        pools.used(domain, cheap, requests=500, bytes=1_000)
        pools.used(domain, nobodys, requests=7, bytes=70)
    found = {one.id: one for one in proxy_reports.costs(pools.connection)}
    assert (found[dear].requests, found[dear].bytes, found[dear].monthly_cost) == (2000, 10_000, Decimal("30.00"))
    assert found[dear].cost_per_1000 == Decimal("15.0000"), "the first month is paid for as a whole"
    assert found[cheap].cost_per_1000 == Decimal("5.0000")
    assert (found[idle].requests, found[idle].monthly_cost, found[idle].cost_per_1000) == (0, None, None)
    assert found[dear].server == "http://proxy.example:1"
    assert [one.id for one in proxy_reports.costs(pools.connection, after=dear, limit=2)] == [cheap, idle]
    acme, nobody = proxy_reports.provider_costs(pools.connection)
    assert (acme.provider, acme.proxies, acme.active, acme.requests, acme.bytes) == ("acme", 3, 3, 3000, 12_000)
    assert (acme.monthly_cost, acme.cost_per_1000) == (Decimal("35.00"), Decimal("11.6667"))
    assert (nobody.provider, nobody.requests, nobody.monthly_cost, nobody.cost_per_1000) == (None, 14, None, None)
    pools.connection.execute("UPDATE proxies SET created_at = now() - 4 * interval '2629746 s' WHERE id = %s", (dear,))
    (older,) = proxy_reports.costs(pools.connection, limit=1)
    assert older.cost_per_1000 == pytest.approx(Decimal(60), abs=Decimal("0.01"))
