"""The built-in parser `markdown`: the main content of a page as a document, for search, language models and people.

The rule: a page without readable content gives nothing, and neither does one that asks not to be indexed (`noindex`): so its document is
removed where it had one before. What is left out because it stands on many pages of the site is decided later, when more pages are known.
"""

from typing import Any, Final

from holdfast.model.content_type import BodyKind, kind_of
from holdfast.model.document import Document as MainContent
from holdfast.model.parse_result import Document, Extracted
from holdfast.parse.html import is_noindex
from holdfast.parse.plugin_api import tree
from holdfast.parse.text.extract import VERSION, extract_from_tree

version: Final = VERSION


def parse(document: Document) -> Extracted:
    """Extract the main content of HTML that may be indexed; nothing of anything else."""
    if kind_of(document.body, document.content_type) is not BodyKind.HTML:
        return Extracted()
    page = tree(document)
    if is_noindex(page, document.headers.get("x-robots-tag")):
        return Extracted()
    found = extract_from_tree(page, document.url)
    return Extracted(as_data(found)) if found.markdown else Extracted()


def as_data(found: MainContent) -> dict[str, Any]:
    """The document as JSON values."""
    return {
        "markdown": found.markdown,
        "text": found.text,
        "blocks": [
            [block.markdown_start, block.markdown_end, block.text_start, block.text_end, block.block_hash]
            for block in found.blocks
        ],
        "headings": [[one.level, one.title, one.markdown_offset, one.text_offset] for one in found.headings],
        "title": found.title,
        "author": found.author,
        "published": found.published.isoformat() if found.published else None,
        "language": found.language,
        "site_name": found.site_name,
        "kind": str(found.kind),
        "words": found.words,
        "extractor": found.extractor,
    }
