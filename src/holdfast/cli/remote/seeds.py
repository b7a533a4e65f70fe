"""Seeds and URLs from a file, on their way to a server in portions that it takes.

The rule: memory does not grow with the file, and a line keeps its number, whoever finds fault with it.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.errors import BadUrl
from holdfast.model.seed_lines import SeedLineParser
from holdfast.model.url import UrlRules

PORTION: Final = 1_000
_BYTES: Final = 400_000
"""Of URLs in one request: a server takes a million, and what is not ASCII is longer in JSON."""
_AS_WRITTEN: Final = UrlRules(
    tracking_parameters=(), session_parameters=(), strip_trailing_slash=False, sort_query=False, max_bytes=65_536
)
"""Which URLs are the same is for the server to say."""

Portion = list[tuple[int, str]]
"""URLs, each with the number of its line."""


class Lines:
    """The URLs of a file's lines."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._reader = SeedLineParser(_AS_WRITTEN)
        self.seen = 0
        self.bad: list[tuple[int, str]] = []
        """Lines that are no URLs, as far as that can be said here; whoever tells of them takes them away."""

    def portions(self) -> Iterator[Portion]:
        """One portion after the other; the last one may be empty, and still have bad lines with it."""
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
            portion.append((self.seen, seed.url))
            size += len(seed.url)
            if len(portion) == PORTION or size >= _BYTES:
                yield portion
                portion, size = [], 0
        yield portion
