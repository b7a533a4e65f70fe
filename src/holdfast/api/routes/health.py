"""Whether the server lives, whether it can work, and what it can be asked."""

from typing import Any, Literal

from fastapi import APIRouter, Request, Response

from holdfast import __version__
from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.request_types import View

router = APIRouter(route_class=AuthorizedRoute, tags=["health"])


class Alive(View):
    """The process answers, and whether what it needs does."""

    status: Literal["ok", "degraded"]
    """`degraded`: the database or Redis does not work; `/health/ready` says why."""
    database: Literal["ok", "unavailable"]
    """`unavailable`: it does not answer, or has another schema."""
    redis: Literal["ok", "unavailable", "not configured"]
    version: str = __version__


class Part(View):
    """Something that the server needs."""

    name: Literal["database", "schema", "redis"]
    works: bool
    cause: str | None = None
    """Why it does not."""


class Readiness(View):
    """Whether requests would be answered."""

    status: Literal["ready", "not ready"]
    parts: list[Part]


@router.get("/health", summary="Whether the server lives, and its database and Redis")
async def health(services: Services) -> Alive:
    """Always 200 as long as the process lives, so that no orchestrator restarts it because something else does not work: a liveness probe.
    What the database and Redis do is looked at once a second at the most."""
    parts, redis = await services.readiness.get(), await services.redis.get()
    works = all(part.works for part in parts)
    return Alive(
        status="ok" if works and redis is not False else "degraded",
        database="ok" if works else "unavailable",
        redis="not configured" if redis is None else "ok" if redis else "unavailable",
    )


@router.get(
    "/health/ready",
    summary="Whether the server can work",
    responses={503: {"model": Readiness, "description": "Something that it needs does not work."}},
)
async def ready(services: Services, response: Response) -> Readiness:
    """The database answers, its schema is the right one; Redis, where it is set, answers. Without Redis the API works, but slower. 503 if
    requests would not be answered: a readiness probe."""
    found = await services.readiness.get()
    parts = [Part(name=part.name, works=part.works, cause=part.cause) for part in found]
    redis = await services.redis.get()
    if redis is not None:
        parts.append(
            Part(name="redis", works=redis, cause=None if redis else "It does not answer; the database counts.")
        )
    works = all(part.works for part in parts if part.name != "redis")
    if not works:
        response.status_code = 503
    return Readiness(status="ready" if works else "not ready", parts=parts)


@router.get("/api/openapi.json", summary="This description", response_model=dict[str, Any])
async def openapi(request: Request) -> dict[str, Any]:
    """The OpenAPI document of this server."""
    document: dict[str, Any] = request.app.openapi()
    return document
