"""The pools of domains: filled, emptied and changed by people, and what a domain waits for that can use no proxy."""

import threading
from datetime import datetime, timedelta

import pytest

from holdfast.db import audit
from holdfast.db import proxy_usage as proxy_use
from holdfast.db.connection import Database
from holdfast.domains import queries as domains
from holdfast.errors import NotFound, Refused
from holdfast.model.proxy import ProxyMode
from holdfast.proxies.queries import pools as proxy_pools
from holdfast.proxies.queries import proxies
from holdfast.proxies.records import PoolState
from tests.support.factories import Store
from tests.support.invariants import assert_invariants
from tests.support.pools import WHO, Pools

SITE = "example.com"


@pytest.fixture
def pools(store: Store) -> Pools:
    """One domain with a URL, and no proxy yet."""
    store.seed(SITE)
    return Pools(store)


def listed(pools: Pools) -> list[tuple[int, int, bool]]:
    return [(one.proxy_id, one.priority, one.assigned) for one in proxy_pools.listing(pools.connection, SITE)]


def deeds(pools: Pools) -> list[tuple[str, dict[str, object]]]:
    return [(entry.action, entry.details) for entry in audit.listing(pools.connection, kind=proxy_pools.KIND)]


# Assigning ------------------------------------------------------------------------------------------------------------


def test_assigned_once_and_with_a_priority(pools: Pools) -> None:
    a, b, c = pools.add(3)
    done = pools.assign(SITE, b, a)
    assert (done.added, done.changed, done.unchanged, done.use, done.now_uses_pool) == ([a, b], [], [], "pool", True)
    again = pools.assign(SITE, a, b, c)
    assert (again.added, again.unchanged, again.now_uses_pool) == ([c], [a, b], False)
    moved = pools.assign(SITE, a, c, priority=2)
    assert (moved.added, moved.changed, moved.unchanged) == ([], [a, c], [])
    assert pools.assign(SITE, a, priority=2).unchanged == [a]
    assert listed(pools) == [(a, 2, True), (c, 2, True), (b, 5, True)]
    assert [one.version for one in proxy_pools.listing(pools.connection, SITE)] == [2, 2, 1]
    assert [action for action, _ in deeds(pools)] == ["assign"] * 3, "what changed nothing leaves no line"
    assert deeds(pools)[2][1] == {"added": [a, b], "changed": [], "priority": None, "now_uses_pool": True}


@pytest.mark.parametrize(
    ("said", "default", "afterwards", "now_uses_pool", "higher"),
    [
        (None, ProxyMode.DIRECT, "pool", True, 1),
        (None, ProxyMode.POOL, None, False, 0),
        (None, ProxyMode.ANY, None, False, 0),
        ("direct", ProxyMode.DIRECT, "direct", False, 0),
        ("any", ProxyMode.DIRECT, "any", False, 0),
    ],
    ids=["nothing said", "pool is the default", "any is the default", "direct said", "any said"],
)
def test_a_domain_that_used_none_uses_its_pool(
    pools: Pools, said: str | None, default: ProxyMode, afterwards: str | None, now_uses_pool: bool, higher: int
) -> None:
    pools.connection.execute("UPDATE domains SET proxy_use = %s", (said,))
    before = pools.store.row(SITE)["version"]
    done = pools.assign(SITE, *pools.add(), default=default)
    row = pools.store.row(SITE)
    assert (row["proxy_use"], done.use, done.now_uses_pool) == (afterwards, afterwards, now_uses_pool)
    assert row["version"] - before == higher


def test_what_is_not_there_is_not_assigned(pools: Pools) -> None:
    (proxy,) = pools.add()
    with pytest.raises(NotFound, match=r"^There is no proxy 815\.$"):
        pools.assign(SITE, proxy, 815)
    with pytest.raises(NotFound, match=r"^There is no domain 'nowhere\.example'"):
        pools.assign("nowhere.example", proxy)
    assert listed(pools) == []
    assert pools.store.row(SITE)["proxy_use"] is None


def test_one_that_was_used_before_it_was_assigned_starts_afresh(pools: Pools) -> None:
    (proxy,) = pools.add()
    pools.used(SITE, proxy, requests=9, success_count=2, total_failures=7)
    pools.is_refused(proxy, 7)
    assert pools.assign(SITE, proxy).added == [proxy]
    one = proxy_pools.get(pools.connection, SITE, proxy)
    assert (one.assigned, one.is_active, one.disabled_by, one.failure_count, one.next_try_at) == (
        True,
        True,
        None,
        0,
        None,
    )
    assert (one.requests, one.success_percent, one.version) == (9, 22.22, 2)
    pools.is_refused(proxy, 6)
    pools.assign(SITE, proxy, priority=1)
    assert proxy_pools.get(pools.connection, SITE, proxy).failure_count == 6, "another priority forgets nothing"


