"""When a thing that recurs runs next: every so often, or when the clocks of a place say so.

The rule: `next_after` gives one moment, and it is later than the one given. However many runs were missed, one follows.

Times that are named (`30 2 * * *`) happen once a day: where the clocks are put forward over one of them it runs at that moment, where
they show it twice it runs the first time. With `*` for the hours real time counts: such a run skips what is not shown, and comes again
with what is shown twice.
"""

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Self
from zoneinfo import ZoneInfo

from holdfast.errors import UsageError
from holdfast.model.walltime import first_moment, time_zone

LONGEST: Final = timedelta(days=36_500)
_LONGEST_TEXT: Final = 400
_DAY: Final = timedelta(days=1)
_MINUTE: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)
_UNITS: Final = {"w": timedelta(weeks=1), "d": _DAY, "h": timedelta(hours=1), "m": _MINUTE, "s": _SECOND}
_PART: Final = re.compile(
    r"([0-9]{1,10}) ?(w(?:eeks?)?|d(?:ays?)?|h(?:ours?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?) ?", re.IGNORECASE
)
_ITEM: Final = re.compile(r"(\*|(\w{1,3})(?:-(\w{1,3}))?)(?:/([0-9]{1,2}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so often, in whole seconds."""

    every: timedelta

    def __post_init__(self) -> None:
        if not _SECOND <= self.every <= LONGEST or self.every.microseconds:
            raise UsageError("An interval is a whole number of seconds, at least 1s and at most 36500d.")

    def next_after(self, moment: datetime) -> datetime:
        """One interval after *moment*."""
        return moment + self.every

    def __str__(self) -> str:
        text, rest = "", self.every
        for unit in "dhms":
            count, rest = divmod(rest, _UNITS[unit])
            text += f"{count}{unit}" if count else ""
        return text


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a cron expression."""

    name: str
    lowest: int
    highest: int
    words: tuple[str, ...] = ()
    """For lowest, lowest + 1 …"""

    def read(self, text: str) -> frozenset[int]:
        """The numbers that *text* names. Raises UsageError."""
        return frozenset().union(*map(self._item, text.split(",")))

    def _item(self, text: str) -> range:
        item = _ITEM.fullmatch(text)
        if item is None:
            raise self._wrong(text)
        whole, first, last, step = item.groups()
        if step is not None and int(step) == 0:
            raise self._wrong(text)
        if whole == "*":
            low, high = self.lowest, self.highest
        else:
            low = self._number(first)
            # "5/10" is "from 5 on, every 10"
            high = self._number(last) if last else self.highest if step else low
            if high < low:
                raise self._wrong(text)
        return range(low, high + 1, int(step or 1))

    def _number(self, text: str) -> int:
        if text in self.words:
            return self.lowest + self.words.index(text)
        if not text.isdigit() or not self.lowest <= int(text) <= self.highest:
            raise self._wrong(text)
        return int(text)

    def _wrong(self, text: str) -> UsageError:
        words = f", or {self.words[0]} to {self.words[-1]}" if self.words else ""
        return UsageError(
            f"{text[:40]!a} is not {self.name} of a cron expression: {self.lowest} to {self.highest}{words}; *, a-b, a,b and */n are "
            "understood."
        )


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FIELDS: Final = (
    _Field("a minute", 0, 59),
    _Field("an hour", 0, 23),
    _Field("a day of the month", 1, 31),
    _Field("a month", 1, 12, _MONTHS),
    _Field("a day of the week", 0, 7, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_LEAP_YEAR: Final = 2000


@dataclass(frozen=True, slots=True)
class Cron:
    """At the times of a cron expression, by the clocks of a time zone. Made by `parse`, which sees to it that there is such a time."""

    fields: tuple[str, str, str, str, str]
    zone: ZoneInfo
    _minutes: tuple[int, ...]
    _hours: tuple[int, ...]
    _days: frozenset[int]
    _months: frozenset[int]
    _weekdays: frozenset[int]
    """0 is Sunday."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """What *text* says: five fields, and perhaps a time zone; without one it is UTC. Raises UsageError.
        Before: it has five words or six."""
        minute, hour, day, month, weekday, *zone = text.split()
        fields = (minute.lower(), hour.lower(), day.lower(), month.lower(), weekday.lower())
        minutes, hours, days, months, weekdays = (field.read(text) for field, text in zip(_FIELDS, fields, strict=True))
        made = cls(
            fields,
            time_zone(zone[0] if zone else "UTC"),
            tuple(sorted(minutes)),
            tuple(sorted(hours)),
            days,
            months,
            frozenset(weekday % 7 for weekday in weekdays),
        )
        longest = max(calendar.monthrange(_LEAP_YEAR, month)[1] for month in months)
        if not made._either and min(days) > longest:
            raise UsageError(f"{' '.join(fields)!a} never happens: no such month has a day {min(days)}.")
        return made

    def __str__(self) -> str:
        return f"{' '.join(self.fields)} {self.zone.key}"

    @property
    def _either(self) -> bool:
        """As cron has it: where both kinds of day are named, one of them is enough."""
        return not self.fields[2].startswith("*") and not self.fields[4].startswith("*")

    def next_after(self, moment: datetime) -> datetime:
        """The first of its times after *moment*, in UTC."""
        real_time = len(self._hours) == 24
        return self._by_real_time(moment) if real_time else self._by_the_clock(moment)

    def _by_the_clock(self, moment: datetime) -> datetime:
        shown = moment.astimezone(self.zone).replace(tzinfo=None, fold=0)
        day = shown.date()
        while True:
            day = self._day_from(day)
            for hour in self._hours:
                for minute in self._minutes:
                    wall = datetime.combine(day, time(hour, minute))
                    # Clocks that were put back since may show it once more; then its first time is over.
                    if wall > shown and (found := first_moment(wall, self.zone)) > moment:
                        return found
            day += _DAY

    def _by_real_time(self, moment: datetime) -> datetime:
        """Every hour is named, so there is one of its times in every hour or two of its days."""
        moment = moment.astimezone(UTC)
        at = moment.replace(second=0, microsecond=0)
        while True:
            at += _MINUTE
            shown = at.astimezone(self.zone)
            day = self._day_from(shown.date())
            if day > shown.date():
                # A minute less: it is added again. Where midnight comes twice the first one may be over.
                at = max(at, first_moment(datetime.combine(day, time()), self.zone) - _MINUTE)
            elif shown.minute in self._minutes:
                return at

    def _day_from(self, day: date) -> date:
        """The first of its days, *day* or later."""
        while True:
            if day.month not in self._months:
                day = (day.replace(day=28) + 4 * _DAY).replace(day=1)
                continue
            in_month, in_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
            if (in_month or in_week) if self._either else (in_month and in_week):
                return day
            day += _DAY


Schedule = Interval | Cron


def parse(text: str) -> Schedule:
    """The schedule that *text* means: an interval, or a cron expression and perhaps its time zone. Raises UsageError."""
    words, position, seconds = " ".join(text[: _LONGEST_TEXT + 1].split()), 0, 0
    while part := _PART.match(words, position):
        position = part.end()
        seconds += int(part[1]) * (_UNITS[part[2][0].lower()] // _SECOND)
    if len(text) <= _LONGEST_TEXT:
        if words and position == len(words):
            return Interval(timedelta(seconds=min(seconds, LONGEST // _SECOND + 1)))
        if len(words.split()) in (5, 6):
            return Cron.parse(words)
    raise UsageError(
        f"{text[:60]!a} is not a schedule; it is an interval such as 6h or 1d12h, or five fields of cron and perhaps a time zone, "
        "such as 30 2 * * mon-fri Europe/Berlin."
    )


def next_run(schedule: Schedule, due: datetime, now: datetime) -> datetime:
    """When it runs again after the run that was due at *due*: later than *now*, so that of all that was missed one run is made up
    for. An interval keeps its beat."""
    if isinstance(schedule, Cron) or now <= due:
        return schedule.next_after(max(due, now))
    return due + ((now - due) // schedule.every + 1) * schedule.every
