"""Jobs: what is to be crawled."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, BackgroundTasks, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, model_validator

from holdfast.control.crawls import Wish
from holdfast.control.job_edits import check_names, follow_up
from holdfast.control.parsers import check_known
from holdfast.control.queries import JobQuery
from holdfast.control.summary import Ending
from holdfast.errors import UsageError
from holdfast.model.job import LONGEST_NAME, JobState, Scope
from holdfast.web import live
from holdfast.web.afterwards import quietly
from holdfast.web.guard import GuardedRoute
from holdfast.web.hub import Wanted
from holdfast.web.office import TheOffice, Who
from holdfast.web.paging import USUAL, CursorText, Limit, Page, behind, keyed
from holdfast.web.problems import documented
from holdfast.web.shapes import (
    INTEGER,
    Body,
    Filter,
    IfMatch,
    JobName,
    SecretFields,
    Text,
    UserAgent,
    View,
    Word,
    tag,
    wanted_version,
)
from holdfast.web.views import BadSeed, JobView, bad_seeds

router = APIRouter(route_class=GuardedRoute, tags=["jobs"])

_MOST_SEEDS = 10_000
_PATTERNS = Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=100)]


class Spec(Body):
    """How a job is to be crawled. What is left out is as the settings or the domain say."""

    scope: Scope = Scope.HOST
    """Which links are followed: on the same `host`, the same registrable `domain`, or `any`."""
    max_pages: Annotated[int, Field(ge=1, le=INTEGER)] | None = None
    """Of a crawl, over all domains."""
    max_pages_per_domain: Annotated[int, Field(ge=1, le=INTEGER)] | None = None
    """Of a crawl."""
    rounds: Annotated[int, Field(ge=1, le=INTEGER)] | None = None
    """Shares of each domain in a crawl (`domains.max_pages_per_run` pages each)."""
    max_depth: Annotated[int, Field(ge=0, le=1000)] | None = None
    delay: Annotated[float, Field(ge=0, le=86_400)] | None = None
    """Seconds between two requests to a domain."""
    concurrency: Annotated[int, Field(ge=1, le=1000)] | None = None
    include: _PATTERNS = Field(default=[])
    """Regular expressions; with any of them, only URLs that match one are crawled."""
    exclude: _PATTERNS = Field(default=[])
    strip_params: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=100)] = Field(default=[])
    """Parameters to drop from URLs, besides those that the settings name; `x*` is a prefix."""
    robots: bool = True
    archive: bool = True
    text: bool = False
    """Keep the text of pages."""
    allow_private: bool = False
    """Also ask servers of private networks."""
    follow: bool = True
    """Follow links."""
    user_agent: UserAgent | None = None
    """The name that requests bear, which also decides which rules of robots.txt apply; it is not a secret."""
    parser: Annotated[str, Field(min_length=1, max_length=100, examples=["product"])] | None = None
    """Find items on every page by the parser of this name; null: by the one that was set for the domain, or none."""
    refresh: bool = False
    """Fetch its pages again when a refresh of their domain is due (`cooldown.exhausted` after the last visit)."""


class JobChange(Body):
    """How a job is to be crawled from now on. What is left out stays as it is; null lifts a limit, or means: as for a job that says nothing
    of it. Which URLs belong to the job (`scope`, `include`, `exclude`, `strip_params`, `follow`, its seeds) cannot be edited."""

    max_pages: Annotated[int, Field(ge=1, le=INTEGER)] | None = None
    max_pages_per_domain: Annotated[int, Field(ge=1, le=INTEGER)] | None = None
    rounds: Annotated[int, Field(ge=1, le=INTEGER)] | None = None
    max_depth: Annotated[int, Field(ge=0, le=1000)] | None = None
    delay: Annotated[float, Field(ge=0, le=86_400)] | None = None
    """Seconds between two requests to a domain."""
    concurrency: Annotated[int, Field(ge=1, le=1000)] | None = None
    user_agent: UserAgent | None = None
    parser: Annotated[str, Field(min_length=1, max_length=100, examples=["product"])] | None = None
    refresh: bool | None = None
    robots: bool | None = None
    allow_private: bool | None = None
    archive: bool | None = None
    text: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _editable(cls, given: Any) -> Any:
        if isinstance(given, dict):
            try:
                check_names(given)
            except UsageError as problem:
                raise ValueError(str(problem)) from None
        return given


class NewJob(Body):
    """A job to be made."""

    name: Annotated[Word, Field(max_length=LONGEST_NAME, pattern=r"^[^/\s][^/]*$", examples=["shop"])]
    urls: Annotated[list[Text], Field(min_length=1, max_length=_MOST_SEEDS, examples=[["https://example.com/"]])]
    """Where it begins. One that cannot be one is left out and reported, unless all are."""
    spec: Spec = Field(default_factory=Spec)
    schedule: Annotated[Text, Field(max_length=200, examples=["6h", "0 3 * * *"])] | None = None
    """Crawl it again and again: an interval, or five fields of cron in UTC."""
    secrets: SecretFields | None = None
    """Sent to exactly the origins of `urls` (for http, https of the same host, too), and nowhere else."""


class MadeJob(View):
    """A job that was made."""

    job: JobView
    seeds: int
    bad: int
    bad_seeds: list[BadSeed]
    """The first ones."""


class EditedJob(JobView):
    """A job that was edited."""

    changed: list[str]
    """The names of what is different now."""
    note: str
    """What follows: whether visits under way, or a job that stopped at a limit, go on by it."""


class NotCrawledView(View):
    """URLs that were not crawled for one reason."""

    reason: str
    label: str
    count: int
    """URLs."""
    change: str | None
    """The option or setting that changes it."""
    example: str
    """One of them."""
    detail: str | None
    """What is known of that one."""


class WaitingView(View):
    """Domains that wait for the same."""

    kind: str
    what: str
    until: datetime | None
    change: str | None
    domains: int
    urls: int
    """That wait on them."""


class JobSummary(View):
    """How a job stands."""

    now: datetime
    job: str
    ending: Ending
    """`complete`, `limit`, `waits`, `unfinished` or `no_page`."""
    pages: int
    pages_in_all: int
    """Of every crawl of the job."""
    waiting: int
    """URLs."""
    redirects: int
    not_crawled: list[NotCrawledView]
    waits: list[WaitingView]
    limit: str | None
    """The limit of a person that keeps URLs waiting."""
    cause: str | None
    """Why there is no page at all."""
    next_step: str


class Schedule(Body):
    """When a job is crawled again."""

    schedule: Annotated[Text, Field(max_length=200, examples=["6h", "0 3 * * *"])]


@router.get("/api/jobs", summary="Jobs")
def jobs(
    office: TheOffice,
    request: Request,
    response: Response,
    state: Annotated[JobState | None, Query(description="Only those in this state.")] = None,
    prefix: Annotated[Filter, Query(description="Only those whose names begin so.")] = None,
    scheduled: Annotated[Literal[True] | None, Query(description="Only those that recur.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = USUAL,
) -> Page[JobView]:
    """With what there is to do and what was done."""
    after = behind("jobs", order, cursor)
    found = office.browser.jobs(JobQuery(state, prefix, scheduled), order=order, after=after, limit=limit)
    return keyed(request, response, [JobView.of(row) for row in found.rows], found.next)


@router.post("/api/jobs", summary="Make a job", status_code=201)
def create(given: NewJob, response: Response, office: TheOffice, who: Who) -> MadeJob:
    """Workers begin with it at once. A name that is taken is refused (409)."""
    spec = given.spec
    lists = {"include": tuple(spec.include), "exclude": tuple(spec.exclude), "strip_params": tuple(spec.strip_params)}
    options = {**spec.model_dump(), **lists}
    if spec.parser is not None:
        check_known(spec.parser, office.settings.parsing)
    desk = office.jobs(who)
    secrets = None if given.secrets is None else given.secrets.given()
    wish = Wish(urls=tuple(given.urls), job=given.name, options=options, secrets=secrets)
    made = desk.create(office.crawls, wish, lambda _: None, given.schedule)
    loaded = made.loaded
    response.headers["Location"] = f"/api/jobs/{made.job.id}"
    return MadeJob(
        job=JobView.of(office.browser.job(made.job.id)),
        seeds=loaded.seeds,
        bad=loaded.bad,
        bad_seeds=bad_seeds(loaded.bad_lines),
    )


@router.get("/api/jobs/{job}", summary="A job", responses=documented(404))
def show(job: JobName, office: TheOffice, response: Response) -> JobView:
    """By name or id."""
    found = JobView.of(office.browser.job(job))
    tag(response, found.version)
    return found


@router.patch("/api/jobs/{job}", summary="Edit a job", responses=documented(404, 412))
def edit(
    job: JobName,
    given: JobChange,
    office: TheOffice,
    who: Who,
    response: Response,
    after: BackgroundTasks,
    if_match: IfMatch = None,
) -> EditedJob:
    """Limits, pace, parser and the like; visits under way go by them within two seconds. A job that stopped at a limit goes on under the
    same crawl once it is raised: what was fetched counts. Headers, cookies and passwords: `PUT …/secrets`."""
    changes = given.model_dump(exclude_unset=True)
    if given.parser is not None:
        check_known(given.parser, office.settings.parsing)
    edited = office.jobs(who).edit(job, changes, wanted_version(if_match))
    after.add_task(quietly(follow_up), office.crawls, edited.job_id, tuple(changes))
    tag(response, edited.version)
    return EditedJob.of(office.browser.job(edited.job_id), changed=list(edited.changed), note=edited.note)


@router.get("/api/jobs/{job}/summary", summary="How a job stands, and why", responses=documented(404))
def summary(job: JobName, office: TheOffice) -> JobSummary:
    """URLs that were not crawled by reason, each with the option that changes it; what waits until when; the next step. It goes over all
    URLs of the job (about a second for a million of them), so it may be some seconds old (`now`), and one is made at a time (429)."""
    return JobSummary.of(office.summaries.of(office.browser.job(job).id))


@router.delete("/api/jobs/{job}", summary="Delete a job", status_code=204, responses=documented(404))
def delete(job: JobName, office: TheOffice, who: Who, after: BackgroundTasks) -> None:
    """With its URLs and pages. The log and the archive keep what was asked of servers. What is many goes bit by bit afterwards."""
    desk = office.jobs(who)
    after.add_task(quietly(desk.forget), desk.bury(job)[0])


@router.post("/api/jobs/{job}/pause", summary="Pause a job", responses=documented(404))
def pause(job: JobName, office: TheOffice, who: Who) -> JobView:
    """Nothing of it is fetched any more, a second or two from now."""
    desk = office.jobs(who)
    return JobView.of(office.browser.job(desk.pause(job).job_id))


@router.post("/api/jobs/{job}/resume", summary="Resume a job", responses=documented(404))
def resume(job: JobName, office: TheOffice, who: Who, after: BackgroundTasks) -> JobView:
    """It goes on where it was. Domains that were put aside follow in a moment."""
    desk = office.jobs(who)
    acted = desk.let_go_on(job)
    after.add_task(quietly(desk.unpark), acted.job_id)
    return JobView.of(office.browser.job(acted.job_id))


@router.post("/api/jobs/{job}/cancel", summary="Cancel a job", responses=documented(404))
def cancel(job: JobName, office: TheOffice, who: Who) -> JobView:
    """It ends where it is. What it found stays."""
    desk = office.jobs(who)
    return JobView.of(office.browser.job(desk.cancel(job).job_id))


@router.put("/api/jobs/{job}/schedule", summary="Crawl a job again and again", responses=documented(404))
def schedule(job: JobName, given: Schedule, office: TheOffice, who: Who) -> JobView:
    """By an interval or a cron expression in UTC."""
    desk = office.jobs(who)
    desk.schedule(job, given.schedule)
    return JobView.of(office.browser.job(job))


@router.delete("/api/jobs/{job}/schedule", summary="Crawl a job no more by itself", responses=documented(404))
def unschedule(job: JobName, office: TheOffice, who: Who) -> JobView:
    """What is under way goes on."""
    desk = office.jobs(who)
    desk.schedule(job, None)
    return JobView.of(office.browser.job(job))


@router.put("/api/jobs/{job}/secrets", summary="Change what a job sends to its sites", responses=documented(404))
def set_secrets(job: JobName, given: SecretFields, office: TheOffice, who: Who) -> JobView:
    """Headers, cookies and credentials, within two seconds also for crawls under way, for the origins of the seeds that it has now."""
    secrets = given.given()
    if secrets is None:
        raise UsageError("Say what to change: headers, cookies or basic_auth.")
    job_id = office.browser.job(job).id
    office.jobs(who).give_secrets(office.crawls, job_id, secrets)
    return JobView.of(office.browser.job(job_id))


@router.get(
    "/api/jobs/{job}/events",
    summary="What happens to a job, live",
    response_class=StreamingResponse,
    responses={**live.RESPONSES, **documented(404)},
)
def events(
    job: JobName, request: Request, office: TheOffice, last_event_id: live.LastEventId = None
) -> StreamingResponse:
    """Server-Sent Events: `job` when something happens to it, `progress` with its figures whenever they change, at most once a second,
    `gone` when it is deleted."""
    job_id = office.browser.job(job).id
    shown = live.Shown(office.job_figures, job_id, "progress")
    return live.answer(request, office, Wanted(job_id=job_id), live.place(office.database, last_event_id), shown)
