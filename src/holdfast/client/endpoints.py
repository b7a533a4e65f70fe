"""Requests to the routes of the API, each declared once for both clients.

The rule: names and parameters are those of the API. A job is given by its name, its id, or a `Job`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Unpack

import httpx

from holdfast.accounts.records import ApiKey, CreatedUser, ListedSession, Me, User
from holdfast.alerts.records import Alert
from holdfast.audit.records import Entry
from holdfast.backups.records import BackupReport
from holdfast.client.decoding import read
from holdfast.client.request_spec import (
    ListSpec,
    RequestSpec,
    StreamSpec,
    decode_list,
    decode_one,
    document,
    format_path,
    if_match,
    no_body,
)
from holdfast.client.sse import Event
from holdfast.documents.records import Document
from holdfast.domains.records import (
    Domain,
    DomainChanges,
    DomainFacts,
    DomainReset,
    MaintenanceWindow,
    MatchingDomains,
    RobotsFile,
    Tenure,
    Transition,
)
from holdfast.errors import UsageError
from holdfast.frontier.records import AddedUrls, FrontierStats, FrontierUrl, Recovered, Retried
from holdfast.images.records import Image, ImageDetails
from holdfast.items.records import Item
from holdfast.jobs.records import (
    ComparedPage,
    Comparison,
    CrawlPlan,
    CrawlSummary,
    CreatedJob,
    EditedJob,
    Job,
    JobChanges,
    JobDepths,
    JobDomain,
    JobEvent,
    JobOptions,
    JobPace,
    JobProgress,
    JobsChanged,
    NewJob,
    RulesVersion,
    ScopeChanges,
    ScopePreview,
    Secrets,
)
from holdfast.links.records import (
    BrokenLink,
    LinkDegree,
    LinkPlace,
    LinkSummary,
    MissingPlace,
    Orphan,
    PageLinkList,
    RedirectedLink,
    UncheckedTarget,
)
from holdfast.model.health import Health
from holdfast.operations.records import Operation
from holdfast.pages.records import ArchivedPage, CrawledPage, Explanation, PageCount, PageDiff, PageFacts, PageVersion
from holdfast.products.records import Price, Product
from holdfast.proxies.records import (
    Assignment,
    NewProxy,
    NextProxy,
    PoolHealth,
    ProviderCost,
    Proxy,
    ProxyChanges,
    ProxyCost,
    ProxyMapping,
    ProxyTest,
)
from holdfast.retention.records import ArchiveDetails, ArchiveEntry, RetentionStatus
from holdfast.search.records import IndexStatus, SearchResults
from holdfast.segments.records import ArchiveMachine, Segment
from holdfast.stats.records import ErrorCause, Outlook, Stats, TimeSeries
from holdfast.storage.records import StorageReport
from holdfast.tasks.records import (
    AskedTask,
    Batch,
    Bulk,
    FailedTasks,
    RestartedTasks,
    Task,
    TaskArguments,
    TaskCount,
    TaskCrawl,
    TaskRestart,
    TaskStory,
)
from holdfast.webhooks.records import Delivery, Outbox
from holdfast.workers.records import Claim, ClaimSummary, ClosedRuns, ReleasedClaims, Run, Worker

JobRef = str | int | Job
JobUpdate = Event | JobProgress
"""What `watch` yields."""

# The server, the caller, and accounts


def health() -> RequestSpec[Health]:
    """The health of the server, its database and Redis."""
    return RequestSpec("GET", "/health", decode_one(Health))


def me() -> RequestSpec[Me]:
    """The user that the server takes you for."""
    return RequestSpec("GET", "/api/auth/me", decode_one(Me))


def users() -> ListSpec[User]:
    """Users, in the order of their ids."""
    return ListSpec("/api/admin/users", User, {})


def user(user: str | int) -> RequestSpec[User]:
    """One user, by name or id."""
    return RequestSpec("GET", format_path("/api/admin/users/{}", user), decode_one(User))


def create_user(name: str, *, role: str = "user", password: str | None = None) -> RequestSpec[CreatedUser]:
    """Create a user. Without `password` one is generated, and is in the response."""
    body = {"name": name, "role": role, "password": password}
    return RequestSpec("POST", "/api/admin/users", decode_one(CreatedUser), body=body)


def change_user(
    user: str | int,
    *,
    role: str | None = None,
    disabled: bool | None = None,
    password: str | None = None,
    version: int | None = None,
) -> RequestSpec[User]:
    """Change one of role, disabled and password; all sessions of the user end. With `version`: only if there was no
    other change since that version."""
    path = format_path("/api/admin/users/{}", user)
    body = {"role": role, "disabled": disabled, "password": password}
    return RequestSpec("PATCH", path, decode_one(User), body=body, headers=if_match(version))


def delete_user(user: str | int, *, version: int | None = None) -> RequestSpec[None]:
    """Delete a user with all sessions and API keys."""
    return RequestSpec("DELETE", format_path("/api/admin/users/{}", user), no_body, headers=if_match(version))


def user_sessions(user: str | int) -> ListSpec[ListedSession]:
    """Sessions of a user that have not ended, the newest first."""
    return ListSpec(format_path("/api/admin/users/{}/sessions", user), ListedSession, {})


def end_user_sessions(user: str | int) -> RequestSpec[None]:
    """End all sessions of a user."""
    return RequestSpec("DELETE", format_path("/api/admin/users/{}/sessions", user), no_body)


def api_keys() -> ListSpec[ApiKey]:
    """API keys of all users, revoked and expired ones too, in the order of their ids."""
    return ListSpec("/api/admin/keys", ApiKey, {})


def revoke_api_key(key: int) -> RequestSpec[None]:
    """Revoke an API key of any user, for good."""
    return RequestSpec("DELETE", format_path("/api/admin/keys/{}", key), no_body)


def audit(
    *,
    actor: str | None = None,
    kind: str | None = None,
    object_id: str | None = None,
    action: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> ListSpec[Entry]:
    """The audit log, the newest entry first; `object_id` needs `kind`."""
    what = {"actor": actor, "kind": kind, "object_id": object_id, "action": action}
    return ListSpec("/api/admin/audit", Entry, {**what, "since": since, "until": until})


# Statistics, alerts and webhooks


def stats() -> RequestSpec[Stats]:
    """Statistics of the whole crawl."""
    return RequestSpec("GET", "/api/stats", decode_one(Stats))


def outlook() -> RequestSpec[Outlook]:
    """When domains are crawled again, and what waits for an operator or a sweep."""
    return RequestSpec("GET", "/api/stats/outlook", decode_one(Outlook))


def timeseries(
    *, since: datetime | None = None, until: datetime | None = None, step: str = "minute"
) -> RequestSpec[TimeSeries]:
    """A time series of what was crawled, by default of the last hour. `step`: `minute`, `hour`, `day`, or whole
    minutes such as `5m`."""
    return RequestSpec(
        "GET", "/api/stats/timeseries", decode_one(TimeSeries), {"since": since, "until": until, "step": step}
    )


def recent_errors(*, minutes: int = 15) -> RequestSpec[list[ErrorCause]]:
    """The errors of the last minutes (1 to 60) by outcome, the most frequent first."""
    return RequestSpec("GET", "/api/stats/errors", decode_list(ErrorCause), {"minutes": minutes})


def alerts(*, active: bool | None = None) -> ListSpec[Alert]:
    """Alerts, the newest first."""
    return ListSpec("/api/alerts", Alert, {"active": active})


def acknowledge_alert(alert: int) -> RequestSpec[Alert]:
    """Acknowledge an alert that fires. It still fires until its cause is gone."""
    return RequestSpec("POST", format_path("/api/admin/alerts/{}/acknowledge", alert), decode_one(Alert))


def deliveries(
    *, state: str | None = None, task_id: int | None = None, url: str | None = None, order: str = "newest"
) -> ListSpec[Delivery]:
    """Messages of webhooks: `waiting`, `delivered` or `given_up`. The order is `newest` or `oldest`."""
    return ListSpec("/api/webhooks", Delivery, {"state": state, "task_id": task_id, "url": url, "order": order})


def delivery(delivery: int) -> RequestSpec[Delivery]:
    """One message, with the result of its last attempt."""
    return RequestSpec("GET", format_path("/api/webhooks/{}", delivery), decode_one(Delivery))


def outbox() -> RequestSpec[Outbox]:
    """The outbox of webhooks in numbers."""
    return RequestSpec("GET", "/api/webhooks/stats", decode_one(Outbox))


def retry_delivery(delivery: int) -> RequestSpec[Delivery]:
    """Send a message again."""
    return RequestSpec("POST", format_path("/api/admin/webhooks/{}/retry", delivery), decode_one(Delivery))


# Jobs


def jobs(
    *, state: str | None = None, prefix: str | None = None, scheduled: bool | None = None, order: str = "newest"
) -> ListSpec[Job]:
    """Jobs; those whose names begin with `prefix`, or that have a schedule. The order is `newest` or `oldest`."""
    if scheduled is False:
        raise UsageError(
            "There is no list of jobs without a schedule: leave `scheduled` out, and look at each job's `schedule`."
        )
    return ListSpec("/api/jobs", Job, {"state": state, "prefix": prefix, "scheduled": scheduled, "order": order})


def job(job: JobRef) -> RequestSpec[Job]:
    """One job, by its name or id."""
    return RequestSpec("GET", format_path("/api/jobs/{}", _job_segment(job)), decode_one(Job))


def job_summary(job: JobRef) -> RequestSpec[CrawlSummary]:
    """How a job stands: URLs that were not crawled by reason, waits, and the next step. The server reads all URLs of the job for it."""
    return RequestSpec("GET", format_path("/api/jobs/{}/summary", _job_segment(job)), decode_one(CrawlSummary))


def job_pace(job: JobRef) -> RequestSpec[JobPace]:
    """How fast a job is crawled at this moment, and when it would be done at that rate."""
    return RequestSpec("GET", format_path("/api/jobs/{}/pace", _job_segment(job)), decode_one(JobPace))


def job_domains(job: JobRef, *, state: str | None = None) -> ListSpec[JobDomain]:
    """The domains of a job with its work on each; `state`: `open`, `parked`, `spent` or `done`."""
    return ListSpec(format_path("/api/jobs/{}/domains", _job_segment(job)), JobDomain, {"state": state})


def act_on_jobs(
    action: str,
    *,
    state: str | None = None,
    prefix: str | None = None,
    scheduled: bool | None = None,
    dry_run: bool = False,
) -> RequestSpec[JobsChanged]:
    """Pause, resume or cancel all jobs that match, 500 at a time; `dry_run` only says which."""
    body = {"action": action, "state": state, "prefix": prefix, "scheduled": scheduled, "dry_run": dry_run}
    return RequestSpec("POST", "/api/jobs/actions", decode_one(JobsChanged), body=body)


def crawl_again(job: JobRef) -> RequestSpec[Job]:
    """Crawl a job again: all its pages are fetched anew, in a new crawl."""
    return RequestSpec("POST", format_path("/api/jobs/{}/again", _job_segment(job)), decode_one(Job))


def comparison(job: JobRef) -> RequestSpec[Comparison]:
    """The last crawl of a job compared with the one before: pages that are new, changed, gone, failed or unchanged."""
    return RequestSpec("GET", format_path("/api/jobs/{}/comparison", _job_segment(job)), decode_one(Comparison))


def compared_pages(job: JobRef, kind: str) -> ListSpec[ComparedPage]:
    """The pages of one kind of that comparison: `new`, `changed`, `gone`, `failed` or `unchanged`."""
    return ListSpec(format_path("/api/jobs/{}/comparison/pages", _job_segment(job)), ComparedPage, {"kind": kind})


def plan_job(urls: Sequence[str], *, name: str | None = None, **spec: Unpack[JobOptions]) -> RequestSpec[CrawlPlan]:
    """Plan a job before it is made: pages, time and assumptions. Nothing is written or fetched."""
    body = {"urls": list(urls), "name": name, "spec": spec}
    return RequestSpec("POST", "/api/jobs/plan", decode_one(CrawlPlan), body=body)


def job_plan(job: JobRef, *, again: bool = False) -> RequestSpec[CrawlPlan]:
    """Plan what an existing job has left to do; `again`: all URLs that it knows."""
    path = format_path("/api/jobs/{}/plan", _job_segment(job))
    return RequestSpec("GET", path, decode_one(CrawlPlan), {"again": again})


def job_depths(job: JobRef) -> RequestSpec[JobDepths]:
    """URLs of a job by depth and state; of many, estimated from a sample."""
    return RequestSpec("GET", format_path("/api/jobs/{}/depths", _job_segment(job)), decode_one(JobDepths))


def job_log(job: JobRef) -> ListSpec[JobEvent]:
    """What happened to a job, the newest entry first."""
    return ListSpec(format_path("/api/jobs/{}/log", _job_segment(job)), JobEvent, {})


def create_job(
    name: str,
    urls: Sequence[str],
    *,
    schedule: str | None = None,
    secrets: Secrets | None = None,
    **spec: Unpack[JobOptions],
) -> RequestSpec[NewJob]:
    """Create a job; workers start it at once. `schedule`: repeat it (`6h`, or five fields of cron). `secrets`:
    headers, cookies and credentials that are sent to the origins of `urls`, and nowhere else."""
    body: dict[str, Any] = {"name": name, "urls": list(urls), "spec": spec, "schedule": schedule}
    if secrets is not None:
        body["secrets"] = secrets

    def read_new_job(response: httpx.Response) -> NewJob:
        created = read(CreatedJob, document(response))
        return NewJob(**asdict(created.job), seeds=created.seeds, bad=created.bad, bad_seeds=created.bad_seeds)

    return RequestSpec("POST", "/api/jobs", read_new_job, body=body)


def edit_job(job: JobRef, *, version: int | None = None, **changes: Unpack[JobChanges]) -> RequestSpec[EditedJob]:
    """Change limits, request rate, parser and other options of a job; running visits apply them within two seconds.
    With `version`: only if there was no other change since that version."""
    return RequestSpec(
        "PATCH",
        format_path("/api/jobs/{}", _job_segment(job)),
        decode_one(EditedJob),
        body=changes,
        headers=if_match(version),
    )


def preview_scope(job: JobRef, **changes: Unpack[ScopeChanges]) -> RequestSpec[ScopePreview]:
    """What an edit of the rules of a job (`scope`, `include`, `exclude`, `max_depth`) would do to its URLs; nothing is changed."""
    path = format_path("/api/jobs/{}/scope/preview", _job_segment(job))
    return RequestSpec("POST", path, decode_one(ScopePreview), body=changes)


def undo_scope(job: JobRef, *, version: int | None = None) -> RequestSpec[EditedJob]:
    """Restore the rules that a job had before their last edit: URLs that it removed wait again. With `version`: only if there was no
    other change since that version."""
    path = format_path("/api/jobs/{}/scope/undo", _job_segment(job))
    return RequestSpec("POST", path, decode_one(EditedJob), headers=if_match(version))


def scope_history(job: JobRef) -> RequestSpec[list[RulesVersion]]:
    """All versions of the rules of a job, the oldest first; the last one is in force."""
    path = format_path("/api/jobs/{}/scope/history", _job_segment(job))
    return RequestSpec("GET", path, decode_list(RulesVersion))


def set_secrets(job: JobRef, **secrets: Unpack[Secrets]) -> RequestSpec[Job]:
    """Change the headers, cookies and credentials that are sent to the origins of a job's seeds, also by running
    crawls."""
    return RequestSpec("PUT", format_path("/api/jobs/{}/secrets", _job_segment(job)), decode_one(Job), body=secrets)


def pause(job: JobRef) -> RequestSpec[Job]:
    """Pause a job: within two seconds nothing of it is fetched any more."""
    return RequestSpec("POST", format_path("/api/jobs/{}/pause", _job_segment(job)), decode_one(Job))


def resume(job: JobRef) -> RequestSpec[Job]:
    """Resume a paused job where it was."""
    return RequestSpec("POST", format_path("/api/jobs/{}/resume", _job_segment(job)), decode_one(Job))


def cancel(job: JobRef) -> RequestSpec[Job]:
    """Cancel a job. Its pages stay."""
    return RequestSpec("POST", format_path("/api/jobs/{}/cancel", _job_segment(job)), decode_one(Job))


def delete_job(job: JobRef) -> RequestSpec[None]:
    """Delete a job with its URLs and pages."""
    return RequestSpec("DELETE", format_path("/api/jobs/{}", _job_segment(job)), no_body)


def schedule(job: JobRef, when: str | None) -> RequestSpec[Job]:
    """Schedule a job: an interval, or five fields of cron. None removes the schedule."""
    path = format_path("/api/jobs/{}/schedule", _job_segment(job))
    return (
        RequestSpec("DELETE", path, decode_one(Job))
        if when is None
        else RequestSpec("PUT", path, decode_one(Job), body={"schedule": when})
    )


def watch(job: JobRef) -> StreamSpec[JobUpdate]:
    """Events of a job, and its progress whenever it changes, until it is completed, cancelled, failed, deleted or at
    a limit.

    The last progress ends the stream; events of the same moment may be missing.
    """

    def is_last(update: JobUpdate) -> bool:
        return isinstance(update, JobProgress) and update.is_over

    return StreamSpec(
        format_path("/api/jobs/{}/events", _job_segment(job)), _job_update, is_last=is_last, may_vanish=True
    )


def events(*, kinds: Sequence[str] = (), domain: str | None = None) -> StreamSpec[Event]:
    """Events from now on, of jobs, domains, tasks, workers and alerts (`kinds`); the stream does not end."""
    return StreamSpec("/api/events", _event, {"kind": list(kinds), "domain": domain})


def watch_stats() -> StreamSpec[Stats]:
    """Statistics, whenever they change; the stream does not end."""
    return StreamSpec("/api/stats/events", lambda name, _, data: read(Stats, data) if name == "stats" else None)


# The frontier and pages


def frontier_stats(*, job: JobRef | None = None) -> RequestSpec[FrontierStats]:
    """Statistics of the frontier."""
    return RequestSpec("GET", "/api/frontier/stats", decode_one(FrontierStats), {"job": _optional_job(job)})


def frontier_urls(
    *,
    domain: str | None = None,
    job: JobRef | None = None,
    state: str | None = None,
    kind: str | None = None,
    priority: int | None = None,
    due: bool | None = None,
    reason: str | None = None,
    resource: str | None = None,
    order: str = "key",
) -> ListSpec[FrontierUrl]:
    """URLs of the frontier, in any state. `reason`: of those that do not wait, the code of the reason, as in the
    summary of a job; `resource`: `page`, `sitemap`, `image` or `check`. The order `taken` is the order in which a worker takes them, and
    needs a domain and a job."""
    filters = {"domain": domain, "job": _optional_job(job), "state": state, "kind": kind, "priority": priority}
    filters |= {"due": due, "reason": reason, "resource": resource, "order": order}
    return ListSpec("/api/frontier/urls", FrontierUrl, filters)


def retry_urls(
    job: JobRef,
    *,
    urls: Sequence[str] = (),
    reason: str | None = None,
    state: str | None = None,
    domain: str | None = None,
    dry_run: bool = False,
) -> RequestSpec[Retried]:
    """Retry URLs of a job that were not crawled: these `urls`, or all of a reason, a state, a domain; without any of
    them all that failed. `dry_run` only counts them. A completed or failed job is reopened."""
    body = {"urls": list(urls), "reason": reason, "state": state, "domain": domain, "dry_run": dry_run}
    return RequestSpec("POST", format_path("/api/jobs/{}/retry", _job_segment(job)), decode_one(Retried), body=body)


def add_urls(urls: Sequence[str], *, job: JobRef | None = None, priority: str = "medium") -> RequestSpec[AddedUrls]:
    """Add URLs to a job, with a priority of `high`, `medium` or `low`; those that it knows stay as they are."""
    body = {"urls": list(urls), "job": _optional_job(job), "priority": priority}
    return RequestSpec("POST", "/api/frontier/add", decode_one(AddedUrls), body=body)


def seed(urls: Sequence[str], *, job: JobRef | None = None) -> RequestSpec[AddedUrls]:
    """Add seeds, from which a crawl begins."""
    return RequestSpec(
        "POST", "/api/frontier/seed", decode_one(AddedUrls), body={"urls": list(urls), "job": _optional_job(job)}
    )


def recover_frontier() -> RequestSpec[Recovered]:
    """Release what dead workers hold, and do whatever else a sweep does, now."""
    return RequestSpec("POST", "/api/frontier/recover", decode_one(Recovered))


def clear_frontier(
    *, job: JobRef | None = None, domain: str | None = None, everything: bool = False
) -> RequestSpec[Operation]:
    """Clear waiting URLs of a job, of a domain, or with `everything` all of them, in the background; `wait` for the operation."""
    query = {"job": _optional_job(job), "domain": domain, "confirm": "all" if everything else None}
    return RequestSpec("DELETE", "/api/frontier", decode_one(Operation), query)


def pages(
    *,
    domain: str | None = None,
    job: JobRef | None = None,
    status: int | None = None,
    status_class: int | None = None,
    outcome: str | None = None,
    content_type: str | None = None,
    content_hash: str | None = None,
    url_prefix: str | None = None,
    title: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    order: str = "newest",
) -> ListSpec[CrawledPage]:
    """The last response for each URL; those whose URLs begin with `url_prefix`, or with these words in the title. The order is
    `newest`, `oldest` or `key`."""
    answer = {"status": status, "status_class": status_class, "outcome": outcome}
    content = {"content_type": content_type, "content_hash": content_hash, "since": since, "until": until}
    search = {"url_prefix": url_prefix, "title": title}
    filters = {"domain": domain, "job": _optional_job(job), **answer, **content, **search, "order": order}
    return ListSpec("/api/pages", CrawledPage, filters)


def page(url: str, *, job: JobRef | None = None) -> RequestSpec[list[PageFacts]]:
    """All that each job knows about a URL, the newest response first."""
    return RequestSpec("GET", "/api/pages/page", decode_list(PageFacts), {"url": url, "job": _optional_job(job)})


def page_versions(url: str, *, job: JobRef | None = None) -> RequestSpec[list[PageVersion]]:
    """The versions of a page, the newest first; without `job`, in the job that answered last."""
    return RequestSpec("GET", "/api/pages/versions", decode_list(PageVersion), {"url": url, "job": _optional_job(job)})


def page_diff(
    url: str, *, job: JobRef | None = None, older: int | None = None, newer: int | None = None
) -> RequestSpec[PageDiff]:
    """The differences between two versions of a page, by their numbers; by default the current one and the one before."""
    query = {"url": url, "job": _optional_job(job), "older": older, "newer": newer}
    return RequestSpec("GET", "/api/pages/diff", decode_one(PageDiff), query)


def page_source(url: str, *, job: JobRef | None = None, version: int | None = None) -> RequestSpec[ArchivedPage]:
    """The archived response for a URL, the newest or that of a version: headers, body, text and links; `missing` says why there is none."""
    query = {"url": url, "job": _optional_job(job), "version": version}
    return RequestSpec("GET", "/api/pages/source", decode_one(ArchivedPage), query)


def page_markdown(url: str, *, job: JobRef | None = None) -> RequestSpec[Document]:
    """The main content of a page as Markdown, without menus and footers; of a job, or of the one that fetched it last."""
    return RequestSpec("GET", "/api/pages/markdown", decode_one(Document), {"url": url, "job": _optional_job(job)})


def search(
    words: str,
    *,
    domain: str | None = None,
    job: JobRef | None = None,
    language: str | None = None,
    kind: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 10,
    offset: int = 0,
) -> RequestSpec[SearchResults]:
    """Search the content of pages: all words must be there, `"two words"` is a phrase, `OR`, `NOT` and parentheses combine."""
    query = {"q": words, "domain": domain, "job": _optional_job(job), "language": language, "kind": kind}
    return RequestSpec(
        "GET",
        "/api/search",
        decode_one(SearchResults),
        {**query, "since": since, "until": until, "limit": limit, "offset": offset},
    )


def search_status() -> RequestSpec[IndexStatus]:
    """How far the search index of the server's machine is."""
    return RequestSpec("GET", "/api/search/status", decode_one(IndexStatus))


