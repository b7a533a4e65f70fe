"""The proxy registry: refreshes, shares of limits, health checks, passwords."""

import asyncio
import logging
from collections.abc import Awaitable

import pytest

from holdfast.crawler.proxy_registry import REFRESH_SECONDS
from holdfast.db import proxy_usage as proxy_use
from holdfast.db.proxy_usage import Block
from holdfast.errors import SettingsError
from holdfast.model.proxy import ProxyRules
from tests.support.routed import OTHER, URL, Play, Store, mapping, play, row


def test_the_store_is_looked_at_now_and_then_and_who_comes_meanwhile_waits() -> None:
    async def act() -> None:
        store = Store(row(1))
        visit = Play(store)
        store.hold = asyncio.Event()
        both: list[Awaitable[float]] = [asyncio.ensure_future(visit.fetcher.prepare(key)) for key in (URL, OTHER)]
        await asyncio.sleep(0)
        store.hold.set()
        assert await asyncio.gather(*both) == [0, 0]
        assert store.asked.count(proxy_use.usable_proxies) == 1
        store.rows, store.mappings = [row(2)], [mapping(2)]
        assert (await visit.ask(key=b"a"))[0] == 1
        visit.clock.time += REFRESH_SECONDS
        assert (await visit.ask(key=b"b"))[0] == 2

    play(act)


def test_shares_are_used_up_and_given_back() -> None:
    async def act() -> None:
        store = Store(row(1, limited=True))
        store.blocks = [Block(7, 2), Block(8, 2), Block(None, 0, 90.0)]
        visit = Play(store)
        for _ in range(3):
            await visit.ask()
        assert await visit.fetcher.prepare(OTHER) == 0
        assert await visit.fetcher.prepare(b"third") == 90
        visit.fetcher.close()  # the one that was reserved is not asked for
        await visit.registry.close()
        assert store.asked[-1] == ({8: 1},)

    play(act)


def test_a_proxy_that_rests_is_tried_by_one_request_if_the_store_says_so() -> None:
    async def act() -> None:
        store = Store(row(1, failures=5, try_in=0.0), row(2))
        visit = Play(store)
        asked, _, use = await visit.ask()
        assert (asked, use.probe) == (1, True), "it was used least recently"
        store.reserve_probe = False
        visit = Play(store)
        asked, _, use = await visit.ask()
        assert (asked, use.probe) == (2, False), "somebody else tries it"

    play(act)


def test_a_password_that_cannot_be_opened_is_said_once_and_no_other_way_is_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(_: str) -> str:
        raise SettingsError("No key opens it.")

    async def act() -> None:
        visit = Play(Store(row(1, token="gAAAAsealed"), row(2)), unseal=refuse)
        assert [(await visit.ask())[0] for _ in range(4)] == [2, 2, 2, 2]

    with caplog.at_level(logging.DEBUG, logger="holdfast"):
        play(act)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("holdfast")] == [
        "proxy 1 cannot be used: No key opens it."
    ]


def test_a_password_that_can_be_opened_later_is() -> None:
    keys: list[str] = []

    def open_it(_: str) -> str:
        if not keys:
            raise SettingsError("No key opens it.")
        return keys[0]

    async def act() -> None:
        store = Store(row(1, token="sealed", limited=True))
        visit = Play(store, unseal=open_it)
        assert await visit.fetcher.prepare(URL) == 300
        assert proxy_use.take_block not in store.asked, "no share is taken that cannot be used"
        keys.append("key")
        visit.clock.time += 300
        store.blocks = [Block(7, 5)]
        assert await visit.begin() == 1

    play(act)


def test_who_joins_while_the_store_is_asked_keeps_the_pool_that_it_has() -> None:
    async def act() -> None:
        store = Store(row(1))
        visit = Play(store)
        store.hold, store.held = asyncio.Event(), proxy_use.pools
        first = asyncio.ensure_future(visit.fetcher.prepare(URL))
        await asyncio.sleep(0)
        late = visit.another("b.example", 2, ProxyRules(direct=True), [mapping(1)])
        store.hold.set()
        assert await first == 0
        assert await late.prepare(URL) == 0
        assert late.start(URL) is not None, "it does not go without"

    play(act)


def test_before_a_visit_waits_or_goes_without_the_store_is_asked_once_more() -> None:
    async def act() -> None:
        store = Store(row(1))
        visit = Play(store)
        await visit.ask()
        store.rows.append(row(2))
        store.mappings = [mapping(2)]
        late = visit.another("b.example", 2, ProxyRules(direct=True), [mapping(2)])
        assert await late.prepare(URL) == 0
        route = late.start(URL)
        assert route is not None
        assert route.proxy_id == 2

    play(act)


def test_many_visits_at_once_take_one_share() -> None:
    async def act() -> None:
        store = Store(row(1, limited=True))
        store.blocks = [Block(number, 20) for number in range(9)]
        visit = Play(store)
        waits = await asyncio.gather(*(visit.fetcher.prepare(b"%d" % number) for number in range(20)))
        assert waits == [0] * 20
        assert store.asked.count(proxy_use.take_block) == 1

    play(act)


def test_what_people_change_of_a_limit_counts_at_once() -> None:
    async def act() -> None:
        store = Store(row(1, limited=True))
        store.blocks = [Block(None, 0, 3000.0)]
        visit = Play(store)
        assert await visit.fetcher.prepare(URL) == 300, "others may give something back until then"
        store.rows = [row(1, version=2)]
        visit.clock.time += REFRESH_SECONDS
        assert await visit.begin() == 1

    play(act)


def test_a_way_that_was_reserved_too_long_ago_is_chosen_anew() -> None:
    async def act() -> None:
        store = Store(row(1, limited=True))
        store.blocks = [Block(7, 2), Block(8, 2)]
        visit = Play(store)
        assert await visit.fetcher.prepare(URL) == 0
        assert visit.fetcher.is_ready(URL)
        visit.clock.time += 61
        assert not visit.fetcher.is_ready(URL)
        assert await visit.begin() == 1
        assert ({7: 0},) in store.asked

    play(act)
