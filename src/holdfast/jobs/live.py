"""The live state of a job, whichever process crawls it: figures, URLs in flight, and the reason of every wait.

The rule: it is read from the database only, so `crawl`, `jobs watch`, `status` and the API show the same. The texts are in
`control/explain_text`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from shlex import quote
from typing import Final

from holdfast.control.explain_text import visit_wait, why_not
from holdfast.db import crawls, workers
from holdfast.db import jobs as db_jobs
from holdfast.db.connection import Connection, Database, Sessions
from holdfast.jobs.queries import depths as depth_queries
from holdfast.jobs.queries import progress as queries
from holdfast.jobs.queries.progress import JobFigures, JobNow
from holdfast.jobs.records import Job, JobDepths, JobPace, JobProgress, Waiting
from holdfast.jobs.summary import waits_now
from holdfast.model.activity import Activity, InFlightRequest, VisitWait, WaitKind
from holdfast.stats.records import SILENCE

CAUSES_SPAN: Final = timedelta(minutes=1)
"""For this long after an error, errors are counted by cause; the rate of a job is measured over it, too."""
_SHORTEST_SPAN: Final = timedelta(seconds=5)
"""A rate is measured over at least this long."""
DOMAINS_SHOWN: Final = 10
"""Domains of a job that are shown with what moves."""
MAX_HELD: Final = 3
"""Domains that are named because another job holds them."""
RUNNABLE: Final = ("pending", "processing")
_SOON: Final = 120.0
"""Seconds; a later moment is shown as a time."""


@dataclass(frozen=True, slots=True)
class LiveWait:
    """A condition that a job waits for."""

    what: str
    """A sentence without its end."""
    seconds: float | None = None
    """Until the next attempt, if that is known."""
    change: str | None = None
    """The command or option that changes it."""
    meant: bool = False
    """It is no problem: the delay between two requests, the turn of another job."""

    def text(self, now: datetime) -> str:
        """The condition, its end, and what changes it."""
        text = self.what
        if self.seconds is not None and self.seconds < _SOON:
            text += f", next {'request' if self.meant else 'attempt'} in {max(1.0, self.seconds):.0f} s"
        elif self.seconds is not None:
            text += f", until {(now + timedelta(seconds=self.seconds)).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return text if self.change is None else f"{text}; {self.change}"


@dataclass(frozen=True, slots=True)
class LiveJob:
    """The live state of a job."""

    figures: JobFigures
    requests: int = 0
    """In flight."""
    fetching: tuple[InFlightRequest, ...] = ()
    """Some of them, the oldest first."""
    waits: tuple[LiveWait, ...] = ()
    """Trouble first."""
    causes: Mapping[str, int] = field(default_factory=dict)
    """Failed requests of the last minute by cause, in descending order."""


@dataclass(frozen=True, slots=True)
class JobBreakdown:
    """What takes longer to read of a job: over its domains, its depths, and the log."""

    figures: JobFigures
    """`now` says when it was read."""
    waits: list[Waiting]
    for_other_jobs: list[LiveWait]
    """Domains of it that are crawled for another job."""
    causes: dict[str, int]
    """Failed requests of the last minute, by outcome."""
    depths: JobDepths


class LiveJobReader:
    """Reads the live state of one job repeatedly."""

    def __init__(self, sessions: Sessions, job_id: int) -> None:
        self._sessions = sessions
        self._job_id = job_id
        self._errors = 0
        self._failed_at: datetime | None = None
        """When the number of errors last rose."""

    def read(self) -> LiveJob:
        """The present state of the job; NotFound if it was deleted."""
        with self._sessions.session() as connection:
            figures = queries.figures(connection, self._job_id, silence=SILENCE)
            if figures.errors > self._errors:
                self._errors, self._failed_at = figures.errors, figures.now
            recent = self._failed_at is not None and figures.now - self._failed_at < CAUSES_SPAN
            causes = queries.causes(connection, self._job_id, CAUSES_SPAN) if recent else {}
            activities = workers.activities(connection, silence=SILENCE)
            waiting, for_other_jobs = _waits_of_domains(connection, figures, activities)
            job = _live_job(figures, activities, causes, waiting, for_other_jobs)
            if figures.waiting or job.requests:
                return job
            return replace(job, waits=(*job.waits, *_waits_for_parsers(queries.to_parse(connection, self._job_id))))


def _waits_for_parsers(count: int) -> list[LiveWait]:
    """The wait of a job that is fetched and not parsed yet."""
    pages = (
        "1 page is fetched and waits for its parser"
        if count == 1
        else f"{count:,} pages are fetched and wait for their parsers"
    )
    return [LiveWait(pages, meant=True)] if count else []


def _waits_of_domains(
    connection: Connection, figures: JobFigures, activities: Mapping[str, Activity]
) -> tuple[list[Waiting], list[LiveWait]]:
    """What the domains of a job wait for that no worker holds, and which are crawled for other jobs."""
    if not (figures.open and figures.state in RUNNABLE):
        return [], []
    waiting = waits_now(connection, crawls.get(connection, figures.job_id))
    job_id = figures.job_id
    at_work = any(
        activity.requests.get(job_id) or any(wait.job_id == job_id for wait in activity.waits)
        for activity in activities.values()
    )
    return waiting, _waits_for_other_jobs(connection, figures) if figures.workers and not at_work else []


def _live_job(
    figures: JobFigures,
    activities: Mapping[str, Activity],
    causes: Mapping[str, int],
    waiting: Sequence[Waiting],
    for_other_jobs: Sequence[LiveWait],
) -> LiveJob:
    requests, fetching, waits = 0, list[InFlightRequest](), list[LiveWait]()
    for activity in activities.values():
        requests += activity.requests.get(figures.job_id, 0)
        fetching += [fetch for fetch in activity.fetching if fetch.job_id == figures.job_id]
        waits += waits_of_worker(activity, figures.job_id)
    waits.sort(key=lambda wait: wait.meant)
    fetching.sort(key=lambda fetch: -fetch.seconds)
    of_job = _waits_of_job(figures)
    if figures.open and figures.workers and figures.state in RUNNABLE:
        of_job += pauses(activities.values())
    if figures.open and figures.state in RUNNABLE:
        of_job += _unclaimed_waits(figures, waiting)
        if not (requests or waits) and figures.workers:
            of_job += for_other_jobs
    return LiveJob(
        figures,
        requests,
        tuple(fetching),
        (*of_job, *waits),
        {why_not(outcome).label: count for outcome, count in causes.items()},
    )


def progress(database: Database, jobs: Sequence[Job]) -> dict[int, JobProgress]:
    """These jobs with their requests in flight and waits, by id, without reading their domains. Waits are without times: they stay the
    same while only time passes."""
    with database.session() as connection:
        activities = workers.activities(connection, silence=SILENCE).values()
        serving = queries.serving(connection, [job.id for job in jobs], silence=SILENCE)
        now = db_jobs.now(connection)
        found = {}
        for job in jobs:
            figures = JobFigures(
                *(now, job.id, job.name, job.state, job.schedule, job.next_run_at, None, job.crawl),
                *(None, job.max_pages, serving.get(job.id, 0)),
                open=job.domains - job.done - job.spent,
            )
            requests = sum(activity.requests.get(job.id, 0) for activity in activities)
            waits = _waits_of_job(figures)
            if figures.open and figures.workers and figures.state in RUNNABLE:
                waits += pauses(activities)
            waits += [wait for activity in activities for wait in waits_of_worker(activity, job.id)]
            if figures.open and figures.workers and not (requests or waits) and figures.state in RUNNABLE:
                waits += _waits_for_other_jobs(connection, figures)
            texts = [wait.what if wait.change is None else f"{wait.what}; {wait.change}" for wait in waits]
            found[job.id] = JobProgress(**asdict(job), requests=requests, waits=texts)
        return found


def breakdown(connection: Connection, job_id: int) -> JobBreakdown:
    """What takes longer to read of a job; NotFound if it was deleted."""
    figures = queries.figures(connection, job_id, silence=SILENCE)
    waiting, for_other_jobs = _waits_of_domains(connection, figures, workers.activities(connection, silence=SILENCE))
    return JobBreakdown(
        figures,
        waiting,
        for_other_jobs,
        queries.causes(connection, job_id, CAUSES_SPAN) if figures.errors else {},
        depth_queries.depths(connection, job_id, figures.job),
    )


def now(connection: Connection, job_id: int) -> JobNow:
    """What moves of a job, in one statement; NotFound if it was deleted."""
    return queries.now(connection, job_id, CAUSES_SPAN, limit=DOMAINS_SHOWN, silence=SILENCE)


def live_now(found: JobNow, counted: JobBreakdown | None) -> tuple[LiveJob, JobPace]:
    """The present state of a job, and its pace. `counted`: what was read of it before; None: the statuses of its domains, what they wait
    for and its failed requests are left out."""
    figures = found.figures
    causes, waits, for_other_jobs = dict[str, int](), list[Waiting](), list[LiveWait]()
    if counted is not None:
        causes, waits, for_other_jobs = counted.causes, counted.waits, counted.for_other_jobs
        crawled = max(0, figures.pages_in_all - counted.figures.pages_in_all)
        pages = counted.figures.pages + crawled if counted.figures.crawl_id == figures.crawl_id else 0
        figures = replace(figures, domains=counted.figures.domains, pages=pages)
    live = _live_job(figures, found.activities, causes, waits, for_other_jobs)
    return live, estimate(figures, *found.logged, _pace_span(figures).total_seconds())


def pace(connection: Connection, job_id: int) -> JobPace:
    """How fast a job is crawled at this moment, and when it would be done at that rate; NotFound if it was deleted."""
    return _pace(connection, queries.figures(connection, job_id, silence=SILENCE))


def _pace(connection: Connection, figures: JobFigures) -> JobPace:
    span = _pace_span(figures)
    pages, urls = queries.logged(connection, figures.job_id, span)
    return estimate(figures, pages, urls, span.total_seconds())


def _pace_span(figures: JobFigures) -> timedelta:
    """The time over which the pace of a job is measured: the last minute, or less if its crawl began within it."""
    if figures.started_at is None:
        return CAUSES_SPAN
    return min(CAUSES_SPAN, max(figures.now - figures.started_at, _SHORTEST_SPAN))


def estimate(figures: JobFigures, pages: int, urls: int, seconds: float) -> JobPace:
    """The pace of a job with these figures, whose log has these numbers of pages and URLs within these seconds."""
    left, limited = figures.waiting, ""
    if figures.max_pages is not None and figures.max_pages - figures.pages < left:
        left = max(0, figures.max_pages - figures.pages)
        limited = f" The crawl ends at {figures.max_pages:,} pages (max_pages), {left:,} from now."
    rate = urls / seconds
    now = f"{figures.waiting:,} URLs wait."
    seconds_left = None
    if figures.state == "paused":
        basis = f"{now} The job is paused."
    elif figures.state not in RUNNABLE or not left:
        basis = "Nothing waits to be fetched." if not left else f"{now} The job is {figures.state}."
    elif not urls:
        basis = f"{now} Nothing was fetched in the last {seconds:.0f} s, so the time left is not known."
    else:
        seconds_left = left / rate
        basis = (
            f"{now} {rate:,.1f} URLs/s in the last {seconds:.0f} s.{limited} Links that are found meanwhile add to it."
        )
    return JobPace(round(pages / seconds, 2), round(rate, 2), round(seconds, 1), left, seconds_left, basis)


def pauses(activities: Iterable[Activity]) -> list[LiveWait]:
    """Why workers fetch nothing, each reason once: a disk without room, an archive that cannot be written, and so on."""
    found = {(one.kind, one.about): one for activity in activities for one in activity.problems if one.pauses}
    return [LiveWait(f"{one.text}; the crawl goes on by itself") for one in found.values()]


def waits_of_worker(activity: Activity, job_id: int) -> list[LiveWait]:
    """The waits of domains that a worker holds for a job; what makes all of them wait is in `pauses`."""
    told = any(one.pauses for one in activity.problems)
    return [
        live_wait(wait)
        for wait in activity.waits
        if wait.job_id == job_id and not (told and wait.kind is WaitKind.STORE)
    ]


def live_wait(wait: VisitWait) -> LiveWait:
    """The wait of a domain that a worker holds."""
    return LiveWait(visit_wait(wait), wait.seconds, meant=wait.kind is WaitKind.DELAY)


def _unclaimed_waits(figures: JobFigures, waiting: Sequence[Waiting]) -> list[LiveWait]:
    """What domains that no worker holds wait for at this moment, of those that were read before."""
    return [
        LiveWait(wait.what, None if wait.until is None else (wait.until - figures.now).total_seconds(), wait.change)
        for wait in waiting
        if wait.until is None or wait.until > figures.now
    ]


def _waits_for_other_jobs(connection: Connection, figures: JobFigures) -> list[LiveWait]:
    """Domains that are crawled for another job at this moment."""
    return [
        LiveWait(f"waits for job {holder} on {domain}; jobs on one domain take turns", meant=True)
        for domain, holder in queries.held(connection, figures.job_id, limit=MAX_HELD)
        if holder is not None and holder != figures.job
    ]


def _waits_of_job(figures: JobFigures) -> list[LiveWait]:
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
