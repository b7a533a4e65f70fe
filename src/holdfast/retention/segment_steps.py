"""The step of retention that archives segments of the WARC archive, and deletes their files and objects; and their collection as garbage.

The rule: a segment is deleted when its archive is complete and every kept backup is younger. Each part may be repeated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from holdfast import failpoints
from holdfast.archive.file_store import facts_of
from holdfast.archive.segment_file import SUFFIX as SEGMENT_SUFFIX
from holdfast.db import archive_segments, backups
from holdfast.db import archives as manifest
from holdfast.db.connection import Connection
from holdfast.errors import ArchiveDamaged, HoldfastError, NotFound
from holdfast.model.segment import SegmentState
from holdfast.retention.archive_files import ArchiveFiles, file_key
from holdfast.retention.old_segments import WAITING, OldSegment, OldSegments
from holdfast.retention.queries import chunks, segments
from holdfast.retention.records import ArchiveFile, SegmentGarbage
from holdfast.retention.row_steps import Tally, Work
from holdfast.retention.segment_files import SegmentFiles, reporting


@dataclass(frozen=True, slots=True)
class SegmentSteps:
    """The step that moves segments of this machine, and those in the object store."""

    files: ArchiveFiles
    segments: SegmentFiles
    archive_segments: bool
    """Whether segments are archived before they are deleted (retention.archive_segments)."""
    dedup_age: timedelta
    """The greatest age of a body to which a new record refers (archive.dedup_age)."""

    def old(self, connection: Connection, kept: timedelta) -> dict[str, OldSegment]:
        """Return the segments that no page needs that is kept, and that are not archived yet, by name."""
        segments.keep_needed(connection, kept)
        return OldSegments(self.segments, self.dedup_age).unneeded(connection, kept)

    def move(self, connection: Connection, kept: timedelta, tally: Tally) -> Work:
        """Archive the segments that may go, and delete those that are archived. Raises ArchiveDamaged, NotFound for an object that is not
        what was uploaded, after all others."""
        problem: HoldfastError | None = None
        for name, old in self.old(connection, kept).items():
            try:
                size = self._archive(connection, name, old)
            except (ArchiveDamaged, NotFound) as found:  # the object of this one; it stays, and the others go on
                problem = found
                continue
            tally.rows += 1
            tally.archives += 1
            tally.bytes += size
            yield
        yield from self._delete_archived(connection)
        if problem is not None:
            raise problem

    def collect(
        self, connection: Connection, grace: timedelta, *, dry_run: bool, watch: Callable[[int], None]
    ) -> SegmentGarbage:
        """Delete segments that no page, version or task names, without an archive. Before: this process holds the lock of retention."""
        segments.keep_named(connection)
        old = OldSegments(self.segments, self.dedup_age).unneeded(connection, grace)
        free = backups.deletable(connection, manifest.SEGMENT, list(old), dry_run=dry_run)
        sizes = {name: one.size for name, one in old.items() if name in free}
        for number, name in enumerate(() if dry_run else sizes, 1):
            entry = old[name].entry
            self._delete(name, None if entry is None else entry.state)
            segments.forget(connection, name)
            watch(number)
        if not dry_run:
            backups.forget_unnamed(connection, manifest.SEGMENT, list(sizes))
        return SegmentGarbage(len(sizes), sum(sizes.values()), len(old) - len(sizes), dry_run)

    def _archive(self, connection: Connection, name: str, old: OldSegment) -> int:
        """Archive a segment, and return its size; nothing is deleted yet."""
        if not self.archive_segments:
            archive_id = chunks.begin(connection, manifest.SEGMENT, place=self.files.store.place, source=name)
            segments.complete(connection, archive_id)
            return old.size
        with self.segments.opened(name, old.entry) as path:
            with reporting(path):
                facts = facts_of(path)
            archive_id = chunks.begin(connection, manifest.SEGMENT, place=self.files.store.place, source=name)
            key = file_key(manifest.SEGMENT, archive_id, manifest.SEGMENT, SEGMENT_SUFFIX)
            self.files.store.put_file(key, path)
        failpoints.reach("retention_archived")
        with connection.transaction():
            file = ArchiveFile(manifest.SEGMENT, key, 1, facts.size, facts.sha256.hex())
            chunks.add_file(connection, archive_id, 0, file)
            segments.complete(connection, archive_id)
        return facts.size

    def _delete_archived(self, connection: Connection) -> Work:
        """Delete the files and objects of archived segments that no kept backup names, then what the manifest says of them."""
        oldest = backups.oldest_kept(connection)
        archived = segments.to_delete(connection)
        states = archive_segments.states(connection, list(archived))
        for name, (archive_id, archived_at) in archived.items():
            state, here = states.get(name), self.segments.is_here(name)
            if state is SegmentState.LOST and not here:
                segments.mark_deleted(connection, archive_id, name)  # its machine is gone, and its archive is not
                continue
            if (oldest is not None and oldest <= archived_at) or (
                self.segments.objects is not None and state in WAITING
            ):
                continue  # it is in a backup, or uploaded first
            if not here and (state is not SegmentState.UPLOADED or self.segments.objects is None):
                continue  # it is on another machine
            self._delete(name, state)
            failpoints.reach("retention_deleted")
            if self.segments.objects is not None or state is not SegmentState.UPLOADED:
                segments.mark_deleted(connection, archive_id, name)
            yield
        if self.segments.objects is not None:
            for name in segments.deleted_elsewhere(connection, list(self.segments.closed())):
                self.segments.delete_file(name)  # another machine has archived it, from the object store
                yield

    def _delete(self, name: str, state: SegmentState | None) -> None:
        """Delete the file of a segment and, if it is uploaded, its object. It may be repeated. Raises ArchiveUnavailable, HoldfastError."""
        self.segments.delete_file(name)
        if self.segments.objects is not None and state is SegmentState.UPLOADED:
            failpoints.reach("retention_file_deleted")
            self.segments.objects.delete(name)
