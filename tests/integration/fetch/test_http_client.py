"""The client against servers that behave: what is sent, what is kept, what is used again."""

import asyncio
import gzip
import os
import socket
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from holdfast.fetch.curl_transfer import MAX_ERROR_BODY_BYTES
from holdfast.model.content_type import ContentGroup
from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.request_secrets import SecretHeaders
from tests.support.web import Answer, Certificate, Web, ask, client, http2, response, then_close, then_reset


def fetch(answer: Answer, path: str = "/page", **more: Any) -> FetchResult:
    """What comes of one request to a server with one answer."""

    async def run() -> FetchResult:
        async with Web({path: answer}) as web, client() as one:
            return await one.fetch(ask(web.url(path), **more))

    return asyncio.run(run())


def test_a_page() -> None:
    heard: list[str] = []

    async def run() -> tuple[Web, FetchResult]:
        async with Web({"/page": response(b"<p>hello", ETag='"1"')}) as web, client() as one:
            url = f"{web.url('/page')}?q=%20#part"
            return web, await one.fetch(
                ask(url, on_sent=lambda: heard.append("sent"), on_answered=lambda: heard.append("answered"))
            )

    web, result = asyncio.run(run())
    assert (result.outcome, result.status, result.body, result.cut) == (Outcome.OK, 200, b"<p>hello", False)
    assert result.headers == {"content-length": "8", "content-type": "text/html", "etag": '"1"'}
    assert result.response_head + result.body == response(b"<p>hello", ETag='"1"')
    assert result.wire_bytes == len(response(b"<p>hello", ETag='"1"'))
    assert [result.request_head] == web.heads
    assert result.request_head.startswith(b"GET /page?q=%20 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert (result.address, result.http_version) == ("127.0.0.1", "1.1")
    assert result.duration > 0
    assert heard == ["sent", "answered"]


@pytest.mark.parametrize("warm", [False, True])
def test_a_request_is_withheld_when_it_may_not_go_out_any_more(warm: bool) -> None:
    """Asked when the connection stands, be it a new one or one that was used before; the server sees nothing of it."""

    async def run() -> tuple[Web, FetchResult, FetchResult]:
        async with Web({"/page": response(b"hi")}) as web, client() as one:
            url = web.url("/page")
            if warm:
                await one.fetch(ask(url))
            withheld = await one.fetch(ask(url, may_send=lambda: False, on_sent=lambda: pytest.fail("sent")))
            return web, withheld, await one.fetch(ask(url, may_send=lambda: True))

    web, withheld, after = asyncio.run(run())
    assert (withheld.withheld, withheld.status, withheld.request_head) == (True, None, b"")
    assert (after.withheld, after.outcome) == (False, Outcome.OK)
    assert len(web.heads) == 1 + warm


def test_secret_headers_are_sent_once_and_kept_without_their_values() -> None:
    """Also on a connection, and by a handle, that the next request uses again."""
    secret = SecretHeaders((b"Accept: text/x-own", b"X-Key: canary \xe4", b"Cookie: a=canary"))

    async def run() -> tuple[Web, list[FetchResult]]:
        async with Web({"/": response(b"hi")}) as web, client() as one:
            requests = [ask(web.url(), secret=secret), ask(web.url()), ask(web.url(), secret=secret, etag='"x"')]
            return web, [await one.fetch(request) for request in requests]

    web, results = asyncio.run(run())
    assert web.connections == 1
    assert [head.count(b"canary") for head in web.heads] == [2, 0, 2]
    assert [head.count(b"Accept: ") for head in web.heads] == [1, 1, 1]
    assert b"X-Key: canary \xe4\r\n" in web.heads[0]
    assert b'If-None-Match: "x"\r\n' in web.heads[2]
    assert results[0].request_head.endswith(b"Accept: [redacted]\r\nX-Key: [redacted]\r\nCookie: [redacted]\r\n\r\n")
    assert results[1].request_head == web.heads[1]
    assert b"canary" not in b"".join(result.request_head for result in results)
    assert "canary" not in repr(results)


def test_conditional_headers_are_one_line_each() -> None:
    async def run() -> tuple[Web, list[FetchResult]]:
        async with Web({"/": response(status="304 Not Modified")}) as web, client() as one:
            return web, [
                await one.fetch(ask(web.url(), etag='"x"\r\nEvil: 1', last_modified="Sun, 01 Mar 2026 12:01:00 GMT")),
                await one.fetch(ask(web.url())),
            ]

    web, (asked, unasked) = asyncio.run(run())
    assert asked.outcome is Outcome.NOT_MODIFIED
    assert [asked.request_head, unasked.request_head] == web.heads
    assert b'\r\nIf-None-Match: "x" Evil: 1\r\nIf-Modified-Since: Sun, 01 Mar 2026 12:01:00 GMT\r\n\r\n' in web.heads[0]
    assert b"If-" not in web.heads[1]
    assert unasked.outcome is Outcome.BAD_RESPONSE


def test_credentials_are_not_sent() -> None:
    async def run() -> bytes:
        async with Web({"/": response()}) as web, client() as one:
            await one.fetch(ask(web.url().replace("//", "//user:secret@")))
            return web.heads[0]

    head = asyncio.run(run())
    assert b"uthorization" not in head
    assert b"secret" not in head


def test_cookies_are_not_sent_back() -> None:
    async def run() -> list[bytes]:
        async with Web({"/": response(Set_Cookie="a=b; Path=/")}) as web, client() as one:
            for _ in range(2):
                await one.fetch(ask(web.url()))
            return web.heads

    assert not [head for head in asyncio.run(run()) if b"ookie" in head]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_answers(status: int) -> None:
    result = fetch(response(b"moved", f"{status} Moved", Location="../other?x=1#y"))
    assert (result.outcome, result.status, result.redirect) == (Outcome.REDIRECT, status, "../other?x=1#y")


def test_a_redirect_to_nowhere() -> None:
    result = fetch(response(b"", "302 Found"))
    assert (result.outcome, result.redirect) == (Outcome.CLIENT_ERROR, None)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("404 Gone", Outcome.NOT_FOUND), ("503 Busy", Outcome.UNAVAILABLE), ("429 Slow", Outcome.RATE_LIMITED)],
)
def test_errors(status: str, outcome: Outcome) -> None:
    result = fetch(response(b"no", status, content_type="application/json", Retry_After="120"))
    assert (result.outcome, result.body, result.retry_after) == (outcome, b"no", timedelta(seconds=120))
    assert result.detail == f"HTTP {status[:3]}"


