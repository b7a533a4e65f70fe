"""Seeds from people into the store: from the command line or a file of any length.

The rule: memory does not grow with the file, a bad line is counted and reported with its number, and what was read before an
interruption is in the store; loading the same file again adds what is missing.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.errors import BadUrl, UsageError
from holdfast.model.domain import Seed
from holdfast.model.seeds import LineReader, make_seed
from holdfast.model.url import UrlRules
from holdfast.store import jobs, seeding
from holdfast.store.connect import Database
from holdfast.store.domains import NewDomains

BATCH: Final = 20_000
LONGEST_LINE: Final = 64 * 1024
BAD_LINES_KEPT: Final = 1_000


@dataclass(slots=True)
class BadLine:
    """A line that is not a seed, and why."""

    line: int
    problem: str


@dataclass(slots=True)
class Loaded:
    """How far a load is."""

    lines: int = 0
    seeds: int = 0
    domains: int = 0
    urls: int = 0
    bad: int = 0
    bytes_read: int = 0
    bad_lines: list[BadLine] = field(default_factory=list)
    """The first ones; `bad` counts them all."""

    def refuse(self, problem: str) -> None:
        self.bad += 1
        if len(self.bad_lines) < BAD_LINES_KEPT:
            self.bad_lines.append(BadLine(self.lines, problem))

    def add(self, seeded: seeding.Seeded) -> None:
        self.domains += seeded.domains
        self.urls += seeded.urls


@dataclass(frozen=True, slots=True)
class Sower:
    """Puts seeds of one origin into the standing job."""

    database: Database
    rules: UrlRules
    defaults: NewDomains
    registrable: bool = False

    def add(self, texts: list[str]) -> Loaded:
        """Seed URLs or domains one by one; bad ones are counted, the rest go in."""
        loaded = Loaded()
        seeds: list[Seed] = []
        for text in texts:
            loaded.lines += 1
            try:
                seeds.append(make_seed(text, rules=self.rules, registrable=self.registrable))
            except BadUrl as problem:
                loaded.refuse(str(problem))
        loaded.seeds = len(seeds)
        if seeds:
            with self.database.session() as connection:
                job = jobs.find(connection, jobs.DEFAULT)
                loaded.add(seeding.add(connection, seeds, job_id=job, source="command line", defaults=self.defaults))
        return loaded

    def load(self, file: BinaryIO, *, source: str) -> Iterator[Loaded]:
        """Seed every line of `file` (plain or gzip); yields how far it is, the last time at the end.

        One thread reads and understands, another feeds the database: each batch is written while the next one is read.
        """
        loaded = Loaded()
        reader = LineReader(self.rules, self.registrable)
        with self.database.session() as connection, ThreadPoolExecutor(1) as writer:
            job = jobs.find(connection, jobs.DEFAULT)
            under_way: Future[seeding.Seeded] | None = None
            for batch in self._batches(file, reader, loaded):
                if under_way:
                    loaded.add(under_way.result())
                under_way = writer.submit(
                    seeding.add, connection, batch, job_id=job, source=source[:100], defaults=self.defaults
                )
                loaded.seeds += len(batch)
                yield loaded
            if under_way:
                loaded.add(under_way.result())
        yield loaded

    def _batches(self, file: BinaryIO, reader: LineReader, loaded: Loaded) -> Iterator[list[Seed]]:
        batch: list[Seed] = []
        for line in _lines(file, loaded):
            loaded.lines += 1
            try:
                seed = reader.read(line)
            except BadUrl as problem:
                loaded.refuse(str(problem))
                continue
            if seed:
                batch.append(seed)
                if len(batch) >= BATCH:
                    yield batch
                    batch = []
        if batch:
            yield batch


def open_seeds(name: str) -> tuple[BinaryIO, int | None, str]:
    """The file called `name` (`-` is standard input), its size if known, and what to call its seeds' source."""
    if name == "-":
        return sys.stdin.buffer, None, "standard input"
    path = Path(name)
    try:
        return path.open("rb"), path.stat().st_size, path.name.split(".")[0] or path.name
    except OSError as problem:
        raise UsageError(f"The seed file {name} cannot be read: {problem.strerror}.") from problem


def _lines(file: BinaryIO, loaded: Loaded) -> Iterator[bytes]:
    """The lines of a file, unpacked if it is gzip; one that never ends is cut, so it is bad but harmless."""
    counted = _Counted(file, loaded)
    buffered = io.BufferedReader(counted, 1 << 16)
    source: BinaryIO = gzip.GzipFile(fileobj=buffered) if buffered.peek(2)[:2] == b"\x1f\x8b" else buffered  # type: ignore[assignment]
    try:
        while line := source.readline(LONGEST_LINE):
            while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                rest = source.readline(LONGEST_LINE)
                if len(rest) < LONGEST_LINE or rest.endswith(b"\n"):
                    break
            yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise UsageError(
            f"The gzip file is damaged after line {loaded.lines} ({problem}); the lines before that are loaded.",
        ) from problem
    except OSError as problem:
        raise UsageError(f"Reading stopped after line {loaded.lines}: {problem.strerror or problem}.") from problem


class _Counted(io.RawIOBase):
    """Counts what is read, for the progress bar."""

    def __init__(self, file: BinaryIO, loaded: Loaded) -> None:
        self._file = file
        self._loaded = loaded

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._loaded.bytes_read += len(data)
        return len(data)
