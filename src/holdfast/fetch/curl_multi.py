"""Event loop integration of libcurl's multi handle: socket readiness, timers and the completion of transfers.

The rule: `socket_action` is called only here and never from within one of libcurl's own callbacks. PycURL's AsyncCurlMulti does the same in
general, for twice the CPU time. Here a request is sent at the moment it is started, so the next one does not wait for it, and completion
is reported immediately.

Sockets are watched by a private epoll, or by the event loop where there is no epoll. libcurl stops and starts watching a connection with
every page. On the event loop that is expensive: uvloop creates a new object and makes four system calls, 40 of 700 us a page. The private
epoll is one descriptor to the loop, and an idle connection stays registered in it. The rule: what is stored about a descriptor may be out
of date, since libcurl closes sockets without notice and the kernel reuses their numbers; so each registration goes to the kernel again.
"""

import asyncio
import logging
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

import pycurl

OnReady = Callable[[int, int], None]
"""Called with a descriptor and what it is ready for (CSELECT_IN …)."""


class SocketWatcher(Protocol):
    """Reports when descriptors are ready."""

    def watch(self, descriptor: int, what: int) -> None:
        """Watch `descriptor` for `what`: POLL_IN, POLL_OUT or POLL_INOUT."""
        ...

    def pause(self, descriptor: int) -> None:
        """Stop reporting `descriptor`, which libcurl may watch again or may have closed."""
        ...

    def close(self) -> None:
        """After: nothing is watched."""
        ...


def make_watcher(loop: asyncio.AbstractEventLoop, ready: OnReady) -> SocketWatcher:
    """The fastest watcher of this system."""
    return EpollWatcher(loop, ready) if hasattr(select, "epoll") else LoopWatcher(loop, ready)


class EpollWatcher:
    """Watches with a private epoll."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ready: OnReady) -> None:
        self._loop = loop
        self._ready = ready
        self._watched: dict[int, int] = {}
        self._open_epoll()

    def watch(self, descriptor: int, what: int) -> None:
        wanted = (select.EPOLLIN if what & pycurl.POLL_IN else 0) | (select.EPOLLOUT if what & pycurl.POLL_OUT else 0)
        self._watched[descriptor] = wanted
        try:
            self._epoll.modify(descriptor, wanted)
        except FileNotFoundError:  # a new socket, perhaps with a reused number
            self._epoll.register(descriptor, wanted)

    def pause(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)

    def close(self) -> None:
        self._close_epoll()

    def _open_epoll(self) -> None:
        self._epoll = select.epoll()
        self._loop.add_reader(self._epoll, self._poll)

    def _close_epoll(self) -> None:
        self._loop.remove_reader(self._epoll)
        self._epoll.close()

    def _poll(self) -> None:
        for descriptor, events in self._epoll.poll(0):
            if self._epoll.closed:
                return
            if descriptor in self._watched:
                what = (pycurl.CSELECT_IN if events & select.EPOLLIN else 0) | (
                    pycurl.CSELECT_OUT if events & select.EPOLLOUT else 0
                )
                self._ready(descriptor, what or pycurl.CSELECT_ERR)
                continue
            # An idle connection: the server closed it or sent unexpected data. libcurl notices before it reuses the connection (if a
            # second or more has passed since the last use; before that it does not look, and resends if there is no response).
            try:
                self._epoll.unregister(descriptor)
            except OSError:
                # libcurl has just closed it, or a child process inherited it and keeps it open: it would be reported endlessly.
                self._rebuild()
                return

    def _rebuild(self) -> None:
        """After: a new epoll with only the watched descriptors. Those that are ready are reported again."""
        self._close_epoll()
        self._open_epoll()
        for descriptor, wanted in self._watched.items():
            with suppress(OSError):
                self._epoll.register(descriptor, wanted)


class LoopWatcher:
    """Watches with the event loop, where there is no epoll."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ready: OnReady) -> None:
        self._loop = loop
        self._ready = ready
        self._watched: dict[int, int] = {}

    def watch(self, descriptor: int, what: int) -> None:
        previous = self._watched.get(descriptor, 0)
        self._watched[descriptor] = what
        if what & pycurl.POLL_IN:
            self._loop.add_reader(descriptor, self._ready, descriptor, pycurl.CSELECT_IN)
        elif previous & pycurl.POLL_IN:
            self._loop.remove_reader(descriptor)
        if what & pycurl.POLL_OUT:
            self._loop.add_writer(descriptor, self._ready, descriptor, pycurl.CSELECT_OUT)
        elif previous & pycurl.POLL_OUT:
            self._loop.remove_writer(descriptor)

    def pause(self, descriptor: int) -> None:
        if self._watched.pop(descriptor, None) is not None:
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)

    def close(self) -> None:
        for descriptor in list(self._watched):
            self.pause(descriptor)


log: Final = logging.getLogger(__name__)

_TIMER_MARGIN: Final = 0.001
"""Seconds added to each timer: libcurl counts in milliseconds, and if it is woken too early it never sets another timer."""


