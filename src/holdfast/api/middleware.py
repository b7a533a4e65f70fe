"""ASGI middleware: refuses bodies that are too long and URLs that are not text, and adds security headers to every
response.

The rule: it does not touch a body that it lets through, so that streams stay streams. A request that it refuses
counts for the rate limits.
"""

import logging
from typing import Final
from urllib.parse import unquote_to_bytes

from fastapi import HTTPException, Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api import auth, errors
from holdfast.api.http_protocol import MALFORMED
from holdfast.api.rate_limit import RateLimitStatus

log: Final = logging.getLogger(__name__)

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


class SecurityMiddleware:
    """Limits request bodies, and adds security and rate limit headers."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        received = 0
        started = False

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise HTTPException(413, f"A body may have {self._max_body_bytes} bytes at most.")
            return message

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                for rate_limit in state.get("rate_limit_statuses", ()):
                    _add_rate_limit_headers(headers, rate_limit)
            await send(message)

        rejection = self._rejection(scope)
        if rejection is not None:
            status, detail = rejection
            await (await auth.counted_error(Request(scope), status, detail))(scope, receive, send_with_headers)
            return
        try:
            await self._app(scope, receive_limited, send_with_headers)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise  # the connection is cut, so that no client takes a part of the body for all of it
            failed = errors.from_status(500, "The server failed unexpectedly; its log says why.")
            await failed(scope, receive, send_with_headers)

    def _rejection(self, scope: Scope) -> tuple[int, str] | None:
        if (malformed := scope["state"].get(MALFORMED)) is not None:
            status, detail = malformed
            return status, detail
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._max_body_bytes:
            return 413, f"A body may have {self._max_body_bytes} bytes at most."
        try:
            text = scope["path"] + scope["query_string"].decode("ascii")
            unquote_to_bytes(scope["query_string"]).decode()
        except UnicodeDecodeError:
            return 400, "The address of a request must be UTF-8, percent-encoded."
        if "\0" in text or "%00" in text or "\ufffd" in scope["path"]:
            return 400, "The address of a request must be text without NUL characters."
        return None


def _add_rate_limit_headers(headers: MutableHeaders, status: RateLimitStatus) -> None:
    for name, value in status.headers().items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
