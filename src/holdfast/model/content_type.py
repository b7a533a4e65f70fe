"""Content types: the groups of them that a job may archive beside HTML, and what the first bytes of a body say.

The rule: a header decides whether a body is read, and only where it says nothing do the first bytes decide. What a body is parsed as is
decided by its bytes first. All functions are pure.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Final


class ContentGroup(StrEnum):
    """Content types that a job takes together, beside HTML and plain text, which every job takes."""

    PDF = "pdf"
    JSON = "json"
    XML = "xml"
    TEXT = "text"
    """CSV, Markdown, calendars and the like."""
    FEEDS = "feeds"
    """RSS, Atom and JSON feeds."""
    OFFICE = "office"
    """Documents of Microsoft Office and OpenDocument, and RTF."""
    ALL = "all"
    """All of these."""


class BodyKind(StrEnum):
    """How the body of a page is parsed."""

    HTML = "html"
    TEXT = "text"
    """It is decoded, and is its own text."""
    PDF = "pdf"
    BINARY = "binary"
    """It has no text."""


SNIFFED_BYTES: Final = 1024
"""The first bytes of a body, by which it is judged. A PDF may begin with other bytes: as many as its readers skip."""
_ALL: Final = frozenset(ContentGroup) - {ContentGroup.ALL}
_HTML: Final = frozenset({"", "text/html", "application/xhtml+xml"})
_GENERIC: Final = frozenset(
    {
        *("application/octet-stream", "application/x-octet-stream", "binary/octet-stream", "application/binary"),
        *("application/download", "application/x-download", "application/force-download"),
        *("application/zip", "application/x-zip-compressed", "application/x-ole-storage"),
    }
)
"""Types that say nothing of the content, or only how it is packed."""
_GROUPS: Final = {
    ContentGroup.PDF: frozenset({"application/pdf", "application/x-pdf"}),
    ContentGroup.JSON: frozenset(
        {"application/json", "text/json", "application/jsonl", "application/x-ndjson", "application/x-json"}
    ),
    ContentGroup.XML: frozenset({"application/xml", "text/xml"}),
    ContentGroup.FEEDS: frozenset(
        {"application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/feed+json"}
    ),
    ContentGroup.OFFICE: frozenset(
        {
            *("application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint"),
            *("application/vnd.ms-office", "application/rtf", "application/x-rtf", "text/rtf"),
        }
    ),
}
_BY_TYPE: Final = {name: group for group, names in _GROUPS.items() for name in names}
_OFFICE_PREFIXES: Final = (
    "application/vnd.openxmlformats-officedocument.",
    "application/vnd.oasis.opendocument.",
    "application/vnd.ms-word.",
    "application/vnd.ms-excel.",
    "application/vnd.ms-powerpoint.",
)
_PARTS_OF_PAGES: Final = frozenset({"text/css", "text/javascript", "text/ecmascript", "text/jscript", "text/vtt"})
"""Types of text that a page loads, and that no person reads."""
_TEXTS: Final = frozenset({ContentGroup.TEXT, ContentGroup.JSON, ContentGroup.XML, ContentGroup.FEEDS})
_KINDS: Final = {
    ContentGroup.PDF: BodyKind.PDF,
    ContentGroup.OFFICE: BodyKind.BINARY,
    ContentGroup.FEEDS: BodyKind.TEXT,
}
_PDF: Final = b"%PDF-"
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_RTF: Final = b"{\\rtf"
_ZIP: Final = b"PK\x03\x04"
_ODF: Final = b"mimetypeapplication/vnd.oasis.opendocument."
_ZIP_NAME: Final = 30
"""Bytes of a ZIP before the name of its first file."""
_OOXML: Final = (b"[Content_Types].xml", b"_rels/.rels", b"docProps/", b"word/", b"xl/", b"ppt/")
"""Beginnings of the name of the first file."""
_FEED_ROOT: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<[?!][^>]{0,500}>\s*)*+<(?:[\w.-]{1,30}:)?(?:rss|feed|RDF)[\s>]"
)


@lru_cache(maxsize=256)
def media_type(header: str | None) -> str:
    """Return the media type of a Content-Type in lower case, the last one if it was repeated; empty: it has none."""
    for part in reversed((header or "").split(",")):
        name = part.partition(";")[0].strip().lower()
        if "/" in name:
            return name
    return ""


@lru_cache(maxsize=256)
def group_of(name: str) -> ContentGroup | None:
    """Return the group of a media type; None: it has none, such as HTML, plain text and images."""
    if (group := _BY_TYPE.get(name)) is not None:
        return group
    if name.startswith(_OFFICE_PREFIXES):
        return ContentGroup.OFFICE
    if name.startswith("image/") or name in _HTML or name == "text/plain" or name in _PARTS_OF_PAGES:
        return None
    if name.endswith("+json"):
        return ContentGroup.JSON
    if name.endswith("+xml"):
        return ContentGroup.XML
    return ContentGroup.TEXT if name.startswith("text/") else None


def expand(groups: Iterable[ContentGroup]) -> frozenset[ContentGroup]:
    """Return the groups, with `all` as all of them."""
    named = frozenset(groups)
    return _ALL if ContentGroup.ALL in named else named


def is_wanted(name: str, wanted: frozenset[ContentGroup]) -> bool | None:
    """Whether a body of this media type is read for a job that takes the groups `wanted` (expanded); None: its first bytes decide, by
    `is_wanted_by_content`."""
    if not wanted:
        return False
    group = group_of(name)
    if group in wanted:
        return True
    if name in _GENERIC or (group is ContentGroup.XML and ContentGroup.FEEDS in wanted):
        return None
    return False


def is_wanted_by_content(start: bytes, wanted: frozenset[ContentGroup]) -> bool:
    """Whether a body that begins with these bytes is read for a job that takes the groups `wanted`."""
    return sniff(start) in wanted


def sniff(start: bytes) -> ContentGroup | None:
    """Return the group of a body by its first bytes: PDF, an office document, or a feed; None: none of them."""
    if _PDF in start[:SNIFFED_BYTES]:
        return ContentGroup.PDF
    if start.startswith((_OLE, _RTF)):
        return ContentGroup.OFFICE
    if start.startswith(_ZIP):
        return ContentGroup.OFFICE if start.startswith((*_OOXML, _ODF), _ZIP_NAME) else None
    return ContentGroup.FEEDS if _FEED_ROOT.match(start[:SNIFFED_BYTES]) else None


def kind_of(body: bytes, header: str | None) -> BodyKind:
    """Return how a body with this Content-Type is parsed."""
    if body.startswith(_PDF):
        return BodyKind.PDF
    name = media_type(header)
    if name in _HTML:
        return BodyKind.HTML if name or sniff(body[:SNIFFED_BYTES]) is not ContentGroup.OFFICE else BodyKind.BINARY
    if name == "text/plain" or group_of(name) in _TEXTS:
        return BodyKind.TEXT
    if (found := sniff(body[:SNIFFED_BYTES])) is not None:
        return _KINDS[found]
    return BodyKind.HTML if name in _GENERIC else BodyKind.BINARY


def read_groups(text: str) -> tuple[ContentGroup, ...]:
    """Read names of groups with commas between them, each once, in the order of the enumeration. Raises ValueError."""
    names = {name.strip().lower() for name in text.split(",") if name.strip()}
    if unknown := sorted(names - set(ContentGroup)):
        raise ValueError(f"{unknown[0]!r} is no group of types; there are {', '.join(ContentGroup)}")
    return tuple(group for group in ContentGroup if group in names)
