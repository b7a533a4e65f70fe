"""What a worker process has learnt since its last commit, and the thread that writes it down.

The rule: bytes first, row second, all or nothing. One batch is being committed while the next one fills; when both are full,
fetching waits. So what a crash can cost is bounded, and so is memory while the database is away.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import zstandard

from holdfast import failpoints
from holdfast.archive.segments import Segments
from holdfast.archive.warc import Exchange
from holdfast.engine.desk import Away, Desk
from holdfast.engine.halves import give_up_on, split
from holdfast.engine.lease import Leases
from holdfast.engine.tally import Tally
from holdfast.errors import RolledBack, StoreError, StoreUnavailable, Unsettled
from holdfast.model.batch import Batch, Clocks, FoundUrl, UrlOutcome, VisitPart
from holdfast.model.outcome import Outcome, UrlState
from holdfast.model.proxy import ProxyUse, Rests
from holdfast.model.work import NO_GROWTH, Growth
from holdfast.settings import Flush
from holdfast.store import commit
from holdfast.store.connect import Database
from holdfast.store.domains import NewDomains
from holdfast.store.items import Due, PageKey
from holdfast.telemetry.clock import Clock

log: Final = logging.getLogger(__name__)

URGENT_PAUSE: Final = 0.05
"""Seconds between two commits that visits without work ask for."""
MOST_UNFLUSHED: Final = 10_000
"""With `flush.pages` = 0 only a visit's end commits; this is where memory ends."""
MOST_BYTES: Final = 32 * 1024 * 1024
"""Of the bodies in a batch: long pages are committed sooner."""
FOUND_BYTES: Final = 300
"""What a found URL costs beside its text."""
DISK_PAUSE: Final = 2.0


class Holder(Protocol):
    """A visit, as the committer sees it."""

    domain_id: int
    epoch: int
    for_tasks: bool
    keeps_status: bool
    """What it learns changes no status."""

    def clocks(self) -> Clocks:
        """Its politeness at this moment."""
        ...

    @property
    def streak(self) -> int:
        """Refusals and failures to reach the server in a row."""
        ...

    @property
    def consecutive_errors(self) -> int:
        """Errors of every kind in a row."""
        ...

    def committed(self, outcomes: Sequence[UrlOutcome], growth: Growth, *, noted: bool) -> None:
        """These are in the store; `noted`: with the clocks as they were after a `note`."""
        ...

    def lose(self) -> None:
        """The claim is somebody else's."""
        ...


@dataclass(slots=True)
class _Part:
    holder: Holder
    outcomes: list[UrlOutcome] = field(default_factory=list)
    ended_at: list[float] = field(default_factory=list)
    found: list[FoundUrl] = field(default_factory=list)
    uses: list[ProxyUse] = field(default_factory=list)
    noted: bool = False
    size: int = 0


@dataclass(slots=True)
class _Filling:
    """The batch that is being filled."""

    parts: dict[int, _Part] = field(default_factory=dict)
    exchanges: list[tuple[UrlOutcome, Exchange]] = field(default_factory=list)
    count: int = 0
    size: int = 0
    """Bytes of the bodies, and of what was found."""
    since: float = 0.0


