"""Statistics of the crawl as people and programs ask for them: how things stand now, how they went, which answers, which hosts.

The rule: read only. What is asked for often is cheap, and made once a second however many ask; keep one desk for all of them.
"""

import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from holdfast.db import stats
from holdfast.db.connection import Database
from holdfast.errors import UsageError
from holdfast.model import duration
from holdfast.model.domain import Status
from holdfast.model.histograms import FETCH_MS, quantile
from holdfast.model.job import JobState
from holdfast.model.outcome import PAGES, TREATMENT, Outcome
from holdfast.model.task import TaskStatus
from holdfast.stats import queries as current_counts
from holdfast.stats.status import SILENCE, SPAN

MOST_POINTS: Final = 2000
MOST_HOSTS: Final = 500
MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)
STEPS: Final = {"minute": MINUTE, "hour": timedelta(hours=1), "day": DAY}
CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")
FRESH_FOR: Final = 1.0
"""Seconds that a snapshot serves everybody who asks."""
SHARE: Final = 10
"""It is being made for a tenth of the time at the most: at a million domains it takes half a second."""
ERRORS: Final = frozenset(outcome for outcome, treatment in TREATMENT.items() if treatment.error)
"""Outcomes that are errors of their domains."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_STEP: Final = timedelta(days=366)
_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)

T = TypeVar("T")


class Cached(Generic[T]):
    """A value that is made anew when it is asked for and too old. One thread makes it; others wait for that one.

    It serves for `seconds`, or for `SHARE` times as long as it took to make: however many ask, making it takes no more of the time.
    """

    def __init__(
        self, make: Callable[[], T], *, seconds: float = FRESH_FOR, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._made: tuple[float, T] | None = None

    def get(self) -> T:
        """The value. What goes wrong in making it is raised, and the next who asks tries again."""
        with self._lock:
            if self._made is None or self._clock() >= self._made[0]:
                begun = self._clock()
                value = self._make()
                ended = self._clock()
                self._made = (ended + max(self._seconds, SHARE * (ended - begun)) if self._seconds else ended, value)
            return self._made[1]


@dataclass(frozen=True, slots=True)
class Counters:
    """What was counted since the beginning, and in the last minute."""

    counts: Mapping[tuple[str, str], stats.Count]

    def total(self, name: str, label: str = "") -> int:
        """One figure."""
        return self.counts.get((name, label), stats.Count()).total

    def labelled(self, name: str) -> dict[str, int]:
        """All figures of a name, by their labels."""
        return {label: count.total for (known, label), count in sorted(self.counts.items()) if known == name}

    def lately(self, name: str) -> int:
        """Of the last minute, whatever the label."""
        return sum(count.lately for (known, _), count in self.counts.items() if known == name)

    def of(self, outcomes: Container[str]) -> stats.Count:
        """Requests with one of these outcomes."""
        found = [count for (name, label), count in self.counts.items() if name == "outcome" and label in outcomes]
        return stats.Count(sum(count.total for count in found), sum(count.lately for count in found))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """How things stand. Totals are since the beginning, rates of the last minute."""

    at: datetime
    pages_total: int
    requests_total: int
    errors_total: int
    bytes_total: int
    robots_denials_total: int
    pages_per_second: float
    requests_per_second: float
    errors_per_second: float
    bytes_per_second: float
    success_rate: float | None
    """The share of requests that were no errors; None: there were none."""
    frontier_size: int
    """URLs that wait."""
    domains: dict[str, int]
    """By status; every status is named, as below."""
    jobs: dict[str, int]
    tasks: dict[str, int]
    workers_active: int
    workers_silent: int
    runs: int
    """Worker processes that say they run."""
    claims: int
    """Domains that are held."""
    claims_expired: int
    """Of these: the lease has ended."""
    alerts: int
    """Those that are firing."""


@dataclass(frozen=True, slots=True)
class Point:
    """What was crawled from `at` on, for one step of a series."""

    at: datetime
    seconds: float
    """How much of the step is over."""
    pages: int = 0
    requests: int = 0
    errors: int = 0
    bytes: int = 0
    robots_denied: int = 0
    """As far as workers have reported it by then."""
    pages_per_second: float = 0.0
    success_rate: float | None = None
    latency_p50_ms: float | None = None
    latency_p95_ms: float | None = None
    frontier_size: int | None = None
    """As it was last seen in this step; None: nobody looked."""
    active_workers: int | None = None
    """The most that were seen."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Answers by class: 2xx and so on."""


@dataclass(frozen=True, slots=True)
class Host:
    """What was crawled of a domain."""

    domain: str
    pages: int
    requests: int
    errors: int
    bytes: int


