"""The FastAPI app: routes, middleware and error handlers.

The rule: `permissions.ROUTES` and the routes of the app agree, or the app cannot be created.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from holdfast import __version__
from holdfast.api import auth, errors, html_pages, openapi
from holdfast.api.app_services import AppServices
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.middleware import SecurityMiddleware
from holdfast.api.permissions import ROUTES
from holdfast.api.thread_pools import ThreadPools

ROUTERS: Final = (
    "holdfast.api.site",
    "holdfast.api.health",
    "holdfast.accounts.api.auth",
    "holdfast.accounts.api.admin",
    "holdfast.audit.api",
    "holdfast.stats.api",
    "holdfast.alerts.api",
    "holdfast.jobs.api",
    "holdfast.frontier.api",
    "holdfast.pages.api",
    "holdfast.documents.api",
    "holdfast.search.api",
    "holdfast.items.api",
    "holdfast.images.api",
    "holdfast.links.api",
    "holdfast.domains.api",
    "holdfast.tasks.api",
    "holdfast.products.api",
    "holdfast.proxies.api.proxies",
    "holdfast.proxies.api.pools",
    "holdfast.webhooks.api",
    "holdfast.workers.api",
    "holdfast.storage.api",
    "holdfast.backups.api",
    "holdfast.retention.api",
    "holdfast.operations.api",
    "holdfast.replay.api",
    "holdfast.rebuild.api",
    "holdfast.segments.api",
    "holdfast.dashboard.pages.shell",
    "holdfast.dashboard.pages.session",
    "holdfast.dashboard.pages.overview",
    "holdfast.dashboard.pages.tasks",
    "holdfast.dashboard.pages.proxies",
    "holdfast.dashboard.pages.alerts",
    "holdfast.dashboard.pages.webhooks",
    "holdfast.dashboard.pages.operations",
    "holdfast.dashboard.pages.storage",
    "holdfast.dashboard.pages.pages",
    "holdfast.dashboard.pages.items",
    "holdfast.dashboard.pages.images",
    "holdfast.dashboard.pages.job_links",
    "holdfast.dashboard.pages.products",
    "holdfast.dashboard.pages.users",
    "holdfast.dashboard.pages.audit",
    "holdfast.dashboard.pages.domains",
    "holdfast.dashboard.pages.workers",
    "holdfast.dashboard.pages.jobs",
    "holdfast.dashboard.pages.job_new",
    "holdfast.dashboard.pages.job",
    "holdfast.dashboard.pages.job_settings",
    "holdfast.dashboard.pages.job_urls",
    "holdfast.dashboard.pages.job_scope",
    "holdfast.dashboard.pages.job_history",
)
"""The modules with a `router` whose paths are written in full."""


def create_app(services: AppServices) -> FastAPI:
    """The app of one process. Before: the services are open. After: the caller still closes them."""
    thread_pools = ThreadPools(services.settings.web.connections)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with services.hub.running():
            yield
        thread_pools.close()

    app = create_unserved_app()
    app.router.lifespan_context = lifespan
    app.state.services = services
    app.state.thread_pools = thread_pools
    app.add_middleware(SecurityMiddleware, max_body_bytes=services.settings.web.body_bytes)
    return app


def create_unserved_app() -> FastAPI:
    """The app without services: it can be described by OpenAPI, but cannot answer requests."""
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    errors.install(app)
    auth.install(app)
    html_pages.install(app)
    openapi.install(app)
    import_module("holdfast.dashboard.route").install(app)
    for module in ROUTERS:
        router = import_module(module).router
        assert isinstance(router, APIRouter)  # noqa: S101 — every module has one
        # Not by `include_router`: routers in the router cost 0.1 ms for each request (ADR 0051).
        app.router.routes.extend(router.routes)
    _check_routes(app)
    return app


def served_routes(app: FastAPI, *, include_in_schema: bool | None = None) -> set[str]:
    """The routes of the app, as `permissions.ROUTES` writes them: method and path. With `include_in_schema` only those that are part of
    the OpenAPI document, or that are not."""
    return {
        f"{method} {route.path_format}"
        for route in app.routes
        if isinstance(route, APIRoute) and include_in_schema in (None, route.include_in_schema)
        for method in route.methods or ()
    }


def _check_routes(app: FastAPI) -> None:
    routes = served_routes(app)
    unguarded = [route for route in app.routes if not isinstance(route, AuthorizedRoute)]
    if routes != set(ROUTES) or unguarded:
        raise AssertionError(f"not in the table or not served: {sorted(routes ^ set(ROUTES))}; unguarded: {unguarded}")
