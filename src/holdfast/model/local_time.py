"""Conversion between wall-clock times of a time zone and moments in UTC.

The rule: every wall-clock time maps to a moment, also where the clocks are put forward (it does not occur) or back (it occurs twice).
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from holdfast.errors import UsageError

# Names with a lower-case first letter ("localtime", "posixrules") depend on the machine.
_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9_+-]{1,31}(?:/[A-Za-z0-9_+-]{1,31}){0,2}")
_SECOND: Final = timedelta(seconds=1)


def time_zone(name: str) -> ZoneInfo:
    """The IANA time zone of that name. Raises UsageError."""
    try:
        if _NAME.fullmatch(name):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such file, not a zone file, a folder
        pass
    raise UsageError(f"{name[:40]!a} is not a time zone that is known here; one is called Europe/Berlin, another UTC.")


def wall_time(moment: datetime, zone: ZoneInfo) -> datetime:
    """What the clocks of *zone* show at *moment*."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def first_moment(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first moment at which the clocks of *zone* show *wall*, in UTC; if they skip it, the moment of the jump."""
    moment = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if wall_time(moment, zone) == wall:
        return moment
    return clock_change(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), moment, zone)


def last_moment(wall: datetime, zone: ZoneInfo) -> datetime:
    """The last moment at which the clocks of *zone* show *wall*, in UTC; if they skip it, the moment of the jump."""
    return max(first_moment(wall, zone), wall.replace(tzinfo=zone, fold=1).astimezone(UTC))


def clock_change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first moment with the UTC offset of *after*. Before: *before* has another."""
    offset = after.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // 2 // _SECOND * _SECOND
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after
