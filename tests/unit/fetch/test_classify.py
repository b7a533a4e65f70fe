"""What ends of transfers mean: the tables are total, and dates and numbers of all kinds are read."""

from datetime import UTC, datetime, timedelta

import pycurl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.fetch import classify
from holdfast.model.outcome import TREATMENT, Outcome

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MONTH = timedelta(days=30)


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (200, Outcome.OK),
        (204, Outcome.OK),
        (206, Outcome.OK),
        (300, Outcome.CLIENT_ERROR),
        (301, Outcome.CLIENT_ERROR),
        (304, Outcome.BAD_RESPONSE),
        (400, Outcome.CLIENT_ERROR),
        (401, Outcome.LOGIN_WALL),
        (403, Outcome.FORBIDDEN),
        (404, Outcome.NOT_FOUND),
        (407, Outcome.LOGIN_WALL),
        (410, Outcome.NOT_FOUND),
        (418, Outcome.CLIENT_ERROR),
        (429, Outcome.RATE_LIMITED),
        (451, Outcome.CLIENT_ERROR),
        (500, Outcome.SERVER_ERROR),
        (503, Outcome.UNAVAILABLE),
        (504, Outcome.SERVER_ERROR),
        (0, Outcome.BAD_RESPONSE),
        (100, Outcome.BAD_RESPONSE),
        (600, Outcome.BAD_RESPONSE),
        (999, Outcome.BAD_RESPONSE),
    ],
)
def test_statuses(code: int, outcome: Outcome) -> None:
    assert classify.outcome_of_status(code, location=False, conditional=False) is outcome


@pytest.mark.parametrize("code", [300, 301, 302, 303, 307, 308])
def test_a_redirect_says_where_to(code: int) -> None:
    assert classify.outcome_of_status(code, location=True, conditional=True) is Outcome.REDIRECT


def test_a_location_means_nothing_elsewhere() -> None:
    assert classify.outcome_of_status(200, location=True, conditional=False) is Outcome.OK
    assert classify.outcome_of_status(305, location=True, conditional=False) is Outcome.CLIENT_ERROR
    assert classify.outcome_of_status(404, location=True, conditional=False) is Outcome.NOT_FOUND


def test_not_modified_only_where_it_was_asked_for() -> None:
    assert classify.outcome_of_status(304, location=False, conditional=True) is Outcome.NOT_MODIFIED
    assert classify.outcome_of_status(304, location=True, conditional=False) is Outcome.BAD_RESPONSE


def test_every_error_and_every_status_has_a_treatment() -> None:
    for code in range(130):
        assert (
            TREATMENT[classify.outcome_of_error(code, "")].error
            or classify.outcome_of_error(code, "") is Outcome.URL_REFUSED
        )
    for code in range(1000):
        assert classify.outcome_of_status(code, location=code % 2 == 0, conditional=code % 3 == 0) in TREATMENT


def test_too_slow_is_not_a_timeout() -> None:
    words = "Operation too slow. Less than 100 bytes/sec transferred the last 10 seconds"
    assert classify.outcome_of_error(pycurl.E_OPERATION_TIMEDOUT, words) is Outcome.TOO_SLOW
    assert classify.outcome_of_error(pycurl.E_OPERATION_TIMEDOUT, "Connection timed out") is Outcome.TIMEOUT


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("0", timedelta(0)),
        ("120", timedelta(seconds=120)),
        (" 7 ", timedelta(seconds=7)),
        ("+5", timedelta(seconds=5)),
        ("-5", timedelta(0)),
        ("2592001", MONTH),
        ("9" * 5000, MONTH),
        ("Sun, 01 Mar 2026 12:01:00 GMT", timedelta(minutes=1)),
        ("Sunday, 01-Mar-26 12:01:00 GMT", timedelta(minutes=1)),
        ("Sun, 01 Mar 2026 11:00:00 GMT", timedelta(0)),
        ("Sun, 01 Mar 2026 13:00:00 +0100", timedelta(0)),
        ("Sun, 01 Mar 2026 12:00:30 -0000", timedelta(seconds=30)),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MONTH),
        ("", None),
        ("soon", None),
        ("1.5", None),
        ("1, 2", None),
        ("١٢", None),
        ("Sun, 99 Mar 2026 12:01:00 GMT", None),
    ],
)
def test_retry_after(value: str, wait: timedelta | None) -> None:
    assert classify.parse_retry_after(value, NOW) == wait


@given(st.text())
def test_retry_after_reads_anything(value: str) -> None:
    wait = classify.parse_retry_after(value, NOW)
    assert wait is None or timedelta(0) <= wait <= MONTH
