"""POST beside GET: what goes over the wire, that neither leaves a trace in the other, and that nothing private is reached."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pycurl
import pytest

from holdfast.fetch.http_client import HttpClient
from holdfast.model import webhook
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import Outcome
from tests.support.nameserver import Answer as Record
from tests.support.nameserver import NameServer
from tests.support.web import Certificate, Web, ask, client, http2, response

JSON = (("Content-Type", "application/json"), ("X-Id", "7"))
PAGE = response(b"hi")


class Recorder:
    """Reads requests with their bodies, connection by connection, and answers each of them by its path."""

    def __init__(self, **answers: bytes) -> None:
        self.answers = answers
        self.connections: list[list[bytes]] = []
        self.web = Web(script=self._talk)

    @property
    def requests(self) -> list[bytes]:
        return [request for connection in self.connections for request in connection]

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said: list[bytes] = []
        self.connections.append(said)
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            said.append(head + await reader.readexactly(int(fields.get(b"content-length", 0))))
            answer = self.answers.get(head.split()[1].decode().strip("/"), PAGE)
            if not answer:  # it hangs up
                return
            writer.write(answer)
            await writer.drain()


def play(recorder: Recorder, talk: Callable[[HttpClient, Web], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with recorder.web as web, client(**settings) as one:
            await asyncio.wait_for(talk(one, web), 20)

    asyncio.run(run())


def post(url: str, body: bytes = b'{"a":1}', **more: Any) -> FetchRequest:
    return ask(url, post=body, **{"headers": JSON, "any_type": True, "cut": True, "max_bytes": 64 * 1024, **more})


def body_of(request: bytes) -> bytes:
    return request.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("body", [b'{"a":1}', b"", b"\0\r\n\r\n\xff", b"z" * 3_000_000])
def test_a_post_on_the_wire(body: bytes) -> None:
    recorder = Recorder(hook=response(b"thanks", "202 Accepted", "text/weird"))
    results: list[FetchResult] = []

    async def talk(one: HttpClient, web: Web) -> None:
        results.append(await one.fetch(post(web.url("/hook?x=1"), body)))

    recorder.answers["hook?x=1"] = recorder.answers["hook"]
    play(recorder, talk)
    (result,) = results
    assert (result.outcome, result.status, result.body) == (Outcome.OK, 202, b"thanks")
    (request,) = recorder.requests
    host = request.split(b"\r\n")[1]
    assert request == (
        b"POST /hook?x=1 HTTP/1.1\r\n" + host + b"\r\nUser-Agent: holdfast-tests/1.0\r\n"
        b"Accept-Encoding: gzip, deflate, br\r\nAccept: */*\r\nContent-Type: application/json\r\nX-Id: 7\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    assert result.request_head + body == request


def test_gets_and_posts_leave_no_trace_in_each_other() -> None:
    """One handle serves them all, and each request is what it would have been alone."""
    recorder = Recorder(bad=b"nonsense\r\n\r\n", gone=b"", moved=response(b"", "307 Moved", Location="/other"))
    made: list[int] = []

    async def talk(one: HttpClient, web: Web) -> None:
        get, hook = web.url("/get"), web.url("/hook")
        for request in [
            ask(get),
            post(hook),
            ask(get),
            post(web.url("/bad")),
            ask(get),
            post(web.url("/gone")),
            ask(get),
            ask(web.url("/gone")),
            post(hook),
            post(web.url("/moved")),
            ask(get),
        ]:
            await one.fetch(request)
            made.append(len(one._free))

    play(recorder, talk)
    assert made == [1] * 11
    gets = {request for request in recorder.requests if b" /get " in request}
    posts = {request for request in recorder.requests if b" /hook " in request}
    assert len(gets) == len(posts) == 1
    (get,), (sent,) = gets, posts
    assert get.startswith(b"GET /get HTTP/1.1\r\n")
    assert not [word for word in (b"ontent-", b"X-Id", b"xpect", b'{"a"') if word in get]
    assert body_of(sent) == b'{"a":1}'
    assert not [request for request in recorder.requests if b" /other " in request]


def test_a_post_that_was_given_up_leaves_a_clean_client() -> None:
    """Cancelled, out of time, refused by the caller's own fault: the next request is a plain GET."""
    arrived = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await reader.read()

    async def run() -> None:
        async with Web({"/": PAGE, "/silent": silent}) as web, client() as one:
            under_way = asyncio.create_task(one.fetch(post(web.url("/silent"))))
            await arrived.wait()
            under_way.cancel()
            with pytest.raises(asyncio.CancelledError):
                await under_way
            assert (await one.fetch(post(web.url("/silent"), timeout=0.2))).outcome is Outcome.TIMEOUT
            with pytest.raises(ValueError, match="Host"):
                await one.fetch(post(web.url(), headers=(("Host", "inner.example"),)))
            assert (await one.fetch(ask(web.url()))).body == b"hi"
            assert web.heads[-1].startswith(b"GET / HTTP/1.1\r\n")
            assert b"ontent" not in web.heads[-1]

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_post_is_sent_once() -> None:
    """A connection rests, and the server hangs up on whoever posts: on that connection libcurl would have sent it again."""
    recorder = Recorder(hook=b"")
    sent: list[int] = []
    results: list[FetchResult] = []

    async def talk(one: HttpClient, web: Web) -> None:
        await one.fetch(ask(web.url("/get")))
        results.append(await one.fetch(post(web.url("/hook"), on_sent=lambda: sent.append(1))))
        results.extend([await one.fetch(ask(web.url("/get"))) for _ in range(2)])

    play(recorder, talk)
    assert [result.outcome for result in results] == [Outcome.CONNECTION_FAILED, Outcome.OK, Outcome.OK]
    assert [len(connection) for connection in recorder.connections] == [3, 1]
    assert len(sent) == 1


