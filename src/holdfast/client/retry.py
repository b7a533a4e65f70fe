"""Retries: a request from its first attempt to its response, as a generator of steps that the clients carry out.

The rule: only a request that is safe to repeat is repeated (`RequestSpec.repeatable`), with the same Idempotency-Key.
The clients send and wait; whether and when a request is retried is decided here, once for both.
"""

import json
import random
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx

from holdfast.client import errors
from holdfast.client.request_spec import RequestSpec
from holdfast.errors import UsageError
from holdfast.model.json_values import json_default

T = TypeVar("T")

KEY: Final = "Idempotency-Key"
MAX_RETRY_AFTER: Final = 60.0
"""Seconds. A longer Retry-After is not waited for: the caller gets the error."""
_FIRST_BACKOFF: Final = 0.25
_MAX_BACKOFF: Final = 8.0
_RETRY_STATUSES: Final = frozenset({429, 502, 503, 504})
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_PERMANENT: Final = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The server, the API key, the timeout in seconds and the number of retries of a client."""

    server: str
    key: str | None = field(repr=False)
    timeout: float
    retries: int

    def __post_init__(self) -> None:
        problem = UsageError("A server's address is a URL such as http://127.0.0.1:8080 or https://crawler.example.")
        try:
            parts = urlsplit(self.server)
            host = (
                httpx.URL(self.server).host if parts.port != 0 else ""
            )  # a bad host or port is a ValueError of either
        except (ValueError, httpx.InvalidURL) as cause:
            raise problem from cause
        if parts.scheme not in {"http", "https"} or not host or parts.query or parts.fragment:
            raise problem
        if parts.username is not None or parts.password is not None:
            raise UsageError("A server's address must not contain a user and password: pass the API key as `key`.")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and " " not in self.key):
            raise UsageError("An API key is a word of ASCII characters: hfk_… (`holdfast keys add` makes one).")
        if self.timeout <= 0 or self.retries < 0:
            raise UsageError("`timeout` must be more than 0 seconds, and `retries` 0 or more.")

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of every request."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}


@dataclass(frozen=True, slots=True)
class Send:
    """A step: send a request now. Its result is the response or the error of the connection."""

    request: RequestSpec[Any]
    content: bytes | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pause:
    """A step: wait."""

    seconds: float


Step = Send | Pause
StepResult = httpx.Response | httpx.TransportError | None
"""The result of a step: a response, an error, or None after a pause."""


def request_steps(request: RequestSpec[T], config: ClientConfig) -> Generator[Step, StepResult, T]:
    """The steps of a request. Returns its decoded response; raises the exception of an error response."""
    send = Send(request, _content(request), _headers(request))
    attempt = 0
    may_be_done = False  # by an earlier attempt
    while True:
        result = yield send
        assert result is not None  # noqa: S101 — every `Send` has a result
        if isinstance(result, httpx.Response):
            if result.is_success:
                return request.read(result)
            if result.status_code == 404 and may_be_done and request.missing_is_success:
                return request.read(result)
        delay = _retry_delay(request, result, attempt) if attempt < config.retries else None
        not_sent = isinstance(result, _NOT_SENT)
        if delay is None:
            if isinstance(result, httpx.Response):
                raise errors.from_response(result, with_key=config.key is not None)
            not_done = request.method == "GET" or (not_sent and not may_be_done)
            raise errors.from_transport_error(result, config.server, certainly_not_done=not_done) from result
        may_be_done = may_be_done or not (not_sent or _did_nothing(result))
        attempt += 1
        yield Pause(delay)


def backoff(attempt: int) -> float:
    """Seconds before the next attempt: exponential, with jitter."""
    return min(_FIRST_BACKOFF * 2.0**attempt, _MAX_BACKOFF) * random.uniform(0.5, 1.0)  # noqa: S311 — no secret


def _retry_delay(request: RequestSpec[T], result: httpx.Response | httpx.TransportError, attempt: int) -> float | None:
    """Seconds before the next attempt; None: there is none."""
    if not request.repeatable:
        return None
    if isinstance(result, httpx.TransportError):
        return None if isinstance(result, _PERMANENT) else backoff(attempt)
    if result.status_code in _RETRY_STATUSES or errors.is_under_way(result):
        retry_after = errors.retry_after(result)
        if retry_after is None:
            return backoff(attempt)
        return retry_after if retry_after <= MAX_RETRY_AFTER else None
    return None


def _did_nothing(result: httpx.Response | httpx.TransportError) -> bool:
    """Whether the server itself said that it did nothing."""
    return isinstance(result, httpx.Response) and result.status_code in {429, 503}


def _content(request: RequestSpec[T]) -> bytes | None:
    if request.body is None:
        return None
    try:
        return json.dumps(request.body, default=json_default, allow_nan=False).encode()
    except ValueError as problem:
        raise UsageError("A request body must be JSON, which has no infinity and no NaN.") from problem


def _headers(request: RequestSpec[T]) -> Mapping[str, str]:
    headers = {"Accept": "application/json", **request.headers}
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    if request.has_idempotency_key:
        headers.setdefault(KEY, str(uuid.uuid4()))
    return headers
