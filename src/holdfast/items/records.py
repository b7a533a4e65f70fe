"""Items that parsers found on pages of crawls, counts of parsed pages, and the filter of the list."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.errors import UsageError
from holdfast.model.list_filter import ListFilter
from holdfast.model.record import record


@record
class Item:
    """An item that a parser found on a page of a crawl."""

    url: str | None
    domain: str | None
    job: str | None
    parser: str
    parser_version: str
    position: int
    """On its page, from 0."""
    fetched_at: datetime
    """When the page was fetched."""
    extracted_at: datetime
    data: dict[str, Any]
    """The item."""


@record
class ParseCounts:
    """Pages of a job by the state of their parsing, and the items that were found."""

    due: int
    failed: int
    parsed: int
    items: int
    error: str | None
    """One of the errors, as an example."""
    documents: int = 0
    """Pages whose main content was looked for (`markdown`); they are not among `parsed`."""


@record
class ItemFilter(ListFilter):
    """Which items to list; None: all."""

    url: str | None = None
    """Of this page."""
    domain: str | None = None
    job: str | int | None = None
    """By name or id."""
    parser: str | None = None
    position: int | None = None
    """On its page, from 0."""

    def given(self) -> dict[str, object]:
        """Return the filters that are present, by the names of the query. Raises UsageError."""
        if self.position is None:
            return ListFilter.given(self)
        if not 0 <= self.position < 2**31:
            raise UsageError(f"No item has the position {self.position}: the first one of a page is 0.")
        return {**ListFilter.given(replace(self, position=None)), "position": self.position}
