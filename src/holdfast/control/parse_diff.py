"""What differs between what a parser found before and what it finds now.

Pure. The rule: names and texts in it come from the web or a plug-in, so all of it is bounded, and nothing is trusted.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

SHOWN: Final = 100
"""Characters of a value that are shown."""
NAMES: Final = 200
"""Names of fields that are counted apart; those that come after are counted together."""
OTHERS: Final = "(others)"

_PATH: Final = 200
_MISSING: Final = object()


class Kind(StrEnum):
    """How a field differs."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Change:
    """One field that differs; what it was and what it is as JSON writes it, cut."""

    field: str
    kind: Kind
    old: str | None = None
    new: str | None = None
    product: str | None = None
    """The name of the product that it belongs to, if it does."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was found in a page, as JSON says it; products by what they are known again by."""

    data: Mapping[str, Any]
    products: Mapping[bytes, Mapping[str, Any]]


@dataclass(slots=True)
class Tally:
    """How often each field differs, and how."""

    fields: dict[str, dict[Kind, int]] = field(default_factory=dict)

    def count(self, change: Change) -> None:
        """Count one."""
        name = change.field if change.field in self.fields or len(self.fields) < NAMES else OTHERS
        kinds = self.fields.setdefault(name, dict.fromkeys(Kind, 0))
        kinds[change.kind] += 1


def differences(old: Found, new: Found) -> Iterator[Change]:
    """Every field that differs: of the data, by its path; then products, and the fields of those that are in both."""
    yield from _between(old.data, new.data, "")
    for key in (*old.products, *(key for key in new.products if key not in old.products)):
        was, now = old.products.get(key), new.products.get(key)
        if was is not None and now is not None:
            name = _cut(str(now.get("name")))
            for change in _between(was, now, "product."):
                yield Change(change.field, change.kind, change.old, change.new, name)
        elif was is not None:
            yield Change("product", Kind.REMOVED, old=_written(was.get("name")))
        elif now is not None:
            yield Change("product", Kind.ADDED, new=_written(now.get("name")))


def _between(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
    for name in (*old, *(name for name in new if name not in old)):
        was, now = old.get(name, _MISSING), new.get(name, _MISSING)
        where = f"{path}{name}"[:_PATH]
        if now is _MISSING:
            yield Change(where, Kind.REMOVED, old=_written(was))
        elif was is _MISSING:
            yield Change(where, Kind.ADDED, new=_written(now))
        elif isinstance(was, dict) and isinstance(now, dict):
            yield from _between(was, now, f"{where}.")
        elif not _same(was, now):
            yield Change(where, Kind.CHANGED, _written(was), _written(now))


def _same(was: object, now: object) -> bool:
    """Equal as JSON: true is not 1, though Python has it so; 1 and 1.0 are one number."""
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(map(_same, was, now))
    if isinstance(was, dict) and isinstance(now, dict):
        return was.keys() == now.keys() and all(_same(value, now[name]) for name, value in was.items())
    return isinstance(was, bool) is isinstance(now, bool) and was == now


def _written(value: object) -> str:
    return _cut(json.dumps(value, ensure_ascii=False))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