# Taking out -----------------------------------------------------------------------------------------------------------


def test_taken_out_it_keeps_what_it_did(pools: Pools) -> None:
    used, asked, unused, other = pools.add(4)
    pools.assign(SITE, used, asked, unused)
    pools.used(SITE, used, requests=3, success_count=3)
    pools.used(SITE, asked, other_requests=1)
    done = proxy_pools.unassign(pools.connection, SITE, [used, asked, unused, other, 815], actor=WHO)
    assert (done.removed, done.unknown, done.left) == ([used, asked, unused], [other, 815], 0)
    assert listed(pools) == [(used, 5, False), (asked, 5, False)]
    assert proxies.get(pools.connection, used).requests == 3
    assert proxies.get(pools.connection, used).domains == 0
    assert deeds(pools)[0] == ("unassign", {"removed": [used, asked, unused]})
    again = proxy_pools.unassign(pools.connection, SITE, [used], actor=WHO)
    assert (again.removed, again.unknown) == ([], [used])
    assert len(deeds(pools)) == 2
    state = proxy_pools.pool_state(pools.connection, domain_id(pools), default=ProxyMode.DIRECT, direct=False)
    assert (state.usable, state.can_not) == (0, {}), "nobody uses it because of its row"


def test_all_taken_out_at_once(pools: Pools) -> None:
    a, b = pools.add(2)
    pools.assign(SITE, a, b)
    done = proxy_pools.unassign(pools.connection, SITE, None, actor=WHO)
    assert (done.removed, done.unknown, done.left) == ([a, b], [], 0)
    assert listed(pools) == []
    with pytest.raises(NotFound):
        proxy_pools.unassign(pools.connection, "nowhere.example", None, actor=WHO)


# Changing a place -----------------------------------------------------------------------------------------------------


def test_a_place_changes_by_version(pools: Pools) -> None:
    (proxy,) = pools.add()
    pools.assign(SITE, proxy)
    changed = proxy_pools.edit(pools.connection, SITE, proxy, actor=WHO, priority=1, version=1)
    assert (changed.priority, changed.version, changed.is_active) == (1, 2, True)
    with pytest.raises(Refused, match=rf"^Proxy {proxy} of example\.com was changed meanwhile \(version 2, not 1\)"):
        proxy_pools.edit(pools.connection, SITE, proxy, actor=WHO, priority=3, version=1)
    assert proxy_pools.edit(pools.connection, SITE, proxy, actor=WHO, priority=1, on=True).version == 2
    assert deeds(pools)[0] == ("edit", {"proxy": proxy, "priority": 1})
    with pytest.raises(NotFound, match=r"^Proxy 815 is not in the pool of example\.com: `holdfast proxies assign "):
        proxy_pools.edit(pools.connection, SITE, 815, actor=WHO, on=True)


def test_switched_off_here_and_on_again(pools: Pools) -> None:
    (proxy,) = pools.add()
    pools.assign(SITE, proxy)
    pools.is_refused(proxy, 8)
    off = proxy_pools.edit(pools.connection, SITE, proxy, actor=WHO, on=False)
    assert (off.is_active, off.disabled_by, off.can_not, off.can_again) == (False, "operator", "off_here", None)
    assert off.proxy_is_active, "others use it still"
    on = proxy_pools.edit(pools.connection, SITE, proxy, actor=WHO, on=True)
    assert (on.is_active, on.disabled_by, on.failure_count, on.next_try_at, on.can_not) == (True, None, 0, None, None)
    pools.is_refused(proxy, 2)
    assert proxy_pools.edit(pools.connection, SITE, proxy, actor=WHO, on=True).failure_count == 0


def test_the_pool_in_the_order_of_its_use(pools: Pools) -> None:
    late, old, never, first, foreign = pools.add(5)
    pools.assign(SITE, late, old, never)
    pools.assign(SITE, first, priority=1)
    for proxy, minutes in ((late, 1), (old, 60), (first, 0), (foreign, 90)):
        pools.used(SITE, proxy, requests=1, success_count=1)
        pools.connection.execute(
            "UPDATE domain_proxies SET last_used_at = now() - %s * interval '1 min' WHERE proxy_id = %s",
            (minutes, proxy),
        )
    assert [one for one, _, _ in listed(pools)] == [first, never, old, late, foreign]
    assert [one.success_percent for one in proxy_pools.listing(pools.connection, SITE, limit=2)] == [100.0, None]
    with pytest.raises(NotFound):
        proxy_pools.listing(pools.connection, "nowhere.example")


