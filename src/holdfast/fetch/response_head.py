"""The head of a response: status line and headers as they came, read into text that can do no harm.

The rule: any bytes whatsoever give a value. Text from here has no control characters; what stands in the archive is `raw`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final
from urllib.parse import quote

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_FOLD: Final = re.compile(r"\r?\n[ \t]+")
"""A header that goes on in the next line, as was allowed long ago."""
_STATUS: Final = re.compile(rb"HTTP/[^\s]*[ \t]+(\d{3})(?!\d)")
_PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))

READABLE: Final = frozenset(("", "text/html", "application/xhtml+xml", "text/plain"))
"""Content types that can be parsed; a server that names none may mean one of them."""


@dataclass(slots=True)
class Head:
    """A response but for its body."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """By lower-case name; of several with one name the values joined by ", "."""
    raw: bytes = b""
    content_type: str = ""
    """The last one that was named, without its parameters."""
    location: str | None = None
    """As written, but for bytes that are neither ASCII nor UTF-8: they are escaped, as browsers do."""
    encodings: int = 0
    """Layers of content encoding."""
    length: int | None = None
    """Bytes on the wire, if the server says it in a way that can be read."""


def clean(text: str) -> str:
    """*text* without control characters, for logs and the store."""
    return _CONTROLS.sub(" ", text).strip()


def status(line: bytes) -> int:
    """The status in a status line that libcurl let pass; 0: there is none."""
    if line[:9] == b"HTTP/1.1 " and (code := line[9:12]).isdigit() and line[12:13] in b" \r\n":  # nearly all
        return int(code)
    found = _STATUS.match(line)
    return int(found[1]) if found else 0


def read(lines: Sequence[bytes]) -> Head:
    """The head made of *lines*, of which the first is the status line and the last is empty."""
    raw = b"".join(lines)
    head = Head(status(lines[0]), raw=raw)
    headers = head.headers
    text = raw.decode("latin-1")
    if not text.replace("\r\n", "").isprintable() or "\n " in text:  # a third of the time that a pattern takes
        text = _tidy(text)
    for line in text.split("\n")[1:]:
        name, colon, value = line.partition(":")
        name = name.strip().lower()
        if not colon or not name:
            continue
        value = value.strip()
        headers[name] = value if name not in headers else f"{headers[name]}, {value}"
        if name == "content-type" and value:
            head.content_type = _type(value)
    if "location" in headers:
        head.location = next(filter(None, map(_location, lines)), None)
    if encoding := headers.get("content-encoding"):
        head.encodings = sum(layer.strip().lower() not in ("", "identity", "none") for layer in encoding.split(","))
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and len(length) < 19:
        head.length = int(length)
    return head


@lru_cache(maxsize=256)
def _type(value: str) -> str:
    return value.partition(";")[0].strip().lower()


def _tidy(text: str) -> str:
    """*text* without folded lines and, but for the ends of lines, without control characters."""
    lines = _FOLD.sub(" ", text).split("\n")
    return "\n".join(_CONTROLS.sub(" ", line.removesuffix("\r")) for line in lines)


def _location(line: bytes) -> str | None:
    """Where *line* points to, if it is a Location; the first that is not empty counts."""
    name, _, value = line.partition(b":")
    if name.strip().lower() != b"location":
        return None
    value = value.strip()
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = quote(value, safe=_PRINTABLE)
    return clean(text) or None
