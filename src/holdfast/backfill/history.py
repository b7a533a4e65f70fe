"""Rows of history, summed by canonical domain.

The rule: a row counts once, under the canonical name of its domain; a row that cannot be used is a `BadRow` with its number and does not
stop the rest. Pure: nothing here reads or writes.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.backfill.records import FIRST_YEAR, MAX_IMAGES, BadRow, Counts, DomainSums, RawRow
from holdfast.errors import BadUrl
from holdfast.model.domain_name import canonical_domain, parent_domain
from holdfast.model.url import origin_and_target

MAX_NAMES: Final = 200_000
"""Spellings of domains that are remembered, with what they mean."""
MAX_SPELLING: Final = 255
_MAX_BASE_URL: Final = 512

_NOTHING: Final = frozenset(("", "none", "null", "nan", "nat", "-", "\\n"))
"""How tools write that there is no value."""
_NUMBER: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]*)?")
_MILLISECONDS: Final = 100_000_000_000
"""A time that is a greater number counts milliseconds since 1970, not seconds."""
_DATE_DIGITS: Final = 8
"""Digits of a date: 20260213."""
_ERROR: Final = 400
_CLOCK_TOLERANCE: Final = timedelta(days=1)
_MAX_SHOWN: Final = 80

NO_DOMAIN: Final = "no domain"
BAD_DOMAIN: Final = "not a domain"
BAD_STATUS: Final = "not an HTTP status"
BAD_TIME: Final = "not a time"
BAD_IMAGES: Final = "not a number of images"
NO_IMAGE: Final = "no image_id"


class _Bad(Exception):
    """A value that cannot be used: the reason, and a sentence."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        self.detail = detail


@dataclass(slots=True)
class Chunk:
    """A chunk of rows, summed."""

    domains: dict[str, DomainSums] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    bad_rows: list[BadRow] = field(default_factory=list)

    def refuse(self, bad: BadRow) -> None:
        """Count a bad row."""
        self.counts.bad += 1
        self.counts.reasons[bad.reason] += 1
        self.bad_rows.append(bad)


