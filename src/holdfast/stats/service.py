"""Statistics of the crawl: current figures, time series, HTTP statuses, hosts, what is due next, the overview of `holdfast status`.

The rule: read only. The current figures are requested often, so they are cached for a second; keep one service for all callers.
"""

import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

from holdfast.alerts import queries as alerts
from holdfast.db import domains, operator_reports, stats
from holdfast.db.connection import Database
from holdfast.errors import UsageError
from holdfast.jobs.queries import jobs as job_queries
from holdfast.model import duration
from holdfast.model.domain import Status
from holdfast.model.histograms import FETCH_MS, quantile
from holdfast.model.job import JobState
from holdfast.model.outcome import PAGES, TREATMENT, Outcome
from holdfast.model.task import TaskStatus
from holdfast.stats import queries
from holdfast.stats.records import (
    RATE_SPAN,
    SILENCE,
    Charts,
    ChartSpan,
    Due,
    ErrorCause,
    Host,
    Outlook,
    Overview,
    Point,
    Stats,
    StatsNow,
)
from holdfast.workers import queries as worker_queries

MAX_POINTS: Final = 2000
MAX_HOSTS: Final = 500
MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)
STEPS: Final = {"minute": MINUTE, "hour": timedelta(hours=1), "day": DAY}
CLASSES: Final = ("1xx", "2xx", "3xx", "4xx", "5xx")
FRESH_FOR: Final = 1.0
"""Seconds that the current figures are cached."""
SHARE: Final = 10
"""A value is cached for at least ten times as long as it took to compute: at a million domains the figures take half a second."""
ERRORS: Final = frozenset(outcome for outcome, treatment in TREATMENT.items() if treatment.error)
"""Outcomes that are errors of their domains."""
ERROR_CAUSES: Final = ERRORS | {Outcome.NOT_FOUND}
"""Outcomes that are shown as errors: a missing page is no error of its domain, but an operator looks for it."""
ERRORS_SHOWN: Final = timedelta(minutes=15)
"""Errors by cause are those of this time, unless another is asked for."""
MAX_ERROR_SPAN: Final = timedelta(hours=1)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_STEP: Final = timedelta(days=366)
_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)

T = TypeVar("T")


