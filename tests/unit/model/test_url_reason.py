"""The codes of reasons: each is either retried or has a sentence about what to do instead."""

import pytest

from holdfast.control.explain_text import REASONS
from holdfast.errors import UsageError
from holdfast.model.outcome import TREATMENT, Outcome, UrlState
from holdfast.model.url_reason import (
    CLEARED,
    CODES,
    FAULT,
    NOT_RETRIED,
    RETRIED,
    check_code,
    codes_of,
    state_of,
)


def test_every_reason_that_is_explained_has_a_code_and_the_other_way_round() -> None:
    assert {str(code) for code in REASONS} == CODES


def test_every_code_is_retried_or_says_what_to_do_instead() -> None:
    assert RETRIED | NOT_RETRIED.keys() == CODES
    assert not RETRIED & NOT_RETRIED.keys()
    assert all(why and not why.endswith(".") for why in NOT_RETRIED.values())


def test_every_failure_to_fetch_is_retried_but_one_that_an_option_forbids() -> None:
    failed = {str(outcome) for outcome, treatment in TREATMENT.items() if treatment.state is UrlState.FAILED}
    assert failed - RETRIED == {Outcome.ADDRESS_REFUSED}
    assert codes_of(UrlState.FAILED) == (failed & RETRIED) | {FAULT, CLEARED}
    assert codes_of(UrlState.DENIED) == {Outcome.ROBOTS_DENIED}
    assert codes_of(UrlState.DONE) == {Outcome.NOT_FOUND, Outcome.WRONG_TYPE, Outcome.BAD_IMAGE}
    assert not codes_of(UrlState.WAITING)


def test_the_state_follows_from_the_code() -> None:
    assert [state_of(code) for code in ("server_error", "robots_denied", "not_found", FAULT)] == [
        UrlState.FAILED,
        UrlState.DENIED,
        UrlState.DONE,
        UrlState.FAILED,
    ]


def test_a_text_that_is_no_code_is_refused_with_those_that_there_are() -> None:
    check_code("too_deep")
    with pytest.raises(UsageError, match="There is no reason 'deep'; there are address_refused, "):
        check_code("deep")
