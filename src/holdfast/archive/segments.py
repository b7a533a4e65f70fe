"""A worker's archive: exchanges in, references out, and when `sync` has returned the bytes are on the disk.

The rule: a reference may be committed only after `sync` returned without an error. If it raised, all references since the last good
one are void: append the same exchanges again, which go to a new segment. Everything here belongs to one thread.

A body that this worker has kept and synced before is not kept again: a revisit record refers to it. The memory of bodies begins
empty with each life of the worker, and holds digests and places only; what else a revisit says is read from the original, which
also shows that it is still there.
"""

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from holdfast.archive import segment, warc
from holdfast.archive.reading import find
from holdfast.archive.warc import Exchange, Original
from holdfast.errors import NotFound
from holdfast.model.page import ArchiveRef
from holdfast.settings import Archive

_SMALLEST_REPEAT: Final = 256
"""Bytes of a body below which a revisit would be no shorter."""
_HEAD: Final = 4096
"""Bytes that the fields of any record of ours fit in: a URL has at most 2048."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST_NAME: Final = 60


class Segments:
    """The segments of one worker; one of them is open at most."""

    def __init__(self, folder: Path, worker: str, settings: Archive, *, software: str) -> None:
        """Before: no other living process has the name `worker`. After: what its earlier lives left open is closed."""
        self._root = folder
        self._worker = safe_name(worker)
        self._folder = folder / self._worker
        self._settings = settings
        self._software = software
        self._ids = warc.record_ids()
        self._open: segment.OpenSegment | None = None
        self._kept: OrderedDict[bytes, ArchiveRef] = OrderedDict()
        self._unsynced: list[ArchiveRef] = []
        """Bodies to remember once they are on the disk."""
        segment.make_folder(self._root)
        segment.make_folder(self._folder)
        self.recovered: Final = tuple(segment.recover(self._folder))
        """What was found open, for the log."""

    def append(self, exchanges: Sequence[Exchange]) -> list[ArchiveRef]:
        """Keep `exchanges`; where their answers are, in the same order.

        Before: each has a status. After: they are in the open segment, and after the next `sync` on the disk. OSError (disk full …):
        nothing was added, and the same call may be tried again.
        """
        if not exchanges:
            return []
        if self._open is None:
            self._open = segment.OpenSegment(self._folder, self._worker)
        name = self._open.path.name
        at = self._open.size
        level = self._settings.level
        parts: list[bytes] = []
        refs: list[ArchiveRef] = []
        new: list[ArchiveRef] = []
        if not at:
            text = warc.warcinfo(self._ids, datetime.now(UTC), segment=name, software=self._software)
            parts.append(warc.pack(text, level))
            at += len(parts[0])
        for exchange in exchanges:
            digest = hashlib.sha256(exchange.result.body).digest()
            repeatable = self._repeatable(exchange)
            original = self._original(digest) if repeatable else None
            texts = warc.texts(exchange, self._ids, digest, original)
            request = warc.pack(texts.request, level) if texts.request else b""
            response = warc.pack(texts.response, level)
            metadata = warc.pack(texts.metadata, level)
            ref = ArchiveRef(f"{self._worker}/{name}", at + len(request), len(response), digest)
            refs.append(ref)
            if repeatable and original is None:
                new.append(ref)
            parts += (request, response, metadata)
            at += len(request) + len(response) + len(metadata)
        self._open.write(b"".join(parts))
        self._unsynced += new
        return refs

    def sync(self) -> None:
        """Before: nothing. After: everything appended survives a power cut, and a segment that is long enough is closed.

        OSError: what was appended since the last good sync is void, and must be appended again.
        """
        if self._open is None:
            return
        try:
            self._open.sync()
        except OSError:
            self._open.abandon()
            self._open = None
            self._unsynced.clear()
            raise
        for ref in self._unsynced:
            self._kept[ref.payload_digest] = ref
            self._kept.move_to_end(ref.payload_digest)
        self._unsynced.clear()
        while len(self._kept) > self._settings.dedup:
            self._kept.popitem(last=False)
        if self._open.size >= self._settings.segment_bytes:
            self._open.close()
            self._open = None

    def close(self) -> None:
        """Before: nothing. After: everything appended is on the disk and no segment is open. OSError: as `sync`."""
        self.sync()
        if self._open is not None:
            self._open.close()
            self._open = None

    def _repeatable(self, exchange: Exchange) -> bool:
        # Not if it was cut: the original may be a whole body that happens to begin and end like it.
        return self._settings.dedup > 0 and len(exchange.result.body) >= _SMALLEST_REPEAT and not exchange.result.cut

    def _original(self, digest: bytes) -> Original | None:
        """The record with that body, if it is remembered and still there."""
        ref = self._kept.get(digest)
        if ref is None:
            return None
        try:
            fields = find(self._root, ref, _HEAD)
            if fields["warc-payload-digest"] != f"sha256:{digest.hex()}":
                raise ValueError("another record is there now")  # noqa: TRY301 — the same end as all below
            original = Original(ref, fields["warc-record-id"], fields["warc-target-uri"], fields["warc-date"])
        except (OSError, ValueError, LookupError, NotFound):
            del self._kept[digest]
            return None
        self._kept.move_to_end(digest)
        return original


def safe_name(worker: str) -> str:
    """`worker` as a part of file names; two different names stay different."""
    name = _UNSAFE.sub("_", worker)
    if name == worker and 0 < len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(worker.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: _LONGEST_NAME - 9]}-{digest[:8]}"