class TransferEnd(NamedTuple):
    """How a transfer ended: libcurl's error code (0: success) and message."""

    code: int
    message: str = ""


class CurlMulti:
    """A multi handle. Bound to the event loop of its first transfer."""

    def __init__(
        self,
        connections: int,
        make_watcher: Callable[[asyncio.AbstractEventLoop, OnReady], SocketWatcher] = make_watcher,
    ) -> None:
        """`connections`: the maximum open at a time; idle ones are closed to make room. `make_watcher` creates the socket watcher."""
        self._connections = connections
        self._multi = self._new()
        self._make_watcher = make_watcher
        self._loop: asyncio.AbstractEventLoop
        self._sockets: SocketWatcher | None = None
        self._active: dict[pycurl.Curl, asyncio.Future[TransferEnd]] = {}
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        """Loop time at which the timer fires. Stored here because uvloop's handle of an immediate timer does not have it."""
        self._due: float | None = None
        """Loop time at which libcurl wants to be called; the timer may fire earlier and is then set again."""
        self._starting = False
        self._closed = False

    def _new(self) -> pycurl.CurlMulti:
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, self._connections)
        multi.setopt(pycurl.M_MAXCONNECTS, self._connections)
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        return multi

    def start(self, handle: pycurl.Curl) -> asyncio.Future[TransferEnd]:
        """Start a transfer; on an open connection its request is sent now. Before: the handle is in no multi handle."""
        if self._closed:
            raise RuntimeError("the client is closed")
        if self._sockets is None:
            self._loop = asyncio.get_running_loop()
            self._sockets = self._make_watcher(self._loop, self._socket_action)
        end = self._loop.create_future()
        self._starting = True  # libcurl sets a timer of 0 ms; it is called directly below instead
        try:
            self._multi.add_handle(handle)
        finally:
            self._starting = False
        self._active[handle] = end
        self._socket_action(pycurl.SOCKET_TIMEOUT, 0)
        return end

    def cancel(self, handle: pycurl.Curl) -> None:
        """Cancel a transfer. After: the handle is in no multi handle, its connection is closed."""
        if self._active.pop(handle, None) is not None:
            self._multi.remove_handle(handle)

    def close(self) -> None:
        """After: no connection is open and every pending transfer is cancelled."""
        if self._closed:
            return
        for handle, end in list(self._active.items()):
            self.cancel(handle)
            end.cancel()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._sockets is not None:
            self._sockets.close()
        self._multi.close()

    def _socket_action(self, descriptor: int, what: int) -> None:
        """Let libcurl process an event, then report the transfers that ended."""
        try:
            self._multi.socket_action(descriptor, what)
        except pycurl.error as problem:
            self._fail_all(problem)
            return
        more = 1
        while more:
            more, good, bad = self._multi.info_read()
            for handle in good:
                self._finish(handle, _SUCCESS)
            for handle, code, message in bad:
                self._finish(handle, TransferEnd(code, message))

    def _fail_all(self, problem: pycurl.error) -> None:
        """Handle a fatal error of libcurl (no memory, a socket that cannot be watched). After: all transfers have failed with it, and a
        new multi handle is ready."""
        log.error("libcurl has given up: %s; all requests under way have failed", problem)
        for handle in list(self._active):
            with suppress(pycurl.error):
                self._finish(handle, TransferEnd(problem.args[0], str(problem.args[-1])))
        self._multi.close()
        self._multi, self._due = self._new(), None

    def _finish(self, handle: pycurl.Curl, how: TransferEnd) -> None:
        end = self._active.pop(handle)
        if not end.done():
            end.set_result(how)
        self._multi.remove_handle(handle)

    def _on_socket(self, what: int, descriptor: int, _multi: pycurl.CurlMulti, _data: object) -> None:
        if self._closed or self._sockets is None:
            return
        if what == pycurl.POLL_REMOVE:
            self._sockets.pause(descriptor)
        else:
            self._sockets.watch(descriptor, what)

    def _on_timer(self, milliseconds: int) -> None:
        """Set or clear (-1) libcurl's timer. libcurl changes it several times a page, mostly to a later time."""
        if self._starting or self._closed:
            return
        if milliseconds < 0:
            self._due = None
            return
        self._due = self._loop.time() + milliseconds / 1000 + _TIMER_MARGIN
        if self._timer is None or self._timer_at > self._due:
            if self._timer is not None:
                self._timer.cancel()
            self._set_timer(self._due)

    def _set_timer(self, when: float) -> None:
        self._timer, self._timer_at = self._loop.call_at(when, self._on_time), when

    def _on_time(self) -> None:
        self._timer = None
        if self._due is None:
            return
        if self._due > self._loop.time():
            self._set_timer(self._due)
        else:
            self._due = None
            self._socket_action(pycurl.SOCKET_TIMEOUT, 0)


_SUCCESS: Final = TransferEnd(0)
