"""Pages of the API for a browser: the API reference with Swagger UI, and its login form.

The rule: nothing is loaded from another host, and no page has an inline script or style, so that the
Content-Security-Policy can forbid both. Static files are listed by name; a name from a request is looked up in the
list, never in a folder.
"""

import gzip
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Final, NamedTuple

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from holdfast import errors
from holdfast.api import errors as problems
from holdfast.errors import NotFound
from holdfast.model.auth import Principal

DOCS: Final = "/docs"
_POLICY: Final = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",  # Swagger UI's own icons
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",  # a form that its script does not send is not sent at all
    "frame-ancestors": "'none'",
}
_HEADERS: Final = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Vary": "Accept, Cookie",
}
_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_OWN_FILES: Final = ("site.css", "login.js", "docs.js", "favicon.svg")
_SWAGGER_FILES: Final = ("swagger-ui.css", "swagger-ui-bundle.js")
_STATIC: Final = Path(__file__).parent / "static"


class Asset(NamedTuple):
    """A static file."""

    media_type: str
    gzipped: bytes
    """Compressed by gzip."""
    plain: bytes


def wants_html(request: Request) -> bool:
    """Whether the client asks for HTML; programs that accept anything get JSON."""
    return "text/html" in request.headers.get("Accept", "")


def docs(caller: Principal) -> Response:
    """The API reference with Swagger UI, for a logged-in user."""
    name = "without authentication" if caller.via == "no-auth" else f"{caller.name} ({caller.role})"
    return _page("docs.html", who=name)


def asset(name: str, request: Request) -> Response:
    """A static file. Raises NotFound."""
    if name not in _OWN_FILES + _SWAGGER_FILES:
        raise NotFound("There is no such file.")
    found = _asset(name)
    headers = {"Cache-Control": "public, max-age=3600", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return Response(found.gzipped, media_type=found.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(found.plain, media_type=found.media_type, headers=headers)


def install(app: FastAPI) -> None:
    """Show the login form to a browser that asks for the API reference without a login; all other requests get the
    problem."""

    @app.exception_handler(errors.Unauthenticated)
    async def unauthenticated(request: Request, problem: errors.Unauthenticated) -> Response:
        answer = problems.from_error(problem)
        if request.url.path != DOCS or not wants_html(request):
            return answer
        challenge = {"WWW-Authenticate": answer.headers["WWW-Authenticate"]}
        return _page("login.html", status=401, headers=challenge)


def _page(
    name: str, *, status: int = 200, headers: Mapping[str, str] = MappingProxyType({}), **values: str
) -> Response:
    text = _template(name).substitute({key: escape(value) for key, value in values.items()})
    return HTMLResponse(text, status, headers={**_HEADERS, **headers})


@cache
def _template(name: str) -> Template:
    return Template((_STATIC / name).read_text("utf-8"))


@cache
def _asset(name: str) -> Asset:
    data = (_swagger_ui() / name if name in _SWAGGER_FILES else _STATIC / name).read_bytes()
    return Asset(_MEDIA_TYPES[Path(name).suffix], gzip.compress(data, 9, mtime=0), data)


def _swagger_ui() -> Path:
    """The folder of the wheel that contains Swagger UI. The wheel's own code is not run."""
    spec = find_spec("fastapi_swagger")
    assert spec is not None  # noqa: S101 — it is a dependency
    assert spec.origin is not None  # noqa: S101 — it has an __init__
    return Path(spec.origin).parent / "resources"
