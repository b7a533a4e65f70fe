"""libcurl's transfers on the event loop, against real sockets: by an epoll of our own and by the loop, on asyncio's loop and uvloop."""

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import pycurl
import pytest
import uvloop

from holdfast.fetch.curl_multi import (
    CurlMulti,
    EpollWatcher,
    LoopWatcher,
    OnReady,
    SocketWatcher,
    TransferEnd,
    make_watcher,
)
from tests.support.web import Answer, Web, response, then_close, then_hang

PATIENCE = 20.0
Watching = Callable[[asyncio.AbstractEventLoop, OnReady], SocketWatcher]
Run = Callable[[Coroutine[Any, Any, None]], None]

KINDS: list[Watching] = [EpollWatcher, LoopWatcher] if hasattr(select, "epoll") else [LoopWatcher]


async def then_rest(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer, and close the connection while it rests."""
    writer.write(response(b"hi"))
    await writer.drain()
    await asyncio.sleep(0.01)


PAGE: dict[str, Answer] = {
    "/": response(b"hi"),
    "/silent": then_hang(b""),
    "/brief": then_close(response(b"hi")),
    "/idle": then_rest,
}


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def play(what: Coroutine[Any, Any, None]) -> None:
        faults: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.get_loop().set_exception_handler(lambda _loop, fault: faults.append(fault))
            runner.run(asyncio.wait_for(what, PATIENCE))
        assert faults == []

    return play


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def watching(request: pytest.FixtureRequest) -> Watching:
    kind: Watching = request.param
    return kind


class Counted:
    """SocketWatcher that count how often libcurl is called for them, and remember which descriptors it had watched."""

    def __init__(self, watching: Watching) -> None:
        self._watching = watching
        self.calls = 0
        self.watched: list[int] = []

    def __call__(self, loop: asyncio.AbstractEventLoop, ready: OnReady) -> SocketWatcher:
        def counted(descriptor: int, what: int) -> None:
            self.calls += 1
            ready(descriptor, what)

        watching = self._watching(loop, counted)
        watch = watching.watch

        def watched(descriptor: int, what: int) -> None:
            self.watched.append(descriptor)
            watch(descriptor, what)

        watching.watch = watched  # type: ignore[method-assign]
        return watching


@asynccontextmanager
async def multi(watching: Watching, connections: int = 10) -> AsyncIterator[CurlMulti]:
    made = CurlMulti(connections, watching)
    try:
        yield made
    finally:
        made.close()


def handle(url: str, milliseconds: int = 0, body: BytesIO | None = None) -> pycurl.Curl:
    made = pycurl.Curl()
    made.setopt(pycurl.URL, url)
    made.setopt(pycurl.PROXY, "")
    made.setopt(pycurl.NOSIGNAL, 1)
    made.setopt(pycurl.TIMEOUT_MS, milliseconds)
    made.setopt(pycurl.WRITEDATA, body or BytesIO())
    return made


def descriptors() -> set[str]:
    return {name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")}  # noqa: PTH208, PTH110


def is_silent(one: CurlMulti) -> bool:
    """Whether nothing wakes the loop for what rests."""
    kind = one._sockets
    if isinstance(kind, EpollWatcher):
        return kind._epoll.poll(0) == []
    assert isinstance(kind, LoopWatcher)
    return kind._watched == {}


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 — servers and kernels tell nobody
        await asyncio.sleep(0.001)


def test_this_system_is_served_by_what_is_best_for_it() -> None:
    async def play() -> None:
        made = make_watcher(asyncio.get_running_loop(), lambda _descriptor, _what: None)
        assert isinstance(made, KINDS[0])  # type: ignore[arg-type]
        made.close()

    asyncio.run(play())


def test_many_transfers_over_connections_that_are_kept(watching: Watching, run: Run) -> None:
    async def play() -> None:
        async with Web(PAGE) as web, multi(watching, connections=4) as one:

            async def lane() -> None:
                easy = handle(web.url())
                for _ in range(25):
                    body = BytesIO()
                    easy.setopt(pycurl.WRITEDATA, body)
                    assert await one.start(easy) == TransferEnd(0)
                    assert body.getvalue() == b"hi"

            await asyncio.gather(*(lane() for _ in range(4)))
            assert len(web.heads) == 100
            assert web.connections == 4

    run(play())


def test_more_than_there_are_connections_wait_for_one(watching: Watching, run: Run) -> None:
    async def play() -> None:
        async with Web(PAGE) as web, multi(watching, connections=2) as one:
            ends = await asyncio.gather(*(one.start(handle(web.url())) for _ in range(20)))
            assert ends == [TransferEnd(0)] * 20
            assert web.connections == 2

    run(play())


def test_where_a_connection_stands_the_request_goes_out_when_it_is_started(watching: Watching, run: Run) -> None:
    async def play() -> None:
        async with Web(PAGE) as web, multi(watching) as one:
            easy, sent = handle(web.url()), []

            def before_request(*_: object) -> int:
                sent.append(1)
                return int(pycurl.PREREQFUNC_OK)

            easy.setopt(pycurl.PREREQFUNCTION, before_request)
            await one.start(easy)
            end = one.start(easy)
            assert len(sent) == 2  # before anybody else could do anything
            assert await end == TransferEnd(0)

    run(play())


def test_a_large_answer_comes_whole(watching: Watching, run: Run) -> None:
    async def play() -> None:
        async with Web({"/": response(b"x" * 3_000_000)}) as web, multi(watching) as one:
            bodies = [BytesIO() for _ in range(3)]
            await asyncio.gather(*(one.start(handle(web.url(), body=body)) for body in bodies))
            assert [len(body.getvalue()) for body in bodies] == [3_000_000] * 3

    run(play())


@pytest.mark.parametrize("path", ["/idle", "/brief"])
def test_a_connection_that_the_server_closes_is_let_go_and_costs_nothing(
    watching: Watching, run: Run, path: str
) -> None:
    async def play() -> None:
        counted = Counted(watching)
        async with Web(PAGE) as web, multi(counted) as one:
            easy = handle(web.url(path))
            for number in range(1, 5):
                assert await one.start(easy) == TransferEnd(0)
                calls = counted.calls
                await until(lambda: not web._talks)
                await asyncio.sleep(0.01)  # the end of the connection has come, and would be told again and again
                assert counted.calls - calls <= 1
                assert web.connections == number
                assert is_silent(one)
            assert len(set(counted.watched)) < 4  # numbers were given away again, and watched again

    run(play())


def test_a_server_that_speaks_out_of_turn_does_not_keep_us_busy(watching: Watching, run: Run) -> None:
    answered, said = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response(b"hi"))
        await answered.wait()
        writer.write(response(b"and another thing"))
        await writer.drain()
        said.set()
        await reader.read()

    async def play() -> None:
        counted = Counted(watching)
        async with Web(script=talk) as web, multi(counted) as one:
            assert await one.start(handle(web.url())) == TransferEnd(0)
            answered.set()
            calls = counted.calls
            await said.wait()
            await asyncio.sleep(0.03)
            await until(lambda: is_silent(one))
            assert counted.calls - calls <= 1

    run(play())


def test_a_number_that_was_closed_unseen_may_be_anybody_s(watching: Watching, run: Run) -> None:
    """libcurl closes idle connections without a word; their numbers go to sockets that are not its own, and come back to it."""

    async def play() -> None:
        counted = Counted(watching)
        async with Web(PAGE) as web, Web(PAGE) as other, multi(counted, connections=1) as one:
            for _ in range(5):
                for server in (web, other):  # each makes room for itself by closing the other's
                    assert await one.start(handle(server.url())) == TransferEnd(0)
                    strangers = socket.socketpair()
                    strangers[1].send(b"x")
                    calls = counted.calls
                    await asyncio.sleep(0.002)
                    assert counted.calls == calls  # a stranger is nobody we listen to
                    for stranger in strangers:
                        stranger.close()
            assert (web.connections, other.connections) == (5, 5)

    run(play())


def test_a_refused_connection_ends_with_an_error(watching: Watching, run: Run) -> None:
    async def play() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        async with multi(watching) as one:
            for _ in range(3):
                code, message = await one.start(handle(f"http://127.0.0.1:{port}/"))
                assert code == pycurl.E_COULDNT_CONNECT
                assert message

    run(play())


def test_timeouts_come_in_their_order_whatever_the_order_of_the_starts(watching: Watching, run: Run) -> None:
    """Nothing happens on the sockets: only libcurl's own timer can end these."""

    async def play() -> None:
        ended: list[int] = []
        async with Web(PAGE) as web, multi(watching) as one:

            async def wait(milliseconds: int) -> None:
                code, _ = await one.start(handle(web.url("/silent"), milliseconds))
                assert code == pycurl.E_OPERATION_TIMEDOUT
                ended.append(milliseconds)

            await asyncio.gather(*(wait(milliseconds) for milliseconds in (360, 120, 600, 240)))
            assert ended == [120, 240, 360, 600]
            await wait(20)  # also after it had nothing to wait for

    run(play())


def test_a_timer_that_was_put_off_still_comes(watching: Watching, run: Run) -> None:
    """libcurl wants to be woken for one that is given up: sooner than for the other."""

    async def play() -> None:
        async with Web(PAGE) as web, multi(watching) as one:
            late, early = handle(web.url("/silent"), 100), handle(web.url("/silent"), 50)
            end = one.start(late)
            one.start(early)
            await until(lambda: len(web.heads) == 2)
            one.cancel(early)
            assert (await end).code == pycurl.E_OPERATION_TIMEDOUT

    run(play())


def test_a_loop_that_was_busy_past_a_timeout_hears_of_it(watching: Watching, run: Run) -> None:
    async def play() -> None:
        async with Web(PAGE) as web, multi(watching) as one:
            end = one.start(handle(web.url("/silent"), 20))
            await until(lambda: bool(web.heads))
            select.select([], [], [], 0.05)  # nothing of the loop runs
            assert (await end).code == pycurl.E_OPERATION_TIMEDOUT

    run(play())


def test_giving_up_in_the_middle_closes_the_connection(watching: Watching, run: Run) -> None:
    async def play() -> None:
        closed = asyncio.Event()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response(b"part", Content_Length=1000))
            assert await reader.read() == b""
            closed.set()

        async with Web(script=talk) as web, Web(PAGE) as other, multi(watching) as one:
            body = BytesIO()
            easy = handle(web.url(), body=body)
            end = one.start(easy)
            await until(lambda: body.getvalue() == b"part")
            beside = one.start(handle(other.url()))
            one.cancel(easy)
            await closed.wait()
            assert await beside == TransferEnd(0)
            assert not end.done()
            one.cancel(easy)  # a second time changes nothing
            easy.setopt(pycurl.URL, other.url())
            assert await one.start(easy) == TransferEnd(0)  # it is in no multi, and can be used again

    run(play())


