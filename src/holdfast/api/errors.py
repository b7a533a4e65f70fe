"""What goes wrong, as RFC 9457 problems: one table from errors to status codes.

The rule: whatever is raised becomes a problem with a sentence that says what to do. What nobody foresaw says nothing about our insides;
the log has that.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from holdfast import errors

log: Final = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
_LATER: Final = 5
"""Seconds after which a database that is away is asked for again."""
_MOST_ERRORS: Final = 20
_LONGEST_PATH: Final = 200
"""Characters of a path that an answer repeats."""
_CHALLENGE: Final = 'Bearer realm="holdfast"'

KINDS: Final[Mapping[type[errors.HoldfastError], tuple[int, str, str]]] = {
    errors.HoldfastError: (500, "failed", "It failed"),
    errors.UsageError: (422, "unusable", "The request is not valid"),
    errors.StoreError: (500, "store", "The database refused"),
    errors.StoreUnavailable: (503, "unavailable", "The database does not answer"),
    errors.SchemaMismatch: (503, "schema", "The database has another schema"),
    errors.RolledBack: (503, "rolled-back", "Nothing was done"),
    errors.NotFound: (404, "not-found", "Not found"),
    errors.Refused: (409, "refused", "The present state forbids it"),
    errors.Changed: (412, "changed", "It was changed meanwhile"),
    errors.UnderWay: (409, "under-way", "The same request is still being done"),
    errors.Denied: (403, "denied", "You may not do this"),
    errors.Unauthenticated: (401, "unauthenticated", "Not logged in"),
    errors.TooMany: (429, "too-many", "Too many requests"),
}
"""Status, name and title of each error; one that is not named is what its parent is."""
PLAIN: Final[Mapping[int, tuple[str, str]]] = {
    400: ("bad-request", "The request cannot be read"),
    401: ("unauthenticated", "Not logged in"),
    403: ("denied", "You may not do this"),
    404: ("not-found", "Not found"),
    405: ("method", "This method is not allowed here"),
    406: ("not-acceptable", "It is not available in that format"),
    408: ("slow", "The body did not come in time"),
    409: ("refused", "The present state forbids it"),
    412: ("changed", "It was changed meanwhile"),
    413: ("too-long", "The request is too long"),
    415: ("media-type", "The body is of the wrong kind"),
    422: ("unusable", "The request is not valid"),
    428: ("if-match", "Say which version you mean"),
    429: ("too-many", "Too many requests"),
    500: ("failed", "It failed"),
    503: ("unavailable", "Not available now"),
    504: ("timeout", "It took too long"),
}
"""Name and title of what the web layer itself says."""


_IN_SHORT: Final[Mapping[type[errors.HoldfastError], str]] = {
    errors.StoreError: "The database refused this; the server's log says why.",
    errors.StoreUnavailable: "The database is away, busy, or took too long for this; try again in a moment, or ask for less.",
    errors.SchemaMismatch: "The database has another schema than this server knows; its operator has to upgrade one of them.",
}
"""What is said of our own insides to whoever asks; the sentences themselves name addresses."""


class Fault(BaseModel):
    """What is wrong with one part of a request."""

    where: str = Field(description="The part: a field of the body, a parameter, a header.", examples=["body.urls.0"])
    what: str = Field(description="What is wrong with it.", examples=["Input should be a valid string"])


class Problem(BaseModel):
    """Why a request was not done (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:holdfast:problem:not-found",
                    "title": "Not found",
                    "status": 404,
                    "detail": "There is no job called 'shop'.",
                }
            ]
        }
    )

    type: str = Field(description="Names the kind of problem, for programs.")
    title: str = Field(description="The kind of problem, for people.")
    status: int = Field(ge=400, le=599)
    detail: str = Field(description="What is wrong, and what to do.")
    retry_after: int | None = Field(default=None, description="Seconds until it may be tried again.")
    errors: list[Fault] | None = Field(default=None, description="What is wrong with which part of the request.")


def answer(
    status: int,
    name: str,
    title: str,
    detail: str,
    *,
    retry_after: float | None = None,
    faults: list[Fault] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem as a response."""
    seconds = None if retry_after is None else max(1, math.ceil(retry_after))
    problem = Problem(
        type=f"urn:holdfast:problem:{name}",
        title=title,
        status=status,
        detail=detail,
        retry_after=seconds,
        errors=faults,
    )
    given = dict(headers or {})
    if seconds is not None:
        given["Retry-After"] = str(seconds)
    if status == 401:
        given["WWW-Authenticate"] = _CHALLENGE
    return JSONResponse(problem.model_dump(exclude_none=True), status, media_type=MEDIA_TYPE, headers=given)


def of_error(problem: errors.HoldfastError) -> Response:
    """The problem that one of our errors is."""
    kind = next(kind for kind in type(problem).__mro__ if kind in KINDS)
    status, name, title = KINDS[kind]
    retry_after = problem.retry_after if isinstance(problem, errors.TooMany | errors.UnderWay) else None
    detail = _IN_SHORT.get(kind, str(problem))
    return answer(status, name, title, detail, retry_after=_LATER if status == 503 else retry_after)


def plain(
    status: int, detail: str, headers: Mapping[str, str] | None = None, retry_after: float | None = None
) -> Response:
    """A problem that the web layer itself has found."""
    name, title = PLAIN.get(status, ("http", "It cannot be done"))
    return answer(status, name, title, detail, headers=headers, retry_after=retry_after)


def install(app: FastAPI) -> None:
    """Have everything that is raised answered as a problem."""

    @app.exception_handler(errors.HoldfastError)
    async def ours(_: Request, problem: errors.HoldfastError) -> Response:
        if KINDS[next(kind for kind in type(problem).__mro__ if kind in KINDS)][0] >= 500:
            log.warning("%s: %s", type(problem).__name__, problem)
        return of_error(problem)

    @app.exception_handler(RequestValidationError)
    async def unusable(_: Request, problem: RequestValidationError) -> Response:
        faults = [_fault(found) for found in problem.errors()[:_MOST_ERRORS]]
        detail = f"{faults[0].where}: {faults[0].what}." if faults else "The request cannot be understood."
        status, name, title = KINDS[errors.UsageError]
        return answer(status, name, title, detail, faults=faults)

    @app.exception_handler(HTTPException)
    async def http(request: Request, problem: HTTPException) -> Response:
        words = {
            404: f"There is nothing at {request.url.path[:_LONGEST_PATH]}; /api/openapi.json lists what there is.",
            405: f"{request.method} is not for {request.url.path[:_LONGEST_PATH]}; the Allow header says what is.",
        }
        detail = words.get(problem.status_code, str(problem.detail))
        return plain(problem.status_code, detail, headers=problem.headers)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These problems, for the description of a route."""
    return {
        status: {
            "description": PLAIN[status][1],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted(statuses)
    }


def _fault(found: Mapping[str, Any]) -> Fault:
    where = ".".join(str(part) for part in found.get("loc", ()))
    return Fault(where=where[:200] or "request", what=str(found.get("msg", "is not valid"))[:300])
