"""The parse phase: pages of tasks from the archive, through a parser, to results in the database.

The rule: `crawl_tasks` is the truth. A parse belongs to the attempt under which it was taken; under any other attempt it writes nothing. So
a killed process leaves nothing to repair, and two processes that parse the same task do no harm.
"""

import asyncio

from holdfast.archive.reader import ArchiveReader
from holdfast.crawler.db_thread import DbThread
from holdfast.db import parse_results, tasks
from holdfast.db.connection import Connection, Database
from holdfast.db.parse_results import ToParse
from holdfast.errors import ArchiveUnavailable, HoldfastError, NotFound, SegmentMissing, StoreError
from holdfast.model.parse_result import Document, ParseFailed
from holdfast.model.task import TaskStatus
from holdfast.parse.plugin_pool import PluginPool
from holdfast.tasks.records import Task


def read_page(archive: ArchiveReader, task: Task) -> Document:
    """Read a task's page from the archive. Raises NotFound or ArchiveDamaged if the archive does not have it, ArchiveUnavailable."""
    if task.archive is None:
        raise NotFound(f"The page of task {task.id} is not in the archive: it was fetched without being kept.")
    stored = archive.read(task.archive.ref)
    return Document(stored.url, stored.body, stored.headers.get("content-type"), stored.headers, stored.fetched_at)


class ParsePhase:
    """Parses tasks that wait to be parsed, any number at once. For one event loop; it owns the parser pool."""

    def __init__(self, database: Database, pool: PluginPool, archive: ArchiveReader) -> None:
        self._db = DbThread(database, "parse")
        self._pool = pool
        self._archive = archive

    async def parse_task(self, task_id: int) -> TaskStatus | None:
        """Parse one task; returns its new status, or None if it did not wait to be parsed, or was taken again meanwhile.

        Before: nothing. After: it is completed and its result is stored, or it waits for another attempt, or it has failed.
        Only a page that the archive has lost fails at once: a parser may be installed or repaired meanwhile.
        A process that is stopped in between leaves it parsing, and `reclaim_parses` takes it back.
        """
        taken = await self._db.call(parse_results.take, task_id)
        if taken is None:
            return None
        try:
            document = await asyncio.to_thread(read_page, self._archive, taken.task)
        except HoldfastError as problem:
            return await self._fail(taken, str(problem), permanent=_is_permanent(problem, self._archive, taken.task))
        except OSError as problem:
            return await self._fail(taken, f"The archive cannot be read: {problem.strerror}.")
        parsed = await self._pool.parse(taken.parser, document)
        if isinstance(parsed, ParseFailed):
            return await self._fail(taken, failure_line(parsed))
        try:
            await self._db.call(parse_results.finish, taken, parsed)
        except StoreError as problem:
            return await self._fail(taken, str(problem))
        # Read in any case: if the answer to a commit was lost, the repeated `finish` returns False although the first one succeeded.
        return await self._db.call(_final_status, taken)

    async def _fail(self, taken: ToParse, error: str, *, permanent: bool = False) -> TaskStatus | None:
        task = taken.task
        return await self._db.call(parse_results.fail_parse, task.id, task.attempt, error=error, permanent=permanent)

    async def aclose(self) -> None:
        """Before: nothing. After: no process and no connection of its own is left; calls that were under way raise."""
        self._db.give_up()
        await self._pool.aclose()
        await asyncio.to_thread(self._db.close)


def _is_permanent(problem: HoldfastError, archive: ArchiveReader, task: Task) -> bool:
    """Whether another attempt cannot help: a page that was written here and is missing is lost, as is one that the database says was lost.
    The object store comes back, and other machines upload theirs; without a store, pages of another machine have no folder here."""
    if isinstance(problem, ArchiveUnavailable):
        return False
    if isinstance(problem, SegmentMissing) and problem.machine is not None:
        return problem.lost
    return task.archive is None or archive.folder is None or (archive.folder / task.archive.segment).parent.is_dir()


def failure_line(failed: ParseFailed) -> str:
    """The reason of a failed parse, in one line."""
    return f"The parser {failed.parser!r} gave nothing ({failed.kind.replace('_', ' ')}): {failed.reason}"


def _final_status(connection: Connection, taken: ToParse) -> TaskStatus | None:
    try:
        task = tasks.get(connection, taken.task.id)
    except NotFound:
        return None
    own = task.attempt == taken.task.attempt and task.status is TaskStatus.COMPLETED
    return TaskStatus.COMPLETED if own else None
