"""Routes of jobs: list, plan, create, show, edit, summary, comparison, depths, log, state, schedule, secrets, live progress."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, BackgroundTasks, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field, model_validator

from holdfast.api import sse
from holdfast.api.app_services import Caller, Services
from holdfast.api.auth import AuthorizedRoute
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
    parse_if_match,
    set_etag,
)
from holdfast.api.responses import log_failures
from holdfast.control.parsers import check_known
from holdfast.errors import UsageError
from holdfast.jobs.crawls import CrawlRequest
from holdfast.jobs.edits import check_names, follow_up
from holdfast.jobs.queries.log import KEY_TYPES
from holdfast.jobs.records import (
    ComparedPage,
    Comparison,
    CrawlPlan,
    CrawlSummary,
    CreatedJob,
    EditedJob,
    Job,
    JobDepths,
    JobDomain,
    JobEvent,
    JobFilter,
    JobPace,
    JobsChanged,
    PageChange,
    RulesVersion,
    ScopePreview,
)
from holdfast.model.content_type import ContentGroup
from holdfast.model.cursor import decode_cursor
from holdfast.model.job import MAX_NAME_LENGTH, JobAction, JobState, Scope, Sitemaps

router = APIRouter(route_class=AuthorizedRoute, tags=["jobs"])

MAX_SEEDS = 10_000
_TYPES = Annotated[list[ContentGroup], Field(max_length=len(ContentGroup))]
_PATTERNS = Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=100)]


class Spec(Body):
    """How a job is crawled. An option that is left out has the value of the settings or the domain."""

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
    sitemaps: Sitemaps | None = None
    """Take URLs from sitemaps and feeds `also`, `only` (links of pages are not followed) or not (`no`); null: as `crawl.sitemaps` says."""
    images: bool = False
    """Fetch and store the images of its pages, wherever they are."""
    markdown: bool = False
    """Store the main content of its pages as Markdown, beside the crawl."""
    links: bool = False
    """Record the links of its pages, for reports of broken links, redirects and orphans."""
    check_external: bool = False
    """Check the targets of links that are out of scope, too: each is fetched once and not crawled. Records links as well."""
    types: _TYPES = Field(default=[])
    """What is archived beside HTML and plain text: `pdf`, `json`, `xml`, `text` (CSV, Markdown …), `feeds`, `office`, or `all` of them."""


class JobChange(Body):
    """Changes of how a job is crawled. An option that is left out stays as it is; null lifts a limit, or resets an option to its default.
    `strip_params`, `follow` and its seeds cannot be edited."""

    scope: Scope | None = None
    """Which links are followed: on the same `host`, the same registrable `domain`, or `any`."""
    include: _PATTERNS | None = None
    """Regular expressions, instead of those before; with any of them, only URLs that match one are crawled."""
    exclude: _PATTERNS | None = None
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
    sitemaps: Sitemaps | None = None
    images: bool | None = None
    markdown: bool | None = None
    links: bool | None = None
    check_external: bool | None = None
    types: _TYPES | None = None
    robots: bool | None = None
    allow_private: bool | None = None
    archive: bool | None = None
    text: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _editable(cls, value: Any) -> Any:
        if isinstance(value, dict):
            try:
                check_names(value)
            except UsageError as problem:
                raise ValueError(str(problem)) from None
        return value


class ScopeChange(Body):
    """Changes of the rules of a job. One that is left out stays as it is; null: the default."""

    scope: Scope | None = None
    include: _PATTERNS | None = None
    exclude: _PATTERNS | None = None
    max_depth: Annotated[int, Field(ge=0, le=1000)] | None = None


class NewJob(Body):
    """A job to create."""

    name: Annotated[ShortText, Field(max_length=MAX_NAME_LENGTH, pattern=r"^[^/\s][^/]*$", examples=["shop"])]
    urls: Annotated[list[Text], Field(min_length=1, max_length=MAX_SEEDS, examples=[["https://example.com/"]])]
    """Its seeds. An invalid one is left out and reported, unless all are invalid."""
    spec: Spec = Field(default_factory=Spec)
    schedule: Annotated[Text, Field(max_length=200, examples=["6h", "0 3 * * *"])] | None = None
    """Crawl it repeatedly: an interval, or five fields of cron in UTC."""
    secrets: SecretFields | None = None
    """Sent to exactly the origins of `urls` (for http, https of the same host, too), and nowhere else."""


class PlannedJob(Body):
    """A job to plan."""

    urls: Annotated[list[Text], Field(min_length=1, max_length=MAX_SEEDS, examples=[["https://example.com/"]])]
    """Its seeds. An invalid one is left out and reported, unless all are invalid."""
    name: (
        Annotated[ShortText, Field(max_length=MAX_NAME_LENGTH, pattern=r"^[^/\s][^/]*$", examples=["shop"])] | None
    ) = None
    """A name that is taken is refused, as it would be for a new job."""
    spec: Spec = Field(default_factory=Spec)


class Schedule(Body):
    """When a job is crawled again."""

    schedule: Annotated[Text, Field(max_length=200, examples=["6h", "0 3 * * *"])]


@router.get("/api/jobs", summary="Jobs")
def jobs(
    services: Services,
    caller: Caller,
    request: Request,
    response: Response,
    state: Annotated[JobState | None, Query(description="Only those in this state.")] = None,
    prefix: Annotated[Filter, Query(description="Only those whose names begin so.")] = None,
    scheduled: Annotated[Literal[True] | None, Query(description="Only those with a schedule.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[Job]:
    """With what there is to do and what was done."""
    after = decode_list_cursor("jobs", order, cursor)
    where = JobFilter(state, prefix, scheduled)
    found = services.jobs(caller).page(where, order=order, after=after, limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.post("/api/jobs", summary="Make a job", status_code=201)
def create(body: NewJob, response: Response, services: Services, caller: Caller) -> CreatedJob:
    """Workers start it at once. A name that is taken is refused (409)."""
    if body.spec.parser is not None:
        check_known(body.spec.parser, services.settings.parsing)
    secrets = None if body.secrets is None else body.secrets.to_request_secrets()
    wanted = CrawlRequest(tuple(body.urls), job=body.name, options=_options(body.spec), secrets=secrets)
    created = services.jobs(caller).create(services.crawls, wanted, schedule=body.schedule)
    response.headers["Location"] = f"/api/jobs/{created.job.id}"
    return created


class JobsAction(Body):
    """An action on all jobs that match a filter; fields that are left out match all jobs."""

    action: JobAction
    state: JobState | None = None
    prefix: Annotated[Text, Field(max_length=MAX_NAME_LENGTH)] | None = None
    """What their names begin with."""
    scheduled: Literal[True] | None = None
    """Only those with a schedule."""
    dry_run: bool = False
    """Only say which jobs it would change."""


@router.post("/api/jobs/actions", summary="Pause, resume or cancel all jobs that match")
def act_on_all(body: JobsAction, services: Services, caller: Caller, after: BackgroundTasks) -> JobsChanged:
    """500 at a time, oldest first; `more` says that the same request changes further ones. The job of all tasks is left out."""
    where = JobFilter(body.state, body.prefix, body.scheduled)
    service = services.jobs(caller)
    if body.dry_run:
        return service.matching(where, body.action)
    changed, ids = service.act_on_all(where, body.action)
    if body.action is JobAction.RESUME:
        for job_id in ids:
            after.add_task(log_failures(service.finish_resume), job_id)
    return changed


@router.post("/api/jobs/plan", summary="Plan a job before it is made")
def plan(body: PlannedJob, services: Services, caller: Caller) -> CrawlPlan:
    """Pages and time of each domain and of all of them, each assumption as a sentence, and invalid seeds by position. Nothing is written or
    fetched."""
    wanted = CrawlRequest(tuple(body.urls), job=body.name, options=_options(body.spec))
    return services.jobs(caller).plan(services.crawls, wanted)


def _options(spec: Spec) -> dict[str, Any]:
    """The fields of a spec, with lists as tuples."""
    lists = {name: tuple(getattr(spec, name)) for name in ("include", "exclude", "strip_params", "types")}
    return {**spec.model_dump(), **lists}


@router.get("/api/jobs/{job}", summary="A job", responses=documented(404))
def show(job: JobName, services: Services, caller: Caller, response: Response) -> Job:
    """By name or id."""
    found = services.jobs(caller).show(job)
    set_etag(response, found.version)
    return found


@router.patch("/api/jobs/{job}", summary="Edit a job", responses=documented(404, 412))
def edit(
    job: JobName,
    body: JobChange,
    services: Services,
    caller: Caller,
    response: Response,
    after: BackgroundTasks,
    if_match: IfMatch = None,
) -> EditedJob:
    """Rules, limits, request rate, parser and other options; running visits apply them within two seconds. A job that stopped at a limit
    continues the same crawl once it is raised: pages fetched so far count. Other rules (`scope`, `include`, `exclude`, `max_depth`) are a
    new `rules_version`: waiting URLs that do not fit any more are denied, those that were left out and fit now wait, both in a moment
    (`POST …/scope/preview` counts them, `POST …/scope/undo` takes it back). Headers, cookies and passwords: `PUT …/secrets`."""
    changes = body.model_dump(exclude_unset=True)
    if body.parser is not None:
        check_known(body.parser, services.settings.parsing)
    edited = services.jobs(caller).edit(job, changes, parse_if_match(if_match))
    after.add_task(log_failures(follow_up), services.crawls, edited.id, tuple(changes))
    set_etag(response, edited.version)
    return edited


@router.post("/api/jobs/{job}/scope/preview", summary="What other rules would do", responses=documented(404))
def preview_scope(job: JobName, body: ScopeChange, services: Services, caller: Caller) -> ScopePreview:
    """Waiting URLs that an edit of the rules would remove, and URLs that it would return. Up to a million waiting URLs are read (`exact`),
    which takes some seconds; nothing is changed."""
    return services.jobs(caller).preview_scope(job, body.model_dump(exclude_unset=True))


@router.post("/api/jobs/{job}/scope/undo", summary="Undo an edit of a job's rules", responses=documented(404, 412))
def undo_scope(
    job: JobName,
    services: Services,
    caller: Caller,
    response: Response,
    after: BackgroundTasks,
    if_match: IfMatch = None,
) -> EditedJob:
    """Restore the rules that it had before the last edit of them, as a new `rules_version`; repeated, those before that. URLs that the edit
    removed wait again in a moment; pages that were crawled stay. 409 if there is no edit to undo."""
    undone = services.jobs(caller).undo_scope(job, parse_if_match(if_match))
    after.add_task(log_failures(follow_up), services.crawls, undone.id, tuple(undone.changed))
    set_etag(response, undone.version)
    return undone


@router.get("/api/jobs/{job}/scope/history", summary="The versions of a job's rules", responses=documented(404))
def scope_history(job: JobName, services: Services, caller: Caller) -> list[RulesVersion]:
    """The oldest first; the last one is in force."""
    return services.jobs(caller).scope_history(job)


@router.get("/api/jobs/{job}/summary", summary="How a job stands, and why", responses=documented(404))
def summary(job: JobName, services: Services, caller: Caller) -> CrawlSummary:
    """URLs that were not crawled by reason, each with the option that changes it; waits and their ends; the next step. It reads all URLs
    of the job (about a second for a million of them), so it may be some seconds old (`now`), and one is computed at a time (429)."""
    return services.job_summaries.of(services.jobs(caller).id_of(job))


@router.get("/api/jobs/{job}/pace", summary="How fast a job is crawled", responses=documented(404))
def pace(job: JobName, services: Services, caller: Caller) -> JobPace:
    """Pages per second of the last minute, and when it would be done at that rate."""
    return services.jobs(caller).pace(job)


@router.get("/api/jobs/{job}/domains", summary="Domains of a job", responses=documented(404))
def domains(
    job: JobName,
    services: Services,
    caller: Caller,
    request: Request,
    response: Response,
    state: Annotated[
        Literal["open", "parked", "spent", "done"] | None, Query(description="Only where the work is in this state.")
    ] = None,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[JobDomain]:
    """With the work of the job on each; those with work left come first."""
    found = services.jobs(caller).domains(job, state, after=decode_cursor(cursor, str, int), limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/jobs/{job}/comparison", summary="What a crawl changed", responses=documented(404))
def compare(job: JobName, services: Services, caller: Caller) -> Comparison:
    """The last crawl of a job compared with the one before: pages that are new, changed, gone, failed or unchanged. A count of 10,000 is
    a lower bound (`at_least`)."""
    return services.jobs(caller).compare(job)


@router.get("/api/jobs/{job}/comparison/pages", summary="Pages that a crawl changed", responses=documented(404))
def compared_pages(
    job: JobName,
    kind: Annotated[PageChange, Query(description="Which pages.", examples=["changed"])],
    services: Services,
    caller: Caller,
    request: Request,
    response: Response,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[ComparedPage]:
    """The pages of one kind of the comparison. A new crawl begins another list."""
    found = services.jobs(caller).compared_pages(job, kind, cursor=cursor, limit=limit)
    return keyset_page(request, response, found.rows, found.next)


@router.get("/api/jobs/{job}/plan", summary="Plan what a job has left to do", responses=documented(404))
def plan_existing(
    job: JobName,
    services: Services,
    caller: Caller,
    again: Annotated[
        bool, Query(description="All known URLs, as its schedule would, not only those that wait.")
    ] = False,
) -> CrawlPlan:
    """Pages and time of each domain and of all of them, each assumption as a sentence. Nothing is written or fetched."""
    return services.jobs(caller).plan(services.crawls, CrawlRequest(job=job, again=again))


@router.get("/api/jobs/{job}/depths", summary="URLs of a job by depth and state", responses=documented(404))
def depths(job: JobName, services: Services, caller: Caller) -> JobDepths:
    """Counted up to 100 000 URLs; of more, estimated from a sample (`estimated`)."""
    return services.jobs(caller).depths(job)


@router.get("/api/jobs/{job}/log", summary="What happened to a job", responses=documented(404))
def log(
    job: JobName,
    request: Request,
    response: Response,
    services: Services,
    caller: Caller,
    cursor: CursorText = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[JobEvent]:
    """The newest entry first. Edits, retries, added URLs, pauses, starts by its schedule and crawls are kept as long as the job; other
    changes of its state and runs of its own workers for a day."""
    found = services.jobs(caller).events(job, decode_cursor(cursor, *KEY_TYPES), limit)
    return keyset_page(request, response, found.rows, found.next)


@router.delete("/api/jobs/{job}", summary="Delete a job", status_code=204, responses=documented(404))
def delete(job: JobName, services: Services, caller: Caller, after: BackgroundTasks) -> None:
    """With its URLs and pages. The log and the archive keep requests and responses. Many rows are deleted in chunks afterwards."""
    service = services.jobs(caller)
    after.add_task(log_failures(service.finish_delete), service.begin_delete(job)[0])


@router.post("/api/jobs/{job}/pause", summary="Pause a job", responses=documented(404))
def pause(job: JobName, services: Services, caller: Caller) -> Job:
    """Within two seconds nothing of it is fetched any more."""
    service = services.jobs(caller)
    return service.show(service.pause(job).job_id)


@router.post("/api/jobs/{job}/resume", summary="Resume a job", responses=documented(404))
def resume(job: JobName, services: Services, caller: Caller, after: BackgroundTasks) -> Job:
    """It continues where it was. Parked domains follow in a moment."""
    service = services.jobs(caller)
    job_id = service.begin_resume(job).job_id
    after.add_task(log_failures(service.finish_resume), job_id)
    return service.show(job_id)


@router.post("/api/jobs/{job}/cancel", summary="Cancel a job", responses=documented(404))
def cancel(job: JobName, services: Services, caller: Caller) -> Job:
    """It ends where it is. What it found stays."""
    service = services.jobs(caller)
    return service.show(service.cancel(job).job_id)


@router.post("/api/jobs/{job}/again", summary="Crawl a job again", status_code=202, responses=documented(404))
def again(job: JobName, services: Services, caller: Caller, after: BackgroundTasks) -> Job:
    """All its pages are fetched again in a new crawl with new limits, as its schedule would. One that ended or was cancelled begins
    again; one that is paused is refused (409)."""
    service = services.jobs(caller)
    found = service.begin_again(job)
    after.add_task(log_failures(service.finish_again), services.crawls, found.id)
    return found


@router.put("/api/jobs/{job}/schedule", summary="Crawl a job again and again", responses=documented(404))
def schedule(job: JobName, body: Schedule, services: Services, caller: Caller) -> Job:
    """By an interval or a cron expression in UTC."""
    service = services.jobs(caller)
    service.schedule(job, body.schedule)
    return service.show(job)


@router.delete("/api/jobs/{job}/schedule", summary="Crawl a job no more by itself", responses=documented(404))
def unschedule(job: JobName, services: Services, caller: Caller) -> Job:
    """A running crawl continues."""
    service = services.jobs(caller)
    service.schedule(job, None)
    return service.show(job)


@router.put("/api/jobs/{job}/secrets", summary="Change what a job sends to its sites", responses=documented(404))
def set_secrets(job: JobName, body: SecretFields, services: Services, caller: Caller) -> Job:
    """Headers, cookies and credentials for the origins of its present seeds; running crawls send them within two seconds."""
    secrets = body.to_request_secrets()
    if secrets is None:
        raise UsageError("Say what to change: headers, cookies or basic_auth.")
    service = services.jobs(caller)
    job_id = service.id_of(job)
    service.set_secrets(services.crawls, job_id, secrets)
    return service.show(job_id)


@router.get(
    "/api/jobs/{job}/events",
    summary="What happens to a job, live",
    response_class=StreamingResponse,
    responses={**sse.RESPONSES, **documented(404)},
)
def events(
    job: JobName, request: Request, services: Services, caller: Caller, last_event_id: sse.LastEventId = None
) -> StreamingResponse:
    """Server-Sent Events: `job` for each event of it, `progress` with its figures whenever they change, at most once a second, `gone` when
    it is deleted."""
    job_id = services.jobs(caller).id_of(job)
    progress = sse.SnapshotSource(services.job_snapshots, job_id, "progress")
    return sse.stream_response(
        request, services, EventFilter(job_id=job_id), sse.start_position(services.database, last_event_id), progress
    )
