"""Parsers on the pages of crawls, beside the crawl.

Owns a worker's parser processes and the pages that wait for them in memory. The rules: a crawl never waits for a parser. A page comes here
after it is committed, and is due in the store until its items are; so whatever is not parsed in memory (too many bytes, a process that
was killed) is parsed from the archive later. A page that a parser cannot parse costs nothing but itself.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.archive import reading
from holdfast.archive.segments import safe_name
from holdfast.archive.warc import Exchange
from holdfast.engine.desk import Away, Desk
from holdfast.engine.waiting import heard
from holdfast.errors import HoldfastError
from holdfast.model.outcome import Outcome
from holdfast.model.parsed import Document, FailureKind, ParseFailed
from holdfast.parse.registry import scan
from holdfast.parse.runner import Runner
from holdfast.settings.parsing import Parsing
from holdfast.store import items
from holdfast.store.connect import Database
from holdfast.store.items import Due, Parsed

log: Final = logging.getLogger(__name__)

LOOK: Final = 5.0
"""Seconds between two looks at what is due in the archive, when nothing waits in memory."""
OTHERS: Final = 30.0
"""Seconds that a page must have been due before another worker than the one that fetched it parses it."""
CHUNK: Final = 200
"""Pages that are taken from the archive, and written down, at once."""
MOST_UNSAVED: Final = 500
"""Results that wait for the database before parsing waits, too."""
GATHER: Final = 0.05
"""Seconds that results gather before they are written."""
NO_PROCESS: Final = 5.0
"""Seconds to wait when no process for a parser can be started."""
CLOSE: Final = 5.0
"""Seconds that the last results have to be written when we are told to stop."""
_PASSING: Final = frozenset({FailureKind.TIMED_OUT, FailureKind.DIED, FailureKind.OUT_OF_MEMORY})
"""Failures that another attempt may not meet."""


@dataclass(slots=True)
class Extracted:
    """What was done so far."""

    pages: int = 0
    items: int = 0
    failed: int = 0
    error: str | None = None
    """The first failure."""


@dataclass(slots=True)
class _Work:
    page: Due
    document: Document | None = None
    """None: it is read from the archive."""
    size: int = 0


class Extraction:
    """Parses the pages of one process, for one event loop. Nothing is started before the first page comes or is found."""

    def __init__(
        self,
        database: Database,
        archive: Path,
        settings: Parsing,
        *,
        worker: str | None,
        job_id: int | None = None,
        domain_id: int | None = None,
        parser_file: Path | None = None,
        desk: Desk | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """For a worker: its own pages, and others' that have been due for long. For None: all of this archive.

        With `job_id` or `domain_id` only pages of those are taken from the archive. `desk` is asked whether anything is due, so that a
        worker without parsers needs no connection for them. `changed` is called when all is parsed.
        """
        self._archive = archive
        self._settings = settings
        self._worker = None if worker is None else safe_name(worker)
        self._job_id, self._domain_id = job_id, domain_id
        self._parser_file = parser_file
        self._changed = changed
        self._desk = Desk(database, "parser")
        self._asks = desk or self._desk
        self._runner: Runner | None = None
        self._queue: deque[_Work] = deque()
        self._in_memory = 0
        self._flying: set[Due] = set()
        """In the queue, with a parser, or waiting to be written."""
        self._results: list[Parsed] = []
        self._more = asyncio.Event()
        self._found = asyncio.Event()
        self._saved = asyncio.Event()
        self._look_now = asyncio.Event()
        self._left = True
        """There may be pages in the archive that are due."""
        self._looking = self._announced = False
        self._tasks: list[asyncio.Task[None]] = []
        self._feeding: asyncio.Task[None] | None = None
        self._closed = False
        self._told: set[str] = set()
        self.done = Extracted()
        self.trouble: str | None = None
        """A fault of ours that ended parsing; the pages stay due."""

    # For the crawl ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for what is due. Before: on the running event loop."""
        self._feeding = asyncio.create_task(self._feed(), name="extraction")
        self._feeding.add_done_callback(self._watch)

    def offer(self, page: Due, exchange: Exchange) -> None:
        """A page was committed that a parser is for. Returns at once.

        If there is no room, the page is parsed later, from the archive; so is one that was not modified, if it is due at all.
        """
        result = exchange.result
        size = len(result.body)
        if self._closed or result.outcome is Outcome.NOT_MODIFIED or self._in_memory + size > self._settings.buffer:
            self._left = True
            return
        headers = result.headers
        document = Document(exchange.url, result.body, headers.get("content-type"), headers, exchange.fetched_at)
        self._in_memory += size
        self._add(_Work(page, document, size))

    @property
    def waiting(self) -> int:
        """Pages that wait for a parser in memory, or are being parsed."""
        return len(self._flying)

    def finished(self) -> bool:
        """Whether nothing is due any more that this process would parse; if not, it hurries to see."""
        if self._closed or self.trouble is not None:
            return True
        if self._left:
            self._look_now.set()
        return not (self._flying or self._left or self._looking)

    async def close(self) -> None:
        """Stop. After: no process is left; what was parsed is written, if the database answers; the rest is due."""
        self._closed = True
        self._queue.clear()
        tasks = [*self._tasks, *([self._feeding] if self._feeding else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._runner is not None:
            await self._runner.aclose()
        with suppress(Away, TimeoutError):
            await asyncio.wait_for(self._save(), CLOSE)
        self._desk.give_up()
        await asyncio.to_thread(self._desk.close)

    # Taking pages -----------------------------------------------------------------------------------------------------

    def _add(self, work: _Work) -> None:
        self._announced = False
        self._flying.add(work.page)
        self._queue.append(work)
        self._more.set()
        if not self._tasks:
            count = self._settings.processes
            workers = [asyncio.create_task(self._parse_all(), name=f"parser {number}") for number in range(count)]
            self._tasks = [*workers, asyncio.create_task(self._save_all(), name="items")]
            for task in self._tasks:
                task.add_done_callback(self._watch)

    async def _feed(self) -> None:
        """Take from the archive what is due, whenever there is nothing in memory."""
        while True:
            if not self._queue:
                self._looking, self._left = True, False  # before: a page may be left over while we look
                taken = await self._take()
                self._looking, self._left = False, self._left or taken > 0
                if not self._left and not self._flying and not self._announced:
                    self._announced = True
                    self._changed()
            self._look_now.clear()
            await heard(self._look_now, LOOK)

    async def _take(self) -> int:
        """Put pages that are due into the queue; how many."""
        folders = await asyncio.to_thread(self._folders)
        if not folders or not await self._asks.call(items.any_due, folders, self._job_id):
            return 0
        known = list((await self._ready()).registry.sources)
        taken = 0
        for folder in folders:
            own = self._worker in (None, folder)
            found = await self._desk.call(
                items.due,
                folder,
                parsers=known,
                age=0.0 if own else OTHERS,
                limit=CHUNK + len(self._flying),
                job_id=self._job_id,
                domain_id=self._domain_id,
            )
            new = [page for page in found if page not in self._flying]
            for page in new:
                self._add(_Work(page))
            taken += len(new)
            if taken >= CHUNK:
                break
        return taken

    def _folders(self) -> list[str]:
        """Of the archive on this machine, our own first."""
        try:
            names = sorted(path.name for path in self._archive.iterdir() if path.is_dir())
        except OSError:
            return []
        return sorted(names, key=lambda name: name != self._worker)

    async def _ready(self) -> Runner:
        if self._runner is None:
            settings = self._settings
            registry = await asyncio.to_thread(scan, settings.folder, self._parser_file)
            if self._runner is None:
                self._runner = Runner(
                    registry,
                    processes=settings.processes,
                    seconds=settings.timeout.total_seconds(),
                    memory=settings.memory,
                )
        return self._runner

    # Parsing ----------------------------------------------------------------------------------------------------------

    async def _parse_all(self) -> None:
        while True:
            while not self._queue:
                self._more.clear()
                await self._more.wait()
            work = self._queue.popleft()
            if not self._queue and self._left:
                self._look_now.set()
            try:
                result = await self._parse(work)
            finally:
                self._in_memory -= work.size
            if result is None:
                self._let_go(work.page)
            else:
                self._results.append(result)
                self._found.set()
            while len(self._results) >= MOST_UNSAVED:
                self._saved.clear()
                await self._saved.wait()

    async def _parse(self, work: _Work) -> Parsed | None:
        """The result of a page; None: it stays due."""
        page, parser = work.page, work.page.key.parser
        runner = await self._ready()
        document = work.document
        try:
            if document is None:
                document = await asyncio.to_thread(read, self._archive, page)
        except HoldfastError as problem:
            return Parsed(page, "", None, error=str(problem), final=True)
        except OSError as problem:
            return Parsed(page, "", None, error=f"The archive cannot be read: {problem.strerror}.")
        try:
            found = await runner.parse(parser, document)
        except OSError as problem:
            self._tell(f"no process for a parser can be started: {problem}")
            self._left = True
            await asyncio.sleep(NO_PROCESS)
            return None
        except RuntimeError:  # closed meanwhile
            return None
        if isinstance(found, ParseFailed):
            if found.kind is FailureKind.UNKNOWN_PARSER:
                self._tell(f"pages wait for a parser that is not known here: {found.reason}")
                return None
            return Parsed(page, document.url, None, error=said(found), final=found.kind not in _PASSING)
        kept = found.extracted.page_items()
        if (problem_text := over_limits(kept, self._settings)) is not None:
            return Parsed(page, document.url, None, error=f"The parser {parser!r} {problem_text}", final=True)
        return Parsed(page, document.url, found, kept)

    # Writing ----------------------------------------------------------------------------------------------------------

    async def _save_all(self) -> None:
        while True:
            await self._found.wait()
            await asyncio.sleep(GATHER)
            self._found.clear()
            await self._save()

    async def _save(self) -> None:
        while self._results:
            chunk = self._results[:CHUNK]
            await self._desk.call(items.save, chunk, attempts=self._settings.attempts)
            del self._results[: len(chunk)]
            for one in chunk:
                self._count(one)
                self._let_go(one.page)
            self._saved.set()

    def _count(self, one: Parsed) -> None:
        if one.done is not None:
            self.done.pages += 1
            self.done.items += len(one.items)
            return
        self._left = self._left or not one.final  # it may have another attempt
        if one.final:
            self.done.failed += 1
        self.done.error = self.done.error or one.error
        log.info("a page was not parsed: %s", one.error)

    def _let_go(self, page: Due) -> None:
        self._flying.discard(page)
        if not self._flying:
            self._look_now.set()  # the feeder says whether that was all

    def _tell(self, what: str) -> None:
        if what not in self._told:
            self._told.add(what)
            log.warning("%s", what)

    def _watch(self, task: asyncio.Task[None]) -> None:
        """Parsing that ends by a fault of ours costs no crawl: what is due stays due."""
        if task.cancelled() or (problem := task.exception()) is None or isinstance(problem, Away):
            return
        log.error("parsing ended", exc_info=problem)
        self.trouble = f"parsing ended by a fault of ours: {problem}"
        self._changed()


def read(archive: Path, page: Due) -> Document:
    """A page as it lies in the archive. Raises NotFound and ArchiveDamaged."""
    stored = reading.read(archive, page.ref)
    return Document(stored.url, stored.body, stored.headers.get("content-type"), stored.headers, stored.fetched_at)


def said(failed: ParseFailed) -> str:
    """Why a parser found nothing, in one line."""
    return f"The parser {failed.parser!r} failed ({failed.kind.replace('_', ' ')}): {failed.reason}"


def over_limits(found: list[dict[str, object]], settings: Parsing) -> str | None:
    """What is too much about the items of a page; None: nothing."""
    if len(found) > settings.items_per_page:
        return f"found {len(found):,} items; parsing.items_per_page allows {settings.items_per_page:,}."
    for place, item in enumerate(found):
        size = len(json.dumps(item, ensure_ascii=False).encode())
        if size > settings.item_bytes:
            return f"found an item (number {place + 1}) of {size:,} bytes; parsing.item_bytes allows {settings.item_bytes:,}."
    return None


async def parse_due(
    extraction: Extraction, watch: Callable[[Extracted], None] = lambda _: None, every: float = 0.2
) -> Extracted:
    """Parse all that is due, then stop. Before: it was not started. After: it is closed."""
    extraction.start()
    try:
        until_seen = time.monotonic()
        while not extraction.finished():
            await asyncio.sleep(0.02 if time.monotonic() - until_seen < 1 else every)
            watch(extraction.done)
    finally:
        await extraction.close()
    return extraction.done
