"""uvicorn's HTTP protocol with limits on the time and length of a request head, and on connections from one address.

The rule: a head arrives within its time and has at most `MAX_HEAD_BYTES` bytes, counted also within one read, or the
connection is closed. A request that cannot be served (not HTTP, a target that is not a path, a head that is too long)
still goes through the app, marked with `MALFORMED`, so that the same rate limits count it. Trailers are not headers:
they are ignored, and share the limit.
"""

import asyncio
import ipaddress
import resource
from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_HEAD_BYTES: Final = 64 * 1024
"""Bytes, from the first of the method to the empty line."""
MALFORMED: Final = "malformed"
"""The key in a scope's state for the status and the detail of the response to such a request."""

_DEFAULT_MAX_CONNECTIONS: Final = 50_000
_HEAD_TOO_LONG: Final = 431, f"The head of a request may have {MAX_HEAD_BYTES} bytes."
_NOT_HTTP: Final = 400, "This is not a request of HTTP/1.1."


class ConnectionCounter:
    """Counts the open connections of each address. The rule: one address has at most half of those that this process
    can have, so that an idle client leaves connections for others. Reverse proxies, which connect for many clients,
    have no limit."""

    def __init__(self, exempt: Collection[str] = (), limit: int | None = None) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._limit = (
            limit
            if limit is not None
            else _DEFAULT_MAX_CONNECTIONS
            if files == resource.RLIM_INFINITY
            else max(1, files // 2)
        )
        self._exempt = [ipaddress.ip_network(network) for network in exempt]
        self._count = Counter[str]()

    def add(self, address: str) -> bool:
        """Count a connection; False: it is over the limit. `remove` follows in any case."""
        self._count[address] += 1
        return self._count[address] <= self._limit or self._is_exempt(address)

    def _is_exempt(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self._exempt)

    def remove(self, address: str) -> None:
        """Uncount a connection that was closed."""
        self._count[address] -= 1
        if not self._count[address]:
            del self._count[address]


class HttpProtocol(HttpToolsProtocol):
    """A connection whose request heads arrive in time and are not too long."""

    def __init__(self, *, head_timeout: float, connections: ConnectionCounter, **options: Any) -> None:
        super().__init__(**options)
        self._head_timeout = head_timeout
        self._connections = connections
        self._head_timer: asyncio.TimerHandle | None = None
        """Runs until the head is complete."""
        self._bytes_since_body = 0
        """Bytes read since the last ones of a body."""
        self._parsed_head_bytes = 0
        """Bytes of the head as parsed so far. A second head in one read is measured by these."""
        self._is_closing = False
        """No further request is read from this connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its parent does
        super().connection_made(transport)
        if self._connections.add(self._address):
            self._start_head_timer()
        else:
            self._is_closing = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        self._is_closing = True
        self._connections.remove(self._address)
        super().connection_lost(exc)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def data_received(self, data: bytes) -> None:
        while data and not self._is_closing:
            allowed = MAX_HEAD_BYTES - self._bytes_since_body
            if allowed <= 0:
                self._reject(*_HEAD_TOO_LONG)
                return
            piece, data = data[:allowed], data[allowed:]
            self._bytes_since_body += len(piece)
            self._feed(piece)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._parsed_head_bytes = 0
        if self._head_timer is None:  # another request on the same connection
            self._start_head_timer()

    def on_url(self, url: bytes) -> None:
        self._parsed_head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if (
            self._head_timer is not None
        ):  # else a trailer, which uvicorn would add to headers that have been checked already
            self._parsed_head_bytes += len(name) + len(value) + len(": \r\n")
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._cancel_head_timer()
        self._bytes_since_body = 0
        if self._is_closing:
            return
        if self._parsed_head_bytes + len(self.parser.get_method()) + len("  HTTP/1.1\r\n\r\n") > MAX_HEAD_BYTES:
            self._reject(*_HEAD_TOO_LONG)
            return
        super().on_headers_complete()
        if (
            self.parser.should_upgrade()
        ):  # no upgrade is supported: the request is answered, and no other one can follow it
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._bytes_since_body = 0
        if not self._is_closing:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._bytes_since_body = 0
        if not self._is_closing:
            super().on_message_complete()
            self._is_closing = self.parser.should_upgrade()

    def _feed(self, piece: bytes) -> None:
        """Parse some bytes. The parent class would log a line for every request that is not HTTP or asks for an
        upgrade."""
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(piece)
        except HttpParserUpgrade:
            pass  # the app has the request, and answers it like any other
        except HttpParserError:
            self._reject(*_NOT_HTTP)

    def _reject(self, status: int, detail: str) -> None:
        """Let the app count and refuse a request that cannot be served, after those before it; then close."""
        self._cancel_head_timer()
        if self._is_closing or self.transport.is_closing():
            return
        self._is_closing = True
        previous = self.cycle
        is_responding = previous is not None and not previous.response_complete
        if is_responding and previous.more_body:  # the fault is in the body of a request that the app has counted
            self.send_400_response(detail)
            return
        super().on_message_begin()
        self.scope.update({"method": "GET", "path": "/", "raw_path": b"/", "query_string": b""})
        self.scope["state"][MALFORMED] = status, detail
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
        if is_responding:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
        else:
            self._start_asgi_task(self.cycle, self.app)

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._head_timeout, self._on_head_timeout)

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        self._cancel_head_timer()
        self._is_closing = True
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