def test_a_connection_that_rests_makes_room_for_a_post() -> None:
    recorder = Recorder()
    outcomes: list[Outcome] = []

    async def talk(one: HttpClient, web: Web) -> None:
        requests = (ask(web.url("/get")), post(web.url("/hook")), ask(web.url("/get")))
        outcomes.extend([(await one.fetch(request)).outcome for request in requests])

    play(recorder, talk, connections=1)
    assert outcomes == [Outcome.OK] * 3


def test_what_was_posted_is_not_kept() -> None:
    body = bytes(1_000_000)
    before = sys.getrefcount(body)
    held: list[int] = []

    async def talk(one: HttpClient, web: Web) -> None:
        await one.fetch(post(web.url("/hook"), body))
        held.append(sys.getrefcount(body))

    play(Recorder(), talk)
    assert held == [before]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_answers(status: int) -> None:
    recorder = Recorder(hook=response(b"", f"{status} Moved", Location="/other"))
    results: list[FetchResult] = []

    async def talk(one: HttpClient, web: Web) -> None:
        results.append(await one.fetch(post(web.url("/hook"))))

    play(recorder, talk)
    assert [(result.outcome, result.redirect) for result in results] == [(Outcome.REDIRECT, "/other")]
    assert len(recorder.requests) == 1


@pytest.mark.parametrize("status", ["200 OK", "500 Oops"])
def test_a_long_answer_is_cut(status: str) -> None:
    recorder = Recorder(hook=response(b"x" * 1_000_000, status, "application/json"))
    results: list[FetchResult] = []

    async def talk(one: HttpClient, web: Web) -> None:
        results.append(await one.fetch(post(web.url("/hook"))))

    play(recorder, talk)
    assert [(len(result.body), result.cut) for result in results] == [(64 * 1024, True)]


@pytest.mark.parametrize(
    "headers",
    [
        (("X: y\r\nEvil", "1"),),
        (("", "1"),),
        (("X Y", "1"),),
        (("Empty", " \r\n"),),
        (("content-LENGTH", "9"),),
        (("Transfer-Encoding", "chunked"),),
        (("User-Agent", "me"),),
    ],
)
def test_headers_that_are_not_the_caller_s(headers: tuple[tuple[str, str], ...]) -> None:
    recorder = Recorder()

    async def talk(one: HttpClient, web: Web) -> None:
        with pytest.raises(ValueError, match="not a header"):
            await one.fetch(post(web.url("/hook"), headers=headers))

    play(recorder, talk)
    assert recorder.requests == []


