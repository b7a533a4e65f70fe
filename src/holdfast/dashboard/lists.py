"""Lists on pages: filters from the address of the page, and a page of rows after a cursor.

The rule: a filter that is wrong is said at the top of an empty list, beside the form it was typed into; a list never ends in an error page.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from holdfast.api.forms import Form, filter_form
from holdfast.dashboard.rendering import Notice, PageContext, query
from holdfast.db.keyset_pagination import Key, Page
from holdfast.errors import NotFound, UsageError
from holdfast.model.cursor import encode_cursor

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

    @property
    def moves(self) -> bool:
        """Whether the page that shows it is live: the first one, with filters that are right."""
        return self.first_page is None and self.notice is None


def read_list(context: PageContext, read: Callable[[Form], Page[Row]]) -> ShownList[Row]:
    """Read a page of a list; `read` takes the filters, with the `cursor`, and returns the rows."""
    return list_at(context.request.url.path, context.request.query_params, read)


def list_at(path: str, parameters: Mapping[str, str], read: Callable[[Form], Page[Row]]) -> ShownList[Row]:
    """Read a page of the list at this path, with the parameters of its address: for live views, which have no request."""
    filters = filled(**parameters)
    is_filtered = bool(filters.keys() - {"cursor", "order"})
    try:
        found = read(filter_form(filters))
    except (UsageError, NotFound) as problem:
        first = pager(path, filters, None)["first_page"] or None
        return ShownList([], None, first, Notice("problem", str(problem)), is_filtered=True)
    pages = pager(path, filters, found.next)
    return ShownList(
        found.rows, pages["next_page"] or None, pages["first_page"] or None, None, is_filtered, found.scanned
    )


def filled(**parameters: str | None) -> dict[str, str]:
    """Return the parameters that are neither None nor empty."""
    return {name: value for name, value in parameters.items() if value}


def pager(path: str, parameters: Mapping[str, str], following: Key | None) -> dict[str, str]:
    """Return the addresses of the next and the first page of the list at this path, empty where there is none."""
    return {
        "next_page": query(path, **{**parameters, "cursor": encode_cursor(following)}) if following is not None else "",
        "first_page": query(path, **{**parameters, "cursor": None}) if parameters.get("cursor") else "",
    }


def id_page(rows: list[Row], limit: int = ROWS) -> Page[Row]:
    """A page of a list that is sorted by id: if it is full, there may be a next one."""
    last: Any = rows[-1] if len(rows) == limit else None
    return Page(rows, None if last is None else (last.id,))
