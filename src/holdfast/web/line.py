"""A connection to the API, as uvicorn reads requests from it, with limits on the time and length of a request's head.

The rule: a head arrives within its time and has at most `LONGEST_HEAD` bytes, counted also within one read, or the connection is closed.
A request that cannot be served (no HTTP, a target that is no path, a head that is too long) still goes through the app, marked with
`UNREADABLE`, so that the same rate limits count it. Trailers are no head: they are not read, and share the limit.
"""

import asyncio
import ipaddress
import resource
from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

LONGEST_HEAD: Final = 64 * 1024
"""Bytes, from the first of the method to the empty line."""
UNREADABLE: Final = "unreadable"
"""The key in a scope's state under which the status and the sentence for such a request are."""

_MANY: Final = 50_000
_TOO_LONG: Final = 431, f"The head of a request may have {LONGEST_HEAD} bytes."
_NOT_HTTP: Final = 400, "This is not a request of HTTP/1.1."


class Connected:
    """How many connections each address has. The rule: one has at most half of those that this process can have, so that a client who
    opens connections and says nothing keeps none from others. Reverse proxies, which connect for many clients, have no limit."""

    def __init__(self, exempt: Collection[str] = (), limit: int | None = None) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._limit = limit if limit is not None else _MANY if files == resource.RLIM_INFINITY else max(1, files // 2)
        self._exempt = [ipaddress.ip_network(network) for network in exempt]
        self._count = Counter[str]()

    def enter(self, address: str) -> bool:
        """Count a connection; False: it is one too many. `leave` follows in any case."""
        self._count[address] += 1
        return self._count[address] <= self._limit or self._is_exempt(address)

    def _is_exempt(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._exempt)

    def leave(self, address: str) -> None:
        """It is closed."""
        self._count[address] -= 1
        if not self._count[address]:
            del self._count[address]


class Line(HttpToolsProtocol):
    """A connection whose request heads arrive in time and are not too long."""

    def __init__(self, *, patience: float, connected: Connected, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._patience = patience
        self._connected = connected
        self._waiting: asyncio.TimerHandle | None = None
        """Until the head is complete."""
        self._length = 0
        """Bytes read since the last that were part of a body."""
        self._fields = 0
        """Bytes of the head as parsed so far. A second head in one read is measured by these."""
        self._is_over = False
        """No further request is read from this connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its parent does
        super().connection_made(transport)
        if self._connected.enter(self._address):
            self._wait()
        else:
            self._is_over = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        self._is_over = True
        self._connected.leave(self._address)
        super().connection_lost(exc)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def data_received(self, data: bytes) -> None:
        while data and not self._is_over:
            room = LONGEST_HEAD - self._length
            if room <= 0:
                self._refuse(*_TOO_LONG)
                return
            piece, data = data[:room], data[room:]
            self._length += len(piece)
            self._feed(piece)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._fields = 0
        if self._waiting is None:  # another request on the same connection
            self._wait()

    def on_url(self, url: bytes) -> None:
        self._fields += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if (
            self._waiting is not None
        ):  # else a trailer, which uvicorn would add to the headers that have been judged by now
            self._fields += len(name) + len(value) + len(": \r\n")
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._wait_no_more()
        self._length = 0
        if self._is_over:
            return
        if self._fields + len(self.parser.get_method()) + len("  HTTP/1.1\r\n\r\n") > LONGEST_HEAD:
            self._refuse(*_TOO_LONG)
            return
        super().on_headers_complete()
        if self.parser.should_upgrade():  # which nothing here does: it is answered, and no other request can follow it
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._length = 0
        if not self._is_over:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._length = 0
        if not self._is_over:
            super().on_message_complete()
            self._is_over = self.parser.should_upgrade()

    def _feed(self, piece: bytes) -> None:
        """Parse some bytes. The parent would write a line of log for every request that is not HTTP, or asks for an upgrade."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(piece)
        except HttpParserUpgrade:
            pass  # the app has the request, and answers it like any other
        except HttpParserError:
            self._refuse(*_NOT_HTTP)

    def _refuse(self, status: int, sentence: str) -> None:
        """Have the app count and refuse a request that cannot be served, after those before it; then close."""
        self._wait_no_more()
        if self._is_over or self.transport.is_closing():
            return
        self._is_over = True
        before = self.cycle
        is_answering = before is not None and not before.response_complete
        if is_answering and before.more_body:  # the fault is in the body of a request that the app has counted
            self.send_400_response(sentence)
            return
        super().on_message_begin()
        self.scope.update({"method": "GET", "path": "/", "raw_path": b"/", "query_string": b""})
        self.scope["state"][UNREADABLE] = status, sentence
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=False,
            on_response=self.on_response_complete,
        )
        self.cycle.more_body = False
        self.cycle.message_event.set()
        if is_answering:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
        else:
            self._start_asgi_task(self.cycle, self.app)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self._patience, self._time_out)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _time_out(self) -> None:
        self._wait_no_more()
        self._is_over = True
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
