"""Around every request and answer: what is too long or no text is turned away, and every answer has the headers that keep it safe.

The rule: it touches no body that it lets through, so that streams stay streams. What it turns away counts for the rate limits.
"""

import logging
from typing import Final
from urllib.parse import unquote_to_bytes

from fastapi import HTTPException, Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.web import guard, problems
from holdfast.web.limits import Standing
from holdfast.web.line import UNREADABLE

log: Final = logging.getLogger(__name__)

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class Envelope:
    """An ASGI middleware."""

    def __init__(self, app: ASGIApp, *, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        received = 0
        begun = False

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._most:
                raise HTTPException(413, f"A body may have {self._most} bytes at most.")
            return message

        async def sealed(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                for standing in state.get("standings", ()):
                    _say(headers, standing)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            status, detail = refusal
            await (await guard.counted_refusal(Request(scope), status, detail))(scope, receive, sealed)
            return
        try:
            await self._app(scope, counted, sealed)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise  # the connection is cut, so that nobody takes what was sent for all of it
            failed = problems.plain(500, "Something went wrong on our side; the server's log says what.")
            await failed(scope, receive, sealed)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        if (unreadable := scope["state"].get(UNREADABLE)) is not None:
            status, sentence = unreadable
            return status, sentence
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._most:
            return 413, f"A body may have {self._most} bytes at most."
        try:
            text = scope["path"] + scope["query_string"].decode("ascii")
            unquote_to_bytes(scope["query_string"]).decode()
        except UnicodeDecodeError:
            return 400, "The address of a request must be UTF-8, percent-encoded."
        if "\0" in text or "%00" in text or "\ufffd" in scope["path"]:
            return 400, "The address of a request must be text without NUL characters."
        return None


def _say(headers: MutableHeaders, standing: Standing) -> None:
    for name, value in standing.headers().items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
