"""A response as a value, and the way in which it is delivered.

The rule: it has everything that the server needs to send it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from holdfast.testing.simweb import render

HTML: Final = "text/html; charset=utf-8"


class Delivery(Enum):
    """How a response is delivered."""

    PLAIN = "head and body"
    CUT = "half of the body, then the end of the connection"
    RESET = "a reset instead of an answer"
    HANG = "nothing, until the client gives up"
    GARBAGE = "the body alone, then the end of the connection"
    DRIP = "a byte at a time"
    ENDLESS = "the body again and again, chunked unless a length is declared"


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request."""

    status: int
    body: bytes = b""
    content_type: str = HTML
    """The Content-Type header."""
    headers: Mapping[str, str] = field(default_factory=dict)
    delivery: Delivery = Delivery.PLAIN
    delay: float = 0.0
    """Seconds before the response is sent."""
    etag: str | None = None
    modified: str | None = None
    retry_after: int | None = None


def not_found(delay: float, status: int = 404) -> Response:
    """The response for a page that does not exist."""
    return Response(status, render.html(str(status), "<p>There is no such page.</p>"), delay=delay)
