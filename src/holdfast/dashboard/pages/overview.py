"""The overview: what the crawl does now, and did before."""

from collections.abc import Mapping
from typing import Any, Final

from fastapi import Request, Response

from holdfast.alerts.sentences import describe
from holdfast.api.app_services import AppServices
from holdfast.dashboard import time_range
from holdfast.dashboard.live import SLOW_INTERVAL, Parameters, live_view
from holdfast.dashboard.rendering import Context
from holdfast.dashboard.route import page_router
from holdfast.dashboard.time_range import TimeRange
from holdfast.model.activity import problems_of
from holdfast.stats.records import Charts, Point

router = page_router()

_SHOWN: Final = 12
"""Rows of each list."""


def read(services: AppServices, parameters: Parameters) -> Mapping[str, Any]:
    """Return what the regions of the page show: what moves in one statement, charts and errors as of some seconds ago."""
    span = time_range.parse(parameters)
    charts = services.charts.latest(span.of_charts, wait=0, fresh_for=SLOW_INTERVAL)
    return _values(services, span, charts or services.charts.renewed(span.of_charts))


def _values(services: AppServices, span: TimeRange, charts: Charts) -> Mapping[str, Any]:
    stats = services.stats.now(limit=_SHOWN)
    return {
        "stats": stats,
        "span": span,
        "points": charts.points,
        "statuses": charts.statuses,
        "domains": charts.domains,
        "jobs": stats.jobs,
        "workers": stats.workers,
        "bytes_per_second": [point.bytes / max(point.seconds, 1.0) for point in charts.points],
        "growth": _growth(charts.points),
        "errors": charts.errors[:_SHOWN],
        "alerts": [(alert, describe(alert).cause) for alert in stats.firing],
        "volumes": services.storage.report().volumes,
        "problems": problems_of(worker.activity for worker in stats.workers),
    }


VIEW: Final = live_view(
    "overview",
    read,
    {
        "overview-figures": "overview/_figures.html",
        "overview-problems": "overview/_problems.html",
        "overview-charts": "overview/_charts.html",
        "overview-now": "overview/_now.html",
    },
)


@router.get("/overview")
def overview(context: Context, request: Request) -> Response:
    """The overview."""
    parameters = {name: value for name, value in request.query_params.items() if name in {"range", "since", "until"}}
    span = time_range.parse(parameters)
    return context.page(
        "overview/page.html",
        **_values(context.services, span, context.services.charts.renewed(span.of_charts)),
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
