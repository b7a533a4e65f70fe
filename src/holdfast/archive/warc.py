"""WARC 1.1 records: builds them from an exchange and parses them.

The rule: pure functions. No value from the web can break out of its field: URIs are percent-encoded, other values lose their control
characters. Each record is a gzip member of its own, so that it can be read without the others.
"""

import hashlib
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from typing import Final, NamedTuple
from urllib.parse import quote
from uuid import uuid4

from isal import igzip_lib

from holdfast.archive import http_head
from holdfast.model.fetch_types import ArchiveRef, FetchResult

REVISIT_PROFILE: Final = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
REFERS_TO: Final = "Holdfast-Refers-To"
"""Holdfast's own field of a revisit: segment, offset and length of the record with the body. Other readers use URI and date."""

_VERSION: Final = b"WARC/1.1\r\n"
_END: Final = b"\r\n\r\n"
_URI_SAFE: Final = "".join(map(chr, range(0x21, 0x7F)))
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_INVALID_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_MIN_COMPRESSED_BYTES: Final = 1024
"""Bytes below which a record is stored uncompressed: compressing the small records of a page would save 2 % of its size for a fifth of
the archive's CPU time."""
_STORED_HEAD: Final = bytes.fromhex("1f8b0800000000000403 01")
"""The head of a gzip member, and of its only block, which is stored."""
_stored_length: Final = struct.Struct("<HH").pack
_checksum_and_length: Final = struct.Struct("<II").pack
_PROTOCOLS: Final = {"2": "h2", "2.0": "h2", "3": "h3", "3.0": "h3"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its response, to be archived."""

    url: str
    result: FetchResult
    """Has a status: without a response there is nothing to archive."""
    fetched_at: datetime
    """Timezone-aware."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Fields of the metadata record: job, depth, parent, run, outcome."""


class Original(NamedTuple):
    """The record that a revisit refers to."""

    ref: ArchiveRef
    record_id: str
    uri: str
    date: str


class ExchangeRecords(NamedTuple):
    """The uncompressed records of an exchange. `response` may be a revisit."""

    request: bytes
    """Empty if the request head is unknown."""
    response: bytes
    metadata: bytes


@dataclass(frozen=True, slots=True)
class WarcRecord:
    """A parsed record. Field names are in lower case."""

    fields: dict[str, str]
    block: bytes

    @property
    def payload(self) -> bytes:
        """The block after its HTTP head."""
        return self.block.partition(_END)[2]


def record_ids() -> Iterator[str]:
    """Generate unique record ids; cheaper than a uuid4 for each."""
    start = str(uuid4())[:24]
    return (f"<urn:uuid:{start}{number:012x}>" for number in count())


def warcinfo(ids: Iterator[str], now: datetime, *, segment: str, software: str) -> bytes:
    """The warcinfo record at the start of a segment."""
    block = _fields(
        (
            ("software", software),
            ("format", "WARC File Format 1.1"),
            ("conformsTo", "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"),
        )
    )
    text = (
        f"WARC-Type: warcinfo\r\nWARC-Record-ID: {next(ids)}\r\nWARC-Date: {_date(now)}\r\n"
        f"WARC-Filename: {segment}\r\nContent-Type: application/warc-fields\r\n"
    )
    return _record(text, block)


def build_records(exchange: Exchange, ids: Iterator[str], digest: bytes, original: Original | None) -> ExchangeRecords:
    """Build the records of `exchange`, whose body has the SHA-256 `digest`; with `original`, a revisit without the body."""
    result = exchange.result
    if result.status is None:
        raise ValueError(f"Cannot archive {exchange.url!r}: the result has no status.")
    response_id = next(ids)
    address = f"WARC-IP-Address: {_value(result.address)}\r\n" if result.address else ""
    protocol = _PROTOCOLS.get(result.http_version) or f"http/{_value(result.http_version)}"
    target = f"WARC-Target-URI: {_uri(exchange.url)}\r\nWARC-Date: {_date(exchange.fetched_at)}\r\n"
    common = f"{target}{address}WARC-Protocol: {protocol}\r\n"
    concurrent = f"WARC-Record-ID: {{}}\r\nWARC-Concurrent-To: {response_id}\r\n"
    if original is None:
        kind = "WARC-Type: response\r\n"
        if result.cut:
            kind += "WARC-Truncated: length\r\n"
    else:
        kind = (
            f"WARC-Type: revisit\r\nWARC-Profile: {REVISIT_PROFILE}\r\nWARC-Refers-To: {original.record_id}\r\n"
            f"WARC-Refers-To-Target-URI: {original.uri}\r\nWARC-Refers-To-Date: {original.date}\r\n"
            f"{REFERS_TO}: {original.ref.segment}:{original.ref.offset}:{original.ref.length}\r\n"
        )
    response = _record(
        f"{kind}WARC-Record-ID: {response_id}\r\n{common}WARC-Payload-Digest: sha256:{digest.hex()}\r\n"
        "Content-Type: application/http; msgtype=response\r\n",
        http_head.response_head(result),
        b"" if original else result.body,
        digest=original is not None,
    )
    sent = http_head.request_head(result.request_head)
    request = (
        b""
        if not sent
        else _record(
            f"WARC-Type: request\r\n{concurrent.format(next(ids))}{common}Content-Type: application/http; msgtype=request\r\n",
            sent,
        )
    )
    metadata = _record(
        f"WARC-Type: metadata\r\n{concurrent.format(next(ids))}{target}Content-Type: application/warc-fields\r\n",
        _fields(tuple(exchange.metadata.items())),
        b"fetchTimeMs: %.0f\r\n" % (result.duration * 1000),
    )
    return ExchangeRecords(request, response, metadata)


def compress(text: bytes, level: int) -> bytes:
    """Compress a record to a gzip member. Releases the GIL meanwhile."""
    if len(text) < _MIN_COMPRESSED_BYTES:
        return _store(text)
    compressed: bytes = igzip_lib.compress(text, level, flag=igzip_lib.COMP_GZIP)
    return compressed


def _store(text: bytes) -> bytes:
    """Make an uncompressed gzip member of less than 64 KB, the same bytes as zlib's at level 0. zlib clears 200 KB for each."""
    length = len(text)
    return b"".join(
        (_STORED_HEAD, _stored_length(length, length ^ 0xFFFF), text, _checksum_and_length(zlib.crc32(text), length))
    )


def parse_fields(text: bytes) -> tuple[dict[str, str], int]:
    """Parse the fields of the record at the start of `text`; returns them and the offset of the block. ValueError: not a record."""
    end = text.find(_END)
    if end < 0 or not text.startswith(_VERSION):
        raise ValueError("it does not begin with the head of a WARC record")
    lines = text[len(_VERSION) : end].decode("utf-8", "replace").split("\r\n")
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}, end + len(_END)


