"""Maintenance windows: the hours in which a domain is not crawled.

The rule: a domain is closed whenever the clocks of the place show a time of a window, from the first time they show its beginning to the
last time they show its end. Windows that would never open it are rejected.
"""

import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Final, Self
from zoneinfo import ZoneInfo

from holdfast.errors import UsageError
from holdfast.model.local_time import first_moment, last_moment, time_zone

log: Final = logging.getLogger(__name__)

MAX_WINDOWS: Final = 50
"""Maximum number of windows of one domain."""
MAX_CLOSED: Final = timedelta(days=8)
"""The search for the end of adjacent windows stops after this time."""

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = timedelta(days=1)
_MAX_TEXT: Final = 4000
_WINDOW: Final = re.compile(
    r"(?:([a-z,-]+) )?([0-9]{1,2}):([0-9]{2}) ?- ?([0-9]{1,2}):([0-9]{2})(?: (\S+))?", re.IGNORECASE | re.ASCII
)
_SEASONS: Final = tuple(datetime(2024, month, 1, tzinfo=UTC) for month in (1, 7))
"""The dates at which windows are tested for a gap: offsets between time zones may differ in summer."""


@dataclass(frozen=True, slots=True)
class MaintenanceWindow:
    """One time on some days of the week. `end` is on the next day unless it is later than `begin`; both are minutes of the day."""

    days: tuple[int, ...]
    """0 is Monday; the day on which it begins."""
    begin: int
    end: int
    zone: ZoneInfo

    def end_if_closed(self, moment: datetime) -> datetime | None:
        """The end of this window, if *moment* is in it; else None."""
        today = moment.astimezone(self.zone).date()
        ends = []
        # Tomorrow, too: if the clocks are put back over midnight, it may have begun already.
        for day in (today - _DAY, today, today + _DAY):
            if day.weekday() in self.days:
                midnight = datetime.combine(day, time())
                length = (self.end - self.begin - 1) % 1440 + 1
                begin = midnight + timedelta(minutes=self.begin)
                end = last_moment(begin + timedelta(minutes=length), self.zone)
                if first_moment(begin, self.zone) <= moment < end:
                    ends.append(end)
        return max(ends, default=None)

    def next_begin(self, moment: datetime) -> datetime | None:
        """The first begin of this window at *moment* or after it; None: not in the next eight days."""
        today = moment.astimezone(self.zone).date()
        for day in (today + _DAY * number for number in range(-1, 9)):
            if day.weekday() in self.days:
                begin = first_moment(datetime.combine(day, time()) + timedelta(minutes=self.begin), self.zone)
                if begin >= moment:
                    return begin
        return None

    def __str__(self) -> str:
        days = "" if len(self.days) == 7 else ",".join(_format_days(self.days)) + " "
        return f"{days}{_clock(self.begin)}-{_clock(self.end)} {self.zone.key}"


@dataclass(frozen=True, slots=True)
class MaintenanceWindows:
    """The maintenance windows of a domain; empty: it is always open."""

    windows: tuple[MaintenanceWindow, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse windows such as "mon-fri 09:00-17:30 Europe/Berlin; sat 22:00-02:00". The default is all days, and UTC; each window has its
        own time zone. Raises UsageError."""
        if not text.strip():
            return cls()
        parts = text.split(";")
        if len(parts) > MAX_WINDOWS or len(text) > _MAX_TEXT:
            raise UsageError(f"A domain has at most {MAX_WINDOWS} maintenance windows, in {_MAX_TEXT} letters.")
        made = cls(tuple(_window(part) for part in parts))
        for season in _SEASONS:
            if (made.closed_until(season) or season) - season >= MAX_CLOSED:
                raise UsageError("These windows leave no time to crawl; to stop crawling a domain, make it inactive.")
        return made

    def __str__(self) -> str:
        return "; ".join(map(str, self.windows))

    def closed_until(self, moment: datetime) -> datetime | None:
        """When the domain opens, in UTC; None: it is open at *moment*. For adjacent windows it is the end of the last one within
        `MAX_CLOSED`; the caller checks again then."""
        until, limit = moment, moment + MAX_CLOSED
        while until < limit:
            ends = [end for window in self.windows if (end := window.end_if_closed(until)) is not None]
            if not ends:
                break
            until = max(ends)
        return until if until > moment else None

    def next_close(self, moment: datetime) -> datetime | None:
        """When the domain closes next, at *moment* or after it, in UTC; None: never. Before: it is open at *moment*, or opens then."""
        begins = [begin for window in self.windows if (begin := window.next_begin(moment)) is not None]
        return min(begins, default=None)


def closed_until(window: str | None, moment: datetime) -> datetime | None:
    """When a domain with these windows, as stored, opens; None: it is open at *moment*.

    The rule: windows that cannot be parsed (written by SQL, which bypasses validation) close nothing, and a warning is logged.
    """
    return None if window is None else _stored_windows(window).closed_until(moment)


@lru_cache(maxsize=1024)
def _stored_windows(text: str) -> MaintenanceWindows:
    try:
        return MaintenanceWindows.parse(text)
    except UsageError as problem:
        log.warning("a maintenance window is ignored: %s", problem)
        return MaintenanceWindows()


def _window(text: str) -> MaintenanceWindow:
    found = _WINDOW.fullmatch(" ".join(text.split()))
    if found is None:
        raise UsageError(
            f"{text.strip()[:60]!a} is not a maintenance window; one is written 22:00-06:00, or mon-fri 09:00-17:30 Europe/Berlin."
        )
    days, begin, end = _days(found[1]), _minutes(found[2], found[3]), _minutes(found[4], found[5])
    if begin == end or begin == 1440:
        raise UsageError(
            f"{text.strip()[:60]!a} has no length; a window ends later than it begins, and the whole day is 00:00-24:00."
        )
    return MaintenanceWindow(days, begin, end, time_zone(found[6] or "UTC"))


def _days(text: str | None) -> tuple[int, ...]:
    if text is None:
        return tuple(range(7))
    days: set[int] = set()
    for item in text.lower().split(","):
        first, dash, last = item.partition("-")
        if first not in _DAYS or (dash and last not in _DAYS):
            raise UsageError(
                f"{item[:40]!a} is not a day of a maintenance window; days are mon to sun, mon-fri, sat,sun."
            )
        begin = _DAYS.index(first)
        length = (_DAYS.index(last) - begin) % 7 if dash else 0
        days.update((begin + day) % 7 for day in range(length + 1))
    return tuple(sorted(days))


def _minutes(hour: str, minute: str) -> int:
    minutes = int(hour) * 60 + int(minute)
    if int(minute) > 59 or minutes > 1440:
        raise UsageError(f"{hour}:{minute} is not a time of day; a maintenance window is between 00:00 and 24:00.")
    return minutes


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _format_days(days: tuple[int, ...]) -> list[str]:
    """Days as text, consecutive ones as a range."""
    runs: list[list[int]] = []
    for day in days:
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return [_DAYS[run[0]] if len(run) == 1 else f"{_DAYS[run[0]]}-{_DAYS[run[-1]]}" for run in runs]
