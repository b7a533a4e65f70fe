"""Archive reader: reads one response by its reference, and checks all segments for damage.

The rule: a returned body matches its digest, or an error is raised. A reference never leads out of the archive's folder, although
Holdfast wrote it.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Final, cast

from isal import igzip_lib

from holdfast.archive import segment_file as segments
from holdfast.archive.http_head import parse_head
from holdfast.archive.warc import REFERS_TO, WarcRecord, parse, parse_fields
from holdfast.errors import HoldfastError, NotFound
from holdfast.model.fetch_types import ArchiveRef

_SEGMENT_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*/[A-Za-z0-9_-][A-Za-z0-9._-]*")
_BAD_GZIP: Final = cast("type[Exception]", igzip_lib.error)
_REFERS_TO: Final = REFERS_TO.lower().encode() + b":"
_SHA256: Final = re.compile(r"sha256:([0-9a-f]{64})")


class ArchiveDamaged(HoldfastError):
    """The bytes in the archive are not those that were written."""

    exit_code: ClassVar[int] = 3


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response as stored in the archive."""

    url: str
    fetched_at: datetime
    status: int
    status_line: str
    """Such as "HTTP/1.1 200 OK"."""
    headers: dict[str, str]
    """As in `FetchResult`; headers that do not describe the decoded body are prefixed with x-archive-orig-."""
    body: bytes
    cut: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """A damaged record of the archive."""

    segment: str
    offset: int
    detail: str
    """A clause in lower case: "its bytes are not …"."""

    def __str__(self) -> str:
        return f"In {self.segment}, the record at {self.offset} is damaged: {self.detail}."


def read(folder: Path, ref: ArchiveRef) -> StoredResponse:
    """Read the response at `ref`; the body of a revisit is that of its original.

    Raises NotFound if the segment does not exist, ArchiveDamaged if the bytes are not those that were written.
    """
    try:
        record = _load(folder, ref)
        body = record.payload
        if record.fields.get("warc-type") == "revisit":
            body = _original(folder, record, ref.payload_digest).payload
        if hashlib.sha256(body).digest() != ref.payload_digest:
            raise ValueError("its body is not the one that is asked for")  # noqa: TRY301 — one message format for all of them
        head = record.block.partition(b"\r\n\r\n")[0]
        status, headers = parse_head(head)
        return StoredResponse(
            url=record.fields["warc-target-uri"],
            fetched_at=datetime.fromisoformat(record.fields["warc-date"]),
            status=status,
            status_line=head.partition(b"\r\n")[0].decode("latin-1"),
            headers=headers,
            body=body,
            cut="warc-truncated" in record.fields,
        )
    except (ValueError, LookupError) as error:
        raise ArchiveDamaged(str(Problem(ref.segment, ref.offset, _describe(error)))) from error


def check(folder: Path) -> Iterator[Problem]:
    """Check all segments below `folder` and yield each problem; an open segment is checked up to its synced bytes.

    A record must be complete and match its digests, and a revisit must refer to a record with the same body.
    """
    for path in sorted(folder.glob(f"*/*{segments.SUFFIX}")):
        name = f"{path.parent.name}/{path.name}"
        synced = segments.synced_bytes(path)  # before the size: if the segment is closed by then, its size is final
        size = path.stat().st_size
        end = size if synced is None else synced
        at = 0
        for member in segments.members(path, end=end):
            try:
                _verify(folder, parse(member.text))
            except (ValueError, LookupError, NotFound) as error:
                yield Problem(name, member.offset, _describe(error))
            at = member.offset + member.length
        if at != end:
            yield Problem(name, at, "it is not whole" if at < size else "it is missing")


def read_fields(folder: Path, ref: ArchiveRef, limit: int) -> dict[str, str]:
    """Read the WARC fields of a record from its first `limit` bytes. Raises OSError, ValueError or NotFound."""
    decompressor = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    try:
        return parse_fields(decompressor.decompress(_bytes(folder, ref, limit), limit))[0]
    except _BAD_GZIP as error:
        raise ValueError("it cannot be unpacked") from error


def _verify(folder: Path, record: WarcRecord) -> None:
    kind = record.fields["warc-type"]
    if kind not in {"response", "revisit"}:
        return
    digest = _digest(record)
    if kind == "revisit":
        record = _original(folder, record, digest)
    if hashlib.sha256(record.payload).digest() != digest:
        raise ValueError("its body is not the one that was written")


def _original(folder: Path, record: WarcRecord, digest: bytes) -> WarcRecord:
    """The record with the body of `record`, a revisit. It is never a revisit itself."""
    segment, offset, length = record.fields[REFERS_TO.lower()].rsplit(":", 2)
    original = _load(folder, ArchiveRef(segment, int(offset), int(length), digest))
    if original.fields["warc-type"] != "response" or _digest(original) != digest:
        raise ValueError("it refers to a record with another body")
    return original


def _digest(record: WarcRecord) -> bytes:
    found = _SHA256.fullmatch(record.fields["warc-payload-digest"])
    if found is None:
        raise ValueError("its digest cannot be read")
    return bytes.fromhex(found[1])


def _load(folder: Path, ref: ArchiveRef) -> WarcRecord:
    compressed = _bytes(folder, ref)
    try:
        text: bytes = igzip_lib.decompress(compressed, flag=igzip_lib.DECOMP_GZIP)
    except _BAD_GZIP as error:
        raise ValueError("it cannot be unpacked") from error
    return parse(text)


def _bytes(folder: Path, ref: ArchiveRef, limit: int | None = None) -> bytes:
    if not _SEGMENT_NAME.fullmatch(ref.segment):
        raise ValueError("the name of its segment is invalid")
    length = ref.length if limit is None else min(limit, ref.length)
    try:
        file = os.open(folder / ref.segment, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(f"The archive has no segment {ref.segment}; was it moved or deleted?") from None
    try:
        found = os.pread(file, length, ref.offset)
    finally:
        os.close(file)
    if len(found) < length:
        raise ValueError("it is not whole")
    return found


def _describe(error: Exception) -> str:
    return f"the field {error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")


def originals(path: Path) -> set[str]:
    """Return the other segments that hold bodies of the revisit records of a segment. Raises OSError.

    Before: the segment is closed. A record that cannot be read is left out, as its body cannot be read either.
    """
    own = f"{path.parent.name}/{path.name}"
    found = set()
    for member in segments.members(path):
        head = member.text.partition(b"\r\n\r\n")[0]
        if _REFERS_TO in head.lower():
            try:
                found.add(parse_fields(head + b"\r\n\r\n")[0][REFERS_TO.lower()].rsplit(":", 2)[0])
            except (ValueError, LookupError):
                continue
    return found - {own}
