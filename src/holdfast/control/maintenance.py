"""What every tick of the background does beside the schedule: figures are added up, alerts looked for, what is old is deleted.

The rule: each is a transaction of its own, or a few, and does nothing if another background did it a moment ago. So one that fails keeps no
other from being done, and any number of backgrounds may tick.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Self

from holdfast.accounts.queries import login_attempts, sessions
from holdfast.alerts import queries as alerts
from holdfast.alerts.rules import Rules
from holdfast.db import events, idempotency_keys, periodic_locks, rate_limits, stats
from holdfast.db.connection import Connection
from holdfast.operations import queries as operations
from holdfast.settings import Settings
from holdfast.stats import queries as current_counts
from holdfast.webhooks import queries

log: Final = logging.getLogger(__name__)

TRIM_EVERY: Final = timedelta(seconds=55)
CHUNK: Final = 1_000
TRIM_CHUNKS: Final = 20
"""Of each table in one tick, lest it keep others waiting."""

Duty = Callable[[Connection], object]


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What is to be done, and by which rules."""

    rules: Rules = field(default_factory=Rules)
    login_window: timedelta = timedelta(minutes=15)
    """How long failed logins count."""
    jobs_url: str | None = None
    """Where ends and reopenings of jobs are told; None: nowhere."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings say."""
        return cls(Rules.of(settings), settings.web.login_window, settings.webhook.jobs_url)

    def duties(self) -> Mapping[str, Duty]:
        """Each with its name, in the order in which they are done. Before each: no transaction is open."""
        return {
            "where jobs are told": self.tell_jobs,
            "figures": fold,
            "gauges": self.sample,
            "alerts": self.rules.look,
            "alerts of proxies": self.rules.look_at_proxies,
            "what is old": self.trim,
        }

    def tell_jobs(self, connection: Connection) -> None:
        """Let changes of jobs be told where the settings say."""
        queries.tell_jobs(connection, self.jobs_url)

    def sample(self, connection: Connection) -> bool:
        """Write down how things stand when a minute has ended; whether it was."""
        with periodic_locks.acquire(connection, periodic_locks.CURRENT_COUNTS, every=None) as turn:
            if turn.due:
                now = current_counts.store_counts(connection, silence=self.rules.silence)
                stats.sample(
                    connection, frontier_size=now.frontier_size, active_workers=now.active_workers, domains=now.domains
                )
        return turn.due

    def trim(self, connection: Connection) -> int:
        """Delete what is too old: minutes, events, alerts, sessions, answers, operations; how many. A pile takes several ticks."""
        deleted = 0
        for _ in range(TRIM_CHUNKS):
            with connection.transaction():
                if not periodic_locks.try_lock(connection, periodic_locks.TRIM, every=TRIM_EVERY):
                    return deleted
                gone = stats.trim(connection) + events.trim(connection) + alerts.trim(connection)
                gone += (
                    idempotency_keys.delete_expired(connection)
                    + rate_limits.delete_unused(connection)
                    + operations.tidy(connection)
                )
                gone += sessions.tidy(connection, chunk=CHUNK)
                gone += login_attempts.tidy(connection, window=self.login_window, chunk=CHUNK)
                deleted += gone
                if not gone:
                    periodic_locks.mark_done(connection, periodic_locks.TRIM)
        return deleted


def fold(connection: Connection) -> int:
    """Add up what was counted; how many rows that were."""
    folded = stats.fold(connection)
    for fault in folded.faults:
        log.error("%s", fault)
    return folded.rows
