"""Readiness of libcurl's sockets: a private epoll, or the event loop where there is no epoll.

libcurl stops and starts watching a connection with every page. On the event loop that is expensive: uvloop creates a new object and makes
four system calls, 40 of 700 us a page. The private epoll is one descriptor to the loop, and an idle connection stays registered in it.
The rule: what is stored about a descriptor may be out of date, since libcurl closes sockets without notice and the kernel reuses their
numbers; so each registration goes to the kernel again.
"""

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

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
                # libcurl has just closed it, or a child process inherited it and keeps it open: it would be reported for ever.
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
