"""Through proxies of every kind: what the site gets, what the proxy is told, which connections are used again."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.request_secrets import SecretHeaders
from tests.support import debian
from tests.support.proxied import PASSWORD, PROTOCOLS, PROXY, SITE, Site, certificate, ground, route
from tests.support.web import Certificate, Web, ask, client, http2, response

SCHEMES = ("http", "https")


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def tinyproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[debian.Server]:
    with debian.tinyproxy(tmp_path_factory.mktemp("tinyproxy")) as server:
        yield server


@pytest.fixture(scope="module")
def tinyproxy_login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[debian.Server]:
    with debian.tinyproxy(tmp_path_factory.mktemp("tinyproxy"), user="ann", password=PASSWORD) as server:
        yield server


@pytest.fixture(scope="module")
def dante(tmp_path_factory: pytest.TempPathFactory) -> Iterator[debian.Server]:
    with debian.danted(tmp_path_factory.mktemp("danted")) as server:
        yield server


def got_through(result: FetchResult) -> bool:
    return (result.outcome, result.status, result.body, result.fault) == (Outcome.OK, 200, b"hi", None)


@pytest.mark.parametrize("named", [False, True], ids=["address", "name"])
@pytest.mark.parametrize("user", [None, "ann"], ids=["open", "login"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_kind(tmp_path: Path, certified: Certificate, protocol: str, scheme: str, user: str, named: bool) -> None:
    """SOCKS 5 is told the address that we have found, all others the name. The proxy itself may be a name or an address."""
    password = PASSWORD if user else None

    async def run() -> None:
        async with ground(tmp_path, certified) as on, on.proxy(protocol, user=user, password=password) as proxy:
            way = proxy.route(user=user, password=password, host=PROXY if named else "127.0.0.1")
            url, web = on.url(scheme, "/?q=1"), on.web(scheme)
            result = await on.client.fetch(ask(url, route=way))
            assert got_through(result), result.detail
            assert result.address is None  # the proxy's is not the site's
            assert result.request_head.startswith(f"GET /?q=1 HTTP/1.1\r\nHost: {SITE}:{web.port}\r\n".encode())
            assert b"Proxy-" not in result.request_head + web.heads[0]
            (asked,) = proxy.log()
            host = "127.0.0.1" if protocol == "socks5" else SITE
            told = url if (scheme, protocol[:4]) == ("http", "http") else f"{host}:{web.port}"
            assert (asked["target"], asked["user"]) == (told, user)
            assert asked["did"] == ("forward" if told == url else "tunnel")

    asyncio.run(run())


def test_an_address_of_ipv6_is_told_as_one(tmp_path: Path, certified: Certificate) -> None:
    async def run() -> list[str]:
        async with ground(tmp_path, certified) as on:
            told = []
            for protocol in PROTOCOLS:
                async with on.proxy(protocol, hosts={"::1": "127.0.0.1"}) as proxy:
                    assert got_through(await on.client.fetch(ask(on.url("http", host="[::1]"), route=proxy.route())))
                    told += [each["target"].replace(str(on.plain.port), "PORT") for each in proxy.log()]
            return told

    assert asyncio.run(run()) == ["http://[::1]:PORT/"] * 2 + ["[::1]:PORT"] * 2


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_post(tmp_path: Path, certified: Certificate, protocol: str) -> None:
    """Sent once, whatever is between."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response(await reader.readexactly(5)))

    async def run() -> None:
        async with ground(tmp_path, certified, {"/": answer}) as on, on.proxy(protocol) as proxy:
            for scheme in SCHEMES:
                result = await on.client.fetch(ask(on.url(scheme), route=proxy.route(), post=b"five!"))
                assert (result.outcome, result.body) == (Outcome.OK, b"five!")
            assert (on.plain.connections, on.tls.connections, len(proxy.log())) == (1, 1, 2)

    asyncio.run(run())


def test_http2_through_a_tunnel(tmp_path: Path, certified: Certificate) -> None:
    async def run() -> FetchResult:
        web = Site(script=http2(b"two"), tls=certified.context("h2"))
        async with ground(tmp_path, certified) as on, on.proxy() as proxy, web:
            return await on.client.fetch(ask(web.url(host=SITE), route=proxy.route()))

    result = asyncio.run(run())
    assert (result.body, result.http_version, result.fault) == (b"two", "2", None)


