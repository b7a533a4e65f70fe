"""The filter of a list: which rows to show, as the caller states it.

The rule: a filter that is None is absent. An invalid value is refused here, before the store is asked.
"""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final

from holdfast.errors import UsageError

MAX_TEXT: Final = 2_048
"""Characters of a text that is searched for."""
_MAX_ID: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ListFilter:
    """The base of the filters of all lists; a field that is None is absent."""

    def given(self) -> dict[str, object]:
        """Return the filters that are present, by the names of the query; domains, jobs and batches by their names. Raises UsageError."""
        found: dict[str, object] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None:
                _check(one.name, value)
                found[one.name] = value
        return found


def split_flag(given: dict[str, object], name: str, yes: str, no: str) -> None:
    """Replace a filter that is true or false by the one of two filters that the query knows."""
    if name in given:
        given[yes if given.pop(name) else no] = True


def is_storable_text(text: str) -> bool:
    """Whether PostgreSQL can store a text: no NUL, no lone surrogate."""
    if text.isascii():
        return "\0" not in text
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:  # JSON can write one half of a character without the other
        return False


def _check(name: str, value: object) -> None:
    if isinstance(value, str) and not (0 < len(value) <= MAX_TEXT and is_storable_text(value)):
        raise UsageError(f"{name} must be a text of 1 to {MAX_TEXT} characters.")
    if isinstance(value, int) and not isinstance(value, bool) and not 0 < value <= _MAX_ID:
        raise UsageError(f"There is no {name} {value}.")
    if isinstance(value, datetime) and value.tzinfo is None:
        raise UsageError(f"A time, such as that of {name}, is written with its time zone.")
