"""How things stand, in a few figures: jobs, workers, domains, pace, what is due."""

from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.db import domains, operator_reports
from holdfast.db.connection import Database
from holdfast.jobs.queries import jobs as job_queries
from holdfast.model.domain import Status
from holdfast.workers import queries as workers

SPAN: Final = timedelta(minutes=1)
"""The pace is of so long."""
SILENCE: Final = timedelta(seconds=120)
"""A worker that was not heard of for so long counts as dead."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The whole store at a glance."""

    now: datetime
    jobs: list[dict[str, Any]]
    workers: list[dict[str, Any]]
    runs: int
    """Worker processes that say they run."""
    domains: dict[str, int]
    """By status; every status is named."""
    pages_per_second: float
    """Of the last minute, like the two below."""
    errors_per_second: float
    bytes_per_second: float
    due: list[dict[str, Any]]
    stay_blocked: int
    """Domains that only a person can start over."""
    wakes: int
    """News for domains that no sweep has folded yet."""
    database_bytes: int

    @property
    def empty(self) -> bool:
        """Nothing has ever been asked for."""
        return not any(self.domains.values())


def overview(database: Database) -> Overview:
    """How things stand now."""
    with database.session() as connection:
        totals = operator_reports.totals(connection)
        lately = operator_reports.recent_activity(connection, SPAN)
        seconds = SPAN.total_seconds()
        return Overview(
            now=totals["now"],
            jobs=[asdict(job) for job in job_queries.everything(connection)],
            workers=[asdict(one) for one in workers.at_work(connection, silence=SILENCE)],
            runs=totals["runs"],
            domains=dict.fromkeys(map(str, Status), 0) | domains.counts(connection),
            pages_per_second=lately["pages"] / seconds,
            errors_per_second=lately["errors"] / seconds,
            bytes_per_second=lately["bytes"] / seconds,
            due=operator_reports.upcoming(connection),
            stay_blocked=totals["stay_blocked"],
            wakes=totals["wakes"],
            database_bytes=totals["database_bytes"],
        )
