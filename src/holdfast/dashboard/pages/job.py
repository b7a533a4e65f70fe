"""One job: how it stands, live; its domains; pause, resume, cancel, crawl again, delete."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import BackgroundTasks, Request, Response

from holdfast.api.app_services import AppServices
from holdfast.api.forms import read_form
from holdfast.api.pagination import CursorText
from holdfast.api.request_types import Filter, JobName
from holdfast.api.responses import log_failures
from holdfast.dashboard.job_fields import FLAGS, LABELS, LINES, TYPES, job_path
from holdfast.dashboard.lists import filled, pager
from holdfast.dashboard.live import SLOW_INTERVAL, Parameters, id_of, live_view
from holdfast.dashboard.rendering import Context, PageContext
from holdfast.dashboard.route import page_router
from holdfast.dashboard.text import plural
from holdfast.errors import UsageError
from holdfast.jobs.live import DOMAINS_SHOWN, JobBreakdown, live_now
from holdfast.jobs.queries.progress import JobNow
from holdfast.jobs.records import DOMAIN_STATES, Job
from holdfast.model.auth import LOCAL_ADMIN
from holdfast.model.cursor import decode_cursor
from holdfast.model.job import JobSpec

router = page_router()

_ROWS: Final = 50
_MANY_DOMAINS: Final = 5_000
"""Of a job with more domains, only the sums are read each time: statuses, waits and depths are those of some seconds ago."""
_FETCHING: Final = 5
"""Requests in flight that are listed."""


def read(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return what the regions of the page show: what moves in one statement, the rest as it was some seconds ago, but not before the last
    change of the job's state. Raises NotFound."""
    found = services.jobs(LOCAL_ADMIN).now(id_of(parameters))
    counted = services.job_breakdowns.latest(found.job.id, wait=0, fresh_for=SLOW_INTERVAL)
    if counted is None or (counted.figures.state, counted.figures.crawl) != (found.job.state, found.job.crawl):
        return _values_now(services, found)
    return _values(
        services, found, counted, summary_fresh_for=2 * SLOW_INTERVAL
    )  # it reads all URLs of the job, and says when


def _values_now(services: AppServices, found: JobNow) -> Mapping[str, Any]:
    """Return what the page shows, all of it as of now; of a job with many domains the rest is what was counted last."""
    breakdowns, job_id = services.job_breakdowns, found.job.id
    counted = breakdowns.latest(job_id, wait=0) if _has_many(found.job) else breakdowns.renewed(job_id)
    return _values(services, found, counted, summary_fresh_for=0)


def _values(
    services: AppServices, found: JobNow, counted: JobBreakdown | None, *, summary_fresh_for: float
) -> Mapping[str, Any]:
    job, many = found.job, _has_many(found.job)
    live, pace = live_now(found, counted)
    waits = [wait.text(live.figures.now) for wait in live.waits]
    return {
        "job": job,
        "address": job_path(job),
        "figures": live.figures,
        "pace": pace,
        "requests": live.requests,
        "fetching": live.fetching[:_FETCHING],
        "waits": list(dict.fromkeys(waits)),
        "causes": live.causes,
        "summary": services.job_summaries.latest(job.id, wait=0 if many else 0.2, fresh_for=summary_fresh_for),
        "depths": counted.depths if counted else None,
        "many": many,
        "counted_at": counted.figures.now if counted else None,
        "domains": found.domains,
        "more_domains": job.domains > DOMAINS_SHOWN,
    }


def _has_many(job: Job) -> bool:
    return job.domains > _MANY_DOMAINS


