"""Passwords: what may be one, how it is hashed and compared, and how many are computed at once.

The rule: a comparison costs the same whatever is compared. A password that cannot be right, or one of nobody, is compared like any other,
with a hash that fits nothing. Argon2id takes 64 MiB each time, so a process computes two at once, and lets few wait for it.
"""

import secrets
import threading
import unicodedata
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

from holdfast.errors import TooMany, UsageError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SHORTEST: Final = 12
"""Characters."""
LONGEST: Final = 1024
"""Bytes."""
AT_ONCE: Final = 2
IN_LINE: Final = 16
"""Logins that may wait for a computation in this process: each keeps one of the server's threads."""

_MADE: Final = 20
_LETTERS: Final = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""None that looks like another."""
_SALT, _HASH = 16, 32  # bytes

_computing = threading.BoundedSemaphore(AT_ONCE)
_in_line = threading.BoundedSemaphore(AT_ONCE + IN_LINE)


class Hasher(Protocol):
    """How passwords are hashed and compared."""

    def hash(self, password: str) -> str:
        """The password as it may be stored."""

    def verify(self, hashed: str | None, password: str) -> bool:
        """Whether it is the password; None: there is none that it could be, which takes as long."""

    def is_outdated(self, hashed: str) -> bool:
        """Whether it would be hashed differently now."""


@dataclass(frozen=True, slots=True)
class Argon2:
    """Argon2id, with the second set of parameters that RFC 9106 recommends."""

    time_cost: int = 3
    memory_cost: int = 65_536
    """KiB."""
    parallelism: int = 4

    def hash(self, password: str) -> str:
        """The password as it may be stored. Before: `check` has nothing against it."""
        with _computing:
            return _argon2(self).hash(_bytes(password) or b"")

    def verify(self, hashed: str | None, password: str) -> bool:
        """Whether it is the password; None: there is none that it could be, which takes as long."""
        from argon2.exceptions import InvalidHashError, VerificationError

        given = _bytes(password)
        hasher = _argon2(self)
        wanted = hashed if hashed is not None and given is not None else self._nobodys()
        try:
            with _computing:
                return hasher.verify(wanted, given or b"")
        except (VerificationError, InvalidHashError):
            return False

    def is_outdated(self, hashed: str) -> bool:
        """Whether it was made with other parameters."""
        return _argon2(self).check_needs_rehash(hashed)

    def _nobodys(self) -> str:
        """A hash that no password has, with our parameters. It is made up, not computed."""
        salt, made_up = (b64encode(secrets.token_bytes(size)).decode().rstrip("=") for size in (_SALT, _HASH))
        return f"$argon2id$v=19$m={self.memory_cost},t={self.time_cost},p={self.parallelism}${salt}${made_up}"


@cache
def _argon2(parameters: Argon2) -> "PasswordHasher":
    from argon2 import PasswordHasher  # here, for most commands hash nothing

    return PasswordHasher(
        parameters.time_cost, parameters.memory_cost, parameters.parallelism, hash_len=_HASH, salt_len=_SALT
    )


def check(password: str) -> None:
    """Raise UsageError for what cannot be a password."""
    given = unicodedata.normalize("NFC", password)
    if len(given) < SHORTEST:
        raise UsageError(f"A password has at least {SHORTEST} characters.")
    if len(given) > LONGEST or len(given.encode(errors="replace")) > LONGEST:
        raise UsageError(f"A password has at most {LONGEST} bytes.")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in given):
        raise UsageError("A password is text, without control characters.")


def made() -> str:
    """A random password, for somebody who gave none."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_MADE))


@contextmanager
def line() -> Iterator[None]:
    """A place in the line of those whose password is to be looked at. TooMany if it is long: whoever asks comes again."""
    if not _in_line.acquire(blocking=False):
        raise TooMany("Too many logins at this moment; try again in a second.", retry_after=1.0)
    try:
        yield
    finally:
        _in_line.release()


def _bytes(password: str) -> bytes | None:
    """What is hashed: the same for all ways to write the same characters. None: it cannot be a password."""
    if len(password) > LONGEST:
        return None
    try:
        given = unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        return None
    return given if len(given) <= LONGEST else None
