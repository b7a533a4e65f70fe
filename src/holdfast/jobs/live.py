"""What a job does at this moment, whichever process crawls it: figures, URLs in flight, and the reason of every wait.

The rule: only what the store holds, so `crawl`, `jobs watch`, `status` and the API see the same. `control/explain_text` has the words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Any, Final

from holdfast.control.explain_text import visit_wait, why_not
from holdfast.db import crawls, explain, workers
from holdfast.db import jobs as rows
from holdfast.db.connection import Connection, Database
from holdfast.jobs import queries as live
from holdfast.jobs.queries import JobFigures
from holdfast.jobs.summary import waits_now
from holdfast.model.activity import Activity, InFlightRequest, VisitWait
from holdfast.model.wait import WaitKind
from holdfast.stats.records import SILENCE

CAUSES_OF: Final = timedelta(minutes=1)
"""Errors are told by cause for so long."""
MAX_HELD: Final = 3
"""Domains that are named which another job holds."""
RUNNABLE: Final = ("pending", "processing")
_SOON: Final = 120.0
"""Seconds; what is farther off is told as a time."""


@dataclass(frozen=True, slots=True)
class LiveWait:
    """Something that a job waits for."""

    what: str
    """A sentence without its end."""
    seconds: float | None = None
    """Until the next attempt, if that is known."""
    change: str | None = None
    """The command or option that changes it."""
    meant: bool = False
    """It is as it should be: the delay between two requests, another job's turn."""

    def text(self, now: datetime) -> str:
        """What, until when, and what changes it."""
        told = self.what
        if self.seconds is not None and self.seconds < _SOON:
            told += f", next {'request' if self.meant else 'attempt'} in {max(1.0, self.seconds):.0f} s"
        elif self.seconds is not None:
            told += f", until {(now + timedelta(seconds=self.seconds)).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return told if self.change is None else f"{told}; {self.change}"


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job at this moment."""

    figures: JobFigures
    requests: int = 0
    """In flight."""
    fetching: tuple[InFlightRequest, ...] = ()
    """Some of them, the oldest first."""
    waits: tuple[LiveWait, ...] = ()
    """Trouble first."""
    causes: Mapping[str, int] = field(default_factory=dict)
    """Requests that failed in the last minute, by cause, the most frequent first."""


class JobWatch:
    """Looks at one job again and again."""

    def __init__(self, database: Database, job_id: int) -> None:
        self._database = database
        self._job_id = job_id
        self._errors = 0
        self._failed_at: datetime | None = None
        """When the number of errors rose last."""

    def look(self) -> LiveJob:
        """The job now; NotFound if it was deleted."""
        with self._database.session() as connection:
            figures = live.figures(connection, self._job_id, silence=SILENCE)
            if figures.errors > self._errors:
                self._errors, self._failed_at = figures.errors, figures.now
            lately = self._failed_at is not None and figures.now - self._failed_at < CAUSES_OF
            causes = live.causes(connection, self._job_id, CAUSES_OF) if lately else {}
            activities = workers.activities(connection, silence=SILENCE)
            return _look(connection, figures, activities, causes)


def _look(
    connection: Connection, figures: JobFigures, activities: Mapping[str, Activity], causes: Mapping[str, int]
) -> LiveJob:
    requests, fetching, waits = 0, list[InFlightRequest](), list[LiveWait]()
    for activity in activities.values():
        requests += activity.requests.get(figures.job_id, 0)
        fetching += [fetch for fetch in activity.fetching if fetch.job_id == figures.job_id]
        waits += [live_wait(wait) for wait in activity.waits if wait.job_id == figures.job_id]
    waits.sort(key=lambda wait: wait.meant)
    fetching.sort(key=lambda fetch: -fetch.seconds)
    for_people = _for_people(figures)
    if figures.open and figures.state in RUNNABLE:
        for_people += _in_the_store(connection, figures)
        if not (requests or waits) and figures.workers:
            for_people += _for_other_jobs(connection, figures)
    return LiveJob(
        figures,
        requests,
        tuple(fetching),
        (*for_people, *waits),
        {why_not(outcome).label: count for outcome, count in causes.items()},
    )


@dataclass(frozen=True, slots=True)
class Glance:
    """What a job does at this moment, as far as that is known without going over its domains."""

    requests: int
    """In flight."""
    waits: list[str]
    """Reasons, without times: they stay the same while only time passes."""


def glances(database: Database, jobs: Sequence[Mapping[str, Any]]) -> dict[int, Glance]:
    """What these jobs (rows of `JobService`) do at this moment, by id."""
    with database.session() as connection:
        activities = workers.activities(connection, silence=SILENCE).values()
        serving = live.serving(connection, [job["id"] for job in jobs], silence=SILENCE)
        now = rows.now(connection)
        found = {}
        for job in jobs:
            figures = JobFigures(
                *(now, job["id"], job["name"], job["state"], job["schedule"], job["next_run_at"], None, job["crawl"]),
                *(None, job["max_pages"], serving.get(job["id"], 0)),
                open=job["domains"] - job["done"] - job["spent"],
            )
            requests = sum(activity.requests.get(job["id"], 0) for activity in activities)
            waits = _for_people(figures)
            waits += [live_wait(w) for activity in activities for w in activity.waits if w.job_id == job["id"]]
            if figures.open and figures.workers and not (requests or waits) and figures.state in RUNNABLE:
                waits += _for_other_jobs(connection, figures)
            told = [wait.what if wait.change is None else f"{wait.what}; {wait.change}" for wait in waits]
            found[figures.job_id] = Glance(requests, told)
        return found


def live_wait(wait: VisitWait) -> LiveWait:
    """The wait of a domain that a worker holds."""
    return LiveWait(visit_wait(wait), wait.seconds, meant=wait.kind is WaitKind.DELAY)


def _in_the_store(connection: Connection, figures: JobFigures) -> list[LiveWait]:
    """What domains wait for that no worker holds."""
    found = waits_now(connection, crawls.get(connection, figures.job_id))
    return [
        LiveWait(wait.what, None if wait.until is None else (wait.until - figures.now).total_seconds(), wait.change)
        for wait in found
        if wait.until is None or wait.until > figures.now
    ]


def _for_other_jobs(connection: Connection, figures: JobFigures) -> list[LiveWait]:
    """Domains that are crawled for another job at this moment."""
    found = []
    for domain_id, domain in live.held(connection, figures.job_id, limit=MAX_HELD):
        holder = explain.moment(connection, domain_id, silence=SILENCE)["held_for"]
        if holder is not None and holder != figures.job:
            found.append(LiveWait(f"waits for job {holder} on {domain}; jobs on one domain take turns", meant=True))
    return found


def _for_people(figures: JobFigures) -> list[LiveWait]:
    """What the job as a whole waits for."""
    name = figures.job
    if figures.state == "paused":
        return [LiveWait(f"job {name} is paused", None, f"`holdfast jobs resume {quote(name)}` resumes it")]
    if figures.state not in RUNNABLE:
        return []
    if figures.open and not figures.workers:
        return [LiveWait("no worker is running", None, "`holdfast serve` or `holdfast worker` starts one")]
    if not figures.open and figures.next_run_at is not None and figures.next_run_at > figures.now:
        seconds = (figures.next_run_at - figures.now).total_seconds()
        return [LiveWait(f"job {name} is scheduled ({figures.schedule})", seconds)]
    return []
