"""The way of requests through proxies, without any: who is asked next, who is blamed, what is given back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any, cast

import pytest

from holdfast.engine.board import LOOK, Board
from holdfast.engine.desk import Desk
from holdfast.engine.routes import ENOUGH, IDLE, TRUSTED, Routes
from holdfast.errors import SettingsError
from holdfast.model.outcome import Outcome
from holdfast.model.page import FetchResult
from holdfast.model.proxy import Blame, Fault, ProxyRules, ProxyUse, Route, Use, Verdict
from holdfast.settings import Settings
from holdfast.store import proxy_use
from holdfast.store.proxy_use import Block, MappingRow, ProxyRow

URL, OTHER = b"url", b"other"


class Store:
    """What the store would answer; it remembers what it was asked."""

    def __init__(self, *rows: ProxyRow) -> None:
        self.rows = list(rows)
        self.mappings = [mapping(row.id) for row in rows]
        self.blocks: list[Block] = []
        self.may_try = True
        self.asked: list[Any] = []
        self.hold: asyncio.Event | None = None
        """Whoever asks `held` waits for it."""
        self.held: Callable[..., Any] = proxy_use.all_of_them

    async def call(self, function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        self.asked.append(function)
        if function is self.held and self.hold is not None:
            await self.hold.wait()
        if function is proxy_use.all_of_them:
            return list(self.rows)
        if function is proxy_use.pools:
            return {domain_id: list(self.mappings) for domain_id in arguments[0]}
        if function is proxy_use.take_block:
            return self.blocks.pop(0)
        if function is proxy_use.give_back:
            self.asked.append(arguments)
            return None
        assert function is proxy_use.may_try
        return self.may_try


class Clock:
    """Time passes when it is told to."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


def row(proxy_id: int, **facts: Any) -> ProxyRow:
    plain = ProxyRow(proxy_id, "http", f"p{proxy_id}.example", 8080, None, None, None, False, False, 0, None, 1)
    return plain._replace(**facts)


def mapping(proxy_id: int, **facts: Any) -> MappingRow:
    return MappingRow(proxy_id, 5, True, True, 0, None, None, None, 1)._replace(**facts)


class Play:
    """One visit and its proxies."""

    def __init__(self, store: Store, rules: ProxyRules | None = None, unseal: Callable[[str], str] = str) -> None:
        self.store, self.clock = store, Clock()
        self.board = Board(cast("Desk", store), self.clock, Settings(), unseal)
        self.routes = Routes(self.board, self.clock, "a.example", 1, rules or ProxyRules(), store.mappings)

    async def begin(self, key: bytes = URL) -> int | None:
        """The proxy that a request goes through, now."""
        assert await self.routes.reserve(key) == 0
        route = self.routes.begin(key)
        return route.proxy_id if route else None

    async def ask(
        self,
        outcome: Outcome = Outcome.OK,
        fault: Fault | None = None,
        *,
        key: bytes = URL,
        last: bool = False,
        **facts: Any,
    ) -> tuple[int, FetchResult, ProxyUse]:
        """A request that ends so."""
        proxy_id = await self.begin(key)
        facts.setdefault("status", 200 if fault is None else None)
        result = FetchResult("http://a.example/", outcome, "why", fault=fault, duration=0.1, **facts)
        self.routes.judge(key, result, last=last)
        use = self.routes.ended(key, result.outcome, result)
        assert proxy_id is not None
        assert use is not None
        assert use.proxy_id == proxy_id
        self.clock.time += 1
        return proxy_id, result, use


def play(act: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(act(), 10))


def test_a_failure_of_a_proxy_is_tried_elsewhere_and_none_of_the_site_s() -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2)))
        first, result, use = await visit.ask(Outcome.PROXY_FAILED, Fault.PROXY)
        assert (first, result.elsewhere, use.verdict, use.error) == (1, 0, Verdict.FAILED, "why")
        second, result, use = await visit.ask()
        assert (second, result.elsewhere, use.verdict, use.blames) == (2, None, Verdict.SUCCESS, ())
        assert use.response_ms == 100

    play(act)


def test_when_all_have_failed_once_they_are_asked_again_until_they_rest() -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2)))
        asked = [(await visit.ask(Outcome.PROXY_FAILED, Fault.PROXY))[0] for _ in range(10)]
        assert asked == [1, 2] * 5
        assert 0 < await visit.routes.reserve(URL) <= IDLE

    play(act)


