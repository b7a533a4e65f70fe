"""Nothing but the public internet: a canary on loopback that nobody may reach, by whatever name, form or trick."""

import asyncio
from collections.abc import Awaitable, Callable

import pycurl
import pytest

from holdfast.fetch.curl_transfer import CurlTransfer, TransferSpec
from holdfast.fetch.dns import Resolved, Resolver
from holdfast.fetch.http_client import HttpClient
from holdfast.fetch.response import BufferedBytes
from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from holdfast.settings import Fetch
from tests.support.nameserver import Answer, NameServer
from tests.support.web import Web, ask, client, response

LITERALS = """
127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0177.0.0.1 017700000001 127.0.0.1. 127.255.255.254
0.0.0.0 0 0x0 00 %31%32%37.0.0.1 \uff11\uff12\uff17.0.0.1 127\u30020\u30020\u30021 \u2460\u2461\u2466.\u24ea.\u24ea.\u2460
[::1] [::] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b:1::7f00:1]
[2002:7f00:1::] [2001:0:7f00:1::] [::ffff:0:127.0.0.1] [fe80::1] [fc00::1] [fd00:ec2::254] [ff02::1]
10.0.0.1 169.254.169.254 100.100.100.200 192.168.1.1 172.16.0.1 168.63.129.16 192.0.0.192
localhost LOCALHOST localhost. a.localhost user:pass@127.0.0.1 public.example@127.0.0.1
"""
NAMES = [
    "loop.example",
    "loop6.example",
    "mapped.example",
    "alias.example",
    "meta.example",
    "nat64.example",
    "any.example",
]


def canary(try_it: Callable[[HttpClient, Web], Awaitable[None]], **records: Answer | Callable[[int], Answer]) -> None:
    """Run *try_it* with a server that must not be reached, and a name server with *records* (_ for .)."""

    async def run() -> None:
        names = NameServer({name.replace("_", "."): answer for name, answer in records.items()})
        async with Web({"/": response(b"secret")}) as web, names, client(dns_servers=(names.address,)) as one:
            await try_it(one, web)
            assert web.connections == 0

    asyncio.run(run())


def refused(result: FetchResult) -> bool:
    return result.outcome is Outcome.ADDRESS_REFUSED and not result.body and not result.request_head


def test_literals() -> None:
    async def try_it(one: HttpClient, web: Web) -> None:
        for host in LITERALS.split():
            for path in ("/", "/?x", "/#y"):
                result = await one.fetch(ask(f"http://{host}:{web.port}{path}", allow_private=False))
                assert refused(result), f"{host}: {result.outcome}"
                assert result.detail

    canary(try_it)


def test_names() -> None:
    async def try_it(one: HttpClient, web: Web) -> None:
        for name in NAMES:
            for _ in range(2):
                assert refused(await one.fetch(ask(web.url(host=name), allow_private=False)))

    canary(
        try_it,
        loop_example=Answer(("127.0.0.1",)),
        loop6_example=Answer(("::1",)),
        mapped_example=Answer(("::ffff:127.0.0.1",)),
        alias_example=Answer(("127.0.0.1",), alias="inner.example"),
        meta_example=Answer(("169.254.169.254", "fd00:ec2::254")),
        nat64_example=Answer(("64:ff9b::7f00:1",)),
        any_example=Answer(("0.0.0.0", "::")),  # noqa: S104
    )


def test_rebinding() -> None:
    """A name that is public when it is asked for first, and loopback when it is asked for again; its TTL is 0."""

    async def try_it(one: HttpClient, web: Web) -> None:
        for _ in range(3):
            result = await one.fetch(ask(web.url(host="turn.example"), allow_private=False, timeout=0.2))
            assert result.outcome in (Outcome.TIMEOUT, Outcome.CONNECTION_FAILED, Outcome.ADDRESS_REFUSED)
            one._resolver._cache.clear()

    def turn(before: int) -> Answer:
        return Answer(("198.20.0.1",) if before < 2 else ("127.0.0.1",), ttl=0)

    canary(try_it, turn_example=turn)


def test_of_public_and_private_addresses_only_the_public_ones_are_tried() -> None:
    async def run() -> None:
        names = NameServer({"mixed.example": Answer(("127.0.0.1", "198.20.0.1", "10.0.0.1"))})
        async with names:
            settings = Fetch(dns_servers=(names.address,))
            async with Resolver(settings) as resolver:
                assert (await resolver.resolve("mixed.example", allow_private=False)).addresses == ("198.20.0.1",)
                everything = await resolver.resolve("mixed.example", allow_private=True)
                assert set(everything.addresses) == {"127.0.0.1", "198.20.0.1", "10.0.0.1"}

    asyncio.run(run())


class Fooled(Resolver):
    """Says loopback of everything, whoever asks."""

    def cached(self, _host: str, *, allow_private: bool) -> Resolved:
        assert allow_private in (False, True)
        return Resolved(("127.0.0.1",), pin="127.0.0.1")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_socket_is_guarded_too(scheme: str) -> None:
    """The second line: an address that should never have been given to the client."""

    async def run() -> None:
        settings = Fetch()
        async with Web({"/": response(b"secret")}) as web, HttpClient(settings, Fooled(settings)) as one:
            result = await one.fetch(ask(f"{scheme}://site.example:{web.port}/", allow_private=False))
            assert refused(result)
            assert result.detail == "127.0.0.1 is loopback"
            assert web.connections == 0

    asyncio.run(run())


def test_a_connection_that_another_request_was_allowed_is_not_used_again() -> None:
    async def run() -> None:
        settings = Fetch()
        sent: list[int] = []
        async with Web({"/": response(b"secret")}) as web, HttpClient(settings, Fooled(settings)) as one:
            url = f"http://site.example:{web.port}/"
            assert (await one.fetch(ask(url))).body == b"secret"
            assert (await one.fetch(ask(url))).body == b"secret"
            assert web.connections == 1
            result = await one.fetch(ask(url, allow_private=False, on_sent=lambda: sent.append(1)))
            assert refused(result)
            assert (len(web.heads), web.connections, sent) == (2, 1, [])
            assert (await one.fetch(ask(url))).body == b"secret"

    asyncio.run(run())


def test_libcurl_asks_no_name_server() -> None:
    """A pin for another host than the URL's: libcurl has no address, and may not look for one, not even of localhost."""

    async def run() -> CurlTransfer:
        transfer = CurlTransfer(Fetch(), None, BufferedBytes())
        request = ask("http://localhost:9/")
        transfer.begin(TransferSpec(request, request.url, b"x", (), ("other.example:9:127.0.0.1",), 5.0, 1000))
        async with pycurl.AsyncCurlMulti() as multi:
            with pytest.raises(pycurl.error):
                await multi.perform(transfer.handle)
        return transfer

    transfer = asyncio.run(run())
    assert transfer.outcome is Outcome.DNS_FAILURE
    assert transfer.address is None
    transfer.close()
