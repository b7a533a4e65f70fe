"""The hours in which a domain is not crawled, because those who run it work on it.

The rule: a domain is closed whenever the clocks of the place show a time of a window, from the first time they show its beginning to the
last time they show its end. Windows that would close it for ever cannot be made.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final, Self
from zoneinfo import ZoneInfo

from holdfast.errors import UsageError
from holdfast.model.walltime import first_moment, last_moment, time_zone

MOST: Final = 50
"""Windows of one domain."""
AT_ONCE: Final = timedelta(days=8)
"""The end of windows that follow on each other is not looked for beyond this."""

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = timedelta(days=1)
_LONGEST_TEXT: Final = 4000
_WINDOW: Final = re.compile(
    r"(?:([a-z,-]+) )?([0-9]{1,2}):([0-9]{2}) ?- ?([0-9]{1,2}):([0-9]{2})(?: (\S+))?", re.IGNORECASE | re.ASCII
)
_SEASONS: Final = tuple(datetime(2024, month, 1, tzinfo=UTC) for month in (1, 7))
"""When it is tried whether windows leave a gap: clocks may stand differently to each other in summer."""


@dataclass(frozen=True, slots=True)
class Window:
    """One time on some days of the week. `end` is on the next day unless it is later than `begin`; both are minutes of the day."""

    days: tuple[int, ...]
    """0 is Monday; the day on which it begins."""
    begin: int
    end: int
    zone: ZoneInfo

    def end_if_closed(self, moment: datetime) -> datetime | None:
        """When this window ends, if *moment* is in it."""
        today = moment.astimezone(self.zone).date()
        ends = []
        # Tomorrow, too: where clocks are put back over midnight it may have begun once already.
        for day in (today - _DAY, today, today + _DAY):
            if day.weekday() in self.days:
                midnight = datetime.combine(day, time())
                length = (self.end - self.begin - 1) % 1440 + 1
                begin = midnight + timedelta(minutes=self.begin)
                end = last_moment(begin + timedelta(minutes=length), self.zone)
                if first_moment(begin, self.zone) <= moment < end:
                    ends.append(end)
        return max(ends, default=None)

    def begins_from(self, moment: datetime) -> datetime | None:
        """The first time, at *moment* or after it, that this window begins; None: not in the next eight days."""
        today = moment.astimezone(self.zone).date()
        for day in (today + _DAY * number for number in range(-1, 9)):
            if day.weekday() in self.days:
                begin = first_moment(datetime.combine(day, time()) + timedelta(minutes=self.begin), self.zone)
                if begin >= moment:
                    return begin
        return None

    def __str__(self) -> str:
        days = "" if len(self.days) == 7 else ",".join(_runs(self.days)) + " "
        return f"{days}{_clock(self.begin)}-{_clock(self.end)} {self.zone.key}"


@dataclass(frozen=True, slots=True)
class Windows:
    """The maintenance windows of a domain; none: it is always open."""

    windows: tuple[Window, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """What *text* says: "mon-fri 09:00-17:30 Europe/Berlin; sat 22:00-02:00". All days if none is named, UTC if no time zone is;
        each window has its own. Raises UsageError."""
        if not text.strip():
            return cls()
        parts = text.split(";")
        if len(parts) > MOST or len(text) > _LONGEST_TEXT:
            raise UsageError(f"A domain has at most {MOST} maintenance windows, in {_LONGEST_TEXT} letters.")
        made = cls(tuple(_window(part) for part in parts))
        for season in _SEASONS:
            if (made.closed_until(season) or season) - season >= AT_ONCE:
                raise UsageError("These windows leave no time to crawl; to stop crawling a domain, make it inactive.")
        return made

    def __str__(self) -> str:
        return "; ".join(map(str, self.windows))

    def closed_until(self, moment: datetime) -> datetime | None:
        """When the domain opens, in UTC; None: it is open at *moment*. Of windows without a gap it is the end of the last,
        if that is not too far off; ask again then."""
        until, limit = moment, moment + AT_ONCE
        while until < limit:
            ends = [end for window in self.windows if (end := window.end_if_closed(until)) is not None]
            if not ends:
                break
            until = max(ends)
        return until if until > moment else None

    def closes_from(self, moment: datetime) -> datetime | None:
        """When the domain closes the next time, at *moment* or after it, in UTC; None: it never does. Before: it is open at *moment*,
        or opens then."""
        begins = [begin for window in self.windows if (begin := window.begins_from(moment)) is not None]
        return min(begins, default=None)


def _window(text: str) -> Window:
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
    return Window(days, begin, end, time_zone(found[6] or "UTC"))


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


def _runs(days: tuple[int, ...]) -> list[str]:
    """Days as people write them: those in a row from the first to the last."""
    runs: list[list[int]] = []
    for day in days:
        if runs and runs[-1][-1] == day - 1:
            runs[-1].append(day)
        else:
            runs.append([day])
    return [_DAYS[run[0]] if len(run) == 1 else f"{_DAYS[run[0]]}-{_DAYS[run[-1]]}" for run in runs]
