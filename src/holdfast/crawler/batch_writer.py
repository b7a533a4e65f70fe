"""The batch writer: collects the results of a worker process and commits them in batches, on a thread of its own.

The rule: bytes first, row second, all or nothing. One batch is being committed while the next one fills; when both are full,
fetching waits. So the work that a crash can lose is bounded, and so is memory while the database is unavailable. A batch that the
database rejects is bisected until the row that it refuses stands alone; what a page led to stays with that page, so each half is a
batch that may be committed by itself.
"""

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Final, Protocol

import zstandard

from holdfast import failpoints
from holdfast.archive.image_store import ImageFile, ImageStore
from holdfast.archive.warc import Exchange
from holdfast.archive.writer import ArchiveWriter
from holdfast.crawler.db_thread import DbThread, StoppedWaiting
from holdfast.crawler.leases import Leases, RunCounters
from holdfast.crawler.segment_uploader import SegmentUploader
from holdfast.db import archive_segments, commit
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.db.items import Due, PageKey
from holdfast.db.page_versions import VERSIONS
from holdfast.errors import HoldfastError, RolledBack, StoreError, StoreRestored, StoreUnavailable, Unsettled
from holdfast.model.activity import ProblemKind
from holdfast.model.commit_batch import CommitBatch, DiscoveredUrl, PolitenessClocks, UrlOutcome, VisitPart
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.proxy import ProxyPauses, ProxyUse
from holdfast.model.visit_report import NO_GROWTH, FrontierGrowth
from holdfast.settings import Flush
from holdfast.telemetry.clock import Clock

log: Final = logging.getLogger(__name__)

