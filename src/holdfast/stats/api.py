"""Routes of statistics: current figures, errors by cause, what is due next, time series, Prometheus metrics, live events."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

from holdfast.api import sse
from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented
from holdfast.api.event_hub import EventFilter
from holdfast.api.request_types import Filter, Since, Until
from holdfast.db.events import Kind
from holdfast.stats import metrics
from holdfast.stats.metrics import Family
from holdfast.stats.records import ErrorCause, Outlook, Stats, TimeSeries
from holdfast.stats.service import parse_step
from holdfast.tasks.records import TaskCount

router = APIRouter(route_class=AuthorizedRoute, tags=["figures"])

_HOUR = timedelta(hours=1)


@router.get("/api/stats", summary="Current figures")
def stats(services: Services) -> Stats:
    """Public figures of the whole store, at most a second old."""
    return services.stats.snapshot()


@router.get("/api/stats/outlook", summary="What is due next")
def outlook(services: Services) -> Outlook:
    """When domains are crawled again, and what waits for an operator or a sweep."""
    return services.stats.outlook()


@router.get("/api/stats/timeseries", summary="Time series")
def timeseries(
    services: Services,
    since: Since = None,
    until: Until = None,
    step: Annotated[
        str,
        Query(max_length=20, description="`minute`, `hour`, `day`, or whole minutes such as `5m`.", examples=["5m"]),
    ] = "minute",
) -> TimeSeries:
    """What was crawled: by default in the last hour. Gaps are zeros; at most 2000 points. Minutes are kept for a week, days always."""
    width = parse_step(step)
    begin = since if since is not None else services.stats.snapshot().at - max(_HOUR, 24 * width)
    return TimeSeries(step=width, points=services.stats.timeseries(begin, until, width))


@router.get("/api/stats/errors", summary="Errors by cause")
def errors(
    services: Services,
    minutes: Annotated[int, Query(ge=1, le=60, description="Of the last minutes.")] = 15,
) -> list[ErrorCause]:
    """The errors of the last minutes by outcome, the most frequent first, each with the URL of the last one."""
    return services.stats.recent_errors(timedelta(minutes=minutes))


@router.get("/api/stats/tasks", summary="Tasks by status")
def tasks(services: Services) -> list[TaskCount]:
    """Every status is named."""
    return services.tasks.stats()


@router.get(
    "/api/stats/events",
    summary="Current figures, live",
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
    summary="Events, live",
    response_class=StreamingResponse,
    responses={**sse.RESPONSES, **documented(404)},
)
def events(
    request: Request,
    services: Services,
    kind: Annotated[list[Kind] | None, Query(description="Only events of these kinds.", max_length=len(Kind))] = None,
    domain: Annotated[Filter, Query(description="Only events of this domain.")] = None,
    last_event_id: sse.LastEventId = None,
) -> StreamingResponse:
    """Server-Sent Events, each named after its subject: `job`, `domain`, `task`, `worker`, `alert`. They are kept for a day: a client
    that reconnects continues with `Last-Event-ID`, and gets `reset` first after more than a day."""
    wanted = EventFilter(
        kinds=frozenset(kind) if kind else None,
        domain_id=services.domains.info(domain).facts.id if domain is not None else None,
    )
    return sse.stream_response(request, services, wanted, sse.start_position(services.database, last_event_id))


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"description": "Text of the exposition format.", "content": {CONTENT_TYPE_LATEST: {}}}},
)
def prometheus(services: Services) -> Response:
    """Prometheus needs an API key with the scope `metrics`."""
    return Response(_render(metrics.collect(services.database)), media_type=CONTENT_TYPE_LATEST)


class _FamilyCollector(Collector):
    """Passes the metrics of `stats/metrics` to the library that formats them."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            # The library appends `_total` to counters; a counter without that suffix has no type in this format.
            name = family.name.removesuffix("_total")
            kind = "unknown" if family.kind == "counter" and name == family.name else family.kind
            metric = Metric(name, family.help, kind)
            for sample in family.samples:
                metric.add_sample(family.name + sample.suffix, dict(sample.labels), sample.value)
            yield metric


def _render(families: Iterable[Family]) -> bytes:
    """Format metrics as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(_FamilyCollector(list(families)))
    return generate_latest(registry)
