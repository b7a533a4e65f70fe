"""The client against servers that do not behave: every one ends as an outcome, in time, and leaves nothing open."""

import asyncio
import socket
import time
import zlib
from datetime import timedelta
from typing import Any

import psutil
import pytest

from holdfast.model.fetch_types import FetchResult
from holdfast.model.outcome import Outcome
from tests.support.web import Answer, Web, ask, client, endless, response, then_close, then_hang, then_reset

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
SECOND = timedelta(seconds=1)
PATIENCE = 20.0
"""Seconds after which a test gives up; the outcomes come after one or less."""


def fetch(answer: Answer, *, settings: dict[str, Any] | None = None, **more: Any) -> FetchResult:
    async def run() -> FetchResult:
        async with Web({"/": answer}) as web, client(**{"timeout": 0.3 * SECOND, **(settings or {})}) as one:
            return await asyncio.wait_for(one.fetch(ask(web.url(), **more)), PATIENCE)

    return asyncio.run(run())


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = zlib.compressobj(wbits=31)
BOMB = GZIP.compress(b"\0" * (50 << 20)) + GZIP.flush()


def in_chunks(packed: bytes) -> bytes:
    return CHUNKED[:-2] + b"Content-Encoding: gzip\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(packed), packed)


@pytest.mark.parametrize(
    ("answer", "outcomes"),
    [
        pytest.param(then_hang(b""), {Outcome.TIMEOUT}, id="says nothing"),
        pytest.param(then_hang(OK), {Outcome.TIMEOUT}, id="never ends its head"),
        pytest.param(then_hang(OK + b"Content-Length: 9\r\n\r\nhalf"), {Outcome.TIMEOUT}, id="stops in its body"),
        pytest.param(endless(OK, b"X", 0.05), {Outcome.TIMEOUT}, id="one letter of a header at a time"),
        pytest.param(endless(OK + b"\r\n", b"x", 0.05), {Outcome.TIMEOUT}, id="one letter of a body at a time"),
        pytest.param(endless(CHUNKED, b"1\r\nx\r\n", 0.05), {Outcome.TIMEOUT}, id="endless chunks, slowly"),
        pytest.param(endless(CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n"), {Outcome.TOO_LARGE}, id="endless chunks"),
        pytest.param(endless(OK + b"\r\n", b"x" * 65536), {Outcome.TOO_LARGE}, id="endless body"),
        pytest.param(endless(OK, b"X-A: b\r\n" * 1000), {Outcome.BAD_RESPONSE}, id="endless headers"),
        pytest.param(endless(OK + b"X: ", b"x" * 65536), {Outcome.BAD_RESPONSE}, id="endless header"),
        pytest.param(endless(b"", b"x" * 65536), {Outcome.BAD_RESPONSE}, id="endless nonsense"),
        pytest.param(endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100), {Outcome.BAD_RESPONSE, Outcome.TIMEOUT}, id="always going on"),
        pytest.param(endless(OK, b"Set-Cookie: a=" + b"b" * 4000 + b"\r\n"), {Outcome.BAD_RESPONSE}, id="cookie bomb"),
        pytest.param(endless(CHUNKED[:-2] + b"X:\xff\r\n\r\n0\r\n", b"T: x\r\n" * 100), {Outcome.BAD_RESPONSE}, id="endless trailer"),
        pytest.param(endless(CHUNKED, b"1;" + b"x" * 65536), {Outcome.BAD_RESPONSE, Outcome.TIMEOUT}, id="endless chunk extension"),
        pytest.param(then_close(b""), {Outcome.CONNECTION_FAILED}, id="hangs up"),
        pytest.param(then_reset(b""), {Outcome.CONNECTION_FAILED}, id="resets"),
        pytest.param(then_reset(OK + b"Content-Length: 9\r\n\r\nhalf"), {Outcome.CONNECTION_FAILED}, id="resets in its body"),
        pytest.param(then_close(OK + b"Content-Length: 9\r\n\r\nhalf"), {Outcome.BAD_RESPONSE}, id="less than it said"),
        pytest.param(then_close(CHUNKED + b"9\r\nhalf"), {Outcome.BAD_RESPONSE}, id="less of a chunk than it said"),
        pytest.param(CHUNKED + b"zz\r\nhalf", {Outcome.BAD_RESPONSE}, id="a chunk of no length"),
        pytest.param(then_close(b"<html>0.9"), {Outcome.BAD_RESPONSE}, id="HTTP/0.9"),
        pytest.param(then_close(b"SSH-2.0-x\r\n"), {Outcome.BAD_RESPONSE}, id="not HTTP"),
        pytest.param(response(b"not packed", Content_Encoding="gzip"), {Outcome.BAD_ENCODING}, id="not packed"),
        pytest.param(response(b"x", Content_Encoding="zstd"), {Outcome.BAD_ENCODING}, id="unknown packing"),
        pytest.param(response(b"x", Content_Encoding="gzip, gzip, gzip"), {Outcome.BAD_ENCODING}, id="packed three times"),
        pytest.param(response(BOMB, Content_Encoding="gzip"), {Outcome.TOO_LARGE}, id="bomb"),
        pytest.param(in_chunks(BOMB), {Outcome.TOO_LARGE}, id="bomb in a chunk"),
        pytest.param(response(b"x", Content_Length="9" * 30), {Outcome.TOO_LARGE, Outcome.BAD_RESPONSE}, id="says it is huge"),
        pytest.param(response(b"x", Content_Length="-5"), {Outcome.BAD_RESPONSE}, id="says it is negative"),
    ],
)  # fmt: skip
def test_ends_in_an_outcome(answer: Answer, outcomes: set[Outcome]) -> None:
    result = fetch(answer, settings={"max_bytes": 1 << 20})
    assert result.outcome in outcomes
    assert result.body == b""
    assert result.detail
    assert result.duration < PATIENCE


def test_too_slow() -> None:
    slow = {"timeout": timedelta(seconds=30), "min_rate": 1000, "min_rate_time": SECOND}
    result = fetch(endless(OK + b"\r\n", b"x", 0.05), settings=slow)
    assert (result.outcome, result.status, result.body) == (Outcome.TOO_SLOW, 200, b"")


def test_a_page_of_few_bytes_that_unpacks_to_much_more() -> None:
    """Less than the limit, and a bomb all the same."""
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(b"\0" * (5 << 20)) + packer.flush()
    for answer in (response(packed, Content_Encoding="gzip"), in_chunks(packed)):
        assert fetch(answer).outcome is Outcome.TOO_LARGE
        result = fetch(answer, cut=True, max_bytes=1000)
        assert (result.outcome, result.body, result.cut) == (Outcome.OK, b"\0" * 1000, True)


def test_a_request_may_have_less_time_than_the_settings_say() -> None:
    result = fetch(then_hang(b""), settings={"timeout": timedelta(hours=1)}, timeout=0.1)
    assert result.outcome is Outcome.TIMEOUT


def test_nobody_listens() -> None:
    async def run() -> FetchResult:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        async with client() as one:
            return await one.fetch(ask(f"http://127.0.0.1:{port}/"))

    result = asyncio.run(run())
    assert (result.outcome, result.address, result.request_head) == (Outcome.CONNECTION_FAILED, None, b"")
    assert result.detail.startswith("Connection refused: ")


def test_nobody_accepts() -> None:
    """A queue that is full: the kernel answers no further connection."""

    async def run(port: int) -> FetchResult:
        async with client(connect_timeout=timedelta(milliseconds=300)) as one:
            return await one.fetch(ask(f"http://127.0.0.1:{port}/"))

    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        waiting = [socket.socket() for _ in range(8)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        result = asyncio.run(run(listening.getsockname()[1]))
        for one in waiting:
            one.close()
    assert result.outcome is Outcome.TIMEOUT


def test_bombs_take_no_memory() -> None:
    """200 answers that unpack to 50 MiB each, 20 at a time, through a limit of 1 MiB."""

    async def run() -> int:
        before = psutil.Process().memory_info().rss
        async with Web({"/": response(BOMB, Content_Encoding="gzip")}) as web, client(max_bytes=1 << 20) as one:
            for _ in range(10):
                results = await asyncio.gather(*(one.fetch(ask(web.url())) for _ in range(20)))
                assert {result.outcome for result in results} == {Outcome.TOO_LARGE}
        return psutil.Process().memory_info().rss - before

    assert asyncio.run(run()) < 64 << 20


def test_cancelled_requests_leave_nothing() -> None:
    """In every state that a request can be in: before it begins, connecting, waiting, in the body."""

    async def run() -> None:
        answers: dict[str, Answer] = {
            "/head": then_hang(b""),
            "/body": then_hang(OK + b"Content-Length: 9\r\n\r\nhalf"),
            "/": response(b"hi"),
        }
        async with Web(answers) as web, client(connections=100) as one:
            for turn in range(50):
                tasks = [asyncio.create_task(one.fetch(ask(web.url(path)))) for path in answers for _ in range(4)]
                for _ in range(turn % 20):
                    await asyncio.sleep(0)
                if turn % 3 == 0:
                    await asyncio.sleep(0.005)
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
                assert all(isinstance(end, asyncio.CancelledError | FetchResult) for end in ended)
                assert (await one.fetch(ask(web.url()))).body == b"hi"

    asyncio.run(run())
    before = psutil.Process().num_fds()
    asyncio.run(run())
    assert psutil.Process().num_fds() == before


def test_closing_ends_what_is_under_way() -> None:
    async def run() -> None:
        async with Web({"/": then_hang(b"")}) as web:
            async with client() as one:
                tasks = [asyncio.create_task(one.fetch(ask(web.url()))) for _ in range(10)]
                await asyncio.sleep(0.05)
            ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)
            assert [type(end) for end in ended] == [asyncio.CancelledError] * 10

    asyncio.run(run())


def test_a_hostile_server_delays_nobody() -> None:
    async def run() -> None:
        bad = endless(OK, b"X-A: b\r\n" * 1000)
        async with Web({"/": response(b"hi"), "/bad": bad, "/mute": then_hang(b"")}) as web, client() as one:
            mute = [asyncio.create_task(one.fetch(ask(web.url("/mute")))) for _ in range(50)]
            mixed = [one.fetch(ask(web.url(path))) for path in ("/", "/bad") for _ in range(20)]
            began = time.monotonic()
            results = await asyncio.wait_for(asyncio.gather(*mixed), PATIENCE)
            assert [result.outcome for result in results] == [Outcome.OK] * 20 + [Outcome.BAD_RESPONSE] * 20
            assert time.monotonic() - began < PATIENCE
            for task in mute:
                task.cancel()

    asyncio.run(run())