URGENT_COMMIT_INTERVAL: Final = 0.05
"""Seconds between two commits that idle visits request."""
MAX_UNFLUSHED_PAGES: Final = 10_000
"""With `flush.pages` = 0 a batch is committed only at the end of a visit; this limit bounds its memory."""
MAX_BATCH_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of the bodies and found URLs in a batch: large pages are committed sooner."""
FOUND_URL_BYTES: Final = 300
"""Bytes that a found URL costs in addition to its text."""
LINK_BYTES: Final = 200
"""Bytes that a recorded link costs, about."""
DISK_RETRY_SECONDS: Final = 2.0
OLD_SEGMENT_SECONDS: Final = 1.0
"""Seconds between two looks whether the open segment is old enough to be uploaded."""
LAST_UPLOADS_SECONDS: Final = 10.0
"""Seconds that the last uploads may take at the end of a worker."""
OUTAGE_SECONDS: Final = 2.0
"""Seconds after which a database that does not answer is a reason to wait."""
SLOW_COMMIT_SECONDS: Final = 2.0
"""Commits are slow if half of those of the last minute take longer."""
COMMIT_WINDOW: Final = 60.0
_FEWEST_COMMITS: Final = 3


class ClaimHolder(Protocol):
    """The holder of a claim: a visit, as the batch writer sees it."""

    domain_id: int
    epoch: int
    for_tasks: bool
    keeps_status: bool
    """Its results do not change the status of the domain."""

    def clocks(self) -> PolitenessClocks:
        """Return its rate limits and circuit breaker at this moment."""
        ...

    @property
    def streak(self) -> int:
        """Consecutive refusals and failures to reach the server."""
        ...

    @property
    def consecutive_errors(self) -> int:
        """Consecutive errors of every kind."""
        ...

    def on_committed(self, outcomes: Sequence[UrlOutcome], growth: FrontierGrowth, *, clocks_saved: bool) -> None:
        """Called when these outcomes are committed. `clocks_saved`: so are the clocks as of the last `save_clocks`."""
        ...

    def lose_claim(self) -> None:
        """Called when the claim belongs to another worker."""
        ...


@dataclass(frozen=True, slots=True)
class WriteProblem:
    """A reason why commits cannot succeed at this moment, for the operator."""

    what: str
    """What cannot be written."""
    why: str
    since: datetime
    kind: ProblemKind = ProblemKind.ARCHIVE

    @property
    def text(self) -> str:
        """A sentence without its end."""
        return f"{self.what} since {self.since:%Y-%m-%d %H:%M:%S} UTC: {self.why}"


@dataclass(slots=True)
class _OpenPart:
    holder: ClaimHolder
    outcomes: list[UrlOutcome] = field(default_factory=list)
    ended_at: list[float] = field(default_factory=list)
    found: list[DiscoveredUrl] = field(default_factory=list)
    uses: list[ProxyUse] = field(default_factory=list)
    clocks_saved: bool = False
    size: int = 0


@dataclass(slots=True)
class _OpenBatch:
    """The batch that is being filled."""

    parts: dict[int, _OpenPart] = field(default_factory=dict)
    exchanges: list[tuple[UrlOutcome, Exchange]] = field(default_factory=list)
    images: list[tuple[UrlOutcome, ImageFile]] = field(default_factory=list)
    count: int = 0
    size: int = 0
    """Bytes of the bodies and of the found URLs."""
    since: float = 0.0


class BatchWriter:
    """Fills batches on the event loop and commits them on a thread."""

    def __init__(
        self,
        database: Database,
        leases: Leases,
        clock: Clock,
        *,
        worker: str,
        run_id: int,
        lease: timedelta,
        flush: Flush,
        defaults: NewDomains,
        proxy_pauses: ProxyPauses,
        versions: int = VERSIONS,
        near_distance: int = 0,
        archive: Callable[[Callable[[str], None] | None], ArchiveWriter],
        uploader: SegmentUploader | None = None,
        image_store: Callable[[], ImageStore] | None = None,
        counters: RunCounters | None = None,
        check_schema: Callable[[Connection], None] = lambda _connection: None,
        offer_page: Callable[[Due, Exchange], None] = lambda _page, _exchange: None,
        report: Callable[[Sequence[UrlOutcome]], None] | None = None,
    ) -> None:
        """`archive` opens the archive; its argument is called with each new segment. `uploader`: there is an object store.
        `check_schema` raises SchemaMismatch if the database has another schema now; `offer_page` is called with each committed page that
        has a parser; `report` with committed outcomes, on the event loop."""
        self._database = database
        self._db = DbThread(database, "batch writer")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batch-writer")
        self._leases = leases
        self._check_schema = check_schema
        self._offer_page = offer_page
        self._clock = clock
        self._worker = worker
        self._run_id = run_id
        self._lease = lease
        self._flush = flush
        self._limit = flush.pages or MAX_UNFLUSHED_PAGES
        self._defaults = defaults
        self._proxy_pauses = proxy_pauses
        self._versions = versions
        self._near_distance = near_distance
        self._open_archive = archive
        self._uploader = uploader
        self._old_segments: asyncio.Task[None] | None = None
        self._open_image_store = image_store
        self._image_store: ImageStore | None = None
        self._counters = counters or RunCounters()
        self._report = report
        self._segments: ArchiveWriter | None = None
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._open_batch = _OpenBatch()
        self._committing = False
        self._urgent = False
        self._next_urgent_commit = 0.0
        """Earliest time of the next commit that was requested by `commit_soon`."""
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._stop = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._pause: WriteProblem | None = None
        """Why nothing is fetched at this moment, though it could be written."""
        self._problem: WriteProblem | None = None
        self._durations: deque[tuple[float, float]] = deque(maxlen=1_000)
        """Of the last commits: when they ended, and their seconds."""
        self._commit_began: float | None = None

    # On the event loop ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the commit loop. Before: called on the running event loop."""
        self._task = asyncio.create_task(self._run(), name="batch writer")
        if self._uploader is not None:
            self._uploader.start()
            self._old_segments = asyncio.create_task(self._close_old_segments(), name="old segments")

    def on_failure(self, failed: Callable[[str], None]) -> None:
        """Call `failed` with the reason if the commit loop ends with an internal error."""

        def on_done(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (problem := task.exception()) is not None:
                if isinstance(problem, StoreRestored):
                    failed(str(problem))
                    return
                log.error("commits ended", exc_info=problem)
                failed(f"Commits ended with an internal error: {problem}")

        if self._task is not None:
            self._task.add_done_callback(on_done)

    def add(
        self,
        holder: ClaimHolder,
        outcome: UrlOutcome,
        found: Sequence[DiscoveredUrl] = (),
        exchange: Exchange | None = None,
        image: ImageFile | None = None,
    ) -> None:
        """Add the outcome of a URL to the open batch. After: once it is committed, `holder.on_committed` is called."""
        part = self._part_of(holder)
        part.outcomes.append(outcome)
        part.ended_at.append(self._clock.now())
        part.found.extend(found)
        size = sum(len(url.url) + FOUND_URL_BYTES for url in found)
        if exchange is not None:
            self._open_batch.exchanges.append((outcome, exchange))
            size += len(exchange.result.body)
        elif outcome.page is not None and outcome.page.text is not None:
            size += len(outcome.page.text)
        if image is not None:
            self._open_batch.images.append((outcome, image))
            size += len(image.body)
        if outcome.link_facts is not None and outcome.link_facts.page is not None:
            size += LINK_BYTES * len(outcome.link_facts.page.links)
        part.size += size
        self._open_batch.size += size
        self._open_batch.count += 1
        if self._is_full(self._open_batch):
            self._room.clear()
            self._changed.set()

    @property
    def problem(self) -> WriteProblem | None:
        """Why nothing is fetched or committed at this moment; None: there is no known reason. Thread-safe."""
        if self._pause is not None or self._problem is not None:
            return self._pause or self._problem
        outage = self._db.outage
        if outage is None or outage.seconds < OUTAGE_SECONDS:
            return None
        return WriteProblem("the database cannot be written", outage.why, outage.since, ProblemKind.DATABASE)

    def slow_commits(self) -> float | None:
        """Seconds of the median commit of the last minute, if commits are slow and the database answers. Thread-safe."""
        if self._db.outage is not None:
            return None
        now, began = time.monotonic(), self._commit_began
        found = [seconds for ended, seconds in self._durations.copy() if now - ended < COMMIT_WINDOW]
        if began is not None and now - began > COMMIT_WINDOW / 2:
            return now - began
        middle = median(found) if len(found) >= _FEWEST_COMMITS else 0.0
        return middle if middle > SLOW_COMMIT_SECONDS else None

    def pause(self, why: WriteProblem) -> None:
        """Let no more requests start. After: what is fetched already is committed as usual."""
        self._pause = why
        self._room.clear()

    def resume(self) -> None:
        """End a pause."""
        self._pause = None
        if not self._is_full(self._open_batch):
            self._room.set()

    @property
    def is_full(self) -> bool:
        """Whether the open batch is full, or there is a pause; `wait_for_room` returns when neither is so."""
        return not self._room.is_set()

    def _is_full(self, open_batch: _OpenBatch) -> bool:
        return open_batch.count >= self._limit or open_batch.size >= MAX_BATCH_BYTES

    def save_clocks(self, holder: ClaimHolder) -> None:
        """Commit the holder's clocks with the open batch, even if it has no outcome there."""
        self._part_of(holder).clocks_saved = True

    def add_proxy_use(self, holder: ClaimHolder, use: ProxyUse) -> None:
        """Add the use of a proxy by a request that was not for a page."""
        self._part_of(holder).uses.append(use)

    def _part_of(self, holder: ClaimHolder) -> _OpenPart:
        open_batch = self._open_batch
        part = open_batch.parts.get(holder.domain_id)
        if part is not None and part.holder is not holder:
            self._discard_part(part)  # an earlier tenure's: the fence would refuse it
            part = None
        if part is None:
            part = open_batch.parts[holder.domain_id] = _OpenPart(holder)
            if len(open_batch.parts) == 1:
                open_batch.since = self._clock.now()
                self._changed.set()
        return part

    def discard(self, holder: ClaimHolder) -> None:
        """Remove the holder's outcomes from the open batch: its claim is lost, so the fence would refuse them."""
        part = self._open_batch.parts.get(holder.domain_id)
        if part is not None and part.holder is holder:
            self._discard_part(part)

    def _discard_part(self, part: _OpenPart) -> None:
        open_batch = self._open_batch
        del open_batch.parts[part.holder.domain_id]
        gone = {id(outcome) for outcome in part.outcomes}
        open_batch.exchanges = [pair for pair in open_batch.exchanges if id(pair[0]) not in gone]
        open_batch.images = [pair for pair in open_batch.images if id(pair[0]) not in gone]
        open_batch.count -= len(part.outcomes)
        open_batch.size -= part.size
        if not self._is_full(open_batch) and self._pause is None:
            self._room.set()

    async def wait_for_room(self) -> None:
        """Return when the open batch has room for another page."""
        await self._room.wait()

    def commit_soon(self) -> None:
        """Commit the open batch soon: a visit waits for it."""
        if self._open_batch.parts:
            self._urgent = True
            self._changed.set()

    async def close(self) -> None:
        """Stop. After: everything that was added is committed, or the database was unavailable and it is as if it had not been fetched."""
        if self._task is None:
            return
        self._stop.set()
        self._changed.set()
        await asyncio.wait({self._task})
        if self._old_segments is not None:
            self._old_segments.cancel()
        self._thread.shutdown(wait=True)
        self._db.close()
        if self._segments is not None:
            self._segments.close()
        if self._uploader is not None:
            await asyncio.to_thread(self._uploader.stop, LAST_UPLOADS_SECONDS)

    def give_up(self) -> None:
        """Stop waiting for a database that is unavailable."""
        self._stop.set()
        self._db.give_up()
        self._room.set()

    async def _close_old_segments(self) -> None:
        """Close the open segment when it is old, also while nothing is committed. The thread of commits does it."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(OLD_SEGMENT_SECONDS)
            await loop.run_in_executor(self._thread, self._close_old_segment)

    async def _run(self) -> None:
        while not (self._stop.is_set() and not self._open_batch.parts):
            await self._wait_until_due()
            if not self._open_batch.parts:
                continue
            open_batch, self._open_batch = self._open_batch, _OpenBatch()
            self._urgent = False
            if self._pause is None:
                self._room.set()
            try:
                await self._commit_open_batch(open_batch)
            except StoppedWaiting:
                return
            except StoreRestored as problem:
                void = open_batch.count + self._open_batch.count
                self._counters.fenced_writes += len(open_batch.parts)
                raise StoreRestored(
                    f"{problem} Refused: {void} results of {len(open_batch.parts)} domains."
                ) from problem
            self._next_urgent_commit = self._clock.now() + URGENT_COMMIT_INTERVAL

    async def _wait_until_due(self) -> None:
        while not self._stop.is_set():
            open_batch = self._open_batch
            left: float | None = None
            if open_batch.parts:
                due = [self._next_urgent_commit] if self._urgent else []
                if self._flush.pages:
                    due.append(open_batch.since + self._flush.seconds.total_seconds())
                left = min(due) - self._clock.now() if due else None
                if self._is_full(open_batch) or (left is not None and left <= 0):
                    return
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)

    async def _commit_open_batch(self, open_batch: _OpenBatch) -> None:
        loop = asyncio.get_running_loop()
        asked_at = self._clock.now()
        batch = self._build_batch(open_batch, asked_at)
        done = await loop.run_in_executor(self._thread, self._write_batch, batch, open_batch)
        kept = [part for domain_id, part in open_batch.parts.items() if domain_id not in done.refused]
        self._leases.renew(((part.holder.domain_id, part.holder.epoch) for part in kept), asked_at)
        if done.refused:
            log.warning("%d domains were refused at a commit: another worker holds them now", len(done.refused))
            self._counters.fenced_writes += len(done.refused)
        for part in open_batch.parts.values():
            if part.holder.domain_id in done.refused:
                part.holder.lose_claim()
            else:
                growth = done.growth.get(part.holder.domain_id, NO_GROWTH)
                self._counters.robots_denied += sum(map(_robots_denied, part.outcomes))
                part.holder.on_committed(part.outcomes, growth, clocks_saved=part.clocks_saved)
                if self._report is not None:
                    self._report(part.outcomes)
        self._offer_to_parsers(open_batch, done.refused)

    def _offer_to_parsers(self, open_batch: _OpenBatch, refused: set[int]) -> None:
        """Offer pages to their parsers. Before: they are committed. Pages of refused domains are not offered."""
        exchanges = {id(outcome): exchange for outcome, exchange in open_batch.exchanges if _has_parsers(outcome)}
        if not exchanges:
            return
        for domain_id, part in open_batch.parts.items():
            for outcome in part.outcomes if domain_id not in refused else ():
                page, exchange = outcome.page, exchanges.get(id(outcome))
                if exchange is None or page is None or page.archive is None:
                    continue
                for parser in page.parsers:
                    key = PageKey(domain_id, outcome.job_id, outcome.url_key, parser)
                    self._offer_page(Due(key, page.archive), exchange)

    def _build_batch(self, open_batch: _OpenBatch, now: float) -> CommitBatch:
        parts = []
        for domain_id, part in open_batch.parts.items():
            for outcome, ended_at in zip(part.outcomes, part.ended_at, strict=True):
                outcome.age = max(0.0, now - ended_at)
                if outcome.proxy is not None:
                    outcome.proxy.age = now - outcome.proxy.started
            for use in part.uses:
                use.age = now - use.started
            holder = part.holder
            parts.append(
                VisitPart(
                    domain_id,
                    holder.epoch,
                    part.outcomes,
                    part.found,
                    holder.clocks(),
                    holder.consecutive_errors,
                    None if holder.for_tasks else holder.streak,
                    for_tasks=holder.for_tasks,
                    keeps_status=holder.keeps_status,
                    other_uses=part.uses,
                )
            )
        return CommitBatch(self._run_id, parts, time.perf_counter())

    # In the thread ----------------------------------------------------------------------------------------------------

    def _write_batch(self, batch: CommitBatch, open_batch: _OpenBatch) -> commit.CommitResult:
        for part in batch.parts:
            for outcome in part.outcomes:
                if outcome.page is not None and outcome.page.text is not None:
                    outcome.page.text = self._compressor.compress(outcome.page.text)
                if outcome.link_facts is not None and outcome.link_facts.page is not None:
                    packed = json.dumps(outcome.link_facts.page.links, separators=(",", ":"))
                    outcome.link_facts.packed = self._compressor.compress(packed.encode())
        self._write_archive(open_batch.exchanges)
        self._write_images(open_batch.images)
        failpoints.reach("archive_written")
        begun = self._commit_began = time.monotonic()
        try:
            done = self._commit_or_split(batch)
        finally:
            self._commit_began = None
        ended = time.monotonic()
        self._durations.append((ended, ended - begun))
        self._counters.record_commit(ended - begun)
        return done

    def _commit_or_split(self, batch: CommitBatch) -> commit.CommitResult:
        try:
            return self._db.run(
                commit.commit,
                self._database.connect,
                worker=self._worker,
                batch=batch,
                lease=self._lease,
                defaults=self._defaults,
                proxy_pauses=self._proxy_pauses,
                versions=self._versions,
                near_distance=self._near_distance,
                give_up=self._db.is_closing,
            )
        except Unsettled as problem:
            raise StoppedWaiting(str(problem)) from problem
        except (RolledBack, StoreUnavailable):
            raise
        except StoreError as problem:
            # A statement that a newer schema refuses is no page's fault: SchemaMismatch ends the commits, and nothing is marked.
            self._db.run(self._check_schema)
            # One page that the database refuses must neither block the others nor be retried endlessly.
            log.error("a batch of %d parts was refused: %s", len(batch.parts), problem)  # noqa: TRY400 — no traceback
            halves = split_batch(batch)
            if halves is None:
                mark_unstorable(batch, str(problem))
                halves = [batch]
            done = commit.CommitResult()
            for half in halves:
                part = self._commit_or_split(half)
                done.refused |= part.refused
                for domain_id, growth in part.growth.items():
                    done.growth[domain_id] = done.growth.get(domain_id, NO_GROWTH).plus(growth)
            return done

    def _write_archive(self, exchanges: Sequence[tuple[UrlOutcome, Exchange]]) -> None:
        """Write and sync the bytes before any row points to them. While the disk is full it retries: nothing is lost, nothing proceeds."""
        while exchanges:
            try:
                if not self._may_write_archive():
                    continue
                if self._segments is None:
                    self._segments = self._open_archive(None if self._uploader is None else self._announce_segment)
                before = self._segments.written
                refs = self._segments.append([exchange for _, exchange in exchanges])
                self._segments.sync()
            except OSError as problem:
                self._set_problem(
                    ProblemKind.ARCHIVE, "the archive cannot be written", problem.strerror or str(problem)
                )
                if self._stop.wait(DISK_RETRY_SECONDS):
                    raise StoppedWaiting("The archive cannot be written, and the worker was stopped.") from problem
            else:
                self._end_problem()
                if self._uploader is not None:
                    self._uploader.note_written(self._segments.written - before)
                    if not self._segments.is_open:
                        self._uploader.wake()
                for (outcome, _), ref in zip(exchanges, refs, strict=True):
                    if outcome.page is not None:
                        outcome.page.archive = ref
                return

    def _may_write_archive(self) -> bool:
        """Whether the archive may grow; while too much of it waits to be uploaded, wait a moment and return False."""
        why = None if self._uploader is None else self._uploader.why_full()
        if why is None:
            return True
        self._set_problem(ProblemKind.ARCHIVE, "the archive cannot grow", why)
        if self._stop.wait(DISK_RETRY_SECONDS):
            raise StoppedWaiting("Too much of the archive waits to be uploaded, and the worker was stopped.")
        return False

    def _announce_segment(self, segment: str) -> None:
        """Record a new segment before a row points into it, so that readers elsewhere know where it is."""
        assert self._uploader is not None  # noqa: S101 — it is called only with one
        self._db.run(archive_segments.opened, self._uploader.folder_id, self._uploader.machine, segment)

    def _close_old_segment(self) -> None:
        if self._segments is not None and self._segments.close_old() and self._uploader is not None:
            self._uploader.wake()

    def _set_problem(self, kind: ProblemKind, what: str, why: str) -> None:
        """Say why nothing is committed, and since when; the first time in the log, too."""
        if self._problem is None:
            log.error("%s: %s; fetching waits until this is over", what, why)
        since = datetime.now(UTC) if self._problem is None else self._problem.since
        self._problem = WriteProblem(what, why, since, kind)

    def _end_problem(self) -> None:
        """Say in the log that it is over. Before: it may be that there is none."""
        if self._problem is not None:
            seconds = (datetime.now(UTC) - self._problem.since).total_seconds()
            log.warning("over after %.0f s: %s; fetching goes on", seconds, self._problem.what)
        self._problem = None

    def _write_images(self, images: Sequence[tuple[UrlOutcome, ImageFile]]) -> None:
        """Store the files of images before any row points to them. While their store is unavailable it retries, and fetching waits."""
        while images:
            try:
                if self._image_store is None:
                    assert self._open_image_store is not None  # noqa: S101 — who adds images gives the store
                    self._image_store = self._open_image_store()
                keys = self._image_store.put_all([image for _, image in images])
                store_id = self._image_store.store_id()
            except (OSError, HoldfastError) as problem:
                self._set_problem(ProblemKind.IMAGES, "images cannot be stored", str(problem).removesuffix("."))
                if self._stop.wait(DISK_RETRY_SECONDS):
                    raise StoppedWaiting("Images cannot be stored, and the worker was stopped.") from problem
            else:
                self._end_problem()
                for (outcome, _), key in zip(images, keys, strict=True):
                    if outcome.image is not None:
                        outcome.image = replace(outcome.image, file=key, store_id=store_id)
                return


def _has_parsers(outcome: UrlOutcome) -> bool:
    return outcome.page is not None and bool(outcome.page.parsers)


def _robots_denied(outcome: UrlOutcome) -> bool:
    return outcome.outcome is Outcome.ROBOTS_DENIED and outcome.state is UrlState.DENIED


def split_batch(batch: CommitBatch) -> list[CommitBatch] | None:
    """Bisect a rejected batch to isolate the row that the database refuses; None if only one outcome is left."""
    parts = batch.parts
    if len(parts) > 1:
        middle = len(parts) // 2
        return [replace(batch, parts=parts[:middle]), replace(batch, parts=parts[middle:])]
    if not parts or len(parts[0].outcomes) <= 1:
        return None
    (part,) = parts
    middle = len(part.outcomes) // 2
    ends = ((0, middle), (middle, len(part.outcomes)))
    return [replace(batch, parts=[_part_of(part, start, end)]) for start, end in ends]


def _part_of(part: VisitPart, start: int, end: int) -> VisitPart:
    outcomes = part.outcomes[start:end]
    keys = {outcome.url_key for outcome in outcomes}
    # A URL whose parent is not in this part (there should be none) goes with the first half.
    others = {outcome.url_key for outcome in part.outcomes} - keys
    found = [url for url in part.found if url.parent_key in keys or (start == 0 and url.parent_key not in others)]
    return replace(part, outcomes=outcomes, found=found, other_uses=part.other_uses if start == 0 else [])


def mark_unstorable(batch: CommitBatch, why: str) -> None:
    """Replace the only outcome by a failure that can be stored. Raises StoreError if it is that failure already."""
    outcomes = batch.parts[0].outcomes if batch.parts else []
    if not outcomes or (
        outcomes[0].outcome is Outcome.BAD_RESPONSE and not batch.parts[0].found and outcomes[0].page is None
    ):
        raise StoreError(why)
    (outcome,) = outcomes
    outcome.outcome, outcome.state, outcome.reason = (
        Outcome.BAD_RESPONSE,
        UrlState.FAILED,
        f"cannot be stored: {why[:300]}",
    )
    outcome.page, outcome.retry_in, outcome.proxy = None, None, None
    outcome.sitemap, outcome.image, outcome.image_links, outcome.maybe_image = None, None, (), False
    outcome.link_facts = None
    batch.parts[0].found.clear()
    batch.parts[0].other_uses.clear()
