"""The safe: what passwords, headers and cookies are sealed with before they go into the store, and opened with for the worker that needs
them.

The rule: a key is in the settings or in a file of this installation's own, never in the store; the first one seals, all of them open.
Opening never makes a key: one that was lost is said to be lost. No text that is made here holds a key, a password or a sealed one.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from pydantic import SecretStr

from holdfast.control import secret_files as key_files
from holdfast.errors import SettingsError
from holdfast.settings import Settings, secret_keys

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_FILE: Final = "secret.key"
_AGAIN: Final = "or give it again (`holdfast proxies edit PROXY --password-stdin`, `crawl --header …`, `domains set DOMAIN header=…`)"


@dataclass(frozen=True, slots=True)
class Safe:
    """The keys of one installation."""

    data: Path
    given: SecretStr | None = None
    """By the setting; it comes before the file."""
    origin: str = ""
    """Where the setting comes from, for people."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings say."""
        return cls(settings.data, settings.secret_key, settings.origin("secret_key").place)

    @property
    def file(self) -> Path:
        """Where the installation's own key is, or will be."""
        return self.data / _FILE

    @property
    def where(self) -> str:
        """The place of the keys, for people."""
        return str(self.file) if self.given is None else self.origin

    @staticmethod
    def new_key() -> str:
        """A key that nobody has."""
        from cryptography.fernet import Fernet  # here and below, for most commands seal nothing

        return Fernet.generate_key().decode()

    def known(self) -> tuple[str, ...]:
        """The keys, the newest first; none if nothing is set and none was made yet. Raises SettingsError for a file that cannot be used."""
        if self.given is not None:
            return secret_keys(self.given.get_secret_value())
        text = key_files.read(self.file)
        if text is None:
            return ()
        try:
            return secret_keys(text)
        except ValueError as problem:
            raise SettingsError(f"What is in {self.file} {problem}.") from None

    def ensure(self) -> tuple[str, ...]:
        """The keys; one is made if there is none. After: whoever else asks, now or later, is given the same."""
        if known := self.known():
            return known
        key_files.make(self.file, self.new_key())
        return self.known()

    def seal(self, password: str) -> str:
        """A password as it may be stored, under the newest key. A key is made if there is none."""
        return _lock(self.ensure()[0]).encrypt(password.encode()).decode()

    def open(self, token: str) -> str:
        """The password that was sealed. Raises SettingsError if no key opens it."""
        keys = self.known()
        if not keys:
            raise SettingsError(
                f"There is no key to open the secret with: put {self.file} back, set HOLDFAST_SECRET_KEY to the key that it was "
                f"sealed with, {_AGAIN}."
            )
        for key in keys:
            if (password := _opened(key, token)) is not None:
                return password
        raise SettingsError(
            f"The secret was sealed with a key that is not in {self.where}: set HOLDFAST_SECRET_KEY to the new key and, behind a "
            f"comma, the one that it was sealed with, {_AGAIN}."
        )

    def is_newest(self, token: str) -> bool:
        """Whether it is sealed with the key that seals now."""
        keys = self.known()
        return bool(keys) and _opened(keys[0], token) is not None


@lru_cache(maxsize=16)
def _lock(key: str) -> "Fernet":
    from cryptography.fernet import Fernet

    return Fernet(key)


def _opened(key: str, token: str) -> str | None:
    from cryptography.fernet import InvalidToken

    try:
        return _lock(key).decrypt(token.encode()).decode()
    except InvalidToken:
        return None
