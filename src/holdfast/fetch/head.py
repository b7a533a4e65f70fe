"""The head of a response: status line and headers as they came, read into text that can do no harm.

The rule: any bytes whatsoever give a value. Text from here has no control characters; what stands in the archive is `raw`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
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
    found = _STATUS.match(line)
    return int(found[1]) if found else 0


def read(lines: Sequence[bytes]) -> Head:
    """The head made of *lines*, of which the first is the status line and the last is empty."""
    head = Head(status(lines[0]), raw=b"".join(lines))
    headers = head.headers
    name = ""
    for line in lines[1:]:
        text = line.decode("latin-1")
        if name and text[:1] in (" ", "\t"):  # folded, as long ago: it goes on with the one before
            headers[name] = f"{headers[name]} {clean(text)}".strip()
            continue
        name, colon, value = text.partition(":")
        name = name.strip().lower()
        if not colon or not name:
            name = ""
            continue
        value = value.strip()
        if not value.isprintable():
            value = clean(value)
        if not name.isprintable():
            name = clean(name)
        if name == "content-type" and value:
            head.content_type = value.partition(";")[0].strip().lower()
        elif name == "location":
            if head.location is not None:
                continue  # the first counts, here as in the redirect
            head.location = _location(line)
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if encoding := headers.get("content-encoding"):
        head.encodings = sum(layer.strip().lower() not in ("", "identity", "none") for layer in encoding.split(","))
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and len(length) < 19:
        head.length = int(length)
    return head


def _location(line: bytes) -> str | None:
    value = line.partition(b":")[2].strip()
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = quote(value, safe=_PRINTABLE)
    return clean(text) or None