def read_domains(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return what the region of the list of domains shows. Raises NotFound, UsageError."""
    service = services.jobs(LOCAL_ADMIN)
    job = service.show(id_of(parameters))
    shown = {name: value for name, value in parameters.items() if name != "id"}
    after = decode_cursor(shown.get("cursor"), str, int)
    found = service.domains(job.id, shown.get("state"), after=after, limit=_ROWS)
    address = job_path(job)
    return {"job": job, "address": address, "domains": found.rows, **pager(f"{address}/domains", shown, found.next)}


DOMAINS: Final = live_view("job-domains", read_domains, {"job-domains": "jobs/_domains.html"})
VIEW: Final = live_view(
    "job",
    read,
    {
        "job-head": "jobs/_head.html",
        "job-figures": "jobs/_figures.html",
        "job-now": "jobs/_now.html",
    },
)


@router.get("/jobs/{job}")
def job_page(job: JobName, context: Context) -> Response:
    """How a job stands."""
    service = context.services.jobs(context.caller)
    found = service.now(service.id_of(job))
    values = _values_now(context.services, found)
    return context.page(
        "jobs/job.html",
        **{**values, **tab(found.job, "")},
        live=VIEW.address({"id": str(found.job.id)}),
        options=options_of(values["job"]),
    )


@router.get("/jobs/{job}/domains")
def job_domains(job: JobName, context: Context, state: Filter = None, cursor: CursorText = None) -> Response:
    """The domains of a job."""
    found = job_of(context, job)
    parameters = filled(id=str(found.id), state=state, cursor=cursor)
    return context.page(
        "jobs/domains.html",
        **{**read_domains(context.services, parameters), **tab(found, "domains")},
        states=DOMAIN_STATES,
        state=state or "",
        live="" if cursor else DOMAINS.address(parameters),
    )


@router.post("/jobs/{job}/pause")
def pause(job: JobName, context: Context) -> Response:
    """Pause it."""
    change = context.services.jobs(context.caller).pause(job)
    return _back(context, job, f"Job {change.name} is paused: within two seconds nothing of it is fetched any more.")


@router.post("/jobs/{job}/resume")
def resume(job: JobName, context: Context, after: BackgroundTasks) -> Response:
    """Resume it."""
    service = context.services.jobs(context.caller)
    change = service.begin_resume(job)
    after.add_task(log_failures(service.finish_resume), change.job_id)
    return _back(context, job, f"Job {change.name} goes on where it was.")


@router.get("/jobs/{job}/cancel")
def cancel_page(job: JobName, context: Context) -> Response:
    """The page that asks whether to cancel it."""
    found = job_of(context, job)
    return for_admins(context, found) or context.page("jobs/cancel.html", **tab(found, ""))


@router.post("/jobs/{job}/cancel")
def cancel(job: JobName, context: Context) -> Response:
    """Cancel it."""
    service = context.services.jobs(context.caller)
    change = service.cancel(job)
    pages = service.show(change.job_id).pages
    return _back(
        context, job, f"Job {change.name} is cancelled. Its {plural(pages, 'page')} stay; “Crawl again” starts it anew."
    )


@router.get("/jobs/{job}/again")
def again_page(job: JobName, context: Context) -> Response:
    """The page that asks whether to crawl it again."""
    found = job_of(context, job)
    return for_admins(context, found) or context.page("jobs/again.html", **tab(found, ""))


@router.post("/jobs/{job}/again")
def again(job: JobName, context: Context, after: BackgroundTasks) -> Response:
    """Crawl all of it again."""
    service = context.services.jobs(context.caller)
    found = service.begin_again(job)
    after.add_task(log_failures(service.finish_again), context.services.crawls, found.id)
    return _back(
        context, job, f"Job {found.name} is crawled again: {plural(found.pages, 'page')} of before are fetched anew."
    )


@router.get("/jobs/{job}/delete")
def delete_page(job: JobName, context: Context) -> Response:
    """The page that asks whether to delete it."""
    found = job_of(context, job)
    return for_admins(context, found) or context.page("jobs/delete.html", **tab(found, ""))


@router.post("/jobs/{job}/delete")
def delete(job: JobName, context: Context, request: Request, after: BackgroundTasks) -> Response:
    """Delete it, if its name was typed."""
    service = context.services.jobs(context.caller)
    found = service.show(job)
    if read_form(request).text("name") != found.name:
        raise UsageError(f"Type the name of the job, {found.name}, to delete it.")
    job_id, name = service.begin_delete(found.id)
    after.add_task(log_failures(service.finish_delete), job_id)
    return context.redirect(
        "/jobs",
        f"Job {name} is deleted with {plural(found.discovered, 'URL')} and its pages; the archive keeps the responses.",
    )


def job_of(context: PageContext, job: str) -> Job:
    """Return the job of a page, by its name or id. Raises NotFound."""
    return context.services.jobs(context.caller).show(job)


def for_admins(context: PageContext, job: Job) -> Response | None:
    """Lead a user who may only read back to the page of the job, with the reason; None: the caller may go on."""
    return None if context.is_admin else context.redirect(job_path(job), problem="Only an admin can change jobs.")


def tab(job: Job, current: str) -> dict[str, Any]:
    """Return what all pages of a job need: the job, its address, and which of its tabs this is."""
    return {"job": job, "address": job_path(job), "tab": current}


def options_of(job: Job) -> list[tuple[str, str]]:
    """Return the options in force, as labels and values; those that the settings or the domain decide say so."""
    spec = JobSpec.from_json(job.spec)
    unset = {
        **dict.fromkeys(("max_pages", "max_pages_per_domain", "rounds"), "no limit"),
        "max_depth": "as the settings say (crawl.max_depth)",
        **dict.fromkeys(("delay", "concurrency", "user_agent", "parser"), "as the domain says"),
        "sitemaps": "as the settings say (crawl.sitemaps)",
    }
    shown = []
    for name, label in LABELS.items():
        value = getattr(spec, name)
        if name in FLAGS:
            text = "yes" if value else "no"
        elif name in LINES or name == TYPES:
            text = ", ".join(value) or "none"
        elif value is None:
            text = unset[name]
        else:
            text = f"{value:,}" if isinstance(value, int) else f"{value:g} s" if name == "delay" else str(value)
        shown.append((label, text))
    return shown


def _back(context: PageContext, job: str, done: str) -> Response:
    return context.redirect(job_path(job_of(context, job)), done)