def count_pages(
    *, job: JobRef | None = None, domain: str | None = None, before: datetime | None = None
) -> RequestSpec[PageCount]:
    """How many pages `purge_pages` would delete: exactly up to 100,000."""
    query = {"job": _optional_job(job), "domain": domain, "before": before}
    return RequestSpec("GET", "/api/pages/count", decode_one(PageCount), query)


def purge_pages(
    *, job: JobRef | None = None, domain: str | None = None, before: datetime | None = None, everything: bool = False
) -> RequestSpec[Operation]:
    """Delete pages and their texts, of a job, of a domain, fetched before a time, or with `everything` all of them, in the background;
    `wait` for the operation. Their URLs stay done, and log and archive stay as they are."""
    query = {"job": _optional_job(job), "domain": domain, "before": before, "confirm": "all" if everything else None}
    return RequestSpec("DELETE", "/api/admin/pages", decode_one(Operation), query)


def items(
    *,
    url: str | None = None,
    domain: str | None = None,
    job: JobRef | None = None,
    parser: str | None = None,
    position: int | None = None,
) -> ListSpec[Item]:
    """Items that parsers found on the pages of crawls; `position` on their page, from 0."""
    filters = {"url": url, "domain": domain, "job": _optional_job(job), "parser": parser, "position": position}
    return ListSpec("/api/items", Item, filters)


