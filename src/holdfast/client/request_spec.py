"""What a client asks a server, as values: one request, a list in pages, a stream of events.

The rule: a call says everything about a request but who sends it, so that the two clients differ only in how they wait.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import httpx

from holdfast.client.reading import read
from holdfast.errors import HoldfastError, UsageError

T = TypeVar("T")

_ONCE: Final = re.compile(
    r"/api/auth/(login|logout|password)|/api/admin/(users|proxies|proxies/[^/]+/test)|/api/frontier/recover"
)
"""POSTs that the server does not remember by an Idempotency-Key: they have passwords in them, wait for others, or count failures."""

_ASKS: Final = frozenset({"/api/frontier", "/api/admin/pages"})
"""What a DELETE of these asks for is long work, which would be done twice: the second time to what came after the first."""
_FIRST: Final = 100
_FOLLOWING: Final = 500


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    query: Mapping[str, object] = field(default_factory=dict)
    """None is left out, a list is said several times."""
    body: object = field(default=None, repr=False)
    """It may hold a password."""
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: bool = False
    """The answer is given on before its body is there."""

    @property
    def keyed(self) -> bool:
        """Whether an Idempotency-Key goes with it, so that the server does it once however often it is sent."""
        return self.method == "POST" and not _ONCE.fullmatch(self.path)

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again when nobody knows what became of it."""
        return (
            self.keyed or self.method in {"GET", "HEAD", "PUT"} or (self.method == "DELETE" and self.path not in _ASKS)
        )

    @property
    def forgets(self) -> bool:
        """Whether it is done when there is nothing (any more) to do it to."""
        return self.method == "DELETE" and self.read is nothing

    def parameters(self) -> list[tuple[str, str]]:
        """The query as it is sent."""
        pairs = ((name, value if isinstance(value, list | tuple) else [value]) for name, value in self.query.items())
        return [(name, _text(one)) for name, values in pairs for one in values if one is not None]


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list in pages, each found by the cursor of the one before."""

    path: str
    kind: type[T]
    query: Mapping[str, object]

    def page(self, cursor: str | None, limit: int | None = None) -> Call[tuple[list[T], str | None]]:
        """The page behind a cursor: its items, and the next cursor. Who reads on is given more at once, unless `limit` says how many."""

        def items(response: httpx.Response) -> tuple[list[T], str | None]:
            page = document(response)
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise HoldfastError(
                    "The server's answer is no page of a list; it is of another version than this client."
                )
            return [read(self.kind, item) for item in page["items"]], page.get("next")

        most = limit if limit is not None else (_FIRST if cursor is None else _FOLLOWING)
        return Call("GET", self.path, items, {**self.query, "cursor": cursor, "limit": most})


@dataclass(frozen=True, slots=True)
class Stream(Generic[T]):
    """Server-Sent Events, and how each is read."""

    path: str
    read: Callable[[str, str | None, Any], T | None]
    """Of the name, the id and the data of an event; None: nobody wants to know."""
    query: Mapping[str, object] = field(default_factory=dict)
    is_last: Callable[[T], bool] = lambda _: False
    """Whether nothing follows."""
    may_vanish: bool = False
    """What is watched may be deleted: then the stream ends, and to connect again is a 404."""


def document(response: httpx.Response) -> Any:
    """The JSON of an answer."""
    try:
        return response.json()
    except ValueError as problem:
        raise HoldfastError(
            f"{response.url.copy_with(query=None)} did not answer as a Holdfast server does; check the address."
        ) from problem


def one(kind: type[T]) -> Callable[[httpx.Response], T]:
    """Reads an answer that is one thing."""
    return lambda response: read(kind, document(response))


def some(kind: type[T]) -> Callable[[httpx.Response], list[T]]:
    """Reads an answer that is an array of things."""
    return lambda response: read(list[kind], document(response))  # type: ignore[valid-type]


def nothing(_: httpx.Response) -> None:
    """For answers without a body."""


def at(path: str, *names: object) -> str:
    """A path with these names in its places. Raises UsageError for a name that cannot be a part of one."""
    parts = [str(name) for name in names]
    for part in parts:
        if part.strip(".") == "" and len(part) < 3:
            raise UsageError(f"{part!r} names nothing in a path; a job of that name is reached by its id.")
    return path.format(*(quote(part, safe="", errors="replace") for part in parts))


def plain(value: object) -> object:
    """What JSON has no word for, as the server takes it."""
    if isinstance(value, datetime):
        return _moment(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return str(value)


def if_match(version: int | None) -> dict[str, str]:
    """The header that says which version of a thing is to be changed; None: any."""
    return {} if version is None else {"If-Match": f'"{version}"'}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _moment(value) if isinstance(value, datetime) else str(value)


def _moment(moment: datetime) -> str:
    """A time without a time zone is meant in UTC, as everything here is."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
