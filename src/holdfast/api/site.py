"""Pages for people: what this server is, and the API's documentation."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from holdfast.api import html_pages
from holdfast.api.app_services import Caller
from holdfast.api.auth import AuthorizedRoute
from holdfast.api.errors import documented

router = APIRouter(route_class=AuthorizedRoute, tags=["site"])

_PAGE: Final = {"text/html": {"schema": {"type": "string"}}}
_LINKS: Final = {
    "name": "Holdfast",
    "dashboard": "/overview",
    "documentation": html_pages.DOCS,
    "openapi": "/api/openapi.json",
    "health": "/health",
    "login": "/api/auth/login",
}


@router.get(
    "/",
    summary="What this server is",
    response_class=Response,
    responses={
        200: {"description": "Links, for programs.", "content": {"application/json": {"schema": {"type": "object"}}}},
        303: {"description": "To the dashboard, for browsers."},
    },
)
async def home(request: Request) -> Response:
    """Where the API, its documentation, the dashboard and the login are."""
    if html_pages.wants_html(request):
        return RedirectResponse("/overview", 303, headers={"Vary": "Accept"})
    return JSONResponse(_LINKS, headers={"Vary": "Accept"})


@router.get(
    html_pages.DOCS,
    summary="The API, to be tried in a browser",
    response_class=HTMLResponse,
    responses={200: {"description": "Swagger UI.", "content": _PAGE}},
)
async def docs(caller: Caller) -> Response:
    """A browser without a login is shown a form to log in (401)."""
    return html_pages.docs(caller)


@router.get(
    "/docs/assets/{name}",
    summary="A file of these pages",
    response_class=Response,
    responses={200: {"description": "The file.", "content": {"*/*": {}}}, **documented(404)},
)
async def asset(name: Annotated[str, Path(max_length=100, description="Its name.")], request: Request) -> Response:
    """Scripts, styles and the icon."""
    return html_pages.asset(name, request)
