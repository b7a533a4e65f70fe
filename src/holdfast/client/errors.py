"""Failed requests as the exceptions of `holdfast.errors`.

The rule: the detail of the server is kept. A failure without a response of a Holdfast server says what to do about
it.
"""

from collections.abc import Mapping
from typing import Any, Final

import httpx

from holdfast import errors
from holdfast.errors import HoldfastError

BY_NAME: Final[Mapping[str, type[HoldfastError]]] = {
    "schema": errors.SchemaMismatch,
    "search-unavailable": errors.SearchUnavailable,
    "store": errors.StoreError,
    "under-way": errors.UnderWay,
}
BY_STATUS: Final[Mapping[int, type[HoldfastError]]] = {
    400: errors.UsageError,
    401: errors.Unauthenticated,
    403: errors.Denied,
    404: errors.NotFound,
    405: errors.UsageError,
    406: errors.UsageError,
    409: errors.Refused,
    412: errors.Changed,
    413: errors.UsageError,
    415: errors.UsageError,
    422: errors.UsageError,
    428: errors.UsageError,
    503: errors.StoreUnavailable,
}
"""By status; one that is not listed is a plain HoldfastError, and 429 is TooMany."""
_TYPE_PREFIX: Final = "urn:holdfast:problem:"
_DEFAULT_RETRY_AFTER: Final = 5.0


class Unreachable(HoldfastError):
    """The server does not answer, or not in time, or the connection broke."""


def from_response(response: httpx.Response, *, with_key: bool) -> HoldfastError:
    """The exception for an error response. Before: its body is read."""
    status = response.status_code
    problem = _problem(response)
    if problem is None:
        where = _without_query(response.url)
        if status == 429:
            return errors.TooMany(
                f"A gateway before the server limits requests to {where}; try again later.",
                retry_after=retry_after(response) or _DEFAULT_RETRY_AFTER,
            )
        if status in {502, 503, 504}:
            return Unreachable(f"A gateway before the server says {status} at {where}; try again later.")
        return HoldfastError(f"{where} answered {status}, and not as a Holdfast server does; check the address.")
    message = str(problem["detail"])
    if status == 401:
        cause = "The server does not accept this API key: it is wrong, expired or revoked."
        message = f"{cause if with_key else 'No API key was given (HOLDFAST_API_KEY has none).'} {message}"
    if status == 429:
        return errors.TooMany(message, retry_after=retry_after(response) or _DEFAULT_RETRY_AFTER)
    error = (
        BY_NAME.get(_name(problem)) or BY_STATUS.get(status) or (Unreachable if status in {502, 504} else HoldfastError)
    )
    return error(message)


def from_transport_error(problem: httpx.TransportError, server: str, *, certainly_not_done: bool) -> HoldfastError:
    """The exception for a failed connection."""
    warning = "" if certainly_not_done else " The server may have done it nevertheless: check before you repeat it."
    if isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return Unreachable(
            f"No Holdfast server answers at {server} ({_cause(problem)}); start one with `holdfast serve`, or check the address.{warning}"
        )
    if isinstance(problem, httpx.TimeoutException):
        return Unreachable(f"The server at {server} did not answer in time; try again, or wait longer for it.{warning}")
    return Unreachable(f"The connection to {server} broke ({_cause(problem)}); try again.{warning}")


def is_under_way(response: httpx.Response) -> bool:
    """Whether the server is still processing the same request. Before: the body is read."""
    problem = _problem(response) if response.status_code == 409 else None
    return problem is not None and BY_NAME.get(_name(problem)) is errors.UnderWay


def retry_after(response: httpx.Response) -> float | None:
    """Seconds in the Retry-After header; None: it has none."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else None


def _problem(response: httpx.Response) -> Mapping[str, Any] | None:
    try:
        found = response.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("detail"), str) else None


def _name(problem: Mapping[str, Any]) -> str:
    return str(problem.get("type", "")).removeprefix(_TYPE_PREFIX)


def _cause(problem: Exception) -> str:
    return str(problem).strip().rstrip(".") or type(problem).__name__


def _without_query(url: httpx.URL) -> str:
    return str(url.copy_with(query=None))