def test_an_end_that_nobody_waits_for_any_more_hurts_nobody(watching: Watching, run: Run) -> None:
    async def play() -> None:
        async with Web(PAGE) as web, multi(watching) as one:
            one.start(handle(web.url())).cancel()
            assert await one.start(handle(web.url())) == TransferEnd(0)
            await until(lambda: not one._active)

    run(play())


def test_closing_cancels_what_is_under_way_and_leaves_no_descriptor(watching: Watching, run: Run) -> None:
    async def play() -> None:
        async with Web(PAGE) as web:
            before = descriptors()
            one = CurlMulti(10, watching)
            await asyncio.gather(*(one.start(handle(web.url())) for _ in range(3)))
            ends = [one.start(handle(web.url("/silent"), 50_000)) for _ in range(4)]
            ends.append(one.start(handle(web.url("/silent"), 20_000)))
            await until(lambda: len(web.heads) == 8)
            assert len(descriptors() - before) > 5
            one.close()
            assert all(end.cancelled() for end in ends)
            one.close()
            with pytest.raises(RuntimeError, match="closed"):
                one.start(handle(web.url()))
            await until(lambda: not web._talks)  # the server has seen the ends of all of them
            await until(lambda: descriptors() <= before)

    run(play())


def test_closing_what_was_never_used() -> None:
    one = CurlMulti(10)
    one.close()
    with pytest.raises(RuntimeError, match="closed"):
        one.start(handle("http://127.0.0.1/"))


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="there is no epoll")
def test_closing_while_several_are_ready_calls_for_none_of_the_others(run: Run) -> None:
    async def play() -> None:
        pairs = [socket.socketpair() for _ in range(3)]
        called: list[int] = []

        def ready(descriptor: int, _what: int) -> None:
            called.append(descriptor)
            epoll.close()

        epoll = EpollWatcher(asyncio.get_running_loop(), ready)
        for ours, theirs in pairs:
            epoll.watch(ours.fileno(), pycurl.POLL_IN)
            theirs.send(b"x")
        await until(lambda: bool(called))
        await asyncio.sleep(0.01)
        assert len(called) == 1
        for pair in pairs:
            for end in pair:
                end.close()

    run(play())
