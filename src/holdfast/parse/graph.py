"""Reading values out of items of structured data, whatever shape they have.

The rule: a property may be missing, one value, a list, an item, or a reference to an item elsewhere; whoever asks need not know which.
"""

import html
import math
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from holdfast.model.parsed import line
from holdfast.parse.structured import Item

_MAX_NODES: Final = 20_000
_ASIDE: Final = frozenset(
    {"isRelatedTo", "isSimilarTo", "isAccessoryOrSparePartFor", "isConsumableFor", "isVariantOf", "@context"}
)
"""Where other products stand that the page only mentions."""


class Graph:
    """The items of a page that may refer to each other."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._roots = list(items)
        self._named: dict[str, Item] = {}
        for item in self.all():
            name = item.get("@id")
            if isinstance(name, str) and len(item) > len(self._named.get(name, {})):
                self._named[name] = item

    def all(self, *, aside: bool = True) -> Iterator[Item]:
        """Every item, in the order of the page; without `aside` not those that are only mentioned."""
        stack: list[Any] = list(reversed(self._roots))
        for _ in range(_MAX_NODES):
            if not stack:
                return
            node = stack.pop()
            if isinstance(node, dict):
                yield node
                node = [value for key, value in node.items() if aside or key not in _ASIDE]
            stack.extend(part for part in reversed(node) if isinstance(part, dict | list))

    def values(self, item: Item, *names: str) -> list[Any]:
        """The values of the first of these properties that has any. References are followed."""
        for name in names:
            for key in (name, f"schema:{name}", f"http://schema.org/{name}", f"https://schema.org/{name}"):
                written = item.get(key)
                values = [self._followed(value) for value in (written if isinstance(written, list) else [written])]
                if found := [value for value in values if value not in (None, "", {}, [])]:
                    return found
        return []

    def items(self, item: Item, *names: str) -> list[Item]:
        """Of those values, the ones that are items."""
        return [value for value in self.values(item, *names) if isinstance(value, dict)]

    def text(self, item: Item, *names: str) -> str | None:
        """The first of those values that is words or a number, or an item with a name."""
        return next(iter(self.texts(item, *names)), None)

    def texts(self, item: Item, *names: str) -> Iterator[str]:
        """All of them, likewise."""
        for value in self.values(item, *names):
            if isinstance(value, dict):
                value = next(iter(self.values(value, "name", "@value", "url", "contentUrl", "@id")), None)
            if (words := as_text(value)) is not None:
                yield words

    def _followed(self, value: object) -> object:
        if isinstance(value, dict) and len(value) <= 2 and isinstance(name := value.get("@id"), str):
            return self._named.get(name, value)
        return value


def as_text(value: object) -> str | None:
    """Words or a number as a line of text; numbers without an exponent. None if it is neither."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f") if math.isfinite(value) else None
    if isinstance(value, int):
        return format(Decimal(value), "f") if abs(value) < 10**30 else None
    return line(html.unescape(value)) or None if isinstance(value, str) else None


def as_decimal(value: object) -> Decimal | None:
    """A number that was written as one in JSON; None if it is no such number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = Decimal(repr(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
