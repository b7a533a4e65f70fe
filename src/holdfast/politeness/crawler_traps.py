"""URLs that a site makes without end: repeating paths, calendars, parameters, numbers.

The rule: a trap is known from the URL alone, and the reason is told. What is cut here may cost a few pages of an odd site;
what is not cut may cost the whole crawl of it.
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
"""Segments that are looked at together: a/b/a/b/a/b repeats two."""

# A month is written with two digits where nothing else says that this is a date: /t/4521/3 is page 3 of a thread.
_DATE_IN_PATH: Final = re.compile(r"/((?:1[89]|2[01])[0-9]{2})[/-](?:0[1-9]|1[0-2])(?=[/?.-]|\Z)")
_CALENDAR: Final = re.compile(
    r"(?:calend[ae]r|kalender|agenda|events?|schedule|month|day|week|year|date)[a-z_-]*(?:/|=|%2F)"
    r"(?:[a-z]+/)?([0-9]{4})(?![0-9])",
    re.IGNORECASE,
)
_FOUR_DIGITS: Final = re.compile(r"[0-9]{4}")

_DIGIT: Final = re.compile(r"[0-9]")
_NUMBERS: Final = re.compile(r"[0-9]+(?:[-./:][0-9]+)*")
_LIKE_AN_ID: Final = re.compile(r"[0-9a-fA-F]{8}")
_ID: Final = re.compile(
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?<![0-9a-z])(?=[a-f]*[0-9])[0-9a-f]{8,}(?![0-9a-z])", re.IGNORECASE
)


def trap(url: str, settings: Crawl, this_year: int) -> str | None:
    """Why a normalized URL is taken for a trap; None: it is not."""
    start = url.find("/", 8)
    end = url.find("?", start)
    segments = url.count("/", start) if end < 0 else url.count("/", start, end)
    if segments > settings.max_segments:
        return f"it has {segments} path segments, more than {settings.max_segments}"
    most = settings.max_repeats
    if segments > most and (repeated := _repeated(url[start : end if end >= 0 else None], most)):
        return f"its path repeats {repeated} more than {most} times"
    if end >= 0 and (reason := _absurd(url[end + 1 :])):
        return reason
    years = _FOUR_DIGITS.findall(url, start)
    if years and not all(EARLIEST_YEAR <= int(year) <= this_year + YEARS_AHEAD for year in years):
        return _endless_calendar(url, start, this_year)
    return None


def _repeated(path: str, most: int) -> str | None:
    """The segments that follow themselves more than `most` times."""
    parts = path.split("/")[1:]
    if len(parts) - len(set(parts)) < most:
        return None
    for period in range(1, _LONGEST_PERIOD + 1):
        same = 0
        for at in range(period, len(parts)):
            same = same + 1 if parts[at] == parts[at - period] else 0
            if same >= period * most:
                return "/".join(parts[at - period + 1 : at + 1]) or "//"
    return None


def _absurd(query: str) -> str | None:
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


def template(url: str) -> str:
    """The URL with every number, date, hexadecimal id and UUID after its host replaced: what many URLs have in common."""
    start = max(url.find("/", 8), 0)
    target = url[start:]
    if _LIKE_AN_ID.search(target):
        target = _ID.sub("#", target)
    return url[:start] + _NUMBERS.sub("#", target)


def template_key(url: str) -> int | None:
    """A number of 64 bits for the template of a normalized URL, the same in every process; None: there is no number in the URL."""
    return _number(template(url)) if _DIGIT.search(url, max(url.find("/", 8), 0)) else None


def _number(pattern: str) -> int:
    return int.from_bytes(hashlib.blake2b(pattern.encode(), digest_size=8).digest(), "big", signed=True)


class Counted(NamedTuple):
    """What counting a URL said."""

    over: bool
    """There are enough of its template already."""
    template: int | None
    """Under which the store counts it, once it is inserted; None: it is the only one of its template that this visit has met."""


_NOT_COUNTED: Final = Counted(over=False, template=None)


class TemplateCounter:
    """How many different URLs of each template a job knows on a domain, in bounded memory.

    Both the number in the store (as it was loaded, and raised by what commits really inserted) and the number of different URLs that
    this visit has met are at most the true one, and the larger counts. So one batch of URLs beyond the cap may go through, and no
    URL below it is cut. A URL that this visit has counted is never over, however often it is met.
    """

    __slots__ = ("_cap", "_fresh", "_seen", "_stored")

    MAX_TEMPLATES: Final = 2000
    """Of each kind: the biggest in the store, and the newest of this visit."""

    def __init__(self, cap: int, stored: Mapping[int, int] | None = None) -> None:
        """`cap`: `crawl.template_cap`; `stored`: URLs by template that the store knows, the biggest ones."""
        self._cap = cap
        self._stored = dict(stored or {})
        self._fresh: dict[int, int] = {}
        """Like `_stored`, of templates that were not loaded."""
        self._seen: dict[int, _Seen] = {}

    def count(self, url: str) -> Counted:
        """Count the URL with its template. One without numbers is never over."""
        if not _DIGIT.search(url, max(url.find("/", 8), 0)):
            return _NOT_COUNTED
        pattern = template(url)
        short = hash(
            pattern
        )  # of this process; the number for the store takes as long as all the rest, hence once a template
        seen = self._seen.get(short)
        if seen is None:
            _make_room(self._seen, self.MAX_TEMPLATES)
            seen = self._seen[short] = _Seen(_number(pattern))
        key = seen.key
        known = self._stored.get(key)
        if known is None:
            known = self._fresh.get(key)
        cap = self._cap if known is None or known < self._cap else 0
        over = seen.over(hash(url), cap)
        return Counted(over, key if known is not None or seen.several else None)

    def committed(self, inserted: Mapping[int, int]) -> None:
        """So many URLs by template are in the store now that were not before."""
        for key, count in inserted.items():
            if key in self._stored:
                self._stored[key] += count
            else:
                if key not in self._fresh:
                    _make_room(self._fresh, self.MAX_TEMPLATES)
                self._fresh[key] = self._fresh.get(key, 1) + count  # the first one was not counted


def _make_room(remembered: dict[int, Any], most: int) -> None:
    if len(remembered) >= most:
        del remembered[next(iter(remembered))]


class _Seen:
    """Different URLs of one template: first each, then a Bloom filter with 16 bits for each that may come."""

    __slots__ = ("_bits", "_count", "_few", "key")

    FEW: Final = 64
    MOST_BITS: Final = 1 << 20
    HASHES: Final = 4

    def __init__(self, key: int) -> None:
        """`key`: the number of the template in the store."""
        self.key = key
        self._few: set[int] = set()
        self._bits: bytearray | None = None
        self._count = 0

    def over(self, url: int, cap: int) -> bool:
        if self._known(url):
            return False
        if self._count >= cap:
            return True
        self._count += 1
        if self._bits is None and len(self._few) < self.FEW:
            self._few.add(url)
            return False
        if self._bits is None:
            self._bits = bytearray(min(16 * cap, self.MOST_BITS) // 8 + 1)
            for earlier in self._few:
                self._set(self._bits, earlier)
            self._few.clear()
        self._set(self._bits, url)
        return False

    @property
    def several(self) -> bool:
        """More than one was counted."""
        return self._count > 1

    def _known(self, url: int) -> bool:
        bits = self._bits
        if bits is None:
            return url in self._few
        return all(bits[at >> 3] & (1 << (at & 7)) for at in self._places(url, len(bits) * 8))

    def _set(self, bits: bytearray, url: int) -> None:
        for at in self._places(url, len(bits) * 8):
            bits[at >> 3] |= 1 << (at & 7)

    def _places(self, url: int, size: int) -> list[int]:
        low, high = url & 0xFFFFFFFF, (url >> 32) & 0xFFFFFFFF | 1
        return [(low + i * high) % size for i in range(self.HASHES)]
