"""Documents as rows of the database: what the parser `markdown` found on a page, its content compressed.

The rule: the whole content is stored, with the places of its blocks and headings; `documents/content` reads it, without the blocks that
stand on many pages of the site.
"""

import json
from collections.abc import Mapping
from datetime import date
from typing import Any, Final

import zstandard

from holdfast.db.documents import DocumentRow

_LEVEL: Final = 3
_CONTENT: Final = ("markdown", "text", "blocks", "headings")
"""The fields of a result that are the content; the others say what is known of it."""


def document_row(found: Mapping[str, Any]) -> DocumentRow | None:
    """Return the row of what the parser `markdown` found on a page; None: it has no content."""
    if not found.get("markdown"):
        return None
    published = found.get("published")
    text, blocks = found["text"], found["blocks"]
    headings = {in_markdown for _, _, in_markdown, _ in found["headings"]}
    return DocumentRow(
        extractor=found["extractor"],
        kind=found["kind"],
        words=found["words"],
        block_hashes=[block[4] for block in blocks],
        block_words=[len(text[block[2] : block[3]].split()) for block in blocks],
        heading_blocks=[number for number, block in enumerate(blocks) if block[0] in headings],
        body=_pack(found),
        language=found.get("language"),
        title=found.get("title"),
        author=found.get("author"),
        site_name=found.get("site_name"),
        published=date.fromisoformat(published) if published else None,
    )


def text_body(found: Mapping[str, Any]) -> bytes | None:
    """Return the text that `markdown` or `main-text` found on a page as the database stores it; None: there is none."""
    text = found.get("text")
    return _compress(text) if text else None


def _pack(found: Mapping[str, Any]) -> bytes:
    return _compress(json.dumps({name: found[name] for name in _CONTENT}, ensure_ascii=False, separators=(",", ":")))


def _compress(text: str) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(text.encode("utf-8", "replace"))
