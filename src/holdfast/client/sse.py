"""Server-Sent Events as a client hears them: understood piece by piece, and connected again where they broke off.

The rule: who was cut off goes on behind the last event that he has heard, and hears none twice.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

import httpx

from holdfast.client.call import Call, Stream
from holdfast.client.exchange import Manner, backing_off
from holdfast.client.problems import Unreachable
from holdfast.errors import HoldfastError, NotFound, StoreUnavailable, TooMany

T = TypeVar("T")

SILENCE: Final = 60.0
"""Seconds without a word after which a line is dead; a server says four times a minute that it is not."""
_MOST_FAILURES: Final = 30
"""Attempts in a row to connect again, in some minutes, after which it is given up."""
_TRANSIENT: Final = (Unreachable, StoreUnavailable, TooMany)


@dataclass(frozen=True, slots=True)
class Message:
    """An event as it is written."""

    name: str
    id: str | None
    data: str


class Decoder:
    """Makes messages of bytes, however they are cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None
        self.last_id: str | None = None
        """Of what was heard whole, also if it had nothing to say but its place."""

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """The messages that are whole with these bytes."""
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


class Seat(Generic[T]):
    """A place in the audience: what was heard last, and whether and when to connect again."""

    def __init__(self, stream: Stream[T], manner: Manner) -> None:
        self._stream = stream
        self._manner = manner
        self._decoder = Decoder()
        self._last_id: str | None = None
        self._failures = 0
        self._was_open = False
        self._over = False

    @property
    def manner(self) -> Manner:
        """Once it was open, what to do about failures is decided here."""
        return replace(self._manner, retries=0) if self._was_open else self._manner

    def is_over(self) -> bool:
        """Nothing more comes."""
        return self._over

    def call(self) -> Call[httpx.Response]:
        """The request that opens it, or goes on with it."""
        headers = {"Accept": "text/event-stream"}
        if self._last_id is not None:
            headers["Last-Event-ID"] = self._last_id
        return Call(
            "GET", self._stream.path, lambda response: response, self._stream.query, headers=headers, stream=True
        )

    def opened(self) -> None:
        """It is open."""
        self._was_open = True
        self._decoder = Decoder()

    def hear(self, chunk: bytes) -> Iterator[T]:
        """What these bytes say."""
        self._failures = 0
        for message in self._decoder.feed(chunk):
            if self._over:
                return
            self._last_id = self._decoder.last_id or self._last_id
            if message.name == "gone":  # of what is always there, a server that says so means that it cannot look
                self._over = self._stream.may_vanish
                continue
            found = self._stream.read(message.name, message.id, _document(message))
            if found is not None:
                self._over = self._stream.is_last(found)
                yield found
        self._last_id = self._decoder.last_id or self._last_id  # a place may come without an event

    def broke(self, problem: Exception | None) -> float:
        """It ended, or could not be opened again: seconds until the next attempt. Raises what the caller has to know of."""
        if isinstance(problem, NotFound) and self._was_open and self._stream.may_vanish:
            self._over = True
            return 0.0
        error = _error(problem, self._manner.server)
        if not (self._was_open and self._manner.retries and isinstance(error, _TRANSIENT)):
            raise error
        self._failures += 1
        if self._failures > _MOST_FAILURES:
            raise error
        return max(backing_off(self._failures), error.retry_after if isinstance(error, TooMany) else 0.0)


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
