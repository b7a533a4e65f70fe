"""The table of treatments: total, and without contradictions."""

import pytest

from holdfast.model.domain import BLOCKING_EVENTS, STOPPING_EVENTS, UNREACHABLE_EVENTS, Event
from holdfast.model.outcome import PAGES, TREATMENT, Circuit, Outcome, Treatment, UrlState
from holdfast.model.proxy import ProxyVerdict

NOT_ASKED = {
    Outcome.ROBOTS_DENIED,
    Outcome.OUT_OF_SCOPE,
    Outcome.EXCLUDED,
    Outcome.TOO_DEEP,
    Outcome.TRAP,
    Outcome.URL_REFUSED,
    Outcome.NOFOLLOW,
    Outcome.NO_HTTPS,  # another URL takes its place
    Outcome.FOLDED,
    Outcome.PAGINATION,
    Outcome.OTHER_DOMAIN,
    Outcome.IMAGE_LIMIT,
    Outcome.CHECK_LIMIT,
}


def test_every_outcome_has_its_treatment() -> None:
    assert set(TREATMENT) == set(Outcome)


@pytest.mark.parametrize("outcome", Outcome)
def test_a_treatment_does_not_contradict_itself(outcome: Outcome) -> None:
    treatment = TREATMENT[outcome]
    assert treatment.state is not UrlState.WAITING, "it is the state once no attempt is left"
    assert treatment.event is None or treatment.event in STOPPING_EVENTS
    assert not (treatment.page and treatment.error)
    if treatment.retry:
        assert treatment.error
        assert treatment.circuit is Circuit.FAILURE
        assert treatment.state is UrlState.FAILED
    if treatment.event:
        assert treatment.error
        assert treatment.circuit is not Circuit.SUCCESS
    if treatment.back_off:
        assert treatment.event in BLOCKING_EVENTS


@pytest.mark.parametrize("outcome", sorted(NOT_ASKED))
def test_what_was_not_asked_for_is_denied_and_says_nothing_about_the_server(outcome: Outcome) -> None:
    assert TREATMENT[outcome] == Treatment(UrlState.DENIED)
    assert Treatment(UrlState.DENIED)[1:] == (False, False, False, Circuit.NOTHING, False, None, ProxyVerdict.ERROR)


def test_only_what_was_not_asked_for_is_denied() -> None:
    assert {o for o, treatment in TREATMENT.items() if treatment.state is UrlState.DENIED} == NOT_ASKED


def test_pages_are_answers_with_content() -> None:
    assert {Outcome.OK, Outcome.NOT_MODIFIED} == PAGES


def test_network_errors_and_5xx_are_tried_again_and_refusals_are_not() -> None:
    assert {outcome for outcome, treatment in TREATMENT.items() if treatment.retry} == {
        *(Outcome.RATE_LIMITED, Outcome.UNAVAILABLE, Outcome.SERVER_ERROR, Outcome.BAD_RESPONSE),
        *(Outcome.DNS_FAILURE, Outcome.NO_SUCH_HOST, Outcome.CONNECTION_FAILED, Outcome.TLS_FAILURE),
        *(Outcome.TIMEOUT, Outcome.TOO_SLOW),
    }


def test_only_429_and_503_ask_for_less() -> None:
    assert {o for o, treatment in TREATMENT.items() if treatment.back_off} == {
        Outcome.RATE_LIMITED,
        Outcome.UNAVAILABLE,
    }


def test_every_reason_but_robots_can_come_of_an_outcome() -> None:
    events = {treatment.event for treatment in TREATMENT.values()} - {None}
    assert events == (BLOCKING_EVENTS | UNREACHABLE_EVENTS) - {Event.ROBOTS_DENIED}