@pytest.mark.parametrize("trusted", [False, True])
def test_silence_is_the_site_s_if_enough_agree_and_the_proxies_if_one_gets_through(trusted: bool) -> None:
    async def act() -> None:
        count = ENOUGH // TRUSTED if trusted else ENOUGH
        visit = Play(Store(*(row(number) for number in range(1, count + 2))))
        for number in range(1, count + 2):
            if trusted:
                await visit.ask(key=b"%d" % number)
        for number in range(1, count):
            asked, result, use = await visit.ask(Outcome.TIMEOUT, Fault.UNCLEAR)
            assert (asked, result.outcome, use.verdict) == (number, Outcome.PROXY_FAILED, Verdict.UNCLEAR)
            assert "timeout" in result.detail
        _, result, use = await visit.ask(Outcome.TIMEOUT, Fault.UNCLEAR)
        assert (result.outcome, result.elsewhere, use.blames) == (Outcome.TIMEOUT, None, ())
        asked, result, use = await visit.ask()  # the next attempt
        assert asked == count + 1, "one that was not asked yet"
        assert use.blames == tuple(Blame(number, False) for number in range(1, count + 1))

    play(act)


def test_an_error_says_more_than_silence() -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2), row(3)))
        await visit.ask(Outcome.SERVER_ERROR, Fault.UNCLEAR, status=500)
        await visit.ask(Outcome.TIMEOUT, Fault.UNCLEAR)
        _, result, _ = await visit.ask(Outcome.CONNECTION_FAILED, Fault.UNCLEAR)
        assert (result.outcome, result.status, result.elsewhere) == (Outcome.SERVER_ERROR, 500, None)
        _, result, _ = await visit.ask(Outcome.TIMEOUT, Fault.UNCLEAR)
        _, result, _ = await visit.ask(Outcome.TIMEOUT, Fault.UNCLEAR)
        _, result, _ = await visit.ask(Outcome.CONNECTION_FAILED, Fault.UNCLEAR)
        assert (result.outcome, result.status) == (Outcome.CONNECTION_FAILED, None), "that was another attempt"

    play(act)


def test_one_alone_has_nobody_to_be_compared_with() -> None:
    async def act() -> None:
        visit = Play(Store(row(1)))
        _, result, _ = await visit.ask(Outcome.TIMEOUT, Fault.UNCLEAR)
        assert (result.outcome, result.elsewhere) == (Outcome.TIMEOUT, None)
        _, _, use = await visit.ask()
        assert use.blames == (), "it does not blame itself"

    play(act)


@pytest.mark.parametrize(("outcome", "fault"), [(Outcome.TIMEOUT, Fault.UNCLEAR), (Outcome.FORBIDDEN, None)], ids=str)
def test_one_that_rests_is_waited_for(outcome: Outcome, fault: Fault | None) -> None:
    """It may be the one that works: the site is not to blame until that is known."""

    async def act() -> None:
        visit = Play(Store(row(1), row(2, failures=6, try_in=40.0)))
        _, result, _ = await visit.ask(outcome, fault)
        assert result.elsewhere == 40
        visit.clock.time += 40
        visit.store.rows[1] = row(2, failures=6, try_in=0.0)
        asked, _, use = await visit.ask()
        assert (asked, use.probe, use.blames) == (2, True, (Blame(1, False),) if fault else ())

    play(act)


def test_a_refusal_is_tried_elsewhere_within_the_attempts() -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2), row(3)))
        _, result, use = await visit.ask(Outcome.FORBIDDEN)
        assert (result.outcome, result.elsewhere, use.verdict) == (Outcome.FORBIDDEN, 0, Verdict.REFUSED)
        _, result, _ = await visit.ask(Outcome.FORBIDDEN, last=True)
        assert result.elsewhere is None
        _, result, _ = await visit.ask(Outcome.FORBIDDEN, key=OTHER)
        assert result.elsewhere == 0

    play(act)


def test_a_proxy_waits_as_long_as_the_site_asks_for() -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2)))
        await visit.ask(Outcome.RATE_LIMITED, retry_after=timedelta(seconds=60))
        assert [(await visit.ask(key=OTHER))[0] for _ in range(3)] == [2, 2, 2]
        visit.clock.time += 60
        assert (await visit.ask(key=OTHER))[0] == 1

    play(act)


