"""Rules for names of users and of API keys.

The rule: a user's name is never a number, is no name that the audit log reserves, and is unambiguous to read (ASCII).
"""

import re
from typing import Final

from holdfast.errors import NotFound, UsageError
from holdfast.model.auth import ANONYMOUS, LOCAL_ADMIN

RESERVED: Final = frozenset({ANONYMOUS.name, LOCAL_ADMIN.name, "holdfast"})
"""Other actors of the audit log."""

_NAME: Final = re.compile(r"(?![0-9]+\Z)[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
_KEY_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._@-]{0,62}[A-Za-z0-9._@-])?", re.ASCII)
_ID: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_LAST_ID: Final = 2**63 - 1
_SHOWN: Final = 80


def is_name(text: str) -> bool:
    """Whether a text can be the name of a user."""
    return _NAME.fullmatch(text) is not None


def check(name: str) -> None:
    """Raise UsageError if a text cannot be the name of a new user."""
    if not is_name(name):
        raise UsageError(
            "The name of a user is 1 to 64 letters of ASCII, digits and any of . _ - @, begins with a letter or a digit, and is not "
            "only digits."
        )
    if name.lower() in RESERVED:
        raise UsageError(f"{name} is reserved in the audit log; choose another name.")


def check_key(name: str) -> None:
    """Raise UsageError if a text cannot be the name of an API key."""
    if not _KEY_NAME.fullmatch(name):
        raise UsageError(
            "The name of a key is 1 to 64 letters of ASCII, digits, spaces and any of . _ - @, and begins with a letter or a digit."
        )


def name_or_id(text: int | str) -> int | str:
    """Return the reference to a user as an id (a number) or a name. Raises NotFound for what can be neither."""
    number = int(text) if isinstance(text, int) or _ID.fullmatch(text) else None
    if number is not None and 0 < number <= _LAST_ID:
        return number
    if isinstance(text, str) and is_name(text):
        return text
    raise NotFound(f"There is no user {str(text)[:_SHOWN]!r}.")
