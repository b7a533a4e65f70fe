"""One connection to the simulated web: the part of HTTP/1.1 that a crawler needs.

The rule: requests of a connection are processed in order, and any input of a client leads to a response or to the end of this connection,
never of the server.
"""

import asyncio
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from holdfast.testing.simweb.access_log import boot_ns
from holdfast.testing.simweb.render import Delivery

if TYPE_CHECKING:
    from holdfast.testing.simweb.server import EncodedResponse, Server

_MAX_HEAD: Final = 65_536
_DRIP_SECONDS: Final = 0.2
_STREAM_SECONDS: Final = 0.002


class Request(NamedTuple):
    """A parsed request. `began` and `wall` are in nanoseconds."""

    began: int
    wall: int
    method: str
    host: str
    target: str
    headers: dict[bytes, bytes]
    close: bool
    """The connection is closed after the response."""


class BadRequest(Exception):
    """An invalid request; the argument is the status of the response."""


def parse(head: bytes) -> Request:
    """Parse the head of a request, without its empty line. Raises BadRequest."""
    began, wall = boot_ns(), time.time_ns()
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[0].isalpha():
        raise BadRequest(400)
    headers: dict[bytes, bytes] = {}
    for each in lines:
        name, colon, value = each.partition(b":")
        if not colon or not name or name[0] in b" \t":
            raise BadRequest(400)
        headers[name.lower()] = value.strip()
    method, target, host = (
        words[0].decode("latin-1"),
        words[1].decode("latin-1"),
        headers.get(b"host", b"").decode("latin-1"),
    )
    if target.startswith("http://"):  # absolute form, as sent to proxies
        host, _, target = target.removeprefix("http://").partition("/")
        target = f"/{target}"
    if not host or not target.startswith("/"):
        raise BadRequest(400)
    if method not in ("GET", "HEAD"):
        raise BadRequest(405)
    if b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0":
        raise BadRequest(400)
    close = words[2] == b"HTTP/1.0" or headers.get(b"connection", b"").lower() == b"close"
    return Request(began, wall, method, host.lower(), target, headers, close)


class Connection(asyncio.Protocol):
    """A connection of a client. `site` is the site of its port; None: by the Host header."""

    def __init__(self, server: "Server", number: int, site: int | None) -> None:
        self._server, self._number, self._site = server, number, site
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._transport: asyncio.Transport
        self._request: Request | None = None
        """The request in progress."""
        self._in_flight = self._late = 0
        self._requests = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing_paused = False
        """The send buffer is full: the client reads too slowly."""
        self._reading_paused = False
        """Reading is paused: the client sends faster than the server responds."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport does not inherit from it
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server.connections.discard(self)
        self._end(0)

    def abandon(self) -> None:
        """Abort at the stop of the server. After: the request in progress, if any, is in the log with status 0."""
        self._transport.abort()
        self._end(0)

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._process_buffer()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._request is None:
            self._process_buffer()
        elif len(self._buffer) > _MAX_HEAD:
            self._transport.pause_reading()
            self._reading_paused = True

    def _process_buffer(self) -> None:
        """Process the buffered requests until one is delayed."""
        while self._request is None and not self._writing_paused and not self._transport.is_closing():
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0 or end > _MAX_HEAD:
                if len(self._buffer) > _MAX_HEAD:
                    self._refuse(431)
                break
            head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
            try:
                request = parse(head.lstrip(b"\r\n"))
            except BadRequest as bad:
                self._refuse(bad.args[0])
                break
            self._begin(request)
        if self._reading_paused and self._request is None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._reading_paused = False

    def _refuse(self, status: int) -> None:
        """After: an error response was sent, and the connection is closed."""
        now = boot_ns()
        self._server.record(Request(now, time.time_ns(), "-", "-", "-", {}, True), status, self._number, 1)
        text = f"HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        self._transport.write(text.encode())
        self._transport.close()

    def _begin(self, request: Request) -> None:
        control = self._server.control(request)
        if control is not None:
            self._transport.write(control)
            return
        self._request = request
        self._in_flight, self._late = self._server.begin_request(request), self._server.stalls.late(request.began)
        encoded = self._server.answer(request, self._site, self._number, self._requests)
        self._requests += 1
        delay = max(encoded.answer.delay, self._server.paused_until - self._loop.time())
        if delay > 0:
            self._timer = self._loop.call_later(delay, self._send, encoded)
        else:
            self._send(encoded)

    def _end(self, status: int, retry_after: int | None = None) -> None:
        """After: the request in progress, if any, is in the log, and the next may begin."""
        if self._request is not None:
            request, self._request = self._request, None
            if self._timer:
                self._timer.cancel()
                self._timer = None
            self._server.end_request(request)
            self._server.record(request, status, self._number, self._in_flight, retry_after, late=self._late)

    def _send(self, encoded: "EncodedResponse") -> None:
        request, answer = cast("Request", self._request), encoded.answer
        without_body, timed = request.method == "HEAD" or answer.status == 304, self._timer is not None
        delivery = Delivery.PLAIN if without_body and answer.status else answer.delivery
        if delivery is Delivery.PLAIN:
            self._transport.writelines(encoded.encode(without_body=without_body, close=request.close))
            self._end(answer.status, answer.retry_after)
            if request.close:
                self._transport.close()
            elif timed:
                self._process_buffer()
        elif delivery in (Delivery.DRIP, Delivery.ENDLESS):
            self._transport.writelines(encoded.encode(without_body=True, close=True))
            if delivery is Delivery.DRIP:
                self._drip(deque(answer.body))
            else:
                chunked = "Content-Length" not in answer.headers
                self._stream(b"%x\r\n%b\r\n" % (len(answer.body), answer.body) if chunked else answer.body)
        elif delivery is not Delivery.HANG:
            self._send_broken(encoded)

    def _send_broken(self, encoded: "EncodedResponse") -> None:
        """After: the connection is closed without a complete response."""
        self._end(0)
        if encoded.answer.delivery is Delivery.RESET:
            linger = struct.pack("ii", 1, 0)  # close with RST instead of FIN
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._transport.abort()
            return
        whole = (
            b"".join(encoded.encode(without_body=False, close=True)) if encoded.answer.status else encoded.answer.body
        )
        cut = len(encoded.answer.body) // 2 if encoded.answer.delivery is Delivery.CUT else 0
        self._transport.write(whole[: len(whole) - cut])
        self._transport.close()

    def _drip(self, rest: deque[int]) -> None:
        if not rest:
            self._end(200)
            self._transport.close()
            return
        self._transport.write(bytes([rest.popleft()]))
        self._timer = self._loop.call_later(_DRIP_SECONDS, self._drip, rest)

    def _stream(self, chunk: bytes) -> None:
        if not self._writing_paused:
            self._transport.write(chunk)
        self._timer = self._loop.call_later(_STREAM_SECONDS, self._stream, chunk)