@pytest.mark.parametrize("direct", [False, True])
def test_nothing_goes_without_a_proxy_unless_it_may(direct: bool) -> None:
    async def act() -> None:
        visit = Play(Store(), ProxyRules(Use.ANY, direct=direct))
        if direct:
            assert await visit.begin() is None
            assert visit.routes.ended(URL, Outcome.OK, FetchResult("u", Outcome.OK)) is None
        else:
            assert await visit.routes.reserve(URL) == IDLE
            assert not visit.routes.reserved(URL)

    play(act)


def test_the_store_is_looked_at_now_and_then_and_who_comes_meanwhile_waits() -> None:
    async def act() -> None:
        store = Store(row(1))
        visit = Play(store)
        store.hold = asyncio.Event()
        both: list[Awaitable[float]] = [asyncio.ensure_future(visit.routes.reserve(key)) for key in (URL, OTHER)]
        await asyncio.sleep(0)
        store.hold.set()
        assert await asyncio.gather(*both) == [0, 0]
        assert store.asked.count(proxy_use.all_of_them) == 1
        store.rows, store.mappings = [row(2)], [mapping(2)]
        assert (await visit.ask(key=b"a"))[0] == 1
        visit.clock.time += LOOK
        assert (await visit.ask(key=b"b"))[0] == 2

    play(act)


def test_shares_are_used_up_and_given_back() -> None:
    async def act() -> None:
        store = Store(row(1, limited=True))
        store.blocks = [Block(7, 2), Block(8, 2), Block(None, 0, 90.0)]
        visit = Play(store)
        for _ in range(3):
            await visit.ask()
        assert await visit.routes.reserve(OTHER) == 0
        assert await visit.routes.reserve(b"third") == 60, "others may give something back until then"
        visit.routes.close()  # the one that was reserved is not asked for
        await visit.board.close()
        assert store.asked[-1] == ({8: 1},)

    play(act)


def test_a_proxy_that_rests_is_tried_by_one_request_if_the_store_says_so() -> None:
    async def act() -> None:
        store = Store(row(1, failures=5, try_in=0.0), row(2))
        visit = Play(store)
        asked, _, use = await visit.ask()
        assert (asked, use.probe) == (1, True), "it was used least recently"
        store.may_try = False
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


def test_a_route_does_not_show_its_password() -> None:
    async def act() -> None:
        visit = Play(Store(row(1, token="sealed", username="ann")), unseal=lambda _: "canary")
        assert await visit.routes.reserve(URL) == 0
        route = visit.routes.begin(URL)
        assert isinstance(route, Route)
        assert route.password == "canary"
        assert "canary" not in repr(route) + str(route.server)

    play(act)


def test_a_password_that_can_be_opened_later_is() -> None:
    keys: list[str] = []

    def open_it(_: str) -> str:
        if not keys:
            raise SettingsError("No key opens it.")
        return keys[0]

    async def act() -> None:
        store = Store(row(1, token="sealed", limited=True))
        visit = Play(store, unseal=open_it)
        assert await visit.routes.reserve(URL) == 60
        assert proxy_use.take_block not in store.asked, "no share is taken that cannot be used"
        keys.append("key")
        visit.clock.time += 60
        store.blocks = [Block(7, 5)]
        assert await visit.begin() == 1

    play(act)


def test_who_joins_while_the_store_is_asked_keeps_the_pool_that_it_has() -> None:
    async def act() -> None:
        store = Store(row(1))
        visit = Play(store)
        store.hold, store.held = asyncio.Event(), proxy_use.pools
        first = asyncio.ensure_future(visit.routes.reserve(URL))
        await asyncio.sleep(0)
        late = Routes(visit.board, visit.clock, "b.example", 2, ProxyRules(direct=True), [mapping(1)])
        store.hold.set()
        assert await first == 0
        assert await late.reserve(URL) == 0
        assert late.begin(URL) is not None, "it does not go without"

    play(act)


def test_before_a_visit_waits_or_goes_without_the_store_is_asked_once_more() -> None:
    async def act() -> None:
        store = Store(row(1))
        visit = Play(store)
        await visit.ask()
        store.rows.append(row(2))
        store.mappings = [mapping(2)]
        late = Routes(visit.board, visit.clock, "b.example", 2, ProxyRules(direct=True), [mapping(2)])
        assert await late.reserve(URL) == 0
        route = late.begin(URL)
        assert route is not None
        assert route.proxy_id == 2

    play(act)


