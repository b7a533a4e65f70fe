"""Durations: parsing and formatting of 45, "45s", "7 days", "1h30m".

The rule: `parse` reads what `render` writes as the same duration.
"""

import math
import re
from datetime import timedelta

# Longer than any crawl, and short enough that adding it to a date does not overflow, here or in PostgreSQL.
MAX_DURATION = timedelta(days=36_500)

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_SPELLINGS = {
    **{unit: unit for unit in _UNITS},
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("week", "weeks"), "w"),
}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_MEANING = 'must be a duration: seconds, or a text such as "45s", "1h30m" or "7 days"'


def parse(value: object) -> timedelta:
    """Parse a duration. Raises ValueError with the end of a sentence; the caller adds the name of the setting."""
    try:
        duration = _read(value)
    except OverflowError:
        duration = timedelta.max
    if duration < timedelta(0):
        raise ValueError("must be at least 0s")
    if duration > MAX_DURATION:
        raise ValueError(f"must be at most {render(MAX_DURATION)}")
    return duration


def parse_units(text: str) -> timedelta | None:
    """Parse a duration whose numbers all have units, such as "6h" or "1 day 12 hours"; None if *text* is not one."""
    try:
        return _sum_of_parts(text.strip().lower())
    except ValueError:
        return None
    except OverflowError:
        return timedelta.max


def render(duration: timedelta) -> str:
    """The short form: "30d", "1h30m", "0.25s"."""
    parts = []
    rest = duration
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest or not parts:
        fraction = f".{rest.microseconds:06}".rstrip("0") if rest.microseconds else ""
        parts.append(f"{rest.seconds}{fraction}s")
    return "".join(parts)


def _read(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, str):
        text = value.strip().lower()
        return timedelta(seconds=float(text)) if _NUMBER.fullmatch(text) else _sum_of_parts(text)
    # A bool is an int in Python, but not a duration.
    if isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value):
        return timedelta(seconds=value)
    raise ValueError(_MEANING)


def _sum_of_parts(text: str) -> timedelta:
    total, position = timedelta(0), 0
    while part := _PART.match(text, position):
        if part[2] not in _SPELLINGS:
            break
        total += float(part[1]) * _UNITS[_SPELLINGS[part[2]]]
        position = part.end()
    if not text or position < len(text):
        raise ValueError(_MEANING)
    return total
