"""Names of users and of API keys: what may be one.

The rule: a user's name is never an id, is no word that the audit log uses for somebody else, and looks the same to everybody who reads it.
"""

import re
from typing import Final

from holdfast.errors import NotFound, UsageError
from holdfast.model.account import ANONYMOUS, EVERYBODY

RESERVED: Final = frozenset({ANONYMOUS.name, EVERYBODY.name, "holdfast"})
"""Others whom the audit log names."""

_NAME: Final = re.compile(r"(?![0-9]+\Z)[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_KEY_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._@-]{0,62}[A-Za-z0-9._@-])?", re.ASCII)
_ID: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_LAST_ID: Final = 2**63 - 1
_SHOWN: Final = 80


def is_name(text: str) -> bool:
    """Whether a user could be called that."""
    return _NAME.fullmatch(text) is not None


def check(name: str) -> None:
    """Raise UsageError for what cannot be the name of a user."""
    if not is_name(name):
        raise UsageError(
            "The name of a user is 1 to 64 letters of ASCII, digits and any of . _ - @, begins with a letter or a digit, and is not "
            "only digits."
        )
    if name.lower() in RESERVED:
        raise UsageError(f"{name} is a name that the audit log has for somebody else; choose another.")


def check_key(name: str) -> None:
    """Raise UsageError for what cannot be the name of an API key."""
    if not _KEY_NAME.fullmatch(name):
        raise UsageError(
            "The name of a key is 1 to 64 letters of ASCII, digits, spaces and any of . _ - @, and begins with a letter or a digit."
        )


def who(named: int | str) -> int | str:
    """A user who is named, by an id or a name: an id as a number. Raises NotFound for what can be neither."""
    number = int(named) if isinstance(named, int) or _ID.fullmatch(named) else None
    if number is not None and 0 < number <= _LAST_ID:
        return number
    if isinstance(named, str) and is_name(named):
        return named
    raise NotFound(f"There is no user {str(named)[:_SHOWN]!r}.")
