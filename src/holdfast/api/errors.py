"""Error responses as RFC 9457 problems: one table from exceptions to status codes.

The rule: every exception becomes a problem whose `detail` says what to do. The response to an unexpected exception
says nothing about the inside of the server; the log has it.
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
_RETRY_AFTER: Final = 5
"""Seconds in `Retry-After` while the database is unavailable."""
_MAX_ERRORS: Final = 20
_MAX_PATH_LENGTH: Final = 200
"""Characters of a path that a response repeats."""
_CHALLENGE: Final = 'Bearer realm="holdfast"'

BY_ERROR: Final[Mapping[type[errors.HoldfastError], tuple[int, str, str]]] = {
    errors.HoldfastError: (500, "failed", "It failed"),
    errors.UsageError: (422, "unusable", "The request is not valid"),
    errors.StoreError: (500, "store", "The database refused"),
    errors.StoreUnavailable: (503, "unavailable", "The database does not answer"),
    errors.SchemaMismatch: (503, "schema", "The database has another schema"),
    errors.StoreMoved: (503, "moved", "The database was moved"),
    errors.RolledBack: (503, "rolled-back", "Nothing was done"),
    errors.SearchUnavailable: (503, "search-unavailable", "Search is not available now"),
    errors.NotFound: (404, "not-found", "Not found"),
    errors.Refused: (409, "refused", "The present state forbids it"),
    errors.Changed: (412, "changed", "It was changed meanwhile"),
    errors.UnderWay: (409, "under-way", "The same request is still being done"),
    errors.Denied: (403, "denied", "You may not do this"),
    errors.Unauthenticated: (401, "unauthenticated", "Not logged in"),
    errors.TooMany: (429, "too-many", "Too many requests"),
}
"""Status, name and title of each exception; one that is not listed is treated as its parent class."""
BY_STATUS: Final[Mapping[int, tuple[str, str]]] = {
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
"""Name and title of the statuses that the HTTP layer itself answers with."""


_PUBLIC_DETAILS: Final[Mapping[type[errors.HoldfastError], str]] = {
    errors.StoreError: "The database refused this; the server's log says why.",
    errors.StoreUnavailable: "The database is away, busy, or took too long for this; try again in a moment, or ask for less.",
    errors.SchemaMismatch: "The database has another schema than this server knows; its operator has to upgrade one of them.",
    errors.StoreMoved: "The store was moved to another database, or is being moved; "
    "the operator has to give this server the new address, which its log says.",
}
"""Details for callers; the messages of these exceptions name internal addresses."""


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


def problem_response(
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
    all_headers = dict(headers or {})
    if seconds is not None:
        all_headers["Retry-After"] = str(seconds)
    if status == 401:
        all_headers["WWW-Authenticate"] = _CHALLENGE
    return JSONResponse(problem.model_dump(exclude_none=True), status, media_type=MEDIA_TYPE, headers=all_headers)


def from_error(problem: errors.HoldfastError) -> Response:
    """The problem for one of our exceptions."""
    status, title, detail = describe(problem)
    retry_after = problem.retry_after if isinstance(problem, errors.TooMany | errors.UnderWay) else None
    name = BY_ERROR[_listed(problem)][1]
    return problem_response(status, name, title, detail, retry_after=_RETRY_AFTER if status == 503 else retry_after)


def describe(problem: errors.HoldfastError) -> tuple[int, str, str]:
    """The status, the title and the detail of one of our exceptions, as callers may read them."""
    error = _listed(problem)
    status, _, title = BY_ERROR[error]
    return status, title, _PUBLIC_DETAILS.get(error, str(problem))


def _listed(problem: errors.HoldfastError) -> type[errors.HoldfastError]:
    return next(error for error in type(problem).__mro__ if error in BY_ERROR)


def from_status(
    status: int, detail: str, headers: Mapping[str, str] | None = None, retry_after: float | None = None
) -> Response:
    """A problem that the HTTP layer itself has found."""
    name, title = BY_STATUS.get(status, ("http", "It cannot be done"))
    return problem_response(status, name, title, detail, headers=headers, retry_after=retry_after)


def install(app: FastAPI) -> None:
    """Register exception handlers that answer with problems."""

    @app.exception_handler(errors.HoldfastError)
    async def holdfast_error(_: Request, problem: errors.HoldfastError) -> Response:
        if BY_ERROR[_listed(problem)][0] >= 500:
            log.warning("%s: %s", type(problem).__name__, problem)
        return from_error(problem)

    @app.exception_handler(RequestValidationError)
    async def validation_error(_: Request, problem: RequestValidationError) -> Response:
        faults = [_fault(found) for found in problem.errors()[:_MAX_ERRORS]]
        detail = f"{faults[0].where}: {faults[0].what}." if faults else "The request cannot be understood."
        status, name, title = BY_ERROR[errors.UsageError]
        return problem_response(status, name, title, detail, faults=faults)

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, problem: HTTPException) -> Response:
        return from_status(problem.status_code, http_detail(request, problem), headers=problem.headers)


def http_detail(request: Request, problem: HTTPException) -> str:
    """The detail of a problem that the router or the HTTP layer has found."""
    path = request.url.path[:_MAX_PATH_LENGTH]
    details = {
        404: f"There is nothing at {path}; /api/openapi.json lists what there is.",
        405: f"{request.method} is not for {path}; the Allow header says what is.",
    }
    return details.get(problem.status_code, str(problem.detail))


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: these statuses, with the schema of a problem."""
    return {
        status: {
            "description": BY_STATUS[status][1],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted(statuses)
    }


def _fault(found: Mapping[str, Any]) -> Fault:
    where = ".".join(str(part) for part in found.get("loc", ()))
    return Fault(where=where[:200] or "request", what=str(found.get("msg", "is not valid"))[:300])