# Going on -------------------------------------------------------------------------------------------------------------


def test_a_domain_that_waited_goes_on_at_once(pools: Pools) -> None:
    a, b = pools.add(2)

    def waits_no_more(deed: str) -> None:
        assert pools.store.work(SITE)["not_before"] is None, deed
        (claim,) = pools.store.claim()
        pools.store.release(claim)
        pools.wait(SITE)
        assert pools.store.claim() == [], deed

    pools.wait(SITE)
    pools.assign(SITE, a)
    waits_no_more("assign")
    proxy_pools.edit(pools.connection, SITE, a, actor=WHO, on=False)
    waits_no_more("edit")
    domains.edit(pools.connection, SITE, {"proxy_direct": True})
    waits_no_more("domain-set")
    assert proxy_pools.wake_domains(pools.connection, a) == 1
    waits_no_more("enable")
    assert proxy_pools.wake_domains(pools.connection, b) == 0
    domains.edit(pools.connection, SITE, {"crawl_delay_seconds": 2.0})
    waits_no_more("any setting: what it waits for may be judged by it")
    assert_invariants(pools.connection)


def test_what_the_server_asked_for_stays(pools: Pools) -> None:
    pools.wait(SITE, minutes=60)
    pools.connection.execute("UPDATE domains SET back_off_until = now() + interval '5 min'")
    pools.assign(SITE, *pools.add())
    assert pools.store.work(SITE)["not_before"] == pools.store.row(SITE)["back_off_until"]
    assert pools.store.claim() == []


def test_a_domain_that_is_held_is_left_to_its_holder(pools: Pools) -> None:
    claim = pools.store.claim_one()
    pools.wait(SITE)
    before = pools.store.work(SITE)
    pools.assign(SITE, *pools.add())
    assert pools.store.work(SITE) == before
    assert pools.store.flush(claim), "nobody has taken it away"


def test_many_domains_go_on_in_chunks(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_pools, "CHUNK", 3)
    pools.store.domains(8)
    (proxy,) = pools.add()
    for number in range(8):
        pools.assign(f"d{number}.example", proxy)
        pools.wait(f"d{number}.example")
    held = pools.store.claim(count=9)
    assert [claim.domain for claim in held] == [SITE]
    assert proxy_pools.wake_domains(pools.connection, proxy) == 8
    assert len(pools.store.claim(count=9)) == 8


