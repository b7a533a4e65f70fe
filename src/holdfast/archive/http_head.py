"""Normalized HTTP heads for the archive, which any WARC reader can parse.

The rule: for any input bytes the result is one start line and lines of `name: value`, each ended by CRLF, and one empty line at the
end. The body is stored decoded, so headers that describe the encoded bytes are stored under another name.
"""

import re
from http.client import responses
from typing import Final

from holdfast.model.fetch_types import FetchResult

ORIGINAL_PREFIX: Final = b"X-Archive-Orig-"
"""The usual prefix in archives for a header that does not describe the stored body."""

_LENGTH: Final = b"content-length"
_DECODED: Final = frozenset({b"content-encoding", b"transfer-encoding"})
_SECRET: Final = re.compile(rb"^((?:proxy-)?authorization|cookie) *:.*", re.IGNORECASE | re.MULTILINE)
_PLAIN_REQUEST: Final = re.compile(rb"[A-Z]++ [!-~]++ HTTP/1\.1\r\n(?:[!-~][ -~]*+\r\n)++\r\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] [1-9][0-9]{2}(?: |$)")
_REQUEST_VERSION: Final = re.compile(rb" HTTP/[0-9.]+$")
_CONTROLS: Final = bytes(set(range(32)) - {0x0A}) + b"\x7f"
_CONTROLS_TO_SPACES: Final = bytes.maketrans(_CONTROLS, b" " * len(_CONTROLS))
_END: Final = b"\r\n\r\n"


def response_head(result: FetchResult) -> bytes:
    """The head to store before `result.body`, with the Content-Length of the decoded body.

    Before: `result` has a status. HTTP/2 and 3 have no text form: their heads are written as HTTP/1.1.
    """
    lines = _lines(result.response_head)
    if not lines or not lines[0].startswith(b"HTTP/"):
        lines = [b"", *(_line(name, value) for name, value in result.headers.items())]
    if not _STATUS_LINE.match(lines[0]):
        lines[0] = f"HTTP/1.1 {result.status} {responses.get(result.status or 0, '')}".rstrip().encode()
    length = b"%d" % len(result.body)
    has_length = False
    for i in range(1, len(lines)):
        name, colon, value = lines[i].partition(b":")
        name = name.rstrip().lower()
        if not colon or not name:
            lines[i] = ORIGINAL_PREFIX + b"Line: " + lines[i]
        elif name == _LENGTH and value.strip() == length and not has_length:
            has_length = True
        elif name == _LENGTH or name in _DECODED:
            lines[i] = ORIGINAL_PREFIX + lines[i]
    if not has_length:
        lines.append(b"Content-Length: " + length)
    return b"\r\n".join(lines) + _END


def request_head(sent: bytes) -> bytes:
    """The request head as sent, with secrets redacted; empty if it is unknown."""
    if _PLAIN_REQUEST.fullmatch(sent) and not _SECRET.search(sent):  # nearly all
        return sent
    lines = _lines(sent)
    if not lines:
        return b""
    lines[0] = _REQUEST_VERSION.sub(b" HTTP/1.1", lines[0])
    return b"\r\n".join(_SECRET.sub(rb"\1: [redacted]", b"\n".join(lines)).split(b"\n")) + _END


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Parse a stored head into status and headers, in the format of `FetchResult.headers`."""
    first, *lines = head.decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return int(first.split(" ", 2)[1]), headers


def _lines(head: bytes) -> list[bytes]:
    """Split a head into lines: control characters become spaces, empty lines are dropped, folded lines are unfolded."""
    lines: list[bytes] = []
    for line in head.translate(_CONTROLS_TO_SPACES).split(b"\n"):
        text = line.strip()
        if not text:
            continue
        if line[0] == 0x20 and lines:
            lines[-1] += b" " + text
        else:
            lines.append(text)
    return lines


def _line(name: str, value: str) -> bytes:
    """Format a header from its name and value."""
    return b" ".join(f"{name}: {value}".encode("utf-8", "replace").split())
