"""The proxy of the simulated web: what it says on the wire, that it stays on loopback, and what its log keeps."""

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import UsageError
from holdfast.testing.simweb.proxy import Proxy, ProxyMode
from holdfast.testing.simweb.proxy_log import read_log
from tests.integration.testing.client import PATIENCE
from tests.support.web import Answer, Web, response, then_close, then_reset

PAGES: dict[str, Answer] = {"/": response(b"hi"), "/endless": then_close(b"HTTP/1.1 200 OK\r\n\r\nuntil the end")}
Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Try = Callable[[Proxy, Web], Awaitable[None]]


def trial(try_it: Try, log: Path | None = None, **more: Any) -> None:
    """Run *try_it* with a proxy and a site."""

    async def run() -> None:
        async with asyncio.timeout(PATIENCE), Web(PAGES) as web, Proxy(log=log, **more) as proxy:
            await try_it(proxy, web)

    asyncio.run(run())


@asynccontextmanager
async def connected(proxy: Proxy) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection(*proxy.address)
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def say(proxy: Proxy, *words: bytes) -> bytes:
    """Everything that is answered to *words*, which are said at once, until the proxy ends the connection."""
    async with connected(proxy) as (reader, writer):
        writer.write(b"".join(words))
        return await reader.read()


def get(url: str, **headers: str) -> bytes:
    lines = [
        f"GET {url} HTTP/1.1",
        "Host: ignored",
        *(f"{name.replace('_', '-')}: {headers[name]}" for name in headers),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def socks(host: bytes, port: int, kind: int, login: tuple[bytes, bytes] | None = None) -> bytes:
    """The words of a client that does not wait to be asked."""
    word = b"\x05\x01\x02" if login else b"\x05\x01\x00"
    if login:
        word += b"\x01" + b"".join(bytes((len(each),)) + each for each in login)
    return word + bytes((5, 1, 0, kind)) + host + port.to_bytes(2, "big")


def name(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


# HTTP


def test_requests_are_handed_on_one_after_the_other(tmp_path: Path) -> None:
    async def try_it(proxy: Proxy, web: Web) -> None:
        login = base64.b64encode(b"ann:secret").decode()
        async with connected(proxy) as (reader, writer):
            for _ in range(2):
                writer.write(get(web.url("/?a=b", "site.localhost"), Proxy_Authorization=f"Basic {login}", X="y"))
                assert await reader.readexactly(len(response(b"hi"))) == response(b"hi")
            writer.write(get(web.url("/no")) + get(web.url("/endless")))
            got = await reader.read()
        assert got.startswith(b"HTTP/1.1 404") and got.endswith(b"Connection: close\r\n\r\nuntil the end")  # noqa: PT018
        assert web.heads[0] == b"GET /?a=b HTTP/1.1\r\nHost: ignored\r\nX: y\r\nConnection: close\r\n\r\n"

    trial(try_it, tmp_path / "log")
    first, second, third, last = read_log(tmp_path / "log")
    assert (first["method"], first["user"], first["did"], first["status"]) == ("GET", "ann", "forward", 200)
    assert first["target"].endswith("/?a=b")
    assert first["sent"] == len(response(b"hi")) and first["received"] > 50  # noqa: PT018
    assert first["at"] <= first["ended_at"] <= second["at"]
    assert abs(first["wall"] - second["wall"]) < PATIENCE
    assert [each["status"] for each in (third, last)] == [404, 200]
    assert "secret" not in (tmp_path / "log").read_text()


def test_a_body_is_handed_on() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(response(await reader.readexactly(5)))

    async def try_it(proxy: Proxy, web: Web) -> None:
        web.answers["/post"] = echo
        head = f"POST {web.url('/post')} HTTP/1.1\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
        async with connected(proxy) as (reader, writer):
            writer.write(head.encode() + b"five!")
            assert await reader.readexactly(len(response(b"five!"))) == response(b"five!")

    trial(try_it)


def test_an_answer_that_breaks_off_is_no_whole_one() -> None:
    async def try_it(proxy: Proxy, web: Web) -> None:
        web.answers["/half"] = then_close(response(b"half", Content_Length=8))
        web.answers["/none"] = then_close(b"")
        web.answers["/reset"] = then_reset(b"")
        assert (await say(proxy, get(web.url("/half")))).endswith(b"half")
        for path in ("/none", "/reset"):
            assert (await say(proxy, get(web.url(path)))).startswith(b"HTTP/1.1 502 ")

    trial(try_it)


def test_a_tunnel(tmp_path: Path) -> None:
    async def try_it(proxy: Proxy, web: Web) -> None:
        async with connected(proxy) as (reader, writer):
            writer.write(f"CONNECT site.localhost:{web.port} HTTP/1.1\r\n\r\n".encode())
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
            (asked,) = read_log(tmp_path / "log")  # while it stands
            assert (asked["did"], asked["status"], asked["ended_at"]) == ("tunnel", 200, None)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await reader.readexactly(len(response(b"hi"))) == response(b"hi")

    trial(try_it, tmp_path / "log")
    (asked,) = read_log(tmp_path / "log")
    assert asked["ended_at"] > asked["at"]
    assert asked["sent"] > len(response(b"hi"))


@pytest.mark.parametrize("line", ["CONNECT {} HTTP/1.1", "GET http://{}/ HTTP/1.1"], ids=["CONNECT", "GET"])
def test_it_stays_on_loopback(tmp_path: Path, line: str) -> None:
    hosts = {"site.example": "127.0.0.1", "198.20.0.1": "127.0.0.1:1"}
    places = {
        "10.0.0.1:80": 403,
        "198.20.0.2:80": 403,
        "other.example:80": 403,
        "[2001:db8::1]:80": 403,
        "[::ffff:10.0.0.1]:80": 403,
        "0.0.0.0:80": 403,
        "SITE.example.:1": 502,
        "198.20.0.1:80": 502,
        "127.0.0.1:1": 502,
        "a.localhost:1": 502,
    }

    async def try_it(proxy: Proxy, _web: Web) -> None:
        for place, status in places.items():
            async with connected(proxy) as (reader, writer):
                writer.write(f"{line.format(place)}\r\n\r\n".encode())
                assert int((await reader.readline()).split()[1]) == status, place

    trial(try_it, tmp_path / "log", hosts=hosts)
    assert {each["did"] for each in read_log(tmp_path / "log")} == {"forbidden", "not reached"}
    with pytest.raises(UsageError, match="loopback only"):
        Proxy(hosts={"site.example": "10.0.0.1"})


@pytest.mark.parametrize(
    "words",
    [b"GET / HTTP/1.1\r\n\r\n", b"GET https://127.0.0.1/ HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"\x05\x01\x00"],
    ids=["path", "https", "tls", "socks"],
)
def test_what_is_no_request_is_told_so(words: bytes) -> None:
    async def try_it(proxy: Proxy, _web: Web) -> None:
        assert (await say(proxy, words)).startswith(b"HTTP/1.1 400 ")

    trial(try_it)


@pytest.mark.parametrize(
    "words",
    [b"nonsense\r\n\r\n", b"A" * 100_000, b"GET http://127.0.0.1:x/ HTTP/1.1\r\n\r\n"],
    ids=["words", "endless", "port"],
)
def test_nonsense_ends_only_its_own_connection(words: bytes) -> None:
    async def try_it(proxy: Proxy, web: Web) -> None:
        async with connected(proxy) as (reader, writer):
            writer.write(words)
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        assert (await say(proxy, get(web.url("/endless")))).endswith(b"until the end")

    trial(try_it)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 407),
        ("Basic " + base64.b64encode(b"ann:wrong").decode(), 407),
        ("Basic " + base64.b64encode(b"bob:a:b").decode(), 407),
        ("Basic ann:a:b", 407),
        ("Digest x", 407),
        ("basic " + base64.b64encode(b"ann:a:b").decode(), 200),
    ],
    ids=["none", "password", "user", "plain", "digest", "right"],
)
def test_a_login(header: str | None, status: int) -> None:
    async def try_it(proxy: Proxy, web: Web) -> None:
        words = get(web.url("/endless"), **({"Proxy_Authorization": header} if header else {}))
        async with connected(proxy) as (reader, writer):
            writer.write(words)
            head = await reader.readuntil(b"\r\n\r\n")
        assert int(head.split()[1]) == status
        assert (b"Proxy-Authenticate: Basic" in head) == (status == 407)

    trial(try_it, user="ann", password="a:b")


