"""What people see in a browser: the first page, the login form, and the API's documentation with Swagger UI.

The rule: nothing comes from a foreign host, and no page has a script or a style inside, so that the Content-Security-Policy can forbid
both. Files are named in a list; what a request names is looked up there, never in a folder.
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
from holdfast.errors import NotFound
from holdfast.model.account import Principal
from holdfast.web import problems

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
_KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_OURS: Final = ("site.css", "login.js", "docs.js", "favicon.svg")
_SWAGGER_UI: Final = ("swagger-ui.css", "swagger-ui-bundle.js")
_HERE: Final = Path(__file__).parent / "static"


class Asset(NamedTuple):
    """A file that a page needs."""

    kind: str
    packed: bytes
    """By gzip."""
    plain: bytes


def wants_html(request: Request) -> bool:
    """Whether a browser asks: programs that take anything get JSON."""
    return "text/html" in request.headers.get("Accept", "")


def home(request: Request) -> Response:
    """What this server is, and where the rest is."""
    address = f"{request.url.scheme}://{request.headers.get('Host', request.url.netloc)}"
    return _page("home.html", address=address)


def docs(who: Principal) -> Response:
    """The documentation, for a user who may see it."""
    name = "without authentication" if who.via == "no-auth" else f"{who.name} ({who.role})"
    return _page("docs.html", who=name)


def asset(name: str, request: Request) -> Response:
    """A file of a page. Raises NotFound."""
    if name not in _OURS + _SWAGGER_UI:
        raise NotFound("There is no such file.")
    found = _asset(name)
    headers = {"Cache-Control": "public, max-age=3600", "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        return Response(found.packed, media_type=found.kind, headers={**headers, "Content-Encoding": "gzip"})
    return Response(found.plain, media_type=found.kind, headers=headers)


def install(app: FastAPI) -> None:
    """Have a browser that asks for the documentation without a login be shown the form; everything else gets the problem."""

    @app.exception_handler(errors.Unauthenticated)
    async def unauthenticated(request: Request, problem: errors.Unauthenticated) -> Response:
        answer = problems.of_error(problem)
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
    return Template((_HERE / name).read_text("utf-8"))


@cache
def _asset(name: str) -> Asset:
    data = (_swagger_ui() / name if name in _SWAGGER_UI else _HERE / name).read_bytes()
    return Asset(_KINDS[Path(name).suffix], gzip.compress(data, 9, mtime=0), data)


def _swagger_ui() -> Path:
    """The folder of the wheel that brings Swagger UI. The wheel's own code is not run."""
    spec = find_spec("fastapi_swagger")
    assert spec is not None  # noqa: S101 — it is a dependency
    assert spec.origin is not None  # noqa: S101 — it has an __init__
    return Path(spec.origin).parent / "resources"
