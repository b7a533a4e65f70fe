"""Which proxy comes next for a domain, from what is stored, and that the engine's own pool would choose the same."""

import math
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.control.secret_box import SecretBox
from holdfast.db import proxy_usage as proxy_use
from holdfast.db.connection import Database
from holdfast.errors import NotFound
from holdfast.model.proxy import ProxyMode, ProxyRules
from holdfast.politeness.proxy_pool import PoolMember, ProxyPool
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.service import ProxyService
from tests.support.factories import Store
from tests.support.pools import Pools

NAME = "a.example"


@pytest.fixture
def pools(store: Store) -> Pools:
    store.seed(NAME)
    return Pools(store)


def service(database: Database, use: ProxyMode = ProxyMode.POOL, *, direct: bool = False) -> ProxyService:
    return ProxyService(database, SecretBox(Path("nowhere")), use, direct)


def used(pools: Pools, proxy_id: int, ago: str) -> None:
    pools.connection.execute(
        "UPDATE domain_proxies SET last_used_at = now() - %s::interval WHERE proxy_id = %s", (ago, proxy_id)
    )


def as_the_engine_would(pools: Pools, rules: ProxyRules) -> int | None:
    """The choice of `politeness/proxy_pool`, with what a visit that begins now is given."""
    (domain_id,) = pools.connection.execute("SELECT id FROM domains WHERE domain = %s", (NAME,)).fetchone() or (0,)
    rows = proxy_use.pools(pools.connection, [domain_id]).get(domain_id, [])
    everyone = [(row.id, row.country) for row in proxy_use.usable_proxies(pools.connection)]
    countries = dict(everyone)
    members = [
        PoolMember(
            row.proxy_id,
            countries.get(row.proxy_id),
            row.priority,
            assigned=row.assigned,
            used=-math.inf if row.used_ago is None else -row.used_ago,
            enabled=row.on,
            refusals=row.refusals,
            probe_at=row.try_in or 0.0,
        )
        for row in rows
    ]
    pool = ProxyPool(rules, members, start=domain_id, now=0.0)
    failing = {row.id: row.try_in for row in proxy_use.usable_proxies(pools.connection) if row.failures >= 5}
    choice = pool.choose(lambda proxy_id: failing.get(proxy_id) or 0.0, 0.0, global_pool=everyone)
    return choice.member.proxy_id if choice.member else None


def test_the_first_priority_and_among_equals_who_was_used_least_recently(database: Database, pools: Pools) -> None:
    one, two, three = pools.add(3)
    pools.assign(NAME, one, two, priority=2)
    pools.assign(NAME, three, priority=5)
    used(pools, one, "1 minute")
    used(pools, two, "2 minutes")
    found = service(database).next(NAME)
    assert (found.proxy_id, found.use, found.usable, found.direct) == (two, "pool", 3, False)
    assert found.why.startswith("Of the usable proxies of the pool")
    assert found.proxy_id == as_the_engine_would(pools, ProxyRules())
    proxy_pools.edit(pools.connection, NAME, two, actor="ann", on=False)
    pools.fails(one, 6)
    found = service(database).next(NAME)
    assert found.proxy_id == three == as_the_engine_would(pools, ProxyRules())
    assert found.can_not == {"off_here": 1, "failed": 1}


def test_any_other_comes_when_the_pool_gives_none_each_domain_begins_elsewhere(
    database: Database, pools: Pools
) -> None:
    ids = pools.add(5)
    pools.assign(NAME, ids[0])
    pools.fails(ids[0], 6)
    pools.connection.execute("UPDATE domains SET proxy_use = 'any'")
    for _ in ids[1:]:
        found = service(database).next(NAME)
        assert found.why.startswith("None of its pool can be used; of all others")
        assert found.proxy_id == as_the_engine_would(pools, ProxyRules(ProxyMode.ANY))
        assert found.proxy_id is not None
        pools.used(NAME, found.proxy_id, requests=1)
    again = service(database).next(NAME)
    assert again.why.endswith("this one least recently.")
    assert again.proxy_id == as_the_engine_would(pools, ProxyRules(ProxyMode.ANY))


def test_a_sticky_domain_keeps_its_proxy(database: Database, pools: Pools) -> None:
    one, two = pools.add(2)
    pools.assign(NAME, one, two)
    used(pools, one, "1 minute")
    pools.connection.execute("UPDATE domains SET proxy_sticky = '10 minutes'")
    found = service(database).next(NAME)
    assert found.proxy_id == one == as_the_engine_would(pools, ProxyRules(sticky=timedelta(minutes=10)))
    assert "keeps the same one" in found.why
    used(pools, one, "11 minutes")
    assert service(database).next(NAME).proxy_id == two


def test_none_can_be_used(database: Database, pools: Pools) -> None:
    (one,) = pools.add(1, country_code="FR")
    pools.assign(NAME, one)
    pools.connection.execute("UPDATE domains SET proxy_country = 'DE'")
    waits = service(database).next(NAME)
    assert (waits.proxy_id, waits.direct, waits.can_not) == (None, False, {"wrong_country": 1})
    assert waits.why.endswith("it waits.")
    assert service(database, direct=True).next(NAME).direct
    pools.connection.execute("UPDATE domains SET proxy_use = 'direct'")
    assert service(database).next(NAME).why == "The domain uses no proxy."
    with pytest.raises(NotFound):
        service(database).next("nobody.example")


def test_the_health_of_one_pool(database: Database, pools: Pools) -> None:
    one, two = pools.add(2)
    empty = service(database).pool_health(NAME)
    assert (empty.domain, empty.proxies, empty.requests, empty.failure_percent) == (NAME, 0, 0, None)
    pools.assign(NAME, one, two)
    pools.used(NAME, one, requests=10, success_count=8, total_failures=2)
    pools.fails(two, 6)
    found = service(database).pool_health(f"https://{NAME}/x")
    assert (found.proxies, found.active, found.failing, found.requests, found.failure_percent) == (2, 1, 1, 10, 20.0)
    with pytest.raises(NotFound):
        service(database).pool_health("nobody.example")
