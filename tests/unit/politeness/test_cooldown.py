"""How long a domain is left alone: D6 and the settings, jitter, Retry-After, the last retry."""

import random
from datetime import timedelta

import pytest

from holdfast.model.domain import BLOCKING_EVENTS, UNREACHABLE_EVENTS, Event
from holdfast.politeness.retry import CooldownPolicy
from holdfast.settings import Cooldown

DAYS = {
    Event.LOGIN_REQUIRED: 30,
    Event.RATE_LIMITED: 7,
    Event.UNAVAILABLE: 7,
    Event.FORBIDDEN: 14,
    Event.ROBOTS_DENIED: 90,
    **dict.fromkeys(sorted(UNREACHABLE_EVENTS), 7),
    Event.FRONTIER_EMPTY: 14,
}
NONE = sorted(set(Event) - set(DAYS))


def policy(rules: Cooldown | None = None, seed: int = 1) -> CooldownPolicy:
    return CooldownPolicy(rules or Cooldown(), max_block_retries=3, rng=random.Random(seed))


@pytest.mark.parametrize(("event", "days"), DAYS.items())
def test_a_cooldown_is_what_the_settings_say_and_at_most_the_jitter_longer(event: Event, days: int) -> None:
    base = timedelta(days=days)
    lengths = {policy(seed=seed)(event, 0) for seed in range(50)}
    assert all(length is not None and base <= length <= base * 1.1 for length in lengths)
    assert len(lengths) == 50, "domains that stopped together do not come back together"


@pytest.mark.parametrize("event", NONE)
def test_other_events_begin_no_cooldown(event: Event) -> None:
    assert policy()(event, 0) == timedelta()


def test_each_length_is_a_setting() -> None:
    rules = Cooldown(
        login_required=timedelta(hours=1),
        rate_limited=timedelta(hours=2),
        forbidden=timedelta(hours=3),
        robots_denied=timedelta(hours=4),
        unavailable=timedelta(hours=5),
        unreachable=timedelta(hours=6),
        exhausted=timedelta(hours=7),
        jitter=0,
    )
    hours = [
        *((Event.LOGIN_REQUIRED, 1), (Event.RATE_LIMITED, 2), (Event.FORBIDDEN, 3), (Event.ROBOTS_DENIED, 4)),
        *((Event.UNAVAILABLE, 5), (Event.TIMEOUT, 6), (Event.FRONTIER_EMPTY, 7)),
    ]
    for event, length in hours:
        assert policy(rules)(event, 0) == timedelta(hours=length), event


@pytest.mark.parametrize(
    ("asked", "least"),
    [(timedelta(days=20), 20), (timedelta(hours=1), 7), (timedelta(), 7), (None, 7)],
)
def test_retry_after_makes_a_cooldown_longer_but_never_shorter(asked: timedelta | None, least: int) -> None:
    length = policy()(Event.RATE_LIMITED, 0, asked)
    assert length is not None
    assert timedelta(days=least) <= length <= timedelta(days=least) * 1.1


@pytest.mark.parametrize("event", sorted(BLOCKING_EVENTS))
@pytest.mark.parametrize(("blocks", "comes_back"), [(0, True), (2, True), (3, False), (4, False)])
def test_a_blocked_domain_is_tried_again_three_times(event: Event, blocks: int, comes_back: bool) -> None:
    assert (policy()(event, blocks) is not None) == comes_back
    assert policy()(event, 3, timedelta(seconds=1)) is None, "Retry-After does not overrule it"


@pytest.mark.parametrize("event", sorted(UNREACHABLE_EVENTS))
def test_an_unreachable_domain_is_tried_again_three_times_too(event: Event) -> None:
    assert policy()(event, 2) is not None
    assert policy()(event, 3) is None


def test_an_end_is_no_stop() -> None:
    assert policy()(Event.FRONTIER_EMPTY, 1000) is not None
