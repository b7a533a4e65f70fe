"""The built-in parser `generic`: title, main text, metadata, links and structured data of any page.

The rule: the result of any page keeps to the limits: texts are truncated, and what does not fit is left out and named in the result.
"""

import json
import math
from typing import Any, Final

from selectolax.lexbor import LexborHTMLParser

from holdfast.model.content_type import BodyKind, kind_of
from holdfast.model.parse_result import MAX_KEY, Document, Extracted, clean_text
from holdfast.parse import structured_data
from holdfast.parse.html import parse_html
from holdfast.parse.html_tokens import collapse_whitespace
from holdfast.parse.plugin_api import absolute_url, text, tree
from holdfast.parse.text.extract import extract_from_tree

version: Final = "3"

MAX_TEXT: Final = 150_000
"""Characters, of at most four bytes each."""
MAX_LINKS: Final = 1000
MAX_LIST_LENGTH: Final = 100
_MAX_LINK_BYTES: Final = 128 * 1024
_MAX_STRUCTURED: Final = 192 * 1024
_MAX_META: Final = 2000
_MAX_DEPTH: Final = 20


def parse(document: Document) -> Extracted:
    """Extract all that the parser knows. For text that is not HTML, `data` has only the text; for PDFs and the like only the type."""
    kind = (document.content_type or "").partition(";")[0].strip().lower()
    match kind_of(document.body, document.content_type):
        case BodyKind.TEXT:
            return Extracted({"content_type": kind, "text": collapse_whitespace(text(document))[:MAX_TEXT]})
        case BodyKind.PDF | BodyKind.BINARY:
            return Extracted({"content_type": kind})
    markup = text(document).encode("utf-8", "replace")
    parsed = parse_html(markup, links_per_page=MAX_LINKS)
    page = tree(document)
    base = absolute_url(document.url, parsed.base) or document.url
    links = _absolute_urls(base, parsed.links)
    data: dict[str, Any] = {
        "content_type": kind or None,
        "title": parsed.title,
        "description": parsed.description,
        "language": _language(page),
        "canonical": absolute_url(base, parsed.canonical),
        "meta": _meta(page),
        "headings": [structured_data.visible_text(node)[:1000] for node in page.css("h1, h2")[:MAX_LIST_LENGTH]],
        "images": _absolute_urls(base, parsed.images)[:MAX_LIST_LENGTH],
        "links": links,
        "links_left_out": parsed.links_cut + len(parsed.links) - len(links),
    }
    found = structured_data.extract(page, document.url)
    data["structured"] = _within_limit(found)
    data["text"] = (extract_from_tree(page, document.url).text or parsed.text)[:MAX_TEXT]
    return Extracted(data)


def _absolute_urls(base: str, hrefs: list[str]) -> list[str]:
    """Resolve URLs, up to `_MAX_LINK_BYTES` in all."""
    found, size = [], 0
    for address in dict.fromkeys(joined for one in hrefs if (joined := absolute_url(base, one))):
        size += len(address.encode("utf-8", "replace"))
        if size > _MAX_LINK_BYTES:
            break
        found.append(address)
    return found


def _language(page: LexborHTMLParser) -> str | None:
    root = page.root
    return collapse_whitespace((root.attributes.get("lang") if root else None) or "")[:50] or None


def _meta(page: LexborHTMLParser) -> dict[str, str]:
    """Return the content of `meta` elements by name; the first of a name counts."""
    found: dict[str, str] = {}
    for node in page.tags("meta"):
        attributes = node.attributes
        name = collapse_whitespace((attributes.get("name") or attributes.get("property") or "").lower())
        content = collapse_whitespace(attributes.get("content") or "")[:_MAX_META]
        if name and content and len(name) <= MAX_KEY and len(found) < MAX_LIST_LENGTH:
            found.setdefault(name, content)
    return found


def _within_limit(found: structured_data.StructuredData) -> dict[str, Any]:
    """Return the structured data as JSON values, up to `_MAX_STRUCTURED` bytes; notations that do not fit are named in `left_out`."""
    kept: dict[str, Any] = {}
    bytes_left = _MAX_STRUCTURED
    for name in structured_data.StructuredData.__slots__:
        value = _json_value(getattr(found, name), _MAX_DEPTH)
        size = len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        if value and size <= bytes_left:
            kept[name] = value
            bytes_left -= size
        elif value:
            kept.setdefault("left_out", []).append(name)
    return kept


def _json_value(value: Any, depth: int) -> Any:
    """Return `value` as allowed JSON: values that are nested too deep, keys that are too long, and numbers out of range are dropped."""
    if isinstance(value, dict | list) and depth == 0:
        return None
    if isinstance(value, dict):
        return {key: _json_value(part, depth - 1) for key, part in value.items() if len(key) <= MAX_KEY}
    if isinstance(value, list):
        return [_json_value(part, depth - 1) for part in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if abs(value) < 2**63 else None
    return clean_text(value) if isinstance(value, str) else None
