"""A request from its first sending to its answer, with its repetitions: what is to be done next, without doing it.

The rule: only what may be sent twice is sent twice (`Call.repeatable`), under the same Idempotency-Key. The clients send and wait; whether
and when they do it again is decided here, once for both.
"""

import json
import random
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx

from holdfast.client import problems
from holdfast.client.call import Call, plain
from holdfast.errors import UsageError

T = TypeVar("T")

KEY: Final = "Idempotency-Key"
LONGEST_PATIENCE: Final = 60.0
"""Seconds. A server that wants to be left alone for longer is: the caller hears of it."""
_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 8.0
_AGAIN: Final = frozenset({429, 502, 503, 504})
_UNSENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_HOPELESS: Final = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)


@dataclass(frozen=True, slots=True)
class Manner:
    """Whom a client asks, as whom, and how patiently."""

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
            raise UsageError("A server's address has no user and password in it: give the API key for itself.")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable() and " " not in self.key):
            raise UsageError("An API key is a word of ASCII characters: hfk_… (`holdfast keys add` makes one).")
        if self.timeout <= 0 or self.retries < 0:
            raise UsageError("A client waits for longer than no time, and repeats a request 0 times or more.")

    @property
    def headers(self) -> Mapping[str, str]:
        """What goes with every request."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}


@dataclass(frozen=True, slots=True)
class Send:
    """To be sent now; the answer, or what became of the connection, is wanted."""

    call: Call[Any]
    content: bytes | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is to be done for so many seconds."""

    seconds: float


Step = Send | Pause
Outcome = httpx.Response | httpx.TransportError | None
"""Of a step: an answer, a failure, or nothing after a pause."""


def exchange(call: Call[T], manner: Manner) -> Generator[Step, Outcome, T]:
    """The steps of a request. Returns what its answer says; raises the error that it is."""
    send = Send(call, _content(call), _headers(call))
    attempt = 0
    perhaps_done = False  # by an attempt before
    while True:
        found = yield send
        assert found is not None  # noqa: S101 — something comes of every sending
        if isinstance(found, httpx.Response):
            if found.is_success:
                return call.read(found)
            if found.status_code == 404 and perhaps_done and call.forgets:
                return call.read(found)
        pause = _pause(call, found, attempt) if attempt < manner.retries else None
        unsent = isinstance(found, _UNSENT)
        if pause is None:
            if isinstance(found, httpx.Response):
                raise problems.of_answer(found, with_key=manner.key is not None)
            harmless = call.method == "GET" or (unsent and not perhaps_done)
            raise problems.of_transport(found, manner.server, certainly_not_done=harmless) from found
        perhaps_done = perhaps_done or not (unsent or _refused(found))
        attempt += 1
        yield Pause(pause)


def backing_off(attempt: int) -> float:
    """Seconds before the next attempt: twice as many each time, and never the same for all who wait."""
    return min(_FIRST_PAUSE * 2.0**attempt, _LONGEST_PAUSE) * random.uniform(0.5, 1.0)  # noqa: S311 — no secret


def _pause(call: Call[T], found: httpx.Response | httpx.TransportError, attempt: int) -> float | None:
    """How long to wait before it is sent again; None: it is not."""
    if not call.repeatable:
        return None
    if isinstance(found, httpx.TransportError):
        return None if isinstance(found, _HOPELESS) else backing_off(attempt)
    if found.status_code in _AGAIN or problems.is_under_way(found):
        asked = problems.retry_after(found)
        if asked is None:
            return backing_off(attempt)
        return asked if asked <= LONGEST_PATIENCE else None
    return None


def _refused(found: httpx.Response | httpx.TransportError) -> bool:
    """Whether a server said itself that it did nothing."""
    return isinstance(found, httpx.Response) and found.status_code in {429, 503}


def _content(call: Call[T]) -> bytes | None:
    if call.body is None:
        return None
    try:
        return json.dumps(call.body, default=plain, allow_nan=False).encode()
    except ValueError as problem:
        raise UsageError(
            "What is sent to a server is numbers, texts, lists and the like; infinity is none."
        ) from problem


def _headers(call: Call[T]) -> Mapping[str, str]:
    headers = {"Accept": "application/json", **call.headers}
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    if call.keyed:
        headers.setdefault(KEY, str(uuid.uuid4()))
    return headers
