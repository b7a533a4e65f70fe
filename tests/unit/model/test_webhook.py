"""Webhooks: the same bytes every time, signatures that only a secret makes, and an answer to everything that can come back."""

import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.webhook import (
    MAX_ANSWER_BYTES,
    MAX_RETRY_AFTER,
    NextStep,
    RetryPolicy,
    WebhookMessage,
    decide_delivery,
    delivery_request,
    sign,
    verify,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
OLD, NEW = b"old secret", b"new secret"
PATIENCE = RetryPolicy(attempts=5, first=timedelta(seconds=10), longest=timedelta(seconds=60))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def message(data: dict[str, Any]) -> WebhookMessage:
    return WebhookMessage("m-1", "task.completed", NOW, data)


def answered(status: int | None, outcome: Outcome = Outcome.OK, retry_after: timedelta | None = None) -> FetchResult:
    return FetchResult("https://hook.example/", outcome, status=status, retry_after=retry_after)


def test_a_body() -> None:
    assert message({"url": "http://a/é", "b": [1, None], "a": {"z": 1, "y": 2}}).body() == (
        b'{"created_at":"2026-03-01T12:00:00.123Z","data":{"a":{"y":2,"z":1},"b":[1,null],"url":"http://a/\\u00e9"},'
        b'"event":"task.completed","id":"m-1"}'
    )


def test_a_moment_is_written_in_utc() -> None:
    there = NOW.astimezone(timezone(timedelta(hours=9)))
    assert WebhookMessage("m-1", "e", there, {}).body() == WebhookMessage("m-1", "e", NOW, {}).body()


@settings(deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_the_same_message_is_the_same_bytes_whatever_is_in_it(data: dict[str, Any]) -> None:
    body = message(data).body()
    assert body == message(dict(reversed(data.items()))).body()
    assert body.isascii()
    assert json.loads(body)["data"] == data


def test_numbers_that_json_does_not_have_are_our_fault() -> None:
    with pytest.raises(ValueError, match="JSON"):
        message({"a": float("nan")}).body()


def test_a_signature_as_a_receiver_would_make_it() -> None:
    body = b'{"a":1}'
    expected = hmac.new(OLD, b"1772366400." + body, hashlib.sha256).hexdigest()
    assert sign(body, [OLD], NOW) == f"t=1772366400,v1={expected}"
    assert verify(f"t=1772366400,v1={expected}", body, [OLD], NOW)


def test_secrets_are_replaced_without_a_gap() -> None:
    both = sign(b"x", [NEW, OLD], NOW)
    assert verify(both, b"x", [OLD], NOW)
    assert verify(both, b"x", [NEW], NOW)
    assert verify(sign(b"x", [OLD], NOW), b"x", [NEW, OLD], NOW)
    assert not verify(sign(b"x", [OLD], NOW), b"x", [NEW], NOW)
    assert not verify(both, b"x", [], NOW)


def test_an_empty_secret_vouches_for_nothing() -> None:
    forged = f"t=1772366400,v1={hmac.new(b'', b'1772366400.x', hashlib.sha256).hexdigest()}"
    assert not verify(forged, b"x", [b""], NOW)
    for secrets in ([], [b""], [OLD, b""]):
        with pytest.raises(ValueError, match="at least one secret"):
            sign(b"x", secrets, NOW)


@pytest.mark.parametrize(("minutes", "good"), [(0, True), (4, True), (-4, True), (6, False), (-6, False)])
def test_old_messages_are_not_believed(minutes: int, good: bool) -> None:
    assert verify(sign(b"x", [OLD], NOW), b"x", [OLD], NOW + timedelta(minutes=minutes)) is good


@given(st.binary(max_size=50), st.binary(max_size=50), st.binary(min_size=1, max_size=20), st.integers(0, 2**33))
def test_only_what_was_signed_is_verified(body: bytes, other: bytes, secret: bytes, later: int) -> None:
    header = sign(body, [secret], NOW)
    assert verify(header, body, [secret], NOW)
    assert verify(header, other, [secret], NOW) is (body == other)
    assert verify(header, body, [secret + b"x"], NOW) is False
    moved = header.replace("t=1772366400", f"t={later}")
    assert verify(moved, body, [secret], datetime.fromtimestamp(later, UTC)) is (later == 1772366400)


GOOD = sign(b"x", [OLD], NOW)


@given(
    st.text()
    | st.builds(lambda at, text: GOOD[:at] + text + GOOD[at:], st.integers(0, len(GOOD)), st.text(min_size=1))
    | st.sampled_from(
        ["", "t=,v1=", GOOD.upper(), GOOD[:-1], f"{GOOD}\n", f" {GOOD}", f"{GOOD},v1=", "t=" + "9" * 5000]
    )
    | st.sampled_from([GOOD.replace("t=", "t=0"), GOOD.replace("t=", "t=+")])
    | st.just(GOOD + f",v1={'0' * 64}" * 16)
)
def test_any_header_has_an_answer(header: str) -> None:
    assert verify(header, b"x", [OLD], NOW) is (header == GOOD)
    assert verify(header, b"y", [OLD], NOW) is False


def test_an_attempt() -> None:
    wanted = delivery_request("https://hook.example/", message({}), [OLD], NOW, user_agent="Holdfast")
    assert (wanted.any_type, wanted.cut, wanted.max_bytes, wanted.allow_private) == (
        True,
        True,
        MAX_ANSWER_BYTES,
        False,
    )
    headers = dict(wanted.headers)
    assert wanted.post == message({}).body()
    assert headers["Content-Type"] == "application/json"
    assert headers["Holdfast-Delivery"] == "m-1"
    assert verify(headers["Holdfast-Signature"], wanted.post, [OLD], NOW)


@pytest.mark.parametrize(
    ("status", "what"),
    [
        *[(status, NextStep.DELIVERED) for status in (200, 201, 202, 204, 299)],
        (410, NextStep.SWITCH_OFF),
        *[(status, NextStep.GIVE_UP) for status in (400, 401, 403, 404, 409, 413, 422, 499)],
        *[(status, NextStep.AGAIN) for status in (301, 302, 304, 307, 308, 408, 429, 500, 502, 503, 599, 600, 999)],
    ],
)
def test_the_status_decides_where_there_is_one(status: int, what: NextStep) -> None:
    assert {decide_delivery(answered(status, outcome), 1, 0.0, PATIENCE).next for outcome in Outcome} == {what}


@pytest.mark.parametrize("outcome", Outcome)
def test_without_an_answer_it_is_sent_again_unless_we_never_would(outcome: Outcome) -> None:
    never = outcome in {Outcome.ADDRESS_REFUSED, Outcome.URL_REFUSED}
    assert decide_delivery(answered(None, outcome), 1, 0.0, PATIENCE).next is (
        NextStep.GIVE_UP if never else NextStep.AGAIN
    )


def test_pauses_double_up_to_the_longest_and_then_it_is_enough() -> None:
    busy = answered(503, Outcome.UNAVAILABLE)
    waits = [decide_delivery(busy, attempt, 0.0, PATIENCE).wait for attempt in range(1, 6)]
    assert waits == [timedelta(seconds=10), timedelta(seconds=20), timedelta(seconds=40), timedelta(seconds=60), None]
    assert decide_delivery(busy, 5, 0.0, PATIENCE).next is NextStep.GIVE_UP
    assert decide_delivery(busy, 1, 1.0, PATIENCE).wait == timedelta(seconds=15)


def test_retry_after_is_obeyed_and_never_makes_it_sooner() -> None:
    def wait(asked: timedelta) -> timedelta | None:
        return decide_delivery(answered(429, Outcome.RATE_LIMITED, asked), 1, 0.0, PATIENCE).wait

    assert wait(timedelta(hours=2)) == timedelta(hours=2)
    assert wait(timedelta(0)) == timedelta(seconds=10)
    assert wait(timedelta(seconds=-5)) == timedelta(seconds=10)
    assert wait(timedelta.max) == MAX_RETRY_AFTER


@given(
    st.none() | st.integers(-10, 10**6),
    st.sampled_from(Outcome),
    st.integers(-5, 10**9),
    st.floats() | st.just(float("nan")),
    st.none() | st.timedeltas(),
    st.builds(
        RetryPolicy,
        st.integers(0, 10**9),
        st.timedeltas(timedelta(0), timedelta(days=1)),
        st.timedeltas(timedelta(0), timedelta(days=30)),
    ),
)
def test_everything_has_a_verdict(
    status: int | None, outcome: Outcome, attempt: int, jitter: float, asked: timedelta | None, patience: RetryPolicy
) -> None:
    what, wait = decide_delivery(answered(status, outcome, asked), attempt, jitter, patience)
    assert (wait is not None) is (what is NextStep.AGAIN)
    if wait is not None:
        assert attempt < patience.attempts
        assert timedelta(0) <= wait <= max(MAX_RETRY_AFTER, patience.longest * 1.5 + timedelta(milliseconds=1))
        assert wait >= min(asked or timedelta(0), MAX_RETRY_AFTER)
