"""Streams that are cut off, by whom and wherever: nothing is missed, nothing is heard twice, and they end only when they are over."""

import json
from collections.abc import Sequence

import httpx
import pytest

import holdfast
from holdfast import Unreachable
from holdfast.client import sse
from tests.support.client import Handler, asking

HTML = "<h1>Service Unavailable</h1>"


def event(place: str, kind: str = "job") -> bytes:
    happened = {"kind": kind, "at": "2031-01-01T00:00:00Z", "job_id": 1, "domain": None, "data": {}}
    return f"id: {place}\nevent: {kind}\ndata: {json.dumps(happened)}\n\n".encode()


def answering(answers: Sequence[httpx.Response], seen: list[str | None]) -> Handler:
    """A server that gives these answers, one after the other; where each listener wanted to go on."""
    left = list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Last-Event-ID"))
        return left.pop(0)

    return answer


def stream(*pieces: bytes) -> httpx.Response:
    return httpx.Response(200, content=b"".join(pieces))


def test_who_is_cut_off_before_the_first_event_misses_none() -> None:
    seen: list[str | None] = []
    quiet = stream(b"id: 100-0\nretry: 2000\n\n: alive\n\n")
    with asking(answering([quiet, stream(event("101-1"))], seen)) as client:
        assert next(client.events()).id == "101-1"
    assert seen == [None, "100-0"]


def test_half_an_event_was_not_heard() -> None:
    seen: list[str | None] = []
    half = event("102-1")[:-10]
    with asking(answering([stream(event("101-1"), half), stream(event("102-1"))], seen)) as client:
        heard = client.events()
        assert [next(heard).id for _ in range(2)] == ["101-1", "102-1"]
    assert seen == [None, "101-1"]


def test_a_quiet_stream_may_be_cut_off_any_number_of_times() -> None:
    seen: list[str | None] = []
    quiet = [stream(b"id: 100-0\n\n", b": alive\n\n") for _ in range(sse._MAX_FAILURES + 5)]
    with asking(answering([*quiet, stream(event("101-1"))], seen)) as client:
        assert next(client.events(kinds=["job"])).id == "101-1"
    assert len(seen) == len(quiet) + 1


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_gateway_whose_server_is_away_is_waited_for(status: int) -> None:
    seen: list[str | None] = []
    away = httpx.Response(status, html=HTML)
    with asking(answering([stream(event("101-1")), away, stream(event("102-1"))], seen)) as client:
        heard = client.events()
        assert [next(heard).id for _ in range(2)] == ["101-1", "102-1"]
    with asking(lambda _: httpx.Response(status, html=HTML), retries=0) as client, pytest.raises(Unreachable):
        client.stats()


def test_a_gateway_that_wants_fewer_requests_says_when() -> None:
    with (
        asking(lambda _: httpx.Response(429, html=HTML, headers={"Retry-After": "7"}), retries=0) as client,
        pytest.raises(holdfast.TooMany) as caught,
    ):
        client.stats()
    assert caught.value.retry_after == 7


def test_only_what_can_vanish_is_ever_gone() -> None:
    gone = b"event: gone\ndata: {}\n\n"
    with asking(answering([stream(gone, event("101-1"))], [])) as client:
        assert next(client.events()).id == "101-1"
    with asking(answering([stream(gone)], [])) as client:
        assert list(client.watch("shop")) == []


def test_a_write_that_may_have_been_done_is_said_to_be_in_doubt() -> None:
    """The server dies while it does it, and is not there any more when it is asked again."""
    sent = 0

    def dying(request: httpx.Request) -> httpx.Response:
        nonlocal sent
        sent += 1
        raise (httpx.ReadError if sent == 1 else httpx.ConnectError)("gone", request=request)

    with (
        asking(dying) as client,
        pytest.raises(Unreachable, match=r"No Holdfast server.*may have done it nevertheless"),
    ):
        client.create_job("shop", ["https://a.example/"])
    assert sent == 4
    sent = 1
    with asking(dying) as client, pytest.raises(Unreachable) as caught:
        client.create_job("shop", ["https://a.example/"])
    assert "may have been done" not in str(caught.value), "it never was sent"


@pytest.mark.parametrize("path", ["/api/frontier", "/api/admin/pages"])
def test_what_asks_for_long_work_by_a_delete_is_sent_once(path: str) -> None:
    """The second operation would clear what was found after the first."""
    seen: list[str] = []

    def broken(request: httpx.Request) -> httpx.Response:
        seen.append(request.method)
        raise httpx.ReadError("reset by peer", request=request)

    with asking(broken) as client, pytest.raises(Unreachable, match="may have done it nevertheless"):
        client.request("DELETE", path)
    assert seen == ["DELETE"]


def test_there_is_no_list_of_jobs_without_a_schedule() -> None:
    with asking(lambda _: httpx.Response(200, json={"items": []})) as client, pytest.raises(holdfast.UsageError):
        list(client.jobs(scheduled=False))