def images(
    *,
    domain: str | None = None,
    job: JobRef | None = None,
    format: str | None = None,  # noqa: A002 — as the API has it
    min_width: int | None = None,
    min_height: int | None = None,
    since: datetime | None = None,
    near: int | None = None,
    order: str = "newest",
) -> ListSpec[Image]:
    """Images that crawls stored; `near` those that look like an image. The order is `newest` or `oldest`, by when each was stored."""
    size = {"min_width": min_width, "min_height": min_height}
    filters = {"domain": domain, "job": _optional_job(job), "format": format, **size, "since": since, "near": near}
    return ListSpec("/api/images", Image, {**filters, "order": order})


def image(image_id: int) -> RequestSpec[ImageDetails]:
    """An image, pages that have it, and near duplicates."""
    return RequestSpec("GET", format_path("/api/images/{}", image_id), decode_one(ImageDetails))


def image_file(image_id: int) -> RequestSpec[bytes]:
    """The bytes of an image."""
    path = format_path("/api/images/{}/file", image_id)
    return RequestSpec("GET", path, lambda answer: answer.content, headers={"Accept": "*/*"})


def image_thumbnail(image_id: int) -> RequestSpec[bytes]:
    """The thumbnail of an image, as WebP."""
    path = format_path("/api/images/{}/thumbnail", image_id)
    return RequestSpec("GET", path, lambda answer: answer.content, headers={"Accept": "*/*"})


