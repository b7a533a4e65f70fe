"""Generates the page docs/api.md: the conventions of the API, and a table of every route.

The rule: the tables follow from the routes and from `permissions.ROUTES`; a test compares the page with the output of
this module.
"""

import sys
from textwrap import wrap
from typing import Any, Final

from holdfast.api.app import create_unserved_app
from holdfast.api.openapi import TAGS
from holdfast.api.permissions import ROUTES

_WIDTH: Final = 115
_INTRODUCTION: Final = """\
# The API

<!-- Generated from src/holdfast/api. To change this page, change the routes or `api_docs.py` and run
     python -m holdfast.api.api_docs > docs/api.md -->

`holdfast serve` listens on http://127.0.0.1:8080 by default (`--host`, `--port`). The whole description,
with every field and an example of each, is the OpenAPI document at `/api/openapi.json`. Open `/docs` in a browser and
log in: it shows every request, and sends those that you fill in. [The Python client](client.md) is `holdfast.Client`.
Authentication is described in [security](security.md), the metrics in [metrics](metrics.md).

## Conventions

- **Authentication**: `Authorization: Bearer hfk_…` with an API key (`holdfast keys add`), or the session cookie of
  `/api/auth/login`. A change with a session cookie repeats the `csrf` of the login in the header `X-CSRF-Token`.
- **Errors** are problems of RFC 9457 (`application/problem+json`): `type` is for programs, `detail` says what to do.
  401: not logged in; 403: not allowed; 404: not found; 409: the present state forbids it; 412: changed since you read
  it; 422: the request is not valid, and `errors` says which part; 429: over the rate limit, and `Retry-After` says how
  long to wait; 503: the database is unavailable.
- **Pagination**: lists come in pages of `limit` items (default 100, maximum 500). `next`, and the `Link` header, is the
  cursor of the next page: send it as `cursor` with the same filters and order. null: this was the last page; a page may
  be short without being the last.
- **Editing**: a resource that can be edited has a `version`, which is its `ETag`. Send it as `If-Match`, and the change
  is refused (412) if there was another one since.
- **Idempotency**: a `POST` with an `Idempotency-Key` (any text of your own, such as a UUID) is done once. The changes
  and the response are written in one transaction; a repeated request within a day gets that response, with
  `Idempotent-Replayed: true`, also if the server was killed in between. A request that was refused may be sent again
  with the same key. A repeated request waits while the first one is still running; after a few seconds it gets a 409 of
  the type `urn:holdfast:problem:under-way`, and `Retry-After` says when to ask again. Secrets that are shown once are
  not in a repeated response, and headers, cookies and logins in a body are not compared. These routes ignore the key:
  UNKEPT.
- **Secrets for sites**: `secrets` of a job and `headers`, `cookies` and `basic_auth` of a domain are encrypted in
  the database; responses have only the names of the headers ([sites that need a login](operations.md#sites-that-need-a-login)).
- **Long work** is answered with 202 and the `Location` of an operation, which has its progress and its result.
- **Live events**: `/api/events`, `/api/stats/events` and `/api/jobs/{job}/events` are Server-Sent Events. Each event has
  an id; send it as `Last-Event-ID` to resume after it. Events are kept for a day; after `reset` read everything again.
  `web.user_listeners` limits the open streams of a user.
- **Rate limits**: `web.anonymous_limit`, `web.user_limit` and `web.admin_limit` requests in a sliding window of
  `web.window`; the headers `RateLimit` and `RateLimit-Policy` say what is left. Requests that match no route, that ask
  for another protocol or are not HTTP count as well. Logins have the limit `web.anonymous_limit` for themselves, so that
  other requests from the same address do not use it up, and a session can always log out. `/`, `/health` and
  `/health/ready` are not counted. The head of a request has at most 64 KiB, a body `web.body_bytes`.
- **Times** are UTC in ISO 8601, durations as well (`PT6H`, or seconds as a number); bytes are hexadecimal digits.

## Routes

An API key needs the scope; "session" means that only a login is accepted. "anybody" needs neither.
"""


def render() -> str:
    """The page as Markdown."""
    document = create_unserved_app().openapi()
    rows_by_tag: dict[str, list[str]] = {tag: [] for tag in TAGS}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            rows_by_tag[operation["tags"][0]].append(_row(method.upper(), path, operation))
    parts = [_introduction()]
    for tag, rows in rows_by_tag.items():
        parts.append(
            f"\n### {tag.capitalize()}\n\n{TAGS[tag]}\n\n| | | role | scope | |\n|---|---|---|---|---|\n"
            + "\n".join(rows)
            + "\n"
        )
    return "".join(parts)


def _introduction() -> str:
    posts = (
        route.partition(" ")[2]
        for route, policy in ROUTES.items()
        if route.startswith("POST /api/") and not policy.takes_idempotency_key
    )
    return _INTRODUCTION.replace("UNKEPT", "\n  ".join(wrap(", ".join(f"`{path}`" for path in posts), _WIDTH)))


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    role = operation["x-role"]
    if role == "anonymous":
        return f"| {method} | `{path}` | anybody | | {operation['summary']} |"
    return f"| {method} | `{path}` | {role} | {operation.get('x-scope', 'session')} | {operation['summary']} |"


if __name__ == "__main__":
    sys.stdout.write(render())
