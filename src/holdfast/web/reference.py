"""The page docs/api.md: how the API is asked, and every route of it.

The rule: everything in its tables follows from the routes and the table of `access`; a test compares the page with this.
"""

import sys
from textwrap import wrap
from typing import Any, Final

from holdfast.web.access import ROUTES
from holdfast.web.app import bare
from holdfast.web.description import TAGS

_WIDTH: Final = 115
_INTRODUCTION: Final = """\
# The API

<!-- Generated from src/holdfast/web. To change this page, change the routes or `reference.py` and run
     python -m holdfast.web.reference > docs/api.md -->

`holdfast serve` answers at http://127.0.0.1:8080 until you say otherwise (`--host`, `--port`). The whole description,
with every field and an example of each, is the OpenAPI document at `/api/openapi.json`. Open `/docs` in a browser and
log in: it shows every request, and sends those that you fill in. `holdfast.Client` speaks the API for you: see
[the client](client.md). How people and programs prove who they are is in [security](security.md), the metrics are in
[metrics](metrics.md).

## Conventions

- **Who asks**: `Authorization: Bearer hfk_…` with an API key (`holdfast keys add`), or the cookie of
  `/api/auth/login`. Who changes something with a cookie repeats the `csrf` of the login in the header `X-CSRF-Token`.
- **Errors** are problems of RFC 9457 (`application/problem+json`): `type` is for programs, `detail` says what to do.
  401: not logged in; 403: not allowed; 404: not found; 409: its present state forbids it; 412:
  it was changed since you read it; 422: the request is not valid, and `errors` says which part; 429: too often, and
  `Retry-After` says how long to wait; 503: the database is away.
- **Lists** come in pages of `limit` (100; 500 at the most). `next`, and the `Link` header, is the cursor of the next
  one: send it as `cursor` with the same filters and order. null means that there is no more; a page may be short
  without being the last.
- **Editing**: what can be edited has a `version`, which is its `ETag`. Send it as `If-Match`, and nothing is changed
  that somebody else changed meanwhile.
- **Repeating**: a `POST` with an `Idempotency-Key` (any text of your own, such as a UUID) is done once. What it does
  and the answer to it are written in one transaction; whoever repeats it within a day gets that answer, with
  `Idempotent-Replayed: true`, also if the server was killed in between. What was refused may be sent again with the
  same key. Who repeats it while the first one is still being done waits for it; after a few seconds that is a 409 of
  the type `urn:holdfast:problem:under-way`, and `Retry-After` says when to ask again. Secrets that are shown once are
  not in a repeated answer, and headers, cookies and logins in a body are not compared. The key is not looked at where
  nothing is kept:
  UNKEPT.
- **Secrets for sites**: `secrets` of a job and `headers`, `cookies` and `basic_auth` of a domain are sealed when they are
  stored; answers have the names of the headers ([sites that need a login](operations.md#sites-that-need-a-login)).
- **Long work** is answered with 202 and the `Location` of an operation, which says how far it is and how it ended.
- **Live**: `/api/events`, `/api/stats/events` and `/api/jobs/{job}/events` are Server-Sent Events. Each event has an
  id; who was away sends it as `Last-Event-ID` and misses nothing for a day. After `reset` look at everything anew.
  A user may have as many of them open as `web.user_listeners` says.
- **Limits**: so many requests a minute as the settings `web.anonymous_limit`, `web.user_limit` and `web.admin_limit`
  say, in a window that slides; the headers `RateLimit` and `RateLimit-Policy` say where you stand. Requests that no route
  serves, that ask for another protocol or are no HTTP at all count as well. Logins have the limit `web.anonymous_limit`
  for themselves, so that other requests from the same address do not use it up, and a session can always log out. `/`,
  `/health` and `/health/ready` are not counted. The head of a request ends at 64 KiB, a body at `web.body_bytes`.
- **Times** are UTC in ISO 8601, durations too (`PT6H`; seconds are understood as well), bytes are hexadecimal digits.

## Routes

A key needs the scope; "session" means that only a login does. "anybody" needs neither.
"""


def page() -> str:
    """The page."""
    document = bare().openapi()
    found: dict[str, list[str]] = {tag: [] for tag in TAGS}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            found[operation["tags"][0]].append(_row(method.upper(), path, operation))
    parts = [_introduction()]
    for tag, rows in found.items():
        parts.append(
            f"\n### {tag.capitalize()}\n\n{TAGS[tag]}\n\n| | | role | scope | |\n|---|---|---|---|---|\n"
            + "\n".join(rows)
            + "\n"
        )
    return "".join(parts)


def _introduction() -> str:
    posts = (
        route.partition(" ")[2] for route, access in ROUTES.items() if route.startswith("POST") and not access.keeps
    )
    return _INTRODUCTION.replace("UNKEPT", "\n  ".join(wrap(", ".join(f"`{path}`" for path in posts), _WIDTH)))


def _row(method: str, path: str, operation: dict[str, Any]) -> str:
    role = operation["x-role"]
    if role == "anonymous":
        return f"| {method} | `{path}` | anybody | | {operation['summary']} |"
    return f"| {method} | `{path}` | {role} | {operation.get('x-scope', 'session')} | {operation['summary']} |"


if __name__ == "__main__":
    sys.stdout.write(page())
