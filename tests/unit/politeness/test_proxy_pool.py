"""Which proxy is next: exactly, whatever happens to the others."""

import math
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.proxy import ProxyMode, ProxyPauses, ProxyRules, ProxyVerdict
from holdfast.politeness.proxy_pool import NEVER, PoolMember, ProxyChoice, ProxyPool

RESTS = ProxyPauses(timedelta(seconds=30), timedelta(hours=1), timedelta(minutes=10), timedelta(days=1))
HOUR = 3600.0
LONGEST = 30.0


def at_once(_: int) -> float:
    return 0.0


def choose(pool: ProxyPool, now: float = 0.0, *exclude: int) -> int | None:
    """The next one, which is used."""
    member = pool.choose(at_once, now, exclude=exclude).member
    if member is None:
        return None
    pool.mark_used(member, now, LONGEST)
    return member.proxy_id


def test_the_rotation_of_five_proxies_by_the_hour() -> None:
    pool = ProxyPool(ProxyRules(), [PoolMember(number) for number in (3, 1, 5, 2, 4)])
    assert [choose(pool, hour * HOUR) for hour in range(12)] == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2]


@given(st.integers(1, 9), st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=200))
def test_all_that_can_be_used_are_used_alike(count: int, story: list[tuple[int, bool]]) -> None:
    """Proxies come and go; since the last change nobody was used twice more than another."""
    pool = ProxyPool(ProxyRules(), [PoolMember(number) for number in range(1, count + 1)])
    gone: set[int] = set()
    used: Counter[int] = Counter()
    for now, (number, there) in enumerate(story):
        before = set(gone)
        (gone.discard if there else gone.add)(number)
        if gone != before:
            used.clear()
        choice = pool.choose(lambda proxy_id: NEVER if proxy_id in gone else 0.0, float(now))
        living = [each for each in range(1, count + 1) if each not in gone]
        assert (choice.member is not None) == bool(living)
        if choice.member is not None:
            pool.mark_used(choice.member, float(now), LONGEST)
            used[choice.member.proxy_id] += 1
            counts = [used[each] for each in living]
            assert max(counts) - min(counts) <= 1


def test_of_those_that_rested_as_long_the_faster_goes_first() -> None:
    """Rest counts for more, priority for more still; what is not known comes last, and then the lower id."""
    rested = [
        PoolMember(1, used=5),
        PoolMember(2, used=5, speed=900),
        PoolMember(3, used=5, speed=80.5),
        PoolMember(4, used=5),
    ]
    pool = ProxyPool(ProxyRules(), [*rested, PoolMember(5, used=4, speed=5000), PoolMember(6, priority=9, speed=1)])
    assert [choose(pool, now) for now in range(10, 17)] == [5, 3, 2, 1, 4, 5, 3]


def test_priority_comes_before_age() -> None:
    pool = ProxyPool(ProxyRules(), [PoolMember(1, priority=9), PoolMember(2, priority=2), PoolMember(3, priority=2)])
    assert [choose(pool, now) for now in range(4)] == [2, 3, 2, 3]
    assert choose(pool, 9, 2, 3) == 1


@pytest.mark.parametrize("use", [ProxyMode.POOL, ProxyMode.ANY])
def test_the_global_pool_comes_after_the_domain_s_own_and_only_if_it_may(use: ProxyMode) -> None:
    pool = ProxyPool(ProxyRules(use), [PoolMember(1), PoolMember(2, assigned=False, used=5)])
    global_pool = [(number, None) for number in (1, 2, 3)]
    assert pool.choose(at_once, 0, global_pool=global_pool).member is not None
    choice = pool.choose(at_once, 0, exclude={1}, global_pool=global_pool)
    if use is ProxyMode.POOL:
        assert choice == ProxyChoice(None, NEVER)
    else:
        assert choice.member is not None
        assert choice.member.proxy_id == 3, "never used, by this domain"


def test_without_a_proxy_only_if_it_may() -> None:
    assert ProxyPool(ProxyRules(), []).choose(at_once, 0) == ProxyChoice(None, NEVER)
    assert ProxyPool(ProxyRules(direct=True), []).choose(at_once, 0) == ProxyChoice(None, None)
    assert ProxyPool(ProxyRules(direct=True), [PoolMember(1)]).choose(at_once, 0).member is not None
    assert ProxyPool(ProxyRules(direct=True), [PoolMember(1)]).choose(lambda _: 5.0, 0) == ProxyChoice(None, None)


def test_how_long_to_wait() -> None:
    waits = {1: 50.0, 2: 20.0, 3: math.inf}
    pool = ProxyPool(ProxyRules(), [PoolMember(number) for number in waits])
    assert pool.choose(waits.__getitem__, 0) == ProxyChoice(None, 20.0)


def test_only_the_country_that_is_asked_for() -> None:
    pool = ProxyPool(ProxyRules(country="DE"), [PoolMember(1, "US"), PoolMember(2, "DE"), PoolMember(3)])
    assert [choose(pool, now) for now in range(3)] == [2, 2, 2]