def test_many_visits_at_once_take_one_share() -> None:
    async def act() -> None:
        store = Store(row(1, limited=True))
        store.blocks = [Block(number, 20) for number in range(9)]
        visit = Play(store)
        waits = await asyncio.gather(*(visit.routes.reserve(b"%d" % number) for number in range(20)))
        assert waits == [0] * 20
        assert store.asked.count(proxy_use.take_block) == 1

    play(act)


def test_what_people_change_of_a_limit_counts_at_once() -> None:
    async def act() -> None:
        store = Store(row(1, limited=True))
        store.blocks = [Block(None, 0, 3000.0)]
        visit = Play(store)
        assert await visit.routes.reserve(URL) == 60
        store.rows = [row(1, version=2)]
        visit.clock.time += LOOK
        assert await visit.begin() == 1

    play(act)


def test_a_way_that_was_reserved_too_long_ago_is_chosen_anew() -> None:
    async def act() -> None:
        store = Store(row(1, limited=True))
        store.blocks = [Block(7, 2), Block(8, 2)]
        visit = Play(store)
        assert await visit.routes.reserve(URL) == 0
        assert visit.routes.reserved(URL)
        visit.clock.time += 61
        assert not visit.routes.reserved(URL)
        assert await visit.begin() == 1
        assert ({7: 0},) in store.asked

    play(act)


def test_a_pool_that_people_change_in_the_middle_of_a_choice_is_looked_at_again() -> None:
    async def act() -> None:
        store = Store(row(1, failures=5, try_in=0.0), row(2))
        visit = Play(store)
        call = store.call

        async def meanwhile(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            if function is proxy_use.may_try:
                visit.routes.renew([mapping(1, on=False, version=2), mapping(2)])
            return await call(function, *arguments, **options)

        store.call = meanwhile  # type: ignore[method-assign]
        assert await visit.begin() == 2

    play(act)


def test_what_was_not_sent_says_nothing_of_a_proxy() -> None:
    """A host without an address is found out before any proxy hears of it."""

    async def act() -> None:
        store = Store(row(1, failures=9, try_in=0.0))
        visit = Play(store)
        assert await visit.begin() == 1
        result = FetchResult("u", Outcome.NO_SUCH_HOST, "no such name")
        visit.routes.judge(URL, result, last=False)
        assert visit.routes.ended(URL, result.outcome, result) is None
        assert result.elsewhere is None
        _, _, use = await visit.ask(key=OTHER)
        assert use.probe, "it is still to be tried"

    play(act)


def test_a_site_that_fails_at_first_does_not_put_proxies_aside() -> None:
    """Its first answer to each URL is an error, the second is not, whoever asks."""

    async def act() -> None:
        visit = Play(Store(*(row(number) for number in range(1, 5))))
        in_a_row: dict[int, int] = dict.fromkeys(range(1, 5), 0)
        for number in range(40):
            key = b"%d" % number
            await visit.ask(Outcome.SERVER_ERROR, Fault.UNCLEAR, status=504, key=key)
            asked, _, use = await visit.ask(key=key)
            in_a_row[asked] = 0
            for blame in use.blames:
                in_a_row[blame.proxy_id] += 1
            assert max(in_a_row.values()) < 5
        assert await visit.routes.reserve(URL) == 0

    play(act)


def test_a_proxy_that_is_waited_for_is_not_asked_in_the_last_attempt() -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2, failures=6, try_in=40.0)))
        _, result, _ = await visit.ask(Outcome.TIMEOUT, Fault.UNCLEAR, last=True)
        assert (result.outcome, result.elsewhere) == (Outcome.TIMEOUT, None)

    play(act)


def test_a_domain_that_may_go_without_uses_its_proxy_as_long_as_that_can_be_used() -> None:
    async def act() -> None:
        visit = Play(Store(row(1)), ProxyRules(direct=True))
        for _ in range(5):
            assert (await visit.ask(Outcome.PROXY_FAILED, Fault.PROXY))[0] == 1
        assert await visit.begin() is None

    play(act)


def test_a_session_goes_on_in_the_next_visit() -> None:
    async def act() -> None:
        store = Store(row(1), row(2))
        rules = ProxyRules(sticky=timedelta(seconds=60))
        store.mappings = [mapping(1, used_ago=50.0), mapping(2, used_ago=20.0)]
        visit = Play(store, rules)
        assert (await visit.ask())[0] == 2
        visit.clock.time += 40
        assert (await visit.ask())[0] == 1

    play(act)
