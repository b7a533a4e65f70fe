"""A pool of child processes that run parsers, which may hang, run out of memory or crash.

Owns the processes: at most `processes` at once, each with one document at a time, stopped after a failure or after `max_documents`. The
rule: once `PluginPool.parse` has a slot it returns within bounded time, and a parser that fails affects no other document.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from holdfast.model.parse_result import Document, FailureKind, ParseDone, ParseFailed
from holdfast.parse.plugin_process import PluginProcess, ProcessLost
from holdfast.parse.plugin_registry import ParserSource, PluginRegistry, UnusableParser

_MAX_ATTEMPTS = 3
"""Processes that may be lost before they accept the document, until the parse fails."""


@dataclass(frozen=True, slots=True)
class ParserInfo:
    """A parser that was loaded successfully: its source and its version."""

    source: ParserSource
    version: str


class PluginPool:
    """A pool of parser processes, for one event loop."""

    def __init__(
        self,
        registry: PluginRegistry,
        *,
        processes: int = 2,
        timeout: float = 10.0,
        memory_limit: int = 1 << 30,
        max_documents: int = 500,
        load_timeout: float = 30.0,
    ) -> None:
        """`timeout` (seconds) is per document, `memory_limit` (bytes of address space) per process; a process is replaced after
        `max_documents`."""
        self.registry = registry
        self._timeout, self._load_timeout = timeout, load_timeout
        self._memory_limit, self._max_documents = memory_limit, max_documents
        self._processes = processes
        self._slots = asyncio.Semaphore(processes)
        self._idle: list[PluginProcess] = []
        """Most recently used last."""
        self._busy: set[PluginProcess] = set()
        self._slots_taken = 0
        """Slots in use: each has a busy process, or is starting one."""
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Process ids of all parser processes."""
        return sorted(process.pid for process in (*self._idle, *self._busy))

    async def parse(self, parser: str, document: Document) -> ParseDone | ParseFailed:
        """Run `parser` on `document` in a child process. Failures of the parser are returned; raised are only OSError if no process can be
        started and RuntimeError if the pool was closed meanwhile.

        Before: nothing. After: no process or thread that the parser started is left.
        """
        source = self.registry.find(parser)
        if isinstance(source, ParseFailed):
            return source
        for _ in range(_MAX_ATTEMPTS):
            async with self._process(source) as process:
                version = await process.load(source, self._load_timeout)
                if isinstance(version, ParseFailed):
                    return self._give_up(process, version)
                try:
                    extracted = await process.parse(source.name, document, self._timeout)
                except ProcessLost:
                    process.reusable = False
                    continue
                if isinstance(extracted, ParseFailed):
                    return self._give_up(process, extracted)
                return ParseDone(source.name, version, extracted)
        reason = f"the parser's process died {_MAX_ATTEMPTS} times before it accepted the document"
        return ParseFailed(source.name, FailureKind.DIED, reason)

    async def describe(self, parser: str) -> ParserInfo | ParseFailed:
        """Load `parser` in a child process, and return its version or the reason why it cannot be loaded."""
        source = self.registry.find(parser)
        if isinstance(source, ParseFailed):
            return source
        async with self._process(source) as process:
            version = await process.load(source, self._load_timeout)
            return self._give_up(process, version) if isinstance(version, ParseFailed) else ParserInfo(source, version)

    async def list_parsers(self) -> list[ParserInfo | UnusableParser]:
        """Load every discovered parser; return all by name, those that cannot be loaded with the reason."""
        extracted: list[ParserInfo | UnusableParser] = list(self.registry.unusable)
        for name in self.registry.sources:
            described = await self.describe(name)
            extracted.append(
                UnusableParser(name, described.reason) if isinstance(described, ParseFailed) else described
            )
        return sorted(extracted, key=lambda one: one.name if isinstance(one, UnusableParser) else one.source.name)

    async def aclose(self) -> None:
        """Close the pool. Before: nothing. After: no parser process is left; calls in progress raise RuntimeError."""
        self._closed = True
        processes = [*self._idle, *self._busy]
        self._idle.clear()
        await asyncio.gather(*(process.stop() for process in processes))
        for _ in range(self._processes):  # a call that was starting a process has stopped it once we hold all slots
            await self._slots.acquire()
        for _ in range(self._processes):
            self._slots.release()

    def _give_up(self, process: PluginProcess, failed: ParseFailed) -> ParseFailed:
        """Before: the process is held by the caller. After: it gets no further document."""
        process.reusable = False
        self._check_open()  # else it failed because closing the pool stopped it
        return failed

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the pool of parser processes was closed")

    @asynccontextmanager
    async def _process(self, source: ParserSource) -> AsyncIterator[PluginProcess]:
        """Hold a process of the source's isolation group for one document. Before: nothing. After: it is idle again, or stopped."""
        async with self._slots:
            self._slots_taken += 1
            try:
                self._check_open()
                process = await self._acquire(source.isolation_group)
                self._busy.add(process)
                try:
                    yield process
                except BaseException:  # cancelled: a reply that is still on its way must not be read as the next one's
                    process.reusable = False
                    raise
                finally:
                    if not process.alive or process.documents_parsed >= self._max_documents or self._closed:
                        await process.stop()
                    else:
                        self._idle.append(process)
                    self._busy.discard(process)
            finally:
                self._slots_taken -= 1

    async def _acquire(self, isolation_group: str) -> PluginProcess:
        """Take an idle process of the group, or start one; if the pool is full, an idle process of another group is stopped first."""
        for process in reversed(self._idle):
            if process.isolation_group == isolation_group and process.alive:
                self._idle.remove(process)
                return process
        if len(self._idle) + self._slots_taken > self._processes:
            await self._idle.pop(0).stop()
        process = await PluginProcess.start(isolation_group, self._memory_limit)
        if self._closed:
            await process.stop()
        self._check_open()
        return process
