"""Retries: 1, 2, 4 s and jitter; attempts never exceed what the settings say."""

import random
from datetime import timedelta

import pytest

from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.politeness.retry import MAX_RETRY_AFTER, Retry, next_attempt, retry_after_seconds
from holdfast.settings import Politeness

RULES = Politeness()
CHANCE = random.Random(1)


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_ends_and_only_those_worth_it_are_tried_again(outcome: Outcome) -> None:
    treatment = TREATMENT[outcome]
    states = [next_attempt(outcome, attempts, RULES, CHANCE).state for attempts in (1, 2, 3, 4, 5)]
    if treatment.retry:
        assert states == [UrlState.WAITING] * 3 + [UrlState.FAILED] * 2
    else:
        assert states == [treatment.state] * 5


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 1), (2, 2), (3, 4)])
def test_pauses_double_and_jitter_makes_them_longer(attempts: int, seconds: float) -> None:
    pauses = {next_attempt(Outcome.TIMEOUT, attempts, RULES, random.Random(seed)).retry_in for seed in range(50)}
    assert len(pauses) == 50
    assert all(pause is not None and seconds <= pause <= seconds * 1.5 for pause in pauses)


def test_a_pause_is_bounded_however_many_attempts_there_may_be() -> None:
    rules = Politeness(retries=100)
    pause = next_attempt(Outcome.TIMEOUT, 100, rules, CHANCE).retry_in
    assert pause is not None
    assert pause <= rules.max_back_off.total_seconds() * 1.5


@pytest.mark.parametrize(("asked", "least", "most"), [(0, 1, 1.5), (-5, 1, 1.5), (100, 100, 100)])
def test_retry_after_is_the_least(asked: float, least: float, most: float) -> None:
    pause = next_attempt(Outcome.RATE_LIMITED, 1, RULES, CHANCE, timedelta(seconds=asked)).retry_in
    assert pause is not None
    assert least <= pause <= most


def test_retry_after_does_not_buy_attempts() -> None:
    assert next_attempt(Outcome.UNAVAILABLE, 4, RULES, CHANCE, timedelta(seconds=1)) == Retry(UrlState.FAILED, None)


def test_without_retries_the_first_failure_is_the_last() -> None:
    assert next_attempt(Outcome.TIMEOUT, 1, Politeness(retries=0), CHANCE) == Retry(UrlState.FAILED, None)


def test_nobody_can_ask_for_a_thousand_years() -> None:
    assert retry_after_seconds(timedelta.max) == MAX_RETRY_AFTER.total_seconds()
    assert retry_after_seconds(None) == retry_after_seconds(timedelta.min) == 0.0