@pytest.mark.parametrize("user", [None, "ann"])
def test_socks_is_offered_no_kerberos(user: str | None) -> None:
    """For that libcurl would ask servers that nobody has told it of."""
    greetings = []

    async def listen(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        greetings.append(await reader.read(100))

    async def run() -> None:
        async with Web(script=listen) as socks, client() as one:
            await one.fetch(ask("http://127.0.0.1:9/", route=route(socks.port, "socks5", user=user, password=user)))

    asyncio.run(run())
    assert set(greetings[0][2:]) == ({0, 2} if user else {0})


def test_a_proxy_that_is_asked_for_a_tunnel_is_told_no_secret() -> None:
    told = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    async def run() -> None:
        secret = SecretHeaders((b"X-Key: canary", b"Authorization: Basic canary"))
        async with Web(script=listen) as proxy, client() as one:
            await one.fetch(ask("https://127.0.0.1:9/", route=route(proxy.port), secret=secret))

    asyncio.run(run())
    assert told[0].startswith(b"CONNECT 127.0.0.1:9 ")
    assert b"canary" not in told[0]


# connections


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("protocol", [each for each in PROTOCOLS if each != "https"])
def test_a_connection_is_used_again_by_the_same_way_only(
    tmp_path: Path, certified: Certificate, protocol: str, scheme: str
) -> None:
    async def run() -> None:
        async with (
            ground(tmp_path, certified) as on,
            on.proxy(protocol, user="ann", password="a") as one,
            on.proxy(protocol) as two,
        ):
            ann, bob = one.route(user="ann", password="a"), one.route(user="bob", password="b")
            url = on.url(scheme)
            for way in (ann, two.route(), None, ann, two.route(), None):
                assert got_through(await on.client.fetch(ask(url, route=way)))
            tunnel = scheme == "https" or protocol != "http"
            assert [len(one.log()), len(two.log())] == ([1, 1] if tunnel else [2, 2])
            assert on.web(scheme).connections == (3 if tunnel else 5)
            # Another user of the same proxy gets no connection that the first has opened, and is not let in.
            stranger = await on.client.fetch(ask(url, route=bob))
            assert stranger.outcome is Outcome.PROXY_FAILED
            assert one.log()[-1]["user"] == "bob"

    asyncio.run(run())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_connection_that_died_is_opened_again(
    tmp_path: Path, certified: Certificate, protocol: str, scheme: str
) -> None:
    """What is read then is the site's answer, not the proxy's word that the tunnel stands."""
    pages = {"/": response(b"moved", "302 Found", Location="/there", X_Site="yes")}

    async def run() -> list[FetchResult]:
        async with ground(tmp_path, certified, pages) as on, on.proxy(protocol) as proxy:
            results = []
            for _ in range(4):
                result = await on.client.fetch(ask(on.url(scheme), route=proxy.route()))
                if result.resend:  # libcurl had not noticed it yet; now it has
                    result = await on.client.fetch(ask(on.url(scheme), route=proxy.route()))
                results.append(result)
                await proxy.behave("drop")  # ends what stands, without a word
                await proxy.behave("work")
            return results

    for result in asyncio.run(run()):
        assert (result.outcome, result.status, result.redirect) == (Outcome.REDIRECT, 302, "/there")
        assert result.headers["x-site"] == "yes"
        assert result.fault is None


def test_a_handle_forgets_the_proxy(tmp_path: Path, certified: Certificate) -> None:
    """One handle serves all requests in turn: no password, no pin and no proxy stays from the one before."""

    async def run() -> None:
        async with (
            ground(tmp_path, certified) as on,
            on.proxy(user="ann", password="a") as closed,
            on.proxy("socks5") as socks,
        ):
            ways: list[Any] = [closed.route(user="ann", password="a"), socks.route(host=PROXY), None]
            for way in [*ways, *reversed(ways)]:
                result = await on.client.fetch(ask(on.url("http"), route=way))
                assert got_through(result)
                assert result.address == (None if way else "127.0.0.1")
            nobody = await on.client.fetch(ask(on.url("http"), route=closed.route()))
            assert nobody.outcome is Outcome.PROXY_FAILED
            assert [each["user"] for each in closed.log()] == ["ann", "ann", None]
            assert len(on.client._free) == 1

    asyncio.run(run())


# real ones


def real(tmp_path: Path, certified: Certificate, way: Any, *, host: str = "localhost", scheme: str) -> FetchResult:
    async def run() -> FetchResult:
        async with ground(tmp_path, certified) as on:
            result = await on.client.fetch(ask(on.url(scheme, host=host), route=way))
            assert on.web(scheme).connections == (result.outcome is Outcome.OK)
            return result

    return asyncio.run(run())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tinyproxy(tmp_path: Path, certified: Certificate, tinyproxy: debian.Server, scheme: str) -> None:
    assert got_through(real(tmp_path, certified, route(tinyproxy.port), scheme=scheme))
    assert ("CONNECT localhost:" if scheme == "https" else "GET http://localhost:") in tinyproxy.log()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tinyproxy_with_a_login(
    tmp_path: Path, certified: Certificate, tinyproxy_login: debian.Server, scheme: str
) -> None:
    way = route(tinyproxy_login.port, user="ann", password=PASSWORD)
    assert got_through(real(tmp_path, certified, way, scheme=scheme))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("protocol", ["socks5", "socks5h"])
def test_dante(tmp_path: Path, certified: Certificate, dante: debian.Server, protocol: str, scheme: str) -> None:
    """It has no hosts file of ours: by SOCKS 5 it is told the address of a name that it could not find."""
    host = SITE if protocol == "socks5" else "localhost"
    assert got_through(real(tmp_path, certified, route(dante.port, protocol), host=host, scheme=scheme))
    assert "tcp/connect" in dante.log()
