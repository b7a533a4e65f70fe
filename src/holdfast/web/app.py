"""The app: routes behind the guard, in their envelope, with problems for errors.

The rule: the table of `access` and the routes agree, or there is no app.
"""

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from holdfast import __version__
from holdfast.web import description, guard, pages, problems
from holdfast.web.access import ROUTES
from holdfast.web.envelope import Envelope
from holdfast.web.gate import Gates
from holdfast.web.guard import GuardedRoute
from holdfast.web.office import Office

NOUNS: Final = (
    "site",
    "health",
    "auth",
    "accounts",
    "figures",
    "jobs",
    "frontier",
    "pages",
    "items",
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
    pages.install(app)
    description.install(app)
    for noun in NOUNS:
        router = import_module(f"holdfast.web.api.{noun}").router
        assert isinstance(router, APIRouter)  # noqa: S101 — every noun has one
        # As they are: an included router would hide them from the check of the table.
        app.router.routes.extend(router.routes)
    _check(app)
    app.router.middleware_stack = _Ways(app.router)
    return app


class _Ways:
    """Finds the route of a request among those that begin alike, since to ask a hundred of them costs as much as a statement does. What
    is found at none of them is counted and goes the usual way: the router knows what to say."""

    def __init__(self, router: APIRouter) -> None:
        self._router = router
        self._routes = defaultdict[str, list[BaseRoute]](list)
        for route in router.routes:
            assert isinstance(route, APIRoute)  # noqa: S101 — `_check` has looked
            self._routes[_begin(route.path_format)].append(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for route in self._routes.get(_begin(scope["path"]), ()):
                match, found = route.matches(scope)
                if match is Match.FULL:
                    scope["router"] = self._router
                    scope.update(found)
                    await route.handle(scope, receive, send)
                    return
            await guard.count_unserved(Request(scope))
        await self._router.app(scope, receive, send)


def _begin(path: str) -> str:
    """The first two parts, which have no placeholder in any route."""
    return "/".join(path.split("/", 3)[:3])


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
    hidden = [route for route in routes if "{" in _begin(route.partition(" ")[2])]
    if routes != set(ROUTES) or unguarded or hidden:
        raise AssertionError(
            f"not in the table or not served: {sorted(routes ^ set(ROUTES))}; unguarded: {unguarded + hidden}"
        )