def links_in(url: str, *, job: JobRef | None = None) -> ListSpec[LinkPlace]:
    """Links to a URL, by page. Without a job: the newest one that has recorded links; likewise below."""
    return ListSpec("/api/links/in", LinkPlace, {"url": url, "job": _optional_job(job)})


def links_out(url: str, *, job: JobRef | None = None) -> RequestSpec[PageLinkList]:
    """The links of a page, with what is known of their targets."""
    return RequestSpec("GET", "/api/links/out", decode_one(PageLinkList), {"url": url, "job": _optional_job(job)})


def broken_links(
    *, job: JobRef | None = None, external: bool | None = None, places: int | None = None
) -> ListSpec[BrokenLink]:
    """Targets that are errors, at once or behind redirects; `places` pages of each. `external`: only those out of scope, or only others."""
    return ListSpec(
        "/api/links/broken", BrokenLink, {"job": _optional_job(job), "external": external, "places": places}
    )


def redirected_links(
    *,
    job: JobRef | None = None,
    min_hops: int | None = None,
    external: bool | None = None,
    places: int | None = None,
) -> ListSpec[RedirectedLink]:
    """Targets that redirect, through at least so many hops, with pages that link to them."""
    filters = {"job": _optional_job(job), "min_hops": min_hops, "external": external, "places": places}
    return ListSpec("/api/links/redirects", RedirectedLink, filters)


