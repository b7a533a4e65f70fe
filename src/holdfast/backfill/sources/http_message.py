"""HTTP responses as other tools store them: head and body, decoded from transfer and content encoding.

The rule: what is returned is bounded, whatever the bytes are; a body that cannot be decoded is a ValueError with a clause in lower case.
"""

import zlib
from collections.abc import Mapping
from typing import Final

import zstandard

MAX_HEAD: Final = 256 * 1024
_MAX_ENCODINGS: Final = 2
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


def split_head(block: bytes) -> tuple[bytes, bytes]:
    """Split a response into its head (with the empty line) and the bytes after it."""
    ends = [(place, len(end)) for end in (b"\r\n\r\n", b"\n\n") if (place := block.find(end, 0, MAX_HEAD)) >= 0]
    if not ends:
        raise ValueError("its HTTP head has no end")
    place, length = min(ends)
    return block[: place + length], block[place + length :]


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Parse a response head into status and headers, in the format of `FetchResult.headers`."""
    first, *lines = head.replace(b"\0", b" ").decode("latin-1").splitlines()
    words = first.split(" ", 2)
    if not first.startswith("HTTP/") or len(words) < 2 or not (words[1].isascii() and words[1].isdigit()):
        raise ValueError("it does not begin with an HTTP status line")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        if colon and name:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return int(words[1][:6]), headers


def decode(body: bytes, headers: Mapping[str, str], limit: int) -> tuple[bytes, bool]:
    """Decode a body from its transfer and content encoding; returns at most `limit` bytes, and whether there are more.

    Tools store bodies with or without these encodings under the same headers, so a body that shows none is as it is.
    """
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = _dechunk(body)
    encodings = [name.strip().lower() for name in headers.get("content-encoding", "").split(",") if name.strip()]
    if len(encodings) > _MAX_ENCODINGS:
        raise ValueError(f"it has {len(encodings)} content encodings")
    cut = False
    for encoding in reversed(encodings):
        body, more = _decode_one(body, encoding, limit)
        cut = cut or more
    return body[:limit], cut or len(body) > limit


def _decode_one(body: bytes, encoding: str, limit: int) -> tuple[bytes, bool]:
    if not body or encoding == "identity":
        return body, False
    if encoding in {"gzip", "x-gzip"}:
        return _inflate(body, 31, limit) if body.startswith(_GZIP) else (body, False)
    if encoding == "deflate":
        try:
            return _inflate(body, 15, limit)
        except ValueError:
            return _inflate(body, -15, limit)
    if encoding == "zstd":
        if not body.startswith(_ZSTD):
            return body, False
        try:
            with zstandard.ZstdDecompressor(max_window_size=2**27).stream_reader(body) as reader:
                found = reader.read(limit + 1)
        except zstandard.ZstdError:
            raise ValueError("its body cannot be unpacked (zstd)") from None
        return found[:limit], len(found) > limit
    raise ValueError(f"its content encoding {encoding[:20]!a} is not supported")


def _inflate(body: bytes, bits: int, limit: int) -> tuple[bytes, bool]:
    decompressor = zlib.decompressobj(bits)
    try:
        found = decompressor.decompress(body, limit + 1)
    except zlib.error:
        raise ValueError("its body cannot be unpacked") from None
    return found[:limit], len(found) > limit


def _dechunk(body: bytes) -> bytes:
    """The content of a chunked body; the body itself if it is not chunked."""
    parts: list[bytes] = []
    at = 0
    while True:
        end = body.find(b"\n", at, at + 1024)
        size = body[at:end].partition(b";")[0].strip() if end >= 0 else b""
        try:
            length = int(size, 16) if size.isalnum() else -1
        except ValueError:
            length = -1
        if length < 0:
            return b"".join(parts) if parts else body
        parts.append(body[end + 1 : end + 1 + length])
        if length == 0 or end + 1 + length >= len(body):
            return b"".join(parts)
        at = end + 1 + length
        at += 2 if body.startswith(b"\r\n", at) else 1
