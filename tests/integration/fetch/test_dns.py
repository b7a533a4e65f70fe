"""Names against a real name server that answers well, badly, or not at all."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import pytest

from holdfast.errors import SettingsError
from holdfast.fetch import dns
from holdfast.fetch.dns import Resolved, Resolver
from holdfast.model.outcome import Outcome
from holdfast.settings import Fetch
from tests.support.nameserver import AAAA, BROKEN, NOWHERE, SILENT, A, Answer, NameServer, Records
from tests.support.web import Web, ask, client, response

PUBLIC = Answer(("198.20.0.1", "2a00::1"), ttl=300)
SHORT = timedelta(milliseconds=300)


class Names:
    """A name server and a resolver that asks it."""

    def __init__(self, records: Records, **options: Any) -> None:
        self.server = NameServer(records)
        self.options = options

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        hosts_file = self.options.pop("hosts_file", Path("/nonexistent"))
        size = self.options.pop("cache_size", dns.CACHE_SIZE)
        settings = Fetch(**{"dns_timeout": SHORT, "dns_servers": (self.server.address,), **self.options})
        self.resolver = Resolver(settings, hosts_file=hosts_file, cache_size=size)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.resolver.aclose()
        await self.server.__aexit__(None, None, None)

    async def resolve(self, host: str, *, allow_private: bool = True) -> Resolved:
        return await asyncio.wait_for(self.resolver.resolve(host, allow_private=allow_private), 20)


def one(records: Records, host: str, **options: Any) -> Resolved:
    async def run() -> Resolved:
        async with Names(records, **options) as names:
            return await names.resolve(host)

    return asyncio.run(run())


def test_addresses_of_both_kinds() -> None:
    resolved = one({"site.example": PUBLIC}, "site.example")
    assert resolved == Resolved(("198.20.0.1", "2a00::1"), pin="198.20.0.1,[2a00::1]")


def test_an_alias() -> None:
    assert one({"www.example": Answer(("198.20.0.1",), alias="cdn.example")}, "www.example").addresses == (
        "198.20.0.1",
    )


def test_no_more_addresses_than_can_be_tried() -> None:
    many = Answer(tuple(f"198.20.0.{n}" for n in range(1, 25)))
    assert len(one({"many.example": many}, "many.example").addresses) == dns.MAX_ADDRESSES


@pytest.mark.parametrize(
    ("answer", "outcome", "detail"),
    [
        (NOWHERE, Outcome.NO_SUCH_HOST, "the name does not exist"),
        (Answer(), Outcome.NO_SUCH_HOST, "the name has no address"),
        (BROKEN, Outcome.DNS_FAILURE, "name servers: "),
        (SILENT, Outcome.DNS_FAILURE, "name servers: "),
    ],
)
def test_no_address(answer: Answer, outcome: Outcome, detail: str) -> None:
    resolved = one({"site.example": answer}, "site.example")
    assert (resolved.outcome, resolved.addresses) == (outcome, ())
    assert resolved.detail.startswith(detail)


@pytest.mark.parametrize("host", ["a" * 64 + ".example", "x." * 200, ".", "a..b", "caf\u00e9.example", "-"])
def test_names_that_cannot_be_asked_for(host: str) -> None:
    assert one({}, host).outcome in (Outcome.NO_SUCH_HOST, Outcome.DNS_FAILURE)


@pytest.mark.parametrize("kind", [A, AAAA])
def test_one_kind_is_never_answered(kind: int) -> None:
    """The other one is used, and waited for no longer than a moment."""
    address = {A: "2a00::1", AAAA: "198.20.0.1"}[kind]

    class Half(NameServer):
        def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
            if data[-13:].rfind(kind.to_bytes(2, "big") + b"\0\1") < 0:
                super().datagram_received(data, addr)

    async def run() -> Resolved:
        names = Names({"half.example": Answer((address,))}, dns_timeout=timedelta(seconds=15))
        names.server = Half(names.server.records)
        async with names:
            return await names.resolve("half.example")

    assert asyncio.run(run()).addresses == (address,)


def test_literals_and_localhost_ask_nobody() -> None:
    async def run() -> None:
        async with Names({}) as names:
            assert await names.resolve("127.0.0.1") == Resolved(("127.0.0.1",))
            assert await names.resolve("[::1]") == Resolved(("::1",))
            assert await names.resolve("localhost") == Resolved(("127.0.0.1", "::1"), pin="127.0.0.1,[::1]")
            assert (await names.resolve("a.localhost", allow_private=False)).outcome is Outcome.ADDRESS_REFUSED
            assert names.server.asked == []

    asyncio.run(run())


def test_the_hosts_file_comes_first(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("198.20.0.9 site.example")

    async def run() -> None:
        async with Names({"site.example": PUBLIC}, hosts_file=hosts) as names:
            assert (await names.resolve("site.example")).addresses == ("198.20.0.9",)
            assert names.server.asked == []
            hosts.write_text("")
            names.resolver._cache.clear()
            assert (await names.resolve("site.example")).addresses == PUBLIC.addresses

    asyncio.run(run())


def test_answers_are_remembered_and_shared() -> None:
    async def run() -> None:
        records = {"site.example": PUBLIC, "gone.example": NOWHERE}
        async with Names(records) as names:
            for host in records:
                await asyncio.gather(*(names.resolve(host) for _ in range(50)))
                await names.resolve(host)
            assert sorted(names.server.asked) == sorted((host, kind) for host in records for kind in (A, AAAA))

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "longest", "seconds"),
    [
        (PUBLIC, timedelta(hours=1), 300),
        (PUBLIC, timedelta(seconds=100), 100),
        (Answer(("198.20.0.1",), ttl=0), timedelta(hours=1), dns.MIN_TTL),
        (Answer(("198.20.0.1",), ttl=0), timedelta(seconds=1), 1),
        (NOWHERE, timedelta(hours=1), 60),
        (BROKEN, timedelta(hours=1), dns.FAILURE_TTL),
    ],
)
def test_how_long_answers_hold(answer: Answer, longest: timedelta, seconds: float) -> None:
    async def run() -> float:
        async with Names({"site.example": answer}, dns_ttl_max=longest) as names:
            began = time.monotonic()
            await names.resolve("site.example")
            return names.resolver._cache["site.example"].expires_at - began

    assert seconds <= asyncio.run(run()) < seconds + 1


def test_what_was_remembered_too_long_is_asked_for_again() -> None:
    async def run() -> None:
        answers = {"site.example": lambda before: Answer((f"198.20.0.{1 + before // 2}",))}
        async with Names(answers) as names:
            assert (await names.resolve("site.example")).addresses == ("198.20.0.1",)
            known = names.resolver._cache["site.example"]
            names.resolver._cache["site.example"] = dns._CacheEntry(time.monotonic(), known.any, known.public)
            await names.resolver._resolver.close()  # type: ignore[union-attr]
            names.resolver._resolver = None  # c-ares remembers too
            assert (await names.resolve("site.example")).addresses == ("198.20.0.2",)

    asyncio.run(run())


def test_the_cache_is_bounded() -> None:
    async def run() -> None:
        async with Names({}, cache_size=10) as names:
            for n in range(1, 30):
                await names.resolve(f"198.20.0.{n}")
            assert list(names.resolver._cache) == [f"198.20.0.{n}" for n in range(20, 30)]

    asyncio.run(run())


def test_who_waits_may_be_cancelled() -> None:
    async def run() -> None:
        async with Names({"site.example": PUBLIC}) as names:
            first = asyncio.create_task(names.resolve("site.example"))
            second = asyncio.create_task(names.resolve("site.example"))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).addresses == PUBLIC.addresses

    asyncio.run(run())


def test_dead_and_silent_names_delay_nobody() -> None:
    """The good host is done while sixty silent names are still waited for."""

    async def run() -> None:
        names = NameServer({"good.example": Answer(("127.0.0.1",)), **{f"mute{n}.example": SILENT for n in range(60)}})
        async with (
            names,
            Web({"/": response(b"hi")}) as web,
            client(dns_servers=(names.address,), dns_timeout=timedelta(minutes=5)) as one,
        ):
            mute = [asyncio.create_task(one.fetch(ask(web.url(host=f"mute{n}.example")))) for n in range(60)]
            dead = [one.fetch(ask(web.url(host=f"dead{n}.example"))) for n in range(20)]
            results = await asyncio.gather(one.fetch(ask(web.url(host="good.example"))), *dead)
            assert results[0].body == b"hi"
            assert {result.outcome for result in results[1:]} == {Outcome.NO_SUCH_HOST}
            assert not [task for task in mute if task.done()]
            for task in mute:
                task.cancel()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_request_ends_in_its_time_whatever_name_servers_do() -> None:
    async def run() -> Outcome:
        async with (
            NameServer({"mute.example": SILENT}) as names,
            client(dns_servers=(names.address,), dns_timeout=timedelta(minutes=5)) as one,
        ):
            return (await one.fetch(ask("http://mute.example/", timeout=0.1))).outcome

    assert asyncio.run(asyncio.wait_for(run(), 20)) is Outcome.TIMEOUT


@pytest.mark.parametrize("server", ["1.2.3.4", "1.2.3.4:53", "::1", "[::1]", "[::1]:5353"])
def test_name_servers(server: str) -> None:
    resolver = Resolver(Fetch(dns_servers=(server,)))
    assert resolver.cached("never-asked.example", allow_private=True) is None


@pytest.mark.parametrize(
    "server", ["", "example.com", "1.2.3.4:", "1.2.3.4:0", "1.2.3.4:99999", "1.2.3:53", "[::1]:x", "1.2.3.4,5.6.7.8"]
)
def test_no_name_servers(server: str) -> None:
    with pytest.raises((SettingsError, ValueError)):
        Resolver(Fetch(dns_servers=(server,)))
