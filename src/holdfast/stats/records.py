"""Statistics: the current figures, a time series, hosts, what is due next, and the overview of `holdfast status`."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from holdfast.alerts.records import Alert
from holdfast.jobs.records import Job
from holdfast.model.activity import WorkerProblem
from holdfast.model.health import DiskSpace
from holdfast.model.record import record
from holdfast.workers.records import ActiveWorker

RATE_SPAN: Final = timedelta(minutes=1)
"""Rates are averages over this time."""
SILENCE: Final = timedelta(seconds=120)
"""A worker without a heartbeat for this long counts as dead."""


@record
class Stats:
    """Current figures. Totals count from the beginning, rates are of the last minute."""

    at: datetime
    pages_total: int
    requests_total: int
    errors_total: int
    bytes_total: int
    robots_denials_total: int
    pages_per_second: float
    """Of the last minute, like the three below."""
    requests_per_second: float
    errors_per_second: float
    bytes_per_second: float
    success_rate: float | None
    """The share of the last minute's requests that were no errors, from 0 to 1; null: there were no requests."""
    frontier_size: int
    """URLs that wait."""
    domains: dict[str, int]
    """By status; every status is listed, here and in the next two."""
    jobs: dict[str, int]
    """By state."""
    tasks: dict[str, int]
    """By status."""
    workers_active: int
    workers_silent: int
    """Workers with a running run or claims, but without a heartbeat for two minutes."""
    runs: int
    """Worker processes that are marked as running."""
    claims: int
    """Domains that are held."""
    claims_expired: int
    """Those of them whose lease has ended."""
    alerts: int
    """Alerts that fire now."""
    problems: list[WorkerProblem] = field(default_factory=list)
    """Of running workers and their machines: why nothing is fetched (a disk without room, an archive that cannot be written …), and what
    is slow."""


@record
class StatsNow:
    """What moves while the crawl runs: a part of the current figures, and what is at work."""

    at: datetime
    pages_total: int
    bytes_total: int
    pages_per_second: float
    """Of the last minute, like the two below."""
    bytes_per_second: float
    success_rate: float | None
    frontier_size: int
    """URLs that wait."""
    workers_active: int
    claims: int
    """Domains that are held."""
    alerts: int
    """Alerts that fire now."""
    jobs: list[Job]
    """Jobs under way, the first ones; likewise the two below."""
    workers: list[ActiveWorker]
    firing: list[Alert]


@record
class Point:
    """What was crawled in one step of a time series."""

    at: datetime
    """The beginning of the step."""
    seconds: float
    """The length of the step; of the last one, how much of it is over."""
    pages: int
    requests: int
    errors: int
    bytes: int
    robots_denied: int
    """URLs that robots.txt denied, as far as workers have reported them."""
    pages_per_second: float
    success_rate: float | None
    """Of requests, from 0 to 1; null: there were none."""
    latency_p50_ms: float | None
    """The median duration of requests; null: there were none."""
    latency_p95_ms: float | None
    frontier_size: int | None
    """URLs that waited when they were last counted in this step; null: they were not counted."""
    active_workers: int | None
    """The maximum of this step; null: they were not counted."""
    statuses: dict[str, int]
    """Responses by class of HTTP status: 2xx and so on."""


@record
class TimeSeries:
    """What was crawled, step by step."""

    step: timedelta
    points: list[Point]


@record
class Host:
    """What was crawled on one domain."""

    domain: str
    pages: int
    requests: int
    errors: int
    bytes: int


@record
class ErrorCause:
    """Requests of the last minutes that ended with the same error."""

    outcome: str
    count: int
    last_at: datetime
    """When the last of them ended."""
    example_url: str
    """The URL of the last of them."""
    domain: str | None
    """The domain of that URL; null: it was removed."""


@record
class Due:
    """An event that time alone brings about."""

    what: str
    at: datetime
    """When it happens for the first time."""
    domains: int
    """The number of domains that it happens to."""


@record
class Outlook:
    """What is due next, and what waits for an operator or a sweep."""

    at: datetime
    """The time of the database."""
    due: list[Due]
    """The earliest first."""
    stay_blocked: int
    """Domains that stay blocked until an operator resets them."""
    wakes: int
    """Updates of domains that no sweep has folded yet."""
    database_bytes: int


@dataclass(frozen=True, slots=True)
class ChartSpan:
    """A span of time, and the step of its charts."""

    since: datetime | timedelta
    """A time, or so long before now."""
    until: datetime | None
    """None: now."""
    step: timedelta


@record
class Charts:
    """What was crawled in a span of time, and what moves slowly."""

    points: list[Point]
    statuses: dict[int, int]
    """Responses by HTTP status; empty for a span that ended before now."""
    errors: list[ErrorCause]
    """Of the last 15 minutes."""
    domains: dict[str, int]
    """By status; every status is listed."""


@record
class Overview:
    """The whole store at a glance."""

    now: datetime
    jobs: list[Job]
    workers: list[ActiveWorker]
    runs: int
    """Worker processes that are marked as running."""
    domains: dict[str, int]
    """By status; every status is listed."""
    pages_per_second: float
    """Of the last minute, like the two below."""
    errors_per_second: float
    bytes_per_second: float
    due: list[Due]
    stay_blocked: int
    """Domains that stay blocked until an operator resets them."""
    wakes: int
    """Updates of domains that no sweep has folded yet."""
    database_bytes: int
    disks: list[DiskSpace] = field(default_factory=list)
    """Volumes of the machine on which the command runs; what its workers report is in their activity."""
    backups: list[str] = field(default_factory=list)
    """What is wrong with backups, a sentence each."""

    @property
    def empty(self) -> bool:
        """Whether no domain is known yet."""
        return not any(self.domains.values())
