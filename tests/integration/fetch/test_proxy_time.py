"""Proxies that let us wait: which part of the time was whose, and that no wait is without an end."""

import asyncio
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.fetch.dns import Resolved, Resolver
from holdfast.fetch.http_client import HttpClient
from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import ProxyFault, ProxyRoute
from holdfast.settings import Fetch
from holdfast.testing.simweb.proxy_process import ProxyProcess
from tests.support.nameserver import BROKEN, NOWHERE, SILENT, NameServer
from tests.support.proxied import PROTOCOLS, PROXY, SITE, Site, certificate, ground, route
from tests.support.web import Answer, Certificate, ask, client, endless, response, then_hang

Said = tuple[Outcome, ProxyFault | None]
FAILED: Said = (Outcome.PROXY_FAILED, ProxyFault.PROXY)
LATE: Said = (Outcome.TIMEOUT, ProxyFault.UNCLEAR)
SHORT = 0.3
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a full queue does not keep connections waiting")


def said(result: FetchResult) -> Said:
    return result.outcome, result.fault


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificate"))


@contextmanager
def deaf() -> Iterator[int]:
    """A port where connections are neither taken nor refused."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(listening.getsockname())
        time.sleep(0.05)
        try:
            yield listening.getsockname()[1]
        finally:
            for each in waiting:
                each.close()


class Slow(Resolver):
    """Takes its time, and with *rude* the whole loop's."""

    def __init__(self, seconds: float, *, rude: bool = False) -> None:
        super().__init__(Fetch())
        self._seconds, self._rude = seconds, rude

    def cached(self, host: str, *, allow_private: bool) -> Resolved | None:
        return None if host == SITE else super().cached(host, allow_private=allow_private)

    async def resolve(self, host: str, *, allow_private: bool) -> Resolved:
        if host != SITE:
            return await super().resolve(host, allow_private=allow_private)
        if self._rude:
            time.sleep(self._seconds)  # noqa: ASYNC251
        else:
            await asyncio.sleep(self._seconds)
        return Resolved(("127.0.0.1",), pin="127.0.0.1")


@LINUX
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_proxy_that_does_not_take_connections(protocol: str) -> None:
    async def run() -> Said:
        with deaf() as port:
            async with client(connect_timeout=0.2) as one:
                return said(await one.fetch(ask("http://127.0.0.1:9/", route=route(port, protocol), timeout=5)))

    assert asyncio.run(run()) == FAILED


@LINUX
def test_a_proxy_that_was_left_no_time() -> None:
    async def run() -> Said:
        with deaf() as port:
            async with Slow(0.6) as resolver, HttpClient(Fetch(), resolver) as one:
                return said(await one.fetch(ask(f"http://{SITE}:9/", route=route(port), timeout=1.0)))

    assert asyncio.run(run()) == LATE


@pytest.mark.parametrize("way", [None, route(9), route(9, "socks5")], ids=["direct", "http", "socks5"])
def test_a_lookup_that_took_all_the_time_leaves_none_and_not_all(way: ProxyRoute | None) -> None:
    """Nothing left is not "no limit"."""

    async def run() -> FetchResult:
        async with Slow(0.2, rude=True) as resolver, HttpClient(Fetch(), resolver) as one:
            return await one.fetch(ask(f"http://{SITE}:9/", route=way, timeout=0.1))

    result = asyncio.run(run())
    assert (said(result), result.duration < 1) == ((Outcome.TIMEOUT, None), True)


@pytest.mark.parametrize(
    ("answer", "expected"), [(NOWHERE, FAILED), (BROKEN, FAILED), (SILENT, LATE)], ids=["nowhere", "broken", "silent"]
)
def test_a_proxy_whose_name_leads_nowhere(answer: Any, expected: Said) -> None:
    async def run() -> Said:
        async with NameServer({PROXY: answer}) as names, client(dns_servers=(names.address,)) as one:
            way = route(9, host=PROXY)
            return said(await one.fetch(ask("http://127.0.0.1:9/", route=way, timeout=SHORT)))

    assert asyncio.run(run()) == expected


@pytest.mark.parametrize("what", ["freeze", "kill"])
@pytest.mark.parametrize("protocol", ["http", "socks5h"])
def test_a_proxy_that_stops_in_the_middle_of_a_page(tmp_path: Path, protocol: str, what: str) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000000\r\n\r\n"

    async def run(proxy: ProxyProcess) -> FetchResult:
        there = asyncio.Event()
        async with Site({"/": endless(head, b"x" * 100, 0.01)}) as web, client() as one:
            way = route(proxy.address[1], protocol)
            asked = ask(web.url(), route=way, timeout=1.5, on_answered=there.set)
            fetching = asyncio.create_task(one.fetch(asked))
            await asyncio.wait_for(there.wait(), 20)
            getattr(proxy, what)()
            return await fetching

    with ProxyProcess(tmp_path, name="stops", protocol=protocol) as proxy:
        result = asyncio.run(run(proxy))
    assert (result.fault, result.status, result.body) == (ProxyFault.UNCLEAR, 200, b"")
    assert result.outcome in (
        {Outcome.TIMEOUT} if what == "freeze" else {Outcome.BAD_RESPONSE, Outcome.CONNECTION_FAILED}
    )


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_site_that_hangs_on_a_connection_that_stood(
    tmp_path: Path, certified: Certificate, protocol: str, scheme: str
) -> None:
    """No time was needed to connect, which is not to say that the proxy could not be connected to."""

    async def run() -> Said:
        pages: dict[str, Answer] = {"/": response(b"hi"), "/hang": then_hang(b"")}
        async with ground(tmp_path, certified, pages) as on, on.proxy(protocol) as proxy:
            for seconds in (SHORT, 3.0):  # more for a machine that is busy
                for path in ("/", "/hang"):
                    way, most = proxy.route(), 20.0 if path == "/" else seconds
                    result = await on.client.fetch(ask(on.url(scheme, path), route=way, timeout=most))
                if said(result) == LATE:
                    break
            return said(result)

    assert asyncio.run(run()) == LATE
