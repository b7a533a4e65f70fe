"""Parts of responses that several routes share."""

from datetime import datetime
from typing import Any, Literal

from fastapi import Response

from holdfast.api.request_types import View
from holdfast.operations.queries import Operation


class Stats(View):
    """How things stand."""

    at: datetime
    pages_total: int
    requests_total: int
    errors_total: int
    bytes_total: int
    robots_denials_total: int
    pages_per_second: float
    """Of the last minute, like the three below."""
    requests_per_second: float
    errors_per_second: float
    bytes_per_second: float
    success_rate: float | None
    """Of the last minute, from 0 to 1; null: nothing was asked for."""
    frontier_size: int
    """URLs that wait."""
    domains: dict[str, int]
    """By status."""
    jobs: dict[str, int]
    """By state."""
    tasks: dict[str, int]
    """By status."""
    workers_active: int
    workers_silent: int
    """That have not been heard of for two minutes and seem to be at work."""
    runs: int
    claims: int
    """Domains that are held."""
    claims_expired: int
    alerts: int
    """That fire now."""


class OperationView(View):
    """Long work, where it is, and what came of it."""

    id: int
    kind: str
    state: Literal["waiting", "running", "done", "failed"]
    asked_by: str
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    attempts: int
    """How often somebody began; more than once, if whoever did it died."""
    arguments: dict[str, Any]
    progress: dict[str, Any]
    result: dict[str, Any] | None
    problem: str | None
    """Why it failed."""


def accepted(response: Response, operation: Operation) -> OperationView:
    """The response of a route that starts an operation; the Location header names it."""
    response.headers["Location"] = f"/api/operations/{operation.id}"
    return OperationView.of(operation)