def test_the_body_of_an_error_is_cut() -> None:
    result = fetch(response(b"x" * 200_000, "500 Oops"))
    assert (result.outcome, len(result.body), result.cut) == (Outcome.SERVER_ERROR, MAX_ERROR_BODY_BYTES, True)
    assert fetch(response(b"x" * (20 << 20), "500 Oops")).outcome is Outcome.SERVER_ERROR


@pytest.mark.parametrize(
    "content_type", ["text/html; charset=utf-8", "TEXT/HTML", "application/xhtml+xml", "text/plain", None, ""]
)
def test_types_that_can_be_parsed(content_type: str | None) -> None:
    assert fetch(response(b"body", content_type=content_type)).body == b"body"


@pytest.mark.parametrize("size", [4, 20 << 20])
@pytest.mark.parametrize("content_type", ["application/pdf", "image/png", "video/mp4; x=y", "application/json"])
def test_types_that_cannot(content_type: str, size: int) -> None:
    result = fetch(response(b"x" * size, content_type=content_type))
    assert (result.outcome, result.status, result.body) == (Outcome.WRONG_TYPE, 200, b"")
    assert result.headers["content-type"] == content_type
    assert result.response_head


@pytest.mark.parametrize(
    ("content_type", "body", "read"),
    [
        ("application/pdf", b"no PDF", True),
        ("application/octet-stream", b"%PDF-1.4", True),
        ("application/octet-stream", b"%PDF-1.4" + bytes(200_000), True),
        ("application/octet-stream", b"\x7fELF", False),
        ("application/octet-stream", b"\x7fELF" + bytes(200_000), False),
        ("application/octet-stream", b"", False),
        ("application/json", b"{}", False),
    ],
)
@pytest.mark.parametrize("encoding", [None, "gzip"])
def test_types_that_are_wanted_are_read_and_the_first_bytes_decide_where_a_type_says_nothing(
    content_type: str, body: bytes, read: bool, encoding: str | None
) -> None:
    sent = body if encoding is None else gzip.compress(body)
    headers = {} if encoding is None else {"Content-Encoding": encoding}
    result = fetch(response(sent, content_type=content_type, **headers), types=frozenset({ContentGroup.PDF}))
    expected = (Outcome.OK, body, "") if read else (Outcome.WRONG_TYPE, b"", content_type)
    assert (result.outcome, result.body, result.detail) == expected


