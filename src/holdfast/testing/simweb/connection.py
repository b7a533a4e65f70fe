"""One connection to the simulated web: HTTP/1.1, as little of it as a crawler needs.

The rule: requests of a connection are answered one after the other, in order, and whatever a client sends ends in an answer or in the
end of this connection, never of the server.
"""

import asyncio
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from holdfast.simweb.answer import Manner
from holdfast.simweb.log import boot_ns

if TYPE_CHECKING:
    from holdfast.simweb.server import Ready, Server

_MAX_HEAD: Final = 65_536
_DRIP_EVERY: Final = 0.2
_STREAM_EVERY: Final = 0.002


class Request(NamedTuple):
    """What was asked, and when."""

    began: int
    wall: int
    method: str
    host: str
    target: str
    headers: dict[bytes, bytes]
    close: bool
    """The client wants no further request on this connection."""


class BadRequest(Exception):
    """What came is not a request that can be answered; the argument is the status that says so."""


def parse(head: bytes) -> Request:
    """The request whose head this is, without the empty line. Raises BadRequest."""
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
    if target.startswith("http://"):  # as proxies are asked
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
    """A client. `site` is the site that its port serves; None where the Host header says it."""

    def __init__(self, server: "Server", number: int, site: int | None) -> None:
        self._server, self._number, self._site = server, number, site
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._transport: asyncio.Transport
        self._request: Request | None = None
        """The one that is being answered."""
        self._in_flight = 0
        self._requests = 0
        self._timer: asyncio.TimerHandle | None = None
        self._full = False
        """The client does not read as fast as we write."""
        self._held = False
        """The client writes faster than we answer, and is not read from."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without saying so
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._server.connections.discard(self)
        if self._timer:
            self._timer.cancel()
        self._end(0)

    def abandon(self) -> None:
        """The server stops. After: the request under way, if any, is in the log as unanswered."""
        self._transport.abort()
        self._end(0)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._go_on()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._request is None:
            self._go_on()
        elif len(self._buffer) > _MAX_HEAD:
            self._transport.pause_reading()
            self._held = True

    def _go_on(self) -> None:
        """Answer what has been read, until one takes its time."""
        while self._request is None and not self._full and not self._transport.is_closing():
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
        if self._held and self._request is None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._held = False

    def _refuse(self, status: int) -> None:
        """After: the client was told that its request is none, and the connection ends."""
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
        self._in_flight = self._server.enter(request)
        ready = self._server.answer(request, self._site, self._number, self._requests)
        self._requests += 1
        delay = max(ready.answer.delay, self._server.paused_until - self._loop.time())
        if delay > 0:
            self._timer = self._loop.call_later(delay, self._send, ready)
        else:
            self._send(ready)

    def _end(self, status: int, retry_after: int | None = None) -> None:
        """After: the request under way, if any, is in the log, and the next may begin."""
        if self._request is not None:
            request, self._request, self._timer = self._request, None, None
            self._server.leave(request)
            self._server.record(request, status, self._number, self._in_flight, retry_after)

    def _send(self, ready: "Ready") -> None:
        request, answer = cast("Request", self._request), ready.answer
        bare, timed = request.method == "HEAD" or answer.status == 304, self._timer is not None
        manner = Manner.PLAIN if bare and answer.status else answer.manner
        if manner is Manner.PLAIN:
            self._transport.writelines(ready.wire(bare=bare, close=request.close))
            self._end(answer.status, answer.retry_after)
            if request.close:
                self._transport.close()
            elif timed:
                self._go_on()
        elif manner in (Manner.DRIP, Manner.ENDLESS):
            self._transport.writelines(ready.wire(bare=True, close=True))
            if manner is Manner.DRIP:
                self._drip(deque(answer.body))
            else:
                chunked = "Content-Length" not in answer.headers
                self._stream(b"%x\r\n%b\r\n" % (len(answer.body), answer.body) if chunked else answer.body)
        elif manner is not Manner.HANG:
            self._break(ready)

    def _break(self, ready: "Ready") -> None:
        """After: the connection ends without a whole answer."""
        self._end(0)
        if ready.answer.manner is Manner.RESET:
            linger = struct.pack("ii", 1, 0)  # without it the end would be an orderly one
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self._transport.abort()
            return
        whole = b"".join(ready.wire(bare=False, close=True)) if ready.answer.status else ready.answer.body
        cut = len(ready.answer.body) // 2 if ready.answer.manner is Manner.CUT else 0
        self._transport.write(whole[: len(whole) - cut])
        self._transport.close()

    def _drip(self, rest: deque[int]) -> None:
        if not rest:
            self._end(200)
            self._transport.close()
            return
        self._transport.write(bytes([rest.popleft()]))
        self._timer = self._loop.call_later(_DRIP_EVERY, self._drip, rest)

    def _stream(self, piece: bytes) -> None:
        if not self._full:
            self._transport.write(piece)
        self._timer = self._loop.call_later(_STREAM_EVERY, self._stream, piece)
