"""The OpenAPI document: FastAPI's description of the routes, completed from `permissions.ROUTES`.

The rule: the role and scope of a route are written from that table, never by hand.
"""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from holdfast import __version__
from holdfast.api import errors
from holdfast.api.auth import COOKIE, CSRF_HEADER
from holdfast.api.idempotency import HEADER, REPLAYED
from holdfast.api.permissions import ROUTES, LimitedBy, RoutePolicy
from holdfast.model.auth import Role

TAGS: Final = {
    "site": "Pages for people.",
    "health": "Whether the server lives, and whether it can work.",
    "auth": "Logging in and out, one's own sessions and API keys.",
    "accounts": "Users, keys and the audit log.",
    "figures": "Statistics, time series, metrics, live events and alerts.",
    "jobs": "What is crawled: made, looked at, paused, resumed, cancelled, deleted.",
    "frontier": "URLs that wait.",
    "pages": "What was fetched, exports, and why a URL is where it is.",
    "images": "Images that crawls stored, their files and thumbnails.",
    "links": "Links of pages: who links where, broken links, redirects, orphans.",
    "items": "What parsers found on the pages of crawls.",
    "domains": "Web hosts: their state, configuration, robots.txt and maintenance windows.",
    "tasks": "Single URLs, usually recurring, and batches of them.",
    "products": "Products that were found, and what they cost over time.",
    "proxies": "Proxies and the pools of domains.",
    "operating": "Claims, runs, workers, webhooks, verification and long work.",
}
_METHODS: Final = frozenset({"get", "post", "put", "patch", "delete"})
_DESCRIPTION: Final = f"""
Everything that a program can do with Holdfast. Errors are problems of RFC 9457. Lists come in pages: follow `next` or the `Link` header.
What can be edited has an `ETag`; send it back as `If-Match`. A `POST` with an `{HEADER}` may be repeated: the answer of the first one
comes back (`{REPLAYED}: true`). Times are UTC. Who changes something with a session's cookie repeats its `csrf` in `{CSRF_HEADER}`.
"""


def install(app: FastAPI) -> None:
    """Replace `app.openapi` with this description."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _describe(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title="Holdfast",
        version=__version__,
        description=_DESCRIPTION.strip(),
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Problem"] = errors.Problem.model_json_schema(ref_template="#/components/schemas/{model}")
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
                _add_policy(operation, ROUTES[f"{method.upper()} {path}"], method)
    return document


def _add_policy(operation: dict[str, Any], policy: RoutePolicy, method: str) -> None:
    is_public = policy.role is Role.ANONYMOUS
    operation["security"] = [] if is_public else [{"session": []}, *([{"key": []}] if policy.scope else [])]
    operation["x-role"] = str(policy.role)
    if policy.scope is not None:
        operation["x-scope"] = str(policy.scope)
    statuses = {400, 408, 413, 500, 503} | (set() if policy.limited_by is LimitedBy.NOTHING else {429})
    statuses |= set() if is_public else {401, 403}
    statuses |= {403} if method != "get" else set()
    has_input = bool(operation.get("parameters") or operation.get("requestBody"))
    statuses |= {422} if has_input or method == "post" else set()
    statuses |= {409} if method != "get" else set()
    responses = operation["responses"]
    responses.pop("422", None)
    for status, documented in errors.documented(*statuses).items():
        responses.setdefault(str(status), documented)
    if method == "post" and policy.takes_idempotency_key:
        operation.setdefault("parameters", []).append(
            {
                "name": HEADER,
                "in": "header",
                "required": False,
                "description": "Makes it safe to repeat the request: the answer of the first one comes back.",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"},
            }
        )