def orphans(*, job: JobRef | None = None) -> ListSpec[Orphan]:
    """URLs that a sitemap lists or that are seeds, and to which no page links."""
    return ListSpec("/api/links/orphans", Orphan, {"job": _optional_job(job)})


def missing_places(*, job: JobRef | None = None) -> ListSpec[MissingPlace]:
    """Links with a fragment that names no id of their target."""
    return ListSpec("/api/links/fragments", MissingPlace, {"job": _optional_job(job)})


def unchecked_targets(*, job: JobRef | None = None) -> ListSpec[UncheckedTarget]:
    """Targets that were not requested, with the reason."""
    return ListSpec("/api/links/unchecked", UncheckedTarget, {"job": _optional_job(job)})


def top_targets(*, job: JobRef | None = None, limit: int | None = None) -> RequestSpec[list[LinkDegree]]:
    """The URLs that most pages link to. The server reads all pages of the job."""
    query = {"job": _optional_job(job), "limit": limit}
    return RequestSpec("GET", "/api/links/top", decode_list(LinkDegree), query)


def link_summary(*, job: JobRef | None = None) -> RequestSpec[LinkSummary]:
    """What a job has recorded of links. The server reads all its pages and URLs."""
    return RequestSpec("GET", "/api/links/summary", decode_one(LinkSummary), {"job": _optional_job(job)})


def explain(subject: str) -> RequestSpec[Explanation]:
    """Explain the state of a URL (with its scheme, or a path) or of a domain."""
    return RequestSpec("GET", "/api/explain", decode_one(Explanation), {"subject": subject})


# Domains


def domains(
    *,
    status: str | None = None,
    active: bool | None = None,
    claimed: bool | None = None,
    worker: str | None = None,
    name: str | None = None,
    parent: str | None = None,
    order: str = "name",
) -> ListSpec[Domain]:
    """Domains; those whose names begin with `name`. The order is `name`, `crawled`, `priority`, `newest` or `oldest`."""
    held = {"claimed": claimed, "worker": worker}
    filters = {"status": status, "active": active, **held, "name": name, "parent": parent, "order": order}
    return ListSpec("/api/domains", Domain, filters)


def domain(domain: str) -> RequestSpec[DomainFacts]:
    """A domain with its configuration, work, transitions and tenures."""
    return RequestSpec("GET", format_path("/api/domains/{}", domain), decode_one(DomainFacts))


def robots(domain: str) -> RequestSpec[list[RobotsFile]]:
    """The robots.txt of each origin of a domain, as it was fetched last."""
    return RequestSpec("GET", format_path("/api/domains/{}/robots", domain), decode_list(RobotsFile))


def transitions(domain: str) -> ListSpec[Transition]:
    """Changes of the status of a domain, the newest first."""
    return ListSpec(format_path("/api/domains/{}/transitions", domain), Transition, {})


def tenures(domain: str) -> ListSpec[Tenure]:
    """Workers that held a domain, the newest first."""
    return ListSpec(format_path("/api/domains/{}/tenures", domain), Tenure, {})


def add_domain(domain: str, **changes: Unpack[DomainChanges]) -> RequestSpec[DomainFacts]:
    """Create a domain with this configuration and no URL to crawl; one that exists is unchanged."""
    return RequestSpec("POST", "/api/admin/domains", decode_one(DomainFacts), body={"domain": domain, **changes})


def configure_domain(
    domain: str, *, version: int | None = None, **changes: Unpack[DomainChanges]
) -> RequestSpec[DomainFacts]:
    """Change how a domain is crawled. With `version`: only if there was no other change since that version."""
    path = format_path("/api/admin/domains/{}", domain)
    return RequestSpec("PATCH", path, decode_one(DomainFacts), body=changes, headers=if_match(version))


def reset_domain(domain: str, *, reason: str | None = None) -> RequestSpec[DomainReset]:
    """Reset a domain, from any status; a worker that holds it is fenced off."""
    body = None if reason is None else {"reason": reason}
    return RequestSpec("POST", format_path("/api/admin/domains/{}/reset", domain), decode_one(DomainReset), body=body)


def unblock_domain(domain: str, *, reason: str | None = None) -> RequestSpec[DomainReset]:
    """Unblock a blocked or unreachable domain; only URLs that wait, were refused or could not be reached are crawled."""
    body = None if reason is None else {"reason": reason}
    return RequestSpec("POST", format_path("/api/admin/domains/{}/unblock", domain), decode_one(DomainReset), body=body)


def count_matching_domains(
    action: str,
    *,
    status: str | None = None,
    active: bool | None = None,
    claimed: bool | None = None,
    worker: str | None = None,
    name: str | None = None,
    parent: str | None = None,
    all_domains: bool = False,
) -> RequestSpec[MatchingDomains]:
    """Count the domains that `change_matching_domains` would change: `reset`, `unblock`, `switch-off` or `switch-on`."""
    body = _bulk(action, status, active, claimed, worker, name, parent, all_domains)
    return RequestSpec("POST", "/api/admin/domains/bulk/count", decode_one(MatchingDomains), body=body)


def change_matching_domains(
    action: str,
    *,
    reason: str | None = None,
    status: str | None = None,
    active: bool | None = None,
    claimed: bool | None = None,
    worker: str | None = None,
    name: str | None = None,
    parent: str | None = None,
    all_domains: bool = False,
) -> RequestSpec[Operation]:
    """Reset, unblock or switch all domains that match the filters, in the background; `wait` for the operation. Without a filter
    `all_domains` must be True."""
    body = _bulk(action, status, active, claimed, worker, name, parent, all_domains)
    body |= {} if reason is None else {"reason": reason}
    return RequestSpec("POST", "/api/admin/domains/bulk", decode_one(Operation), body=body)


def _bulk(
    action: str,
    status: str | None,
    active: bool | None,
    claimed: bool | None,
    worker: str | None,
    name: str | None,
    parent: str | None,
    all_domains: bool,
) -> dict[str, Any]:
    filters = {"status": status, "active": active, "claimed": claimed, "worker": worker, "name": name, "parent": parent}
    given = {field: value for field, value in filters.items() if value is not None}
    return {"action": action, **given, "all_domains": all_domains}


def remove_domain(domain: str) -> RequestSpec[None]:
    """Remove a domain with its URLs and pages; the log keeps what was fetched from it."""
    return RequestSpec("DELETE", format_path("/api/admin/domains/{}", domain), no_body)


def maintenance_windows(*, name: str | None = None) -> ListSpec[MaintenanceWindow]:
    """Domains with maintenance windows; those whose names begin with `name`."""
    return ListSpec("/api/maintenance-windows", MaintenanceWindow, {"name": name})


def set_maintenance_window(domain: str, window: str | None, *, version: int | None = None) -> RequestSpec[DomainFacts]:
    """Set when a domain is not crawled, such as `mon-fri 08:00-18:00 Europe/Berlin`; None: it may be crawled at any time."""
    path = format_path("/api/admin/domains/{}/maintenance-window", domain)
    if window is None:
        return RequestSpec("DELETE", path, decode_one(DomainFacts), headers=if_match(version))
    return RequestSpec("PUT", path, decode_one(DomainFacts), body={"window": window}, headers=if_match(version))


