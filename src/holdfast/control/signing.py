"""What webhooks are signed with: the setting, or a secret of this installation's own in a file.

The rule: the file is made once, whole or not at all, and is its owner's alone. A secret leaves this module to sign, or when a person asks.
"""

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from pydantic import SecretStr

from holdfast.errors import SettingsError
from holdfast.settings import Settings, signing_secrets
from holdfast.store.embedded import files

_FILE: Final = "webhook.secret"


@dataclass(frozen=True, slots=True)
class Signing:
    """The secrets of one installation."""

    data: Path
    given: SecretStr | None = None
    """By the setting; it comes before the file."""
    origin: str = ""
    """Where the setting comes from, for people."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """As the settings say."""
        return cls(settings.data, settings.webhook.secret, settings.origin("webhook.secret").place)

    @property
    def file(self) -> Path:
        """Where the installation's own secret is, or will be."""
        return self.data / _FILE

    def known(self) -> tuple[str, ...]:
        """The secrets; none if nothing is set and none was made yet. Raises SettingsError for a file that cannot be used."""
        if self.given is not None:
            return signing_secrets(self.given.get_secret_value())
        try:
            mode = self.file.lstat().st_mode
            text = files.read(self.file)
        except FileNotFoundError:
            return ()
        except OSError as problem:
            raise SettingsError(f"{self.file} cannot be read: {problem.strerror}.") from problem
        if mode & 0o077:
            raise SettingsError(f"{self.file} may be read by others: make it yours alone with `chmod 600`.")
        try:
            return signing_secrets(text)
        except ValueError as problem:
            raise SettingsError(f"What is in {self.file} {problem}.") from None

    def ensure(self) -> tuple[str, ...]:
        """The secrets; one is made if there is none. After: whoever else asks, now or later, is given the same."""
        if known := self.known():
            return known
        try:
            files.make_folders(self.data, mode=0o700)
            self._make()
        except OSError as problem:
            raise SettingsError(f"{self.file} cannot be made: {problem.strerror}.") from problem
        return self.known()

    def _make(self) -> None:
        new, owner = files.unfinished(self.file), self.data.stat()
        # Root's visit must not lock the owner of the folder out.
        uid, gid = (owner.st_uid, owner.st_gid) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        files.write(new, f"{secrets.token_urlsafe(32)}\n", uid=uid, gid=gid)
        try:
            with suppress(FileExistsError):  # somebody else was first, and that one counts
                os.link(new, self.file)
        finally:
            new.unlink()
        files.sync_folder(self.data)
