"""Documents to what parsers find in them, in processes that may hang, swell or die.

Owns the guests: at most so many at once, each for one document at a time, ended after a failure or after enough documents. The rule:
`Runner.parse` answers for every document in bounded time once it is its turn, and a parser that fails takes nothing with it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from holdfast.model.parsed import Document, FailureKind, ParseDone, ParseFailed
from holdfast.parse.hosting import Guest, Lost
from holdfast.parse.registry import Broken, Registry, Source

_TRIES = 3
"""Guests that may be gone before they take a document, until it is called their fault."""


@dataclass(frozen=True, slots=True)
class Described:
    """A parser that can be loaded."""

    source: Source
    version: str


class Runner:
    """Runs parsers, for one event loop."""

    def __init__(
        self,
        registry: Registry,
        *,
        processes: int = 2,
        seconds: float = 10.0,
        memory: int = 1 << 30,
        documents: int = 500,
        load_seconds: float = 30.0,
    ) -> None:
        """`seconds` and `memory` (bytes of address space) are for one document; a guest is replaced after `documents`."""
        self.registry = registry
        self._seconds, self._load_seconds = seconds, load_seconds
        self._memory, self._documents = memory, documents
        self._processes = processes
        self._turns = asyncio.Semaphore(processes)
        self._idle: list[Guest] = []
        """The one that served last comes last."""
        self._busy: set[Guest] = set()
        self._held = 0
        """Turns that are taken: each has a busy guest, or will have."""
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Of the guests that there are."""
        return sorted(guest.pid for guest in (*self._idle, *self._busy))

    async def parse(self, parser: str, document: Document) -> ParseDone | ParseFailed:
        """What `parser` finds in `document`, or why nothing. Raises only for faults of ours: OSError if no process can be started,
        RuntimeError if the runner was closed meanwhile.

        Before: nothing. After: whatever the parser started is gone.
        """
        source = self.registry.find(parser)
        if isinstance(source, ParseFailed):
            return source
        for _ in range(_TRIES):
            async with self._guest(source) as guest:
                version = await guest.load(source, self._load_seconds)
                if isinstance(version, ParseFailed):
                    return self._answer(guest, version)
                try:
                    found = await guest.parse(source.name, document, self._seconds)
                except Lost:
                    guest.usable = False
                    continue
                if isinstance(found, ParseFailed):
                    return self._answer(guest, found)
                return ParseDone(source.name, version, found)
        return ParseFailed(source.name, FailureKind.DIED, "the parser's process was gone whenever a document came")

    async def describe(self, parser: str) -> Described | ParseFailed:
        """Whether `parser` can be loaded, and its version."""
        source = self.registry.find(parser)
        if isinstance(source, ParseFailed):
            return source
        async with self._guest(source) as guest:
            version = await guest.load(source, self._load_seconds)
            return self._answer(guest, version) if isinstance(version, ParseFailed) else Described(source, version)

    async def survey(self) -> list[Described | Broken]:
        """Every parser, by name: those that can be loaded, and those that cannot with the reason."""
        found: list[Described | Broken] = list(self.registry.broken)
        for name in self.registry.sources:
            described = await self.describe(name)
            found.append(Broken(name, described.reason) if isinstance(described, ParseFailed) else described)
        return sorted(found, key=lambda one: one.name if isinstance(one, Broken) else one.source.name)

    async def aclose(self) -> None:
        """Before: nothing. After: no process of ours is left; calls that were under way raise."""
        self._closed = True
        guests = [*self._idle, *self._busy]
        self._idle.clear()
        await asyncio.gather(*(guest.end() for guest in guests))
        for _ in range(self._processes):  # whoever was just starting a guest has ended it when we have all turns
            await self._turns.acquire()
        for _ in range(self._processes):
            self._turns.release()

    def _answer(self, guest: Guest, failed: ParseFailed) -> ParseFailed:
        """Before: the guest is ours. After: it serves nobody else."""
        guest.usable = False
        self._check_open()  # else it failed because we ended it
        return failed

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the runner of parsers was closed")

    @asynccontextmanager
    async def _guest(self, source: Source) -> AsyncIterator[Guest]:
        """A guest of the source's room, for one document. Before: nothing. After: it waits for another, or is gone."""
        async with self._turns:
            self._held += 1
            try:
                self._check_open()
                guest = await self._chosen(source.room)
                self._busy.add(guest)
                try:
                    yield guest
                except BaseException:  # cancelled: the answer that is on its way belongs to nobody
                    guest.usable = False
                    raise
                finally:
                    if not guest.alive or guest.served >= self._documents or self._closed:
                        await guest.end()
                    else:
                        self._idle.append(guest)
                    self._busy.discard(guest)
            finally:
                self._held -= 1

    async def _chosen(self, room: str) -> Guest:
        """An idle guest of that room, or a new one in place of one that is not needed."""
        for guest in reversed(self._idle):
            if guest.room == room and guest.alive:
                self._idle.remove(guest)
                return guest
        if len(self._idle) + self._held > self._processes:
            await self._idle.pop(0).end()
        guest = await Guest.start(room, self._memory)
        if self._closed:
            await guest.end()
        self._check_open()
        return guest
