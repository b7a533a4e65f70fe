"""The text of WARC 1.1 records: made from an exchange, and parsed again.

The rule: pure functions from values to bytes. Nothing that came from the web can break out of its field: URIs are percent-encoded,
other values lose their control characters. Each record is a gzip member of its own, so that it can be read without the others.
"""

import hashlib
import re
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

from holdfast.archive import head
from holdfast.model.page import ArchiveRef, FetchResult

REVISIT_PROFILE: Final = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
REFERS_TO: Final = "Holdfast-Refers-To"
"""Our own field of a revisit: segment, offset and length of the record with the body. Other readers go by URI and date."""

_VERSION: Final = b"WARC/1.1\r\n"
_END: Final = b"\r\n\r\n"
_URI_SAFE: Final = "".join(map(chr, range(0x21, 0x7F)))
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")
_NO_TOKEN: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NOT_WORTH_IT: Final = 1024
"""Bytes of records that are stored as they are: what a compressor would save of a page's small ones is 2 % of it, for a fifth of the
time that the archive takes."""
_PROTOCOLS: Final = {"2": "h2", "2.0": "h2", "3": "h3", "3.0": "h3"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its answer, to be kept."""

    url: str
    result: FetchResult
    """With a status: what got no answer has nothing to keep."""
    fetched_at: datetime
    """With a time zone."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What else is worth knowing: job, depth, parent, run, outcome."""


class Original(NamedTuple):
    """The record that a revisit refers to."""

    ref: ArchiveRef
    record_id: str
    uri: str
    date: str


class Texts(NamedTuple):
    """The records of an exchange, not yet compressed. `response` may be a revisit."""

    request: bytes
    """Empty where it is not known what was sent."""
    response: bytes
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read. Names of fields are in lower case."""

    fields: dict[str, str]
    block: bytes

    @property
    def payload(self) -> bytes:
        """The block behind its HTTP head."""
        return self.block.partition(_END)[2]


def record_ids() -> Iterator[str]:
    """Ids that nobody else gives; cheaper than a uuid4 for each."""
    start = str(uuid4())[:24]
    return (f"<urn:uuid:{start}{number:012x}>" for number in count())


def warcinfo(ids: Iterator[str], now: datetime, *, segment: str, software: str) -> bytes:
    """The record that a segment begins with."""
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


def texts(exchange: Exchange, ids: Iterator[str], digest: bytes, original: Original | None) -> Texts:
    """The records of `exchange`, whose body has the SHA-256 `digest`; with `original`, the body is left to that record."""
    result = exchange.result
    if result.status is None:
        raise ValueError(f"There is no answer to keep from {exchange.url!r}: it has no status.")
    response_id = next(ids)
    address = f"WARC-IP-Address: {_value(result.address)}\r\n" if result.address else ""
    protocol = _PROTOCOLS.get(result.http_version) or f"http/{_value(result.http_version)}"
    about = f"WARC-Target-URI: {_uri(exchange.url)}\r\nWARC-Date: {_date(exchange.fetched_at)}\r\n"
    spoken = f"{about}{address}WARC-Protocol: {protocol}\r\n"
    beside = f"WARC-Record-ID: {{}}\r\nWARC-Concurrent-To: {response_id}\r\n"
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
        f"{kind}WARC-Record-ID: {response_id}\r\n{spoken}WARC-Payload-Digest: sha256:{digest.hex()}\r\n"
        "Content-Type: application/http; msgtype=response\r\n",
        head.response_head(result),
        b"" if original else result.body,
        digest=original is not None,
    )
    sent = head.request_head(result.request_head)
    request = (
        b""
        if not sent
        else _record(
            f"WARC-Type: request\r\n{beside.format(next(ids))}{spoken}Content-Type: application/http; msgtype=request\r\n",
            sent,
        )
    )
    metadata = _record(
        f"WARC-Type: metadata\r\n{beside.format(next(ids))}{about}Content-Type: application/warc-fields\r\n",
        _fields(tuple(exchange.metadata.items())),
        b"fetchTimeMs: %.0f\r\n" % (result.duration * 1000),
    )
    return Texts(request, response, metadata)


def pack(text: bytes, level: int) -> bytes:
    """A record as a gzip member. The compressor lets other threads run meanwhile."""
    if len(text) < _NOT_WORTH_IT:
        return zlib.compress(text, 0, wbits=zlib.MAX_WBITS + 16)
    packed: bytes = igzip_lib.compress(text, level, flag=igzip_lib.COMP_GZIP)
    return packed


def parse_fields(text: bytes) -> tuple[dict[str, str], int]:
    """The fields of the record that `text` begins with, and where its block begins. ValueError if it is none."""
    end = text.find(_END)
    if end < 0 or not text.startswith(_VERSION):
        raise ValueError("it does not begin with the head of a WARC record")
    lines = text[len(_VERSION) : end].decode("utf-8", "replace").split("\r\n")
    return {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}, end + len(_END)


def parse(text: bytes) -> Record:
    """One whole record, its digests checked. ValueError says, in the middle of a sentence, what is wrong with it."""
    fields, start = parse_fields(text)
    length = fields.get("content-length", "")
    if not length.isascii() or not length.isdigit() or len(text) != start + int(length) + len(_END):
        raise ValueError("it is not as long as it says")
    record = Record(fields, text[start : -len(_END)])
    whole = "warc-block-digest" in fields
    digest = hashlib.sha256(record.block if whole else record.payload).hexdigest()
    if fields.get("warc-block-digest" if whole else "warc-payload-digest") != f"sha256:{digest}":
        raise ValueError("its bytes are not those that were written")
    return record


def _record(text: str, *block: bytes, digest: bool = True) -> bytes:
    """Head and block of a record; `text` has its fields but those that follow from the block.

    A page's record has no digest of its block, where that of its payload says the same of all but the head, and gzip's sum of all.
    """
    if digest:
        text += f"WARC-Block-Digest: sha256:{hashlib.sha256(b''.join(block)).hexdigest()}\r\n"
    text += f"Content-Length: {sum(map(len, block))}\r\n\r\n"
    return b"".join((_VERSION, text.encode(), *block, _END))


@lru_cache(maxsize=256)  # a job's pages differ in few of them
def _fields(values: tuple[tuple[str, str], ...]) -> bytes:
    """A block of `application/warc-fields`."""
    return "".join([f"{_token(name)}: {_value(value)}\r\n" for name, value in values]).encode()


def _token(name: str) -> str:
    """`name` as a name of a field."""
    return name if name.isascii() and name.isidentifier() else _NO_TOKEN.sub("_", name)


def _value(text: str) -> str:
    """`text` without anything that could end its line."""
    return text if text.isprintable() else _UNPRINTABLE.sub(" ", text).strip()


def _uri(url: str) -> str:
    """`url` in ASCII and without white space."""
    if url.isascii() and url.isprintable() and " " not in url:
        return url
    return quote(url, safe=_URI_SAFE, errors="replace")


def _date(moment: datetime) -> str:
    """As WARC 1.1 wants it, with fractions."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
