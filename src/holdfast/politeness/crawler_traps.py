"""Crawler traps: URLs that a site generates without end (repeating paths, calendars, parameters, numbers), and endless pagination.

The rule: a trap is recognised from the URL alone, and the reason is reported. A wrong match costs a few pages of an unusual site; a missed
trap may cost the whole crawl of it.

The rule of pagination: a step is a link on the same host whose URL differs from its page's in one number that grows, or a rel=next link of
the same template. It keeps its page's depth. So that endless chains end, they are cut after `crawl.max_pagination` steps, and after
`MAX_BARREN` pages in a row that led to no other new URL each further step counts as depth, like any other link.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from holdfast.settings import Crawl

MAX_PARAMETERS: Final = 20
MAX_SAME_PARAMETER: Final = 5
EARLIEST_YEAR: Final = 1990
YEARS_AHEAD: Final = 2

_LONGEST_PERIOD: Final = 3
"""Maximum number of segments that repeat as a group: a/b/a/b/a/b repeats two."""

# Without other signs of a date the month must have two digits: /t/4521/3 is page 3 of a thread.
_DATE_IN_PATH: Final = re.compile(r"/((?:1[89]|2[01])[0-9]{2})[/-](?:0[1-9]|1[0-2])(?=[/?.-]|\Z)")
_CALENDAR: Final = re.compile(
    r"(?:calend[ae]r|kalender|agenda|events?|schedule|month|day|week|year|date)[a-z_-]*(?:/|=|%2F)"
    r"(?:[a-z]+/)?([0-9]{4})(?![0-9])",
    re.IGNORECASE,
)
_FOUR_DIGITS: Final = re.compile(r"[0-9]{4}")

_DIGIT: Final = re.compile(r"[0-9]")
_NUMBERS: Final = re.compile(r"[0-9]+(?:[-./:][0-9]+)*")
_MAYBE_ID: Final = re.compile(r"[0-9a-fA-F]{8}")
_ID: Final = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?<![0-9a-z])(?=[a-f]*[0-9])[0-9a-f]{8,}(?![0-9a-z])", re.IGNORECASE
)


def trap_reason(url: str, settings: Crawl, this_year: int) -> str | None:
    """The reason why a normalized URL is a trap; None: it is not."""
    start = url.find("/", 8)
    end = url.find("?", start)
    segments = url.count("/", start) if end < 0 else url.count("/", start, end)
    if segments > settings.max_segments:
        return f"it has {segments} path segments, more than {settings.max_segments}"
    limit = settings.max_repeats
    if segments > limit and (repeated := _repeated(url[start : end if end >= 0 else None], limit)):
        return f"its path repeats {repeated} more than {limit} times"
    if end >= 0 and (reason := _too_many_parameters(url[end + 1 :])):
        return reason
    years = _FOUR_DIGITS.findall(url, start)
    if years and not all(EARLIEST_YEAR <= int(year) <= this_year + YEARS_AHEAD for year in years):
        return _endless_calendar(url, start, this_year)
    return None


def _repeated(path: str, limit: int) -> str | None:
    """The group of segments that repeats more than `limit` times."""
    parts = path.split("/")[1:]
    if len(parts) - len(set(parts)) < limit:
        return None
    for period in range(1, _LONGEST_PERIOD + 1):
        same = 0
        for at in range(period, len(parts)):
            same = same + 1 if parts[at] == parts[at - period] else 0
            if same >= period * limit:
                return "/".join(parts[at - period + 1 : at + 1]) or "//"
    return None


def _too_many_parameters(query: str) -> str | None:
    count = query.count("&") + 1
    if count > MAX_PARAMETERS:
        return f"it has {count} parameters, more than {MAX_PARAMETERS}"
    if count > MAX_SAME_PARAMETER:
        names = [piece.partition("=")[0] for piece in query.split("&")]
        for name in set(names):
            if names.count(name) > MAX_SAME_PARAMETER:
                return f"it has the parameter {name} more than {MAX_SAME_PARAMETER} times"
    return None


def _endless_calendar(url: str, start: int, this_year: int) -> str | None:
    for pattern in (_DATE_IN_PATH, _CALENDAR):
        for found in pattern.finditer(url, start):
            if not EARLIEST_YEAR <= int(found[1]) <= this_year + YEARS_AHEAD:
                return f"it leads through a calendar to the year {found[1]}"
    return None


def url_template(url: str) -> str:
    """The URL with every number, date, hexadecimal id and UUID after its host replaced by #."""
    start = max(url.find("/", 8), 0)
    target = url[start:]
    if _MAYBE_ID.search(target):
        target = _ID.sub("#", target)
    return url[:start] + _NUMBERS.sub("#", target)


