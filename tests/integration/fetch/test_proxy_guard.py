"""What may not happen with proxies: private addresses, other people's proxies, passwords in words."""

import asyncio
import base64
import logging
import os
from pathlib import Path

import pycurl
import pytest

from holdfast.fetch.curl_transfer import CurlTransfer, TransferSpec
from holdfast.fetch.dns import Resolved, Resolver
from holdfast.fetch.http_client import HttpClient
from holdfast.fetch.response import BufferedBytes
from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from holdfast.model.proxy import ProxyFault
from holdfast.settings import Fetch
from tests.support.nameserver import Answer, NameServer
from tests.support.proxied import PROTOCOLS, PROXY, SITE, certificate, ground, route
from tests.support.web import Certificate, Web, ask, client, response

SCHEMES = ("http", "https")
PRIVATE = {
    "loop.example": Answer(("127.0.0.1",)),
    "net.example": Answer(("10.0.0.1", "192.168.1.1")),
    "meta.example": Answer(("169.254.169.254", "fd00:ec2::254")),
    "mapped.example": Answer(("::ffff:127.0.0.1",)),
    "alias.example": Answer(("127.0.0.1",), alias="inner.example"),
}
LITERALS = (
    "127.0.0.1",
    "2130706433",
    "0x7f.1",
    "169.254.169.254",
    "[::1]",
    "[::ffff:7f00:1]",
    "localhost",
    "a.localhost",
)
PUBLIC = "198.20.0.1"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("certificate"))


# where requests may go


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_proxy_does_not_hear_of_private_addresses(
    tmp_path: Path, certified: Certificate, protocol: str, scheme: str
) -> None:
    async def run() -> None:
        async with (
            NameServer(PRIVATE) as names,
            ground(tmp_path, certified, dns_servers=(names.address,)) as on,
            on.proxy(protocol) as proxy,
        ):
            for host in (*PRIVATE, *LITERALS):
                url = on.url(scheme, host=host)
                result = await on.client.fetch(ask(url, route=proxy.route(), allow_private=False))
                assert (result.outcome, result.fault) == (Outcome.ADDRESS_REFUSED, None), host
            assert (proxy.log(), on.web(scheme).connections) == ([], 0)

    asyncio.run(run())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_a_name_only_public_addresses_are_told(tmp_path: Path, certified: Certificate, protocol: str) -> None:
    """All but SOCKS 5 are told the name. No proxy follows a redirect for us, and no client either."""
    pages = {"/": response(b"", "302 Found", Location="http://127.0.0.1/secret")}
    records = {SITE: Answer((PUBLIC, "127.0.0.1"))}

    async def run() -> None:
        async with (
            NameServer(records) as names,
            ground(tmp_path, certified, pages, hosts="", dns_servers=(names.address,)) as on,
            on.proxy(protocol, hosts={PUBLIC: "127.0.0.1"}) as proxy,
        ):
            result = await on.client.fetch(ask(on.url("https"), route=proxy.route(), allow_private=False))
            assert (result.outcome, result.redirect) == (Outcome.REDIRECT, "http://127.0.0.1/secret")
            told = PUBLIC if protocol == "socks5" else SITE
            assert [each["target"] for each in proxy.log()] == [f"{told}:{on.tls.port}"]

    asyncio.run(run())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_proxy_that_resolves_is_told_names(
    tmp_path: Path, certified: Certificate, protocol: str, scheme: str
) -> None:
    """Nobody here asks for them. Addresses, and what is this machine to everybody, are refused as ever."""

    async def run() -> None:
        async with (
            NameServer({SITE: Answer(("127.0.0.1",))}) as names,
            ground(tmp_path, certified, hosts="", dns_servers=(names.address,)) as on,
            on.proxy(protocol) as proxy,
        ):
            way = proxy.route(resolves=True)
            result = await on.client.fetch(ask(on.url(scheme), route=way, allow_private=False))
            assert (result.outcome, result.body) == (Outcome.OK, b"hi")
            assert SITE in proxy.log()[0]["target"]
            for host in LITERALS:
                result = await on.client.fetch(ask(on.url(scheme, host=host), route=way, allow_private=False))
                assert result.outcome is Outcome.ADDRESS_REFUSED, host
            assert (names.asked, len(proxy.log())) == ([], 1)

    asyncio.run(run())


# where proxies may be


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "loop.example", "mapped.example"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_proxy_at_a_private_address_needs_a_word(protocol: str, host: str) -> None:
    async def run() -> None:
        async with Web() as canary, NameServer(PRIVATE) as names, client(dns_servers=(names.address,)) as one:
            for scheme in SCHEMES:
                way = route(canary.port, protocol, host=host, allow_private=False)
                result = await one.fetch(ask(f"{scheme}://127.0.0.1:9/", route=way))
                assert (result.outcome, result.fault) == (Outcome.PROXY_FAILED, ProxyFault.PROXY)
                assert "loopback" in result.detail
            assert canary.connections == 0

    asyncio.run(run())