def recalculate_priorities() -> RequestSpec[Operation]:
    """Recalculate the priorities of all domains in the background; `wait` for the operation."""
    return RequestSpec("POST", "/api/admin/priorities", decode_one(Operation))


# Operations


def claims(*, worker: str | None = None, expired: bool | None = None) -> ListSpec[Claim]:
    """Claimed domains, by worker."""
    return ListSpec("/api/claims", Claim, {"worker": worker, "expired": expired})


def claim_summary() -> RequestSpec[ClaimSummary]:
    """How many domains each worker holds, expired claims, and domains that wait."""
    return RequestSpec("GET", "/api/claims/summary", decode_one(ClaimSummary))


def release_claims(
    *, force: bool = False, worker: str | None = None, domain: str | None = None, all_active: bool = False
) -> RequestSpec[int]:
    """Release claims that have expired, or with `force` those of a worker, on a domain, or all. Returns how many."""
    body = {"force": force, "worker": worker, "domain": domain, "all_active": all_active}

    def count(response: httpx.Response) -> int:
        return read(ReleasedClaims, document(response)).claims

    return RequestSpec("POST", "/api/admin/claims/release", count, body=body)


def runs(*, status: str | None = None, job: JobRef | None = None, worker: str | None = None) -> ListSpec[Run]:
    """Worker processes, the newest first."""
    return ListSpec("/api/runs", Run, {"status": status, "job": _optional_job(job), "worker": worker})


def run(run: int) -> RequestSpec[Run]:
    """One worker process."""
    return RequestSpec("GET", format_path("/api/runs/{}", run), decode_one(Run))


def close_silent_runs(*, older_than_minutes: int = 60) -> RequestSpec[list[int]]:
    """Mark runs as failed that have had no heartbeat for that long. Returns their ids."""
    body = {"older_than_minutes": older_than_minutes}

    def ids(response: httpx.Response) -> list[int]:
        return read(ClosedRuns, document(response)).runs

    return RequestSpec("POST", "/api/admin/runs/cleanup", ids, body=body)


def backups() -> RequestSpec[BackupReport]:
    """Backups that are kept, and which seconds can be restored."""
    return RequestSpec("GET", "/api/backups", decode_one(BackupReport))


def storage() -> RequestSpec[StorageReport]:
    """What the database of the server, its archive and its logs take, and how much room is left."""
    return RequestSpec("GET", "/api/storage", decode_one(StorageReport))


def workers(*, alive: bool | None = None) -> ListSpec[Worker]:
    """Workers, by name."""
    return ListSpec("/api/workers", Worker, {"alive": alive})


def worker(name: str) -> RequestSpec[Worker]:
    """A worker by its name: its state, its activity, and its figures."""
    return RequestSpec("GET", format_path("/api/workers/{}", name), decode_one(Worker))


def verify(*, archive: bool = True) -> RequestSpec[Operation]:
    """Verify the database in the background; `wait` for the operation."""
    return RequestSpec("POST", "/api/admin/verify", decode_one(Operation), body={"archive": archive})


def replay(
    mode: str,
    *,
    job: str | None = None,
    domain: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    parser: str | None = None,
    as_of: datetime | None = None,
    dry_run: bool = False,
) -> RequestSpec[Operation]:
    """Replay pages in the background (mode `fetch`, `parse` or `lost`); `wait` for the operation."""
    body = {
        "mode": mode,
        "job": job,
        "domain": domain,
        "since": since,
        "until": until,
        "parser": parser,
        "as_of": as_of,
        "dry_run": dry_run,
    }
    return RequestSpec("POST", "/api/admin/replay", decode_one(Operation), body=body)


def rebuild_counters(
    *, domain: str | None = None, wait: timedelta = timedelta(0), dry_run: bool = False
) -> RequestSpec[Operation]:
    """Rebuild counters from the log and the frontier in the background; `wait` for the operation. The operation waits as long as `wait`
    for domains that workers hold."""
    body = {"domain": domain, "wait": wait, "dry_run": dry_run}
    return RequestSpec("POST", "/api/admin/rebuild/counters", decode_one(Operation), body=body)


def archive_machines() -> RequestSpec[list[ArchiveMachine]]:
    """The machines whose archives go to an object store, and what only they have."""
    return RequestSpec("GET", "/api/archive/machines", decode_list(ArchiveMachine))


def segments(*, state: str | None = None, machine: str | None = None) -> ListSpec[Segment]:
    """Files of the archive, by name, and which machine has them."""
    return ListSpec("/api/archive/segments", Segment, {"state": state, "machine": machine})


def lose_machine(machine: str | int, *, dry_run: bool = False) -> RequestSpec[Operation]:
    """Declare a machine lost for good, in the background; `wait` for the operation."""
    path = format_path("/api/admin/archive/machines/{}/lost", machine)
    return RequestSpec("POST", path, decode_one(Operation), body={"dry_run": dry_run})


def retention() -> RequestSpec[RetentionStatus]:
    """What is kept how long, when retention ran, and what it has archived."""
    return RequestSpec("GET", "/api/retention", decode_one(RetentionStatus))


def run_retention(*, dry_run: bool = False) -> RequestSpec[Operation]:
    """Archive and delete what is old, in the background; `wait` for the operation."""
    return RequestSpec("POST", "/api/admin/retention", decode_one(Operation), body={"dry_run": dry_run})


def archives(*, kind: str | None = None, job: str | None = None, state: str | None = None) -> ListSpec[ArchiveEntry]:
    """What retention has archived, the newest first."""
    return ListSpec("/api/archives", ArchiveEntry, {"kind": kind, "job": job, "state": state})


def archive(archive_id: int) -> RequestSpec[ArchiveDetails]:
    """An archive with its files."""
    return RequestSpec("GET", format_path("/api/archives/{}", archive_id), decode_one(ArchiveDetails))


def check_archive(archive_id: int) -> RequestSpec[Operation]:
    """Read the files of an archive and compare them with their hashes, in the background; `wait` for the operation."""
    return RequestSpec("POST", format_path("/api/admin/archives/{}/check", archive_id), decode_one(Operation))


def restore_archive(archive_id: int) -> RequestSpec[Operation]:
    """Restore an archive into its tables, in the background; `wait` for the operation."""
    return RequestSpec("POST", format_path("/api/admin/archives/{}/restore", archive_id), decode_one(Operation))


def restore_archives(
    ids: Sequence[int] = (),
    *,
    kind: str | None = None,
    job: str | None = None,
    schema: str | None = None,
    keep: timedelta = timedelta(days=30),
) -> RequestSpec[Operation]:
    """Restore these archives, or all of a kind and a job, into their tables or into a schema, in the background; `wait` for the
    operation."""
    body = {"ids": list(ids), "kind": kind, "job": job, "schema": schema, "keep": keep}
    return RequestSpec("POST", "/api/admin/archives/restore", decode_one(Operation), body=body)


