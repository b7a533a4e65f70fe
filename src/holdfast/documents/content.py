"""The content of a document as it is stored: Markdown, text, blocks and headings in one compressed value.

The rule: the whole content is stored, and what stands on many pages of the site is left out when it is read. So it can be decided again
without the page.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import zstandard

from holdfast.documents.records import DocumentHeading

_MAX_BYTES: Final = 64 * 1024 * 1024
"""Decompressed bytes of a stored content; what a parser may return is far below."""

Span = tuple[int, int, int, int]
"""A block: begin and end in the Markdown, begin and end in the text. A hash of its words follows in what the parser finds."""


@dataclass(frozen=True, slots=True)
class Content:
    """Markdown and text of a document, with its headings."""

    markdown: str
    text: str
    headings: list[DocumentHeading]


def read_content(body: bytes, removed: Sequence[int] = ()) -> Content:
    """Return a stored content without the blocks `removed`, by their numbers from 0."""
    return compose(_stored(body), removed)


def read_text(body: bytes, removed: Sequence[int] = ()) -> str:
    """Return the text of a stored content without these blocks: what `read_content` has as `text`, without making the rest."""
    stored = _stored(body)
    text = str(stored["text"])
    if not removed:
        return text
    return _without(text, [(block[2], block[3]) for block in stored["blocks"]], set(removed))[0]


def _stored(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zstandard.ZstdDecompressor().decompress(body, max_output_size=_MAX_BYTES))
    return found


def compose(found: Mapping[str, Any], removed: Sequence[int] = ()) -> Content:
    """Return the content that a parser found, without the blocks `removed`."""
    markdown, text = str(found["markdown"]), str(found["text"])
    if not removed:
        return Content(markdown, text, _headings(found["headings"], {}, {}))
    gone = set(removed)
    blocks: list[Span] = [(block[0], block[1], block[2], block[3]) for block in found["blocks"]]
    in_markdown, markdown_moves = _without(markdown, [(span[0], span[1]) for span in blocks], gone)
    in_text, text_moves = _without(text, [(span[2], span[3]) for span in blocks], gone)
    return Content(in_markdown, in_text, _headings(found["headings"], markdown_moves, text_moves, blocks, gone))


def _without(whole: str, spans: Sequence[tuple[int, int]], gone: set[int]) -> tuple[str, dict[int, int]]:
    """The text without some of its blocks, each with the separator after it; and where each block that stays begins now."""
    pieces: list[str] = []
    moved: dict[int, int] = {}
    size = 0
    for number, (begin, end) in enumerate(spans):
        after = spans[number + 1][0] if number + 1 < len(spans) else len(whole)
        if number in gone:
            continue
        moved[begin] = size
        piece = whole[begin : max(end, after)]
        pieces.append(piece)
        size += len(piece)
    kept = "".join(pieces)
    ending = whole[len(whole.rstrip("\n")) :]
    return (kept.rstrip("\n") + ending if kept.strip() else ""), moved


def _headings(
    rows: Sequence[Sequence[Any]],
    markdown_moves: Mapping[int, int],
    text_moves: Mapping[int, int],
    blocks: Sequence[Span] = (),
    gone: set[int] | None = None,
) -> list[DocumentHeading]:
    """The headings that stay, with the titles above each. A row is level, title, and where it begins in Markdown and text."""
    left_out = {blocks[number][0] for number in gone or ()}
    path: list[tuple[int, str]] = []
    found = []
    for level, title, in_markdown, in_text in rows:
        if in_markdown in left_out:
            continue
        path = [*(one for one in path if one[0] < level), (level, title)]
        places = markdown_moves.get(in_markdown, in_markdown), text_moves.get(in_text, in_text)
        found.append(DocumentHeading(level, title, [name for _, name in path], *places))
    return found
