"""WARC files of other tools: wget, Heritrix, warcio, browsertrix; 0.17 to 1.1, plain or gzip, a member for each record or one for all.

The rule: memory is bounded, whatever lengths the file names. A record that cannot be used is reported with its number; what is after it is
read. A position leads to a record by the offset of a gzip member (or of the record, in a plain file) and the records before it in there.
"""

import base64
import hashlib
import io
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http.client import responses
from typing import Any, Final

from holdfast.backfill.records import BadRow, Capture
from holdfast.backfill.sources import http_message
from holdfast.control.input_files import Damaged
from holdfast.errors import UsageError

_READ: Final = 64 * 1024
_MAX_FIELDS: Final = 256 * 1024
_MAGIC: Final = b"WARC/"
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ENCODED: Final = 4
"""An encoded body is read up to this multiple of the limit of a page; the rest is left out."""
_TYPES: Final = frozenset(
    ("warcinfo", "request", "metadata", "conversion", "continuation", "response", "resource", "revisit")
)
_NOT_MODIFIED: Final = "server-not-modified"
_SIZES: Final = {"sha1": 20, "sha256": 32}
"""Bytes of a digest."""
_LENGTH: Final = re.compile(r"[0-9]{1,15}")

NOT_WARC: Final = "not a WARC record"
CUT_OFF: Final = "cut off"
NO_URL: Final = "no URL of the web"
BAD_BYTES: Final = "damaged"
BAD_HTTP: Final = "not an HTTP response"
BAD_DATE: Final = "no date"


class Skipped(BadRow):
    """A record that is not a response: nothing is wrong with it."""


