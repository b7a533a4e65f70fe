"""Reading the archive: one answer by its reference, and all segments to see that they are whole.

The rule: what is handed out is what was kept, proven by its digest, or an error says that it is not. The files are written by us, and
yet a reference never leads out of the archive's folder.
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

from holdfast.archive import segment as segments
from holdfast.archive.head import parse_head
from holdfast.archive.warc import REFERS_TO, Record, parse, parse_fields
from holdfast.errors import HoldfastError, NotFound
from holdfast.model.page import ArchiveRef

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*/[A-Za-z0-9_-][A-Za-z0-9._-]*")
_BAD_GZIP: Final = cast("type[Exception]", igzip_lib.error)
_SHA256: Final = re.compile(r"sha256:([0-9a-f]{64})")


class ArchiveDamaged(HoldfastError):
    """The archive's bytes are not those that were written."""

    exit_code: ClassVar[int] = 3


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """An answer as the archive has it."""

    url: str
    fetched_at: datetime
    status: int
    headers: dict[str, str]
    """As in `FetchResult`; those that do not hold for the decoded body have names that begin with x-archive-orig-."""
    body: bytes
    cut: bool


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the archive that is not as it should be."""

    segment: str
    offset: int
    detail: str
    """In the middle of a sentence: "its bytes are not …"."""

    def __str__(self) -> str:
        return f"In {self.segment}, the record at {self.offset} is damaged: {self.detail}."


def read(folder: Path, ref: ArchiveRef) -> StoredResponse:
    """The answer that `ref` points to; a revisit has the body of its original.

    NotFound if its segment is not there, ArchiveDamaged if the bytes are not what they were.
    """
    try:
        record = _load(folder, ref)
        body = record.payload
        if record.fields.get("warc-type") == "revisit":
            body = _original(folder, record, ref.payload_digest).payload
        if hashlib.sha256(body).digest() != ref.payload_digest:
            raise ValueError("its body is not the one that is asked for")  # noqa: TRY301 — one sentence for all of them
        status, headers = parse_head(record.block.partition(b"\r\n\r\n")[0])
        return StoredResponse(
            url=record.fields["warc-target-uri"],
            fetched_at=datetime.fromisoformat(record.fields["warc-date"]),
            status=status,
            headers=headers,
            body=body,
            cut="warc-truncated" in record.fields,
        )
    except (ValueError, LookupError) as error:
        raise ArchiveDamaged(str(Problem(ref.segment, ref.offset, _said(error)))) from error


def check(folder: Path) -> Iterator[Problem]:
    """Whatever is wrong in the segments below `folder`; of an open one, in what is synced.

    Each record is whole, has the digests that it names, and a revisit leads to a record with the same body.
    """
    for path in sorted(folder.glob(f"*/*{segments.SUFFIX}")):
        name = f"{path.parent.name}/{path.name}"
        synced = segments.synced_bytes(path)  # first: if it is closed by now, its size is final
        size = path.stat().st_size
        end = size if synced is None else synced
        at = 0
        for member in segments.members(path, end=end):
            try:
                _judge(folder, parse(member.text))
            except (ValueError, LookupError, NotFound) as error:
                yield Problem(name, member.offset, _said(error))
            at = member.offset + member.length
        if at != end:
            yield Problem(name, at, "it is not whole" if at < size else "it is missing")


def find(folder: Path, ref: ArchiveRef, most: int) -> dict[str, str]:
    """The WARC fields of a record, of which `most` bytes are unpacked. OSError, ValueError, NotFound if they cannot be had."""
    unpacker = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    try:
        return parse_fields(unpacker.decompress(_bytes(folder, ref, most), most))[0]
    except _BAD_GZIP as error:
        raise ValueError("it cannot be unpacked") from error


def _judge(folder: Path, record: Record) -> None:
    kind = record.fields["warc-type"]
    if kind not in {"response", "revisit"}:
        return
    digest = _digest(record)
    if kind == "revisit":
        record = _original(folder, record, digest)
    if hashlib.sha256(record.payload).digest() != digest:
        raise ValueError("its body is not the one that was written")


def _original(folder: Path, record: Record, digest: bytes) -> Record:
    """The record that has the body of `record`, a revisit. It is never a revisit itself."""
    segment, offset, length = record.fields[REFERS_TO.lower()].rsplit(":", 2)
    original = _load(folder, ArchiveRef(segment, int(offset), int(length), digest))
    if original.fields["warc-type"] != "response" or _digest(original) != digest:
        raise ValueError("it refers to a record with another body")
    return original


def _digest(record: Record) -> bytes:
    found = _SHA256.fullmatch(record.fields["warc-payload-digest"])
    if found is None:
        raise ValueError("its digest cannot be read")
    return bytes.fromhex(found[1])


def _load(folder: Path, ref: ArchiveRef) -> Record:
    packed = _bytes(folder, ref)
    try:
        text: bytes = igzip_lib.decompress(packed, flag=igzip_lib.DECOMP_GZIP)
    except _BAD_GZIP as error:
        raise ValueError("it cannot be unpacked") from error
    return parse(text)


def _bytes(folder: Path, ref: ArchiveRef, most: int | None = None) -> bytes:
    if not _NAME.fullmatch(ref.segment):
        raise ValueError("its segment has a name that no segment has")
    length = ref.length if most is None else min(most, ref.length)
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


def _said(error: Exception) -> str:
    return f"the field {error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
