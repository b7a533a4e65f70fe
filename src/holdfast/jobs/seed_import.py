"""Import of seeds: from the command line, the API, or a file of any length.

The rule: memory does not grow with the file, an invalid line is counted and reported with its number, and what was read before an
interruption is in the database; loading the same file again adds what is missing.
"""

import hashlib
import io
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.control.input_files import Damaged, Progress, lines, opened
from holdfast.db import domains, jobs, seed_insert, sweeper
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.errors import BadUrl, UsageError
from holdfast.jobs.queries import seeds as queries
from holdfast.jobs.records import BadLine
from holdfast.model.domain import Seed
from holdfast.model.domain_name import canonical_domain
from holdfast.model.job import JobSpec
from holdfast.model.seed_lines import SeedLineParser, make_seed
from holdfast.model.url import UrlRules

BATCH: Final = 20_000
WRITERS: Final = 2
MAX_LINE: Final = 64 * 1024
"""Bytes of a line; a longer one is cut."""
FOLD_CHUNK: Final = 100
"""Domains that are locked at once to fold the wakes of single seeds."""

_CHECKED_BYTES: Final = 8 * 1024
"""Bytes at the beginning of a file by which it is recognized as text."""
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")
_MAX_CONTROL_SHARE: Final = 0.25
"""A text has few control characters; in pictures and programs they are half of all."""
_UNPACK: Final = "unpack it first, for example with `{} FILE | holdfast seeds load -`"
_NOT_TEXT: Final = {
    b"PK\x03\x04": ("a ZIP archive", _UNPACK.format("unzip -p")),
    b"BZh": ("packed with bzip2", _UNPACK.format("bzip2 -dc")),
    b"\xfd7zXZ": ("packed with xz", _UNPACK.format("xz -dc")),
    b"\x28\xb5\x2f\xfd": ("packed with zstd", _UNPACK.format("zstd -dc")),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
}
"""Formats that are not text, by their first bytes, with the remedy."""


@dataclass(slots=True)
class ImportProgress(Progress):
    """The progress of an import of seeds."""

    seeds: int = 0
    domains: int = 0
    urls: int = 0
    bytes_read: int = 0

    def add(self, inserted: seed_insert.SeedCounts) -> None:
        self.domains += inserted.domains
        self.urls += inserted.urls

    def add_arguments(self, arguments: "ImportProgress") -> None:
        """Add the seeds that were arguments of the command, before the file: they have no line, so their number is 0."""
        self.lines += arguments.lines
        self.seeds += arguments.seeds
        self.domains += arguments.domains
        self.urls += arguments.urls
        self.bad += arguments.bad
        self.bad_lines[:0] = [BadLine(0, one.problem) for one in arguments.bad_lines]


@dataclass(frozen=True, slots=True)
class SeedImporter:
    """Imports seeds into a job."""

    database: Database
    rules: UrlRules
    defaults: NewDomains
    registrable: bool = False
    job: str | int = jobs.DEFAULT
    """By name or id."""
    source: str = "command line"
    """The source of single seeds."""
    priority: int = 3

    def add(self, texts: list[str], note: Callable[[Connection, ImportProgress], None] | None = None) -> ImportProgress:
        """Add URLs or domains as seeds; invalid ones are counted. `note` is called in the same transaction."""
        progress = ImportProgress()
        seeds: list[Seed] = []
        for text in texts:
            progress.lines += 1
            try:
                seeds.append(make_seed(text, rules=self.rules, registrable=self.registrable))
            except BadUrl as problem:
                progress.refuse(str(problem))
        progress.seeds = len(seeds)
        if seeds:
            with self.database.session() as connection:
                with connection.transaction():
                    progress.add(self._seeding(connection)(connection, seeds, source=self.source))
                    if note is not None:
                        note(connection, progress)
                ids = domains.ids(connection, {seed.domain for seed in seeds})
                for first in range(0, len(ids), FOLD_CHUNK):  # at once; seeds of a file are left to the sweep
                    sweeper.fold_wakes_now(connection, *ids[first : first + FOLD_CHUNK])
        return progress

    def load(self, file: BinaryIO, source: str) -> Generator[ImportProgress]:
        """Add every line of `file` (plain or gzip) as a seed; yields the progress, the last time at the end.

        One thread reads and parses while others write, each over a connection of its own: the database is the slower side (50 µs a
        line against 14), and two connections take little more than half the time.
        """
        progress = ImportProgress()
        reader = SeedLineParser(self.rules, self.registrable)
        with ExitStack() as stack:
            free = deque(stack.enter_context(self.database.session()) for _ in range(WRITERS))
            writers = stack.enter_context(ThreadPoolExecutor(WRITERS))
            add = partial(self._seeding(free[0]), source=source[:100])
            under_way: deque[tuple[Future[seed_insert.SeedCounts], Connection]] = deque()

            def settle_oldest() -> None:
                written, connection = under_way.popleft()
                progress.add(written.result())
                free.append(connection)

            for batch in self._batches(file, reader, progress):
                if not free:
                    settle_oldest()
                connection = free.popleft()
                under_way.append((writers.submit(add, connection, batch), connection))
                progress.seeds += len(batch)
                yield progress
            while under_way:
                settle_oldest()
        yield progress

    def canonical(self, name: str) -> str:
        """The domain of a name or a URL."""
        return canonical_domain(name, registrable=self.registrable)

    def _seeding(self, connection: Connection) -> "partial[seed_insert.SeedCounts]":
        job_id = self.job if isinstance(self.job, int) else jobs.find(connection, self.job)
        return partial(seed_insert.add, job_id=job_id, defaults=self.defaults, priority=self.priority)

    def _batches(self, file: BinaryIO, reader: SeedLineParser, progress: ImportProgress) -> Iterator[list[Seed]]:
        batch: list[Seed] = []
        try:
            for line in read_lines(file, progress):
                progress.lines += 1
                try:
                    seed = reader.read(line)
                except BadUrl as problem:
                    progress.refuse(str(problem))
                    continue
                if seed:
                    batch.append(seed)
                    if len(batch) >= BATCH:
                        yield batch
                        batch = []
        except Damaged as problem:
            progress.stop(problem)
        if batch:
            yield batch


