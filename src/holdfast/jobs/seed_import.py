"""Seeds from people into the store: from the command line or a file of any length.

The rule: memory does not grow with the file, a bad line is counted and reported with its number, and what was read before an
interruption is in the store; loading the same file again adds what is missing.
"""

import hashlib
import io
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.control.input_files import BadLine, Damaged, Progress, lines, opened
from holdfast.db import domains, job_seeds, jobs, seed_insert, sweeper
from holdfast.db.connection import Connection, Database
from holdfast.db.domains import NewDomains
from holdfast.errors import BadUrl, UsageError
from holdfast.model.domain import Seed
from holdfast.model.domain_name import canonical_domain
from holdfast.model.job import JobSpec
from holdfast.model.seed_lines import SeedLineParser, make_seed
from holdfast.model.url import UrlRules

BATCH: Final = 20_000
WRITERS: Final = 2
LONGEST_LINE: Final = 64 * 1024
WOKEN: Final = 100
"""Domains that are locked at once to be told of single seeds."""

_LOOKED_AT: Final = 8 * 1024
_ODD: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")
_TOO_ODD: Final = 0.25
"""A text has bad characters here and there; in pictures and programs they are half of all."""
_UNPACK: Final = "unpack it first, for example with `{} FILE | holdfast seeds load -`"
_NOT_TEXT: Final = {
    b"PK\x03\x04": ("a ZIP archive", _UNPACK.format("unzip -p")),
    b"BZh": ("packed with bzip2", _UNPACK.format("bzip2 -dc")),
    b"\xfd7zXZ": ("packed with xz", _UNPACK.format("xz -dc")),
    b"\x28\xb5\x2f\xfd": ("packed with zstd", _UNPACK.format("zstd -dc")),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
}
"""What people have instead of text, by its first bytes, and what to do about it."""


@dataclass(slots=True)
class Loaded(Progress):
    """How far a load is."""

    seeds: int = 0
    domains: int = 0
    urls: int = 0
    bytes_read: int = 0

    def add(self, seeded: seed_insert.SeedCounts) -> None:
        self.domains += seeded.domains
        self.urls += seeded.urls

    def after(self, given: "Loaded") -> None:
        """Add what was given as arguments before the file: those have no line, so their number is 0."""
        self.lines += given.lines
        self.seeds += given.seeds
        self.domains += given.domains
        self.urls += given.urls
        self.bad += given.bad
        self.bad_lines[:0] = [BadLine(0, one.problem) for one in given.bad_lines]


@dataclass(frozen=True, slots=True)
class SeedImporter:
    """Puts seeds of one origin into a job."""

    database: Database
    rules: UrlRules
    defaults: NewDomains
    registrable: bool = False
    job: str | int = jobs.DEFAULT
    """By name or id."""
    source: str = "command line"
    """Where single ones come from."""
    priority: int = 3

    def add(self, texts: list[str], note: Callable[[Connection, Loaded], None] | None = None) -> Loaded:
        """Seed URLs or domains one by one; bad ones are counted, the rest go in. `note` is called in the same transaction."""
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
                with connection.transaction():
                    loaded.add(self._seeding(connection)(connection, seeds, source=self.source))
                    if note is not None:
                        note(connection, loaded)
                ids = domains.ids(connection, {seed.domain for seed in seeds})
                for first in range(0, len(ids), WOKEN):  # a person looks at once; a file's seeds are left to the sweep
                    sweeper.fold_wakes_now(connection, *ids[first : first + WOKEN])
        return loaded

    def load(self, file: BinaryIO, source: str) -> Generator[Loaded]:
        """Seed every line of `file` (plain or gzip); yields how far it is, the last time at the end.

        One thread reads and understands while others feed the database, each over a connection of its own: the server is the
        slower side (50 µs a line against 14), and two of its processes do it in little more than half the time.
        """
        loaded = Loaded()
        reader = SeedLineParser(self.rules, self.registrable)
        with ExitStack() as stack:
            free = deque(stack.enter_context(self.database.session()) for _ in range(WRITERS))
            writers = stack.enter_context(ThreadPoolExecutor(WRITERS))
            add = partial(self._seeding(free[0]), source=source[:100])
            under_way: deque[tuple[Future[seed_insert.SeedCounts], Connection]] = deque()

            def settle_oldest() -> None:
                written, connection = under_way.popleft()
                loaded.add(written.result())
                free.append(connection)

            for batch in self._batches(file, reader, loaded):
                if not free:
                    settle_oldest()
                connection = free.popleft()
                under_way.append((writers.submit(add, connection, batch), connection))
                loaded.seeds += len(batch)
                yield loaded
            while under_way:
                settle_oldest()
        yield loaded

    def canonical(self, name: str) -> str:
        """The domain that a person means by a name or a URL."""
        return canonical_domain(name, registrable=self.registrable)

    def _seeding(self, connection: Connection) -> "partial[seed_insert.SeedCounts]":
        job_id = self.job if isinstance(self.job, int) else jobs.find(connection, self.job)
        return partial(seed_insert.add, job_id=job_id, defaults=self.defaults, priority=self.priority)

    def _batches(self, file: BinaryIO, reader: SeedLineParser, loaded: Loaded) -> Iterator[list[Seed]]:
        batch: list[Seed] = []
        try:
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
        except Damaged as problem:
            loaded.stop(problem)
        if batch:
            yield batch


