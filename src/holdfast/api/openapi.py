"""The OpenAPI document: what FastAPI knows of the routes, and what only the table of `access` does.

The rule: who may use a route is written here from that table, never by hand.
"""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from holdfast import __version__
from holdfast.model.account import Role
from holdfast.web import problems
from holdfast.web.access import ROUTES, Access, Counted
from holdfast.web.guard import COOKIE, CSRF_HEADER
from holdfast.web.idempotency import HEADER, REPLAYED

TAGS: Final = {
    "site": "Pages for people.",
    "health": "Whether the server lives, and whether it can work.",
    "auth": "Logging in and out, one's own sessions and API keys.",
    "accounts": "Users, keys and the audit log.",
    "figures": "Statistics, time series, metrics, live events and alerts.",
    "jobs": "What is crawled: made, looked at, paused, resumed, cancelled, deleted.",
    "frontier": "URLs that wait.",
    "pages": "What was fetched, exports, and why a URL is where it is.",
    "items": "What parsers found on the pages of crawls.",
    "domains": "Web hosts: their state, configuration, robots.txt and maintenance windows.",
    "tasks": "Single URLs, usually recurring, and batches of them.",
    "products": "Products that were found, and what they cost over time.",
    "proxies": "Proxies and the pools of domains.",
    "operating": "Claims, runs, workers, webhooks, verification and long work.",
}
_METHODS: Final = frozenset({"get", "post", "put", "patch", "delete"})
_ABOUT: Final = f"""
Everything that a program can do with Holdfast. Errors are problems of RFC 9457. Lists come in pages: follow `next` or the `Link` header.
What can be edited has an `ETag`; send it back as `If-Match`. A `POST` with an `{HEADER}` may be repeated: the answer of the first one
comes back (`{REPLAYED}: true`). Times are UTC. Who changes something with a session's cookie repeats its `csrf` in `{CSRF_HEADER}`.
"""


def install(app: FastAPI) -> None:
    """Have the app describe itself so."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title="Holdfast",
        version=__version__,
        description=_ABOUT.strip(),
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = problems.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(schemas["Problem"].pop("$defs", {}))
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    components["securitySchemes"] = {
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "Set by /api/auth/login."},
        "key": {"type": "http", "scheme": "bearer", "description": "An API key: hfk_…"},
    }
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method in _METHODS:
                _complete(operation, ROUTES[f"{method.upper()} {path}"], method)
    return document


def _complete(operation: dict[str, Any], access: Access, method: str) -> None:
    anybody = access.role is Role.ANONYMOUS
    operation["security"] = [] if anybody else [{"session": []}, *([{"key": []}] if access.scope else [])]
    operation["x-role"] = str(access.role)
    if access.scope is not None:
        operation["x-scope"] = str(access.scope)
    usual = {400, 408, 413, 500, 503} | (set() if access.counted is Counted.FREE else {429})
    usual |= set() if anybody else {401, 403}
    usual |= {403} if method != "get" else set()
    has_input = bool(operation.get("parameters") or operation.get("requestBody"))
    usual |= {422} if has_input or method == "post" else set()
    usual |= {409} if method != "get" else set()
    responses = operation["responses"]
    responses.pop("422", None)
    for status, documented in problems.documented(*usual).items():
        responses.setdefault(str(status), documented)
    if method == "post" and access.keeps:
        operation.setdefault("parameters", []).append(
            {
                "name": HEADER,
                "in": "header",
                "required": False,
                "description": "Makes it safe to repeat the request: the answer of the first one comes back.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
            }
        )
