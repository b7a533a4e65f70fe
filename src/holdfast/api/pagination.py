"""Lists in pages: cursors that say where to go on, and `Link` headers for who follows them.

The rule: a cursor is the key of the last row that was seen, for one list and its order. It is no secret and not trusted: what cannot be
one is refused, and its values are bound like any other.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from holdfast.control import browsing
from holdfast.errors import UsageError

_NO_CURSOR: Final = "This is no cursor of this list; take the `next` of a page of it, or leave it out to begin."
MOST: Final = 500
USUAL: Final = 100

Limit = Annotated[int, Query(ge=1, le=MOST, description="How many at the most.")]
CursorText = Annotated[
    str | None,
    Query(
        max_length=1024,
        description="Where to go on: the `next` of the page before. It belongs to the same list, filters and order.",
    ),
]
Key = Sequence[object]
"""What a list goes on behind: numbers, texts, bytes, times, None."""

Row = TypeVar("Row")


class Page(BaseModel, Generic[Row]):
    """A part of a list."""

    items: list[Row]
    next: str | None = Field(
        default=None,
        description="The cursor of the next page, also in the `Link` header; null: this is the last one. A page may be short, or "
        "empty, and not be the last one.",
    )


def pack(key: Key) -> str:
    """A key as a cursor."""
    text = json.dumps([_packed(part) for part in key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


def unpack(cursor: str | None, *kinds: type) -> tuple[object, ...] | None:
    """The key that a cursor stands for, of values of these kinds; None: the list begins at its beginning."""
    if cursor is None:
        return None
    problem = UsageError(_NO_CURSOR)
    try:
        parts = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)))
        if not isinstance(parts, list) or len(parts) != len(kinds):
            raise problem
        return tuple(_unpacked(part, kind) for part, kind in zip(parts, kinds, strict=True))
    except (ValueError, binascii.Error, UnicodeError, RecursionError, OverflowError, TypeError) as cause:
        raise problem from cause


def behind(which: str, order: str, cursor: str | None) -> tuple[object, ...] | None:
    """The key that a cursor of one of the lists of `control/browsing` stands for."""
    return unpack(cursor, *browsing.kinds(which, order))


def unpack_id(cursor: str | None) -> int | None:
    """The id that a cursor of a list by ids stands for."""
    key = unpack(cursor, int)
    if key is None:
        return None
    (number,) = key
    if not isinstance(number, int):
        raise UsageError(_NO_CURSOR)
    return number


def page_of(request: Request, response: Response, rows: Sequence[Row], limit: int) -> Page[Row]:
    """A page of a list that goes by ids: there may be more if it is full."""
    last: Any = rows[-1] if len(rows) == limit else None
    return keyed(request, response, rows, None if last is None else (last.id,))


def keyed(request: Request, response: Response, rows: Sequence[Row], key: Key | None) -> Page[Row]:
    """A page that goes on behind `key`; None: it is the last one."""
    cursor = None if key is None else pack(key)
    link(request, response, cursor)
    return Page(items=list(rows), next=cursor)


def link(request: Request, response: Response, cursor: str | None) -> None:
    """Say in the response's headers where the next page is."""
    if cursor is not None:
        query = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
        target = f"{request.url.path}?{urlencode([*query, ('cursor', cursor)])}"
        response.headers["Link"] = f'<{target}>; rel="next"'


def _packed(part: object) -> object:
    if isinstance(part, bytes):
        return part.hex()
    if isinstance(part, datetime):
        return part.astimezone(UTC).isoformat()
    assert part is None or isinstance(part, str | int | float), part  # noqa: S101 — keys are made of these
    return part


def _unpacked(part: object, kind: type) -> object:
    if part is None:
        return None
    if kind is bytes and isinstance(part, str):
        return bytes.fromhex(part)
    if kind is datetime and isinstance(part, str):
        moment = datetime.fromisoformat(part)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if kind is float and isinstance(part, int | float) and not isinstance(part, bool):
        return float(part)
    if kind is int and isinstance(part, int) and not isinstance(part, bool) and -(2**63) <= part < 2**63:
        return part
    if kind is str and isinstance(part, str) and "\0" not in part and part.isprintable():
        return part
    raise ValueError("another kind of value")