def template_key(url: str) -> int | None:
    """A 64-bit hash of the template of a normalized URL, the same in every process; None: the URL has no number."""
    return _hash64(url_template(url)) if _DIGIT.search(url, max(url.find("/", 8), 0)) else None


def _hash64(pattern: str) -> int:
    return int.from_bytes(hashlib.blake2b(pattern.encode(), digest_size=8).digest(), "big", signed=True)


class TemplateCount(NamedTuple):
    """The result of counting a URL."""

    over: bool
    """The cap of its template is reached."""
    template: int | None
    """The key under which the store counts the URL once it is inserted; None: it is the only one of its template in this visit."""


_NOT_COUNTED: Final = TemplateCount(over=False, template=None)


class TemplateCounter:
    """Counts the different URLs of each template that a job knows on a domain, in bounded memory.

    Both the number in the store (as loaded, plus what commits inserted) and the number of different URLs in this visit are at most the true
    one, and the larger counts. So one batch of URLs beyond the cap may pass, and no URL below it is cut. A URL that this visit has counted
    is never over, however often it appears.
    """

    __slots__ = ("_cap", "_fresh", "_seen", "_stored")

    MAX_TEMPLATES: Final = 2000
    """Maximum number of templates kept of each kind: the largest in the store, and the newest of this visit."""

    def __init__(self, cap: int, stored: Mapping[int, int] | None = None) -> None:
        """`cap`: `crawl.template_cap`; `stored`: number of URLs by template in the store, for the largest templates."""
        self._cap = cap
        self._stored = dict(stored or {})
        self._fresh: dict[int, int] = {}
        """Like `_stored`, for templates that were not loaded."""
        self._seen: dict[int, _DistinctUrls] = {}

    def count(self, url: str) -> TemplateCount:
        """Count the URL under its template. A URL without numbers is never over."""
        if not _DIGIT.search(url, max(url.find("/", 8), 0)):
            return _NOT_COUNTED
        pattern = url_template(url)
        # A hash of this process: the stable one for the store costs as much as the rest, so it is computed once a template.
        short = hash(pattern)
        seen = self._seen.get(short)
        if seen is None:
            _evict_oldest(self._seen, self.MAX_TEMPLATES)
            seen = self._seen[short] = _DistinctUrls(_hash64(pattern))
        key = seen.key
        known = self._stored.get(key)
        if known is None:
            known = self._fresh.get(key)
        cap = self._cap if known is None or known < self._cap else 0
        over = seen.over(hash(url), cap)
        return TemplateCount(over, key if known is not None or seen.more_than_one else None)

    def add_stored(self, inserted: Mapping[int, int]) -> None:
        """Add the number of URLs by template that a commit has inserted."""
        for key, count in inserted.items():
            if key in self._stored:
                self._stored[key] += count
            else:
                if key not in self._fresh:
                    _evict_oldest(self._fresh, self.MAX_TEMPLATES)
                self._fresh[key] = self._fresh.get(key, 1) + count  # plus the first one, which was not counted


