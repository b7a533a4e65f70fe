"""A kept-alive connection that breaks: libcurl would send the request again at once; each request reaches the server once."""

import asyncio
from pathlib import Path

import pytest

from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import ProxyFault
from tests.support.proxied import SITE, Site, certificate, ground, route
from tests.support.web import Certificate, Script, Web, ask, client, frame, http2, response, then_close, then_reset


def second_resets(seen: list[bytes], how: Script) -> Script:
    """Answer the first request of a connection, and end every connection at its second."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(response(b"hi"))
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        await how(reader, writer)

    return script


@pytest.mark.parametrize("how", [then_reset(b""), then_close(b"")], ids=["reset", "closed"])
@pytest.mark.parametrize("over", ["http", "https"])
def test_a_request_is_sent_once(tmp_path: Path, how: Script, over: str) -> None:
    seen: list[bytes] = []
    sent: list[int] = []
    tls = Certificate.make(tmp_path) if over == "https" else None
    (tmp_path / "hosts").write_text("127.0.0.1 site.example")

    async def run() -> list[FetchResult]:
        web = Web(script=second_resets(seen, how), tls=tls.context() if tls else None)
        trusted = str(tls.file) if tls else None
        async with web, client(hosts_file=tmp_path / "hosts", ca_file=trusted) as one:
            url = web.url(host="site.example")
            return [await one.fetch(ask(url, on_sent=lambda: sent.append(1))) for _ in range(6)]

    results = asyncio.run(run())
    assert (len(seen), len(sent)) == (6, 6), "requests at the server, and those that the pace knows of"
    assert [(each.outcome, each.resend) for each in results] == [
        (Outcome.OK, False),
        (Outcome.CONNECTION_FAILED, True),
    ] * 3
    assert not any(each.no_tls for each in results)
    assert results[1].detail == "a reused connection broke before the answer; the URL is requested again in its turn"


def test_a_connection_that_is_not_kept_is_not_a_resend() -> None:
    """A server that hangs up on the first request of a connection has failed, and libcurl does not send again."""

    async def run() -> FetchResult:
        async with Web({"/": then_reset(b"")}) as web, client() as one:
            return await one.fetch(ask(web.url()))

    result = asyncio.run(run())
    assert (result.outcome, result.resend) == (Outcome.CONNECTION_FAILED, False)


@pytest.mark.parametrize("how", ["refused stream", "going away", "HTTP/1.1 required"])
def test_over_http2(tmp_path: Path, how: str) -> None:
    """A server may refuse a stream, end the connection, or want HTTP/1.1; a request with a connection of its own is HTTP/1.1."""
    certificate = Certificate.make(tmp_path)
    (tmp_path / "hosts").write_text("127.0.0.1 site.example")
    seen: list[int] = []

    def refuse(stream: int) -> bytes | None:
        seen.append(stream)
        if stream == 1 and how != "HTTP/1.1 required":
            return None
        if how == "going away":  # stream 1 was the last that it has dealt with
            return frame(7, 0, 0, (1).to_bytes(4, "big") + bytes(4))
        return frame(3, 0, stream, (7 if how == "refused stream" else 13).to_bytes(4, "big"))

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2":
            await http2(b"two", refuse)(reader, writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response(b"one"))
        await reader.read()

    async def run() -> list[FetchResult]:
        web = Web(script=script, tls=certificate.context("h2", "http/1.1"))
        async with web, client(hosts_file=tmp_path / "hosts", ca_file=str(certificate.file)) as one:
            url = web.url(host="site.example")
            results = [await one.fetch(ask(url)) for _ in range(2)]
            return [*results, await one.fetch(ask(url, fresh=True))]

    first, second, alone = asyncio.run(run())
    assert len(seen) == 2, "each request reached the server once"
    if how != "HTTP/1.1 required":
        assert (first.outcome, first.http_version) == (Outcome.OK, "2")
    assert (second.outcome, second.resend) == (Outcome.CONNECTION_FAILED, True)
    assert (alone.outcome, alone.http_version, alone.body) == (Outcome.OK, "1.1", b"one")


def test_a_fresh_request_shares_no_connection() -> None:
    """Neither one that rests, nor its own with those after it; then connections are kept as before."""

    async def run() -> int:
        async with Web({"/": response(b"hi")}) as web, client() as one:
            for fresh in (False, True, True, False, False):
                assert (await one.fetch(ask(web.url(), fresh=fresh))).outcome is Outcome.OK
            return web.connections

    assert asyncio.run(run()) == 3


@pytest.mark.parametrize("way", ["a proxy that breaks", "a tunnel", "SOCKS"])
def test_through_a_proxy(tmp_path: Path, way: str) -> None:
    """It may be the proxy's fault as well as the site's. CONNECT is not a request to the site, and is sent for each tunnel."""
    certified = certificate(tmp_path)
    seen: list[bytes] = []

    async def run() -> list[FetchResult]:
        async with ground(tmp_path, certified) as on, on.proxy("socks5" if way == "SOCKS" else "http") as proxy:
            tls = certified.context() if way == "a tunnel" else None
            async with Site(script=second_resets(seen, then_reset(b"")), tls=tls) as web:
                direct = way == "a proxy that breaks"  # the same server, which is asked for a URL of another
                url = on.url("http") if direct else web.url(host=SITE)
                through = route(web.port) if direct else proxy.route()
                return [await on.client.fetch(ask(url, route=through)) for _ in range(4)]

    results = asyncio.run(run())
    assert len(seen) == 4
    assert [each.outcome for each in results] == [Outcome.OK, Outcome.CONNECTION_FAILED] * 2
    assert [(each.resend, each.fault) for each in results] == [(False, None), (True, ProxyFault.UNCLEAR)] * 2
