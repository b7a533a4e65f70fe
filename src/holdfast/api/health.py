"""Routes of health checks, and of the OpenAPI document."""

from typing import Any

from fastapi import APIRouter, Request, Response

from holdfast import __version__
from holdfast.api.app_services import Services
from holdfast.api.auth import AuthorizedRoute
from holdfast.model.health import Health, Part, Readiness

router = APIRouter(route_class=AuthorizedRoute, tags=["health"])

_NEEDED = frozenset({"database", "schema"})
"""Parts without which no request can be answered."""


@router.get("/health", summary="Liveness of the server, and of its database and Redis")
async def health(services: Services) -> Health:
    """A liveness probe: always 200 while the process lives, so that no orchestrator restarts it because of another service. The database
    and Redis are checked at most once a second."""
    parts, redis = await services.readiness.get(), await services.redis.get()
    works = all(part.works for part in parts if part.name in _NEEDED)
    paused = not all(part.works for part in parts if part.name in {"disk", "crawl"})
    return Health(
        status="ok" if works and redis is not False and not paused else "degraded",
        database="ok" if works else "unavailable",
        redis="not configured" if redis is None else "ok" if redis else "unavailable",
        version=__version__,
    )


@router.get(
    "/health/ready",
    summary="Readiness of the server",
    responses={503: {"model": Readiness, "description": "Something that it needs does not work."}},
)
async def ready(services: Services, response: Response) -> Readiness:
    """A readiness probe: 503 if the database does not answer or has another schema. Without Redis, if it is configured, the API works,
    but slower. While a disk has too little room (`disk`), workers cannot write what they fetch (`crawl`), or backups fail
    (`backups`), it says so and stays ready: the dashboard is needed then."""
    parts = list(await services.readiness.get())
    redis = await services.redis.get()
    if redis is not None:
        parts.append(
            Part(name="redis", works=redis, cause=None if redis else "It does not answer; the database counts.")
        )
    works = all(part.works for part in parts if part.name in _NEEDED)
    if not works:
        response.status_code = 503
    return Readiness(status="ready" if works else "not ready", parts=parts)


@router.get("/api/openapi.json", summary="OpenAPI document", response_model=dict[str, Any])
async def openapi(request: Request) -> dict[str, Any]:
    """The OpenAPI document of this server."""
    document: dict[str, Any] = request.app.openapi()
    return document
