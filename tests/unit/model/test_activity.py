"""What a worker writes of its activity: bounded, safe to show, and the same while only time passes."""

import json

from holdfast.model.activity import (
    MAX_FETCHING,
    MAX_URL_LENGTH,
    MAX_WAITS,
    Activity,
    InFlightRequest,
    VisitWait,
    WaitKind,
)

BUSY = Activity(
    {3: 2},
    (InFlightRequest("https://a.example/x", 3, 1.25),),
    1,
    (VisitWait("b.example", 3, WaitKind.CIRCUIT, 12.0, "connection refused"),),
)


def test_it_comes_back_as_it_was_and_older() -> None:
    again = Activity.from_json(json.loads(json.dumps(BUSY.to_json())), age=2.0)
    assert again.requests == {3: 2}
    assert again.fetching == (InFlightRequest("https://a.example/x", 3, 3.2),)
    assert again.waits == (VisitWait("b.example", 3, WaitKind.CIRCUIT, 10.0, "connection refused"),)
    assert Activity.from_json(BUSY.to_json(), age=99).waits[0].seconds == 0.0, "never less than nothing"


def test_nothing_is_stored_as_nothing() -> None:
    assert Activity().to_json() is None
    assert Activity.from_json(None) == Activity()


def test_it_is_bounded_and_steers_no_terminal() -> None:
    url = "https://a.example/\x1b[2J\u202e" + "x" * 5000
    busy = Activity(
        {1: 900},
        tuple(InFlightRequest(url, 1, 0.0) for _ in range(900)),
        900,
        tuple(VisitWait("a.example", 1, WaitKind.RETRY, None, "\x00\x07" + "y" * 5000) for _ in range(900)),
    )
    stored = busy.to_json()
    assert stored is not None
    assert len(json.dumps(stored)) < 10_000
    assert (len(stored["fetching"]), len(stored["waits"])) == (MAX_FETCHING, MAX_WAITS)
    assert stored["fetching"][0]["url"].isprintable()
    assert len(stored["fetching"][0]["url"]) == MAX_URL_LENGTH
    assert stored["waits"][0]["detail"].startswith("\ufffd\ufffdyyy")


def test_time_alone_makes_no_other_activity() -> None:
    later = Activity(
        {3: 2},
        (InFlightRequest("https://a.example/x", 3, 4.25),),
        1,
        (VisitWait("b.example", 3, WaitKind.CIRCUIT, 9.0, "connection refused"),),
    )
    assert later.fingerprint(103.0) == BUSY.fingerprint(100.0)
    assert later.fingerprint(110.0) != BUSY.fingerprint(100.0), "the next attempt is later than it was said to be"
    assert Activity().fingerprint(100.0) == Activity().fingerprint(200.0)


def test_a_kind_of_a_newer_version_is_left_out() -> None:
    stored = BUSY.to_json()
    assert stored is not None
    stored["waits"][0]["kind"] = "something_new"
    assert Activity.from_json(stored).waits == ()
