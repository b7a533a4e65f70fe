"""The text of pages: from the database, or parsed again from the archive.

The rule: a text is what a crawl would store today: the main text, or all visible text of a page that has none. A page with noindex has
no text.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

import zstandard

from holdfast.archive.reader import ArchiveReader
from holdfast.errors import ArchiveUnavailable, HoldfastError, SegmentMissing
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import PAGES
from holdfast.model.parse_result import Document as ParserInput
from holdfast.pages.records import StoredPage

if TYPE_CHECKING:
    from holdfast.parse.page_parser import PageParser

_MAX_BYTES: Final = 256 * 1024 * 1024
"""Decompressed bytes of a stored text; what a crawl stores is far below."""


@dataclass
class MissingTexts:
    """Counts of pages whose text is not available here, by where it is."""

    elsewhere: Counter[str] = field(default_factory=Counter)
    """In archive files on other machines, by the worker that wrote them."""
    on_machines: Counter[str] = field(default_factory=Counter)
    """Likewise, by the machine that has not uploaded them yet."""
    lost: int = 0
    """Lost with their machine."""
    unavailable: int = 0
    """In an object store that does not answer."""
    why: str = ""
    """Why it does not."""
    damaged: int = 0
    """In archive files that cannot be read."""
    not_kept: int = 0
    """Crawled without an archive, and without `--text`."""
    unknown: int = 0
    """Missing on a server, which does not say why."""

    @property
    def total(self) -> int:
        """All of them."""
        found = self.elsewhere.total() + self.on_machines.total() + self.lost + self.unavailable
        return found + self.damaged + self.not_kept + self.unknown

    def sentences(self) -> Iterator[str]:
        """A sentence for each count, with a remedy."""
        if self.elsewhere:
            workers = sorted(self.elsewhere)
            some = ", ".join(workers[:3]) + (" …" if len(workers) > 3 else "")
            whose = "worker" if len(workers) == 1 else "workers"
            yield (
                f"{_texts(self.elsewhere.total())} in archive files that are not on this machine, of {whose} {some}: export there, "
                f"or copy their folders into the archive folder here."
            )
        for machine, count in sorted(self.on_machines.items()):
            yield f"{_texts(count)} in archive files that are still on machine {machine}: export again when it has uploaded them."
        if self.lost:
            yield f"{_texts(self.lost)} lost with their machine: `holdfast replay --lost` fetches their pages again."
        if self.unavailable:
            yield f"{_texts(self.unavailable)} out of reach: {self.why}"
        if self.damaged:
            yield f"{_texts(self.damaged)} in archive files that cannot be read: `holdfast verify` names them."
        if self.not_kept:
            yield (
                f"{_texts(self.not_kept)} nowhere: the job was crawled with `--no-archive` and without `--text`, or the pages have "
                "no words."
            )
        if self.unknown:
            yield f"{_texts(self.unknown)} not on the server's machine: `holdfast export` on the machine that crawled has them."


def _texts(count: int) -> str:
    return f"{count:,} text is" if count == 1 else f"{count:,} texts are"


def has_text(outcome: str, noindex: bool, content_length: int) -> bool:
    """Return whether a page should have a text."""
    return outcome in PAGES and not noindex and content_length != 0


class Texts:
    """Reads the texts of pages, with a parser for those that are not stored. A context manager: the parser may have processes."""

    def __init__(self, archive: ArchiveReader, missing: MissingTexts | None = None) -> None:
        """`missing` counts texts that are not available."""
        self._archive = archive
        self._missing = missing if missing is not None else MissingTexts()
        self._runner = asyncio.Runner()
        self._parser: PageParser | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._parser:
            self._runner.run(self._parser.aclose())
        self._runner.close()

    def read(self, stored: StoredPage) -> str | None:
        """Return the text of a page; None: it has none, or it is not available here."""
        page = stored.page
        if stored.body is not None:
            return decompress(stored.body)
        if page.outcome not in PAGES or page.noindex:
            return None
        segment = page.archive_segment
        if segment is None:
            self._missing.not_kept += has_text(page.outcome, page.noindex, page.content_length)
            return None
        ref = ArchiveRef(segment, page.archive_offset or 0, page.archive_length or 0, stored.payload_digest or b"")
        try:
            return self.read_archived(ref, page.content_type, main=True)
        except ArchiveUnavailable as problem:
            self._missing.unavailable += 1
            self._missing.why = str(problem)
        except SegmentMissing as problem:
            if problem.lost:
                self._missing.lost += 1
            elif problem.machine is not None:
                self._missing.on_machines[problem.machine] += 1
            else:
                self._missing.elsewhere[worker_of(segment)] += 1
        except (HoldfastError, OSError):
            self._missing.damaged += 1
        return None

    def read_archived(self, ref: ArchiveRef, content_type: str | None, *, main: bool = False) -> str:
        """Return the text of an archived page: with `main` the main text, where it has one that can be read in this process; else all
        visible text. Raises SegmentMissing if its file cannot be read from this machine, ArchiveUnavailable, HoldfastError or OSError if
        it cannot be read at all."""
        stored = self._archive.read(ref)
        from holdfast.parse import main_text, risk_check
        from holdfast.parse.page_parser import PageParser

        if main and risk_check.assess(stored.body) is risk_check.Risk.SAFE:
            given = ParserInput(stored.url, stored.body, content_type, stored.headers, stored.fetched_at)
            if text := main_text.parse(given).data.get("text"):
                return str(text)
        self._parser = self._parser or PageParser(links_per_page=1)
        return self._runner.run(self._parser.parse(stored.body, content_type=content_type)).text


def decompress(body: bytes) -> str:
    """Return a text as the database stores it."""
    return zstandard.ZstdDecompressor().decompress(body, max_output_size=_MAX_BYTES).decode("utf-8", "replace")


def worker_of(segment: str) -> str:
    """Return the worker that wrote a segment: its folder."""
    return segment.partition("/")[0]
