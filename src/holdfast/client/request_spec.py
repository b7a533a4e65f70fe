"""Requests as values: a single request, a paginated list, a stream of events.

The rule: a specification says everything about a request but who sends it, so that the two clients differ only in how
they wait.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import httpx

from holdfast.client.decoding import read
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.json_values import utc_text

T = TypeVar("T")

_NOT_IDEMPOTENT: Final = re.compile(
    r"/api/auth/(login|logout|password)|/api/admin/(users|proxies|proxies/[^/]+/test)|/api/frontier/recover"
    r"|/api/jobs/[^/]+/retry|/api/jobs/(actions|plan)"
)
"""POSTs whose Idempotency-Key the server ignores: they contain passwords, wait for other servers, count failures, take many locks or
change nothing."""

_STARTS_OPERATION: Final = frozenset({"/api/frontier", "/api/admin/pages"})
"""A DELETE of these starts an operation; to repeat it would also delete what was added after the first one."""
_FIRST_PAGE_SIZE: Final = 100
_NEXT_PAGE_SIZE: Final = 500


@dataclass(frozen=True, slots=True)
class RequestSpec(Generic[T]):
    """One request, and how its response is decoded."""

    method: str
    path: str
    read: Callable[[httpx.Response], T]
    query: Mapping[str, object] = field(default_factory=dict)
    """None is left out, a list is repeated."""
    body: object = field(default=None, repr=False)
    """It may contain a password."""
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: bool = False
    """The response is returned before its body has arrived."""
    read_timeout: float = 0.0
    """Seconds to wait for the response, if the client's own timeout is shorter."""

    @property
    def has_idempotency_key(self) -> bool:
        """Whether an Idempotency-Key is sent, so that the server processes it once however often it is repeated."""
        return self.method == "POST" and not _NOT_IDEMPOTENT.fullmatch(self.path)

    @property
    def repeatable(self) -> bool:
        """Whether it is safe to send again when the result of the first attempt is unknown."""
        return (
            self.has_idempotency_key
            or self.method in {"GET", "HEAD", "PUT"}
            or (self.method == "DELETE" and self.path not in _STARTS_OPERATION)
        )

    @property
    def missing_is_success(self) -> bool:
        """Whether a 404 after a retry is a success: the first attempt has deleted it."""
        return self.method == "DELETE" and self.read is no_body

    def parameters(self) -> list[tuple[str, str]]:
        """The query as pairs of texts."""
        pairs = ((name, value if isinstance(value, list | tuple) else [value]) for name, value in self.query.items())
        return [(name, _text(one)) for name, values in pairs for one in values if one is not None]


@dataclass(frozen=True, slots=True)
class ListSpec(Generic[T]):
    """A paginated list; each page has the cursor of the next one."""

    path: str
    kind: type[T]
    query: Mapping[str, object]

    def page(self, cursor: str | None, limit: int | None = None) -> RequestSpec[tuple[list[T], str | None]]:
        """The page after a cursor: its items, and the next cursor. `limit` is the page size; by default the first
        page is smaller than the following ones."""

        def items(response: httpx.Response) -> tuple[list[T], str | None]:
            page = document(response)
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise HoldfastError(
                    "The server's answer is no page of a list; it is of another version than this client."
                )
            return [read(self.kind, item) for item in page["items"]], page.get("next")

        page_size = limit if limit is not None else (_FIRST_PAGE_SIZE if cursor is None else _NEXT_PAGE_SIZE)
        return RequestSpec("GET", self.path, items, {**self.query, "cursor": cursor, "limit": page_size})


@dataclass(frozen=True, slots=True)
class StreamSpec(Generic[T]):
    """A stream of Server-Sent Events, and how each is decoded."""

    path: str
    read: Callable[[str, str | None, Any], T | None]
    """Decodes an event from its name, id and data; None: the event is skipped."""
    query: Mapping[str, object] = field(default_factory=dict)
    is_last: Callable[[T], bool] = lambda _: False
    """Whether this event is the last one."""
    may_vanish: bool = False
    """The resource may be deleted: then the stream ends, and to reconnect is a 404."""


def document(response: httpx.Response) -> Any:
    """The JSON of a response."""
    try:
        return response.json()
    except ValueError as problem:
        raise HoldfastError(
            f"{response.url.copy_with(query=None)} did not answer as a Holdfast server does; check the address."
        ) from problem


def decode_one(kind: type[T]) -> Callable[[httpx.Response], T]:
    """A decoder of a response that is one object."""
    return lambda response: read(kind, document(response))


def decode_list(kind: type[T]) -> Callable[[httpx.Response], list[T]]:
    """A decoder of a response that is an array."""
    return lambda response: read(list[kind], document(response))  # type: ignore[valid-type]


def no_body(_: httpx.Response) -> None:
    """The decoder of a response without a body."""


def format_path(path: str, *names: object) -> str:
    """A path with these names in its placeholders, percent-encoded. Raises UsageError for a name that cannot be a
    segment of a path."""
    parts = [str(name) for name in names]
    for part in parts:
        if part.strip(".") == "" and len(part) < 3:
            raise UsageError(f"{part!r} names nothing in a path; a job of that name is reached by its id.")
    return path.format(*(quote(part, safe="", errors="replace") for part in parts))


def if_match(version: int | None) -> dict[str, str]:
    """The If-Match header of a version; None: any version, no header."""
    return {} if version is None else {"If-Match": f'"{version}"'}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return utc_text(value) if isinstance(value, datetime) else str(value)
