"""Archive reader: reads one response by its reference, wherever its segment is, and checks the segments of this machine for damage.

The rule: a returned body matches its digest, or an error is raised. A reference never leads out of the archive's folder, although
Holdfast wrote it. The file on this machine is read first, then the object store, and what is in neither is a sentence that says where it
is (`SegmentMissing`).
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, cast

from isal import igzip_lib

from holdfast.archive import segment_file as segments
from holdfast.archive.http_head import parse_head
from holdfast.archive.segment_store import SegmentStore
from holdfast.archive.warc import REFERS_TO, WarcRecord, parse, parse_fields
from holdfast.errors import ArchiveDamaged, NotFound, SegmentMissing
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.segment import SegmentPlace, SegmentState

_SEGMENT_NAME: Final = re.compile(segments.SEGMENT_NAME)
_BAD_GZIP: Final = cast("type[Exception]", igzip_lib.error)
_REFERS_TO: Final = REFERS_TO.lower().encode() + b":"
_SHA256: Final = re.compile(r"sha256:([0-9a-f]{64})")


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


@dataclass(frozen=True, slots=True)
class ArchiveReader:
    """Reads the archive of this machine and, if there is an object store, that of all others. It may be shared by threads."""

    folder: Path | None
    """The archive folder of this machine; None: there is none."""
    store: SegmentStore | None = None
    locate: Callable[[str], SegmentPlace | None] = lambda _segment: None
    """Where the database says that a segment is. Called only for segments that cannot be read."""

    @property
    def exists(self) -> bool:
        """Whether there is anything to read: the archive folder of this machine, or an object store."""
        return self.store is not None or (self.folder is not None and self.folder.is_dir())

    def has(self, segment: str) -> bool:
        """Whether the file of this segment is on this machine."""
        return (
            self.folder is not None
            and _SEGMENT_NAME.fullmatch(segment) is not None
            and (self.folder / segment).is_file()
        )

    def read(self, ref: ArchiveRef) -> StoredResponse:
        """Read the response at `ref`; the body of a revisit is that of its original.

        Raises SegmentMissing if its segment can be read neither here nor in the object store, ArchiveUnavailable if the object store does
        not answer, ArchiveDamaged if the bytes are not those that were written, OSError.
        """
        try:
            record = self._load(ref)
            body = record.payload
            if record.fields.get("warc-type") == "revisit":
                body = self._original(record, ref.payload_digest).payload
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

    def check(self) -> Iterator[Problem]:
        """Check all segments of this machine and yield each problem; an open segment is checked up to its synced bytes.

        A record must be complete and match its digests, and a revisit must refer to a record with the same body. Raises
        ArchiveUnavailable if a revisit refers to a segment that only the object store has, and that does not answer.
        """
        for path in [] if self.folder is None else sorted(self.folder.glob(f"*/*{segments.SUFFIX}")):
            name = f"{path.parent.name}/{path.name}"
            synced = segments.synced_bytes(path)  # before the size: if the segment is closed by then, its size is final
            try:
                size = path.stat().st_size
            except FileNotFoundError:  # uploaded and removed meanwhile
                continue
            end = size if synced is None else synced
            at = 0
            for member in segments.members(path, end=end):
                try:
                    self._verify(parse(member.text))
                except (ValueError, LookupError, NotFound, ArchiveDamaged) as error:
                    yield Problem(name, member.offset, _describe(error))
                at = member.offset + member.length
            if at != end:
                yield Problem(name, at, "it is not whole" if at < size else "it is missing")

    def _verify(self, record: WarcRecord) -> None:
        kind = record.fields["warc-type"]
        if kind not in {"response", "revisit"}:
            return
        digest = _digest(record)
        if kind == "revisit":
            record = self._original(record, digest)
        if hashlib.sha256(record.payload).digest() != digest:
            raise ValueError("its body is not the one that was written")

    def _original(self, record: WarcRecord, digest: bytes) -> WarcRecord:
        """The record with the body of `record`, a revisit. It is never a revisit itself."""
        segment, offset, length = record.fields[REFERS_TO.lower()].rsplit(":", 2)
        original = self._load(ArchiveRef(segment, int(offset), int(length), digest))
        if original.fields["warc-type"] != "response" or _digest(original) != digest:
            raise ValueError("it refers to a record with another body")
        return original

    def _load(self, ref: ArchiveRef) -> WarcRecord:
        compressed = self._bytes(ref)
        try:
            text: bytes = igzip_lib.decompress(compressed, flag=igzip_lib.DECOMP_GZIP)
        except _BAD_GZIP as error:
            raise ValueError("it cannot be unpacked") from error
        return parse(text)

    def _bytes(self, ref: ArchiveRef) -> bytes:
        if self.folder is not None and (found := _local_bytes(self.folder, ref)) is not None:
            return found
        if not _SEGMENT_NAME.fullmatch(ref.segment):
            raise ValueError("the name of its segment is invalid")
        if self.store is not None:
            try:
                found = self.store.read(ref.segment, ref.offset, ref.length)
            except NotFound:
                raise self._missing(ref.segment) from None
            if len(found) < ref.length:
                raise ValueError("it is not whole")
            return found
        raise self._missing(ref.segment)

    def _missing(self, segment: str) -> SegmentMissing | ArchiveDamaged:
        place = self.locate(segment)
        worker = segment.partition("/")[0]
        if place is None and self.folder is not None and (self.folder / worker).is_dir():
            return SegmentMissing(f"The archive has no segment {segment}; was it moved or deleted?")
        if place is None:
            return SegmentMissing(
                f"Its bytes are in {segment}, which is not in the archive folder of this machine: ask on the machine of worker {worker}, "
                f"or copy its folder {worker} into the archive folder here."
            )
        if place.state is SegmentState.LOST:
            return SegmentMissing(
                f"Its bytes were in {segment}, which was lost with the machine {place.machine}: `holdfast replay --lost` fetches it again.",
                machine=place.machine,
                lost=True,
            )
        if place.state is not SegmentState.UPLOADED:
            return SegmentMissing(
                f"Its bytes are in {segment}, which is still on machine {place.machine}: every machine can read it as soon as it is "
                "uploaded (`holdfast segments list` shows when).",
                machine=place.machine,
            )
        if self.store is None:
            return SegmentMissing(
                f"Its bytes are in {segment}, which machine {place.machine} has uploaded: the setting archive.store says where this "
                "machine finds it.",
                machine=place.machine,
            )
        return ArchiveDamaged(
            f"Its bytes are in {segment}, which machine {place.machine} has uploaded, but {self.store.place} has no such file any more."
        )


def read_fields(folder: Path, ref: ArchiveRef, limit: int) -> dict[str, str]:
    """Read the WARC fields of a record on this machine from its first `limit` bytes. Raises OSError, ValueError or NotFound."""
    found = _local_bytes(folder, ref, limit)
    if found is None:
        raise NotFound(f"The archive of this machine has no segment {ref.segment}.")
    decompressor = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    try:
        return parse_fields(decompressor.decompress(found, limit))[0]
    except _BAD_GZIP as error:
        raise ValueError("it cannot be unpacked") from error


def _digest(record: WarcRecord) -> bytes:
    found = _SHA256.fullmatch(record.fields["warc-payload-digest"])
    if found is None:
        raise ValueError("its digest cannot be read")
    return bytes.fromhex(found[1])


def _local_bytes(folder: Path, ref: ArchiveRef, limit: int | None = None) -> bytes | None:
    """The bytes of a record in a file of this machine; None: there is no such file."""
    if not _SEGMENT_NAME.fullmatch(ref.segment):
        raise ValueError("the name of its segment is invalid")
    length = ref.length if limit is None else min(limit, ref.length)
    try:
        file = os.open(folder / ref.segment, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
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