def parse(text: bytes) -> WarcRecord:
    """Parse one complete record and check its digests. The message of a ValueError is a clause in lower case."""
    fields, start = parse_fields(text)
    length = fields.get("content-length", "")
    if not length.isascii() or not length.isdigit() or len(text) != start + int(length) + len(_END):
        raise ValueError("it is not as long as it says")
    record = WarcRecord(fields, text[start : -len(_END)])
    has_block_digest = "warc-block-digest" in fields
    digest = hashlib.sha256(record.block if has_block_digest else record.payload).hexdigest()
    if fields.get("warc-block-digest" if has_block_digest else "warc-payload-digest") != f"sha256:{digest}":
        raise ValueError("its bytes are not those that were written")
    return record


def _record(text: str, *block: bytes, digest: bool = True) -> bytes:
    """Build a record; `text` has the fields that do not depend on the block.

    A response record has no block digest: the payload digest covers everything but the head, and gzip's checksum covers all.
    """
    if digest:
        text += f"WARC-Block-Digest: sha256:{hashlib.sha256(b''.join(block)).hexdigest()}\r\n"
    text += f"Content-Length: {sum(map(len, block))}\r\n\r\n"
    return b"".join((_VERSION, text.encode(), *block, _END))


@lru_cache(maxsize=256)  # the pages of a job have few different values
def _fields(values: tuple[tuple[str, str], ...]) -> bytes:
    """A block of `application/warc-fields`."""
    return "".join([f"{_field_name(name)}: {_value(value)}\r\n" for name, value in values]).encode()


def _field_name(name: str) -> str:
    """Convert `name` to a valid field name."""
    return name if name.isascii() and name.isidentifier() else _INVALID_IN_NAME.sub("_", name)


def _value(text: str) -> str:
    """Replace characters that could end the line by spaces."""
    return text if text.isprintable() else _UNPRINTABLE.sub(" ", text).strip()


def _uri(url: str) -> str:
    """Percent-encode `url` to ASCII without white space."""
    if url.isascii() and url.isprintable() and " " not in url:
        return url
    return quote(url, safe=_URI_SAFE, errors="replace")


def _date(moment: datetime) -> str:
    """Format a time for WARC 1.1, with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
