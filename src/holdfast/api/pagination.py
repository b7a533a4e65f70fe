"""Keyset pagination: cursors, pages, and `Link` headers.

The rule: a cursor is the key of the last row of a page, for one list and its order. It is neither secret nor trusted:
an invalid one is refused, and its values are bound as SQL parameters like any other.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from holdfast.control import listings
from holdfast.errors import UsageError
from holdfast.model.cursor import INVALID_CURSOR, Key, decode_cursor, encode_cursor

MAX_LIMIT: Final = 500
DEFAULT_LIMIT: Final = 100

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many at the most.")]
CursorText = Annotated[
    str | None,
    Query(
        max_length=1024,
        description="Where to go on: the `next` of the page before. It belongs to the same list, filters and order.",
    ),
]
Row = TypeVar("Row")


class Page(BaseModel, Generic[Row]):
    """A part of a list."""

    items: list[Row]
    next: str | None = Field(
        default=None,
        description="The cursor of the next page, also in the `Link` header; null: this is the last one. A page may be short, or "
        "empty, and not be the last one.",
    )
    scanned: int | None = Field(
        default=None,
        description="How many rows were looked at, if the page ends there although it is not full: no index has the filter, and "
        "`next` goes on after them. null: the page is full, or the last one.",
    )


def decode_list_cursor(listing: str, order: str, cursor: str | None) -> tuple[object, ...] | None:
    """Decode the cursor of one of the lists of `control/listings`. Raises UsageError."""
    return decode_cursor(cursor, *listings.key_types(listing, order))


def decode_id_cursor(cursor: str | None) -> int | None:
    """Decode the cursor of a list that is sorted by id. Raises UsageError."""
    key = decode_cursor(cursor, int)
    if key is None:
        return None
    (number,) = key
    if not isinstance(number, int):
        raise UsageError(INVALID_CURSOR)
    return number


def id_page(request: Request, response: Response, rows: Sequence[Row], limit: int) -> Page[Row]:
    """A page of a list that is sorted by id: if it is full, there may be a next one."""
    last: Any = rows[-1] if len(rows) == limit else None
    return keyset_page(request, response, rows, None if last is None else (last.id,))


def keyset_page(
    request: Request, response: Response, rows: Sequence[Row], key: Key | None, scanned: int | None = None
) -> Page[Row]:
    """A page whose next page starts after `key`; None: it is the last one."""
    cursor = None if key is None else encode_cursor(key)
    add_link_header(request, response, cursor)
    return Page(items=list(rows), next=cursor, scanned=scanned)


def add_link_header(request: Request, response: Response, cursor: str | None) -> None:
    """Add the `Link` header with the URL of the next page."""
    if cursor is not None:
        query = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
        target = f"{request.url.path}?{urlencode([*query, ('cursor', cursor)])}"
        response.headers["Link"] = f'<{target}>; rel="next"'
