"""Entries of sitemaps and feeds, built from the elements of their XML in document order.

Owns which element of which format means what; where elements come from (expat, or the scan of broken XML) is not known here. The rule:
elements are known by their local name in lower case, whatever their prefix or namespace, and by the element around them. Nothing is
kept of what is not read, and what is read has a limit.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from math import inf
from typing import Final

from holdfast.model.sitemap import (
    EntryKind,
    NewsInfo,
    SitemapEntry,
    SitemapFormat,
    SitemapLimits,
    SitemapSummary,
    SkipReason,
)
from holdfast.parse.html_tokens import collapse_whitespace
from holdfast.parse.sitemap_dates import parse_date

MAX_NEWS_TITLE: Final = 1000
MAX_LANGUAGE: Final = 50
_MAX_NAMES: Final = 1000
"""Names of elements whose meaning is remembered; those beyond are looked up each time."""
_FREQUENCIES: Final = frozenset({"always", "hourly", "daily", "weekly", "monthly", "yearly", "never"})
_HTTP: Final = re.compile(r"https?:", re.IGNORECASE)

# What an element means. The others are names of fields, whose text is kept.
_ENTRY: Final = "<entry>"
_ALTERNATE: Final = "<alternate>"
_FEED_LINK: Final = "<link>"
_MEDIA: Final = "<media>"
_IMAGE: Final = "<image>"
_NEWS: Final = "<news>"
_OTHER: Final = "<other>"
"""An element with children that look like those of an entry, but are not."""
_CONTEXTS: Final = frozenset({_IMAGE, _NEWS, _OTHER})
_MARKS: Final = frozenset({_ENTRY, _ALTERNATE, _FEED_LINK, _MEDIA}) | _CONTEXTS
_DIRECT: Final = "direct"
"""The field of text that stands in an entry itself: some write a URL without `loc`."""

ROOTS: Final = {
    "urlset": SitemapFormat.URLSET,
    "sitemapindex": SitemapFormat.INDEX,
    "rss": SitemapFormat.RSS,
    "rdf": SitemapFormat.RSS,
    "feed": SitemapFormat.ATOM,
}
_PARTS_OF: Final = {
    "url": SitemapFormat.URLSET,
    "sitemap": SitemapFormat.INDEX,
    "channel": SitemapFormat.RSS,
    "item": SitemapFormat.RSS,
    "entry": SitemapFormat.ATOM,
}
"""The format of a file whose root element is missing, by its first element."""

_SITEMAP_ENTRIES: Final = {"url": _ENTRY, "sitemap": _ENTRY}
_ENTRIES: Final = {
    SitemapFormat.URLSET: _SITEMAP_ENTRIES,
    SitemapFormat.INDEX: _SITEMAP_ENTRIES,
    SitemapFormat.RSS: {"item": _ENTRY},
    SitemapFormat.ATOM: {"entry": _ENTRY},
}
_SITEMAP_FIELDS: Final = {
    "loc": "url",
    "lastmod": "lastmod",
    "changefreq": "change_frequency",
    "priority": "priority",
    "link": _ALTERNATE,
    "image": _IMAGE,
    "news": _NEWS,
    "video": _OTHER,
}
_FIELDS: Final = {
    SitemapFormat.URLSET: _SITEMAP_FIELDS,
    SitemapFormat.INDEX: _SITEMAP_FIELDS,
    SitemapFormat.RSS: {
        "link": _FEED_LINK,
        "guid": "id",
        "pubdate": "lastmod",
        "date": "published",
        "updated": "updated",
        "enclosure": _MEDIA,
        "content": _MEDIA,
        "image": _OTHER,
        "source": _OTHER,
    },
    SitemapFormat.ATOM: {
        "link": _FEED_LINK,
        "id": "id",
        "updated": "updated",
        "modified": "updated",
        "published": "published",
        "issued": "published",
        "created": "published",
        "content": _OTHER,
        "summary": _OTHER,
        "source": _OTHER,
    },
}
_CONTEXT_FIELDS: Final = {
    _IMAGE: {"loc": "image"},
    _NEWS: {"publication_date": "news_date", "title": "news_title", "language": "news_language"},
    _OTHER: dict[str, str](),
}


class StopReading(Exception):
    """The rest of the file is not read; its text is the summary's problem."""

    def __init__(self, problem: str, *, truncated: bool = False) -> None:
        """`truncated`: a limit was reached; otherwise the file is no sitemap, or is refused."""
        super().__init__(problem)
        self.problem = problem
        self.truncated = truncated


class _Meanings(dict[str, str | None]):
    """What elements mean in one place of a format, by their names as written; filled as they occur."""

    def __init__(self, by_local_name: Mapping[str, str]) -> None:
        super().__init__()
        self._by_local_name = by_local_name

    def __missing__(self, name: str) -> str | None:
        meaning = self._by_local_name.get(local_name(name))
        if len(self) < _MAX_NAMES:
            self[name] = meaning
        return meaning


