"""The visible text of pages: as it is kept, or read once more from the archive.

The rule: a page's text is given out as a crawl would keep it today. Of a page that asks not to be indexed there is none.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import zstandard

from holdfast.archive import reading
from holdfast.errors import HoldfastError
from holdfast.model.page import ArchiveRef

if TYPE_CHECKING:
    from holdfast.parse.isolate import PageParser

_MOST: Final = 256 * 1024 * 1024
"""Bytes that a stored text may unpack to; what a crawl keeps is far below."""


class Texts:
    """Texts of pages, with a parser for those that are not kept. To be used in a `with`: the parser may have processes."""

    def __init__(self, archive: Path | None) -> None:
        """`archive` is the folder of this machine's; None: there is none to read from."""
        self._archive = archive
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
        if self._archive is None or row["archive_segment"] is None or row["noindex"] or row["outcome"] != "ok":
            return None
        ref = ArchiveRef(
            row["archive_segment"], row["archive_offset"], row["archive_length"], bytes(row["payload_digest"] or b"")
        )
        try:
            body = reading.read(self._archive, ref).body
        except (HoldfastError, OSError):
            return None  # on another machine, or damaged: `holdfast verify` says which
        from holdfast.parse.isolate import PageParser

        self._parser = self._parser or PageParser(links_per_page=1)
        return self._runner.run(self._parser.parse(body, content_type=row["content_type"])).text
