"""Figures: statistics, time series, metrics, live events, alerts."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from holdfast.control import measures
from holdfast.control import outlook as control_outlook
from holdfast.control.alerts import AlertDesk
from holdfast.control.statistics import step_of
from holdfast.model.task import TaskStatus
from holdfast.store.events import Kind
from holdfast.web import live, metrics
from holdfast.web.guard import GuardedRoute
from holdfast.web.hub import Wanted
from holdfast.web.office import TheOffice
from holdfast.web.paging import USUAL, CursorText, Limit, Page, page_of, unpack_id
from holdfast.web.problems import documented
from holdfast.web.shapes import Filter, Since, Until, View
from holdfast.web.views import Stats

router = APIRouter(route_class=GuardedRoute, tags=["figures"])

_HOUR = timedelta(hours=1)


class PointView(View):
    """What was crawled in a stretch of time."""

    at: datetime
    """Its beginning."""
    seconds: float
    """How long it is; the last one is not over yet."""
    pages: int
    requests: int
    errors: int
    bytes: int
    robots_denied: int
    pages_per_second: float
    success_rate: float | None
    """Of requests, from 0 to 1; null: there were none."""
    frontier_size: int | None
    """URLs that waited at its end; null: nobody looked."""
    active_workers: int | None
    statuses: dict[str, int]
    """Answers of servers by their status."""


class TimeSeries(View):
    """What was crawled, step by step."""

    step: timedelta
    points: list[PointView]


class DueView(View):
    """Something that time brings about."""

    what: str
    at: datetime
    """When it happens the first time."""
    domains: int
    """To which it happens, sooner or later."""


class OutlookView(View):
    """What comes next, and what is left over."""

    at: datetime
    due: list[DueView]
    """What comes first, first."""
    stay_blocked: int
    """Domains that only a person can start over."""
    wakes: int
    """News for domains that no sweep has folded yet."""
    database_bytes: int


class TaskCount(View):
    """How many tasks are in a status, and how it went lately."""

    status: TaskStatus
    tasks: int
    lately: int
    """Those that came to it in the last day; of the statuses that end a task only."""
    mean_seconds: float | None
    """How long those took, on average."""


class AlertView(View):
    """Something that is or was wrong."""

    id: int
    kind: str
    subject: str
    """Whom it is about: a worker, a domain; empty: everything."""
    state: str
    """`firing` or `resolved`."""
    value: float
    since: datetime
    last_seen_at: datetime
    resolved_at: datetime | None
    details: dict[str, Any]


@router.get("/api/stats", summary="How things stand")
def stats(office: TheOffice) -> Stats:
    """Public figures of the whole store, a second old at the most."""
    return Stats.of(office.stats.snapshot())


@router.get("/api/stats/outlook", summary="What comes next")
def outlook(office: TheOffice) -> OutlookView:
    """When domains are crawled again, and what only a person or the next sweep sets right."""
    return OutlookView.of(control_outlook.outlook(office.database))


@router.get("/api/stats/timeseries", summary="What was crawled, over time")
def timeseries(
    office: TheOffice,
    since: Since = None,
    until: Until = None,
    step: Annotated[
        str,
        Query(max_length=20, description="`minute`, `hour`, `day`, or whole minutes such as `5m`.", examples=["5m"]),
    ] = "minute",
) -> TimeSeries:
    """The last hour, unless you say since when. Gaps are zeros; 2000 points at the most. Minutes are kept for a week, days for ever."""
    width = step_of(step)
    begin = since if since is not None else office.stats.snapshot().at - max(_HOUR, 24 * width)
    points = office.stats.timeseries(begin, until, width)
    return TimeSeries(step=width, points=[PointView.of(point) for point in points])


@router.get("/api/stats/tasks", summary="Tasks by status")
def tasks(office: TheOffice) -> list[TaskCount]:
    """Every status is named."""
    found = office.tasks.stats()
    return [TaskCount.of(found[status], status=status) for status in TaskStatus]


@router.get(
    "/api/stats/events",
    summary="How things stand, live",
    response_class=StreamingResponse,
    responses=live.RESPONSES,
)
def stats_events(request: Request, office: TheOffice) -> StreamingResponse:
    """Server-Sent Events: `stats` with the figures of /api/stats whenever they change, at most once a second."""
    nothing = Wanted(kinds=frozenset())
    return live.answer(
        request, office, nothing, live.place(office.database), live.Shown(office.stats_figures, 0, "stats")
    )


@router.get(
    "/api/events",
    summary="What happens, live",
    response_class=StreamingResponse,
    responses={**live.RESPONSES, **documented(404)},
)
def events(
    request: Request,
    office: TheOffice,
    kind: Annotated[list[Kind] | None, Query(description="Only events of these kinds.", max_length=len(Kind))] = None,
    domain: Annotated[Filter, Query(description="Only what happens to this domain.")] = None,
    last_event_id: live.LastEventId = None,
) -> StreamingResponse:
    """Server-Sent Events, each named after what it is about: `job`, `domain`, `task`, `worker`, `alert`. They are kept for a day: who
    was away goes on with `Last-Event-ID`, and gets `reset` first after more than that."""
    wanted = Wanted(
        kinds=frozenset(kind) if kind else None,
        domain_id=office.domains.info(domain)["id"] if domain is not None else None,
    )
    return live.answer(request, office, wanted, live.place(office.database, last_event_id))


@router.get("/api/alerts", summary="What is or was wrong")
def alerts(
    office: TheOffice,
    request: Request,
    response: Response,
    active: Annotated[bool | None, Query(description="Only those that fire now, or that do not.")] = None,
    cursor: CursorText = None,
    limit: Limit = USUAL,
) -> Page[AlertView]:
    """The newest first."""
    found = AlertDesk(office.database).listing(active=active, before=unpack_id(cursor), limit=limit)
    return page_of(request, response, [AlertView.of(row) for row in found], limit)


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={200: {"description": "Text of the exposition format.", "content": {metrics.MEDIA_TYPE: {}}}},
)
def prometheus(office: TheOffice) -> Response:
    """Let Prometheus ask with an API key of the scope `metrics`."""
    return Response(metrics.written(measures.collect(office.database)), media_type=metrics.MEDIA_TYPE)
