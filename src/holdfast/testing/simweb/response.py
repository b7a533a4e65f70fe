"""An answer as a value, and the manner in which it is given.

The rule: it says all that the server must know to send it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from holdfast.simweb import render

HTML: Final = "text/html; charset=utf-8"


class Manner(Enum):
    """How an answer is given."""

    PLAIN = "head and body"
    CUT = "half of the body, then the end of the connection"
    RESET = "a reset instead of an answer"
    HANG = "nothing, until the client gives up"
    GARBAGE = "the body alone, then the end of the connection"
    DRIP = "a byte at a time"
    ENDLESS = "the body again and again, chunked unless a length is declared"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets."""

    status: int
    body: bytes = b""
    kind: str = HTML
    """Content-Type."""
    headers: Mapping[str, str] = field(default_factory=dict)
    manner: Manner = Manner.PLAIN
    delay: float = 0.0
    """Seconds before it begins."""
    etag: str | None = None
    modified: str | None = None
    retry_after: int | None = None


def missing(delay: float, status: int = 404) -> Answer:
    """What is said of a page that is not there."""
    return Answer(status, render.html(str(status), "<p>There is no such page.</p>"), delay=delay)
