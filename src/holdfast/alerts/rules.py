"""The rules of alerts: what raises and resolves them.

The rule: each rule is a query and a bound. Background processes check them every ten seconds, one process at a time; an alert is raised
once, and resolved when the query no longer finds it.
"""

import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from holdfast.alerts import queries
from holdfast.alerts.queries import Changed, Finding, Minute, ReportedProblem
from holdfast.alerts.records import Kind
from holdfast.db import job_queue, periodic_locks
from holdfast.db.connection import Connection
from holdfast.model.activity import ProblemKind, WorkerProblem
from holdfast.model.outcome import TREATMENT, Outcome
from holdfast.model.proxy import ProxyMode
from holdfast.proxies.queries import reports as proxy_reports
from holdfast.settings import Settings
from holdfast.stats.records import SILENCE

EVERY: Final = timedelta(seconds=9)
"""The interval of checks, by each tick of ten seconds."""
PROXIES_EVERY: Final = timedelta(seconds=55)
"""The interval of checks of proxies, which read all domains."""

_MAX_FINDINGS: Final = 1_000
_CAUSES: Final = 5
"""The number of causes that an alert lists, the frequent ones first."""
_ERRORS: Final = frozenset(
    {Outcome.NOT_FOUND, *(outcome for outcome, treatment in TREATMENT.items() if treatment.error)}
)
"""All responses with a status of 4xx or 5xx, and requests without a usable response. A missing page is no error of its domain; but a
crawl with only missing pages needs an operator."""


OF_CRAWLING: Final = (
    Kind.ERROR_RATE,
    Kind.BACKLOG,
    Kind.WORKER_SILENT,
    Kind.BACKGROUND_SILENT,
    Kind.BACKUP_FAILED,
    Kind.UPLOADS_FAIL,
)
OF_MACHINES: Final = (
    Kind.DISK_LOW,
    Kind.DISK_FULL,
    Kind.ARCHIVE_UNAVAILABLE,
    Kind.IMAGES_UNAVAILABLE,
    Kind.DATABASE_SLOW,
    Kind.DATABASE_UNAVAILABLE,
)
HOLD: Final = dict.fromkeys(map(str, (*OF_MACHINES, Kind.BACKUP_FAILED, Kind.UPLOADS_FAIL)), timedelta(seconds=30)) | {
    str(kind): timedelta(minutes=2) for kind in (Kind.DATABASE_SLOW, Kind.DATABASE_UNAVAILABLE)
}
"""How long after the last finding an alert still fires: what comes and goes is one alert, and not one message a minute."""
_KINDS: Final = {
    ProblemKind.DISK_LOW: Kind.DISK_LOW,
    ProblemKind.DISK_FULL: Kind.DISK_FULL,
    ProblemKind.ARCHIVE: Kind.ARCHIVE_UNAVAILABLE,
    ProblemKind.IMAGES: Kind.IMAGES_UNAVAILABLE,
    ProblemKind.DATABASE: Kind.DATABASE_UNAVAILABLE,
    ProblemKind.DATABASE_SLOW: Kind.DATABASE_SLOW,
    ProblemKind.DATABASE_AWAY: Kind.DATABASE_UNAVAILABLE,
}
OF_PROXIES: Final = (Kind.FEW_PROXIES, Kind.PROXIES_FAIL)


