"""The way of requests through proxies, without any: who is asked next, who is blamed."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.crawler.proxied_fetcher import MAX_WAIT, TRUSTED_WEIGHT, UNCLEAR_LIMIT
from holdfast.db import proxy_usage as proxy_use
from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import ProxyFault, ProxyMode, ProxyRoute, ProxyRules, ProxyVerdict, UnclearFailure
from tests.support.routed import OTHER, URL, Play, Store, mapping, play, row


def test_a_failure_of_a_proxy_is_tried_elsewhere_and_none_of_the_site_s() -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2)))
        first, result, use = await visit.ask(Outcome.PROXY_FAILED, ProxyFault.PROXY)
        assert (first, result.again_in, use.verdict, use.error) == (1, 0, ProxyVerdict.FAILED, "why")
        second, result, use = await visit.ask()
        assert (second, result.again_in, use.verdict, use.blames) == (2, None, ProxyVerdict.SUCCESS, ())
        assert use.response_ms == 100

    play(act)


def test_when_all_have_failed_once_they_are_asked_again_until_they_rest() -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2)))
        asked = [(await visit.ask(Outcome.PROXY_FAILED, ProxyFault.PROXY))[0] for _ in range(10)]
        assert asked == [1, 2] * 5
        assert 0 < await visit.fetcher.prepare(URL) <= MAX_WAIT

    play(act)


@pytest.mark.parametrize("trusted", [False, True])
def test_silence_is_the_site_s_if_enough_agree_and_the_proxies_if_one_gets_through(trusted: bool) -> None:
    async def act() -> None:
        count = UNCLEAR_LIMIT // TRUSTED_WEIGHT if trusted else UNCLEAR_LIMIT
        visit = Play(Store(*(row(number) for number in range(1, count + 2))))
        for number in range(1, count):
            asked, result, use = await visit.ask(Outcome.TIMEOUT, ProxyFault.UNCLEAR, trusted=trusted)
            assert (asked, result.outcome, use.verdict) == (number, Outcome.PROXY_FAILED, ProxyVerdict.UNCLEAR)
            assert "timeout" in result.detail
        _, result, use = await visit.ask(Outcome.TIMEOUT, ProxyFault.UNCLEAR, trusted=trusted)
        assert (result.outcome, result.again_in, use.blames) == (Outcome.TIMEOUT, None, ())
        asked, result, use = await visit.ask()  # the next attempt
        assert asked == count + 1, "one that was not asked yet"
        assert use.blames == tuple(UnclearFailure(number, False) for number in range(1, count + 1))

    play(act)


def test_an_error_says_more_than_silence() -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2), row(3)))
        await visit.ask(Outcome.SERVER_ERROR, ProxyFault.UNCLEAR, status=500)
        await visit.ask(Outcome.TIMEOUT, ProxyFault.UNCLEAR)
        _, result, _ = await visit.ask(Outcome.CONNECTION_FAILED, ProxyFault.UNCLEAR)
        assert (result.outcome, result.status, result.again_in) == (Outcome.SERVER_ERROR, 500, None)
        _, result, _ = await visit.ask(Outcome.TIMEOUT, ProxyFault.UNCLEAR)
        _, result, _ = await visit.ask(Outcome.TIMEOUT, ProxyFault.UNCLEAR)
        _, result, _ = await visit.ask(Outcome.CONNECTION_FAILED, ProxyFault.UNCLEAR)
        assert (result.outcome, result.status) == (Outcome.CONNECTION_FAILED, None), "that was another attempt"

    play(act)


def test_one_alone_has_nobody_to_be_compared_with() -> None:
    async def act() -> None:
        visit = Play(Store(row(1)))
        _, result, _ = await visit.ask(Outcome.TIMEOUT, ProxyFault.UNCLEAR)
        assert (result.outcome, result.again_in) == (Outcome.TIMEOUT, None)
        _, _, use = await visit.ask()
        assert use.blames == (), "it does not blame itself"

    play(act)


@pytest.mark.parametrize(
    ("outcome", "fault"), [(Outcome.TIMEOUT, ProxyFault.UNCLEAR), (Outcome.FORBIDDEN, None)], ids=str
)
def test_one_that_rests_is_waited_for(outcome: Outcome, fault: ProxyFault | None) -> None:
    """It may be the one that works: the site is not to blame until that is known."""

    async def act() -> None:
        visit = Play(Store(row(1), row(2, failures=6, try_in=40.0)))
        _, result, _ = await visit.ask(outcome, fault)
        assert result.again_in == 40
        visit.clock.time += 40
        visit.store.rows[1] = row(2, failures=6, try_in=0.0)
        asked, _, use = await visit.ask()
        assert (asked, use.probe, use.blames) == (2, True, (UnclearFailure(1, False),) if fault else ())

    play(act)


def test_a_refusal_is_tried_elsewhere_within_the_attempts() -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2), row(3)))
        _, result, use = await visit.ask(Outcome.FORBIDDEN)
        assert (result.outcome, result.again_in, use.verdict) == (Outcome.FORBIDDEN, 0, ProxyVerdict.REFUSED)
        _, result, _ = await visit.ask(Outcome.FORBIDDEN, last=True)
        assert result.again_in is None
        _, result, _ = await visit.ask(Outcome.FORBIDDEN, key=OTHER)
        assert result.again_in == 0

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
        visit = Play(Store(), ProxyRules(ProxyMode.ANY, direct=direct))
        if direct:
            request, result = await visit.request(lambda request: FetchResult(request.url, Outcome.OK))
            assert request.route is None
            assert result.proxy is None
        else:
            assert await visit.fetcher.prepare(URL) == MAX_WAIT
            assert not visit.fetcher.is_ready(URL)

    play(act)


def test_a_route_does_not_show_its_password() -> None:
    async def act() -> None:
        visit = Play(Store(row(1, token="sealed", username="ann")), unseal=lambda _: "canary")
        assert await visit.fetcher.prepare(URL) == 0
        route = visit.fetcher.start(URL)
        assert isinstance(route, ProxyRoute)
        assert route.password == "canary"
        assert "canary" not in repr(route) + str(route.server)

    play(act)


def test_a_pool_that_people_change_in_the_middle_of_a_choice_is_looked_at_again() -> None:
    async def act() -> None:
        store = Store(row(1, failures=5, try_in=0.0), row(2))
        visit = Play(store)
        call = store.call

        async def meanwhile(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            if function is proxy_use.reserve_probe:
                visit.fetcher.update_pool([mapping(1, on=False, version=2), mapping(2)])
            return await call(function, *arguments, **options)

        store.call = meanwhile  # type: ignore[method-assign]
        assert await visit.begin() == 2

    play(act)


def test_what_was_not_sent_says_nothing_of_a_proxy() -> None:
    """A host without an address is found out before any proxy hears of it."""

    async def act() -> None:
        store = Store(row(1, failures=9, try_in=0.0))
        visit = Play(store)
        request, result = await visit.request(lambda _: FetchResult("u", Outcome.NO_SUCH_HOST, "no such name"))
        assert request.route is not None
        assert request.route.proxy_id == 1
        assert result.proxy is None
        assert result.again_in is None
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
            await visit.ask(Outcome.SERVER_ERROR, ProxyFault.UNCLEAR, status=504, key=key)
            asked, _, use = await visit.ask(key=key)
            in_a_row[asked] = 0
            for blame in use.blames:
                in_a_row[blame.proxy_id] += 1
            assert max(in_a_row.values()) < 5
        assert await visit.fetcher.prepare(URL) == 0

    play(act)


@pytest.mark.parametrize(("wait", "elsewhere"), [(40.0, 40.0), (90.0, None)])
def test_in_the_last_attempt_a_proxy_is_waited_for_by_this_visit_only(wait: float, elsewhere: float | None) -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2, failures=6, try_in=wait)))
        _, result, _ = await visit.ask(Outcome.TIMEOUT, ProxyFault.UNCLEAR, last=True)
        assert result.again_in == elsewhere

    play(act)


def test_a_domain_that_may_go_without_uses_its_proxy_as_long_as_that_can_be_used() -> None:
    async def act() -> None:
        visit = Play(Store(row(1)), ProxyRules(direct=True))
        for _ in range(5):
            assert (await visit.ask(Outcome.PROXY_FAILED, ProxyFault.PROXY))[0] == 1
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


def test_of_those_that_were_never_used_here_the_faster_on_other_domains_goes_first() -> None:
    async def act() -> None:
        visit = Play(Store(row(1), row(2), row(3)))
        visit.registry.record_response_time(2, 80.0)
        visit.registry.record_response_time(3, 700.0)
        visit.registry.record_response_time(3, 600.0)
        rows = [mapping(number) for number in (1, 2, 3)]
        fetcher = visit.another("b.example", 2, ProxyRules(), rows)
        asked = []
        for key in (b"1", b"2", b"3"):
            assert await fetcher.prepare(key) == 0
            route = fetcher.start(key)
            asked.append(route.proxy_id if route else None)
            visit.clock.time += 1
        assert asked == [2, 3, 1]

    play(act)
