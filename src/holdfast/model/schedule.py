"""Schedules: when a recurring job runs next, by an interval or a cron expression.

The rule: `next_after` returns one moment, later than its argument. However many runs were missed, one follows.

Named times (`30 2 * * *`) occur once a day: if the clocks are put forward over one of them it runs at that moment, if they show it twice it
runs the first time. With `*` for the minutes or the hours elapsed time counts: such a schedule skips times that do not occur, and repeats
times that occur twice.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from holdfast.errors import UsageError
from holdfast.model import duration
from holdfast.model.local_time import clock_change, first_moment, last_moment, time_zone, wall_time

MAX_INTERVAL: Final = duration.MAX_DURATION
_MAX_TEXT: Final = 400
_DAY: Final = timedelta(days=1)
_SECOND: Final = timedelta(seconds=1)
_LEAP_YEAR: Final = datetime(2000, 1, 1, tzinfo=UTC)
_VALUE: Final = r"(?:[0-9]{1,2}|[a-z]{3})"
_ITEM: Final = re.compile(rf"(?:\*|{_VALUE}(?:-{_VALUE})?)(?:/[0-9]{{1,2}})?")
"""An item of a field: *, a, a-b, each perhaps with a step. The library has more (L, W, #), which Debian's cron does not."""
_SINGLE_RANGE: Final = re.compile(rf"\b({_VALUE})-\1/[0-9]{{1,2}}(?=[,\s]|$)")
"""A range of one value with a step, which the library reads as one without an end."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A fixed interval of whole seconds."""

    every: timedelta

    def __post_init__(self) -> None:
        if not _SECOND <= self.every <= MAX_INTERVAL or self.every.microseconds:
            raise UsageError("An interval is a whole number of seconds, at least 1s and at most 36500d.")

    def next_after(self, moment: datetime) -> datetime:
        """One interval after *moment*."""
        return moment + self.every

    def __str__(self) -> str:
        return duration.render(self.every)


@dataclass(frozen=True, slots=True)
class Cron:
    """At the times of a cron expression, by the clocks of a time zone. Made by `parse`, which checks that there is such a time."""

    expression: str
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse five fields and an optional time zone; without one it is UTC. Raises UsageError. Before: *text* has five or six words."""
        words = text.split()
        expression = " ".join(words[:5]).lower()
        made = cls(_SINGLE_RANGE.sub(r"\1", expression), time_zone(words[5] if words[5:] else "UTC"))
        try:
            _check_items(expression)
            CronSim(made.expression, _LEAP_YEAR)
        except CronSimError as problem:
            never = ", or no such month has that day" if "day-of-month" in str(problem) else ""
            raise UsageError(
                f"{expression[:60]!a} is not a cron expression: {str(problem).lower()}{never}. The fields are minute, hour, day of the "
                "month, month and day of the week; each is *, a, a-b, a,b or */n."
            ) from None
        return made

    def __str__(self) -> str:
        return f"{self.expression} {self.zone.key}"

    def next_after(self, moment: datetime) -> datetime:
        """The first of its times after *moment*, in UTC."""
        return self._next_elapsed(moment) if self._counts_elapsed_time() else self._next_named(moment)

    def _counts_elapsed_time(self) -> bool:
        minute, hour = self.expression.split()[:2]
        return minute.startswith("*") or hour.startswith("*")

    def _next_named(self, moment: datetime) -> datetime:
        """The next named time, which occurs once a day."""
        wall = wall_time(moment, self.zone)
        while True:
            wall = self._next_wall(wall)
            found = first_moment(wall, self.zone)
            if found > moment:
                return found

    def _next_elapsed(self, moment: datetime) -> datetime:
        """The next moment at which the clocks show one of its times."""
        tomorrow = moment + _DAY
        offset, offset_tomorrow = (at.astimezone(self.zone).utcoffset() for at in (moment, tomorrow))
        wall = wall_time(moment, self.zone)
        if offset != offset_tomorrow:
            change = clock_change(moment, tomorrow, self.zone)
            found = moment.astimezone(UTC) + (self._next_wall(wall) - wall)
            if found < change:
                return found
            wall = wall_time(change, self.zone) - _SECOND
        # From here on clocks are put back, if at all, to times later than *wall*.
        while True:
            wall = self._next_wall(wall)
            found = first_moment(wall, self.zone)
            if found <= moment:
                found = last_moment(wall, self.zone)
            if wall_time(found, self.zone) == wall:
                return found
            wall = wall_time(found, self.zone) - _SECOND  # the clocks skip it

    def _next_wall(self, wall: datetime) -> datetime:
        """The next of its times by clocks that are never changed: the library's answers are wrong where they are."""
        return next(CronSim(self.expression, wall))


def _check_items(expression: str) -> None:
    """Raise CronSimError for what only the library understands."""
    for name, field in zip(_FIELD_NAMES, expression.split(), strict=True):
        if not all(map(_ITEM.fullmatch, field.split(","))):
            raise CronSimError(f"bad {name}")


_FIELD_NAMES: Final = ("minute", "hour", "day-of-month", "month", "day-of-week")
"""As the library names them."""

Schedule = Interval | Cron


def parse(text: str) -> Schedule:
    """Parse a schedule: an interval, or a cron expression with an optional time zone. Raises UsageError."""
    words = " ".join(text[: _MAX_TEXT + 1].split())
    if len(text) <= _MAX_TEXT:
        every = duration.parse_units(words)
        if every is not None:
            return Interval(every)
        if len(words.split()) in (5, 6):
            return Cron.parse(words)
    raise UsageError(
        f"{text[:60]!a} is not a schedule; it is an interval such as 6h or 1d12h, or five fields of cron and perhaps a time zone, "
        "such as 30 2 * * mon-fri Europe/Berlin."
    )


def next_run(schedule: Schedule, due: datetime, now: datetime) -> datetime:
    """The next run after the one that was due at *due*: later than *now*, so that all missed runs are made up for by one. An interval keeps
    its phase."""
    if isinstance(schedule, Cron) or now <= due:
        return schedule.next_after(max(due, now))
    return due + ((now - due) // schedule.every + 1) * schedule.every
