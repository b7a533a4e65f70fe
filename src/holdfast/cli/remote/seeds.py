"""Input for a server: seeds and URLs from a file in portions that it takes, and secrets of requests.

The rule: memory does not grow with the file, and an invalid line is reported with its number, whether it is found here or by the server.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

from holdfast.client import Client
from holdfast.control.input_files import BAD_LINES_KEPT, Damaged
from holdfast.errors import BadUrl, UsageError
from holdfast.jobs.records import BadLine, Secrets
from holdfast.jobs.seed_import import ImportProgress, read_lines
from holdfast.model.request_secrets import RequestSecrets
from holdfast.model.seed_lines import SeedLineParser
from holdfast.model.url import UrlRules

PORTION: Final = 1_000
"""URLs in one request."""
_BYTES: Final = 400_000
"""Bytes of URLs in one request: a server takes a million, and other characters than ASCII are longer in JSON."""
_AS_WRITTEN: Final = UrlRules(
    tracking_parameters=(), session_parameters=(), strip_trailing_slash=False, sort_query=False, max_bytes=65_536
)
"""The server normalizes URLs by its own rules."""

Portion = list[tuple[int, str]]
"""URLs, each with the number of its line."""


class Lines:
    """The URLs of a file's lines."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._reader = SeedLineParser(_AS_WRITTEN)
        self.seen = 0
        self.bad: list[tuple[int, str]] = []
        """Invalid lines, with their numbers; the caller empties it."""

    def portions(self) -> Iterator[Portion]:
        """One portion after the other; the last one may be empty, and still have invalid lines with it."""
        portion: Portion = []
        size = 0
        for line in self._lines:
            self.seen += 1
            try:
                seed = self._reader.read(line)
            except BadUrl as problem:
                self.bad.append((self.seen, str(problem)))
                continue
            if seed is None:
                continue
            url = seed.url.removeprefix("https://") if seed.guessed else seed.url  # the server guesses the scheme again
            portion.append((self.seen, url))
            size += len(seed.url)
            if len(portion) == PORTION or size >= _BYTES:
                yield portion
                portion, size = [], 0
        yield portion


@dataclass(frozen=True, slots=True)
class RemoteSeedImporter:
    """Imports seeds into a job of a server, with the methods of `jobs/seed_import`."""

    client: Client
    job: int | None = None
    """None: the standing job."""

    def add(self, texts: list[str]) -> ImportProgress:
        """Add URLs or domains as seeds; invalid ones are counted."""
        progress = ImportProgress(lines=len(texts))
        numbered = list(enumerate(texts, 1))
        for first in range(0, len(texts), PORTION):
            self.send(numbered[first : first + PORTION], progress)
        return progress

    def load(self, file: BinaryIO, source: str | None) -> Generator[ImportProgress]:
        """Add every line of `file` (plain or gzip) as a seed, without their ranks; yields the progress."""
        if source is not None:
            raise UsageError("A server names the source of seeds itself; leave out --source.")
        progress = ImportProgress()
        for portion in seed_portions(file, progress):
            if portion:
                self.send(portion, progress)
            yield progress

    def send(self, seeds: Portion, progress: ImportProgress) -> None:
        """Send one portion. After: `progress` has its counts."""
        added = self.client.seed([url for _, url in seeds], job=self.job)
        progress.seeds += added.seen - added.bad
        progress.urls += added.urls
        progress.domains += added.domains
        refuse(progress, [(seeds[bad.line - 1][0], bad.problem) for bad in added.bad_urls])


def seed_portions(file: BinaryIO, progress: ImportProgress) -> Iterator[Portion]:
    """The URLs of a seed file, unpacked, up to a damaged part. `progress` counts the lines and the invalid ones."""
    found = Lines(_counted(file, progress))
    for portion in found.portions():
        bad, found.bad = found.bad, []
        refuse(progress, bad)
        yield portion


def refuse(progress: ImportProgress, bad: list[tuple[int, str]]) -> None:
    """Count invalid lines: numbers and problems."""
    progress.bad += len(bad)
    kept = [*progress.bad_lines, *(BadLine(*one) for one in bad)]
    progress.bad_lines = sorted(kept, key=lambda one: one.line)[:BAD_LINES_KEPT]


def _counted(file: BinaryIO, progress: ImportProgress) -> Iterator[bytes]:
    try:
        for line in read_lines(file, progress):
            progress.lines += 1
            yield line
    except Damaged as problem:
        progress.stop(problem)


def as_sent(secrets: RequestSecrets | None) -> Secrets | None:
    """Secrets as the API takes them; None: there are none."""
    if not secrets:
        return None
    found: Secrets = {}
    if secrets.headers is not None:
        found["headers"] = [f"{name}: {value}" for name, value in secrets.headers]
    if secrets.cookies is not None:
        found["cookies"] = [f"{name}={value}" for name, value in secrets.cookies]
    if secrets.basic_auth is not None:
        found["basic_auth"] = secrets.basic_auth
    return found
