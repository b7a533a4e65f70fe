"""Server-Sent Events for a client: an incremental decoder, and a subscription that reconnects.

The rule: after a reconnect the stream resumes after the last event that was received, and none is received twice.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import httpx

from holdfast.client.decoding import read
from holdfast.client.errors import Unreachable
from holdfast.client.request_spec import RequestSpec, StreamSpec
from holdfast.client.retry import ClientConfig, backoff
from holdfast.errors import HoldfastError, NotFound, StoreUnavailable, TooMany

T = TypeVar("T")

READ_TIMEOUT: Final = 60.0
"""Seconds of silence after which a connection is dead; a server sends a comment every 15 seconds."""
_MAX_FAILURES: Final = 30
"""Consecutive failed attempts to reconnect, over some minutes, before it gives up."""
_TRANSIENT: Final = (Unreachable, StoreUnavailable, TooMany)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a job, a domain, a task, a worker or an alert."""

    kind: str
    """The kind; `reset` means that events were deleted, and everything has to be read again."""
    id: str | None
    """Its cursor in the order of all events."""
    data: dict[str, Any]
    at: datetime | None = None
    job_id: int | None = None
    domain: str | None = None


def read_event(name: str, event_id: str | None, data: Any) -> Event:
    """Decode an event from its name, id and data."""
    if not isinstance(data, dict) or "data" not in data:
        return Event(name, None, data if isinstance(data, dict) else {"data": data})
    return read(Event, {**data, "kind": name, "id": event_id})


@dataclass(frozen=True, slots=True)
class Message:
    """An event before its data is decoded."""

    name: str
    id: str | None
    data: str


class EventDecoder:
    """Decodes messages from chunks of bytes."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None
        self.last_id: str | None = None
        """The id of the last complete block, also of one without data."""

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """The messages that these bytes complete."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode(errors="replace")
            if text:
                self._take(text)
                continue
            self.last_id = self._id
            if self._data:
                yield Message(self._name or "message", self.last_id, "\n".join(self._data))
            self._name, self._data = "", []

    def _take(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id" and "\0" not in value:
            self._id = value or None


class EventSubscription(Generic[T]):
    """A subscription to a stream: the last event, and whether and when to reconnect."""

    def __init__(self, stream: StreamSpec[T], config: ClientConfig) -> None:
        self._stream = stream
        self._config = config
        self._decoder = EventDecoder()
        self._last_id: str | None = None
        self._failures = 0
        self._was_connected = False
        self._ended = False

    @property
    def config(self) -> ClientConfig:
        """The configuration of the next request; once connected, retries are decided here and not in `retry`."""
        return replace(self._config, retries=0) if self._was_connected else self._config

    def is_over(self) -> bool:
        """Whether the stream has ended for good."""
        return self._ended

    def request(self) -> RequestSpec[httpx.Response]:
        """The request that opens or resumes the stream."""
        headers = {"Accept": "text/event-stream"}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        return RequestSpec(
            "GET", self._stream.path, lambda response: response, self._stream.query, headers=headers, stream=True
        )

    def connected(self) -> None:
        """The stream is connected."""
        self._was_connected = True
        self._decoder = EventDecoder()

    def feed(self, chunk: bytes) -> Iterator[T]:
        """The events that these bytes complete."""
        self._failures = 0
        for message in self._decoder.feed(chunk):
            if self._ended:
                return
            self._last_id = self._decoder.last_id or self._last_id
            if message.name == "gone":  # where the resource cannot vanish, it means that the server cannot read it now
                self._ended = self._stream.may_vanish
                continue
            value = self._stream.read(message.name, message.id, _document(message))
            if value is not None:
                self._ended = self._stream.is_last(value)
                yield value
        self._last_id = self._decoder.last_id or self._last_id  # an id may come without an event

    def reconnect_delay(self, problem: Exception | None) -> float:
        """Seconds until the next attempt, after the stream broke or could not be opened. Raises an error that is
        permanent, or repeated too often."""
        if isinstance(problem, NotFound) and self._was_connected and self._stream.may_vanish:
            self._ended = True
            return 0.0
        error = _error(problem, self._config.server)
        if not (self._was_connected and self._config.retries and isinstance(error, _TRANSIENT)):
            raise error
        self._failures += 1
        if self._failures > _MAX_FAILURES:
            raise error
        return max(backoff(self._failures), error.retry_after if isinstance(error, TooMany) else 0.0)


def _error(problem: Exception | None, server: str) -> HoldfastError:
    if isinstance(problem, HoldfastError):
        return problem
    return Unreachable(f"The live connection to {server} broke ({problem or 'the server ended it'}); try again.")


def _document(message: Message) -> object:
    try:
        return json.loads(message.data)
    except ValueError as problem:
        raise HoldfastError(
            "The server's event cannot be read; it is of another version than this client."
        ) from problem