def test_a_transfer_that_breaks_off_is_not_of_a_wrong_type() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 5000\r\n\r\n"
    result = fetch(then_close(head + b"half"), types=frozenset({ContentGroup.PDF}))
    assert (result.outcome, result.body) == (Outcome.BAD_RESPONSE, b"")


def test_any_type_may_be_asked_for() -> None:
    assert fetch(response(b"User-agent: *", content_type="application/json"), any_type=True).body == b"User-agent: *"


@pytest.mark.parametrize("chunked", [False, True])
def test_too_large(chunked: bool) -> None:
    answer: Answer = response(b"x" * 5000)
    if chunked:
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        answer = head + b"1388\r\n" + b"x" * 5000 + b"\r\n0\r\n\r\n"
    assert fetch(answer, max_bytes=5000).outcome is Outcome.OK
    result = fetch(answer, max_bytes=4999)
    assert (result.outcome, result.body, result.cut) == (Outcome.TOO_LARGE, b"", False)


def test_cut() -> None:
    result = fetch(response(b"x" * 5000), max_bytes=4999, cut=True)
    assert (result.outcome, len(result.body), result.cut) == (Outcome.OK, 4999, True)
    result = fetch(response(b"x" * 5000), max_bytes=5000, cut=True)
    assert (result.outcome, len(result.body), result.cut) == (Outcome.OK, 5000, False)


def test_interim_answers_and_trailers_are_left_out() -> None:
    final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: 1\r\n\r\n"
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n"
    result = fetch(interim + final + b"2\r\nhi\r\n0\r\nX: trailer\r\n\r\n")
    assert (result.outcome, result.body, result.response_head) == (Outcome.OK, b"hi", final)
    assert result.headers["x"] == "1"


@pytest.mark.parametrize(
    "url", ["ftp://h/", "http://", "http://a b/", "nonsense", "file:///etc/passwd", "http://a..b/"]
)
def test_urls_that_cannot_be_asked_for(url: str) -> None:
    async def run() -> FetchResult:
        async with client() as one:
            return await one.fetch(ask(url))

    assert asyncio.run(run()).outcome is Outcome.URL_REFUSED


@pytest.mark.parametrize("name", ["site.example", "SITE.example", "site.example."])
def test_connections_and_handles_are_used_again(tmp_path: Path, name: str) -> None:
    sent: list[int] = []

    async def run() -> tuple[Web, list[FetchResult]]:
        hosts = tmp_path / "hosts"
        hosts.write_text("127.0.0.1 site.example other.example")
        async with Web({"/": response(b"hi"), "/no": response(b"", "404 No")}) as web, client(hosts_file=hosts) as one:
            results = [
                await one.fetch(ask(web.url(path, name), on_sent=lambda: sent.append(1)))
                for path in ("/", "/no", "/", "/")
            ]
            assert len(one._free) == 1
            return web, results

    web, results = asyncio.run(run())
    assert [result.status for result in results] == [200, 404, 200, 200]
    assert web.connections == 1
    assert len(sent) == 4
    assert b"\r\nHost: site.example:" in web.heads[0]


def test_a_name_that_moves_is_followed(tmp_path: Path) -> None:
    """The pin of the request before does not stick, and of several addresses one that answers is enough."""

    async def run() -> list[Outcome]:
        hosts = tmp_path / "hosts"
        outcomes = []
        async with Web({"/": response(b"hi", Connection="close")}) as web, client(hosts_file=hosts) as one:
            for text in ("127.0.0.2 a.example", "127.0.0.1 a.example", "127.0.0.2 a.example\n127.0.0.1 a.example"):
                hosts.write_text(text)
                one._resolver._cache.clear()
                outcomes.append((await one.fetch(ask(web.url(host="a.example")))).outcome)
        return outcomes

    assert asyncio.run(run()) == [Outcome.CONNECTION_FAILED, Outcome.OK, Outcome.OK]


def test_a_connection_that_died_is_opened_again() -> None:
    """The server closes after each answer without a word: libcurl notices before it sends, or the next request opens another."""
    sent: list[int] = []

    async def run() -> list[FetchResult]:
        async with Web({"/": then_close(response(b"hi"))}) as web, client() as one:
            results = []
            for _ in range(5):
                results.append(await one.fetch(ask(web.url(), on_sent=lambda: sent.append(1))))
                await asyncio.sleep(0.01)
            return results

    results = asyncio.run(run())
    assert {result.outcome for result in results if not result.resend} == {Outcome.OK}
    assert not any(first.resend and second.resend for first, second in pairwise(results))
    assert len(sent) == 5


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_many_at_once(loop: Any) -> None:
    async def run() -> list[FetchResult]:
        async with Web({"/": response(b"hi")}) as web, client(connections=7) as one:
            results = await asyncio.gather(*(one.fetch(ask(web.url())) for _ in range(100)))
            assert web.connections <= 7
            return results

    with asyncio.Runner(loop_factory=loop) as runner:
        assert [result.body for result in runner.run(run())] == [b"hi"] * 100


