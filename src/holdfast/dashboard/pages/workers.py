"""Workers, their runs and claims: lists, one worker live, release of claims, silent runs."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Path, Query, Request, Response

from holdfast.api.app_services import AppServices
from holdfast.api.forms import read_form
from holdfast.api.pagination import CursorText, decode_list_cursor
from holdfast.api.request_types import Filter
from holdfast.control.explain_text import visit_wait
from holdfast.dashboard import text
from holdfast.dashboard.lists import filled, pager
from holdfast.dashboard.live import Parameters, live_view
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.errors import UsageError
from holdfast.model.activity import Activity
from holdfast.workers.records import ClaimFilter, RunFilter, Worker, WorkerFilter

router = page_router()

_ROWS: Final = 50
_SHOWN: Final = 10
"""Rows of each list on the page of a worker."""
_SILENT_MINUTES: Final = 60
_MAX_SILENT_MINUTES: Final = 525_600
RUN_STATUSES: Final = ("running", "completed", "failed")

Name = Annotated[str, Path(max_length=255)]


# The list


def read_list(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return what the regions of the list show."""
    after = decode_list_cursor("workers", "name", parameters.get("cursor") or None)
    alive = {"true": True, "false": False}.get(parameters.get("alive", ""))
    found = services.workers.page(WorkerFilter(alive), after=after, limit=_ROWS)
    return {
        "workers": found.rows,
        "next_key": found.next,
        "activities": {one.name: _activity(one) for one in found.rows},
        "stats": services.live_stats.snapshot(),
        "expired": sum(one.expired for one in found.rows),
        "is_filtered": alive is not None or bool(parameters.get("cursor")),
    }


def _activity(worker: Worker) -> Activity:
    """Return the activity of a worker; seconds in it count from now."""
    age = 0.0 if worker.activity_at is None else (datetime.now(UTC) - worker.activity_at).total_seconds()
    return Activity.from_json(worker.activity, max(0.0, age))


LIST: Final = live_view(
    "workers", read_list, {"workers-figures": "workers/_figures.html", "workers-list": "workers/_list.html"}
)


@router.get("/workers")
def workers(context: Context, alive: Annotated[str, Query(max_length=5)] = "", cursor: CursorText = None) -> Response:
    """All workers."""
    parameters = {name: value for name, value in (("alive", alive), ("cursor", cursor or "")) if value}
    shown = read_list(context.services, parameters)
    return context.page(
        "workers/list.html",
        **shown,
        next_page=context.next_page(shown["next_key"]),
        first_page=context.with_query(cursor=None) if cursor else "",
        live=LIST.address(parameters),
        silent_minutes=_SILENT_MINUTES,
        silent_runs=len(context.services.workers.silent_runs(timedelta(minutes=_SILENT_MINUTES))),
    )


@router.post("/workers/release-expired")
def release_expired(context: Context) -> Response:
    """Release claims that have expired or whose workers are dead."""
    released = context.services.workers.release(force=False, worker=None, actor=context.caller.name)
    done = f"Released {text.plural(released, 'claim')}." if released else "No claim has expired; nothing was released."
    return context.redirect("/workers", done)


@router.post("/workers/close-silent-runs")
def close_silent_runs(context: Context, request: Request) -> Response:
    """Mark runs as failed that have sent no heartbeat for a while."""
    minutes = read_form(request).integer("minutes", "Minutes")
    if minutes is None or not 1 <= minutes <= _MAX_SILENT_MINUTES:
        raise UsageError(f"“Minutes” must be a whole number from 1 to {_MAX_SILENT_MINUTES:,}.")
    closed = context.services.workers.close_silent_runs(timedelta(minutes=minutes), actor=context.caller.name)
    silent = f"without a heartbeat for {text.plural(minutes, 'minute')}"
    done = f"Marked {text.plural(len(closed), 'run')} {silent} as failed." if closed else f"No run is {silent}."
    return context.redirect("/workers", done)


