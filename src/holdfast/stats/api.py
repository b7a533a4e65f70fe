"""Figures: statistics, time series, metrics, live events."""

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from holdfast.api import metrics, sse
from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.event_hub import EventFilter
from holdfast.api.request_types import Filter, Since, Until, View
from holdfast.api.responses import Stats
from holdfast.db.events import Kind
from holdfast.stats import metrics as measures
from holdfast.stats import outlook as control_outlook
from holdfast.stats.service import step_of
from holdfast.tasks.records import TaskCount

router = APIRouter(route_class=AuthorizedRoute, tags=["figures"])

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


@router.get("/api/stats", summary="How things stand")
def stats(services: Services) -> Stats:
    """Public figures of the whole store, a second old at the most."""
    return Stats.of(services.stats.snapshot())


@router.get("/api/stats/outlook", summary="What comes next")
def outlook(services: Services) -> OutlookView:
    """When domains are crawled again, and what only a person or the next sweep sets right."""
    return OutlookView.of(control_outlook.outlook(services.database))


@router.get("/api/stats/timeseries", summary="What was crawled, over time")
def timeseries(
    services: Services,
    since: Since = None,
    until: Until = None,
    step: Annotated[
        str,
        Query(max_length=20, description="`minute`, `hour`, `day`, or whole minutes such as `5m`.", examples=["5m"]),
    ] = "minute",
) -> TimeSeries:
    """The last hour, unless you say since when. Gaps are zeros; 2000 points at the most. Minutes are kept for a week, days for ever."""
    width = step_of(step)
    begin = since if since is not None else services.stats.snapshot().at - max(_HOUR, 24 * width)
    points = services.stats.timeseries(begin, until, width)
    return TimeSeries(step=width, points=[PointView.of(point) for point in points])


@router.get("/api/stats/tasks", summary="Tasks by status")
def tasks(services: Services) -> list[TaskCount]:
    """Every status is named."""
    return services.tasks.stats()


@router.get(
    "/api/stats/events",
    summary="How things stand, live",
    response_class=StreamingResponse,
    responses=sse.RESPONSES,
)
def stats_events(request: Request, services: Services) -> StreamingResponse:
    """Server-Sent Events: `stats` with the figures of /api/stats whenever they change, at most once a second."""
    nothing = EventFilter(kinds=frozenset())
    return sse.stream_response(
        request,
        services,
        nothing,
        sse.start_position(services.database),
        sse.SnapshotSource(services.stats_snapshots, 0, "stats"),
    )


@router.get(
    "/api/events",
    summary="What happens, live",
    response_class=StreamingResponse,
    responses={**sse.RESPONSES, **documented(404)},
)
def events(
    request: Request,
    services: Services,
    kind: Annotated[list[Kind] | None, Query(description="Only events of these kinds.", max_length=len(Kind))] = None,
    domain: Annotated[Filter, Query(description="Only what happens to this domain.")] = None,
    last_event_id: sse.LastEventId = None,
) -> StreamingResponse:
    """Server-Sent Events, each named after what it is about: `job`, `domain`, `task`, `worker`, `alert`. They are kept for a day: who
    was away goes on with `Last-Event-ID`, and gets `reset` first after more than that."""
    wanted = EventFilter(
        kinds=frozenset(kind) if kind else None,
        domain_id=services.domains.info(domain).facts.id if domain is not None else None,
    )
    return sse.stream_response(request, services, wanted, sse.start_position(services.database, last_event_id))


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    response_class=Response,
    responses={200: {"description": "Text of the exposition format.", "content": {metrics.MEDIA_TYPE: {}}}},
)
def prometheus(services: Services) -> Response:
    """Let Prometheus ask with an API key of the scope `metrics`."""
    return Response(metrics.render(measures.collect(services.database)), media_type=metrics.MEDIA_TYPE)
