"""Jobs: what is to be crawled."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, BackgroundTasks, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, model_validator

from holdfast.api import sse
from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.background_tasks import log_failures
from holdfast.api.errors import documented
from holdfast.api.event_hub import EventFilter
from holdfast.api.pagination import DEFAULT_LIMIT, CursorText, Limit, Page, decode_list_cursor, keyset_page
from holdfast.api.request_types import (
    INTEGER,
    Body,
    Filter,
    IfMatch,
    JobName,
    SecretFields,
    ShortText,
    Text,
    UserAgent,
    View,
    parse_if_match,
    set_etag,
)
from holdfast.api.responses import BadSeed, JobView, bad_seeds
from holdfast.control.list_filters import JobFilter
from holdfast.control.parsers import check_known
from holdfast.errors import UsageError
from holdfast.jobs.crawls import Wish
from holdfast.jobs.edits import check_names, follow_up
from holdfast.jobs.summary import Ending
from holdfast.model.job import MAX_NAME_LENGTH, JobState, Scope

router = APIRouter(route_class=AuthorizedRoute, tags=["jobs"])

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

    name: Annotated[ShortText, Field(max_length=MAX_NAME_LENGTH, pattern=r"^[^/\s][^/]*$", examples=["shop"])]
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
    services: Services,
    request: Request,
    response: Response,
    state: Annotated[JobState | None, Query(description="Only those in this state.")] = None,
    prefix: Annotated[Filter, Query(description="Only those whose names begin so.")] = None,
    scheduled: Annotated[Literal[True] | None, Query(description="Only those that recur.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[JobView]:
    """With what there is to do and what was done."""
    after = decode_list_cursor("jobs", order, cursor)
    found = services.listings.jobs(JobFilter(state, prefix, scheduled), order=order, after=after, limit=limit)
    return keyset_page(request, response, [JobView.of(row) for row in found.rows], found.next)


@router.post("/api/jobs", summary="Make a job", status_code=201)
def create(given: NewJob, response: Response, services: Services, caller: Caller) -> MadeJob:
    """Workers begin with it at once. A name that is taken is refused (409)."""
    spec = given.spec
    lists = {"include": tuple(spec.include), "exclude": tuple(spec.exclude), "strip_params": tuple(spec.strip_params)}
    options = {**spec.model_dump(), **lists}
    if spec.parser is not None:
        check_known(spec.parser, services.settings.parsing)
    desk = services.jobs(caller)
    secrets = None if given.secrets is None else given.secrets.to_request_secrets()
    wish = Wish(urls=tuple(given.urls), job=given.name, options=options, secrets=secrets)
    made = desk.create(services.crawls, wish, lambda _: None, given.schedule)
    loaded = made.loaded
    response.headers["Location"] = f"/api/jobs/{made.job.id}"
    return MadeJob(
        job=JobView.of(services.listings.job(made.job.id)),
        seeds=loaded.seeds,
        bad=loaded.bad,
        bad_seeds=bad_seeds(loaded.bad_lines),
    )


@router.get("/api/jobs/{job}", summary="A job", responses=documented(404))
def show(job: JobName, services: Services, response: Response) -> JobView:
    """By name or id."""
    found = JobView.of(services.listings.job(job))
    set_etag(response, found.version)
    return found


@router.patch("/api/jobs/{job}", summary="Edit a job", responses=documented(404, 412))
def edit(
    job: JobName,
    given: JobChange,
    services: Services,
    caller: Caller,
    response: Response,
    after: BackgroundTasks,
    if_match: IfMatch = None,
) -> EditedJob:
    """Limits, pace, parser and the like; visits under way go by them within two seconds. A job that stopped at a limit goes on under the
    same crawl once it is raised: what was fetched counts. Headers, cookies and passwords: `PUT …/secrets`."""
    changes = given.model_dump(exclude_unset=True)
    if given.parser is not None:
        check_known(given.parser, services.settings.parsing)
    edited = services.jobs(caller).edit(job, changes, parse_if_match(if_match))
    after.add_task(log_failures(follow_up), services.crawls, edited.job_id, tuple(changes))
    set_etag(response, edited.version)
    return EditedJob.of(services.listings.job(edited.job_id), changed=list(edited.changed), note=edited.note)


@router.get("/api/jobs/{job}/summary", summary="How a job stands, and why", responses=documented(404))
def summary(job: JobName, services: Services) -> JobSummary:
    """URLs that were not crawled by reason, each with the option that changes it; what waits until when; the next step. It goes over all
    URLs of the job (about a second for a million of them), so it may be some seconds old (`now`), and one is made at a time (429)."""
    return JobSummary.of(services.job_summaries.of(services.listings.job(job).id))


@router.delete("/api/jobs/{job}", summary="Delete a job", status_code=204, responses=documented(404))
def delete(job: JobName, services: Services, caller: Caller, after: BackgroundTasks) -> None:
    """With its URLs and pages. The log and the archive keep what was asked of servers. What is many goes bit by bit afterwards."""
    desk = services.jobs(caller)
    after.add_task(log_failures(desk.forget), desk.bury(job)[0])


@router.post("/api/jobs/{job}/pause", summary="Pause a job", responses=documented(404))
def pause(job: JobName, services: Services, caller: Caller) -> JobView:
    """Nothing of it is fetched any more, a second or two from now."""
    desk = services.jobs(caller)
    return JobView.of(services.listings.job(desk.pause(job).job_id))


@router.post("/api/jobs/{job}/resume", summary="Resume a job", responses=documented(404))
def resume(job: JobName, services: Services, caller: Caller, after: BackgroundTasks) -> JobView:
    """It goes on where it was. Domains that were put aside follow in a moment."""
    desk = services.jobs(caller)
    acted = desk.let_go_on(job)
    after.add_task(log_failures(desk.unpark), acted.job_id)
    return JobView.of(services.listings.job(acted.job_id))


@router.post("/api/jobs/{job}/cancel", summary="Cancel a job", responses=documented(404))
def cancel(job: JobName, services: Services, caller: Caller) -> JobView:
    """It ends where it is. What it found stays."""
    desk = services.jobs(caller)
    return JobView.of(services.listings.job(desk.cancel(job).job_id))


@router.put("/api/jobs/{job}/schedule", summary="Crawl a job again and again", responses=documented(404))
def schedule(job: JobName, given: Schedule, services: Services, caller: Caller) -> JobView:
    """By an interval or a cron expression in UTC."""
    desk = services.jobs(caller)
    desk.schedule(job, given.schedule)
    return JobView.of(services.listings.job(job))


@router.delete("/api/jobs/{job}/schedule", summary="Crawl a job no more by itself", responses=documented(404))
def unschedule(job: JobName, services: Services, caller: Caller) -> JobView:
    """What is under way goes on."""
    desk = services.jobs(caller)
    desk.schedule(job, None)
    return JobView.of(services.listings.job(job))


@router.put("/api/jobs/{job}/secrets", summary="Change what a job sends to its sites", responses=documented(404))
def set_secrets(job: JobName, given: SecretFields, services: Services, caller: Caller) -> JobView:
    """Headers, cookies and credentials, within two seconds also for crawls under way, for the origins of the seeds that it has now."""
    secrets = given.to_request_secrets()
    if secrets is None:
        raise UsageError("Say what to change: headers, cookies or basic_auth.")
    job_id = services.listings.job(job).id
    services.jobs(caller).give_secrets(services.crawls, job_id, secrets)
    return JobView.of(services.listings.job(job_id))


@router.get(
    "/api/jobs/{job}/events",
    summary="What happens to a job, live",
    response_class=StreamingResponse,
    responses={**sse.RESPONSES, **documented(404)},
)
def events(
    job: JobName, request: Request, services: Services, last_event_id: sse.LastEventId = None
) -> StreamingResponse:
    """Server-Sent Events: `job` when something happens to it, `progress` with its figures whenever they change, at most once a second,
    `gone` when it is deleted."""
    job_id = services.listings.job(job).id
    shown = sse.SnapshotSource(services.job_snapshots, job_id, "progress")
    return sse.stream_response(
        request, services, EventFilter(job_id=job_id), sse.start_position(services.database, last_event_id), shown
    )
