"""The overview: what the crawl does now, and did before."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Request, Response

from holdfast.alerts.sentences import describe
from holdfast.alerts.service import AlertService
from holdfast.api.app_services import AppServices
from holdfast.dashboard import time_range
from holdfast.dashboard.live import Parameters, live_view
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.model.auth import LOCAL_ADMIN
from holdfast.stats.records import Point
from holdfast.workers.records import WorkerFilter

router = page_router()

_SHOWN: Final = 12
"""Rows of each list."""


def read(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return what the regions of the page show."""
    span = time_range.parse(parameters)
    points = services.stats.timeseries(span.since, span.until, span.step)
    return {
        "stats": services.live_stats.snapshot(),
        "span": span,
        "points": points,
        "bytes_per_second": [point.bytes / max(point.seconds, 1.0) for point in points],
        "growth": _growth(points),
        "statuses": services.stats.status_codes(span.since) if span.until is None else {},
        "errors": services.live_stats.recent_errors()[:_SHOWN],
        "workers": services.workers.page(WorkerFilter(alive=True), limit=_SHOWN).rows,
        "alerts": [
            (alert, describe(alert).cause) for alert in AlertService(services.database).list(active=True, limit=_SHOWN)
        ],
        "jobs": services.jobs(LOCAL_ADMIN).under_way(_SHOWN),
        "volumes": services.storage.report().volumes,
    }


VIEW: Final = live_view(
    "overview",
    read,
    {
        "overview-figures": "overview/_figures.html",
        "overview-charts": "overview/_charts.html",
        "overview-now": "overview/_now.html",
    },
)


@router.get("/overview")
def overview(context: Context, request: Request) -> Response:
    """The overview."""
    parameters = {name: value for name, value in request.query_params.items() if name in {"range", "since", "until"}}
    return context.page(
        "overview/page.html",
        **read(context.services, parameters),
        live=VIEW.address(parameters),
        ranges=time_range.RANGES,
    )


def _growth(points: list[Point]) -> float | None:
    """URLs by which the frontier grew per minute over these points; None: it was not counted twice."""
    known = [(point.at, point.frontier_size) for point in points if point.frontier_size is not None]
    if len(known) < 2 or known[-1][0] == known[0][0]:
        return None
    (first, before), (last, after) = known[0], known[-1]
    return (after - before) / ((last - first).total_seconds() / 60)
