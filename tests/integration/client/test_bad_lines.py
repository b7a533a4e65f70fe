"""What a client does when the line or the server fails: it repeats what may be repeated, and only that."""

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyarrow import parquet

import holdfast
from holdfast import Client, Unreachable
from holdfast.api.permissions import ROUTES
from holdfast.client import endpoints, retry, sse
from holdfast.client.request_spec import RequestSpec, no_body
from holdfast.client.sse import Event
from holdfast.db.connection import Database
from holdfast.jobs.records import JobProgress
from tests.support.api import Api
from tests.support.client import Handler, asking, problem
from tests.support.crawled import crawl_a_little
from tests.support.factories import Store
from tests.support.relay import Relay


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a client wanted to wait; it does not."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


@pytest.fixture
def relay(api: Api) -> Iterator[Relay]:
    with Relay(api.url) as made:
        yield made


def raised(
    handler: Handler, deed: Callable[[Client], object] = lambda client: client.me(), **how: Any
) -> holdfast.HoldfastError:
    """What a client of such a server raises."""
    with asking(handler, **how) as client, pytest.raises(holdfast.HoldfastError) as caught:
        deed(client)
    return caught.value


@pytest.mark.parametrize(
    ("status", "name", "kind", "code"),
    [
        (400, "bad-request", holdfast.UsageError, 2),
        (401, "unauthenticated", holdfast.Unauthenticated, 6),
        (403, "denied", holdfast.Denied, 6),
        (404, "not-found", holdfast.NotFound, 4),
        (409, "refused", holdfast.Refused, 5),
        (409, "under-way", holdfast.UnderWay, 5),
        (412, "changed", holdfast.Changed, 5),
        (413, "too-long", holdfast.UsageError, 2),
        (422, "unusable", holdfast.UsageError, 2),
        (429, "too-many", holdfast.TooMany, 7),
        (500, "failed", holdfast.HoldfastError, 1),
        (500, "store", holdfast.StoreError, 3),
        (503, "unavailable", holdfast.StoreUnavailable, 3),
        (503, "schema", holdfast.SchemaMismatch, 3),
        (504, "timeout", Unreachable, 1),
    ],
)
def test_problems_are_our_exceptions_with_the_servers_sentence(
    status: int, name: str, kind: type[holdfast.HoldfastError], code: int
) -> None:
    caught = raised(lambda _: problem(status, name, {"Retry-After": "7"}), retries=0)
    assert type(caught) is kind
    assert str(caught).endswith("The server's sentence.")
    assert caught.exit_code == code
    if isinstance(caught, holdfast.TooMany):
        assert caught.retry_after == 7


def test_what_is_no_holdfast_server_is_said() -> None:
    assert "answered 404, and not as a Holdfast" in str(raised(lambda _: httpx.Response(404, html="<h1>nginx</h1>")))
    assert "did not answer as a Holdfast" in str(raised(lambda _: httpx.Response(200, html="<h1>Welcome</h1>")))
    assert "no page of a list" in str(
        raised(lambda _: httpx.Response(200, json=[1]), lambda client: next(client.jobs()))
    )
    elsewhere = {"Location": "http://evil.example/"}
    assert "answered 302" in str(raised(lambda _: httpx.Response(302, headers=elsewhere)))


