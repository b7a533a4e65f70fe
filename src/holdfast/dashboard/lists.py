"""Lists on pages: filters from the address of the page, and a page of rows after a cursor.

The rule: a filter that is wrong is said at the top of an empty list, beside the form it was typed into; a list never ends in an error page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from holdfast.api.forms import Form, query_form
from holdfast.dashboard.rendering import Notice, PageContext
from holdfast.db.keyset_pagination import Page
from holdfast.errors import NotFound, UsageError

ROWS: Final = 50
"""Rows on a page of a list."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class ShownList(Generic[Row]):
    """The rows of a list that a page shows, with the addresses of the next and the first page."""

    rows: Sequence[Row]
    next_page: str | None = None
    first_page: str | None = None
    """None: this is the first one."""
    notice: Notice | None = None
    """Why there are no rows: a filter that is wrong."""
    is_filtered: bool = False
    """Whether the list may have rows that the filters leave out."""
    scanned: int | None = None
    """How many rows a search without an index has looked at, if it goes on with the next page."""


def read_list(context: PageContext, read: Callable[[Form], Page[Row]]) -> ShownList[Row]:
    """Read a page of a list; `read` takes the filters, with the `cursor`, and returns the rows."""
    given = {name for name, value in context.request.query_params.items() if value}
    is_filtered = bool(given - {"cursor", "order"})
    first = context.with_query(cursor=None) if "cursor" in given else None
    try:
        found = read(query_form(context.request))
    except (UsageError, NotFound) as problem:
        return ShownList([], None, first, Notice("problem", str(problem)), is_filtered=True)
    return ShownList(found.rows, context.next_page(found.next), first, None, is_filtered, found.scanned)


def id_page(rows: list[Row], limit: int = ROWS) -> Page[Row]:
    """A page of a list that is sorted by id: if it is full, there may be a next one."""
    last: Any = rows[-1] if len(rows) == limit else None
    return Page(rows, None if last is None else (last.id,))