def read_runs(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return what the region of the list of runs shows. Raises UsageError, NotFound."""
    status, job, worker, cursor = (parameters.get(name) or None for name in ("status", "job", "worker", "cursor"))
    after = decode_list_cursor("runs", "newest", cursor)
    found = services.workers.runs(RunFilter(status, job, worker), after=after, limit=_ROWS)
    is_filtered = bool(status or job or worker)
    return {"runs": found.rows, "is_filtered": is_filtered, **pager("/workers/runs", parameters, found.next)}


def read_claims(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return what the region of the list of claims shows. Raises UsageError, NotFound."""
    worker, expired, cursor = (parameters.get(name) or None for name in ("worker", "expired", "cursor"))
    where = ClaimFilter(worker, {"true": True, "false": False}.get(expired or ""))
    found = services.workers.claims(where, after=decode_list_cursor("claims", "worker", cursor), limit=_ROWS)
    is_filtered = bool(worker or expired)
    return {"claims": found.rows, "is_filtered": is_filtered, **pager("/workers/claims", parameters, found.next)}


RUNS: Final = live_view("runs", read_runs, {"runs-list": "workers/_runs.html"})
CLAIMS: Final = live_view("claims", read_claims, {"claims-list": "workers/_claims.html"})


@router.get("/workers/runs")
def runs(
    context: Context,
    status: Annotated[str, Query(max_length=20)] = "",
    job: Filter = None,
    worker: Filter = None,
    cursor: CursorText = None,
) -> Response:
    """All runs, the newest first."""
    parameters = filled(status=status, job=job, worker=worker, cursor=cursor)
    return context.page(
        "workers/runs.html",
        **read_runs(context.services, parameters),
        statuses=RUN_STATUSES,
        live="" if cursor else RUNS.address(parameters),
    )


@router.get("/workers/claims")
def claims(
    context: Context,
    worker: Filter = None,
    expired: Annotated[str, Query(max_length=5)] = "",
    cursor: CursorText = None,
) -> Response:
    """All claims, by worker."""
    parameters = filled(worker=worker, expired=expired, cursor=cursor)
    return context.page(
        "workers/claims.html",
        **read_claims(context.services, parameters),
        live="" if cursor else CLAIMS.address(parameters),
    )


@router.get("/workers/claims/release")
def confirm_release_of_domain(context: Context, domain: Annotated[str, Query(max_length=255)]) -> Response:
    """What the release of the claim on one domain would do."""
    return context.page("workers/release_domain.html", facts=context.services.domains.info(domain).facts)


@router.post("/workers/claims/release")
def release_domain(context: Context, request: Request) -> Response:
    """Take a domain away from the worker that holds it."""
    name = context.services.domains.canonical(read_form(request).required("domain", "Domain"))
    released = context.services.workers.release(force=True, worker=None, domain=name, actor=context.caller.name)
    done = f"{name} was taken away from its worker." if released else f"No worker holds {name}; nothing was released."
    return context.redirect(f"/domains/{quote(name, safe='')}", done)


# One worker


def read_worker(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return what the regions of the page of a worker show. Raises NotFound."""
    worker = services.workers.show(parameters.get("name", ""))
    claims = services.workers.claims(ClaimFilter(worker.name), limit=_SHOWN)
    return {
        "worker": worker,
        "activity": _activity(worker),
        "visit_wait": visit_wait,
        "claims": claims.rows,
        "more_claims": claims.next is not None,
        "runs": services.workers.runs(RunFilter(worker=worker.name), limit=_SHOWN).rows,
    }


WORKER: Final = live_view("worker", read_worker, {"worker-now": "workers/_worker.html"})


@router.get("/workers/{name}")
def worker(name: Name, context: Context) -> Response:
    """One worker."""
    return context.page(
        "workers/worker.html", **read_worker(context.services, {"name": name}), live=WORKER.address({"name": name})
    )


@router.get("/workers/{name}/release")
def confirm_release(name: Name, context: Context) -> Response:
    """What the release of a worker's claims would do."""
    worker = context.services.workers.show(name)
    return context.page("workers/release.html", worker=worker)


@router.post("/workers/{name}/release")
def release(name: Name, context: Context) -> Response:
    """Take all claims away from a worker."""
    released = context.services.workers.release(force=True, worker=name, actor=context.caller.name)
    held = text.plural(released, "domain")
    done = f"Took {held} away from {name}." if released else f"{name} holds no domain; nothing was released."
    return context.redirect(f"/workers/{quote(name, safe='')}", done)