def _evict_oldest(remembered: dict[int, Any], limit: int) -> None:
    if len(remembered) >= limit:
        del remembered[next(iter(remembered))]


class _DistinctUrls:
    """A set of the different URLs of one template: exact at first, then a Bloom filter with 16 bits for each URL up to the cap."""

    __slots__ = ("_bits", "_count", "_exact", "key")

    MAX_EXACT: Final = 64
    MAX_BITS: Final = 1 << 20
    HASHES: Final = 4

    def __init__(self, key: int) -> None:
        """`key`: the key of the template in the store."""
        self.key = key
        self._exact: set[int] = set()
        self._bits: bytearray | None = None
        self._count = 0

    def over(self, url: int, cap: int) -> bool:
        """Add a URL, given by its hash. Returns True if it is new and `cap` is reached."""
        if self._known(url):
            return False
        if self._count >= cap:
            return True
        self._count += 1
        if self._bits is None and len(self._exact) < self.MAX_EXACT:
            self._exact.add(url)
            return False
        if self._bits is None:
            self._bits = bytearray(min(16 * cap, self.MAX_BITS) // 8 + 1)
            for earlier in self._exact:
                self._set(self._bits, earlier)
            self._exact.clear()
        self._set(self._bits, url)
        return False

    @property
    def more_than_one(self) -> bool:
        """More than one URL was counted."""
        return self._count > 1

    def _known(self, url: int) -> bool:
        bits = self._bits
        if bits is None:
            return url in self._exact
        return all(bits[at >> 3] & (1 << (at & 7)) for at in self._positions(url, len(bits) * 8))

    def _set(self, bits: bytearray, url: int) -> None:
        for at in self._positions(url, len(bits) * 8):
            bits[at >> 3] |= 1 << (at & 7)

    def _positions(self, url: int, size: int) -> list[int]:
        low, high = url & 0xFFFFFFFF, (url >> 32) & 0xFFFFFFFF | 1
        return [(low + i * high) % size for i in range(self.HASHES)]


MAX_BARREN: Final = 3
"""Pages of a chain in a row without any other new URL, after which its steps count as depth."""

_DIGITS: Final = b"0123456789"
_SPLIT: Final = re.compile(r"([0-9]+)")


def has_numbers(url: str) -> bool:
    """Whether a normalized URL has a number after its host. A URL without one is not part of a pagination, unless rel=next says so."""
    return _DIGIT.search(url, url.index("/", 8)) is not None


class Pagination:
    """The pagination steps that lead on from one page, whose URL is normalized."""

    __slots__ = ("_bare", "_numbers", "_page", "_site", "_template")

    def __init__(self, page: str) -> None:
        self._page = page
        self._site = page[: page.index("/", 8) + 1]
        self._bare = page.encode().translate(None, _DIGITS)
        self._numbers = len(self._bare) < len(page)
        self._template: str | None = None

    def is_step(self, url: str, *, is_next: bool = False) -> bool:
        """Whether a link to the normalized `url` is a step. `is_next`: it has rel=next."""
        if self._numbers and url.encode().translate(None, _DIGITS) == self._bare and self._grows(url):
            return True
        if not is_next or url == self._page or not url.startswith(self._site):
            return False
        if self._template is None:
            self._template = url_template(self._page)
        return url_template(url) == self._template

    def _grows(self, url: str) -> bool:
        if not url.startswith(self._site):
            return False
        here, there = _SPLIT.split(self._page), _SPLIT.split(url)
        if len(here) != len(there):
            return False
        different = [at for at, part in enumerate(here) if there[at] != part]
        if len(different) != 1 or not different[0] % 2:
            return False
        return int(there[different[0]]) > int(here[different[0]])


def chain_end_reason(steps: int, limit: int) -> str | None:
    """The reason why a chain ends before its step number `steps`; None: it goes on."""
    return f"step {steps} of a pagination, more than {limit}" if steps > limit else None