def tls(tmp_path: Path, web: Web, certificate: Certificate | None, name: str = "site.example") -> FetchResult:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 site.example other.example")

    async def run() -> FetchResult:
        trusted = str(certificate.file) if certificate else None
        async with web, client(hosts_file=hosts, ca_file=trusted) as one:
            await one.fetch(ask(web.url(host=name)))
            return await one.fetch(ask(web.url(host=name)))

    return asyncio.run(run())


def test_tls_is_verified(tmp_path: Path) -> None:
    certificate = Certificate.make(tmp_path)
    page = {"/": response(b"secret")}
    good = tls(tmp_path, Web(page, tls=certificate.context()), certificate)
    assert (good.outcome, good.body, good.http_version) == (Outcome.OK, b"secret", "1.1")
    unknown = tls(tmp_path, Web(page, tls=certificate.context()), None)
    assert (unknown.outcome, unknown.body, unknown.request_head) == (Outcome.TLS_FAILURE, b"", b"")
    assert unknown.detail
    wrong_name = tls(tmp_path, Web(page, tls=certificate.context()), certificate, "other.example")
    assert wrong_name.outcome is Outcome.TLS_FAILURE
    assert (good.no_tls, unknown.no_tls, wrong_name.no_tls) == (False, False, False)


async def _hang_up(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Say nothing at all."""


@pytest.mark.parametrize(
    ("script", "no_tls"),
    [
        pytest.param(then_close(response(status="400 Bad Request")), True, id="plain HTTP"),
        pytest.param(then_close(b"SSH-2.0-x\r\n"), True, id="SSH"),
        pytest.param(_hang_up, False, id="hangs up"),
        pytest.param(then_reset(b""), False, id="a reset"),
        pytest.param(then_close(b"\x16\x03\x03\x00\x7a\x02\x00"), False, id="TLS that breaks off"),
    ],
)
def test_no_tls_where_there_should_be(script: Any, no_tls: bool) -> None:
    """Only an answer that is no TLS says so: a connection that breaks in the handshake may be the network's fault."""

    async def run() -> FetchResult:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            await script(reader, writer)
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, client() as one:
            return await one.fetch(ask(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"))

    result = asyncio.run(run())
    assert result.outcome in (Outcome.TLS_FAILURE, Outcome.CONNECTION_FAILED)
    assert result.no_tls is no_tls


def test_a_refused_connection_is_no_tls_over_https_only() -> None:
    async def run() -> list[bool]:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        async with client() as one:
            return [(await one.fetch(ask(f"{scheme}://127.0.0.1:{port}/"))).no_tls for scheme in ("https", "http")]

    assert asyncio.run(run()) == [True, False]


def test_http2(tmp_path: Path) -> None:
    certificate = Certificate.make(tmp_path)
    web = Web(script=http2(b"<p>two"), tls=certificate.context("h2"))
    result = tls(tmp_path, web, certificate)
    assert (result.outcome, result.body, result.http_version) == (Outcome.OK, b"<p>two", "2")
    assert result.response_head.startswith(b"HTTP/2 200")
    assert result.request_head.startswith(b"GET / HTTP/2\r\nHost: site.example:")
    assert web.connections == 1


def test_the_environment_s_proxy_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> tuple[Web, FetchResult]:
        async with Web() as proxy, Web({"/": response(b"hi")}) as web, client() as one:
            for name in ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url())
            assert os.environ["http_proxy"] == proxy.url()
            return proxy, await one.fetch(ask(web.url()))

    proxy, result = asyncio.run(run())
    assert (result.body, proxy.connections) == (b"hi", 0)


def test_nothing_is_left_after_closing() -> None:
    async def run() -> None:
        async with Web({"/": response(b"hi")}) as web, client() as one:
            await asyncio.gather(*(one.fetch(ask(web.url())) for _ in range(20)))

    asyncio.run(run())  # what a loop needs for itself is there from now on
    before = psutil.Process().num_fds()
    asyncio.run(run())
    assert psutil.Process().num_fds() == before
