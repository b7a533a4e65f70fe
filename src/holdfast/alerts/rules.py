"""The rules of alerts: what raises and resolves them.

The rule: a rule is a question to the store and a bound. It is asked every ten seconds by whichever background ticks, one at a time; an
alert is raised once and resolved by itself.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Self

from holdfast.alerts import queries
from holdfast.alerts.queries import Changed, Finding, Minute
from holdfast.db import job_queue, periodic_locks
from holdfast.db.connection import Connection
from holdfast.model.outcome import TREATMENT, Outcome
from holdfast.model.proxy import ProxyMode
from holdfast.proxies.queries import reports as proxy_reports
from holdfast.settings import Settings
from holdfast.stats.records import SILENCE

EVERY: Final = timedelta(seconds=9)
"""Looked at by each tick of ten seconds."""
PROXIES_EVERY: Final = timedelta(seconds=55)
"""The same of proxies, for which all domains are looked at."""

_LOOKED_AT: Final = 1_000
_CAUSES: Final = 5
"""The most frequent ones, which an alert names."""
_ERRORS: Final = frozenset(
    {Outcome.NOT_FOUND, *(outcome for outcome, treatment in TREATMENT.items() if treatment.error)}
)
"""All answers with a status of 4xx or 5xx, and requests without a usable answer. A page that is gone says nothing against its domain, and
so is no error there; but a crawl that finds nothing else is one that an operator has to look at."""


class Kind(StrEnum):
    """What may be wrong."""

    ERROR_RATE = "error_rate"
    """In each of the last minutes too many requests were errors; the value is their share over all of them."""
    BACKLOG = "backlog"
    """The frontier grows too fast; the value is by how much it grew a minute."""
    WORKER_SILENT = "worker_silent"
    """A worker that holds domains, or says that it runs, is not heard of; the value is for how many seconds."""
    FEW_PROXIES = "few_proxies"
    """A domain that uses its pool has too few active proxies; the value is how many."""
    PROXIES_FAIL = "proxies_fail"
    """The proxies of a domain fail too often; the value is the share of requests."""


OF_CRAWLING: Final = (Kind.ERROR_RATE, Kind.BACKLOG, Kind.WORKER_SILENT)
OF_PROXIES: Final = (Kind.FEW_PROXIES, Kind.PROXIES_FAIL)


@dataclass(frozen=True, slots=True)
class Rules:
    """The bounds."""

    minutes: int = 5
    """So long it has to be wrong."""
    error_rate: float = 0.20
    least_errors: int = 20
    """In all these minutes: of ten requests three failures say nothing. At the bound of 20 % it takes 100 requests, where every request
    fails 20: a crawl with 15 s between its requests has them."""
    growth: float = 0.10
    """A minute."""
    least_backlog: int = 1_000
    """At the beginning of these minutes: every crawl begins with a frontier that grows fast."""
    silence: timedelta = SILENCE
    fewest_proxies: int = proxy_reports.FEWEST
    proxy_failures: float = proxy_reports.MOST_FAILURES
    """Per cent."""
    usual: ProxyMode = ProxyMode.DIRECT
    """What domains use that say nothing."""
    tell: str | None = None
    """Where it is told; None: nowhere."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings say. Workers that give signs of life more rarely are silent later."""
        silence = max(SILENCE, 4 * settings.worker.heartbeat)
        return cls(silence=silence, usual=ProxyMode(settings.proxies.use), tell=settings.webhook.alerts_url)

    def look(self, connection: Connection) -> Changed:
        """Raise what is wrong with crawling and workers, resolve what is not any more, if that is due and nobody is at it."""
        with periodic_locks.acquire(connection, periodic_locks.ALERTS, every=EVERY) as turn:
            if not turn.due:
                return Changed()
            found = [*self.of_crawling(connection), *self.of_workers(connection)]
            return self._settle(connection, found, OF_CRAWLING)

    def look_at_proxies(self, connection: Connection) -> Changed:
        """The same for proxies."""
        with periodic_locks.acquire(connection, periodic_locks.PROXIES, every=PROXIES_EVERY) as turn:
            if not turn.due:
                return Changed()
            return self._settle(connection, list(self.of_proxies(connection)), OF_PROXIES)

    def _settle(self, connection: Connection, found: Sequence[Finding], kinds: Sequence[Kind]) -> Changed:
        changed = queries.settle(connection, found, kinds=kinds, tell=self.tell)
        if self.tell is not None and (changed.raised or changed.resolved):
            job_queue.defer_notify(connection)
        return changed

    # The rules

    def of_crawling(self, connection: Connection) -> Iterator[Finding]:
        """Errors, and the frontier."""
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
        """The share of errors, if it was too large in each of these minutes; None: it was not, or nobody can tell."""
        errors = [_errors(minute).total() for minute in lately]
        if sum(errors) < self.least_errors or len(lately) < self.minutes:
            return None
        # Also one without requests.
        if any(count <= self.error_rate * minute.requests for count, minute in zip(errors, lately, strict=True)):
            return None
        return sum(errors) / sum(minute.requests for minute in lately)

    def growing(self, sizes: Sequence[int]) -> float | None:
        """By how much the frontier grew a minute, if that was too much; None: it was not, or nobody can tell."""
        if len(sizes) <= self.minutes or sizes[0] < self.least_backlog:
            return None
        growth = (sizes[-1] / sizes[0]) ** (1 / (len(sizes) - 1)) - 1
        return growth if growth > self.growth else None

    def of_workers(self, connection: Connection) -> Iterator[Finding]:
        """Workers that are not heard of."""
        for one in queries.silent_workers(connection, silence=self.silence, limit=_LOOKED_AT):
            details = {"host": one.host, "domains": one.held, "last_heard_of": one.heartbeat_at.isoformat()}
            yield Finding(Kind.WORKER_SILENT, one.name, one.seconds, details)

    def of_proxies(self, connection: Connection) -> Iterator[Finding]:
        """Domains to look after."""
        for few in proxy_reports.few_active(connection, usual=self.usual, fewest=self.fewest_proxies, limit=_LOOKED_AT):
            yield Finding(Kind.FEW_PROXIES, few.domain, few.active, {"proxies": few.proxies})
        for many in proxy_reports.many_failures(
            connection, usual=self.usual, most=self.proxy_failures, limit=_LOOKED_AT
        ):
            details = {"requests": many.requests, "refused": many.total_failures, "failed": many.proxy_failures}
            yield Finding(Kind.PROXIES_FAIL, many.domain, many.failure_percent / 100, details)


def _errors(minute: Minute) -> Counter[str]:
    return Counter({outcome: count for outcome, count in minute.outcomes.items() if outcome in _ERRORS})
