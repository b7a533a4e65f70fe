"""Runs parsers on crawled pages, in parallel to the crawl.

Owns a worker's parser processes and the queue of pages that wait for them in memory. The rule: a crawl never waits for a parser. A page
is offered after it is committed, and is due in the database until its items are saved; so a page that is not parsed from memory (too many
bytes, a killed process) is parsed from the archive later. A page that a parser cannot parse affects no other page.
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

from holdfast.archive.machine_id import machine_id
from holdfast.archive.reader import ArchiveReader
from holdfast.archive.warc import Exchange
from holdfast.archive.writer import safe_name
from holdfast.crawler import site_blocks
from holdfast.crawler.db_thread import DbThread, StoppedWaiting
from holdfast.crawler.document_rows import document_row, text_body
from holdfast.db import documents, items
from holdfast.db.connection import Database
from holdfast.db.items import Due, Parsed
from holdfast.errors import ArchiveUnavailable, HoldfastError, SegmentMissing
from holdfast.model.job import MAIN_TEXT, MARKDOWN
from holdfast.model.outcome import Outcome
from holdfast.model.parse_result import Document, FailureKind, ParseDone, ParseFailed
from holdfast.parse import risk_check
from holdfast.parse.plugin_pool import PluginPool
from holdfast.parse.plugin_registry import discover
from holdfast.settings import Parsing
from holdfast.telemetry.clock import wait_for_event

log: Final = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
"""Seconds between two polls for pages that are due in the archive, while the queue is empty."""
OTHER_WORKER_AGE: Final = 30.0
"""Seconds for which a page must have been due before a worker other than the one that fetched it parses it."""
CHUNK_PAGES: Final = 200
"""Pages that are taken from the archive, or saved, at once."""
MAX_UNSAVED: Final = 500
"""Maximum number of unsaved results; parsing pauses at that number."""
SAVE_DELAY: Final = 0.05
"""Seconds for which results are collected before they are saved."""
PROCESS_RETRY_SECONDS: Final = 5.0
"""Seconds to wait after a parser process could not be started."""
STORE_RETRY_SECONDS: Final = 2.0
"""Seconds to wait after the object store could not be used."""
DECIDE_SECONDS: Final = 60.0
"""Seconds between two looks, while pages are parsed, at which blocks are left out of documents."""
CLOSE_TIMEOUT: Final = 5.0
"""Seconds that saving the last results may take at the end."""
_RETRYABLE: Final = frozenset({FailureKind.TIMED_OUT, FailureKind.DIED, FailureKind.OUT_OF_MEMORY})
"""Failures that another attempt may avoid."""


@dataclass(slots=True)
class ExtractionCounts:
    """Counts of parsed pages, found items and failures so far."""

    pages: int = 0
    items: int = 0
    failed: int = 0
    error: str | None = None
    """Message of the first failure."""


@dataclass(slots=True)
class _PendingPage:
    page: Due
    document: Document | None = None
    """None: the page is read from the archive."""
    size: int = 0


class Extraction:
    """Parses the pages of one process on one event loop. No parser process is started before the first page is due."""

    def __init__(
        self,
        database: Database,
        archive: ArchiveReader,
        settings: Parsing,
        *,
        worker: str | None,
        job_id: int | None = None,
        domain_id: int | None = None,
        parser_file: Path | None = None,
        db: DbThread | None = None,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        """Parse pages of one worker and those of others that have been due for long; `worker` None: all pages of this archive.

        With `job_id` or `domain_id` only their pages are taken from the archive. `db` is used to check whether anything is due, so that a
        worker without parsers needs no extra connection. `on_idle` is called when nothing is due any more.
        """
        self._archive = archive
        self._settings = settings
        self._worker = None if worker is None else safe_name(worker)
        self._job_id, self._domain_id = job_id, domain_id
        self._parser_file = parser_file
        self._machine = machine_key(archive)
        self._on_idle = on_idle
        self._db = DbThread(database, "parser")
        self._lookup_db = db or self._db
        self._runner: PluginPool | None = None
        self._queue: deque[_PendingPage] = deque()
        self._in_memory = 0
        self._in_progress: set[Due] = set()
        """Pages in the queue, being parsed, or waiting to be saved."""
        self._results: list[Parsed] = []
        self._queued = asyncio.Event()
        self._has_results = asyncio.Event()
        self._saved = asyncio.Event()
        self._poll_now = asyncio.Event()
        self._may_be_due = True
        """Whether pages in the archive may be due."""
        self._may_be_undecided = True
        """Whether it may not be decided yet which blocks are left out of some documents."""
        self._decided_at = 0.0
        self._decided_last = 0
        """The id of the domain for which that was decided last."""
        self._polling = self._idle_reported = False
        self._tasks: list[asyncio.Task[None]] = []
        self._feed_task: asyncio.Task[None] | None = None
        self._closed = False
        self._warned: set[str] = set()
        self.counts = ExtractionCounts()
        self.problem: str | None = None
        """An internal error that ended parsing; the pages stay due."""

    # For the crawl ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start polling for pages that are due. Before: called on the running event loop."""
        self._feed_task = asyncio.create_task(self._feed(), name="extraction")
        self._feed_task.add_done_callback(self._on_task_done)

    def offer(self, page: Due, exchange: Exchange) -> None:
        """Offer a committed page to its parser. Returns at once.

        If the buffer is full, the page is parsed later, from the archive; so is one that was not modified, if it is due at all.
        """
        result = exchange.result
        size = len(result.body)
        if self._closed or result.outcome is Outcome.NOT_MODIFIED or self._in_memory + size > self._settings.buffer:
            self._may_be_due = True
            return
        headers = result.headers
        document = Document(exchange.url, result.body, headers.get("content-type"), headers, exchange.fetched_at)
        self._in_memory += size
        self._add(_PendingPage(page, document, size))

    def finished(self) -> bool:
        """Whether no page is due that this process would parse; if one may be, poll at once."""
        if self._closed or self.problem is not None:
            return True
        if self._may_be_due:
            self._poll_now.set()
        return not (self._in_progress or self._may_be_due or self._polling)

    async def close(self) -> None:
        """Stop. After: no parser process is left; results are saved, if the database answers; the other pages stay due."""
        self._closed = True
        self._queue.clear()
        tasks = [*self._tasks, *([self._feed_task] if self._feed_task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._runner is not None:
            await self._runner.aclose()
        with suppress(StoppedWaiting, TimeoutError):
            await asyncio.wait_for(self._save(), CLOSE_TIMEOUT)
        self._db.give_up()
        await asyncio.to_thread(self._db.close)

    # Taking pages -----------------------------------------------------------------------------------------------------

    def _add(self, pending: _PendingPage) -> None:
        self._idle_reported = False
        self._in_progress.add(pending.page)
        self._queue.append(pending)
        self._queued.set()
        if not self._tasks:
            count = self._settings.processes
            workers = [asyncio.create_task(self._parse_all(), name=f"parser {number}") for number in range(count)]
            self._tasks = [*workers, asyncio.create_task(self._save_all(), name="items")]
            for task in self._tasks:
                task.add_done_callback(self._on_task_done)

    async def _feed(self) -> None:
        """Queue pages that are due in the archive whenever the queue is empty."""
        while True:
            if not self._queue:
                self._polling, self._may_be_due = True, False  # first: a page may become due during the poll
                taken = await self._take() or await self._decide_blocks()
                self._polling, self._may_be_due = False, self._may_be_due or taken > 0
                if not self._may_be_due and not self._in_progress and not self._idle_reported:
                    self._idle_reported = True
                    self._on_idle()
            self._poll_now.clear()
            await wait_for_event(self._poll_now, POLL_SECONDS)

    async def _take(self) -> int:
        """Queue pages that are due in the archive; return how many."""
        if self._archive.store is not None:
            folders = await self._lookup_db.call(items.due_folders)
            folders.sort(key=lambda name: name != self._worker)
        else:
            folders = await asyncio.to_thread(self._folders)
        if not folders or not await self._lookup_db.call(items.any_due, folders, self._job_id):
            return 0
        known = list((await self._load_runner()).registry.sources)
        taken = 0
        for folder in folders:
            own = self._worker in (None, folder)
            found = await self._db.call(
                items.due,
                folder,
                parsers=known,
                age=0.0 if own else OTHER_WORKER_AGE,
                limit=CHUNK_PAGES + len(self._in_progress),
                job_id=self._job_id,
                domain_id=self._domain_id,
                machine=self._machine,
            )
            new = [page for page in found if page not in self._in_progress]
            for page in new:
                self._add(_PendingPage(page))
            taken += len(new)
            if taken >= CHUNK_PAGES:
                break
        return taken

    async def _decide_blocks(self) -> int:
        """Decide which blocks are left out of documents that were saved lately; return 0 if there is nothing to wait for after it."""
        now = time.monotonic()
        wait = bool(self._in_progress) and now < self._decided_at + DECIDE_SECONDS
        if wait or not self._may_be_undecided:
            return 0
        self._may_be_undecided, self._decided_at = False, now
        if not await self._lookup_db.call(documents.undecided_domains, limit=1):
            return 0
        self._decided_last = await self._db.call(site_blocks.decide_some, self._decided_last)
        self._may_be_undecided = True  # until none is found
        return 0 if self._in_progress else self._decided_last

    def _folders(self) -> list[str]:
        """Return the archive folders on this machine, this worker's own first."""
        try:
            folder = self._archive.folder
            names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder is not None else []
        except OSError:
            return []
        return sorted(names, key=lambda name: name != self._worker)

    async def _load_runner(self) -> PluginPool:
        if self._runner is None:
            settings = self._settings
            registry = await asyncio.to_thread(discover, settings.folder, self._parser_file)
            if self._runner is None:
                self._runner = PluginPool(
                    registry,
                    processes=settings.processes,
                    timeout=settings.timeout.total_seconds(),
                    memory_limit=settings.memory,
                )
        return self._runner

    # Parsing ----------------------------------------------------------------------------------------------------------

    async def _parse_all(self) -> None:
        while True:
            while not self._queue:
                self._queued.clear()
                await self._queued.wait()
            pending = self._queue.popleft()
            if not self._queue and self._may_be_due:
                self._poll_now.set()
            try:
                result = await self._parse(pending)
            finally:
                self._in_memory -= pending.size
            if result is None:
                self._release(pending.page)
            else:
                self._results.append(result)
                self._has_results.set()
            while len(self._results) >= MAX_UNSAVED:
                self._saved.clear()
                await self._saved.wait()

    async def _parse(self, pending: _PendingPage) -> Parsed | None:
        """Parse a page and return its result; None: it stays due."""
        page, parser = pending.page, pending.page.key.parser
        runner = await self._load_runner()
        document = pending.document
        try:
            if document is None:
                document = await asyncio.to_thread(read_archived, self._archive, page)
        except ArchiveUnavailable as problem:
            self._warn_once(f"pages wait for their parsers: {problem}")
            await asyncio.sleep(STORE_RETRY_SECONDS)
            self._may_be_due = True
            return None
        except SegmentMissing as problem:
            if not problem.lost and problem.machine is not None:  # it is on its way into the object store
                return None
            return Parsed(page, "", None, error=str(problem), final=True)
        except HoldfastError as problem:
            return Parsed(page, "", None, error=str(problem), final=True)
        except OSError as problem:
            return Parsed(page, "", None, error=f"The archive cannot be read: {problem.strerror}.")
        try:
            found = await runner.parse(parser, document)
        except OSError as problem:
            self._warn_once(f"no process for a parser can be started: {problem}")
            self._may_be_due = True
            await asyncio.sleep(PROCESS_RETRY_SECONDS)
            return None
        except RuntimeError:  # closed meanwhile
            return None
        if isinstance(found, ParseFailed):
            if found.kind is FailureKind.UNKNOWN_PARSER:
                self._warn_once(f"pages wait for a parser that is not known here: {found.reason}")
                return None
            final = found.kind not in _RETRYABLE or _is_hopeless(parser, document.body)
            return Parsed(page, document.url, None, error=failure_text(found), final=final)
        return parsed_page(page, document.url, found, self._settings)

    # Writing ----------------------------------------------------------------------------------------------------------

    async def _save_all(self) -> None:
        while True:
            await self._has_results.wait()
            await asyncio.sleep(SAVE_DELAY)
            self._has_results.clear()
            await self._save()

    async def _save(self) -> None:
        while self._results:
            chunk = self._results[:CHUNK_PAGES]
            await self._db.call(items.save, chunk, attempts=self._settings.attempts)
            del self._results[: len(chunk)]
            for one in chunk:
                self._count(one)
                self._release(one.page)
            self._saved.set()

    def _count(self, one: Parsed) -> None:
        if one.done is not None:
            self.counts.pages += 1
            self._may_be_undecided = self._may_be_undecided or one.document is not None
            self.counts.items += len(one.items)
            return
        self._may_be_due = self._may_be_due or not one.final  # it may be retried
        if one.final:
            self.counts.failed += 1
        self.counts.error = self.counts.error or one.error
        log.info("a page was not parsed: %s", one.error)

    def _release(self, page: Due) -> None:
        self._in_progress.discard(page)
        if not self._in_progress:
            self._poll_now.set()  # the poll decides whether that was all

    def _warn_once(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s", what)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Record an internal error that ended a task. It does not stop the crawl: the pages stay due."""
        if task.cancelled() or (problem := task.exception()) is None or isinstance(problem, StoppedWaiting):
            return
        log.error("parsing ended", exc_info=problem)
        self.problem = f"parsing ended with an internal error: {problem}"
        self._on_idle()


def machine_key(archive: ArchiveReader) -> str | None:
    """The identity of this machine where others may have pages that it cannot read yet: with an object store; else None."""
    if archive.store is None:
        return None
    try:
        return machine_id(archive.folder) if archive.folder is not None else ""
    except (HoldfastError, OSError):
        return ""


def _is_hopeless(parser: str, body: bytes) -> bool:
    """Return whether a built-in parser that a page has stopped would be stopped again: pages that look hostile may cost a whole timeout."""
    return parser in (MARKDOWN, MAIN_TEXT) and risk_check.assess(body) is risk_check.Risk.SUSPECT


def read_archived(archive: ArchiveReader, page: Due) -> Document:
    """Read a page from the archive. Raises SegmentMissing, ArchiveUnavailable, ArchiveDamaged, OSError."""
    stored = archive.read(page.ref)
    return Document(stored.url, stored.body, stored.headers.get("content-type"), stored.headers, stored.fetched_at)


def parsed_page(page: Due, url: str, done: ParseDone, settings: Parsing, *, again: bool = False) -> Parsed:
    """Return what is stored of a page that was parsed: its items, or its document and text."""
    if done.parser in (MARKDOWN, MAIN_TEXT):
        data = done.extracted.data
        document = document_row(data) if done.parser == MARKDOWN else None
        return Parsed(page, url, done, document=document, text=text_body(data), again=again)
    kept = done.extracted.page_items()
    if (problem_text := over_limits(kept, settings)) is not None:
        return Parsed(page, url, None, error=f"The parser {done.parser!r} {problem_text}", final=True, again=again)
    return Parsed(page, url, done, kept, again=again)


def failure_text(failed: ParseFailed) -> str:
    """Return why a parser failed, in one line."""
    return f"The parser {failed.parser!r} failed ({failed.kind.replace('_', ' ')}): {failed.reason}"


def over_limits(found: list[dict[str, object]], settings: Parsing) -> str | None:
    """Return which limit the items of a page exceed; None: none."""
    if len(found) > settings.items_per_page:
        return f"found {len(found):,} items; parsing.items_per_page allows {settings.items_per_page:,}."
    for place, item in enumerate(found):
        size = len(json.dumps(item, ensure_ascii=False).encode())
        if size > settings.item_bytes:
            return f"found an item (number {place + 1}) of {size:,} bytes; parsing.item_bytes allows {settings.item_bytes:,}."
    return None


async def parse_due(
    extraction: Extraction, watch: Callable[[ExtractionCounts], None] = lambda _: None, every: float = 0.2
) -> ExtractionCounts:
    """Parse all pages that are due, then stop. Before: `extraction` was not started. After: it is closed."""
    extraction.start()
    try:
        until_seen = time.monotonic()
        while not extraction.finished():
            await asyncio.sleep(0.02 if time.monotonic() - until_seen < 1 else every)
            watch(extraction.counts)
    finally:
        await extraction.close()
    return extraction.counts
