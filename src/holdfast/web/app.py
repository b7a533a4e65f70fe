"""The app: routes behind the guard, in their envelope, with problems for errors.

The rule: the table of `access` and the routes agree, or there is no app.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from holdfast import __version__
from holdfast.web import description, problems
from holdfast.web.access import ROUTES
from holdfast.web.envelope import Envelope
from holdfast.web.gate import Gates
from holdfast.web.guard import GuardedRoute
from holdfast.web.office import Office

NOUNS: Final = (
    "health",
    "auth",
    "accounts",
    "figures",
    "jobs",
    "frontier",
    "pages",
    "domains",
    "tasks",
    "batches",
    "products",
    "proxies",
    "pools",
    "webhooks",
    "operating",
)
"""The modules of `api`, each with a `router` whose paths are written in full."""


def make(office: Office) -> FastAPI:
    """The app of one process. Before: the office is open; whoever made it closes it."""
    gates = Gates(office.settings.web.connections)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with office.hub.running():
            yield
        gates.close()

    app = bare()
    app.router.lifespan_context = lifespan
    app.state.office = office
    app.state.gates = gates
    app.add_middleware(Envelope, most=office.settings.web.body_bytes)
    return app


def bare() -> FastAPI:
    """The routes, which can be described and not served."""
    app = FastAPI(
        title="Holdfast",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    problems.install(app)
    description.install(app)
    for noun in NOUNS:
        router = import_module(f"holdfast.web.api.{noun}").router
        assert isinstance(router, APIRouter)  # noqa: S101 — every noun has one
        # As they are: an included router would hide them from the check of the table.
        app.router.routes.extend(router.routes)
    _check(app)
    return app


def served(app: FastAPI) -> set[str]:
    """What the app serves, as the table of `access` writes it."""
    return {
        f"{method} {route.path_format}"
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }


def _check(app: FastAPI) -> None:
    routes = served(app)
    unguarded = [route for route in app.routes if not isinstance(route, GuardedRoute)]
    if routes != set(ROUTES) or unguarded:
        raise AssertionError(f"not in the table or not served: {sorted(routes ^ set(ROUTES))}; unguarded: {unguarded}")
