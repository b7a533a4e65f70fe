"""libcurl's transfers on the event loop: which sockets it wants watched, when it wants to be woken, who is told of an end.

The rule: libcurl is called here and nowhere else, never from within one of its own callbacks. PycURL's AsyncCurlMulti does the same for
everybody; this does it for requests that begin in the moment they are started (so that the next one need not wait to hear of it) and
whose ends are told at once, for half the time.
"""

import asyncio
from typing import Final, NamedTuple

import pycurl

_SPARE: Final = 0.001
"""Seconds: libcurl, woken too early by a clock that counts in milliseconds, would go to sleep for good."""


class End(NamedTuple):
    """How a transfer ended: libcurl's error and what it says; 0 is none."""

    code: int
    message: str = ""


class Multi:
    """A multi handle. It is bound to the event loop of its first transfer."""

    def __init__(self, connections: int) -> None:
        """No more than `connections` are open at a time; idle ones make room."""
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, connections)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: dict[pycurl.Curl, asyncio.Future[End]] = {}
        self._watched: dict[int, int] = {}
        """By descriptor: for what."""
        self._timer: asyncio.TimerHandle | None = None
        self._due: float | None = None
        """When libcurl wants to be woken; the timer may come sooner, and is set again then."""
        self._starting = False
        self._closed = False

    def start(self, handle: pycurl.Curl) -> asyncio.Future[End]:
        """Begin a transfer; where its connection stands, its request goes out now. Before: the handle is in no multi."""
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
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
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for handle, end in list(self._under_way.items()):
            self.give_up(handle)
            end.cancel()
        for descriptor in list(self._watched):
            self._watch(descriptor, 0)
        self._multi.close()

    def _act(self, descriptor: int, what: int) -> None:
        """Let libcurl do what there is to do, and tell of the ends."""
        if self._closed:
            return
        self._multi.socket_action(descriptor, what)
        more = 1
        while more:
            more, good, bad = self._multi.info_read()
            for handle in good:
                self._tell(handle, _GOOD)
            for handle, code, message in bad:
                self._tell(handle, End(code, message))

    def _tell(self, handle: pycurl.Curl, how: End) -> None:
        end = self._under_way.pop(handle)
        self._multi.remove_handle(handle)
        if not end.done():
            end.set_result(how)

    def _on_socket(self, what: int, descriptor: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        self._watch(descriptor, 0 if what == pycurl.POLL_REMOVE else what)

    def _watch(self, descriptor: int, wanted: int) -> None:
        loop = self._loop
        if loop is None or (self._closed and wanted):
            return
        had = self._watched.pop(descriptor, 0)
        if wanted:
            self._watched[descriptor] = wanted
        changed = had ^ wanted
        if changed & pycurl.POLL_IN:
            if wanted & pycurl.POLL_IN:
                loop.add_reader(descriptor, self._act, descriptor, pycurl.CSELECT_IN)
            else:
                loop.remove_reader(descriptor)
        if changed & pycurl.POLL_OUT:
            if wanted & pycurl.POLL_OUT:
                loop.add_writer(descriptor, self._act, descriptor, pycurl.CSELECT_OUT)
            else:
                loop.remove_writer(descriptor)

    def _on_timer(self, milliseconds: int) -> None:
        """libcurl wants to be woken then; -1: it does not. It changes its mind several times a page, mostly for later."""
        loop = self._loop
        if self._starting:
            return
        if milliseconds < 0 or loop is None or self._closed:
            self._due = None
            return
        self._due = loop.time() + milliseconds / 1000 + _SPARE
        if self._timer is None or self._timer.when() > self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(self._due, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._due is None or self._loop is None:
            return
        if self._due > self._loop.time():
            self._timer = self._loop.call_at(self._due, self._on_time)
        else:
            self._due = None
            self._act(pycurl.SOCKET_TIMEOUT, 0)


_GOOD: Final = End(0)