class _Bytes:
    """The bytes of a file, decompressed, with the place to begin from."""

    def __init__(self, file: "io.BufferedReader[Any]", offset: int) -> None:
        self._file = file
        self._compressed = file.peek(4).startswith(_GZIP)
        if file.peek(4).startswith(_ZSTD):
            raise UsageError("The WARC file is packed with zstd; unpack it first: zstd -d FILE.")
        file.seek(offset)
        self._raw = b""
        self._decompressor: Any = None
        self._buffer = bytearray()
        self._member = offset
        self._at = offset
        self._new_member = True
        self.base = offset
        """Where a reader can begin."""
        self.records = -1
        """Records since then, before this one."""

    def begin_record(self) -> bool:
        """Move to the next record; False: there is none. After: `base` and `records` lead to it."""
        while True:
            if not self._buffer and not self._fill(begins=True):
                return False
            blank = len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))
            self._take(blank)
            if self._buffer:
                break
        if self._new_member or not self._compressed:
            self.base, self.records = (self._member if self._compressed else self._at), 0
            self._new_member = False
        else:
            self.records += 1
        return True

    def line(self) -> bytes:
        """Read a line with its end; the last line of the file may have none."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _MAX_FIELDS:
                return self._take(searched)
            if not self._fill():
                return self._take(searched)
        return self._take(end + 1)

    def read(self, length: int) -> Iterator[bytes]:
        """Read this number of bytes, or up to the end of the file."""
        while length > 0:
            if not self._buffer and not self._fill():
                return
            part = self._take(min(length, len(self._buffer)))
            length -= len(part)
            yield part

    def skip_to_record(self) -> None:
        """Move on to a line that begins a record, or to the end of the file."""
        while True:
            while len(self._buffer) < len(_MAGIC) and self._fill():
                pass
            if not self._buffer or self._buffer.startswith(_MAGIC):
                return
            self.line()

    def _take(self, length: int) -> bytes:
        taken = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._at += len(taken)
        return taken

    def _fill(self, *, begins: bool = False) -> bool:
        """Read more; False: there is no more. `begins`: a record begins here, so a new member can be begun from."""
        try:
            if not self._compressed:
                data = self._file.read(_READ)
                self._buffer += data
                return bool(data)
            return self._inflate(begins=begins)
        except zlib.error as problem:
            raise Damaged("the gzip file is damaged or incomplete") from problem
        except OSError as problem:
            raise Damaged(problem.strerror or problem) from problem

    def _inflate(self, *, begins: bool) -> bool:
        while True:
            if self._decompressor is None or self._decompressor.eof:
                raw = (self._decompressor.unused_data if self._decompressor else self._raw).lstrip(b"\0")
                if not raw:
                    raw = self._file.read(_READ).lstrip(b"\0")
                    if not raw:
                        return False
                self._raw = raw
                self._decompressor = zlib.decompressobj(31)
                if begins:
                    self._member, self._new_member = self._file.tell() - len(raw), True
            elif not self._raw:
                self._raw = self._file.read(_READ)
            ended = not self._raw
            data = self._decompressor.decompress(self._raw, _READ)
            self._raw = b"" if self._decompressor.eof else self._decompressor.unconsumed_tail
            self._buffer += data
            if data:
                return True
            if ended and not self._decompressor.eof:
                raise Damaged("the gzip file is damaged or incomplete")


class WarcCaptures:
    """The responses of a WARC file."""

    def __init__(self, file: "io.BufferedReader[Any]", *, max_bytes: int) -> None:
        """`max_bytes`: of a decoded body; what is after it is cut off."""
        self._file = file
        self._max_bytes = max_bytes

    def captures(
        self, position: Mapping[str, Any] | None, number: int
    ) -> Iterator[tuple[dict[str, Any], Capture | BadRow]]:
        """Yield every record after `number` ones from `position` on, each with its own position. Raises Damaged."""
        source = _at(self._file, position or {"base": 0, "records": 0})
        while source.begin_record():
            number += 1
            place = {"base": source.base, "records": source.records}
            yield place, self._record(source, number)

    def _record(self, source: _Bytes, number: int) -> Capture | BadRow:
        fields = _fields(source)
        length = fields.get("content-length", "") if fields is not None else ""
        if fields is None or not _LENGTH.fullmatch(length):
            source.skip_to_record()
            return BadRow(
                number, NOT_WARC, "There is no WARC record here; what follows was skipped up to the next one."
            )
        kept, left = bytearray(), int(length)
        limit = self._max_bytes * _ENCODED + http_message.MAX_HEAD
        hashes = (hashlib.sha1(usedforsecurity=False), hashlib.sha256())
        for part in source.read(left):
            left -= len(part)
            if len(kept) < limit:
                kept += part
            for one in hashes:
                one.update(part)
        if left:
            return BadRow(number, CUT_OFF, f"The record is cut off: {left:,} of {int(length):,} bytes are missing.")
        digest = fields.get("warc-block-digest", "")
        if digest and not _is_digest(digest, *hashes):
            return BadRow(number, BAD_BYTES, "The bytes of the record are not those of its WARC-Block-Digest.")
        return self._capture(fields, bytes(kept), number, cut=int(length) > limit)

    def _capture(self, fields: Mapping[str, str], block: bytes, number: int, *, cut: bool) -> Capture | BadRow:
        kind = fields.get("warc-type", "").lower()
        if kind not in {"response", "resource", "revisit"}:
            reason = f"{kind if kind in _TYPES else 'other'} record"
            return Skipped(number, reason, "It is not a response.")
        url = fields.get("warc-target-uri", "").strip("<>")
        if not url.lower().startswith(("http://", "https://")):
            return Skipped(number, NO_URL, f"{url[:80]!a} is not a URL of the web.")
        try:
            at = datetime.fromisoformat(fields.get("warc-date", ""))
        except ValueError:
            return BadRow(number, BAD_DATE, f"{fields.get('warc-date', '')[:40]!a} is not a WARC-Date.")
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        try:
            head, body = _resource(fields, block) if kind == "resource" else _response(block, kind)
            status, headers = http_message.parse_head(head)
            if kind == "revisit":
                return _revisit(fields, Capture(number, url, at, status, head, headers, b""))
            body, more = http_message.decode(body, headers, self._max_bytes)
        except ValueError as problem:
            return BadRow(number, BAD_HTTP, f"The response for {url[:200]!a} cannot be used: {problem}.")
        cut = cut or more or "warc-truncated" in fields
        return Capture(
            number,
            url,
            at,
            status,
            head,
            headers,
            body,
            cut,
            digest=normal_digest(fields.get("warc-payload-digest", "")),
        )


def _at(file: "io.BufferedReader[Any]", position: Mapping[str, Any]) -> _Bytes:
    """The bytes from a position on."""
    file.seek(0)
    source = _Bytes(file, position["base"])
    for _ in range(position["records"]):
        if not source.begin_record():
            break
        fields = _fields(source)
        length = fields.get("content-length", "") if fields is not None else ""
        if _LENGTH.fullmatch(length):
            for _part in source.read(int(length)):
                pass
        else:
            source.skip_to_record()
    return source


def _fields(source: _Bytes) -> dict[str, str] | None:
    """Read the fields of a record; None: it is none."""
    if not source.line().startswith(_MAGIC):
        return None
    fields: dict[str, str] = {}
    size, name = 0, ""
    while (line := source.line()) not in {b"", b"\r\n", b"\n"}:
        size += len(line)
        if size > _MAX_FIELDS:
            return None
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if line[:1] in b" \t" and name:  # folded
            fields[name] += f" {text.strip()}"
            continue
        name, _, value = text.partition(":")
        name = name.strip().lower()
        fields[name] = value.strip()
    return fields


def _response(block: bytes, kind: str) -> tuple[bytes, bytes]:
    if kind == "revisit" and not block.strip():
        return b"HTTP/1.1 200 OK\r\n\r\n", b""
    if kind == "revisit" and b"\r\n\r\n" not in block and b"\n\n" not in block:
        block = block.rstrip(b"\r\n") + b"\r\n\r\n"
    return http_message.split_head(block)


def _resource(fields: Mapping[str, str], block: bytes) -> tuple[bytes, bytes]:
    """The response that would have had this resource: without headers of its own."""
    kind = re.sub(r"[^ -~]", "", fields.get("content-type", "application/octet-stream"))[:200]
    return f"HTTP/1.1 200 {responses[200]}\r\nContent-Type: {kind}\r\n\r\n".encode(), block


def _revisit(fields: Mapping[str, str], capture: Capture) -> Capture:
    """The capture of a revisit: the same body as another record has."""
    capture.same_as = normal_digest(fields.get("warc-payload-digest", ""))
    capture.same_url = fields.get("warc-refers-to-target-uri", "").strip("<>") or capture.url
    if _NOT_MODIFIED in fields.get("warc-profile", "") or capture.status == 304:
        capture.status = 200
        capture.head = b"HTTP/1.1 200 OK\r\n" + capture.head.partition(b"\n")[2]
    return capture


def _is_digest(text: str, *hashes: Any) -> bool:
    """Whether a digest is that of one of these hashes; one of another algorithm is not looked at."""
    name, _, value = normal_digest(text).partition(":")
    found = next((one for one in hashes if one.name == name), None)
    return found is None or value == found.hexdigest()


def normal_digest(text: str) -> str:
    """A digest with its value in hexadecimal; most tools write it in base 32."""
    name, colon, value = text.strip().partition(":")
    name = name.lower().replace("-", "")
    size = _SIZES.get(name)
    if size is not None and len(value) != 2 * size:
        with suppress(ValueError):
            value = base64.b32decode(value.upper() + "=" * (-len(value) % 8)).hex()
    return f"{name}{colon}{value.lower()}"


def is_digest_of(text: str, body: bytes) -> bool:
    """Whether a payload digest can be that of a body; one of another algorithm is not looked at."""
    return _is_digest(text, hashlib.sha1(body, usedforsecurity=False), hashlib.sha256(body))
