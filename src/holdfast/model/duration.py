"""Durations as people write them: 45, "45s", "7 days", "1h30m".

Rule: what `render` writes, `parse` reads back as the same duration.
"""

import math
import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator

# Longer than any crawl, and far from where adding it to a date overflows, here and in PostgreSQL.
LONGEST = timedelta(days=36_500)

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
    """The duration that `value` means. Raises ValueError with the end of a sentence, for whoever knows the name."""
    try:
        duration = _read(value)
    except OverflowError:
        duration = timedelta.max
    if duration < timedelta(0):
        raise ValueError("must be at least 0s")
    if duration > LONGEST:
        raise ValueError(f"must be at most {render(LONGEST)}")
    return duration


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
    # A bool is an int to Python, and never a duration to a person.
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


Duration = Annotated[timedelta, BeforeValidator(parse)]