def operations(*, state: str | None = None) -> ListSpec[Operation]:
    """Operations, the newest first."""
    return ListSpec("/api/operations", Operation, {"state": state})


def operation(operation: int | Operation) -> RequestSpec[Operation]:
    """The state and the result of an operation."""
    operation_id = operation.id if isinstance(operation, Operation) else operation
    return RequestSpec("GET", format_path("/api/operations/{}", operation_id), decode_one(Operation))


# Tasks


def tasks(
    *,
    status: str | None = None,
    domain: str | None = None,
    batch: str | None = None,
    parent_task_id: int | None = None,
    priority: int | None = None,
    order: str = "newest",
) -> ListSpec[Task]:
    """Tasks. The order is `newest` or `oldest`."""
    filters = {"status": status, "domain": domain, "batch": batch, "parent_task_id": parent_task_id}
    return ListSpec("/api/tasks", Task, {**filters, "priority": priority, "order": order})


def task(task: int) -> RequestSpec[TaskStory]:
    """A task: its state, the reason, and what comes next."""
    return RequestSpec("GET", format_path("/api/tasks/{}", task), decode_one(TaskStory))


def task_history(task: int) -> ListSpec[TaskCrawl]:
    """All crawls of a task's URL, the newest first."""
    return ListSpec(format_path("/api/tasks/{}/history", task), TaskCrawl, {})


def task_stats() -> RequestSpec[list[TaskCount]]:
    """Tasks by status, and the mean durations of the last day."""
    return RequestSpec("GET", "/api/stats/tasks", decode_list(TaskCount))


def create_task(url: str, **options: Unpack[TaskArguments]) -> RequestSpec[AskedTask]:
    """Create a task that crawls a URL, by default again and again. If the URL has a task that has not ended, that one
    is returned."""
    return RequestSpec("POST", "/api/admin/tasks", decode_one(AskedTask), body={"url": url, **options})


def create_tasks(urls: Sequence[str], **options: Unpack[TaskArguments]) -> RequestSpec[Bulk]:
    """Create many tasks with the same options; at most 10 000."""
    return RequestSpec("POST", "/api/admin/tasks/bulk", decode_one(Bulk), body={"urls": list(urls), **options})


def restart_task(
    task: int, *, reset_retry_count: bool = True, priority: int | None = None, scheduled_at: datetime | None = None
) -> RequestSpec[TaskRestart]:
    """Crawl a task again from the beginning."""
    body = {"reset_retry_count": reset_retry_count, "priority": priority, "scheduled_at": scheduled_at}
    return RequestSpec("POST", format_path("/api/admin/tasks/{}/restart", task), decode_one(TaskRestart), body=body)


def restart_parsing(task: int, *, reset_retry_count: bool = True) -> RequestSpec[TaskRestart]:
    """Parse a task's page again, from the archive."""
    path = format_path("/api/admin/tasks/{}/restart-parsing", task)
    return RequestSpec("POST", path, decode_one(TaskRestart), body={"reset_retry_count": reset_retry_count})


def count_failed(
    *, domain: str | None = None, batch: str | None = None, failed_after: datetime | None = None
) -> RequestSpec[FailedTasks]:
    """How many tasks `restart_failed` would restart with these filters."""
    filters = {"domain": domain, "batch": batch, "failed_after": failed_after}
    return RequestSpec("GET", "/api/tasks/failed/count", decode_one(FailedTasks), filters)


def restart_failed(
    *,
    domain: str | None = None,
    domain_id: int | None = None,
    batch: str | None = None,
    failed_after: datetime | None = None,
    limit: int = 1000,
) -> RequestSpec[RestartedTasks]:
    """Restart failed tasks, at most 10 000. Returns how many, and the first 1000 of them; if there are as many as
    `limit`, there may be more."""
    body = {"domain": domain, "domain_id": domain_id, "batch": batch, "failed_after": failed_after, "limit": limit}
    return RequestSpec("POST", "/api/admin/tasks/restart-failed", decode_one(RestartedTasks), body=body)


def pause_task(task: int) -> RequestSpec[Task]:
    """Pause a task."""
    return RequestSpec("POST", format_path("/api/admin/tasks/{}/pause", task), decode_one(Task))


def resume_task(task: int) -> RequestSpec[Task]:
    """Resume a paused task."""
    return RequestSpec("POST", format_path("/api/admin/tasks/{}/resume", task), decode_one(Task))


def cancel_task(task: int) -> RequestSpec[Task]:
    """Cancel a task, and the crawls that would follow it."""
    return RequestSpec("POST", format_path("/api/admin/tasks/{}/cancel", task), decode_one(Task))


def set_priority(task: int, priority: int) -> RequestSpec[Task]:
    """Set the priority of a task, from 1 (first) to 10 (last)."""
    return RequestSpec(
        "PATCH", format_path("/api/admin/tasks/{}/priority", task), decode_one(Task), body={"priority": priority}
    )


# Batches and products


def batches(*, prefix: str | None = None, order: str = "newest") -> ListSpec[Batch]:
    """Batches; those whose names begin with `prefix`. The order is `newest` or `oldest`."""
    return ListSpec("/api/batches", Batch, {"prefix": prefix, "order": order})


def batch(name: str) -> RequestSpec[Batch]:
    """A batch, with how many of its tasks are in each status."""
    return RequestSpec("GET", format_path("/api/batches/{}", name), decode_one(Batch))


def create_batch(name: str) -> RequestSpec[Batch]:
    """Create a batch; tasks are added to it when they are created."""
    return RequestSpec("POST", "/api/admin/batches", decode_one(Batch), body={"name": name})


def restart_batch(name: str) -> RequestSpec[Operation]:
    """Restart all tasks of a batch that have ended or are paused, in the background; `wait` for the operation."""
    return RequestSpec("POST", format_path("/api/admin/batches/{}/restart", name), decode_one(Operation))


def products(
    *,
    search: str | None = None,
    brand: str | None = None,
    min_price: Decimal | None = None,
    max_price: Decimal | None = None,
    currency: str | None = None,
    domain: str | None = None,
    available: bool | None = None,
    order: str = "newest",
) -> ListSpec[Product]:
    """Products that were found on pages. The order is `newest` or `oldest`, by when each was first seen."""
    price = {"min_price": min_price, "max_price": max_price, "currency": currency}
    filters = {"search": search, "brand": brand, **price, "domain": domain, "available": available}
    return ListSpec("/api/products", Product, {**filters, "order": order})


def product(product: int) -> RequestSpec[Product]:
    """A product, as it was seen last."""
    return RequestSpec("GET", format_path("/api/products/{}", product), decode_one(Product))


def prices(product: int) -> ListSpec[Price]:
    """The prices of a product over time, the newest first."""
    return ListSpec(format_path("/api/products/{}/history", product), Price, {})


# Proxies and pools

_PROXY_TEST_SECONDS: Final = 120.0
"""Seconds to wait for the test of a proxy; the server's own limit (`fetch.timeout`) is shorter by default."""


def proxies(
    *, active: bool | None = None, provider: str | None = None, country: str | None = None, order: str = "oldest"
) -> ListSpec[Proxy]:
    """Proxies, without their passwords. The order is `oldest` or `newest`."""
    filters = {"active": active, "provider": provider, "country": country, "order": order}
    return ListSpec("/api/proxies", Proxy, filters)


