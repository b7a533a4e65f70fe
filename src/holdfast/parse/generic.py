"""The built-in parser `generic`: title, main text, metadata, links and structured data of any page.

The rule: whatever the page is, the result keeps to the limits: texts are cut, and what would not fit is left out and said so.
"""

import json
import math
from typing import Any, Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from holdfast.model.parsed import MAX_KEY, Document, Extracted, clean
from holdfast.parse import structured
from holdfast.parse.html import parse_html
from holdfast.parse.page import is_plain
from holdfast.parse.plugin import join, text, tree
from holdfast.parse.words import folded

version: Final = "2"

MAX_TEXT: Final = 150_000
"""Characters, which are at most four bytes each."""
MAX_LINKS: Final = 1000
MAX_LISTED: Final = 100
_MAX_LINK_BYTES: Final = 128 * 1024
_MAX_STRUCTURED: Final = 192 * 1024
_MAX_META: Final = 2000
_DEPTH: Final = 20
_ENOUGH: Final = 200
"""Characters: an element with less is not what the page is about."""
_AROUND: Final = (
    "script",
    "style",
    "noscript",
    "template",
    "svg",
    "iframe",
    "nav",
    "header",
    "footer",
    "aside",
    "form",
    "button",
)
_MAIN: Final = ("main", "[role=main]", "article")


def parse(document: Document) -> Extracted:
    """What a page says. Bodies that are plain text have only that."""
    kind = (document.content_type or "").partition(";")[0].strip().lower()
    if is_plain(document.content_type):
        return Extracted({"content_type": kind, "text": folded(text(document))[:MAX_TEXT]})
    markup = text(document).encode("utf-8", "replace")
    parsed = parse_html(markup, links_per_page=MAX_LINKS)
    page = tree(document)
    base = join(document.url, parsed.base) or document.url
    links = _absolute(base, parsed.links)
    data: dict[str, Any] = {
        "content_type": kind or None,
        "title": parsed.title,
        "description": parsed.description,
        "language": _language(page),
        "canonical": join(base, parsed.canonical),
        "meta": _meta(page),
        "headings": [structured.seen_text(node)[:1000] for node in page.css("h1, h2")[:MAX_LISTED]],
        "images": _absolute(base, parsed.images)[:MAX_LISTED],
        "links": links,
        "links_left_out": parsed.links_cut + len(parsed.links) - len(links),
    }
    found = structured.read(page, document.url)
    data["structured"] = _fitting(found)
    # Last, since it takes elements out of the tree.
    data["text"] = _main_text(page, parsed.text)[:MAX_TEXT]
    return Extracted(data)


def _absolute(base: str, written: list[str]) -> list[str]:
    """As many as fit."""
    found, size = [], 0
    for address in dict.fromkeys(joined for one in written if (joined := join(base, one))):
        size += len(address.encode("utf-8", "replace"))
        if size > _MAX_LINK_BYTES:
            break
        found.append(address)
    return found


def _language(page: LexborHTMLParser) -> str | None:
    root = page.root
    return folded((root.attributes.get("lang") if root else None) or "")[:50] or None


def _meta(page: LexborHTMLParser) -> dict[str, str]:
    """What `meta` elements say by name; the first of a name counts."""
    found: dict[str, str] = {}
    for node in page.tags("meta"):
        attributes = node.attributes
        name = folded((attributes.get("name") or attributes.get("property") or "").lower())
        content = folded(attributes.get("content") or "")[:_MAX_META]
        if name and content and len(name) <= MAX_KEY and len(found) < MAX_LISTED:
            found.setdefault(name, content)
    return found


def _fitting(found: structured.Structured) -> dict[str, Any]:
    """The structured data as JSON takes it; of what is too long, the grammars that fit."""
    kept: dict[str, Any] = {}
    left = _MAX_STRUCTURED
    for name in structured.Structured.__slots__:
        value = _plain(getattr(found, name), _DEPTH)
        size = len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        if value and size <= left:
            kept[name] = value
            left -= size
        elif value:
            kept.setdefault("left_out", []).append(name)
    return kept


def _plain(value: Any, depth: int) -> Any:
    """`value` without what may not be kept: too deep, too long a key, no number."""
    if isinstance(value, dict | list) and depth == 0:
        return None
    if isinstance(value, dict):
        return {key: _plain(part, depth - 1) for key, part in value.items() if len(key) <= MAX_KEY}
    if isinstance(value, list):
        return [_plain(part, depth - 1) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None
    return clean(value) if isinstance(value, str) else None


def _main_text(page: LexborHTMLParser, whole: str) -> str:
    """The text that the page is about: of the element that says so, else of the one with most paragraphs; else all that is seen.

    Before: the tree is whole. After: what stands around the text is no longer in it.
    """
    for name in _AROUND:
        for node in page.tags(name):
            if not _holds_main(node):
                node.decompose(recursive=True)
    for selector in _MAIN:
        found = page.css(selector)
        if len(found) == 1 and len(words := _words(found[0])) >= _ENOUGH:
            return words
    return _densest(page) or whole


def _holds_main(node: LexborNode) -> bool:
    """Some pages are one form."""
    return node.tag in {"form", "header"} and node.css_first("main, article, [role=main]") is not None


def _densest(page: LexborHTMLParser) -> str | None:
    """The text of the element that has most text in paragraphs of its own."""
    weights: dict[int, int] = {}
    parents: dict[int, LexborNode] = {}
    for paragraph in page.tags("p"):
        parent = paragraph.parent
        if parent is not None:
            parents.setdefault(parent.mem_id, parent)
            weights[parent.mem_id] = weights.get(parent.mem_id, 0) + len(paragraph.text(deep=True))
    if not weights or max(weights.values()) < _ENOUGH:
        return None
    return _words(parents[max(weights, key=lambda one: weights[one])])


def _words(node: LexborNode) -> str:
    return folded(node.text(separator=" ", strip=True))
