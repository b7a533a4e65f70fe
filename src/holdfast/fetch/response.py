"""Responses as they arrive: the head (status line and headers, as received and as sanitized text) and the body.

The rules: any bytes give a value; text has no control characters, and the archive stores `raw`. Never more of a body than its limit is held
in memory; decoded bytes are counted as they arrive, whatever Content-Length says.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import quote

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_FOLD: Final = re.compile(r"\r?\n[ \t]+")
"""A folded header, continued on the next line (obsolete since RFC 7230)."""
_STATUS: Final = re.compile(rb"HTTP/[^\s]*[ \t]+(\d{3})(?!\d)")
_PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))

PARSEABLE_TYPES: Final = frozenset(("", "text/html", "application/xhtml+xml", "text/plain"))
"""Content types that every request accepts; a missing type is accepted too."""


@dataclass(slots=True)
class ResponseHead:
    """A response without its body."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """By lower-case name; of several with one name the values joined by ", "."""
    raw: bytes = b""
    content_type: str = ""
    """The last Content-Type, in lower case, without its parameters."""
    location: str | None = None
    """As received; bytes that are not valid UTF-8 are percent-encoded, as browsers do."""
    encodings: int = 0
    """Number of content encodings applied."""
    length: int | None = None
    """Content-Length in bytes; None: missing or invalid."""


def strip_controls(text: str) -> str:
    """Replace control characters in *text* by spaces, for logs and the database."""
    return _CONTROLS.sub(" ", text).strip()


def parse_status(line: bytes) -> int:
    """Parse the status code of a status line; 0: there is none."""
    if line[:9] == b"HTTP/1.1 " and (code := line[9:12]).isdigit() and line[12:13] in b" \r\n":  # nearly all
        return int(code)
    found = _STATUS.match(line)
    return int(found[1]) if found else 0


def parse_head(lines: Sequence[bytes]) -> ResponseHead:
    """Parse *lines*, of which the first is the status line and the last is empty."""
    raw = b"".join(lines)
    head = ResponseHead(parse_status(lines[0]), raw=raw)
    headers = head.headers
    text = raw.decode("latin-1")
    if not text.replace("\r\n", "").isprintable() or "\n " in text:  # a third of the time of a regular expression
        text = _unfold(text)
    for line in text.split("\n")[1:]:
        name, colon, value = line.partition(":")
        name = name.strip().lower()
        if not colon or not name:
            continue
        value = value.strip()
        headers[name] = value if name not in headers else f"{headers[name]}, {value}"
        if name == "content-type" and value:
            head.content_type = _media_type(value)
    if "location" in headers:
        head.location = next(filter(None, map(_parse_location, lines)), None)
    if encoding := headers.get("content-encoding"):
        head.encodings = sum(layer.strip().lower() not in ("", "identity", "none") for layer in encoding.split(","))
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and len(length) < 19:
        head.length = int(length)
    return head


@lru_cache(maxsize=256)
def _media_type(value: str) -> str:
    return value.partition(";")[0].strip().lower()


def _unfold(text: str) -> str:
    """Unfold headers and replace control characters other than line ends by spaces."""
    lines = _FOLD.sub(" ", text).split("\n")
    return "\n".join(_CONTROLS.sub(" ", line.removesuffix("\r")) for line in lines)


def _parse_location(line: bytes) -> str | None:
    """The target of a Location header; None: another header, or empty."""
    name, _, value = line.partition(b":")
    if name.strip().lower() != b"location":
        return None
    value = value.strip()
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = quote(value, safe=_PRINTABLE)
    return strip_controls(text) or None


MAX_RATIO: Final = 200
"""Largest ratio of decoded to received bytes; more is a decompression bomb. Real pages reach about a quarter of it."""
RATIO_FROM: Final = 1 << 20
"""Decoded bytes below which the ratio is not checked."""

_STOP: Final = 0
"""Returned to libcurl instead of the number of bytes taken: ends the transfer."""


class BufferedBytes:
    """Counter of the bytes held by all collectors of a client."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


class BodyCollector:
    """Collects the body of one response at a time. `write` is libcurl's callback."""

    __slots__ = (
        "_buffered",
        "_check",
        "_checked_bytes",
        "_chunks",
        "_limit",
        "_total",
        "_truncate",
        "cut",
        "size",
        "too_large",
    )

    def __init__(self, total: BufferedBytes | None = None) -> None:
        self._total = total or BufferedBytes()
        self._buffered = 0
        self._chunks: list[bytes] = []
        self.begin(0, cut=False)

    def begin(self, limit: int, *, cut: bool) -> None:
        """After: empty, accepts up to *limit* bytes. A longer body ends the transfer: truncated with *cut*, else too large."""
        self._drop()
        self._limit = limit
        self._truncate = cut
        self.size = 0
        """Decoded bytes, including those beyond the limit."""
        self.cut = False
        self.too_large = False
        self._check: Callable[[bytes], bool] | None = None
        self._checked_bytes = 0

    def check_start(self, check: Callable[[bytes], bool], size: int) -> None:
        """Before: nothing was written. After: *check* is called once with the first *size* bytes, or all if there are fewer; if it returns
        False, the body is dropped and the transfer ends."""
        self._check, self._checked_bytes = check, size

    def end_check(self) -> None:
        """Before: the transfer has ended. After: a body that was too short to be checked before is checked, and dropped if it fails."""
        if self._check is not None:
            self._passes_check()

    def truncate_at(self, limit: int) -> None:
        """Before: nothing was written. After: the limit is at most *limit* bytes, and a longer body is truncated."""
        self._limit = min(self._limit, limit)
        self._truncate = True

    def limit_by_ratio(self, packed: int) -> None:
        """Before: nothing was written. After: the limit is at most MAX_RATIO times *packed*, the Content-Length in bytes."""
        self._limit = min(self._limit, max(MAX_RATIO * packed, RATIO_FROM))

    def is_decompression_bomb(self, packed: int) -> bool:
        """Whether *packed* received bytes were decoded to more than MAX_RATIO allows; checked at the end, without a Content-Length."""
        return not self._truncate and self.size > max(MAX_RATIO * packed, RATIO_FROM)

    def write(self, data: bytes) -> int | None:
        """Append *data*, or end the transfer."""
        self.size += len(data)
        if self.size <= self._limit:
            self._keep(data)
            if self._check is None or self._buffered < self._checked_bytes or self._passes_check():
                return None
            return _STOP
        if self._truncate:
            self._keep(data[: self._limit - self.size])
            self.cut = True
        else:
            self._drop()
            self.too_large = True
        return _STOP

    def take(self) -> bytes:
        """Return the collected bytes. After: empty."""
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._drop()
        return body

    def _passes_check(self) -> bool:
        check, self._check = self._check, None
        assert check is not None, "called once"  # noqa: S101
        passes = check(b"".join(self._chunks)[: self._checked_bytes])
        if not passes:
            self._drop()
        return passes

    def _keep(self, data: bytes) -> None:
        self._chunks.append(data)
        self._buffered += len(data)
        self._total.size += len(data)

    def _drop(self) -> None:
        self._chunks.clear()
        self._total.size -= self._buffered
        self._buffered = 0