class HistoryReader:
    """Sums rows. It remembers what spellings mean, so one reader is for all chunks of a source."""

    def __init__(self, now: datetime, *, registrable: bool) -> None:
        """`now`: no row may be younger, apart from clocks that differ."""
        self._latest = now + _CLOCK_TOLERANCE
        self._registrable = registrable
        self._names: dict[str, str] = {}
        self._statuses: dict[object, int | None] = {}
        self._numbers: dict[object, int] = {}

    def read(self, rows: Iterable[RawRow | BadRow]) -> Chunk:
        """Sum a chunk of rows."""
        chunk = Chunk()
        number = 0
        for number, row in enumerate(rows, 1):  # noqa: B007 — it is the number of rows in the end
            if isinstance(row, BadRow):
                chunk.refuse(row)
                continue
            try:
                self._add(chunk, row)
            except _Bad as bad:
                chunk.refuse(BadRow(row.number, bad.reason, bad.detail))
        chunk.counts.rows = number
        for sums in chunk.domains.values():
            chunk.counts.pages += sums.pages
            chunk.counts.errors += sums.errors
            chunk.counts.images_found += sums.images_found
        return chunk

    def _add(self, chunk: Chunk, row: RawRow) -> None:
        _, given, page_url, given_status, given_images, given_time, image_id = row
        spelling = given if given.__class__ is str else _text(given)
        name = self._names.get(spelling) or self._name(spelling, page_url)
        if image_id is not None:
            key = _image_key(image_id)
            sums = self._sums(chunk, name, spelling, page_url)
            if sums.images is None:
                sums.images = set()
            sums.images.add(key)
            return
        try:
            status = self._statuses[given_status]
        except (KeyError, TypeError):
            status = self._status(given_status)
        try:
            images = self._numbers[given_images]
        except (KeyError, TypeError):
            images = self._images(given_images)
        at = self._time(given_time)
        sums = self._sums(chunk, name, spelling, page_url)
        sums.requests += 1
        sums.images_found += images
        if status is not None:
            if status < _ERROR:
                sums.pages += 1
            else:
                _count_error(sums, status)
        if at is not None:
            if sums.first_at is None or at < sums.first_at:
                sums.first_at = at
            if sums.last_at is None or at > sums.last_at:
                sums.last_at = at

    def _sums(self, chunk: Chunk, name: str, spelling: str, page_url: object) -> DomainSums:
        sums = chunk.domains.get(name)
        if sums is None:
            base = self._base_url(name, page_url)
            sums = chunk.domains[name] = DomainSums(parent_domain(name), base, (spelling or name)[:MAX_SPELLING])
        elif spelling and not sums.merged and spelling[:MAX_SPELLING] != sums.spelling:
            sums.merged = True
        return sums

    def _name(self, spelling: str, page_url: object) -> str:
        text = spelling or _text(page_url)
        if not text:
            raise _Bad(NO_DOMAIN, "The row names neither a domain nor a page.")
        try:
            name = canonical_domain(text, registrable=self._registrable)
        except BadUrl as problem:
            raise _Bad(BAD_DOMAIN, str(problem)) from None
        if spelling:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            self._names[spelling] = name
        return name

    def _base_url(self, name: str, page_url: object) -> str:
        """The origin of the page if it is of this domain, else the domain over https."""
        if page_url is None or (page_url.__class__ is str and page_url.startswith(f"https://{name}/")):
            return f"https://{name}"  # most rows
        try:
            origin, _ = origin_and_target(_text(page_url))
            if len(origin) <= _MAX_BASE_URL and canonical_domain(origin, registrable=self._registrable) == name:
                return origin
        except BadUrl:
            pass
        return f"https://{name}"

    def _status(self, given: Any) -> int | None:
        text = _text(given)
        status = None
        if text not in {"", "0"}:
            text = text.removesuffix(".0")  # a column of numbers with gaps is one of floats elsewhere
            if not text.isdecimal() or not text.isascii() or not 100 <= int(text[:6]) <= 999:
                raise _Bad(BAD_STATUS, f"{text[:_MAX_SHOWN]!a} is not an HTTP status.")
            status = int(text)
        if len(self._statuses) < MAX_NAMES:
            self._statuses[given] = status
        return status

    def _images(self, given: Any) -> int:
        text = _text(given).removesuffix(".0")
        if text and (not text.isdecimal() or not text.isascii() or len(text) > 10 or int(text) > MAX_IMAGES):
            raise _Bad(BAD_IMAGES, f"{text[:_MAX_SHOWN]!a} is not a number of images.")
        images = int(text or 0)
        if len(self._numbers) < MAX_NAMES:
            self._numbers[given] = images
        return images

    def _time(self, given: Any) -> datetime | None:
        if given is None:
            return None
        try:
            # Python takes some milliseconds for a date of the year 1700: the ninth digit may be anything that separates date and time.
            written = given.__class__ is str and not (len(given) > _DATE_DIGITS and given.isdecimal())
            at = datetime.fromisoformat(given) if written else _as_time(given)
        except (ValueError, OverflowError):
            at = _as_time(given)
        if at is None:
            return None
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        if at.year < FIRST_YEAR or at > self._latest:
            raise _Bad(BAD_TIME, f"{_text(given)[:_MAX_SHOWN]!a} is not a time at which a page was crawled.")
        return at


def _as_time(given: Any) -> datetime | None:
    """A time that is not plain ISO 8601: seconds or milliseconds since 1970, or a value of the source's own."""
    if isinstance(given, datetime):
        return given
    text = _text(given)
    if not text:
        return None
    try:
        if _NUMBER.fullmatch(text):
            seconds = float(text)
            return datetime.fromtimestamp(seconds / 1000 if seconds > _MILLISECONDS else seconds, UTC)
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        raise _Bad(BAD_TIME, f"{text[:_MAX_SHOWN]!a} is not a time; write it as 2026-02-13T08:00:00Z.") from None


def _text(value: object) -> str:
    """A value as text without white space around it; empty if it means that there is none."""
    if value is None:
        return ""
    text = (value.decode(errors="replace") if isinstance(value, bytes) else str(value)).strip()
    return "" if text.lower() in _NOTHING else text


def _count_error(sums: DomainSums, status: int) -> None:
    sums.errors += 1
    if status in (401, 407):
        sums.login += 1
    elif status == 403:
        sums.forbidden += 1
    elif status == 429:
        sums.rate_limited += 1
    elif status >= 500:
        sums.server_errors += 1


def _image_key(image_id: object) -> bytes:
    text = _text(image_id)
    if not text:
        raise _Bad(NO_IMAGE, "The row names no image.")
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
