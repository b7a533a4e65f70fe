"""The span of time that a page with charts shows: one of a few ranges up to now, or from a time to another."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.dashboard.live import Parameters
from holdfast.stats.records import ChartSpan

RANGES: Final = {
    "15m": (timedelta(minutes=15), "15 minutes"),
    "1h": (timedelta(hours=1), "1 hour"),
    "24h": (timedelta(hours=24), "24 hours"),
    "7d": (timedelta(days=7), "7 days"),
}
DEFAULT: Final = "1h"
_MINUTE: Final = timedelta(minutes=1)
_MAX_POINTS: Final = 180
_STEPS: Final = tuple(timedelta(minutes=count) for count in (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440))


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A span of time, and the step of its charts."""

    name: str
    """Empty: it was chosen by hand."""
    since: datetime
    until: datetime | None
    """None: now."""

    @property
    def step(self) -> timedelta:
        """The smallest step with which a chart has few enough points."""
        span = (self.until or datetime.now(UTC)) - self.since
        return next((step for step in _STEPS if span / step <= _MAX_POINTS), _STEPS[-1])

    @property
    def of_charts(self) -> ChartSpan:
        """The span of the charts: the same value whenever a range up to now is read."""
        return ChartSpan(RANGES[self.name][0] if self.name else self.since, self.until, self.step)


def parse(parameters: Parameters) -> TimeRange:
    """Read the span from the parameters of a page; one that makes no sense is the default."""
    now = datetime.now(UTC)
    since, until = _moment(parameters.get("since")), _moment(parameters.get("until"))
    if since is not None and since < min(until or now, now) - _MINUTE:
        return TimeRange("", since, until)
    name = parameters.get("range", DEFAULT)
    name = name if name in RANGES else DEFAULT
    return TimeRange(name, now - RANGES[name][0], None)


def _moment(text: str | None) -> datetime | None:
    """A time of the address of a page; one without a time zone, as a form sends it, is in UTC."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    if not 2000 <= at.year <= 9998:
        return None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
