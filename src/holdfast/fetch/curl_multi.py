"""libcurl's transfers on the event loop: when it wants to be woken, which sockets it wants watched, who is told of an end.

The rule: libcurl is called here and nowhere else, never from within one of its own callbacks. PycURL's AsyncCurlMulti does the same for
everybody, for twice the time. Here a request goes out in the moment it is started, so that the next one need not wait to hear of it, and
its end is told at once.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import pycurl

from holdfast.fetch.sockets import Ready, Sockets, sockets

log: Final = logging.getLogger(__name__)

_SPARE: Final = 0.001
"""Seconds: libcurl, woken too early by a clock that counts in milliseconds, would go to sleep for good."""


class End(NamedTuple):
    """How a transfer ended: libcurl's error and what it says; 0 is none."""

    code: int
    message: str = ""


class Multi:
    """A multi handle. It is bound to the event loop of its first transfer."""

    def __init__(
        self, connections: int, watching: Callable[[asyncio.AbstractEventLoop, Ready], Sockets] = sockets
    ) -> None:
        """No more than `connections` are open at a time; idle ones make room."""
        self._connections = connections
        self._multi = self._new()
        self._watching = watching
        self._loop: asyncio.AbstractEventLoop
        self._sockets: Sockets | None = None
        self._under_way: dict[pycurl.Curl, asyncio.Future[End]] = {}
        self._timer: asyncio.Handle | None = None
        self._rings = 0.0
        """When the timer comes. Not asked of the timer: uvloop gives one that does not know, if it comes at once."""
        self._due: float | None = None
        """When libcurl wants to be woken; the timer may come sooner, and is set again then."""
        self._starting = False
        self._closed = False

    def _new(self) -> pycurl.CurlMulti:
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, self._connections)
        multi.setopt(pycurl.M_MAXCONNECTS, self._connections)
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        return multi

    def start(self, handle: pycurl.Curl) -> asyncio.Future[End]:
        """Begin a transfer; where its connection stands, its request goes out now. Before: the handle is in no multi."""
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._sockets is None:
            self._loop = asyncio.get_running_loop()
            self._sockets = self._watching(self._loop, self._act)
        end = self._loop.create_future()
        self._starting = True  # libcurl asks to be called at once, which it is
        try:
            self._multi.add_handle(handle)
        finally:
            self._starting = False
        self._under_way[handle] = end
        self._act(pycurl.SOCKET_TIMEOUT, 0)
        return end

    def give_up(self, handle: pycurl.Curl) -> None:
        """End a transfer that nobody waits for any more. After: the handle is in no multi, its connection is closed."""
        if self._under_way.pop(handle, None) is not None:
            self._multi.remove_handle(handle)

    def close(self) -> None:
        """After: no connection is open; whoever waited for a transfer was cancelled."""
        if self._closed:
            return
        for handle, end in list(self._under_way.items()):
            self.give_up(handle)
            end.cancel()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._sockets is not None:
            self._sockets.close()
        self._multi.close()

    def _act(self, descriptor: int, what: int) -> None:
        """Let libcurl do what there is to do, and tell of the ends."""
        try:
            self._multi.socket_action(descriptor, what)
        except pycurl.error as problem:
            self._fail(problem)
            return
        more = 1
        while more:
            more, good, bad = self._multi.info_read()
            for handle in good:
                self._tell(handle, _GOOD)
            for handle, code, message in bad:
                self._tell(handle, End(code, message))

    def _fail(self, problem: pycurl.error) -> None:
        """libcurl has given up (no memory, a socket that could not be watched). After: all transfers have ended so, the next can begin."""
        log.error("libcurl has given up: %s; all requests under way have failed", problem)
        for handle in list(self._under_way):
            with suppress(pycurl.error):
                self._tell(handle, End(problem.args[0], str(problem.args[-1])))
        self._multi.close()
        self._multi, self._due = self._new(), None

    def _tell(self, handle: pycurl.Curl, how: End) -> None:
        end = self._under_way.pop(handle)
        if not end.done():
            end.set_result(how)
        self._multi.remove_handle(handle)

    def _on_socket(self, what: int, descriptor: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        if self._closed or self._sockets is None:
            return
        if what == pycurl.POLL_REMOVE:
            self._sockets.rest(descriptor)
        else:
            self._sockets.watch(descriptor, what)

    def _on_timer(self, milliseconds: int) -> None:
        """libcurl wants to be woken then; -1: it does not. It changes its mind several times a page, mostly for later."""
        if self._starting or self._closed:
            return
        if milliseconds < 0:
            self._due = None
            return
        self._due = self._loop.time() + milliseconds / 1000 + _SPARE
        if self._timer is None or self._rings > self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._set_timer(self._due)

    def _set_timer(self, when: float) -> None:
        self._timer, self._rings = self._loop.call_at(when, self._on_time), when

    def _on_time(self) -> None:
        self._timer = None
        if self._due is None:
            return
        if self._due > self._loop.time():
            self._set_timer(self._due)
        else:
            self._due = None
            self._act(pycurl.SOCKET_TIMEOUT, 0)


_GOOD: Final = End(0)