def test_people_who_change_pools_and_proxies_at_once_do_not_deadlock(pools: Pools, database: Database) -> None:
    """A pool is filled and emptied while its proxies are edited and switched: nobody's transaction is a victim."""
    ids = pools.add(6)
    start, faults = threading.Barrier(4), list[BaseException]()

    def run(deed: str, number: int) -> None:
        try:
            with database.connect() as connection:
                start.wait()
                for turn in range(15):
                    proxy = ids[(number + turn) % 5]
                    if deed == "assign":
                        proxy_pools.assign(
                            connection,
                            SITE,
                            ids[turn % 2 : 5],
                            default=ProxyMode.DIRECT,
                            actor=WHO,
                            priority=1 + turn % 9,
                        )
                    elif deed == "switch":
                        proxies.switch(connection, proxy, on=bool(turn % 2), actor=WHO)
                        proxy_pools.wake_domains(connection, proxy)
                    elif deed == "edit":
                        proxies.edit(connection, proxy, {"max_requests_per_hour": 5 + turn}, actor=WHO)
                    else:
                        proxy_pools.unassign(connection, SITE, [proxy], actor=WHO)
        except BaseException as fault:  # noqa: BLE001 — told by the test
            faults.append(fault)

    threads = [
        threading.Thread(target=run, args=(deed, n)) for n, deed in enumerate(("assign", "switch", "edit", "out"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert_invariants(pools.connection)


# Why none can be used -------------------------------------------------------------------------------------------------


def domain_id(pools: Pools) -> int:
    return int(str(pools.store.value("SELECT id FROM domains WHERE domain = %s", SITE)))


def test_why_a_domain_can_use_no_proxy(pools: Pools) -> None:
    off, off_here, abroad, failed, refused, spent = pools.add(6, country_code="DE", max_requests_per_hour=5)
    pools.assign(SITE, off, off_here, abroad, failed, refused, spent)
    domains.edit(pools.connection, SITE, {"proxy_country": "DE"})

    def state() -> tuple[int, dict[str, int]]:
        found = proxy_pools.pool_state(pools.connection, domain_id(pools), default=ProxyMode.DIRECT, direct=False)
        return found.usable, dict(found.can_not)

    assert state() == (6, {})
    proxies.switch(pools.connection, off, on=False, actor=WHO)
    proxy_pools.edit(pools.connection, SITE, off_here, actor=WHO, on=False)
    proxies.edit(pools.connection, abroad, {"country_code": None}, actor=WHO)
    pools.fails(failed, 5)
    pools.is_refused(refused, 5)
    pools.used_up(spent)
    reasons = {
        "off": off,
        "off_here": off_here,
        "wrong_country": abroad,
        "failed": failed,
        "refused": refused,
        "used_up": spent,
    }
    assert state() == (0, dict.fromkeys(reasons, 1))
    found = {one.can_not: one for one in proxy_pools.listing(pools.connection, SITE)}
    assert {why: one.proxy_id for why, one in found.items()} == reasons
    timed = {why: one.can_again for why, one in found.items() if one.can_again}
    assert set(timed) == {"failed", "refused", "used_up"}
    earliest = proxy_pools.pool_state(pools.connection, domain_id(pools), default=ProxyMode.DIRECT, direct=False).until
    assert earliest == timed["failed"]
    pools.connection.execute("UPDATE proxies SET next_try_at = now() WHERE id = %s", (failed,))
    pools.connection.execute("UPDATE domain_proxies SET next_try_at = now() WHERE proxy_id = %s", (refused,))
    pools.connection.execute("UPDATE proxy_blocks SET counts_until = now()")
    assert state() == (3, {"off": 1, "off_here": 1, "wrong_country": 1}), "time has come: each may be tried"


def test_it_can_be_used_when_all_that_keeps_it_has_ended(pools: Pools) -> None:
    (proxy,) = pools.add(max_requests_per_hour=5)
    pools.assign(SITE, proxy)
    pools.fails(proxy, 5)
    pools.used_up(proxy)
    (one,) = proxy_pools.listing(pools.connection, SITE)
    now = pools.store.value("SELECT now()")
    assert isinstance(now, datetime)
    assert one.can_not == "failed"
    assert one.can_again is not None
    assert timedelta(minutes=29) < one.can_again - now < timedelta(minutes=31), "not when its rest is over"


def test_any_other_proxy_may_do(pools: Pools) -> None:
    own, other = pools.add(2)
    pools.assign(SITE, own)
    pools.fails(own, 5)

    def state(default: ProxyMode = ProxyMode.DIRECT) -> PoolState:
        return proxy_pools.pool_state(pools.connection, domain_id(pools), default=default, direct=False)

    assert (state().usable, state().can_not) == (0, {"failed": 1})
    domains.edit(pools.connection, SITE, {"proxy_use": "any"})
    assert (state().usable, state().can_not) == (1, {"failed": 1})
    proxies.switch(pools.connection, other, on=False, actor=WHO)
    assert (state().usable, state().can_not) == (0, {"failed": 1, "off": 1})
    domains.edit(pools.connection, SITE, {"proxy_use": None})
    assert state(ProxyMode.ANY).rules.use is ProxyMode.ANY
    assert (state().rules.use, state().can_not) == (ProxyMode.DIRECT, {})


# The next one ---------------------------------------------------------------------------------------------------------


def test_of_those_that_rested_as_long_the_faster_is_next(pools: Pools) -> None:
    """What the store says of it, and what a visit would choose."""
    ids = pools.add(4)
    pools.assign(SITE, *ids)
    for proxy_id, milliseconds in zip(ids, (None, 700.0, 90.0, 1.0), strict=True):
        pools.used(SITE, proxy_id, avg_response_time_ms=milliseconds)
    last = pools.connection.execute("UPDATE domain_proxies SET last_used_at = now() - interval '1 h' RETURNING 1")
    assert last.rowcount == 4
    pools.used(SITE, ids[3], avg_response_time_ms=1.0)  # the fastest has rested less
    found = proxy_pools.next_for(pools.connection, domain_id(pools), SITE, default=ProxyMode.DIRECT, direct=False)
    assert found.proxy_id == ids[2]
    assert "faster" in found.why
    rows = proxy_use.pools(pools.connection, [domain_id(pools)])[domain_id(pools)]
    assert len({row.used_ago for row in rows[:3]}) == 1, "they rested as long to the microsecond"
    assert [row.response_ms for row in rows] == [None, 700.0, 90.0, 1.0]
