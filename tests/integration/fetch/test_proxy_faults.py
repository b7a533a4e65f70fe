"""Proxies that fail, and sites that fail behind them: what is said of the proxy, and what of the site."""

import asyncio
import gzip
import socket
from pathlib import Path

import pytest

from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import ProxyFault
from tests.support import debian
from tests.support.proxied import PASSWORD, PROTOCOLS, SITE, certificate, ground, route
from tests.support.web import Answer, Certificate, ask, client, response

Said = tuple[Outcome, ProxyFault | None]
FAILED: Said = (Outcome.PROXY_FAILED, ProxyFault.PROXY)
LOST: Said = (Outcome.CONNECTION_FAILED, ProxyFault.UNCLEAR)
LATE: Said = (Outcome.TIMEOUT, ProxyFault.UNCLEAR)
ERROR: Said = (Outcome.SERVER_ERROR, ProxyFault.UNCLEAR)
SCHEMES = ("http", "https")
SHORT = 0.3

ALIKE: dict[str, Said] = {"refuse": FAILED, "wrong_password": FAILED, "drop": LOST, "hang": LATE}
READING: dict[str, Said] = {
    **ALIKE,
    "garbage": (Outcome.BAD_RESPONSE, ProxyFault.UNCLEAR),
    "401": (Outcome.LOGIN_WALL, None),
    "403": (Outcome.FORBIDDEN, None),
    "404": (Outcome.NOT_FOUND, None),
    "407": FAILED,
    "500": ERROR,
    "502": ERROR,
    "503": (Outcome.UNAVAILABLE, ProxyFault.UNCLEAR),
    "504": ERROR,
}
"""What is said of requests that a proxy reads, and may answer as if it were the site."""
CONNECTING: dict[str, Said] = {
    **ALIKE,
    **dict.fromkeys(("garbage", "401", "403", "407"), FAILED),
    **dict.fromkeys(("404", "500", "502", "503", "504"), LOST),
}
"""Of tunnels that do not come about."""


def said(result: FetchResult) -> Said:
    return result.outcome, result.fault


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificate"))