class Fooled(Resolver):
    """Says loopback of everything, whoever asks."""

    def cached(self, _host: str, *, allow_private: bool) -> Resolved:
        assert allow_private in (False, True)
        return Resolved(("127.0.0.1",), pin="127.0.0.1")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_socket_to_a_proxy_is_guarded_too(tmp_path: Path, certified: Certificate, protocol: str) -> None:
    """Also if it stands, since another request may go there."""

    async def run() -> None:
        settings = Fetch()
        trusted = str(certified.file)
        async with (
            ground(tmp_path, certified) as on,
            on.proxy(protocol) as proxy,
            HttpClient(settings, Fooled(settings), ca_file=trusted) as one,
        ):
            good, bad = (proxy.route(host=PROXY, allow_private=allowed) for allowed in (True, False))
            for way in (bad, good, bad):
                result = await one.fetch(ask(on.url("https"), route=way))
                assert result.outcome is (Outcome.OK if way is good else Outcome.PROXY_FAILED)
                if way is bad:
                    assert (result.fault, result.detail) == (
                        ProxyFault.PROXY,
                        "cannot connect to the proxy: 127.0.0.1 is loopback",
                    )
            assert (len(proxy.log()), len(on.tls.heads)) == (1, 1)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("protocol", "known"),
    [(each, "other.example") for each in PROTOCOLS] + [("socks5", "proxy.localhost")],
    ids=[*PROTOCOLS, "socks5-site"],
)
def test_libcurl_asks_no_name_server(protocol: str, known: str) -> None:
    """Where it was given no address of the proxy, or for SOCKS 5 of the site, it may not look for one, not even of localhost."""

    async def run() -> None:
        async with Web() as canary, pycurl.AsyncCurlMulti() as multi:
            request = ask("http://site.localhost:9/", route=route(canary.port, protocol, host="proxy.localhost"))
            transfer = CurlTransfer(Fetch(), None, BufferedBytes())
            pins = (f"{known}:{canary.port}:127.0.0.1",)
            transfer.begin(TransferSpec(request, request.url, b"x", (), pins, 5.0, 1000))
            with pytest.raises(pycurl.error):
                await multi.perform(transfer.handle)
            assert (transfer.outcome, transfer.address) == (Outcome.DNS_FAILURE, None)
            assert canary.heads == []
            transfer.close()
            for _ in range(2 if known == "other.example" else 200):  # where it was found, it has to notice
                await asyncio.sleep(0.01)
                if canary.connections:
                    break
            await asyncio.sleep(0.01)
            assert canary.connections == (known == "proxy.localhost")

    asyncio.run(run())


# the environment's


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("protocol", [None, *PROTOCOLS])
def test_the_environment_is_not_asked(
    tmp_path: Path, certified: Certificate, monkeypatch: pytest.MonkeyPatch, protocol: str | None, scheme: str
) -> None:
    async def run() -> None:
        async with Web() as canary, ground(tmp_path, certified) as on, on.proxy(protocol or "http") as proxy:
            for name in VARIABLES:
                monkeypatch.setenv(name, canary.url())
            for exempt in ("", "*", f"{SITE},{PROXY},127.0.0.1"):
                monkeypatch.setenv("no_proxy", exempt)
                monkeypatch.setenv("NO_PROXY", exempt)
                assert os.environ["http_proxy"] == canary.url()
                async with client(hosts_file=tmp_path / "hosts", ca_file=str(certified.file)) as one:
                    result = await one.fetch(ask(on.url(scheme), route=proxy.route() if protocol else None))
                    assert result.body == b"hi"
            assert (canary.connections, len(proxy.log())) == (0, 3 if protocol else 0)

    asyncio.run(run())


# what is said


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_password_is_in_no_words(
    tmp_path: Path, certified: Certificate, caplog: pytest.LogCaptureFixture, protocol: str, scheme: str
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "p@ss:w/ör d"

    async def run() -> list[FetchResult]:
        async with ground(tmp_path, certified) as on, on.proxy(protocol, user="ann", password=secret) as proxy:
            way = proxy.route(user="ann", password=secret)
            results = []
            for what in ("work", "wrong_password", "drop", "garbage", "status", "refuse"):
                await proxy.behave(what)
                results.append(await on.client.fetch(ask(on.url(scheme), route=way)))
            assert results[0].body == b"hi"  # it was right
            nobody = proxy.route(user="ann", password=secret, host="no.example")
            results.append(await on.client.fetch(ask(on.url(scheme), route=nobody)))
            caplog.records.append(logging.makeLogRecord({"msg": f"{way!r} {way} {nobody!r} {proxy.log()}"}))
            return results

    results = asyncio.run(run())
    said = " ".join(record.getMessage() for record in caplog.records) + repr(results)
    for form in (secret, base64.b64encode(f"ann:{secret}".encode()).decode(), "ss:w", "p%40ss"):
        assert form not in said
