"""Passwords: rules, hashing, verification at the same cost in every case, and how many are computed at once.

The rule: a verification costs the same in every case. A password that is invalid, or whose user does not exist, is verified like any
other, against a hash that no password has. Argon2id takes 64 MiB each time, so a process computes two at once, and lets few wait for it.
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

MIN_LENGTH: Final = 12
"""Characters."""
MAX_LENGTH: Final = 1024
"""Bytes."""
MAX_COMPUTING: Final = 2
MAX_WAITING: Final = 16
"""Logins that may wait for a computation in this process: each occupies one of the server's threads."""

_GENERATED_LENGTH: Final = 20
_ALPHABET: Final = "abcdefghjkmnpqrstuvwxyzABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Without characters that look alike."""
_SALT, _HASH = 16, 32  # bytes

_computing = threading.BoundedSemaphore(MAX_COMPUTING)
_admitted = threading.BoundedSemaphore(MAX_COMPUTING + MAX_WAITING)


class Hasher(Protocol):
    """Hashes and verifies passwords."""

    def hash(self, password: str) -> str:
        """Return the hash to store."""

    def verify(self, hashed: str | None, password: str) -> bool:
        """Whether it is the password; None: there is no hash, which takes as long and is False."""

    def is_outdated(self, hashed: str) -> bool:
        """Whether the hash was made with other parameters than today's."""


@dataclass(frozen=True, slots=True)
class Argon2:
    """Argon2id, with the second set of parameters that RFC 9106 recommends."""

    time_cost: int = 3
    memory_cost: int = 65_536
    """KiB."""
    parallelism: int = 4

    def hash(self, password: str) -> str:
        """Return the hash to store. Before: `check` has accepted the password."""
        with _computing:
            return _argon2(self).hash(_bytes(password) or b"")

    def verify(self, hashed: str | None, password: str) -> bool:
        """Whether it is the password; None: there is no hash, which takes as long and is False."""
        from argon2.exceptions import InvalidHashError, VerificationError

        given = _bytes(password)
        hasher = _argon2(self)
        wanted = hashed if hashed is not None and given is not None else self._dummy_hash()
        try:
            with _computing:
                return hasher.verify(wanted, given or b"")
        except (VerificationError, InvalidHashError):
            return False

    def is_outdated(self, hashed: str) -> bool:
        """Whether the hash was made with other parameters."""
        return _argon2(self).check_needs_rehash(hashed)

    def _dummy_hash(self) -> str:
        """Return a random hash that no password has, with the same parameters. It is not computed."""
        salt, digest = (b64encode(secrets.token_bytes(size)).decode().rstrip("=") for size in (_SALT, _HASH))
        return f"$argon2id$v=19$m={self.memory_cost},t={self.time_cost},p={self.parallelism}${salt}${digest}"


@cache
def _argon2(parameters: Argon2) -> "PasswordHasher":
    from argon2 import PasswordHasher  # imported here: most commands hash nothing

    return PasswordHasher(
        parameters.time_cost, parameters.memory_cost, parameters.parallelism, hash_len=_HASH, salt_len=_SALT
    )


def check(password: str) -> None:
    """Raise UsageError if a password is invalid."""
    given = unicodedata.normalize("NFC", password)
    if len(given) < MIN_LENGTH:
        raise UsageError(f"A password has at least {MIN_LENGTH} characters.")
    if len(given) > MAX_LENGTH or len(given.encode(errors="replace")) > MAX_LENGTH:
        raise UsageError(f"A password has at most {MAX_LENGTH} bytes.")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in given):
        raise UsageError("A password is text, without control characters.")


def generate() -> str:
    """Return a random password."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(_GENERATED_LENGTH))


@contextmanager
def verification_slot() -> Iterator[None]:
    """Hold one of the slots for logins that verify a password or wait for it. TooMany, with a time to retry, if all are taken."""
    if not _admitted.acquire(blocking=False):
        raise TooMany("Too many logins at this moment; try again in a second.", retry_after=1.0)
    try:
        yield
    finally:
        _admitted.release()


def _bytes(password: str) -> bytes | None:
    """Return the bytes that are hashed, in one normal form. None: the password is invalid."""
    if len(password) > MAX_LENGTH:
        return None
    try:
        given = unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        return None
    return given if len(given) <= MAX_LENGTH else None
