"""Descriptors that somebody else keeps open, and a kernel that has no room to watch them: neither keeps a worker busy, nor ends it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
import uvloop

from holdfast.fetch.curl_multi import CurlMulti, EpollWatcher
from holdfast.fetch.dns import Resolver
from holdfast.fetch.http_client import HttpClient
from holdfast.model.fetch_types import FetchRequest, FetchResult
from holdfast.model.outcome import Outcome
from holdfast.settings import Fetch
from tests.support.web import Answer, Web, response


async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A page that comes so slowly that we give up, and goes on coming."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1000000\r\n\r\n")
    with suppress(ConnectionError):
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)


PAGES: dict[str, Answer] = {"/": response(b"hi"), "/drip": drip}


async def ask(client: HttpClient, url: str, seconds: float | None = None) -> FetchResult:
    return await client.fetch(FetchRequest(url, "Holdfast", allow_private=True, timeout=seconds))


def open_sockets() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):  # noqa: PTH115
                found.append(int(name))
    return found


def test_no_process_that_we_start_inherits_a_connection() -> None:
    async def play() -> None:
        settings = Fetch()
        before = set(open_sockets())
        async with Web(PAGES) as web, Resolver(settings) as resolver, HttpClient(settings, resolver) as client:
            assert (await ask(client, web.url("/"))).outcome is Outcome.OK
            new = set(open_sockets()) - before
            assert new
            assert not any(os.get_inheritable(descriptor) for descriptor in new)

    uvloop.run(play())


def test_a_connection_that_somebody_keeps_open_does_not_keep_us_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had been inherited: libcurl closes it, another process does not, and the server goes on talking."""
    seen: list[int] = []
    look = EpollWatcher._poll

    def counted(self: EpollWatcher) -> None:
        seen.append(1)
        look(self)

    monkeypatch.setattr(EpollWatcher, "_poll", counted)

    async def play() -> None:
        settings = Fetch()
        async with Web(PAGES) as web, Resolver(settings) as resolver, HttpClient(settings, resolver) as client:
            before = set(open_sockets())
            request = asyncio.create_task(ask(client, web.url("/drip"), seconds=0.3))
            await asyncio.sleep(0.1)
            held = [os.dup(descriptor) for descriptor in set(open_sockets()) - before]
            for descriptor in held:
                os.set_inheritable(descriptor, True)
            keeper = subprocess.Popen(  # noqa: ASYNC220 — it only sleeps
                [sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False
            )
            for descriptor in held:
                os.close(descriptor)
            try:
                assert (await request).outcome is Outcome.TIMEOUT
                await asyncio.sleep(0.1)
                seen.clear()
                await asyncio.sleep(0.3)
                assert len(seen) < 10
                assert (await ask(client, web.url("/"))).outcome is Outcome.OK
            finally:
                keeper.kill()
                keeper.wait()

    uvloop.run(play())


def test_a_socket_that_cannot_be_watched_costs_the_requests_under_way_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = EpollWatcher.watch
    refusals = [OSError(28, "no room to watch")]

    def full(self: EpollWatcher, descriptor: int, what: int) -> None:
        if refusals:
            raise refusals.pop()
        watch(self, descriptor, what)

    monkeypatch.setattr(EpollWatcher, "watch", full)

    async def play() -> None:
        settings = Fetch()
        async with Web(PAGES) as web, Resolver(settings) as resolver, HttpClient(settings, resolver) as client:
            assert (await ask(client, web.url("/"))).outcome is not Outcome.OK
            assert [(await ask(client, web.url("/"))).outcome for _ in range(3)] == [Outcome.OK] * 3

    uvloop.run(play())


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_timer_that_comes_at_once_can_be_set_again(make: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """uvloop's handle of such a timer is of another kind. By a clock that stands still libcurl's wishes all lie in the past."""

    async def play() -> None:
        multi = CurlMulti(4)
        loop = asyncio.get_running_loop()
        multi._loop = loop
        for milliseconds in (0, 0, 50, 0):
            multi._due = None
            multi._set_timer(loop.time() - 1)
            multi._on_timer(milliseconds)
        assert multi._timer is not None
        multi._timer.cancel()
        multi._timer = None
        multi.close()

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(play())
