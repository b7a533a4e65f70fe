"""The steps of retention that archive rows and delete them: chunks of a job's URLs, chunks of old rows, weeks of the log.

The rule: a chunk is deleted by the transaction that completes its archive, and only if it is as it was read.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast import failpoints
from holdfast.db.connection import Connection
from holdfast.errors import StoreError
from holdfast.retention.archive_files import ArchiveFiles, file_key, log_file_key
from holdfast.retention.queries import chunks, jobs, log, tables
from holdfast.retention.queries.chunks import InterruptedArchive, Keys, ReadPart

ATTEMPTS: Final = 5
"""How often a chunk is read again that changed meanwhile."""

Work = Generator[None, None, None]
"""A step under way: it may be stopped wherever it yields."""


@dataclass(slots=True)
class Tally:
    """What a step has done so far."""

    rows: int = 0
    archives: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RowSteps:
    """The steps that archive rows."""

    files: ArchiveFiles

    def age_jobs(self, connection: Connection, step: jobs.JobStep, kept: timedelta, tally: Tally) -> Work:
        """Archive and delete the rows of jobs that ended longer ago than `kept`. After: `save_progress` has noted how far it came."""
        for job in jobs.ended_jobs(connection, step, kept):
            ended = True
            for keys in jobs.chunks(connection, step, job):

                def lock(keys: Keys = keys) -> bool:
                    return jobs.lock(connection, keys, kept)

                def delete(keys: Keys = keys, job: jobs.EndedJob = job) -> int:
                    if step.forgets:
                        jobs.forget(connection, keys, job.ended_at, pages=step is jobs.PAGES)
                    else:
                        for part in step.parts:
                            chunks.delete(connection, part, keys)
                    jobs.save_progress(connection, step, job)
                    return len(keys)

                ended = self._archive(connection, step.name, step.parts, keys, tally, lock=lock, delete=delete)
                yield
                if not ended:
                    break  # it was begun again: its rows are its memory
            if ended:
                jobs.save_progress(connection, step, job, done=True)

    def age_table(self, connection: Connection, step: tables.TableStep, kept: timedelta, tally: Tally) -> Work:
        """Archive and delete the rows of a table that are older than `kept`."""
        for keys in tables.chunks(connection, step, kept):

            def lock(keys: Keys = keys) -> bool:
                return tables.lock(connection, step, keys, kept)

            def delete(keys: Keys = keys) -> int:
                return tables.remove(connection, step, keys)

            self._archive(connection, step.name, step.parts, keys, tally, lock=lock, delete=delete)
            yield

    def drop_weeks(self, connection: Connection, kept: timedelta, tally: Tally) -> Work:
        """Archive and drop the weeks of the log that ended longer ago than `kept`. A week that an interrupted run began goes on at the file
        after its last one, if the store has all of its files. Raises StoreError for a week that was written to meanwhile."""
        for part in log.old_parts(connection, kept):
            begun = log.started(connection, part.name, self.files.store.place)
            if begun is not None and not self.files.is_stored(connection, begun.id):
                self.files.discard(
                    connection, InterruptedArchive(begun.id, log.STEP, self.files.store.place, begun.source)
                )
                begun = None
            if begun is None:
                source = log.new_source(connection, part.name)
                chunks.begin(connection, log.STEP, place=self.files.store.place, source=source)
                begun = log.started(connection, part.name, self.files.store.place)
                assert begun is not None  # noqa: S101 — it was begun a moment ago
            block, number, rows = begun.next_block, begun.files, begun.rows
            # What a killed run left of its last file.
            self.files.store.delete_file(log_file_key(begun.id, part.name, number, self.files.suffix))
            last = False
            while not last:
                found = log.read(connection, part.name, block)
                block, last = found.next_block, found.last
                failpoints.reach("retention_read")
                if found.rows or not number:
                    read = ReadPart(chunks.Part("crawl_log", ""), found.columns, found.rows, 0, None, None)
                    file = self.files.write(log_file_key(begun.id, part.name, number, self.files.suffix), read)
                    failpoints.reach("retention_archived")
                    chunks.add_file(connection, begun.id, number, file, str(block))
                    tally.bytes += file.bytes
                    number += 1
                    rows += len(found.rows)
                yield
            if not log.drop(connection, part.name, begun.id, rows):
                self.files.discard(
                    connection, InterruptedArchive(begun.id, log.STEP, self.files.store.place, begun.source)
                )
                raise StoreError(
                    f"The week {part.name} of the log has {log.count(connection, part.name):,} rows, and {rows:,} were archived. It was "
                    "written to meanwhile, and stays; the next run archives it anew."
                )
            failpoints.reach("retention_deleted")
            tally.rows += rows
            tally.archives += 1
            yield

    def _archive(
        self,
        connection: Connection,
        kind: str,
        parts: Sequence[chunks.Part],
        keys: Keys,
        tally: Tally,
        *,
        lock: Callable[[], bool],
        delete: Callable[[], int],
    ) -> bool:
        """Archive the rows of a chunk and delete them; False if `lock` says that they may not be deleted any more.

        After: the rows are in a complete archive, or still in the store. Raises StoreError for a chunk that others change all the time.
        """
        for _ in range(ATTEMPTS):
            archive_id = chunks.begin(connection, kind, place=self.files.store.place, job_id=keys.job_id)
            with chunks.snapshot(connection):
                found = list(chunks.read(connection, parts, keys))
            failpoints.reach("retention_read")
            written = [
                self.files.write(file_key(kind, archive_id, part.part.table, self.files.suffix), part)
                for part in found
                if part.rows or part is found[0]
            ]
            failpoints.reach("retention_archived")
            with connection.transaction():
                may = lock()
                if may and chunks.is_unchanged(connection, found, keys):
                    rows = delete()
                    for number, file in enumerate(written):
                        chunks.add_file(connection, archive_id, number, file)
                    first = min((part.first_at for part in found if part.first_at), default=None)
                    last = max((part.last_at for part in found if part.last_at), default=None)
                    total = sum(len(part.rows) for part in found)
                    if not chunks.complete(connection, archive_id, rows=total, first=first, last=last):
                        raise StoreError(
                            f"Archive {archive_id} is not being written any more; another run has taken it."
                        )
                    failpoints.reach("retention_deleted")
                    tally.rows += rows
                    tally.archives += 1
                    tally.bytes += sum(file.bytes for file in written)
                    return True
            for file in written:
                self.files.store.delete_file(file.key)
            chunks.forget(connection, archive_id)
            if not may:
                return False
        raise StoreError(
            f"Rows of the step {kind} changed each of {ATTEMPTS} times while they were archived; they stay, and the next run goes on."
        )