def read_seeds(
    file: BinaryIO, rules: UrlRules, *, registrable: bool, progress: ImportProgress | None = None
) -> Iterator[Seed]:
    """The seeds of a file (plain or gzip); invalid lines are skipped, and counted in `progress`."""
    reader = SeedLineParser(rules, registrable)
    progress = ImportProgress() if progress is None else progress
    try:
        for line in read_lines(file, progress):
            progress.lines += 1
            try:
                seed = reader.read(line)
            except BadUrl as problem:
                progress.refuse(str(problem))
                continue
            if seed:
                progress.seeds += 1
                yield seed
    except Damaged as problem:
        progress.stop(problem)


def fingerprint(seeds: Iterable[Seed], *extra: str) -> bytes:
    """The fingerprint of a job without a name: its seeds, in any order, and the rules of their crawl.

    A scheme that was guessed counts as https, whether the site turns out to speak it or not.
    """
    total = count = 0
    for seed in seeds:
        total = (total + int.from_bytes(seed.url_key)) % 2**128
        count += 1
    text = "\n".join((total.to_bytes(16).hex(), str(count), *extra))
    return hashlib.sha256(text.encode()).digest()[:16]


def rules_of(spec: JobSpec) -> tuple[str, ...]:
    """The options that make another job of the same seeds: not limits, delay or headers."""
    stripped = ("without", *spec.strip_params) if spec.strip_params else ()
    return (spec.scope, *spec.include, "but", *spec.exclude, *stripped)


def file_mark(path: str, urls: Iterable[Seed], spec: JobSpec) -> bytes:
    """The hash by which a job with a seed file is found: of the file's absolute path, the URLs beside it, and the rules."""
    keys = sorted(seed.url_key.hex() for seed in urls)
    text = b"\n".join((b"file", os.fsencode(path), *(part.encode() for part in (*keys, "rules", *rules_of(spec)))))
    return hashlib.sha256(text).digest()[:16]


def restore_seeds(
    connection: Connection, job_id: int, *, rules: UrlRules, registrable: bool, defaults: NewDomains
) -> seed_insert.SeedCounts:
    """Import the seeds of a job again if its frontier is gone; returns what was added.

    Before: no transaction is open; an operator or a schedule starts the job.
    """
    added = seed_insert.SeedCounts()
    if not queries.frontier_is_gone(connection, job_id):
        return added
    for chunk in queries.chunks(connection, job_id):
        seeds = [
            make_seed(kept.url, rank=kept.rank, rules=rules, registrable=registrable)._replace(guessed=kept.guessed)
            for kept in chunk
        ]
        added += seed_insert.add(connection, seeds, job_id=job_id, source="seeds", defaults=defaults)
    return added


def open_seeds(name: str) -> tuple[BinaryIO, int | None, str]:
    """Open the file called `name` (`-` is standard input); returns also its size if known, and the name of its seeds' source."""
    file, size = opened(name, "seeds", is_a="The seed file ")
    if name == "-":
        return file, None, "standard input"
    # Names may hold bytes that are no text, which the database cannot store.
    own = Path(name).name
    return file, size, os.fsencode(own.split(".")[0] or own).decode(errors="replace")


def read_lines(file: BinaryIO, progress: ImportProgress) -> Iterator[bytes]:
    """The lines of a seed file (plain or gzip); `progress` counts its bytes. Raises UsageError if it is not text, and Damaged."""
    return lines(io.BufferedReader(_Counted(file, progress), 1 << 16), MAX_LINE, _check_text, _CHECKED_BYTES)


def _check_text(head: bytes) -> None:
    """Raise UsageError for a file that is not text: some lines of a picture would pass for domains."""
    for magic, (what, remedy) in _NOT_TEXT.items():
        if head.startswith(magic):
            raise UsageError(f"The seed file is {what}; {remedy}.")
    text = head.decode(errors="replace")
    if len(_CONTROL.findall(text)) > _MAX_CONTROL_SHARE * len(text):
        raise UsageError("The seed file is not UTF-8 text; it takes a URL, a domain or `rank,domain` a line.")


class _Counted(io.RawIOBase):
    """Counts the bytes that are read, for the progress bar."""

    def __init__(self, file: BinaryIO, progress: ImportProgress) -> None:
        self._file = file
        self._progress = progress
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        data = b"" if self._ended else self._file.read(len(buffer))
        self._ended = len(data) < len(buffer)  # a terminal would be asked for another Ctrl-D
        buffer[: len(data)] = data
        self._progress.bytes_read += len(data)
        return len(data)
