"""Everything that a client can ask a server: each call once, for both clients.

The rule: names and parameters are those of the API. A job is named by its name or id, or by what was answered before.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Unpack

import httpx

from holdfast.client.call import Call, Listing, Stream, at, document, if_match, nothing, one, some
from holdfast.client.crawled import (
    Domain,
    DomainChanges,
    DomainFacts,
    DomainReset,
    Explanation,
    FrontierStats,
    FrontierUrl,
    Item,
    JobChanges,
    JobSpec,
    Page,
    PageFacts,
    Secrets,
    Sown,
    Tenure,
    Transition,
)
from holdfast.client.reading import read
from holdfast.client.values import (
    Alert,
    Claim,
    ClaimSummary,
    EditedJob,
    Event,
    Job,
    JobProgress,
    Me,
    NewJob,
    News,
    Operation,
    Outlook,
    Run,
    Stats,
    TimeSeries,
    Worker,
)
from holdfast.errors import UsageError

JobRef = str | int | Job

# Who asks, and how things stand


def me() -> Call[Me]:
    """Who you are, for the server."""
    return Call("GET", "/api/auth/me", one(Me))


def stats() -> Call[Stats]:
    """How things stand."""
    return Call("GET", "/api/stats", one(Stats))


def outlook() -> Call[Outlook]:
    """What comes next, and what is left over."""
    return Call("GET", "/api/stats/outlook", one(Outlook))


def timeseries(
    *, since: datetime | None = None, until: datetime | None = None, step: str = "minute"
) -> Call[TimeSeries]:
    """What was crawled, step by step: `minute`, `hour`, `day`, or whole minutes such as `5m`. Usually of the last hour."""
    return Call("GET", "/api/stats/timeseries", one(TimeSeries), {"since": since, "until": until, "step": step})


def alerts(*, active: bool | None = None) -> Listing[Alert]:
    """What is or was wrong, the newest first."""
    return Listing("/api/alerts", Alert, {"active": active})


# Jobs


def jobs(
    *, state: str | None = None, prefix: str | None = None, scheduled: bool | None = None, order: str = "newest"
) -> Listing[Job]:
    """Jobs; those whose names begin with `prefix`, or that have a schedule. The order is `newest` or `oldest`."""
    if scheduled is False:
        raise UsageError(
            "There is no list of jobs without a schedule: leave `scheduled` out, and look at each job's `schedule`."
        )
    return Listing("/api/jobs", Job, {"state": state, "prefix": prefix, "scheduled": scheduled, "order": order})


def job(job: JobRef) -> Call[Job]:
    """One job, by its name or id."""
    return Call("GET", at("/api/jobs/{}", _job(job)), one(Job))


def create_job(
    name: str,
    urls: Sequence[str],
    *,
    schedule: str | None = None,
    secrets: Secrets | None = None,
    **spec: Unpack[JobSpec],
) -> Call[NewJob]:
    """Make a job; workers begin with it at once. `schedule`: crawl it again and again (`6h`, or five fields of cron). `secrets`: headers,
    cookies and credentials that are sent to the origins of `urls`, and nowhere else."""
    body: dict[str, Any] = {"name": name, "urls": list(urls), "spec": spec, "schedule": schedule}
    if secrets is not None:
        body["secrets"] = secrets

    def made(response: httpx.Response) -> NewJob:
        raw = document(response)
        return read(NewJob, {**raw["job"], **{name: value for name, value in raw.items() if name != "job"}})

    return Call("POST", "/api/jobs", made, body=body)


def edit_job(job: JobRef, *, version: int | None = None, **changes: Unpack[JobChanges]) -> Call[EditedJob]:
    """Change limits, pace, parser and the like of a job, within two seconds also for visits under way. With the `version` that you have
    seen: only if nobody changed it since."""
    return Call("PATCH", at("/api/jobs/{}", _job(job)), one(EditedJob), body=changes, headers=if_match(version))


def set_secrets(job: JobRef, **secrets: Unpack[Secrets]) -> Call[Job]:
    """Change the headers, cookies and credentials that are sent to the origins of a job's seeds, also by crawls under way."""
    return Call("PUT", at("/api/jobs/{}/secrets", _job(job)), one(Job), body=secrets)


def pause(job: JobRef) -> Call[Job]:
    """Nothing of a job is fetched any more, a second or two from now."""
    return Call("POST", at("/api/jobs/{}/pause", _job(job)), one(Job))


def resume(job: JobRef) -> Call[Job]:
    """A paused job goes on where it was."""
    return Call("POST", at("/api/jobs/{}/resume", _job(job)), one(Job))


def cancel(job: JobRef) -> Call[Job]:
    """A job ends where it is. What it found stays."""
    return Call("POST", at("/api/jobs/{}/cancel", _job(job)), one(Job))


def delete_job(job: JobRef) -> Call[None]:
    """Delete a job with its URLs and pages."""
    return Call("DELETE", at("/api/jobs/{}", _job(job)), nothing)


