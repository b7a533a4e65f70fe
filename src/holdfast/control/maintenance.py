"""Maintenance in every tick of the background: fold statistics, check for alerts, delete what is old.

The rule: each duty has transactions of its own, and does nothing if another process did it a moment ago. So one that fails does not
prevent the others, and any number of background processes may run.
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
from holdfast.stats import queries
from holdfast.storage.service import StorageService
from holdfast.webhooks import queries as webhooks

log: Final = logging.getLogger(__name__)

TRIM_EVERY: Final = timedelta(seconds=55)
CHUNK: Final = 1_000
TRIM_CHUNKS: Final = 20
"""Chunks that one tick deletes at most, so that other duties do not wait."""

Duty = Callable[[Connection], object]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The duties of a tick, and their settings."""

    rules: Rules = field(default_factory=Rules)
    login_window: timedelta = timedelta(minutes=15)
    """How long failed logins count."""
    jobs_url: str | None = None
    """The receiver of webhooks about ended and reopened jobs; None: there is none."""
    storage: StorageService | None = None
    """Measures the sizes once a day; None: not in this process."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """From the settings."""
        return cls(Rules.of(settings), settings.web.login_window, settings.webhook.jobs_url)

    def duties(self) -> Mapping[str, Duty]:
        """Return all duties by name, in the order in which they run. Before each: no transaction is open."""
        return {
            "receiver of jobs": self.set_jobs_url,
            "statistics": fold,
            "current counts": self.sample,
            "alerts": self.rules.look,
            "alerts of proxies": self.rules.look_at_proxies,
            "what is old": self.trim,
            "sizes": self.measure,
        }

    def measure(self, connection: Connection) -> bool:
        """Store the sizes of today, once a day; return whether it was done."""
        return self.storage is not None and self.storage.measure(connection)

    def set_jobs_url(self, connection: Connection) -> None:
        """Store the receiver of webhooks about jobs, which a trigger reads."""
        webhooks.tell_jobs(connection, self.jobs_url)

    def sample(self, connection: Connection) -> bool:
        """Store the current counts when a minute has ended; return whether one had."""
        with periodic_locks.acquire(connection, periodic_locks.CURRENT_COUNTS, every=None) as turn:
            if turn.due:
                counts = queries.store_counts(connection, silence=self.rules.silence)
                stats.sample(
                    connection,
                    frontier_size=counts.frontier_size,
                    active_workers=counts.active_workers,
                    domains=counts.domains,
                )
        return turn.due

    def trim(self, connection: Connection) -> int:
        """Delete old minutes, events, alerts, sessions, stored responses and operations; return how many. Many rows take several ticks."""
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
    """Fold statistics; return the number of rows."""
    folded = stats.fold(connection)
    for fault in folded.faults:
        log.error("%s", fault)
    return folded.rows