class Committer:
    """Fills batches on the event loop, commits them in a thread."""

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
        rests: Rests,
        archive: Callable[[], Segments],
        tally: Tally | None = None,
        to_parse: Callable[[Due, Exchange], None] = lambda _page, _exchange: None,
        report: Callable[[Sequence[UrlOutcome]], None] | None = None,
    ) -> None:
        """`to_parse` is given each committed page that a parser is for; `report` gets outcomes that were committed, on the event loop."""
        self._database = database
        self._desk = Desk(database, "committer")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="committer")
        self._leases = leases
        self._to_parse = to_parse
        self._clock = clock
        self._worker = worker
        self._run_id = run_id
        self._lease = lease
        self._flush = flush
        self._limit = flush.pages or MOST_UNFLUSHED
        self._defaults = defaults
        self._rests = rests
        self._open_archive = archive
        self._tally = tally or Tally()
        self._report = report
        self._segments: Segments | None = None
        self._squeeze = zstandard.ZstdCompressor(level=3)
        self._filling = _Filling()
        self._committing = False
        self._urgent = False
        self._hurry_from = 0.0
        """When the next commit for those who wait for one may begin."""
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._stop = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self.trouble: str | None = None
        """What keeps commits from succeeding at this moment, for people."""

    # On the event loop ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to commit. Before: on the running event loop."""
        self._task = asyncio.create_task(self._run(), name="committer")

    def when_failed(self, fall: Callable[[str], None]) -> None:
        """Call this if commits end by a fault of ours."""

        def look(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (problem := task.exception()) is not None:
                log.error("commits ended", exc_info=problem)
                fall(f"Commits ended by a fault of ours: {problem}")

        if self._task is not None:
            self._task.add_done_callback(look)

    def add(
        self, holder: Holder, outcome: UrlOutcome, found: Sequence[FoundUrl] = (), exchange: Exchange | None = None
    ) -> None:
        """Something came of a URL. It is in the store when `holder.committed` hears of it."""
        part = self._part(holder)
        part.outcomes.append(outcome)
        part.ended_at.append(self._clock.now())
        part.found.extend(found)
        size = sum(len(url.url) + FOUND_BYTES for url in found)
        if exchange is not None:
            self._filling.exchanges.append((outcome, exchange))
            size += len(exchange.result.body)
        elif outcome.page is not None and outcome.page.text is not None:
            size += len(outcome.page.text)
        part.size += size
        self._filling.size += size
        self._filling.count += 1
        if self._is_full(self._filling):
            self._room.clear()
            self._changed.set()

    @property
    def is_full(self) -> bool:
        """Another page has to wait for `room`."""
        return not self._room.is_set()

    def _is_full(self, filling: _Filling) -> bool:
        return filling.count >= self._limit or filling.size >= MOST_BYTES

    def note(self, holder: Holder) -> None:
        """Its clocks as they are now are to be kept, whatever else is."""
        self._part(holder).noted = True

    def used(self, holder: Holder, use: ProxyUse) -> None:
        """Something that is no page went through a proxy."""
        self._part(holder).uses.append(use)

    def _part(self, holder: Holder) -> _Part:
        filling = self._filling
        part = filling.parts.get(holder.domain_id)
        if part is not None and part.holder is not holder:
            self._discard(part)  # an earlier tenure's: the fence would refuse it
            part = None
        if part is None:
            part = filling.parts[holder.domain_id] = _Part(holder)
            if len(filling.parts) == 1:
                filling.since = self._clock.now()
                self._changed.set()
        return part

    def forget(self, holder: Holder) -> None:
        """Its claim is lost: what it has in the batch would be refused anyway."""
        part = self._filling.parts.get(holder.domain_id)
        if part is not None and part.holder is holder:
            self._discard(part)

    def _discard(self, part: _Part) -> None:
        filling = self._filling
        del filling.parts[part.holder.domain_id]
        gone = {id(outcome) for outcome in part.outcomes}
        filling.exchanges = [pair for pair in filling.exchanges if id(pair[0]) not in gone]
        filling.count -= len(part.outcomes)
        filling.size -= part.size
        if not self._is_full(filling):
            self._room.set()

    async def room(self) -> None:
        """Return when another page may be begun."""
        await self._room.wait()

    def hurry(self) -> None:
        """Somebody waits for what is in the batch: commit it soon."""
        if self._filling.parts:
            self._urgent = True
            self._changed.set()

    async def close(self) -> None:
        """After: everything that was added is committed, or the database was away and it is as if it had not been fetched."""
        if self._task is None:
            return
        self._stop.set()
        self._changed.set()
        await asyncio.wait({self._task})
        self._thread.shutdown(wait=True)
        self._desk.close()
        if self._segments is not None:
            self._segments.close()

    def give_up(self) -> None:
        """Do not wait for a database that is away."""
        self._stop.set()
        self._desk.give_up()
        self._room.set()

    async def _run(self) -> None:
        while not (self._stop.is_set() and not self._filling.parts):
            await self._wait_until_due()
            if not self._filling.parts:
                continue
            filling, self._filling = self._filling, _Filling()
            self._urgent = False
            self._room.set()
            try:
                await self._write(filling)
            except Away:
                return
            self._hurry_from = self._clock.now() + URGENT_PAUSE

    async def _wait_until_due(self) -> None:
        while not self._stop.is_set():
            filling = self._filling
            left: float | None = None
            if filling.parts:
                due = [self._hurry_from] if self._urgent else []
                if self._flush.pages:
                    due.append(filling.since + self._flush.seconds.total_seconds())
                left = min(due) - self._clock.now() if due else None
                if self._is_full(filling) or (left is not None and left <= 0):
                    return
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)

    async def _write(self, filling: _Filling) -> None:
        loop = asyncio.get_running_loop()
        asked_at = self._clock.now()
        batch = self._batch(filling, asked_at)
        done = await loop.run_in_executor(self._thread, self._commit, batch, filling.exchanges)
        kept = [part for domain_id, part in filling.parts.items() if domain_id not in done.refused]
        self._leases.renewed(((part.holder.domain_id, part.holder.epoch) for part in kept), asked_at)
        if done.refused:
            log.warning("%d domains were refused at a commit: they are somebody else's now", len(done.refused))
            self._tally.fenced_writes += len(done.refused)
        for part in filling.parts.values():
            if part.holder.domain_id in done.refused:
                part.holder.lose()
            else:
                growth = done.growth.get(part.holder.domain_id, NO_GROWTH)
                self._tally.robots_denied += sum(map(_robots_denied, part.outcomes))
                part.holder.committed(part.outcomes, growth, noted=part.noted)
                if self._report is not None:
                    self._report(part.outcomes)
        self._hand_over(filling, done.refused)

    def _hand_over(self, filling: _Filling, refused: set[int]) -> None:
        """Give pages to their parsers. Before: they are committed. What is refused is not ours to parse."""
        exchanges = {id(outcome): exchange for outcome, exchange in filling.exchanges if _parser_of(outcome)}
        if not exchanges:
            return
        for domain_id, part in filling.parts.items():
            for outcome in part.outcomes if domain_id not in refused else ():
                page, exchange = outcome.page, exchanges.get(id(outcome))
                if exchange is not None and page is not None and page.parser and page.archive is not None:
                    key = PageKey(domain_id, outcome.job_id, outcome.url_key, page.parser)
                    self._to_parse(Due(key, page.archive), exchange)

    def _batch(self, filling: _Filling, now: float) -> Batch:
        parts = []
        for domain_id, part in filling.parts.items():
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
        return Batch(self._run_id, parts, time.perf_counter())

    # In the thread ----------------------------------------------------------------------------------------------------

    def _commit(self, batch: Batch, exchanges: Sequence[tuple[UrlOutcome, Exchange]]) -> commit.Committed:
        for part in batch.parts:
            for outcome in part.outcomes:
                if outcome.page is not None and outcome.page.text is not None:
                    outcome.page.text = self._squeeze.compress(outcome.page.text)
        self._archive(exchanges)
        failpoints.reach("archive_written")
        begun = time.perf_counter()
        done = self._store(batch)
        self._tally.committed(time.perf_counter() - begun)
        return done

    def _store(self, batch: Batch) -> commit.Committed:
        try:
            return self._desk.run(
                commit.commit,
                self._database.connect,
                worker=self._worker,
                batch=batch,
                lease=self._lease,
                defaults=self._defaults,
                rests=self._rests,
                give_up=self._desk.is_closing,
            )
        except Unsettled as problem:
            raise Away(str(problem)) from problem
        except (RolledBack, StoreUnavailable):
            raise
        except StoreError as problem:
            # One page that the database cannot hold must not keep the others from it, nor come back for ever.
            log.error("a batch of %d parts was refused: %s", len(batch.parts), problem)  # noqa: TRY400 — no traceback
            halves = split(batch)
            if halves is None:
                give_up_on(batch, str(problem))
                halves = [batch]
            done = commit.Committed()
            for half in halves:
                part = self._store(half)
                done.refused |= part.refused
                for domain_id, growth in part.growth.items():
                    done.growth[domain_id] = done.growth.get(domain_id, NO_GROWTH).then(growth)
            return done

    def _archive(self, exchanges: Sequence[tuple[UrlOutcome, Exchange]]) -> None:
        """Bytes on disk, before any row points to them. A full disk is waited for: nothing is lost and nothing goes on."""
        while exchanges:
            try:
                if self._segments is None:
                    self._segments = self._open_archive()
                refs = self._segments.append([exchange for _, exchange in exchanges])
                self._segments.sync()
            except OSError as problem:
                if self.trouble is None:
                    log.error("the archive cannot be written: %s; fetching waits until it can", problem)  # noqa: TRY400 — no traceback
                self.trouble = f"the archive cannot be written: {problem.strerror or problem}"
                if self._stop.wait(DISK_PAUSE):
                    raise Away("The archive cannot be written, and we were told to stop.") from problem
            else:
                self.trouble = None
                for (outcome, _), ref in zip(exchanges, refs, strict=True):
                    if outcome.page is not None:
                        outcome.page.archive = ref
                return


def _parser_of(outcome: UrlOutcome) -> str | None:
    return None if outcome.page is None else outcome.page.parser


def _robots_denied(outcome: UrlOutcome) -> bool:
    return outcome.outcome is Outcome.ROBOTS_DENIED and outcome.state is UrlState.DENIED
