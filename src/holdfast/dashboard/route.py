"""The routes of the dashboard: errors as pages, and the login where it is needed.

The rule: a browser never gets JSON. A page without a session shows the login form; a link from another site arrives without the cookie
(SameSite=Strict), so it is loaded once more from here before that.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from holdfast.api import errors as problems
from holdfast.api.auth import AuthorizedRoute, Handler
from holdfast.api.forms import Form
from holdfast.api.html_pages import wants_html
from holdfast.dashboard import rendering
from holdfast.dashboard.refused_form import BACK_FIELD, RefusedForm
from holdfast.dashboard.rendering import HEADERS, PageContext, local_path, page_response
from holdfast.errors import Changed, HoldfastError, TooMany, Unauthenticated
from holdfast.model.auth import ANONYMOUS, Principal

log: Final = logging.getLogger(__name__)


class DashboardRoute(AuthorizedRoute):
    """A page or a form of the dashboard."""

    respond: Handler
    """Handles a request for this route, once its path has been matched."""

    def get_route_handler(self) -> Handler:
        """The handler of `AuthorizedRoute`, with errors as pages."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except Unauthenticated:
                return _login(request)
            except (HoldfastError, RequestValidationError, HTTPException) as problem:
                return await _page_of_form(request, problem) or error_page(request, problem)

        self.respond = handle
        return handle


def install(app: FastAPI) -> None:
    """Show a page to a browser that asks for an address without a route; all other requests get the problem."""
    for status in (404, 405):
        app.add_exception_handler(status, _for_browsers(app.exception_handlers[status]))


def _for_browsers(handler: Any) -> Any:
    async def respond(request: Request, problem: Exception) -> Response:
        response: Response = await handler(request, problem)
        is_page = wants_html(request) and not request.url.path.startswith("/api/")
        return error_page(request, problem) if is_page and response.status_code in {404, 405} else response

    return respond


def page_router() -> APIRouter:
    """A router for pages; they are not part of the API's document."""
    return APIRouter(route_class=DashboardRoute, include_in_schema=False, default_response_class=HTMLResponse)


def error_page(request: Request, problem: Exception) -> Response:
    """The page for an error: what is wrong, and what to do next."""
    caller: Principal = getattr(request.state, "caller", ANONYMOUS)
    headers: Mapping[str, str] = {}
    if isinstance(problem, HTTPException):
        status, detail = problem.status_code, problems.http_detail(request, problem)
        if status == 404:
            detail = f"There is no page at {request.url.path[:200]}."
        title = problems.BY_STATUS.get(status, ("", "It cannot be done"))[1]
    elif isinstance(problem, RequestValidationError):
        found = problem.errors()[0]
        status, title = 422, problems.BY_STATUS[422][1]
        detail = f"{'.'.join(map(str, found.get('loc', ())[1:]))}: {found.get('msg', 'is not valid')}."
    else:
        assert isinstance(problem, HoldfastError)  # noqa: S101 — the caller catches these three
        status, title, detail = problems.describe(problem)
        if status >= 500:
            log.warning("%s: %s", type(problem).__name__, problem)
        if isinstance(problem, TooMany):
            headers = {"Retry-After": str(max(1, round(problem.retry_after)))}
    values = {"title": title, "detail": detail, "status": status}
    return page_response(request, caller, "error.html", values, status=status, headers=headers)


async def _page_of_form(request: Request, problem: Exception) -> Response | None:
    """Respond with the page of a form that was refused, with the reason and with what was typed; None: there is no such page."""
    form = getattr(request.state, "form", None)
    if not isinstance(form, Form) or BACK_FIELD not in form or not isinstance(problem, HoldfastError):
        return None
    status, _, detail = problems.describe(problem)
    if status >= 500 or status in {403, 429}:
        return None
    address = local_path(form.raw(BACK_FIELD))
    # What was typed goes by values that have been changed since; the page has to show those.
    if not isinstance(problem, Changed):
        refused = RefusedForm(request.url.path, address, tuple(form.fields), detail, status)
        response = await _get(request, refused)
        if response is not None and not 300 <= response.status_code < 400:
            return response
    context = PageContext(request, request.app.state.services, request.state.caller)
    return context.redirect(address, problem=detail)


async def _get(request: Request, refused: RefusedForm) -> Response | None:
    """Respond with the page of a form as a browser would load it, authenticated and counted like every request; None: it is no page of the
    dashboard."""
    target = urlsplit(refused.page)
    state = {name: value for name, value in request.scope["state"].items() if name != "form"}
    scope = {
        **request.scope,
        "method": "GET",
        "path": unquote(target.path),
        "raw_path": target.path.encode(),
        "query_string": target.query.encode(),
        "path_params": {},
        "state": {**state, "refused_form": refused},
    }
    for route in request.app.routes:
        match, matched = route.matches(scope)
        if match is Match.FULL:
            page = Request({**scope, **matched}, request.receive)
            return await route.respond(page) if isinstance(route, DashboardRoute) else None
    return None


def _login(request: Request) -> Response:
    if request.method == "GET" and request.headers.get("Sec-Fetch-Site") == "cross-site":
        return HTMLResponse(rendering.render("reload.html", {}), 200, headers=HEADERS)
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    values = {"next": target if request.method == "GET" else "/overview", "name": ""}
    return page_response(request, ANONYMOUS, "login.html", values, status=401)
