"""Archive writer of one worker: takes exchanges, returns references; after `sync` the bytes are on disk.

The rule: a reference may be committed only after `sync` returned without an error. If it raised, all references since the last
successful sync are void: append the same exchanges again, which go to a new segment. Used by one thread.

Deduplication: a body that this worker has stored and synced in the last `dedup_age` is not stored again; a revisit record refers to it. The
index of bodies starts empty with each start of the worker and holds digests and positions only; the other fields of a revisit are read from
the original, which also proves that it still exists. Retention counts on the age: older segments get no new references.
"""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from holdfast.archive import segment_file, warc
from holdfast.archive.reader import read_fields
from holdfast.archive.warc import Exchange, Original
from holdfast.errors import NotFound
from holdfast.model.fetch_types import ArchiveRef
from holdfast.settings import Archive
from holdfast.telemetry.clock import Clock, SystemClock

_MIN_DEDUP_BYTES: Final = 256
"""Bytes of a body below which a revisit record would not be shorter."""
_MAX_FIELDS_BYTES: Final = 4096
"""Bytes that contain the fields of any record written here: a URL has at most 2048."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_CHARACTERS: Final = 60


class ArchiveWriter:
    """Writes the segments of one worker; at most one is open."""

    def __init__(
        self,
        folder: Path,
        worker: str,
        settings: Archive,
        *,
        software: str,
        on_opened: Callable[[str], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Before: no other running process has the name `worker`. After: segments that it left open earlier are recovered.

        `on_opened` is called with the name of each new segment, after its first bytes are synced and before `sync` returns, so that a
        segment to which a row points is always known. What it raises, `sync` raises.
        """
        self._root = folder
        self._clock = clock or SystemClock()
        self._worker = safe_name(worker)
        self._folder = folder / self._worker
        self._settings = settings
        self._software = software
        self._on_opened = on_opened
        self._announced: str | None = None
        self._max_bytes = settings.segment_bytes
        if settings.store is not None:
            self._max_bytes = min(settings.segment_bytes, settings.upload_bytes)
        self._ids = warc.record_ids()
        self._open: segment_file.OpenSegment | None = None
        self._known_bodies: OrderedDict[bytes, tuple[ArchiveRef, float]] = OrderedDict()
        """The record and the time of each body, the one that was met last at the end."""
        self.written = 0
        """Bytes that were appended so far."""
        self._unsynced_bodies: list[ArchiveRef] = []
        """Bodies to add to `_known_bodies` after the next sync."""
        segment_file.make_folder(self._root)
        segment_file.make_folder(self._folder)
        self.recovered: Final = tuple(segment_file.recover(self._folder))
        """The segments that were found open, for the log."""

    def append(self, exchanges: Sequence[Exchange]) -> list[ArchiveRef]:
        """Append `exchanges`; returns the references to their responses, in the same order.

        Before: each has a status. After: they are in the open segment, and after the next `sync` on disk. OSError (disk full …):
        nothing was added, and the same call may be retried.
        """
        if not exchanges:
            return []
        if self._open is None:
            self._open = segment_file.OpenSegment(self._folder, self._worker)
        name = self._open.path.name
        at = self._open.size
        level = self._settings.level
        parts: list[bytes] = []
        refs: list[ArchiveRef] = []
        new: list[ArchiveRef] = []
        if not at:
            text = warc.warcinfo(self._ids, datetime.now(UTC), segment=name, software=self._software)
            parts.append(warc.compress(text, level))
            at += len(parts[0])
        for exchange in exchanges:
            digest = hashlib.sha256(exchange.result.body).digest()
            can_deduplicate = self._can_deduplicate(exchange)
            original = self._original(digest) if can_deduplicate else None
            records = warc.build_records(exchange, self._ids, digest, original)
            request = warc.compress(records.request, level) if records.request else b""
            response = warc.compress(records.response, level)
            metadata = warc.compress(records.metadata, level)
            ref = ArchiveRef(f"{self._worker}/{name}", at + len(request), len(response), digest)
            refs.append(ref)
            if can_deduplicate and original is None:
                new.append(ref)
            parts += (request, response, metadata)
            at += len(request) + len(response) + len(metadata)
        data = b"".join(parts)
        self._open.write(data)
        self.written += len(data)
        self._unsynced_bodies += new
        return refs

    def sync(self) -> None:
        """Before: nothing. After: everything appended survives a power cut, and a segment that is large or old enough is closed.

        OSError: everything appended since the last successful sync is void and must be appended again.
        """
        if self._open is None:
            return
        try:
            self._open.sync()
        except OSError:
            self._open.abandon()
            self._open = None
            self._unsynced_bodies.clear()
            raise
        for ref in self._unsynced_bodies:
            self._known_bodies[ref.payload_digest] = ref, self._clock.now()
            self._known_bodies.move_to_end(ref.payload_digest)
        self._unsynced_bodies.clear()
        while len(self._known_bodies) > self._settings.dedup:
            self._known_bodies.popitem(last=False)
        if self._on_opened is not None and self._announced != self._open.path.name:
            self._on_opened(f"{self._worker}/{self._open.path.name}")
            self._announced = self._open.path.name
        if self._open.size >= self._max_bytes or self._is_old():
            self._open.close()
            self._open = None

    @property
    def is_open(self) -> bool:
        """Whether a segment is open."""
        return self._open is not None

    def close_old(self) -> bool:
        """Close the open segment if it is older than `upload_age` and there is a store to upload it to; returns whether it was. Before:
        everything appended is synced."""
        if self._open is None or not self._is_old():
            return False
        self._open.close()
        self._open = None
        return True

    def _is_old(self) -> bool:
        if self._open is None or self._settings.store is None:
            return False
        return time.monotonic() - self._open.opened_at >= self._settings.upload_age.total_seconds()

    def close(self) -> None:
        """Before: nothing. After: everything appended is on disk and no segment is open. OSError: as `sync`."""
        self.sync()
        if self._open is not None:
            self._open.close()
            self._open = None

    def _can_deduplicate(self, exchange: Exchange) -> bool:
        # Not a truncated body: the original may be a complete body with the same bytes.
        return self._settings.dedup > 0 and len(exchange.result.body) >= _MIN_DEDUP_BYTES and not exchange.result.cut

    def _original(self, digest: bytes) -> Original | None:
        """The record with this body, if it is in the index, not too old, and still exists."""
        ref, stored_at = self._known_bodies.get(digest, (None, 0.0))
        if ref is None:
            return None
        if self._clock.now() - stored_at > self._settings.dedup_age.total_seconds():
            del self._known_bodies[digest]
            return None
        try:
            fields = read_fields(self._root, ref, _MAX_FIELDS_BYTES)
            if fields["warc-payload-digest"] != f"sha256:{digest.hex()}":
                raise ValueError("another record is there now")  # noqa: TRY301 — handled like the errors below
            original = Original(ref, fields["warc-record-id"], fields["warc-target-uri"], fields["warc-date"])
        except (OSError, ValueError, LookupError, NotFound):
            del self._known_bodies[digest]
            return None
        self._known_bodies.move_to_end(digest)
        return original


def safe_name(worker: str) -> str:
    """Convert a worker name to a part of a file name; different names stay different."""
    name = _UNSAFE.sub("_", worker)
    if name == worker and 0 < len(name) <= _MAX_NAME_CHARACTERS:
        return name
    digest = hashlib.sha256(worker.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name[: _MAX_NAME_CHARACTERS - 9]}-{digest[:8]}"