@pytest.mark.parametrize("used", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_way_to_fail(tmp_path: Path, certified: Certificate, protocol: str, scheme: str, used: bool) -> None:
    """Whether it is met at once, or on a way that was good a moment ago."""
    expected = READING if (protocol[:4], scheme) == ("http", "http") else CONNECTING
    if protocol.startswith("socks"):
        expected = {**expected, "401": LOST}  # SOCKS has no word for it, and calls it a general failure

    async def run() -> dict[str, Said]:
        found = {}
        async with ground(tmp_path, certified) as on, on.proxy(protocol) as proxy:
            for what in expected:
                if used:
                    await proxy.behave("work")
                    assert said(await on.client.fetch(ask(on.url(scheme), route=proxy.route()))) == (Outcome.OK, None)
                status = int(what) if what.isdigit() else 0
                await proxy.behave("status" if status else what, status=status)
                for seconds in (SHORT, 3.0) if what == "hang" else (20.0,):  # more for a machine that is busy
                    for _ in range(2):
                        result = await on.client.fetch(ask(on.url(scheme), route=proxy.route(), timeout=seconds))
                        if not result.resend:  # else a connection broke that stood before the proxy behaved so
                            break
                    if said(result) == expected[what]:
                        break
                found[what] = said(result)
                assert result.detail
                if result.fault is ProxyFault.PROXY:  # nothing of it as if the site had said it
                    assert (result.status, result.headers, result.body, result.response_head) == (None, {}, b"", b"")
        return found

    assert asyncio.run(run()) == expected


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_password_that_is_wrong(tmp_path: Path, certified: Certificate, protocol: str, scheme: str) -> None:
    async def run() -> list[Said]:
        async with ground(tmp_path, certified) as on, on.proxy(protocol, user="ann", password=PASSWORD) as proxy:
            ways = (proxy.route(), proxy.route(user="ann", password="x"), proxy.route(user="bob", password=PASSWORD))
            found = [said(await on.client.fetch(ask(on.url(scheme), route=way))) for way in ways]
            assert on.web(scheme).connections == 0
            assert {each["did"] for each in proxy.log()} == {"unknown user"}
            return found

    assert asyncio.run(run()) == [FAILED] * 3


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_site_that_refuses(tmp_path: Path, certified: Certificate, protocol: str, scheme: str) -> None:
    async def run() -> Said:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            url = f"{scheme}://{SITE}:{nobody.getsockname()[1]}/"
            async with ground(tmp_path, certified) as on, on.proxy(protocol) as proxy:
                return said(await on.client.fetch(ask(url, route=proxy.route())))

    assert asyncio.run(run()) == (ERROR if (protocol[:4], scheme) == ("http", "http") else LOST)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_errors_of_a_site_through_a_tunnel_are_the_site_s(
    tmp_path: Path, certified: Certificate, protocol: str
) -> None:
    """Also on a tunnel that stood, and also 407, which elsewhere only a proxy says."""
    expected = {
        401: Outcome.LOGIN_WALL,
        403: Outcome.FORBIDDEN,
        404: Outcome.NOT_FOUND,
        407: Outcome.LOGIN_WALL,
        500: Outcome.SERVER_ERROR,
        503: Outcome.UNAVAILABLE,
    }
    pages = {f"/{status}": response(b"no", f"{status} No") for status in expected}

    async def run() -> list[Said]:
        async with ground(tmp_path, certified, pages) as on, on.proxy(protocol, user="u", password="p") as proxy:
            way = proxy.route(user="u", password="p")
            found = [said(await on.client.fetch(ask(on.url("https", f"/{each}"), route=way))) for each in expected]
            assert on.tls.connections == 1
            return found

    assert asyncio.run(run()) == [(outcome, None) for outcome in expected.values()]


def test_a_401_where_we_gave_a_name_may_be_the_proxy_s(tmp_path: Path, certified: Certificate) -> None:
    async def run() -> list[Said]:
        pages = {"/": response(b"no", "401 No")}
        async with ground(tmp_path, certified, pages) as on, on.proxy() as proxy:
            ways = (proxy.route(), proxy.route(user="ann", password="a"))
            return [said(await on.client.fetch(ask(on.url("http"), route=way))) for way in ways]

    assert asyncio.run(run()) == [(Outcome.LOGIN_WALL, None), (Outcome.LOGIN_WALL, ProxyFault.UNCLEAR)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_we_do_not_want_of_a_page_is_no_fault(tmp_path: Path, certified: Certificate, scheme: str) -> None:
    packed = gzip.compress(bytes(50_000))
    pages: dict[str, Answer] = {
        "/large": response(b"x" * 50_000),
        "/type": response(b"x" * 50_000, content_type="image/png"),
        "/packed": response(b"no gzip", Content_Encoding="gzip"),
        "/over": response(packed, Content_Encoding="gzip"),
        "/error": response(b"x" * 500_000, "404 Gone"),
    }
    expected = {
        "/large": Outcome.TOO_LARGE,
        "/type": Outcome.WRONG_TYPE,
        "/packed": Outcome.BAD_ENCODING,
        "/over": Outcome.TOO_LARGE,
        "/error": Outcome.NOT_FOUND,
    }

    async def run() -> None:
        async with ground(tmp_path, certified, pages) as on, on.proxy() as proxy:
            for path, outcome in expected.items():
                result = await on.client.fetch(ask(on.url(scheme, path), route=proxy.route(), max_bytes=10_000))
                assert said(result) == (outcome, None), path
            result = await on.client.fetch(
                ask(on.url(scheme, "/large"), route=proxy.route(), max_bytes=10_000, cut=True)
            )
            assert (said(result), result.cut) == ((Outcome.OK, None), True)

    asyncio.run(run())


# TLS


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tls_to_a_proxy_that_speaks_none(tmp_path: Path, certified: Certificate, scheme: str) -> None:
    async def run() -> Said:
        async with ground(tmp_path, certified) as on, on.proxy("http") as proxy:
            return said(await on.client.fetch(ask(on.url(scheme), route=proxy.route("https"), timeout=5)))

    assert asyncio.run(run()) == FAILED


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("wrong", ["unknown", "name"])
def test_a_proxy_s_certificate_is_verified(tmp_path: Path, certified: Certificate, wrong: str, scheme: str) -> None:
    async def run() -> tuple[Said, int]:
        async with (
            ground(tmp_path, certified, hosts=f"127.0.0.1 {SITE} other.example") as on,
            on.proxy("https") as proxy,
            client(hosts_file=tmp_path / "hosts") as stranger,
        ):
            asks = stranger if wrong == "unknown" else on.client
            way = proxy.route(host="other.example" if wrong == "name" else "127.0.0.1", user="u", password="p")
            return said(await asks.fetch(ask(on.url(scheme), route=way))), len(proxy.log())

    assert asyncio.run(run()) == (FAILED, 0)


def test_a_site_s_certificate_is_verified_through_a_tunnel(tmp_path: Path, certified: Certificate) -> None:
    async def run() -> None:
        async with ground(tmp_path, certified, hosts="127.0.0.1 other.example") as on:
            for protocol in PROTOCOLS:
                async with on.proxy(protocol, hosts={"other.example": "127.0.0.1"}) as proxy:
                    url = on.url("https", host="other.example")
                    result = await on.client.fetch(ask(url, route=proxy.route()))
                    assert said(result) == (Outcome.TLS_FAILURE, ProxyFault.UNCLEAR)
                    assert proxy.log()[0]["did"] == "tunnel"
            assert on.tls.heads == []

    asyncio.run(run())


# real ones


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tinyproxy_before_a_site_that_refuses(tmp_path: Path, scheme: str) -> None:
    async def run(port: int) -> Said:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            async with client() as one:
                url = f"{scheme}://127.0.0.1:{nobody.getsockname()[1]}/"
                return said(await one.fetch(ask(url, route=route(port))))

    with debian.tinyproxy(tmp_path) as proxy:
        assert asyncio.run(run(proxy.port)) == (ERROR if scheme == "http" else LOST)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tinyproxy_that_does_not_know_us(tmp_path: Path, scheme: str) -> None:
    """It says 407 to those who give no name, and 401, as a site would, to those who give a wrong password."""

    async def run(port: int) -> list[Said]:
        async with client() as one:
            ways = (route(port), route(port, user="ann", password="x"))
            return [said(await one.fetch(ask(f"{scheme}://127.0.0.1:9/", route=way))) for way in ways]

    with debian.tinyproxy(tmp_path, user="ann", password=PASSWORD) as proxy:
        doubt = (Outcome.LOGIN_WALL, ProxyFault.UNCLEAR) if scheme == "http" else FAILED
        assert asyncio.run(run(proxy.port)) == [FAILED, doubt]


def test_dante(tmp_path: Path) -> None:
    """Before a site that refuses, and before an address that its rules do not allow."""

    async def run(port: int) -> list[Said]:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            async with client() as one:
                urls = [f"http://{host}:{nobody.getsockname()[1]}/" for host in ("127.0.0.1", "127.0.0.2")]
                return [said(await one.fetch(ask(url, route=route(port, "socks5")))) for url in urls]

    with debian.danted(tmp_path) as proxy:
        assert asyncio.run(run(proxy.port)) == [LOST, FAILED]
