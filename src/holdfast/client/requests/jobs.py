"""Requests about jobs: lists, edits, plans, comparisons, and the live stream of one."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Unpack

import httpx

from holdfast.client.decoding import read
from holdfast.client.job_ref import JobRef, job_segment
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
from holdfast.client.sse import Event, read_event
from holdfast.errors import UsageError
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

JobUpdate = Event | JobProgress
"""What `watch` yields."""


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
    return RequestSpec("GET", format_path("/api/jobs/{}", job_segment(job)), decode_one(Job))


def job_summary(job: JobRef) -> RequestSpec[CrawlSummary]:
    """How a job stands: URLs that were not crawled by reason, waits, and the next step. The server reads all URLs of the job for it."""
    return RequestSpec("GET", format_path("/api/jobs/{}/summary", job_segment(job)), decode_one(CrawlSummary))


def job_pace(job: JobRef) -> RequestSpec[JobPace]:
    """How fast a job is crawled at this moment, and when it would be done at that rate."""
    return RequestSpec("GET", format_path("/api/jobs/{}/pace", job_segment(job)), decode_one(JobPace))


def job_domains(job: JobRef, *, state: str | None = None) -> ListSpec[JobDomain]:
    """The domains of a job with its work on each; `state`: `open`, `parked`, `spent` or `done`."""
    return ListSpec(format_path("/api/jobs/{}/domains", job_segment(job)), JobDomain, {"state": state})


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
    return RequestSpec("POST", format_path("/api/jobs/{}/again", job_segment(job)), decode_one(Job))


def comparison(job: JobRef) -> RequestSpec[Comparison]:
    """The last crawl of a job compared with the one before: pages that are new, changed, gone, failed or unchanged."""
    return RequestSpec("GET", format_path("/api/jobs/{}/comparison", job_segment(job)), decode_one(Comparison))


def compared_pages(job: JobRef, kind: str) -> ListSpec[ComparedPage]:
    """The pages of one kind of that comparison: `new`, `changed`, `gone`, `failed` or `unchanged`."""
    return ListSpec(format_path("/api/jobs/{}/comparison/pages", job_segment(job)), ComparedPage, {"kind": kind})


def plan_job(urls: Sequence[str], *, name: str | None = None, **spec: Unpack[JobOptions]) -> RequestSpec[CrawlPlan]:
    """Plan a job before it is made: pages, time and assumptions. Nothing is written or fetched."""
    body = {"urls": list(urls), "name": name, "spec": spec}
    return RequestSpec("POST", "/api/jobs/plan", decode_one(CrawlPlan), body=body)


def job_plan(job: JobRef, *, again: bool = False) -> RequestSpec[CrawlPlan]:
    """Plan what an existing job has left to do; `again`: all URLs that it knows."""
    path = format_path("/api/jobs/{}/plan", job_segment(job))
    return RequestSpec("GET", path, decode_one(CrawlPlan), {"again": again})


def job_depths(job: JobRef) -> RequestSpec[JobDepths]:
    """URLs of a job by depth and state; of many, estimated from a sample."""
    return RequestSpec("GET", format_path("/api/jobs/{}/depths", job_segment(job)), decode_one(JobDepths))


def job_log(job: JobRef) -> ListSpec[JobEvent]:
    """What happened to a job, the newest entry first."""
    return ListSpec(format_path("/api/jobs/{}/log", job_segment(job)), JobEvent, {})


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
        format_path("/api/jobs/{}", job_segment(job)),
        decode_one(EditedJob),
        body=changes,
        headers=if_match(version),
    )


def preview_scope(job: JobRef, **changes: Unpack[ScopeChanges]) -> RequestSpec[ScopePreview]:
    """What an edit of the rules of a job (`scope`, `include`, `exclude`, `max_depth`) would do to its URLs; nothing is changed."""
    path = format_path("/api/jobs/{}/scope/preview", job_segment(job))
    return RequestSpec("POST", path, decode_one(ScopePreview), body=changes)


def undo_scope(job: JobRef, *, version: int | None = None) -> RequestSpec[EditedJob]:
    """Restore the rules that a job had before their last edit: URLs that it removed wait again. With `version`: only if there was no
    other change since that version."""
    path = format_path("/api/jobs/{}/scope/undo", job_segment(job))
    return RequestSpec("POST", path, decode_one(EditedJob), headers=if_match(version))


def scope_history(job: JobRef) -> RequestSpec[list[RulesVersion]]:
    """All versions of the rules of a job, the oldest first; the last one is in force."""
    path = format_path("/api/jobs/{}/scope/history", job_segment(job))
    return RequestSpec("GET", path, decode_list(RulesVersion))


def set_secrets(job: JobRef, **secrets: Unpack[Secrets]) -> RequestSpec[Job]:
    """Change the headers, cookies and credentials that are sent to the origins of a job's seeds, also by running
    crawls."""
    return RequestSpec("PUT", format_path("/api/jobs/{}/secrets", job_segment(job)), decode_one(Job), body=secrets)


def pause(job: JobRef) -> RequestSpec[Job]:
    """Pause a job: within two seconds nothing of it is fetched any more."""
    return RequestSpec("POST", format_path("/api/jobs/{}/pause", job_segment(job)), decode_one(Job))


def resume(job: JobRef) -> RequestSpec[Job]:
    """Resume a paused job where it was."""
    return RequestSpec("POST", format_path("/api/jobs/{}/resume", job_segment(job)), decode_one(Job))


def cancel(job: JobRef) -> RequestSpec[Job]:
    """Cancel a job. Its pages stay."""
    return RequestSpec("POST", format_path("/api/jobs/{}/cancel", job_segment(job)), decode_one(Job))


def delete_job(job: JobRef) -> RequestSpec[None]:
    """Delete a job with its URLs and pages."""
    return RequestSpec("DELETE", format_path("/api/jobs/{}", job_segment(job)), no_body)


def schedule(job: JobRef, when: str | None) -> RequestSpec[Job]:
    """Schedule a job: an interval, or five fields of cron. None removes the schedule."""
    path = format_path("/api/jobs/{}/schedule", job_segment(job))
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
        format_path("/api/jobs/{}/events", job_segment(job)), _job_update, is_last=is_last, may_vanish=True
    )


def _job_update(name: str, event_id: str | None, data: Any) -> JobUpdate:
    return read(JobProgress, data) if name == "progress" else read_event(name, event_id, data)
