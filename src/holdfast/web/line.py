"""A connection to the API, as uvicorn reads requests from it, with an end to its patience.

The rule: whoever connects says what he wants within the time and the length that the head of a request may have, or is cut off. What
follows on a body (trailers) is no head: nobody reads it, and it has no more room.
"""

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LONGEST_HEAD: Final = 64 * 1024
"""Bytes."""


class Line(HttpToolsProtocol):
    """A connection whose heads and trailers of requests are in time and not too long."""

    def __init__(self, *, patience: float, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._patience = patience
        self._waiting: asyncio.TimerHandle | None = None
        """Until the head is there."""
        self._length = 0
        """Bytes since the last that were part of a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its parent does
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._length += len(data)
        super().data_received(data)
        if self._length > LONGEST_HEAD:
            self._cut_off(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._waiting is None:  # another request on the same connection
            self._wait()

    def on_header(self, name: bytes, value: bytes) -> None:
        if (
            self._waiting is not None
        ):  # else a trailer, which uvicorn would add to the headers that have been judged by now
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._wait_no_more()
        self._length = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._length = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._length = 0
        super().on_message_complete()

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self._patience, self._cut_off, b"408 Request Timeout")

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _cut_off(self, status: bytes) -> None:
        self._wait_no_more()
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            self.transport.close()
