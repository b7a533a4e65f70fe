"""What a server answers as JSON, as the rows that commands print; and lists from a place that commands know.

The rule: a time is a datetime again, and a duration a timedelta, so that they are printed as those of the store are.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from holdfast.client import Client
from holdfast.client.request_spec import ListSpec
from holdfast.model.cursor import encode_cursor

Row = dict[str, Any]

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_TIMES: Final = re.compile(r"(.*_)?(after|at|before|now|until)")
_SPANS: Final = frozenset({"default_crawl_frequency", "proxy_sticky"})


def revived(value: Any, name: str = "") -> Any:
    """A value as the store gives it."""
    if isinstance(value, dict):
        return {key: revived(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [revived(one, name) for one in value]
    if isinstance(value, str) and _TIMES.fullmatch(name) and _TIME.fullmatch(value):
        return datetime.fromisoformat(value)
    if name in _SPANS and isinstance(value, int | float):
        return timedelta(seconds=value)
    return value


def row(raw: Mapping[str, Any], known: Iterable[str] = ()) -> Row:
    """A row with all the names that commands know; None: the server does not say it."""
    return {**dict.fromkeys(known), **revived(dict(raw))}


def listed(client: Client, path: str, query: Mapping[str, object], limit: int | None = None) -> list[Row]:
    """The rows of a list, so many at the most."""
    found: Iterable[Row] = client.each(ListSpec(path, dict, query))
    return [revived(raw) for raw in islice(found, limit)]


def part(client: Client, path: str, query: Mapping[str, object], behind: object, limit: int) -> list[Row]:
    """The rows of a list that goes by one value, behind that value; None: from its beginning."""
    listing = ListSpec(path, dict, query)
    items, _ = client.ask(listing.page(None if behind is None else encode_cursor((behind,)), limit))
    return [revived(raw) for raw in items]
