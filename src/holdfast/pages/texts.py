"""The visible text of pages: as it is kept, or read once more from the archive.

The rule: a page's text is given out as a crawl would keep it today. Of a page that asks not to be indexed there is none.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import zstandard

from holdfast.archive import reader
from holdfast.errors import HoldfastError, NotFound
from holdfast.model.fetch_types import ArchiveRef
from holdfast.model.outcome import PAGES

if TYPE_CHECKING:
    from holdfast.parse.page_parser import PageParser

_MOST: Final = 256 * 1024 * 1024
"""Bytes that a stored text may unpack to; what a crawl keeps is far below."""


@dataclass
class MissingTexts:
    """Pages of which no text could be had, and where it would be."""

    elsewhere: Counter[str] = field(default_factory=Counter)
    """In archive files that are not here, by the worker that wrote them."""
    damaged: int = 0
    """In archive files that cannot be read."""
    not_kept: int = 0
    """Crawled without an archive, and without `--text`."""
    unknown: int = 0
    """Of a server, which does not say why."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.elsewhere.total() + self.damaged + self.not_kept + self.unknown

    def told(self) -> Iterator[str]:
        """A sentence for each kind, with what helps."""
        if self.elsewhere:
            workers = sorted(self.elsewhere)
            some = ", ".join(workers[:3]) + (" …" if len(workers) > 3 else "")
            whose = "worker" if len(workers) == 1 else "workers"
            yield (
                f"{_texts(self.elsewhere.total())} in archive files that are not on this machine, of {whose} {some}: export there, "
                f"or copy their folders into the archive folder here."
            )
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


def is_missing(row: dict[str, Any], text: str | None) -> bool:
    """Whether a page, given its row of an export, should have a text and has none."""
    return text is None and row["outcome"] in PAGES and not row["noindex"] and row["content_length"] != 0


class Texts:
    """Texts of pages, with a parser for those that are not kept. To be used in a `with`: the parser may have processes."""

    def __init__(self, archive: Path | None, missing: MissingTexts | None = None) -> None:
        """`archive` is the folder of this machine's; None: there is none to read from. `missing` counts those that could not be had."""
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

    def of(self, row: dict[str, Any]) -> str | None:
        """The text of a page, given its row of an export; None: nobody has it here."""
        if row["body"] is not None:
            packed = zstandard.ZstdDecompressor().decompress(row["body"], max_output_size=_MOST)
            return packed.decode("utf-8", "replace")
        if row["outcome"] not in PAGES or row["noindex"]:
            return None
        segment = row["archive_segment"]
        if segment is None:
            self._missing.not_kept += is_missing(row, None)
            return None
        if self._archive is None:
            self._missing.elsewhere[_worker(segment)] += 1
            return None
        ref = ArchiveRef(segment, row["archive_offset"], row["archive_length"], bytes(row["payload_digest"] or b""))
        try:
            body = reader.read(self._archive, ref).body
        except NotFound:
            self._missing.elsewhere[_worker(segment)] += 1
            return None
        except (HoldfastError, OSError):
            self._missing.damaged += 1
            return None
        from holdfast.parse.page_parser import PageParser

        self._parser = self._parser or PageParser(links_per_page=1)
        return self._runner.run(self._parser.parse(body, content_type=row["content_type"])).text


def _worker(segment: str) -> str:
    """The worker that wrote a segment: its folder."""
    return segment.partition("/")[0]