# SOCKS 5


@pytest.mark.parametrize(
    ("host", "kind", "target"),
    [
        (b"\x7f\0\0\x01", 1, "127.0.0.1"),
        (name("site.example"), 3, "site.example"),
        (bytes(15) + b"\x01", 4, "[::1]"),
        (bytes((198, 20, 0, 1)), 1, "198.20.0.1"),
    ],
    ids=["ipv4", "name", "ipv6", "hosts"],
)
def test_socks(tmp_path: Path, host: bytes, kind: int, target: str) -> None:
    hosts = dict.fromkeys(("site.example", "::1", "198.20.0.1"), "127.0.0.1")

    async def try_it(proxy: Proxy, web: Web) -> None:
        got = await say(proxy, socks(host, web.port, kind), b"GET /endless HTTP/1.1\r\n\r\n")
        assert got[:12] == b"\x05\x00" + b"\x05\x00\x00\x01" + bytes(6)
        assert got.endswith(b"until the end")
        (asked,) = read_log(tmp_path / "log")
        assert (asked["method"], asked["target"], asked["did"]) == ("SOCKS", f"{target}:{web.port}", "tunnel")

    trial(try_it, tmp_path / "log", protocol="socks5", hosts=hosts)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (b"\x05\x01\x01", b"\x05\xff"),
        (b"\x04\x01" + bytes(20), b""),
        (socks(b"\x0a\0\0\x01", 80, 1), b"\x05\x00\x05\x02"),
        (socks(name("other.example"), 80, 3), b"\x05\x00\x05\x02"),
        (socks(b"\x7f\0\0\x01", 1, 1), b"\x05\x00\x05\x05"),
        (b"\x05\x01\x00\x05\x02\x00\x01\x7f\0\0\x01\0\x50", b"\x05\x00\x05\x07"),
    ],
    ids=["no method", "socks 4", "forbidden", "forbidden name", "refused", "bind"],
)
def test_socks_says_no(words: bytes, answer: bytes) -> None:
    async def try_it(proxy: Proxy, _web: Web) -> None:
        got = await say(proxy, words)
        assert got.startswith(answer) and bool(got) == bool(answer)  # noqa: PT018

    trial(try_it, protocol="socks5h")


