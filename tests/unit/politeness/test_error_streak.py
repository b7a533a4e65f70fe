"""When a domain has refused us too often: thresholds, login walls, the end of a one-URL domain."""

import pytest

from holdfast.model.domain import Event
from holdfast.model.outcome import STREAK_BREAKING, TREATMENT, Outcome
from holdfast.politeness.error_streak import ErrorStreak, is_login_redirect

EVENTS = {outcome: treatment.event for outcome, treatment in TREATMENT.items() if treatment.event}
OTHERS = sorted(set(Outcome) - set(EVENTS) - STREAK_BREAKING)


@pytest.mark.parametrize("outcome", sorted(EVENTS))
def test_too_many_in_a_row_end_the_visit(outcome: Outcome) -> None:
    streak = ErrorStreak(10, had_pages=True)
    assert [streak.record(outcome) for _ in range(9)] == [None] * 9
    assert streak.record(outcome) is EVENTS[outcome]
    assert streak.length == 10


def test_refusals_of_all_kinds_count_together_and_the_last_names_the_event() -> None:
    streak = ErrorStreak(4, had_pages=True)
    mixed = (Outcome.FORBIDDEN, Outcome.RATE_LIMITED, Outcome.TIMEOUT, Outcome.UNAVAILABLE)
    assert [streak.record(outcome) for outcome in mixed] == [None, None, None, Event.UNAVAILABLE]


@pytest.mark.parametrize("outcome", sorted(STREAK_BREAKING))
def test_a_proper_answer_breaks_the_streak(outcome: Outcome) -> None:
    streak = ErrorStreak(2)
    assert streak.record(Outcome.FORBIDDEN) is None
    assert streak.record(outcome) is None
    assert streak.length == 0
    assert streak.record(Outcome.FORBIDDEN) is None


@pytest.mark.parametrize("outcome", OTHERS)
def test_all_else_neither_adds_nor_breaks(outcome: Outcome) -> None:
    streak = ErrorStreak(2)
    streak.record(Outcome.FORBIDDEN)
    assert streak.record(outcome) is None
    assert streak.length == 1
    assert streak.record(Outcome.FORBIDDEN) is Event.FORBIDDEN


def test_redirects_and_server_errors_are_among_them() -> None:
    assert {Outcome.REDIRECT, Outcome.SERVER_ERROR} <= set(OTHERS)


@pytest.mark.parametrize("outcome", sorted(Outcome))
def test_errors_of_every_kind_are_counted_apart_and_a_success_ends_them(outcome: Outcome) -> None:
    streak = ErrorStreak(100, errors=3)
    streak.record(outcome)
    after = 4 if TREATMENT[outcome].error else 0 if outcome in STREAK_BREAKING else 3
    assert streak.errors == after
    assert Outcome.SERVER_ERROR not in EVENTS
    robots = ErrorStreak(100, errors=3)
    robots.record(Outcome.TIMEOUT, logged=False)
    assert (robots.errors, robots.length) == (3, 1)


@pytest.mark.parametrize("outcome", sorted(Outcome))
def test_only_a_proper_answer_of_this_visit_forgives(outcome: Outcome) -> None:
    streak = ErrorStreak(10, had_pages=True)
    assert not streak.answered
    streak.record(outcome)
    assert streak.answered is (outcome in STREAK_BREAKING)


def test_a_streak_goes_on_over_visits() -> None:
    assert ErrorStreak(10, length=9).record(Outcome.FORBIDDEN) is Event.FORBIDDEN


def test_a_login_wall_as_the_first_that_we_see_of_a_domain_ends_the_visit() -> None:
    assert ErrorStreak(10).record(Outcome.LOGIN_WALL) is Event.LOGIN_REQUIRED
    assert ErrorStreak(10, had_pages=True).record(Outcome.LOGIN_WALL) is None


def test_later_it_takes_three_login_walls() -> None:
    streak = ErrorStreak(10)
    streak.record(Outcome.TIMEOUT)
    walls = [streak.record(Outcome.LOGIN_WALL) for _ in range(3)]
    assert walls == [None, None, Event.LOGIN_REQUIRED]


def test_the_members_area_of_an_open_site_does_not_end_the_visit() -> None:
    streak = ErrorStreak(10)
    streak.record(Outcome.OK)
    assert [streak.record(Outcome.LOGIN_WALL) for _ in range(9)] == [None] * 9


@pytest.mark.parametrize("outcome", sorted(EVENTS))
def test_a_domain_that_only_failed_ends_with_that(outcome: Outcome) -> None:
    streak = ErrorStreak(10)
    for earlier in (Outcome.SERVER_ERROR, Outcome.REDIRECT, outcome, Outcome.ROBOTS_DENIED):
        streak.record(earlier)
    assert streak.final_event() is EVENTS[outcome]


def test_a_domain_that_ever_answered_is_exhausted_and_so_is_one_of_which_nothing_is_known() -> None:
    assert ErrorStreak(10).final_event() is None
    known = ErrorStreak(10, had_pages=True)
    known.record(Outcome.TIMEOUT)
    assert known.final_event() is None
    answered = ErrorStreak(10)
    answered.record(Outcome.NOT_FOUND)
    answered.record(Outcome.TIMEOUT)
    assert answered.final_event() is None


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/login",
        "https://example.com/Account/Login?next=/a",
        "https://example.com/users/sign_in",
        "https://example.com/sign-in/",
        "https://example.com/wp-login.php?redirect_to=x",
        "https://example.com/login.aspx",
        "https://example.com/sso;a=b",
        "https://example.com/auth/realms/x",
        "https://x.example.com/oauth2/authorize?client_id=1",
        "https://login.example.com/",
        "https://accounts.example.com/signin/v2",
    ],
)
def test_login_pages(url: str) -> None:
    assert is_login_redirect(url)
    assert is_login_redirect(url, "https://example.com/page")
    assert not is_login_redirect(url, "https://example.com/login")


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/",
        "https://example.com",
        "https://example.com/blogin",
        "https://example.com/authors/x",
        "https://example.com/page?next=/login",
        "https://example.com?next=/login",
        "https://example.com/login-tips",
        "https://login.com/",
    ],
)
def test_other_pages(url: str) -> None:
    assert not is_login_redirect(url)