def test_a_server_that_is_not_there_is_said(pauses: list[float]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = listener.getsockname()[1]
    sentence = rf"No Holdfast server answers at http://127.0.0.1:{port} .*`holdfast serve`"
    with Client(f"http://127.0.0.1:{port}", key="") as client, pytest.raises(Unreachable, match=sentence):
        client.stats()
    assert len(pauses) == 3
    assert pauses == sorted(pauses)


def test_a_server_that_is_away_for_a_while_is_asked_again(pauses: list[float]) -> None:
    seen: list[httpx.Request] = []

    def away(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if len(seen) == 1:
            raise httpx.ReadError("reset by peer", request=request)
        if len(seen) < 4:
            return problem(503, headers={"Retry-After": "5"} if len(seen) == 2 else {})
        return httpx.Response(
            201, json={"id": 1, "name": "b", "created_at": "2031-01-01T00:00:00Z", "created_by": "x", "tasks": {}}
        )

    with asking(away) as client:
        assert client.create_batch("b").name == "b"
    assert len(seen) == 4
    assert len({request.headers["Idempotency-Key"] for request in seen}) == 1
    assert len({request.content for request in seen}) == 1
    assert pauses[1] == 5
    with asking(away) as client:
        seen.clear()
        client.create_batch("b")
        assert len({request.headers["Idempotency-Key"] for request in seen}) == 1


def test_how_long_to_wait_is_the_servers_word_up_to_a_bound(pauses: list[float]) -> None:
    assert isinstance(raised(lambda _: problem(429, headers={"Retry-After": "3"})), holdfast.TooMany)
    assert pauses == [3, 3, 3]
    pauses.clear()
    too_long = retry.MAX_RETRY_AFTER + 1
    caught = raised(lambda _: problem(429, headers={"Retry-After": f"{too_long:.0f}"}))
    assert isinstance(caught, holdfast.TooMany)
    assert caught.retry_after == too_long
    assert pauses == []


def test_what_the_server_does_not_remember_is_sent_once(pauses: list[float]) -> None:
    forgotten = {
        route.partition(" ")[2]
        for route, access in ROUTES.items()
        if route.startswith("POST") and not access.takes_idempotency_key
    }
    assert forgotten
    for route, access in ROUTES.items():
        if access.is_form or route == "POST /login":
            continue  # for browsers
        method, _, path = route.partition(" ")
        asked = RequestSpec(method, path.replace("{id}", "7"), no_body)
        assert asked.has_idempotency_key == (method == "POST" and path not in forgotten), route
        by_nature = method in {"GET", "PUT"} or (
            method == "DELETE" and path not in {"/api/frontier", "/api/admin/pages"}
        )
        assert asked.repeatable == (by_nature or asked.has_idempotency_key), route
    sent: list[str] = []

    def broken(request: httpx.Request) -> httpx.Response:
        sent.append(request.method)
        assert "Idempotency-Key" not in request.headers
        raise httpx.ReadTimeout("late", request=request)

    with asking(broken) as client:
        with pytest.raises(Unreachable, match="may have done it nevertheless"):
            client.request("POST", "/api/admin/proxies/7/test")
        with pytest.raises(Unreachable, match="did not answer in time"):
            client.configure_domain("a.example", delay=1)
    assert sent == ["POST", "PATCH"]
    assert pauses == []


def test_a_refusal_is_repeated_only_while_the_first_is_under_way(pauses: list[float]) -> None:
    answers: list[httpx.Response | Exception] = []

    def scripted(request: httpx.Request) -> httpx.Response:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    with asking(scripted) as client:
        answers[:] = [problem(409)]
        with pytest.raises(holdfast.Refused):
            client.create_batch("b")
        assert not answers
        answers[:] = [httpx.ReadTimeout("late"), problem(409)]
        with pytest.raises(holdfast.Refused):
            client.create_batch("b")
        assert not answers
        pauses.clear()
        under_way = problem(409, "under-way", {"Retry-After": "2"})
        answers[:] = [httpx.ReadTimeout("late"), under_way, under_way, problem(404)]
        with pytest.raises(holdfast.NotFound):  # the answer of the first one
            client.create_batch("b")
        assert pauses[1:] == [2, 2]
        answers[:] = [under_way] * 4
        with pytest.raises(holdfast.UnderWay, match="The server's sentence"):
            client.create_batch("b")
        assert not answers
        answers[:] = [httpx.ReadTimeout("late"), problem(404)]
        client.delete_job("shop")  # the first one did it
        answers[:] = [httpx.ConnectError("refused"), problem(404)]
        with pytest.raises(holdfast.NotFound):
            client.delete_job("shop")  # nobody can have done it


def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_is_done_twice(
    relay: Relay, key: str, store: Store
) -> None:
    with Client(relay.url, key=key) as client:
        client.stats()
        relay.lose_answers = 2
        made = client.create_job("shop", ["https://a.example/"])
        assert made.seeds == 1
        assert len([sent for sent in relay.requests if sent.startswith(b"POST /api/jobs ")]) == 3
        assert store.value("SELECT count(*) FROM audit_log WHERE object_kind = 'job' AND action = 'create'") == 1
        relay.lose_answers = 1
        client.delete_job(made)
        assert store.value("SELECT count(*) FROM audit_log WHERE object_kind = 'job' AND action = 'delete'") == 1


def test_an_export_that_breaks_off_begins_anew_and_is_whole_or_not_there(
    relay: Relay, key: str, database: Database, store: Store, tmp_path: Path
) -> None:
    crawl_a_little(database, store)
    folder = tmp_path / "files"
    folder.mkdir()
    file = folder / "pages.parquet"
    with Client(relay.url, key=key) as client:
        relay.cut_answers = 2
        assert client.export("pages", file) == file.stat().st_size
        assert parquet.read_table(file).num_rows == 4
        assert relay.cut_answers == 0
        file.write_bytes(b"old")
        relay.cut_answers = 100
        with pytest.raises(Unreachable, match="broke"):
            client.export("pages", file)
        with pytest.raises(Unreachable, match="broke"):
            list(client.exported("pages", "parquet"))
    assert file.read_bytes() == b"old"
    assert list(folder.iterdir()) == [file]
    with Client(relay.url, key=key) as client, pytest.raises(holdfast.HoldfastError, match="cannot be written"):
        client.export("pages", folder / "none" / "pages.csv")


def test_a_watcher_who_is_cut_off_goes_on_and_misses_nothing(relay: Relay, api: Api, key: str) -> None:
    """Each event is heard once, in its order, though the line breaks after every second one."""
    admin = api.client(key)
    with Client(relay.url, key=key) as client:
        job = client.create_job("shop", ["https://a.example/"])
        states: list[str] = []
        ids: list[str | None] = []
        told = 0
        for news in client.watch(job):
            if isinstance(news, Event):
                states.append(news.data["to"])
                ids.append(news.id)
            if isinstance(news, JobProgress) and told == 0:
                admin.post("/api/jobs/shop/pause").raise_for_status()
                told = 1
            elif isinstance(news, Event) and told < 6:
                relay.cut()
                # While nobody listens:
                admin.post(f"/api/jobs/shop/{'resume' if told % 2 else 'pause'}").raise_for_status()
                told += 1
            elif isinstance(news, Event) and told == 6:
                admin.post("/api/jobs/shop/cancel").raise_for_status()
                told = 7
    assert states[:6] == ["paused", "pending"] * 3
    assert len(set(ids)) == len(ids)
    resumed = [sent for sent in relay.requests if re.search(rb"(?i)last-event-id: \d+-\d+", sent)]
    assert len(resumed) >= 5


def test_a_stream_that_cannot_be_had_again_raises_in_the_end(pauses: list[float]) -> None:
    connections = 0

    def once(_: httpx.Request) -> httpx.Response:
        nonlocal connections
        connections += 1
        if connections == 1:
            happened = {"kind": "job", "at": "2031-01-01T00:00:00Z", "job_id": 1, "domain": None, "data": {}}
            return httpx.Response(
                200, content=f"retry: 2000\n\nid: 7-1\nevent: job\ndata: {json.dumps(happened)}\n\n".encode()
            )
        return problem(503)

    with asking(once) as client:
        heard = client.events(kinds=["job"])
        assert next(heard).id == "7-1"
        with pytest.raises(holdfast.StoreUnavailable):
            next(heard)
    assert connections == 1 + sse._MAX_FAILURES
    with asking(once, retries=0) as client:
        connections = 0
        heard = client.events()
        next(heard)
        with pytest.raises(Unreachable, match="the server ended it"):
            next(heard)
    assert connections == 1


def test_events_are_understood_however_they_are_cut() -> None:
    text = 'retry: 2000\r\n\r\n: alive\n\nid: 1-2\nevent: job\ndata: {"a":\ndata:  "é"}\n\nevent: lonely\n\ndata: {}\n\n'.encode()
    for size in (1, 2, 3, 7, 1000):
        decoder = sse.EventDecoder()
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        found = [message for piece in pieces for message in decoder.feed(piece)]
        assert [(message.name, message.id, message.data) for message in found] == [
            ("job", "1-2", '{"a":\n "é"}'),
            ("message", "1-2", "{}"),
        ]


def test_threads_may_share_a_client(api: Api, client: Client) -> None:
    problems: list[Exception] = []

    def ask(number: int) -> None:
        try:
            assert client.create_job(f"job {number}", [f"https://{number}.example/"]).seeds == 1
        except Exception as problem:  # noqa: BLE001 — told below
            problems.append(problem)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert len(list(client.each(endpoints.jobs(prefix="job ")))) == 8
