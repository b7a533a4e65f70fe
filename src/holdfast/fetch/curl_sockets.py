"""Watching the sockets that libcurl wants watched.

libcurl stops and begins to watch a connection with every page that comes over it. The event loop pays for each of these: uvloop makes a
new object and calls the kernel four times, 40 of 700 us a page. So there is an epoll of our own, which the loop sees as one
descriptor, and a connection that rests stays in it. The rule: what is remembered of a descriptor may be wrong, since libcurl closes
sockets without a word and their numbers are given away again; so the kernel is told anew each time.
"""

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import pycurl

Ready = Callable[[int, int], None]
"""Called with a descriptor and what it is ready for (CSELECT_IN …)."""


class Sockets(Protocol):
    """Watches descriptors."""

    def watch(self, descriptor: int, what: int) -> None:
        """From now on, for `what`: POLL_IN, POLL_OUT or POLL_INOUT."""
        ...

    def rest(self, descriptor: int) -> None:
        """Not now; perhaps soon again, perhaps it is closed."""
        ...

    def close(self) -> None:
        """After: nothing is watched."""
        ...


def sockets(loop: asyncio.AbstractEventLoop, ready: Ready) -> Sockets:
    """What serves best on this system."""
    return EpollSockets(loop, ready) if hasattr(select, "epoll") else LoopSockets(loop, ready)


class EpollSockets:
    """By an epoll of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
        self._loop = loop
        self._ready = ready
        self._watched: dict[int, int] = {}
        self._begin()

    def watch(self, descriptor: int, what: int) -> None:
        wanted = (select.EPOLLIN if what & pycurl.POLL_IN else 0) | (select.EPOLLOUT if what & pycurl.POLL_OUT else 0)
        self._watched[descriptor] = wanted
        try:
            self._epoll.modify(descriptor, wanted)
        except FileNotFoundError:  # a new socket, whatever its number was before
            self._epoll.register(descriptor, wanted)

    def rest(self, descriptor: int) -> None:
        self._watched.pop(descriptor, None)

    def close(self) -> None:
        self._end()

    def _begin(self) -> None:
        self._epoll = select.epoll()
        self._loop.add_reader(self._epoll, self._look)

    def _end(self) -> None:
        self._loop.remove_reader(self._epoll)
        self._epoll.close()

    def _look(self) -> None:
        for descriptor, events in self._epoll.poll(0):
            if self._epoll.closed:
                return
            if descriptor in self._watched:
                what = (pycurl.CSELECT_IN if events & select.EPOLLIN else 0) | (
                    pycurl.CSELECT_OUT if events & select.EPOLLOUT else 0
                )
                self._ready(descriptor, what or pycurl.CSELECT_ERR)
                continue
            # The server has closed it, or speaks out of turn: libcurl sees that before it uses it again (a second or more after
            # its last use; sooner it looks at nothing, and sends again if nobody answers).
            try:
                self._epoll.unregister(descriptor)
            except OSError:
                # libcurl has closed it a moment ago, or somebody inherited it and keeps it open: then it would be ready for ever.
                self._anew()
                return

    def _anew(self) -> None:
        """After: an epoll that knows nothing but what is watched. What is ready is so there, too."""
        self._end()
        self._begin()
        for descriptor, wanted in self._watched.items():
            with suppress(OSError):
                self._epoll.register(descriptor, wanted)


class LoopSockets:
    """By the event loop, where there is no epoll."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ready: Ready) -> None:
        self._loop = loop
        self._ready = ready
        self._watched: dict[int, int] = {}

    def watch(self, descriptor: int, what: int) -> None:
        had = self._watched.get(descriptor, 0)
        self._watched[descriptor] = what
        if what & pycurl.POLL_IN:
            self._loop.add_reader(descriptor, self._ready, descriptor, pycurl.CSELECT_IN)
        elif had & pycurl.POLL_IN:
            self._loop.remove_reader(descriptor)
        if what & pycurl.POLL_OUT:
            self._loop.add_writer(descriptor, self._ready, descriptor, pycurl.CSELECT_OUT)
        elif had & pycurl.POLL_OUT:
            self._loop.remove_writer(descriptor)

    def rest(self, descriptor: int) -> None:
        if self._watched.pop(descriptor, None) is not None:
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)

    def close(self) -> None:
        for descriptor in list(self._watched):
            self.rest(descriptor)
