"""Items that parsers found: their list, and one item with its data."""

import json
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Query, Response

from holdfast.api.app_services import Services
from holdfast.api.forms import Form
from holdfast.api.pagination import decode_list_cursor
from holdfast.api.request_types import INTEGER
from holdfast.dashboard.lists import ROWS, read_list
from holdfast.dashboard.rendering import Context, query
from holdfast.dashboard.route import page_router
from holdfast.db.keyset_pagination import Page
from holdfast.errors import NotFound
from holdfast.items.records import Item, ItemFilter

router = page_router()

_NAMES: Final = ("name", "title", "headline", "heading", "label", "sku", "id", "url")
"""Fields that say what an item is, the best first."""
_SUMMARY: Final = 120
"""Characters of the summary of an item."""


class Field(NamedTuple):
    """A field of an item as it is shown."""

    name: str
    text: str
    is_json: bool
    """An array or an object, shown as JSON."""


@router.get("/items")
def items(context: Context, services: Services) -> Response:
    """The list, by domain and page."""

    def read(form: Form) -> Page[Item]:
        where = ItemFilter(form.text("url"), form.text("domain"), form.text("job"), form.text("parser"))
        after = decode_list_cursor("items", "key", form.text("cursor"))
        return services.items.page(where, after=after, limit=ROWS)

    shown = read_list(context, read)
    return context.page("items/list.html", notice=shown.notice, shown=shown, address=item_address, summary=summary)


@router.get("/items/item")
def item(
    context: Context,
    services: Services,
    url: Annotated[str, Query(min_length=1, max_length=4096)],
    job: Annotated[str, Query(min_length=1, max_length=255)],
    parser: Annotated[str, Query(min_length=1, max_length=100)],
    position: Annotated[int, Query(ge=0, le=INTEGER)],
) -> Response:
    """One item: where it was found, and its data as a table."""
    where = ItemFilter(url, job=job, parser=parser, position=position)
    found = services.items.page(where, limit=1).rows
    if not found:
        raise NotFound(f"Parser {parser} has no item {position + 1} of {url} in job {job}; the page may have changed.")
    data = found[0].data
    return context.page(
        "items/item.html",
        item=found[0],
        fields=[_field(name, value) for name, value in data.items()],
        summary=summary(data),
        as_json=_json(data),
    )


def item_address(item: Item) -> str:
    """Return the address of the page of an item."""
    return query("/items/item", url=item.url, job=item.job, parser=item.parser, position=item.position)


def summary(data: dict[str, Any]) -> str:
    """Return a few words that say what an item is: its name or title, or else its first fields."""
    for name in _NAMES:
        value = data.get(name)
        if isinstance(value, str | int) and str(value).strip():
            return _cut(str(value).strip())
    return _cut(", ".join(f"{name}: {_short(value)}" for name, value in list(data.items())[:4])) or "no fields"


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:_SUMMARY]


def _cut(text: str) -> str:
    return text if len(text) <= _SUMMARY else f"{text[:_SUMMARY]}…"


def _field(name: str, value: object) -> Field:
    is_json = isinstance(value, list | dict)
    return Field(name, value if isinstance(value, str) else _json(value), is_json)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