def test_one_that_a_person_switched_off_is_never_used() -> None:
    pool = ProxyPool(ProxyRules(), [PoolMember(1, enabled=False), PoolMember(2)])
    assert [choose(pool, now) for now in range(3)] == [2, 2, 2]


def test_a_session_keeps_its_proxy_for_a_while() -> None:
    pool = ProxyPool(ProxyRules(sticky=timedelta(seconds=10)), [PoolMember(1), PoolMember(2)])
    assert [choose(pool, now) for now in (0, 3, 9.9, 10, 19)] == [1, 1, 1, 2, 2]
    assert choose(pool, 19.5, 2) == 1, "unless it has been tried"
    assert [choose(pool, now) for now in (20, 29)] == [1, 1], "and then that one is kept"


@pytest.mark.parametrize(("verdict", "first"), [(ProxyVerdict.REFUSED, 600.0), (ProxyVerdict.FAILED, 30.0)], ids=str)
def test_after_five_in_a_row_it_rests_and_is_then_tried_once(verdict: ProxyVerdict, first: float) -> None:
    member = PoolMember(1)
    pool = ProxyPool(ProxyRules(), [member])
    for _ in range(4):
        member.record(verdict, 0, RESTS, probe=False)
        assert pool.choose(at_once, 0).member is member
    member.record(verdict, 0, RESTS, probe=False)
    for _ in range(20):  # they were under way
        member.record(verdict, 1, RESTS, probe=False)
    assert pool.choose(at_once, 0) == ProxyChoice(None, first)
    assert pool.choose(at_once, first).member is member
    assert pool.mark_used(member, first, LONGEST), "that is to show whether it can be used again"
    assert pool.choose(at_once, first) == ProxyChoice(None, LONGEST), "one at a time"
    member.record(verdict, first, RESTS, probe=True)
    assert pool.choose(at_once, first) == ProxyChoice(None, 2 * first)
    member.record(ProxyVerdict.SUCCESS, first, RESTS, probe=True)
    assert pool.choose(at_once, first).member is member
    assert not pool.mark_used(member, first, LONGEST)


def test_what_is_not_its_fault_does_not_count() -> None:
    member = PoolMember(1)
    for verdict in (ProxyVerdict.REFUSED, ProxyVerdict.UNCLEAR, ProxyVerdict.ERROR) * 2:
        member.record(verdict, 0, RESTS, probe=False)
    assert (member.refusals, member.failures) == (2, 0)


def test_it_waits_as_long_as_the_site_asks_for() -> None:
    pool = ProxyPool(ProxyRules(), [PoolMember(1, paused_until=9.0), PoolMember(2)])
    assert [choose(pool, now) for now in (0, 8, 9)] == [2, 2, 1]


def test_what_people_change_counts_at_once_and_what_is_known_stays() -> None:
    first, second = PoolMember(1, version=1), PoolMember(2, version=1)
    pool = ProxyPool(ProxyRules(ProxyMode.ANY), [first, second])
    assert [choose(pool, now) for now in (0, 1)] == [1, 2]
    taken = pool.choose(at_once, 2, exclude={1, 2}, global_pool=[(9, None)]).member
    assert taken is not None
    pool.mark_used(taken, 2, LONGEST)
    for _ in range(5):
        first.record(ProxyVerdict.REFUSED, 2, RESTS, probe=False)
    pool.renew([PoolMember(1, "DE", version=1), PoolMember(2, version=2, enabled=False), PoolMember(3, version=1)])
    assert first.country == "DE"
    assert first.refusals == 5
    assert [choose(pool, now) for now in (3, 4, 5)] == [3, 3, 3], "the new one; 1 rests, 2 is off, 9 is nobody's"
    pool.renew([PoolMember(1, version=2)])
    assert [choose(pool, now) for now in (6, 7)] == [1, 1], "somebody let it be used again; 2 and 3 are not in the pool"


def test_the_average_moves() -> None:
    member = PoolMember(1)
    member.record_response_time(100)
    assert member.response_ms == 100
    member.record_response_time(200)
    assert member.response_ms == pytest.approx(120)


def test_the_global_pool_is_used_by_turns_and_each_domain_begins_elsewhere() -> None:
    global_pool = [(number, "DE" if number % 2 else "US") for number in range(1, 7)]
    asked = []
    pool = ProxyPool(ProxyRules(ProxyMode.ANY), [], start=7)
    for now in range(9):
        member = pool.choose(at_once, now, global_pool=global_pool).member
        assert member is not None
        pool.mark_used(member, now, LONGEST)
        asked.append(member.proxy_id)
    assert asked == [2, 3, 4, 5, 6, 1, 2, 3, 4]
    pool = ProxyPool(ProxyRules(ProxyMode.ANY, country="DE"), [])
    assert pool.choose(at_once, 0, exclude={1}, global_pool=global_pool) == ProxyChoice(
        PoolMember(3, "DE", assigned=False, version=1)
    )
    waits = {number: 10.0 * number for number, _ in global_pool}
    assert pool.choose(waits.__getitem__, 0, global_pool=global_pool) == ProxyChoice(None, 10.0)
