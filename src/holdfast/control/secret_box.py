"""Encryption of passwords, headers and cookies that are stored, and their decryption for workers; files with secrets of this installation.

The rule: keys are in the settings or in a file of this installation, never in the database; the first one seals, all of them open.
Opening never generates a key: a lost key is reported. No message contains a key, a password or a sealed secret. A file with a secret is
written once, atomically, and only its owner can read it.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from pydantic import SecretStr

from holdfast import private
from holdfast.db.embedded import safe_files
from holdfast.errors import SettingsError
from holdfast.settings import Settings, secret_keys

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

_FILE: Final = "secret.key"
_AGAIN: Final = "or give it again (`holdfast proxies edit PROXY --password-stdin`, `crawl --header …`, `domains set DOMAIN header=…`)"


@dataclass(frozen=True, slots=True)
class SecretBox:
    """The keys of one installation."""

    data: Path
    configured: SecretStr | None = None
    """The keys of the setting `secret_key`, which takes precedence over the file."""
    origin: str = ""
    """Where the setting comes from, for messages."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The keys of these settings."""
        return cls(settings.data, settings.secret_key, settings.origin("secret_key").place)

    @property
    def file(self) -> Path:
        """The file of the installation's own key, which may not exist yet."""
        return self.data / _FILE

    @property
    def place(self) -> str:
        """The place of the keys, for messages."""
        return str(self.file) if self.configured is None else self.origin

    @staticmethod
    def new_key() -> str:
        """Generate a key."""
        from cryptography.fernet import Fernet  # here and below: most commands seal nothing

        return Fernet.generate_key().decode()

    def keys(self) -> tuple[str, ...]:
        """Return the keys, the newest first; none if there is neither a setting nor a file. Raises SettingsError for an unusable file."""
        if self.configured is not None:
            return secret_keys(self.configured.get_secret_value())
        text = read(self.file)
        if text is None:
            return ()
        try:
            return secret_keys(text)
        except ValueError as problem:
            raise SettingsError(f"What is in {self.file} {problem}.") from None

    def ensure_keys(self) -> tuple[str, ...]:
        """Return the keys; generate one if there is none. After: all processes of the installation use the same keys."""
        if keys := self.keys():
            return keys
        make(self.file, self.new_key())
        return self.keys()

    def seal(self, secret: str) -> str:
        """Encrypt a secret with the newest key; generate a key if there is none."""
        return _cipher(self.ensure_keys()[0]).encrypt(secret.encode()).decode()

    def open(self, token: str) -> str:
        """Decrypt a sealed secret. Raises SettingsError if no key opens it."""
        keys = self.keys()
        if not keys:
            raise SettingsError(
                f"There is no key to open the secret with: put {self.file} back, set HOLDFAST_SECRET_KEY to the key that it was "
                f"sealed with, {_AGAIN}."
            )
        for key in keys:
            if (secret := _decrypt(key, token)) is not None:
                return secret
        raise SettingsError(
            f"The secret was sealed with a key that is not in {self.place}: set HOLDFAST_SECRET_KEY to the new key and, behind a "
            f"comma, the one that it was sealed with, {_AGAIN}."
        )

    def is_newest(self, token: str) -> bool:
        """Return whether a secret is sealed with the newest key."""
        keys = self.keys()
        return bool(keys) and _decrypt(keys[0], token) is not None


@lru_cache(maxsize=16)
def _cipher(key: str) -> "Fernet":
    from cryptography.fernet import Fernet

    return Fernet(key)


def _decrypt(key: str, token: str) -> str | None:
    from cryptography.fernet import InvalidToken

    try:
        return _cipher(key).decrypt(token.encode()).decode()
    except InvalidToken:
        return None


def read(file: Path) -> str | None:
    """Return the content of a file; None: there is none. Raises SettingsError if it is unusable, UsageError in another user's folder."""
    private.check(file.parent)
    try:
        mode = file.lstat().st_mode
        text = safe_files.read(file)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise SettingsError(f"{file} cannot be read: {problem.strerror}.") from problem
    if mode & 0o077:
        raise SettingsError(f"{file} may be read by others: make it yours alone with `chmod 600`.")
    return text


def make(file: Path, secret: str) -> None:
    """Create a file. After: it exists, with this secret or that of a process that was first. Raises as `read`."""
    private.check(file.parent)
    try:
        safe_files.make_folders(file.parent, mode=0o700)
        new = safe_files.unfinished(file)
        safe_files.write(new, f"{secret}\n", uid=os.geteuid(), gid=os.getegid())
        try:
            with suppress(FileExistsError):  # the file of the process that was first counts
                os.link(new, file)
        finally:
            new.unlink()
        safe_files.sync_folder(file.parent)
    except OSError as problem:
        raise SettingsError(f"{file} cannot be made: {problem.strerror}.") from problem