def test_values_are_one_line_and_a_get_has_none() -> None:
    recorder = Recorder()
    heads: list[bytes] = []

    async def talk(one: HttpClient, web: Web) -> None:
        headers = (("X-Evil", "a\r\nHost: b\0\u2028é"), ("X-Colon", "a:"))
        heads.append((await one.fetch(post(web.url("/hook"), b"", headers=headers))).request_head)
        heads.append((await one.fetch(ask(web.url("/get"), headers=JSON))).request_head)

    play(recorder, talk)
    posted, got = recorder.requests
    assert [posted, got] == heads
    assert b"\r\nX-Evil: a Host: b ?\xe9\r\n" in posted
    assert posted.count(b"Host:") == 2
    assert b"Content-Type" not in posted
    assert b"X-Id" not in got


def test_nothing_private_is_posted_to() -> None:
    """By address and by name, and on a connection that somebody else was allowed to open."""

    async def run() -> None:
        names = NameServer({"loop.example": Record(("127.0.0.1",)), "moved.example": Record(("::ffff:127.0.0.1",))})
        async with Web({"/": PAGE}) as web, names, client(dns_servers=(names.address,)) as one:
            for host in ("127.0.0.1", "localhost", "2130706433", "[::1]", "loop.example", "moved.example"):
                result = await one.fetch(post(web.url("/", host), allow_private=False))
                assert (result.outcome, result.request_head) == (Outcome.ADDRESS_REFUSED, b"")
            assert web.connections == 0
            await one.fetch(ask(web.url("/")))
            assert (await one.fetch(post(web.url("/"), allow_private=False))).outcome is Outcome.ADDRESS_REFUSED
            assert len(web.heads) == 1

    asyncio.run(asyncio.wait_for(run(), 20))


def test_over_http2(tmp_path: Path) -> None:
    """A POST takes a connection of its own there, too."""
    certificate = Certificate.make(tmp_path)
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 site.example")

    async def run() -> None:
        web = Web(script=http2(b"two"), tls=certificate.context("h2"))
        async with web, client(hosts_file=hosts, ca_file=str(certificate.file)) as one:
            url = web.url("/", "site.example")
            results = [await one.fetch(request) for request in (ask(url), post(url), ask(url))]
            assert [(result.body, result.http_version) for result in results] == [(b"two", "2")] * 3
            assert web.connections == 2
            assert results[1].request_head.startswith(b"POST / HTTP/2\r\n")
            assert results[0].request_head == results[2].request_head

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_get_costs_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """libcurl is told the address of a page and nothing else, if nothing else has changed."""
    told: list[int] = []

    class Told(pycurl.Curl):  # type: ignore[misc]
        def setopt(self, option: int, value: object) -> None:
            told.append(option)
            super().setopt(option, value)

    monkeypatch.setattr(pycurl, "Curl", Told)
    recorder = Recorder()

    async def talk(one: HttpClient, web: Web) -> None:
        get = ask(web.url("/get"))
        for _ in range(2):  # looking up the host takes a part of the first one's time, so the second is told of another
            await one.fetch(get)
        for request in (get, post(web.url("/hook")), get, get):
            told.clear()
            await one.fetch(request)
            asked.append(list(told))

    asked: list[list[int]] = []
    play(recorder, talk)
    first, _, after_post, last = asked
    assert first == last == [pycurl.URL]
    assert after_post == [pycurl.URL, pycurl.HTTPHEADER, pycurl.MAXFILESIZE_LARGE]


def test_a_webhook_is_delivered_and_can_be_verified() -> None:
    recorder = Recorder()
    now = datetime.now(UTC)
    message = webhook.WebhookMessage("m-1", "task.completed", now, {"title": "\ud800\0", "pages": 3})
    results: list[FetchResult] = []

    async def talk(one: HttpClient, web: Web) -> None:
        wanted = webhook.delivery_request(
            web.url("/hook"), message, [b"new", b"old"], now, user_agent="Holdfast", allow_private=True
        )
        results.append(await one.fetch(wanted))

    play(recorder, talk)
    (request,) = recorder.requests
    fields = dict(line.split(b": ", 1) for line in request.split(b"\r\n\r\n")[0].split(b"\r\n")[1:])
    signature = fields[b"Holdfast-Signature"].decode()
    assert fields[b"Holdfast-Event"] == b"task.completed"
    assert body_of(request) == message.body()
    assert webhook.verify(signature, body_of(request), [b"old"], now + timedelta(minutes=1))
    assert webhook.decide_delivery(results[0], 1, 0.0, webhook.RetryPolicy()).next is webhook.NextStep.DELIVERED
