"""What the clocks on the walls of a place show, and when.

The rule: every wall time means a moment, also where the clocks are put forward (it is not shown) or back (it is shown twice).
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from holdfast.errors import UsageError

# Names with a small first letter ("localtime", "posixrules") are whatever a machine was set up with.
_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9_+-]{1,31}(?:/[A-Za-z0-9_+-]{1,31}){0,2}")
_SECOND: Final = timedelta(seconds=1)


def time_zone(name: str) -> ZoneInfo:
    """The IANA time zone of that name. Raises UsageError."""
    try:
        if _NAME.fullmatch(name):
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # no such file, a file that is no zone, a folder
        pass
    raise UsageError(f"{name[:40]!a} is not a time zone that is known here; one is called Europe/Berlin, another UTC.")


def first_moment(wall: datetime, zone: ZoneInfo) -> datetime:
    """When the clocks of *zone* first show *wall*, in UTC; where they jump over it, the moment of the jump."""
    moment = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == wall:
        return moment
    return _jump(wall.replace(tzinfo=zone, fold=1).astimezone(UTC), moment, zone)


def last_moment(wall: datetime, zone: ZoneInfo) -> datetime:
    """When the clocks of *zone* last show *wall*, in UTC; where they jump over it, the moment of the jump."""
    return max(first_moment(wall, zone), wall.replace(tzinfo=zone, fold=1).astimezone(UTC))


def _jump(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first moment with the offset of *after*. Before: *before* has another."""
    offset = after.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // 2 // _SECOND * _SECOND
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after