def schedule(job: JobRef, when: str | None) -> Call[Job]:
    """Crawl a job again and again: an interval, or five fields of cron. None: no longer."""
    path = at("/api/jobs/{}/schedule", _job(job))
    return Call("DELETE", path, one(Job)) if when is None else Call("PUT", path, one(Job), body={"schedule": when})


def watch(job: JobRef) -> Stream[News]:
    """What happens to a job, and its figures whenever they change, until it is completed, cancelled, failed, deleted or at a limit.

    The last of its figures are the end; what happened in the same moment may not be heard any more.
    """

    def over(news: News) -> bool:
        return isinstance(news, JobProgress) and news.is_over

    return Stream(at("/api/jobs/{}/events", _job(job)), _news, is_last=over, may_vanish=True)


def events(*, kinds: Sequence[str] = (), domain: str | None = None) -> Stream[Event]:
    """What happens from now on, to jobs, domains, tasks, workers and alerts (`kinds`); it does not end."""
    return Stream("/api/events", _event, {"kind": list(kinds), "domain": domain})


def watch_stats() -> Stream[Stats]:
    """How things stand, whenever that changes; it does not end."""
    return Stream("/api/stats/events", lambda name, _, data: read(Stats, data) if name == "stats" else None)


# The frontier and pages


def frontier_stats(*, job: JobRef | None = None) -> Call[FrontierStats]:
    """The frontier in figures."""
    return Call("GET", "/api/frontier/stats", one(FrontierStats), {"job": _perhaps(job)})


def frontier_urls(
    *,
    domain: str | None = None,
    job: JobRef | None = None,
    state: str | None = None,
    kind: str | None = None,
    priority: int | None = None,
    due: bool | None = None,
    order: str = "key",
) -> Listing[FrontierUrl]:
    """URLs of the frontier, whatever their state. The order `taken` is that of a worker, and needs a domain and a job."""
    given = {"domain": domain, "job": _perhaps(job), "state": state, "kind": kind, "priority": priority}
    return Listing("/api/frontier/urls", FrontierUrl, {**given, "due": due, "order": order})


def add_urls(urls: Sequence[str], *, job: JobRef | None = None, priority: str = "medium") -> Call[Sown]:
    """Add URLs to a job, with a priority of `high`, `medium` or `low`; those that it knows stay as they are."""
    body = {"urls": list(urls), "job": _perhaps(job), "priority": priority}
    return Call("POST", "/api/frontier/add", one(Sown), body=body)


def seed(urls: Sequence[str], *, job: JobRef | None = None) -> Call[Sown]:
    """Add seeds, from which a crawl begins."""
    return Call("POST", "/api/frontier/seed", one(Sown), body={"urls": list(urls), "job": _perhaps(job)})


def pages(
    *,
    domain: str | None = None,
    job: JobRef | None = None,
    status: int | None = None,
    status_class: int | None = None,
    outcome: str | None = None,
    content_type: str | None = None,
    content_hash: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    order: str = "newest",
) -> Listing[Page]:
    """What was answered for URLs, the last time that each was asked for. The order is `newest`, `oldest` or `key`."""
    answer = {"status": status, "status_class": status_class, "outcome": outcome}
    content = {"content_type": content_type, "content_hash": content_hash, "since": since, "until": until}
    given = {"domain": domain, "job": _perhaps(job), **answer, **content, "order": order}
    return Listing("/api/pages", Page, given)


def page(url: str, *, job: JobRef | None = None) -> Call[list[PageFacts]]:
    """Everything that each job knows of a URL, the newest answer first."""
    return Call("GET", "/api/pages/page", some(PageFacts), {"url": url, "job": _perhaps(job)})


def items(
    *, url: str | None = None, domain: str | None = None, job: JobRef | None = None, parser: str | None = None
) -> Listing[Item]:
    """What parsers found on the pages of crawls."""
    return Listing("/api/items", Item, {"url": url, "domain": domain, "job": _perhaps(job), "parser": parser})


def explain(subject: str) -> Call[Explanation]:
    """Why a URL (with its scheme, or a path) or a domain is where it is."""
    return Call("GET", "/api/explain", one(Explanation), {"subject": subject})


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
) -> Listing[Domain]:
    """Domains; those whose names begin with `name`. The order is `name`, `crawled`, `priority`, `newest` or `oldest`."""
    held = {"claimed": claimed, "worker": worker}
    given = {"status": status, "active": active, **held, "name": name, "parent": parent, "order": order}
    return Listing("/api/domains", Domain, given)


def domain(domain: str) -> Call[DomainFacts]:
    """Everything about a domain."""
    return Call("GET", at("/api/domains/{}", domain), one(DomainFacts))


def transitions(domain: str) -> Listing[Transition]:
    """How the status of a domain changed, the newest first."""
    return Listing(at("/api/domains/{}/transitions", domain), Transition, {})


def tenures(domain: str) -> Listing[Tenure]:
    """Who held a domain, the newest first."""
    return Listing(at("/api/domains/{}/tenures", domain), Tenure, {})