def test_socks_with_a_login(tmp_path: Path) -> None:
    async def try_it(proxy: Proxy, web: Web) -> None:
        there, ask = b"\x7f\0\0\x01", b"GET /endless HTTP/1.1\r\n\r\n"
        assert await say(proxy, socks(there, web.port, 1)) == b"\x05\xff"
        wrong = await say(proxy, socks(there, web.port, 1, (b"ann", b"guess")))
        assert wrong == b"\x05\x02\x01\x01"
        right = await say(proxy, socks(there, web.port, 1, (b"ann", b"secret")), ask)
        assert right.startswith(b"\x05\x02\x01\x00\x05\x00")

    trial(try_it, tmp_path / "log", protocol="socks5", user="ann", password="secret")
    said = (tmp_path / "log").read_text()
    assert [each["user"] for each in read_log(tmp_path / "log")] == [None, "ann", "ann"]
    assert "secret" not in said
    assert "guess" not in said


# behaviour


def test_it_behaves_as_it_is_told(tmp_path: Path) -> None:
    async def try_it(proxy: Proxy, web: Web) -> None:
        words = get(web.url("/endless"))
        await proxy.behave("drop")
        with suppress(ConnectionResetError):
            assert await say(proxy, words) == b""
        await proxy.behave("garbage")
        assert b"HTTP" not in await say(proxy, words)
        for status in (403, 407, 418, 599):
            await proxy.behave("status", status=status)
            async with connected(proxy) as (reader, writer):
                writer.write(words)
                assert int((await reader.readline()).split()[1]) == status
        await proxy.behave("wrong_password")
        async with connected(proxy) as (reader, writer):
            writer.write(words)
            assert int((await reader.readline()).split()[1]) == 407
        await proxy.behave("slow", seconds=0.2)
        began = asyncio.get_running_loop().time()
        assert (await say(proxy, words)).endswith(b"until the end")
        assert asyncio.get_running_loop().time() - began > 0.19
        await proxy.behave("refuse")
        with pytest.raises(ConnectionRefusedError):
            await say(proxy, words)
        await proxy.behave("work")
        assert (await say(proxy, words)).endswith(b"until the end")
        with pytest.raises(UsageError, match="not 'dance'"):
            await proxy.behave("dance")

    trial(try_it, tmp_path / "log")
    done = [each["did"] for each in read_log(tmp_path / "log")]
    assert done == ["drop", "garbage", *["status"] * 4, "unknown user", "forward", "forward"]


def test_a_change_ends_what_stood() -> None:
    async def try_it(proxy: Proxy, web: Web) -> None:
        for what in ProxyMode:
            await proxy.behave("work")
            async with connected(proxy) as (reader, writer):
                writer.write(f"CONNECT 127.0.0.1:{web.port} HTTP/1.1\r\n\r\n".encode())
                await reader.readuntil(b"\r\n\r\n")
                await proxy.behave(what)
                if what in ("work", "slow"):
                    writer.write(b"GET /endless HTTP/1.1\r\n\r\n")
                    assert (await reader.read()).endswith(b"until the end")
                else:
                    with suppress(ConnectionResetError):
                        assert await reader.read() == b""

    trial(try_it)


def test_whoever_hangs_is_heard(tmp_path: Path) -> None:
    async def try_it(proxy: Proxy, web: Web) -> None:
        await proxy.behave("hang")
        async with connected(proxy) as (reader, writer):
            writer.write(get(web.url()))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(), 0.2)
        assert web.connections == 0

    trial(try_it, tmp_path / "log")
    (asked,) = read_log(tmp_path / "log")
    assert (asked["did"], asked["sent"]) == ("hang", 0)


def test_what_no_proxy_can_be_is_said() -> None:
    with pytest.raises(UsageError, match="A proxy speaks"):
        Proxy(protocol="gopher")
    with pytest.raises(UsageError, match="certificate"):
        Proxy(protocol="https")