class StatsService:
    """Statistics of one store, as the command line, the API and the dashboard ask for them. Several threads may."""

    def __init__(self, database: Database, *, silence: timedelta = SILENCE, fresh_for: float = FRESH_FOR) -> None:
        self._database = database
        self._silence = silence
        self._snapshot = Cached(self._look, seconds=fresh_for)

    def snapshot(self) -> Snapshot:
        """How things stand now, or did a second ago."""
        return self._snapshot.get()

    def _look(self) -> Snapshot:
        with self._database.session() as connection:
            at = stats.now(connection)
            counters = Counters(stats.counters(connection))
            standing = current_counts.store_counts(connection, silence=self._silence)
        requests, pages, errors = counters.of(frozenset(Outcome)), counters.of(PAGES), counters.of(ERRORS)
        seconds = SPAN.total_seconds()
        return Snapshot(
            at=at,
            pages_total=pages.total,
            requests_total=requests.total,
            errors_total=errors.total,
            bytes_total=counters.total("bytes"),
            robots_denials_total=counters.total("robots_denied"),
            pages_per_second=pages.lately / seconds,
            requests_per_second=requests.lately / seconds,
            errors_per_second=errors.lately / seconds,
            bytes_per_second=counters.lately("bytes") / seconds,
            success_rate=success_rate(requests.lately, errors.lately),
            frontier_size=standing.frontier_size,
            domains=dict.fromkeys(map(str, Status), 0) | standing.domains,
            jobs=dict.fromkeys(map(str, JobState), 0) | standing.jobs,
            tasks=dict.fromkeys(map(str, TaskStatus), 0) | standing.tasks,
            workers_active=standing.active_workers,
            workers_silent=standing.silent_workers,
            runs=standing.runs,
            claims=standing.held,
            claims_expired=standing.expired,
            alerts=sum(standing.alerts.values()),
        )

    def timeseries(
        self, since: datetime, until: datetime | None = None, step: timedelta = timedelta(minutes=1)
    ) -> list[Point]:
        """What was crawled in each step from `since` to `until` (None: now); steps begin at whole multiples of UTC. Gaps are zeros.

        Minutes are kept for a week, so a step of whole days is needed for what is older.
        """
        check_step(step)
        since = _moment(since)
        with self._database.session() as connection:
            now = stats.now(connection)
            until = now if until is None else min(_moment(until), now)
            first = _EPOCH + (since - _EPOCH) // step * step
            _check_span(since, until, now, step)
            rows = stats.series(connection, since=first, until=until, step=step, days=_by_day(step))
        found = {row.pop("start"): row for row in rows}
        return [_point(at, step, now, found.get(at)) for at in _steps(first, until, step)]

    def status_codes(self, since: datetime) -> dict[int, int]:
        """How often servers answered with each status since then; by whole days if that is more than a week ago."""
        since = _moment(since)
        with self._database.session() as connection:
            now = stats.now(connection)
            if since > now:
                raise UsageError("The time to begin at is in the future.")
            days = since < now - stats.KEPT
            first = _EPOCH + (since - _EPOCH) // DAY * DAY if days else since
            return stats.status_codes(connection, since=first, until=now, days=days)

    def hosts(self, span: timedelta = timedelta(hours=1), *, limit: int = 20) -> list[Host]:
        """The domains of which most pages were fetched in the last `span`, a day at the most: all of its log is read."""
        if not timedelta(0) < span <= DAY:
            raise UsageError("Hosts can be asked for of the last day at the most.")
        if not 1 <= limit <= MOST_HOSTS:
            raise UsageError(f"A list gives 1 to {MOST_HOSTS} at once, not {limit}.")
        with self._database.session() as connection:
            return [Host(**row) for row in stats.hosts(connection, span=span, limit=limit)]


def success_rate(requests: int, errors: int) -> float | None:
    """The share of requests that were no errors; None: there were none. What a proxy lost is tried elsewhere, and no error."""
    return 1 - errors / requests if requests else None


def step_of(text: str) -> timedelta:
    """A step as people write it: minute, hour, day, or a number of minutes such as 5m. Raises UsageError."""
    if text in STEPS:
        return STEPS[text]
    try:
        step = duration.parse(text)
    except ValueError as problem:
        raise UsageError("A step is minute, hour, day, or whole minutes such as 5m.") from problem
    check_step(step)
    return step


def check_step(step: timedelta) -> None:
    """Raise UsageError for what cannot be a step."""
    if not MINUTE <= step <= _LONGEST_STEP or step % MINUTE:
        raise UsageError("A step is minute, hour, day, or whole minutes such as 5m.")


def by_class(statuses: Mapping[str, int]) -> dict[str, int]:
    """Answers by class, which the first of three digits tells; what is no status of HTTP is `other`, if there is any."""
    counts = dict.fromkeys(CLASSES, 0)
    for code, count in statuses.items():
        name = f"{code[:1]}xx" if len(code) in {1, 3} and f"{code[:1]}xx" in CLASSES else "other"
        counts[name] = counts.get(name, 0) + count
    return counts


def _by_day(step: timedelta) -> bool:
    return not step % DAY


def _moment(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise UsageError("A time says its zone, as in 2031-12-24T18:00Z.")
    return max(at, _EARLIEST)


def _check_span(since: datetime, until: datetime, now: datetime, step: timedelta) -> None:
    if since >= until:
        raise UsageError("The time to begin at is not before the time to end at.")
    if not _by_day(step) and since < now - stats.KEPT - MINUTE:
        raise UsageError(f"Minutes are kept for {stats.KEPT.days} days: ask for what is older with a step of a day.")
    if (until - since) / step > MOST_POINTS:
        raise UsageError(f"That would be more than {MOST_POINTS} points: take a longer step, or less time.")


def _steps(first: datetime, until: datetime, step: timedelta) -> Iterator[datetime]:
    while first < until:
        yield first
        first += step


def _point(at: datetime, step: timedelta, now: datetime, row: Mapping[str, Any] | None) -> Point:
    seconds = min(step, now - at).total_seconds()
    if row is None:
        return Point(at, seconds, statuses=by_class({}))
    return Point(
        at,
        seconds,
        pages=row["pages"],
        requests=row["requests"],
        errors=row["errors"],
        bytes=row["bytes"],
        robots_denied=row["robots_denied"],
        pages_per_second=row["pages"] / max(seconds, 1.0),
        success_rate=success_rate(row["requests"], row["errors"]),
        latency_p50_ms=quantile(FETCH_MS, row["latency"], 0.5),
        latency_p95_ms=quantile(FETCH_MS, row["latency"], 0.95),
        frontier_size=row["frontier_size"],
        active_workers=row["active_workers"],
        statuses=by_class(row["classes"] or {}),
    )