def proxy(proxy: int) -> RequestSpec[Proxy]:
    """One proxy."""
    return RequestSpec("GET", format_path("/api/proxies/{}", proxy), decode_one(Proxy))


def proxy_pools(proxy: int) -> ListSpec[ProxyMapping]:
    """The pools that a proxy is in, by domain."""
    return ListSpec(format_path("/api/proxies/{}/domains", proxy), ProxyMapping, {})


def add_proxy(**proxy: Unpack[NewProxy]) -> RequestSpec[Proxy]:
    """Add a proxy, by its `url` or by its parts. Its password is stored sealed, and never returned."""
    return RequestSpec("POST", "/api/admin/proxies", decode_one(Proxy), body=proxy)


def edit_proxy(proxy: int, *, version: int | None = None, **changes: Unpack[ProxyChanges]) -> RequestSpec[Proxy]:
    """Change a proxy. With `version`: only if there was no other change since that version."""
    path = format_path("/api/admin/proxies/{}", proxy)
    return RequestSpec("PATCH", path, decode_one(Proxy), body=changes, headers=if_match(version))


def enable_proxy(proxy: int) -> RequestSpec[Proxy]:
    """Enable a proxy, and reset its failures."""
    return RequestSpec("POST", format_path("/api/admin/proxies/{}/enable", proxy), decode_one(Proxy))


def disable_proxy(proxy: int) -> RequestSpec[Proxy]:
    """Disable a proxy, until it is enabled."""
    return RequestSpec("POST", format_path("/api/admin/proxies/{}/disable", proxy), decode_one(Proxy))


def delete_proxy(proxy: int) -> RequestSpec[None]:
    """Delete a proxy with its membership in pools and its statistics."""
    return RequestSpec("DELETE", format_path("/api/admin/proxies/{}", proxy), no_body)


def test_proxy(proxy: int, *, url: str | None = None) -> RequestSpec[ProxyTest]:  # noqa: PT028 — not a test of ours
    """Test a proxy by a request for `url` (by default http://example.com/) through it."""
    return RequestSpec(
        "POST",
        format_path("/api/admin/proxies/{}/test", proxy),
        decode_one(ProxyTest),
        body=None if url is None else {"url": url},
        read_timeout=_PROXY_TEST_SECONDS,
    )


def pools_health() -> ListSpec[PoolHealth]:
    """The pools of all domains in numbers, by name."""
    return ListSpec("/api/proxies/health", PoolHealth, {})


def proxy_costs() -> ListSpec[ProxyCost]:
    """The cost of each proxy."""
    return ListSpec("/api/proxies/cost", ProxyCost, {})


def provider_costs() -> RequestSpec[list[ProviderCost]]:
    """The cost of the proxies of each provider."""

    def read_providers(response: httpx.Response) -> list[ProviderCost]:
        return read(list[ProviderCost], document(response)["providers"])

    return RequestSpec("GET", "/api/proxies/cost", read_providers, {"limit": 1})


def pool(domain: str) -> ListSpec[ProxyMapping]:
    """The pool of a domain in the order of use, followed by other proxies that it has used."""
    return ListSpec(format_path("/api/domains/{}/proxies", domain), ProxyMapping, {})


def pool_health(domain: str) -> RequestSpec[PoolHealth]:
    """The pool of a domain in numbers."""
    return RequestSpec("GET", format_path("/api/domains/{}/proxies/health", domain), decode_one(PoolHealth))


def next_proxy(domain: str) -> RequestSpec[NextProxy]:
    """The proxy of the next request to a domain, and the reason."""
    return RequestSpec("GET", format_path("/api/domains/{}/proxies/next", domain), decode_one(NextProxy))


def assign_proxies(domain: str, proxies: Sequence[int], *, priority: int | None = None) -> RequestSpec[Assignment]:
    """Assign proxies to a domain, at most 1000, with a priority from 1 (first) to 10."""
    body = {"proxy_ids": list(proxies), "priority": priority}
    path = format_path("/api/admin/domains/{}/proxies", domain)
    return RequestSpec("POST", path, decode_one(Assignment), body=body)


def edit_pool_proxy(
    domain: str,
    proxy: int,
    *,
    priority: int | None = None,
    is_active: bool | None = None,
    version: int | None = None,
) -> RequestSpec[ProxyMapping]:
    """Change the priority of a proxy in the pool of a domain, or enable or disable it there. With `version`: only if
    there was no other change since that version."""
    return RequestSpec(
        "PATCH",
        format_path("/api/admin/domains/{}/proxies/{}", domain, proxy),
        decode_one(ProxyMapping),
        body={"priority": priority, "is_active": is_active},
        headers=if_match(version),
    )


def unassign_proxy(domain: str, proxy: int) -> RequestSpec[None]:
    """Remove a proxy from the pool of a domain."""
    return RequestSpec("DELETE", format_path("/api/admin/domains/{}/proxies/{}", domain, proxy), no_body)


# Everything else


def export(
    kind: str,
    format: str,  # noqa: A002 — as the API has it
    *,
    job: JobRef | None = None,
    domain: str | None = None,
    text: bool = False,
) -> RequestSpec[httpx.Response]:
    """Export `pages`, `documents`, `items`, `products`, `links`, `urls` or the `log`, as `jsonl`, `csv` or `parquet`."""
    query = {"format": format, "job": _optional_job(job), "domain": domain, "text": text}
    return RequestSpec(
        "GET",
        format_path("/api/exports/{}", kind),
        lambda answer: answer,
        query,
        headers={"Accept": "*/*"},
        stream=True,
    )


def request(
    method: str,
    path: str,
    *,
    query: Mapping[str, object] | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> RequestSpec[Any]:
    """Send a request to any path of the API. Returns the JSON of the response, or None without a body."""
    if not path.startswith("/") or path.startswith("//") or any(mark in path for mark in "?#\\"):
        raise UsageError(f"{path!r} is not a path of the API, such as /api/stats; parameters go into `query`.")

    def answer(response: httpx.Response) -> Any:
        return document(response) if response.content else None

    return RequestSpec(method.upper(), path, answer, query or {}, body, headers or {})


_DOT_SEGMENTS: Final = frozenset({".", ".."})
"""Segments that clients and servers remove from paths."""


def _job_segment(job: JobRef) -> str:
    """The segment of a path for a job: its id if its name cannot be a segment."""
    if isinstance(job, Job):
        return str(job.id) if "/" in job.name or job.name in _DOT_SEGMENTS else job.name
    return str(job)


def _optional_job(job: JobRef | None) -> str | None:
    return None if job is None else _job_segment(job)


def _event(name: str, event_id: str | None, data: Any) -> Event:
    if not isinstance(data, dict) or "data" not in data:
        return Event(name, None, data if isinstance(data, dict) else {"data": data})
    return read(Event, {**data, "kind": name, "id": event_id})


def _job_update(name: str, event_id: str | None, data: Any) -> JobUpdate:
    return read(JobProgress, data) if name == "progress" else _event(name, event_id, data)