@dataclass(frozen=True, slots=True)
class Rules:
    """The bounds of all rules."""

    minutes: int = 5
    """The time for which a bound must be exceeded."""
    error_rate: float = 0.20
    least_errors: int = 20
    """In all these minutes: three failures of ten requests prove nothing. At the bound of 20 % it takes 100 requests; if every request
    fails, 20, which a crawl with 15 s between its requests has."""
    growth: float = 0.10
    """Per minute."""
    least_backlog: int = 1_000
    """At the beginning of these minutes: every crawl begins with a frontier that grows fast."""
    silence: timedelta = SILENCE
    fewest_proxies: int = proxy_reports.MIN_ACTIVE
    proxy_failures: float = proxy_reports.MAX_FAILURE_PERCENT
    """Per cent."""
    backup_silence: timedelta = timedelta(minutes=1)
    """The time for which the log of the database may not be copied."""
    upload_silence: timedelta = timedelta(minutes=5)
    """The time for which a machine may not be able to upload its archive."""
    default_mode: ProxyMode = ProxyMode.DIRECT
    """The proxy mode of domains without one of their own."""
    webhook_url: str | None = None
    """The receiver of webhooks; None: there is none."""
    own: Callable[[], Sequence[WorkerProblem]] = list
    """Problems that this process sees on its own machine, which may have no worker."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """From the settings. With rarer heartbeats a worker counts as silent later."""
        silence = max(SILENCE, 4 * settings.worker.heartbeat)
        return cls(
            silence=silence, default_mode=ProxyMode(settings.proxies.use), webhook_url=settings.webhook.alerts_url
        )

    def look(self, connection: Connection) -> Changed:
        """Raise and resolve alerts of crawling and workers, if that is due and no other process does it."""
        with periodic_locks.acquire(connection, periodic_locks.ALERTS, every=EVERY) as turn:
            if not turn.due:
                return Changed()
            found = [
                *self.of_crawling(connection),
                *self.of_workers(connection),
                *self.of_machines(connection),
                *self.of_backups(connection),
                *self.of_uploads(connection),
            ]
            return self._settle(connection, found, (*OF_CRAWLING, *OF_MACHINES))

    def look_at_proxies(self, connection: Connection) -> Changed:
        """Raise and resolve alerts of proxies, likewise."""
        with periodic_locks.acquire(connection, periodic_locks.PROXIES, every=PROXIES_EVERY) as turn:
            if not turn.due:
                return Changed()
            return self._settle(connection, list(self.of_proxies(connection)), OF_PROXIES)

    def _settle(self, connection: Connection, found: Sequence[Finding], kinds: Sequence[Kind]) -> Changed:
        changed = queries.settle(connection, found, kinds=kinds, webhook_url=self.webhook_url, hold=HOLD)
        if self.webhook_url is not None and (changed.raised or changed.resolved):
            job_queue.defer_notify(connection)
        return changed

    # The rules

    def of_crawling(self, connection: Connection) -> Iterator[Finding]:
        """Check the error rate and the growth of the frontier."""
        lately = queries.minutes(connection, count=self.minutes)
        if (rate := self.failing(lately)) is not None:
            causes = sum((_errors(minute) for minute in lately), Counter[str]())
            details = {
                "requests": sum(minute.requests for minute in lately),
                "errors": causes.total(),
                "minutes": self.minutes,
                "causes": [{"cause": cause, "requests": count} for cause, count in causes.most_common(_CAUSES)],
            }
            yield Finding(Kind.ERROR_RATE, "", rate, details)
        sizes = [size for _, size in queries.backlog(connection, count=self.minutes)]
        if (growth := self.growing(sizes)) is not None:
            yield Finding(Kind.BACKLOG, "", growth, {"from": sizes[0], "to": sizes[-1], "minutes": self.minutes})

    def failing(self, lately: Sequence[Minute]) -> float | None:
        """Return the share of errors, if it was too large in each of these minutes; None: it was not, or there are too few requests."""
        errors = [_errors(minute).total() for minute in lately]
        if sum(errors) < self.least_errors or len(lately) < self.minutes:
            return None
        # A minute without requests is within the bound, too.
        if any(count <= self.error_rate * minute.requests for count, minute in zip(errors, lately, strict=True)):
            return None
        return sum(errors) / sum(minute.requests for minute in lately)

    def growing(self, sizes: Sequence[int]) -> float | None:
        """Return the growth of the frontier per minute, if it was too large; None: it was not, or too little is known."""
        if len(sizes) <= self.minutes or sizes[0] < self.least_backlog:
            return None
        growth = (sizes[-1] / sizes[0]) ** (1 / (len(sizes) - 1)) - 1
        return growth if growth > self.growth else None

    def of_workers(self, connection: Connection) -> Iterator[Finding]:
        """Check for silent workers."""
        for one in queries.silent_workers(connection, silence=self.silence, limit=_MAX_FINDINGS):
            details = {"host": one.host, "domains": one.held, "last_heard_of": one.heartbeat_at.isoformat()}
            yield Finding(Kind.WORKER_SILENT, one.name, one.seconds, details)

    def of_machines(self, connection: Connection) -> Iterator[Finding]:
        """Check what workers and this process report of their machines and of the database: each problem once, with its greatest value,
        or the least room of a disk."""
        here = socket.gethostname()
        reported = queries.worker_problems(connection, silence=self.silence)
        reported += [ReportedProblem("", here, problem) for problem in self.own()]
        found: dict[tuple[Kind, str], list[ReportedProblem]] = {}
        for one in reported:
            found.setdefault((_KINDS[one.problem.kind], _subject(one)), []).append(one)
        for (kind, subject), of_it in found.items():
            of_disk = kind in (Kind.DISK_LOW, Kind.DISK_FULL)
            worst = (min if of_disk else max)(of_it, key=lambda one: one.problem.value)
            workers = sorted({one.worker for one in of_it if one.worker})
            details = {"text": worst.problem.text, "workers": len(workers), "first_workers": workers[:_CAUSES]}
            yield Finding(kind, subject, worst.problem.value, details)

    def of_backups(self, connection: Connection) -> Iterator[Finding]:
        """Check whether the last backup failed, and whether the log between backups is kept."""
        for one in queries.failed_backups(connection, silence=self.backup_silence):
            yield Finding(Kind.BACKUP_FAILED, one.subject, one.seconds, {"why": one.why})

    def of_uploads(self, connection: Connection) -> Iterator[Finding]:
        """Check for machines that cannot upload their part of the archive."""
        for one in queries.failing_uploads(connection, silence=self.upload_silence, limit=_MAX_FINDINGS):
            details = {"why": one.why, "bytes": one.waiting_bytes}
            yield Finding(Kind.UPLOADS_FAIL, one.machine, one.seconds, details)

    def of_proxies(self, connection: Connection) -> Iterator[Finding]:
        """Check the pools of domains."""
        for few in proxy_reports.few_active(
            connection, default=self.default_mode, min_active=self.fewest_proxies, limit=_MAX_FINDINGS
        ):
            yield Finding(Kind.FEW_PROXIES, few.domain, few.active, {"proxies": few.proxies})
        for many in proxy_reports.many_failures(
            connection, default=self.default_mode, max_percent=self.proxy_failures, limit=_MAX_FINDINGS
        ):
            details = {"requests": many.requests, "refused": many.total_failures, "failed": many.proxy_failures}
            yield Finding(Kind.PROXIES_FAIL, many.domain, many.failure_percent / 100, details)


def _subject(one: ReportedProblem) -> str:
    """The machine, with what is on the disk; the database and the store of images are those of all machines."""
    if one.problem.kind in (ProblemKind.DISK_LOW, ProblemKind.DISK_FULL):
        return f"{one.host} ({one.problem.about})"
    return one.host if one.problem.kind is ProblemKind.ARCHIVE else ""


def _errors(minute: Minute) -> Counter[str]:
    return Counter({outcome: count for outcome, count in minute.outcomes.items() if outcome in _ERRORS})
