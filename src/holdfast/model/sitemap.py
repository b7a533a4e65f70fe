"""Sitemaps: what one lists, its limits, and the summary of how it was read.

The rule: these are values. URLs are as written (white space stripped, entities decoded), neither resolved nor judged. Text is clean: no
NUL, no lone surrogate. Times are aware and in UTC.
"""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class SitemapFormat(StrEnum):
    """The format of a sitemap, determined by its content."""

    URLSET = "urlset"
    INDEX = "index"
    RSS = "rss"
    """RSS 0.9x, 1.0 (RDF) and 2.0."""
    ATOM = "atom"
    TEXT = "text"
    """One URL per line."""


class EntryKind(StrEnum):
    """What the URL of an entry leads to."""

    PAGE = "page"
    SITEMAP = "sitemap"


class SkipReason(StrEnum):
    """Why an entry, or a URL of it, is left out."""

    NO_URL = "no_url"
    URL_TOO_LONG = "url_too_long"
    NOT_A_URL = "not_a_url"
    """A line of a text file that is no http(s) URL."""
    CUT_OFF = "cut_off"
    """The file ends inside of its URL."""
    ALTERNATES_OVER_LIMIT = "alternates_over_limit"
    IMAGES_OVER_LIMIT = "images_over_limit"


@dataclass(frozen=True, slots=True)
class SitemapLimits:
    """How much of one sitemap is read. The defaults of the first two are those of the protocol."""

    urls: int = 50_000
    """Entries; the rest is left unread."""
    decoded_bytes: int = 50 * 1024 * 1024
    """Bytes after gzip is decoded; the rest is left unread."""
    url_bytes: int = 2048
    """Length of a URL in UTF-8; longer ones are skipped."""
    alternates: int = 200
    """Per entry."""
    images: int = 1000
    """Per entry: the limit of the image extension."""
    depth: int = 100
    """Elements inside of each other."""


class NewsInfo(NamedTuple):
    """The news extension of an entry."""

    publication_date: datetime | None
    title: str | None
    language: str | None


class SitemapEntry(NamedTuple):
    """One URL that a sitemap or feed lists."""

    url: str
    kind: EntryKind = EntryKind.PAGE
    lastmod: datetime | None = None
    change_frequency: str | None = None
    """`always`, `hourly`, `daily`, `weekly`, `monthly`, `yearly` or `never`."""
    priority: float | None = None
    """From 0 to 1."""
    alternates: tuple[tuple[str, str], ...] = ()
    """Pairs of language and URL; the language is empty if it is not given (a version for other devices)."""
    images: tuple[str, ...] = ()
    """Of the image extension; in feeds the enclosures of type image/*."""
    news: NewsInfo | None = None


@dataclass(slots=True)
class SitemapSummary:
    """How a sitemap was read."""

    format: SitemapFormat | None = None
    """None: it is no sitemap; `problem` says what it is."""
    entries: int = 0
    skipped: Counter[SkipReason] = field(default_factory=Counter)
    problem: str | None = None
    """Why it could be read only in part, leniently, or not at all; None: it is in order."""
    truncated: bool = False
    """Something was left unread, or is missing: a limit was reached, or the file ends early."""