def configure_domain(domain: str, *, version: int | None = None, **changes: Unpack[DomainChanges]) -> Call[DomainFacts]:
    """Change how a domain is crawled. With the `version` that you have seen: only if no other edit came since."""
    path = at("/api/admin/domains/{}", domain)
    return Call("PATCH", path, one(DomainFacts), body=changes, headers=if_match(version))


def reset_domain(domain: str, *, reason: str | None = None) -> Call[DomainReset]:
    """Start a domain over, from any status; a worker that holds it is fenced off."""
    body = None if reason is None else {"reason": reason}
    return Call("POST", at("/api/admin/domains/{}/reset", domain), one(DomainReset), body=body)


def unblock_domain(domain: str, *, reason: str | None = None) -> Call[DomainReset]:
    """Let a blocked or unreachable domain be tried again; only URLs that wait, were refused or could not be reached are crawled."""
    body = None if reason is None else {"reason": reason}
    return Call("POST", at("/api/admin/domains/{}/unblock", domain), one(DomainReset), body=body)


# Operating


def claims(*, worker: str | None = None, expired: bool | None = None) -> Listing[Claim]:
    """Domains that are held, by holder."""
    return Listing("/api/claims", Claim, {"worker": worker, "expired": expired})


def claim_summary() -> Call[ClaimSummary]:
    """Who holds how many domains, what has expired, what waits."""
    return Call("GET", "/api/claims/summary", one(ClaimSummary))


def release_claims(*, force: bool = False, worker: str | None = None, all_active: bool = False) -> Call[int]:
    """Free claims that have expired, or with `force` those of a worker or of all; how many."""
    body = {"force": force, "worker": worker, "all_active": all_active}
    return Call("POST", "/api/admin/claims/release", lambda answer: int(document(answer)["claims"]), body=body)


def runs(*, status: str | None = None, job: JobRef | None = None, worker: str | None = None) -> Listing[Run]:
    """Worker processes, the newest first."""
    return Listing("/api/runs", Run, {"status": status, "job": _perhaps(job), "worker": worker})


def run(run: int) -> Call[Run]:
    """One of them."""
    return Call("GET", at("/api/runs/{}", run), one(Run))


def workers(*, alive: bool | None = None) -> Listing[Worker]:
    """Names that workers bear or bore."""
    return Listing("/api/workers", Worker, {"alive": alive})


def verify(*, archive: bool = True) -> Call[Operation]:
    """Have the store verified, in the background; `wait` for it."""
    return Call("POST", "/api/admin/verify", one(Operation), body={"archive": archive})


def operations(*, state: str | None = None) -> Listing[Operation]:
    """Long work that was asked for, the newest first."""
    return Listing("/api/operations", Operation, {"state": state})


def operation(operation: int | Operation) -> Call[Operation]:
    """Where long work is, and what came of it."""
    number = operation.id if isinstance(operation, Operation) else operation
    return Call("GET", at("/api/operations/{}", number), one(Operation))


# Everything else


def export(
    kind: str,
    format: str,  # noqa: A002 — as the API has it
    *,
    job: JobRef | None = None,
    domain: str | None = None,
    text: bool = False,
) -> Call[httpx.Response]:
    """All `pages`, `items`, `products`, `urls` or the `log`, as `jsonl`, `csv` or `parquet`."""
    query = {"format": format, "job": _perhaps(job), "domain": domain, "text": text}
    return Call(
        "GET", at("/api/exports/{}", kind), lambda answer: answer, query, headers={"Accept": "*/*"}, stream=True
    )


def request(
    method: str,
    path: str,
    *,
    query: Mapping[str, object] | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> Call[Any]:
    """Anything else of the API, by its path: the JSON of the answer, or None where it has no body."""
    if not path.startswith("/") or path.startswith("//") or any(mark in path for mark in "?#\\"):
        raise UsageError(f"{path!r} is no path of the API, such as /api/stats; what is asked for goes into `query`.")

    def answer(response: httpx.Response) -> Any:
        return document(response) if response.content else None

    return Call(method.upper(), path, answer, query or {}, body, headers or {})


_FOLDERS: Final = frozenset({".", ".."})
"""What clients and servers take out of paths."""


def _job(job: JobRef) -> str:
    """How a path names a job: by its id if its name cannot stand in one."""
    if isinstance(job, Job):
        return str(job.id) if "/" in job.name or job.name in _FOLDERS else job.name
    return str(job)


def _perhaps(job: JobRef | None) -> str | None:
    return None if job is None else _job(job)


def _event(name: str, number: str | None, data: Any) -> Event:
    if not isinstance(data, dict) or "data" not in data:
        return Event(name, None, data if isinstance(data, dict) else {"data": data})
    return read(Event, {**data, "kind": name, "id": number})


def _news(name: str, number: str | None, data: Any) -> News:
    return read(JobProgress, data) if name == "progress" else _event(name, number, data)