def read_seeds(file: BinaryIO, rules: UrlRules, *, registrable: bool) -> Iterator[Seed]:
    """The seeds of a file (plain or gzip); lines that are none are passed over."""
    reader = SeedLineParser(rules, registrable)
    with suppress(Damaged):
        for line in _lines(file, Loaded()):
            with suppress(BadUrl):
                if seed := reader.read(line):
                    yield seed


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
    """What of a spec makes another job of the same seeds: not limits, delay or headers."""
    stripped = ("without", *spec.strip_params) if spec.strip_params else ()
    return (spec.scope, *spec.include, "but", *spec.exclude, *stripped)


def file_mark(path: str, urls: Iterable[Seed], spec: JobSpec) -> bytes:
    """What a job with a seed file is known by: the file's absolute path, the URLs that were given beside it, and the rules."""
    keys = sorted(seed.url_key.hex() for seed in urls)
    text = b"\n".join((b"file", os.fsencode(path), *(part.encode() for part in (*keys, "rules", *rules_of(spec)))))
    return hashlib.sha256(text).digest()[:16]


def sow_again(
    connection: Connection, job_id: int, *, rules: UrlRules, registrable: bool, defaults: NewDomains
) -> seed_insert.SeedCounts:
    """Put the seeds of a job whose frontier is gone into it again; what was added. Nothing, if it has a frontier.

    Before: no transaction is open; a person or a schedule starts the job.
    """
    added = seed_insert.SeedCounts()
    if not job_seeds.frontier_is_gone(connection, job_id):
        return added
    for chunk in job_seeds.chunks(connection, job_id):
        seeds = [
            make_seed(kept.url, rank=kept.rank, rules=rules, registrable=registrable)._replace(guessed=kept.guessed)
            for kept in chunk
        ]
        added += seed_insert.add(connection, seeds, job_id=job_id, source="seeds", defaults=defaults)
    return added


def open_seeds(name: str) -> tuple[BinaryIO, int | None, str]:
    """The file called `name` (`-` is standard input), its size if known, and what to call its seeds' source."""
    file, size = opened(name, "seeds", is_a="The seed file ")
    if name == "-":
        return file, None, "standard input"
    # Names may hold bytes that are no text, which the store cannot keep.
    own = Path(name).name
    return file, size, os.fsencode(own.split(".")[0] or own).decode(errors="replace")


def _lines(file: BinaryIO, loaded: Loaded) -> Iterator[bytes]:
    return lines(io.BufferedReader(_Counted(file, loaded), 1 << 16), LONGEST_LINE, _check_text, _LOOKED_AT)


def _check_text(head: bytes) -> None:
    """Raise UsageError for a file that is no text at all: line by line, some of a picture would pass for domains."""
    for magic, (what, remedy) in _NOT_TEXT.items():
        if head.startswith(magic):
            raise UsageError(f"The seed file is {what}; {remedy}.")
    text = head.decode(errors="replace")
    if len(_ODD.findall(text)) > _TOO_ODD * len(text):
        raise UsageError("The seed file is not UTF-8 text; it takes a URL, a domain or `rank,domain` a line.")


class _Counted(io.RawIOBase):
    """Counts what is read, for the progress bar."""

    def __init__(self, file: BinaryIO, loaded: Loaded) -> None:
        self._file = file
        self._loaded = loaded
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        data = b"" if self._ended else self._file.read(len(buffer))
        self._ended = len(data) < len(buffer)  # a terminal would be asked for another Ctrl-D
        buffer[: len(data)] = data
        self._loaded.bytes_read += len(data)
        return len(data)