class Cached(Generic[T]):
    """A value that is computed again when it is requested and too old. One thread computes it; other callers wait for it.

    It is cached for `seconds`, or for `SHARE` times as long as it took to compute, so that the cost is bounded for any number of callers.
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
        """Return the value. An error while it is computed is raised, and the next call tries again."""
        with self._lock:
            if self._made is None or self._clock() >= self._made[0]:
                started = self._clock()
                value = self._make()
                ended = self._clock()
                self._made = (ended + max(self._seconds, SHARE * (ended - started)) if self._seconds else ended, value)
            return self._made[1]


@dataclass(frozen=True, slots=True)
class Counters:
    """Counts since the beginning, and of the last minute."""

    counts: Mapping[tuple[str, str], stats.Count]

    def total(self, name: str, label: str = "") -> int:
        """Return one count."""
        return self.counts.get((name, label), stats.Count()).total

    def labelled(self, name: str) -> dict[str, int]:
        """Return all counts of a name, by label."""
        return {label: count.total for (known, label), count in sorted(self.counts.items()) if known == name}

    def lately(self, name: str) -> int:
        """Return the count of the last minute, over all labels."""
        return sum(count.lately for (known, _), count in self.counts.items() if known == name)

    def of(self, outcomes: Container[str]) -> stats.Count:
        """Count requests with one of these outcomes."""
        found = [count for (name, label), count in self.counts.items() if name == "outcome" and label in outcomes]
        return stats.Count(sum(count.total for count in found), sum(count.lately for count in found))


class StatsService:
    """Statistics of one store, for the command line, the API and the dashboard. It may be shared by threads."""

    def __init__(self, database: Database, *, silence: timedelta = SILENCE, fresh_for: float = FRESH_FOR) -> None:
        self._database = database
        self._silence = silence
        self._fresh_for = fresh_for
        self._snapshot = Cached(self._look, seconds=fresh_for)
        self._errors: dict[timedelta, Cached[list[ErrorCause]]] = {}

    def snapshot(self) -> Stats:
        """Return the current figures, at most a second old."""
        return self._snapshot.get()

    def _look(self) -> Stats:
        with self._database.session() as connection:
            at = stats.now(connection)
            counters = Counters(stats.counters(connection))
            counts = queries.store_counts(connection, silence=self._silence)
            problems = queries.worker_problems(connection, silence=self._silence)
        requests, pages, errors = counters.of(frozenset(Outcome)), counters.of(PAGES), counters.of(ERRORS)
        seconds = RATE_SPAN.total_seconds()
        return Stats(
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
            frontier_size=counts.frontier_size,
            domains=dict.fromkeys(map(str, Status), 0) | counts.domains,
            jobs=dict.fromkeys(map(str, JobState), 0) | counts.jobs,
            tasks=dict.fromkeys(map(str, TaskStatus), 0) | counts.tasks,
            workers_active=counts.active_workers,
            workers_silent=counts.silent_workers,
            runs=counts.runs,
            claims=counts.held,
            claims_expired=counts.expired,
            alerts=sum(counts.alerts.values()),
            problems=problems,
        )

    def now(self, *, limit: int) -> StatsNow:
        """Return what moves while the crawl runs, the first `limit` of each list, in one statement. It is not cached."""
        with self._database.session() as connection:
            found = queries.moving_figures(connection, silence=self._silence, limit=limit)
        counters = Counters(found.counters)
        requests, pages, errors = counters.of(frozenset(Outcome)), counters.of(PAGES), counters.of(ERRORS)
        seconds = RATE_SPAN.total_seconds()
        return StatsNow(
            at=found.at,
            pages_total=pages.total,
            bytes_total=counters.total("bytes"),
            pages_per_second=pages.lately / seconds,
            bytes_per_second=counters.lately("bytes") / seconds,
            success_rate=success_rate(requests.lately, errors.lately),
            frontier_size=found.frontier_size,
            workers_active=found.active_workers,
            claims=found.held,
            alerts=found.alerts_firing,
            jobs=found.jobs,
            workers=found.workers,
            firing=found.alerts,
        )

    def charts(self, span: ChartSpan) -> Charts:
        """Return what was crawled in a span of time, and what moves slowly. It is not cached. Raises UsageError."""
        since = span.since if isinstance(span.since, datetime) else datetime.now(UTC) - span.since
        points = self.timeseries(since, span.until, span.step)
        statuses = self.status_codes(since) if span.until is None else {}
        with self._database.session() as connection:
            domains_by_status = queries.domains_by_status(connection)
        return Charts(
            points, statuses, self._read_errors(ERRORS_SHOWN), dict.fromkeys(map(str, Status), 0) | domains_by_status
        )

    def timeseries(
        self, since: datetime, until: datetime | None = None, step: timedelta = timedelta(minutes=1)
    ) -> list[Point]:
        """Return what was crawled in each step from `since` to `until` (None: now). Steps begin at whole multiples of UTC; gaps are zeros.

        Minutes are kept for a week: older times need a step of whole days. Raises UsageError.
        """
        check_step(step)
        since = _moment(since)
        with self._database.session() as connection:
            now = stats.now(connection)
            until = now if until is None else min(_moment(until), now)
            first = _EPOCH + (since - _EPOCH) // step * step
            _check_span(since, until, now, step)
            rows = stats.series(connection, since=first, until=until, step=step, days=_by_day(step))
        found = {row.start: row for row in rows}
        return [_point(found.get(at) or stats.Sums(at), step, now) for at in _steps(first, until, step)]

    def status_codes(self, since: datetime) -> dict[int, int]:
        """Count responses by HTTP status since then; by whole days if that is more than a week ago. Raises UsageError."""
        since = _moment(since)
        with self._database.session() as connection:
            now = stats.now(connection)
            if since > now:
                raise UsageError("The time to begin at is in the future.")
            days = since < now - stats.KEPT
            first = _EPOCH + (since - _EPOCH) // DAY * DAY if days else since
            return stats.status_codes(connection, since=first, until=now, days=days)

    def hosts(self, span: timedelta = timedelta(hours=1), *, limit: int = 20) -> list[Host]:
        """Return the domains with the greatest numbers of pages in the last `span`, at most a day: all of its log is read."""
        if not timedelta(0) < span <= DAY:
            raise UsageError("Hosts can be listed for at most the last day.")
        if not 1 <= limit <= MAX_HOSTS:
            raise UsageError(f"A list gives 1 to {MAX_HOSTS} at once, not {limit}.")
        with self._database.session() as connection:
            return stats.hosts(connection, span=span, limit=limit)

    def recent_errors(self, span: timedelta = ERRORS_SHOWN) -> list[ErrorCause]:
        """Return the errors of the last `span` by outcome, the most frequent first: whole minutes, at most an hour.

        They are cached like the current figures, each span by itself. Raises UsageError.
        """
        if not MINUTE <= span <= MAX_ERROR_SPAN or span % MINUTE:
            raise UsageError("Errors are listed for the last 1 to 60 whole minutes.")
        cached = self._errors.get(span)
        if cached is None:
            cached = self._errors.setdefault(span, Cached(lambda: self._read_errors(span), seconds=self._fresh_for))
        return cached.get()

    def _read_errors(self, span: timedelta) -> list[ErrorCause]:
        with self._database.session() as connection:
            return stats.recent_errors(connection, span=span, causes=ERROR_CAUSES)

    def outlook(self) -> Outlook:
        """Return what is due next, and what waits for an operator or a sweep. It is not cached."""
        with self._database.session() as connection:
            totals = operator_reports.totals(connection)
            return Outlook(
                at=totals["now"],
                due=[Due(**row) for row in operator_reports.upcoming(connection)],
                stay_blocked=totals["stay_blocked"],
                wakes=totals["wakes"],
                database_bytes=totals["database_bytes"],
            )

    def overview(self) -> Overview:
        """Return the whole store at a glance. It is not cached."""
        with self._database.session() as connection:
            totals = operator_reports.totals(connection)
            activity = operator_reports.recent_activity(connection, RATE_SPAN)
            seconds = RATE_SPAN.total_seconds()
            return Overview(
                now=totals["now"],
                jobs=job_queries.everything(connection),
                workers=worker_queries.at_work(connection, silence=self._silence),
                runs=totals["runs"],
                domains=dict.fromkeys(map(str, Status), 0) | domains.counts(connection),
                pages_per_second=activity["pages"] / seconds,
                errors_per_second=activity["errors"] / seconds,
                bytes_per_second=activity["bytes"] / seconds,
                due=[Due(**row) for row in operator_reports.upcoming(connection)],
                stay_blocked=totals["stay_blocked"],
                wakes=totals["wakes"],
                database_bytes=totals["database_bytes"],
                backups=[one.why for one in alerts.failed_backups(connection)],
            )


def success_rate(requests: int, errors: int) -> float | None:
    """Return the share of requests that were no errors; None: there were no requests. Requests that a proxy lost are no errors."""
    return 1 - errors / requests if requests else None


def parse_step(text: str) -> timedelta:
    """Parse a step: minute, hour, day, or whole minutes such as 5m. Raises UsageError."""
    if text in STEPS:
        return STEPS[text]
    try:
        step = duration.parse(text)
    except ValueError as problem:
        raise UsageError("A step is minute, hour, day, or whole minutes such as 5m.") from problem
    check_step(step)
    return step


def check_step(step: timedelta) -> None:
    """Raise UsageError if a step is not whole minutes, or too long."""
    if not MINUTE <= step <= _LONGEST_STEP or step % MINUTE:
        raise UsageError("A step is minute, hour, day, or whole minutes such as 5m.")


def by_class(statuses: Mapping[str, int]) -> dict[str, int]:
    """Count responses by class of HTTP status; `statuses` are codes, or their first digits. `other`: invalid codes, if there are any."""
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
    if (until - since) / step > MAX_POINTS:
        raise UsageError(f"That would be more than {MAX_POINTS} points: take a longer step, or less time.")


def _steps(first: datetime, until: datetime, step: timedelta) -> Iterator[datetime]:
    while first < until:
        yield first
        first += step


def _point(sums: stats.Sums, step: timedelta, now: datetime) -> Point:
    seconds = min(step, now - sums.start).total_seconds()
    return Point(
        at=sums.start,
        seconds=seconds,
        pages=sums.pages,
        requests=sums.requests,
        errors=sums.errors,
        bytes=sums.bytes,
        robots_denied=sums.robots_denied,
        pages_per_second=sums.pages / max(seconds, 1.0),
        success_rate=success_rate(sums.requests, sums.errors),
        latency_p50_ms=quantile(FETCH_MS, sums.latency, 0.5),
        latency_p95_ms=quantile(FETCH_MS, sums.latency, 0.95),
        frontier_size=sums.frontier_size,
        active_workers=sums.active_workers,
        statuses=by_class(sums.classes or {}),
    )