def local_name(name: str) -> str:
    """Return the name without its prefix, in lower case."""
    return name.rpartition(":")[2].lower()


class EntryBuilder:
    """Builds entries from the starts, ends and texts of elements, in document order.

    `start` and `end` are called for each element, `text` with what is between them. After: `entries` are complete ones, for the caller to
    take; `summary` counts them.
    """

    def __init__(self, limits: SitemapLimits, summary: SitemapSummary) -> None:
        """`summary` is updated as entries are built."""
        self.entries: list[SitemapEntry] = []
        self.in_entry = False
        self.position: Callable[[], int] = int
        """Returns the position of the current element, for `entry_position`."""
        self.entry_position = 0
        """The position of the entry that is being built."""
        self._limits = limits
        self._max_depth: float = limits.depth
        self._max_text = max(limits.url_bytes, MAX_NEWS_TITLE) + 1
        """Characters of a text that are kept: a URL that is cut is still too long."""
        self._summary = summary
        self._parts: list[str] = []
        self.text = self._parts.append
        self._field: str | None = None
        self._depth = 0
        self._nested = 0
        """Elements inside of the current field with the name of an entry: some write <loc><url>…</url></loc>."""
        self._kind = EntryKind.PAGE
        self._values: dict[str, str] = {}
        self._images: list[str] = []
        self._alternates: list[tuple[str, str]] = []
        self._last_date: tuple[str, datetime | None] = ("", None)
        self._outside = self._inside = _Meanings({})
        self._contexts: dict[str, _Meanings] = {}
        self._meanings: _Meanings = self._outside

    @property
    def in_field(self) -> bool:
        """Whether text is kept at present."""
        return self._field is not None

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        """Begin an element."""
        self._depth += 1
        if self._depth > self._max_depth:
            raise StopReading(f"refused: more than {self._limits.depth} elements inside of each other")
        if self._summary.format is None:
            self._read_root(local_name(name))
        meaning = self._meanings[name]
        if meaning is None:
            return
        if meaning not in _MARKS:
            self._begin_field(meaning)
        elif meaning is _ENTRY:
            self._begin_entry(name, attributes)
        else:
            self._begin_marked(meaning, attributes)

    def end(self, name: str) -> None:
        """End an element. In broken XML it may be one that never began."""
        self._depth -= 1
        meaning = self._meanings[name]
        if meaning is None:
            return
        if meaning == self._field or (meaning is _FEED_LINK and self._field == "url"):
            self._end_field()
        elif meaning is _ENTRY and self.in_entry:
            if self._nested:
                self._nested -= 1
            else:
                self._end_entry()
        elif meaning in _CONTEXTS:
            self._end_field()
            self._meanings = self._inside

    def begin_recovery(self, *, again: bool) -> None:
        """Go on with the scan of broken XML. `again`: it begins at `entry_position`, so the present entry is built anew."""
        self._max_depth = inf  # it counts elements that never end; only expat needs memory for each
        if again:
            self._reset()

    def close(self, *, complete: bool) -> None:
        """End the file. `complete`: a text at its end is whole, since another element began after it."""
        if not complete and self._field is not None:
            if self._field in ("url", _DIRECT):
                self._summary.skipped[SkipReason.CUT_OFF] += 1
                self._reset()
                return
            self._field = None
        if self.in_entry:
            self._end_entry()

    def shorten_text(self) -> None:
        """Cut a text that is longer than any that is kept. Called from time to time, so that memory stays bounded."""
        if self._parts:
            self._parts[:] = ["".join(self._parts).lstrip()[: self._max_text]] if self.in_field else []

    def add_line(self, line: str) -> None:
        """Add the URL of a line of a text file."""
        self._add(SitemapEntry(line))

    def skip(self, reason: SkipReason) -> None:
        """Count something that is left out."""
        self._summary.skipped[reason] += 1

    def _read_root(self, root: str) -> None:
        found = ROOTS.get(root) or _PARTS_OF.get(root)
        if found is None:
            raise StopReading(
                "not a sitemap: HTML" if root == "html" else f"not a sitemap: XML with the root element {root[:50]!r}"
            )
        self._summary.format = found
        self._outside = self._meanings = _Meanings(_ENTRIES[found])
        # An entry may begin or end anywhere in broken XML.
        inside = _FIELDS[found] | _ENTRIES[found]
        self._inside = _Meanings(inside)
        for context, fields in _CONTEXT_FIELDS.items():
            ends = {local: meaning for local, meaning in inside.items() if meaning in (context, _ENTRY)}
            self._contexts[context] = _Meanings(fields | ends)

    def _begin_field(self, field: str) -> None:
        if self._field is not None:
            self._end_field()
        self._field = field
        self._parts.clear()

    def _end_field(self) -> None:
        field = self._field
        if field is None:
            return
        text = "".join(self._parts).strip()
        self._field = None
        self._nested = 0
        self._parts.clear()
        if not text:
            return
        if field == "image":
            self._add_image(text)
        else:
            self._values.setdefault(field, text[: self._max_text])

    def _begin_entry(self, name: str, attributes: Mapping[str, str]) -> None:
        if self.in_entry:
            if self._field == "url" and not "".join(self._parts).strip():
                self._nested += 1
                return
            self._end_entry()
        self.in_entry = True
        self.entry_position = self.position()
        self._kind = EntryKind.SITEMAP if local_name(name) == "sitemap" else EntryKind.PAGE
        self._meanings = self._inside
        if self._summary.format in (SitemapFormat.URLSET, SitemapFormat.INDEX):
            self._begin_field(_DIRECT)
        if attributes and (about := attributes.get("rdf:about")):
            self._values["id"] = about.strip()

    def _begin_marked(self, meaning: str, attributes: Mapping[str, str]) -> None:
        if meaning in _CONTEXTS:
            self._end_field()
            self._meanings = self._contexts[meaning]
            return
        if meaning is _FEED_LINK and "href" not in attributes:
            self._begin_field("url")
            return
        if meaning is _MEDIA:
            if attributes.get("type", "").lower().startswith("image/") and (url := attributes.get("url", "").strip()):
                self._add_image(url)
            return
        url = attributes.get("href", "").strip()
        relations = attributes.get("rel", "alternate" if meaning is _FEED_LINK else "").lower().split()
        if not url:
            return
        if "alternate" in relations:
            if meaning is _FEED_LINK:
                self._values.setdefault("link", url)
            else:
                self._add_alternate(attributes.get("hreflang", "").strip()[:MAX_LANGUAGE], url)
        elif "enclosure" in relations and attributes.get("type", "").lower().startswith("image/"):
            self._add_image(url)

    def _add_image(self, url: str) -> None:
        if self._is_too_long(url):
            self.skip(SkipReason.URL_TOO_LONG)
        elif len(self._images) >= self._limits.images:
            self.skip(SkipReason.IMAGES_OVER_LIMIT)
        else:
            self._images.append(url)

    def _add_alternate(self, language: str, url: str) -> None:
        if self._is_too_long(url):
            self.skip(SkipReason.URL_TOO_LONG)
        elif len(self._alternates) >= self._limits.alternates:
            self.skip(SkipReason.ALTERNATES_OVER_LIMIT)
        else:
            self._alternates.append((language, url))

    def _end_entry(self) -> None:
        self._end_field()
        values = self._values
        get = values.get
        url = get("url") or get("link")
        if url is None:
            url = next((text for field in (_DIRECT, "id") if (text := get(field)) and _HTTP.match(text)), None)
        if url and self._is_too_long(url):
            self.skip(SkipReason.URL_TOO_LONG)
        elif not url:
            self.skip(SkipReason.NO_URL)
        else:
            news = None
            if "news_date" in values or "news_title" in values or "news_language" in values:
                news = self._news()
            frequency = get("change_frequency")
            self._add(
                SitemapEntry(
                    url,
                    self._kind,
                    self._lastmod(),
                    frequency.lower() if frequency and frequency.lower() in _FREQUENCIES else None,
                    _priority(values["priority"]) if "priority" in values else None,
                    tuple(self._alternates) if self._alternates else (),
                    tuple(dict.fromkeys(self._images)) if self._images else (),
                    news,
                )
            )
        self._reset()

    def _add(self, entry: SitemapEntry) -> None:
        if self._summary.entries >= self._limits.urls:
            raise StopReading(f"more than {self._limits.urls} URLs", truncated=True)
        self._summary.entries += 1
        self.entries.append(entry)

    def _reset(self) -> None:
        self.in_entry = False
        self._field = None
        self._nested = 0
        self._parts.clear()
        self._meanings = self._outside
        self._values.clear()
        if self._images:
            self._images = []
        if self._alternates:
            self._alternates = []

    def _is_too_long(self, url: str) -> bool:
        limit = self._limits.url_bytes
        return len(url) > limit or (len(url) * 4 > limit and not url.isascii() and len(url.encode()) > limit)

    def _lastmod(self) -> datetime | None:
        values = self._values
        text = values.get("lastmod") or values.get("updated") or values.get("published")
        if not text:
            return None
        if text != self._last_date[0]:  # neighbours often have the same date
            self._last_date = (text, parse_date(text))
        return self._last_date[1]

    def _news(self) -> NewsInfo:
        get = self._values.get
        return NewsInfo(
            parse_date(get("news_date", "")),
            collapse_whitespace(get("news_title", ""))[:MAX_NEWS_TITLE] or None,
            get("news_language", "")[:MAX_LANGUAGE] or None,
        )


def _priority(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None
